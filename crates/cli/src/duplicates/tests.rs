use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;

use super::*;

/// Branches `a`, `b` and `c`.
struct World {
    dir: tempfile::TempDir,
}

impl World {
    /// With these files and their contents, the first the oldest; and old enough to be compared.
    fn new(files: &[(&str, &str)]) -> World {
        let dir = tempfile::tempdir().unwrap();
        for branch in ["a", "b", "c"] {
            fs::create_dir_all(dir.path().join(branch).join("d")).unwrap();
        }
        for (second, (path, content)) in files.iter().enumerate() {
            let path = dir.path().join(path);
            fs::write(&path, content).unwrap();
            let at = UNIX_EPOCH + Duration::from_secs(1_000 + second as u64);
            File::options().write(true).open(&path).unwrap().set_modified(at).unwrap();
        }
        World { dir }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    fn branches(&self) -> Vec<LockedBranch> {
        let root = |name: &str| Root { name: name.to_owned(), path: self.path(name) };
        ["a", "b", "c"].iter().map(|name| LockedBranch::lock(&root(name), true).unwrap()).collect()
    }
}

fn let_time_pass() {
    std::thread::sleep(RECENT + Duration::from_millis(200));
}

/// What becomes of the second copy of `d/file`, and whether it was deleted.
fn second(branches: &[LockedBranch]) -> (Verdict, Result<(), Left>) {
    let path = Path::new("d/file");
    let mut copies = open(branches, path).unwrap();
    let (kept, others) = copies.split_first_mut().unwrap();
    let verdict = others[0].compare(kept);
    let deleted = match &verdict {
        Verdict::Equal => others[0].delete(kept, OsStr::new("file")),
        other => Err(match other {
            Verdict::Left(left) => left.clone(),
            _ => Left::Kind,
        }),
    };
    (verdict, deleted)
}

const EQUAL: &[(&str, &str)] = &[("a/d/file", "text"), ("b/d/file", "text")];

#[test]
fn an_equal_copy_goes_and_the_newest_stays() {
    let world = World::new(EQUAL);
    let_time_pass();
    assert_eq!(second(&world.branches()), (Verdict::Equal, Ok(())));
    assert!(!world.path("a/d/file").exists());
    assert_eq!(fs::read(world.path("b/d/file")).unwrap(), b"text");
}

#[test]
fn a_copy_that_differs_in_one_byte_or_in_size_stays() {
    for other in ["tex!", "longer"] {
        let world = World::new(&[("a/d/file", other), ("b/d/file", "text")]);
        let_time_pass();
        assert_eq!(second(&world.branches()).0, Verdict::Different);
        assert!(world.path("a/d/file").exists());
    }
}

#[test]
fn a_copy_with_other_rights_or_attributes_stays() {
    let world = World::new(EQUAL);
    fs::set_permissions(world.path("a/d/file"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::set_permissions(world.path("b/d/file"), fs::Permissions::from_mode(0o640)).unwrap();
    let_time_pass();
    assert!(matches!(second(&world.branches()).0, Verdict::Left(Left::Attributes { kept }) if kept == "b"));
}

#[test]
fn a_copy_with_other_names_stays() {
    let world = World::new(EQUAL);
    fs::hard_link(world.path("a/d/file"), world.path("a/d/other")).unwrap();
    let_time_pass();
    assert_eq!(second(&world.branches()).0, Verdict::Left(Left::OtherNames));
}

#[test]
fn one_file_under_two_paths_is_never_its_own_copy() {
    let world = World::new(&[("b/d/file", "text")]);
    fs::hard_link(world.path("b/d/file"), world.path("a/d/file")).unwrap();
    let_time_pass();
    assert_eq!(second(&world.branches()).0, Verdict::Left(Left::SameFile));
    assert!(world.path("a/d/file").exists() && world.path("b/d/file").exists());
}

#[test]
fn a_copy_that_is_open_stays() {
    let world = World::new(EQUAL);
    let_time_pass();
    let writer = File::options().write(true).open(world.path("b/d/file")).unwrap();
    assert_eq!(second(&world.branches()).0, Verdict::Left(Left::Open));
    drop(writer);
    let reader = File::open(world.path("a/d/file")).unwrap();
    assert_eq!(second(&world.branches()), (Verdict::Equal, Err(Left::Open)));
    drop(reader);
    assert_eq!(second(&world.branches()).1, Ok(()));
}

#[test]
fn what_changes_between_the_comparison_and_the_answer_stays() {
    for changed in ["a/d/file", "b/d/file"] {
        let world = World::new(EQUAL);
        let_time_pass();
        let branches = world.branches();
        let mut copies = open(&branches, Path::new("d/file")).unwrap();
        let (kept, others) = copies.split_first_mut().unwrap();
        assert_eq!(others[0].compare(kept), Verdict::Equal);
        fs::write(world.path(changed), "TEXT").unwrap();
        assert_eq!(others[0].delete(kept, OsStr::new("file")), Err(Left::Changed), "{changed}");
        assert!(world.path("a/d/file").exists());
    }
}

#[test]
fn the_copy_that_is_kept_may_not_vanish_before_the_other_goes() {
    let world = World::new(EQUAL);
    let_time_pass();
    let branches = world.branches();
    let mut copies = open(&branches, Path::new("d/file")).unwrap();
    let (kept, others) = copies.split_first_mut().unwrap();
    assert_eq!(others[0].compare(kept), Verdict::Equal);
    fs::rename(world.path("b/d/file"), world.path("b/d/elsewhere")).unwrap();
    assert_eq!(others[0].delete(kept, OsStr::new("file")), Err(Left::Io { errno: libc::ENOENT }));
    assert!(world.path("a/d/file").exists());
}

#[test]
fn what_was_written_just_now_waits() {
    let world = World::new(EQUAL);
    assert_eq!(second(&world.branches()).0, Verdict::Left(Left::Changed));
}

#[test]
fn no_link_is_followed() {
    let world = World::new(&[("b/d/file", "text")]);
    symlink(world.path("b/d/file"), world.path("a/d/file")).unwrap();
    assert_eq!(open(&world.branches(), Path::new("d/file")).unwrap_err(), ("a", Left::Kind));
    fs::remove_dir(world.path("c/d")).unwrap();
    symlink(world.path("b/d"), world.path("c/d")).unwrap();
    fs::remove_file(world.path("a/d/file")).unwrap();
    let branches = world.branches();
    let found = open(&branches, Path::new("d/file")).unwrap();
    assert_eq!(found.iter().map(|copy| copy.branch.name.as_str()).collect::<Vec<_>>(), ["b"]);
}

#[test]
fn a_branch_that_a_daemon_uses_or_that_is_not_settled_is_refused() {
    let world = World::new(&[]);
    fs::create_dir_all(world.path("a/.umbrella/intents")).unwrap();
    let root = Root { name: "a".to_owned(), path: world.path("a") };
    let held = LockedBranch::lock(&root, true).unwrap();
    assert!(matches!(LockedBranch::lock(&root, true), Err(BranchProblem::InUse { .. })));
    drop(held);
    fs::write(world.path("a/.umbrella/intents/bad-1"), "").unwrap();
    assert!(LockedBranch::lock(&root, true).is_ok());
    fs::write(world.path("a/.umbrella/intents/1"), "").unwrap();
    assert!(matches!(LockedBranch::lock(&root, true), Err(BranchProblem::Unsettled { .. })));
}

#[test]
fn a_different_copy_gets_a_name_that_no_branch_has() {
    let world = World::new(&[("a/d/file", "old"), ("b/d/file", "text"), ("c/d/file (from a)", "taken")]);
    let branches = world.branches();
    let copies = open(&branches, Path::new("d/file")).unwrap();
    assert_eq!(copies[1].branch.name, "a");
    assert_eq!(copies[1].rename(&branches, Path::new("d/file")).unwrap(), "file (from a, 2)");
    assert_eq!(fs::read(world.path("a/d/file (from a, 2)")).unwrap(), b"old");
    assert!(!world.path("a/d/file").exists());
}

#[test]
fn the_mark_of_a_name_stands_before_its_extension() {
    let name = |name: &str, number| name_from(OsStr::new(name), "disk1", number).into_string().unwrap();
    assert_eq!(name("film.mkv", 1), "film (from disk1).mkv");
    assert_eq!(name("film.mkv", 3), "film (from disk1, 3).mkv");
    assert_eq!(name(".profile", 1), ".profile (from disk1)");
    assert_eq!(name("film", 1), "film (from disk1)");
}

#[test]
fn the_new_name_of_a_long_one_is_no_longer_than_names_may_be() {
    let long = "é".repeat(125);
    for name in [format!("{long}.mkv"), long.clone(), format!(".{long}.b"), format!("a.{}", "b".repeat(253))] {
        let new = name_from(OsStr::new(&name), &"ü".repeat(64), 99);
        assert!(new.len() <= 255 && new.to_str().is_some_and(|new| new.contains(" (from ü")), "{new:?}");
    }
    let new = name_from(OsStr::new(&format!("{}.mkv", "a".repeat(251))), "disk1", 1);
    assert_eq!(new.into_string().unwrap(), format!("{} (from disk1).mkv", "a".repeat(238)));
}

#[test]
fn a_copy_with_the_longest_name_gets_a_new_one() {
    let world = World::new(EQUAL);
    let_time_pass();
    let long = format!("d/{}", "f".repeat(255));
    for branch in ["a", "b"] {
        let [old, new] = ["d/file", &long].map(|name| world.path(&format!("{branch}/{name}")));
        fs::rename(old, new).unwrap();
    }
    let branches = world.branches();
    let copies = open(&branches, Path::new(&long)).unwrap();
    assert_eq!(copies[1].rename(&branches, Path::new(&long)).unwrap().len(), 255);
}

#[test]
fn nothing_is_deleted_on_a_branch_that_only_reads() {
    let world = World::new(EQUAL);
    let_time_pass();
    let mut branches = world.branches();
    branches[0].is_writable = false;
    assert_eq!(second(&branches).0, Verdict::Left(Left::Branch));
    let copies = open(&branches, Path::new("d/file")).unwrap();
    assert_eq!(copies[1].rename(&branches, Path::new("d/file")), Err(Left::Branch));
}
