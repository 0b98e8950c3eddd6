//! Flags of files by the real `chattr` and `lsattr`, on the pool and on ext4 beside it.

use std::fs::{self, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use super::support::MIB;
use super::support::disk::Disk;
use super::support::pool::Pool;
use super::support::{assert_errno, eventually, run};

/// What lsattr says of a path itself, without its name.
#[track_caller]
fn lsattr(path: &Path) -> String {
    let output = run("lsattr", ["-d".as_ref(), path.as_os_str()]);
    String::from_utf8_lossy(&output.stdout).split(' ').next().unwrap().to_owned()
}

#[track_caller]
fn chattr(change: &str, path: &Path) {
    run("chattr", [change.as_ref(), path.as_os_str()]);
}

fn refused_to(uid: u32, change: &str, path: &Path) -> bool {
    let mut chattr = Command::new("chattr");
    let output = chattr.arg(change).arg(path).uid(uid).gid(uid).output().unwrap();
    let text = crate::support::said(&output);
    assert_eq!(output.status.success(), !text.contains("Operation not permitted"), "{text}");
    !output.status.success()
}

/// A pool over two disks, `a` first, and an ext4 to compare with.
fn beside_ext4() -> (Pool, [Disk; 3]) {
    let disks = [Disk::ext4(64 * MIB), Disk::xfs(300 * MIB), Disk::ext4(64 * MIB)];
    let pool = Pool::builder().branch("a", disks[0].path()).branch("b", disks[1].path()).default(&["a"]).mount();
    (pool, disks)
}

fn all_to(branch: &str) -> String {
    format!("[[rule]]\nname = \"all\"\nmatch = [{{ glob = \"/**\", to = [{branch:?}] }}]\n")
}

#[test]
fn flags_are_shown_and_set_as_on_ext4() {
    let (pool, disks) = beside_ext4();
    for change in ["+dA", "+S", "-d", "+i", "-i", "+a", "-a"] {
        for name in ["file", "dir"] {
            let (ours, theirs) = (pool.join(name), disks[2].path().join(name));
            for path in [&ours, &theirs] {
                if name == "dir" {
                    let _there = fs::create_dir(path);
                } else {
                    let _pinned = fs::File::create(path);
                }
                chattr(change, path);
            }
            assert_eq!(lsattr(&ours), lsattr(&theirs), "{name} after {change}");
            assert_eq!(lsattr(&pool.on("a", name)), lsattr(&theirs), "{name} after {change}, on the branch");
        }
    }
}

#[test]
fn an_immutable_file_is_left_alone_and_an_append_only_one_grows_as_on_ext4() {
    let (pool, disks) = beside_ext4();
    for root in [pool.mount_point(), disks[2].path().clone()] {
        let path = root.join("file");
        fs::write(&path, "one").unwrap();
        chattr("+i", &path);
        assert_errno(fs::write(&path, "two"), libc::EPERM);
        assert_errno(fs::remove_file(&path), libc::EPERM);
        assert_errno(fs::rename(&path, root.join("other")), libc::EPERM);
        assert_errno(fs::hard_link(&path, root.join("other")), libc::EPERM);
        assert_errno(fs::set_permissions(&path, Permissions::from_mode(0o600)), libc::EPERM);
        assert_eq!(fs::read_to_string(&path).unwrap(), "one");
        chattr("-i", &path);
        chattr("+a", &path);
        assert_errno(OpenOptions::new().write(true).open(&path), libc::EPERM);
        assert_errno(fs::remove_file(&path), libc::EPERM);
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b" two").unwrap();
        drop(file);
        assert_eq!(fs::read_to_string(&path).unwrap(), "one two");
        chattr("-a", &path);
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn only_the_owner_sets_flags_and_only_who_may_sets_immutable() {
    let (pool, disks) = beside_ext4();
    for root in [pool.mount_point(), disks[2].path().clone()] {
        fs::set_permissions(&root, Permissions::from_mode(0o777)).unwrap();
        let path = root.join("file");
        fs::write(&path, "x").unwrap();
        std::os::unix::fs::chown(&path, Some(1234), Some(1234)).unwrap();
        assert!(refused_to(4321, "+d", &path), "not the owner");
        assert!(!refused_to(1234, "+d", &path), "the owner");
        for pin in ["+i", "+a"] {
            assert!(refused_to(1234, pin, &path), "the owner has no CAP_LINUX_IMMUTABLE");
        }
        chattr("+i", &path);
        assert!(refused_to(1234, "-i", &path));
        assert!(lsattr(&path).contains('i') && lsattr(&path).contains('d'));
        chattr("-i", &path);
    }
}

#[test]
fn a_directory_on_two_branches_has_its_flags_on_both_and_an_immutable_one_gets_no_entries_on_a_third() {
    let disks = [Disk::ext4(64 * MIB), Disk::xfs(300 * MIB), Disk::ext4(64 * MIB)];
    for disk in &disks[..2] {
        fs::create_dir(disk.path().join("dir")).unwrap();
    }
    let builder = Pool::builder().branch("a", disks[0].path()).branch("b", disks[1].path());
    let rules = "[[rule]]\nname = \"logs\"\nwhen = { extension = \"log\" }\nto = [\"c\", \"default\", \"any\"]\n";
    let pool = builder.branch("c", disks[2].path()).default(&["a"]).rules(rules).mount();
    chattr("+A", &pool.join("dir"));
    for branch in ["a", "b"] {
        assert!(lsattr(&pool.on(branch, "dir")).contains('A'), "{branch}");
    }
    chattr("+i", &pool.join("dir"));
    for name in ["new", "new.log"] {
        assert_errno(fs::write(pool.join("dir").join(name), "x"), libc::EPERM);
    }
    assert!(!pool.on("c", "dir").exists());
    chattr("-i", &pool.join("dir"));
    fs::write(pool.join("dir/new.log"), "x").unwrap();
    pool.expect_on("c", "dir/new.log");
    // ext4 knows it, xfs does not: neither gets it.
    let refused = Command::new("chattr").arg("+j").arg(pool.join("dir")).output().unwrap();
    assert!(!refused.status.success());
    assert!(!lsattr(&pool.on("a", "dir")).contains('j'));
}

#[test]
fn a_file_that_may_not_be_unlinked_stays_and_explain_and_status_say_why() {
    let (mut pool, _disks) = beside_ext4();
    pool.load_rules("[[rule]]\nname = \"large\"\nwhen = { size = \">= 64KiB\" }\nto = [\"b\", \"default\", \"any\"]\n");
    let mut file = fs::File::create(pool.join("file")).unwrap();
    file.write_all(&[1; 100_000]).unwrap();
    chattr("+i", &pool.join("file"));
    drop(file);
    let warned = || pool.status().warnings.iter().any(|warning| warning.contains("immutable or append-only"));
    eventually("status says that it cannot move", warned);
    pool.expect_stays_on("a", "file");
    let outcome = pool.explain("file").outcome;
    assert!(outcome.contains("it is immutable or append-only (chattr -ia lets it move)"), "{outcome}");
    assert_eq!(pool.enforce().files_failed, 1);
    chattr("-i", &pool.join("file"));
    pool.enforce();
    pool.expect_on("b", "file");
}

#[test]
fn a_file_that_moves_keeps_its_flags_and_stays_where_the_target_has_none() {
    let disks = [Disk::ext4(64 * MIB), Disk::xfs(300 * MIB), Disk::tmpfs(32 * MIB)];
    let builder = Pool::builder().branch("a", disks[0].path()).branch("b", disks[1].path());
    let mut pool = builder.branch("memory", disks[2].path()).default(&["a"]).mount();
    fs::write(pool.join("file"), "x").unwrap();
    chattr("+dAS", &pool.join("file"));
    pool.load_rules(&all_to("b"));
    pool.enforce();
    pool.expect_on("b", "file");
    let flags = lsattr(&pool.join("file"));
    assert!(['d', 'A', 'S'].iter().all(|flag| flags.contains(*flag)), "{flags}");
    pool.load_rules(&all_to("memory"));
    assert_eq!(pool.enforce().files_failed, 1, "memory knows no flag S");
    pool.expect_stays_on("b", "file");
}

/// xfs has projects unasked.
#[test]
fn a_project_is_shown_set_and_taken_along() {
    let disks = [Disk::xfs(300 * MIB), Disk::xfs(300 * MIB)];
    let mut pool = Pool::builder().branch("a", disks[0].path()).branch("b", disks[1].path()).default(&["a"]).mount();
    fs::write(pool.join("file"), "x").unwrap();
    fs::create_dir(pool.join("dir")).unwrap();
    let project = |path: &Path| {
        let output = run("lsattr", ["-pd".as_ref(), path.as_os_str()]);
        String::from_utf8_lossy(&output.stdout).split_whitespace().next().unwrap().to_owned()
    };
    for name in ["file", "dir"] {
        assert_eq!(project(&pool.join(name)), "0");
        run("chattr", ["-p".as_ref(), "42".as_ref(), pool.join(name).as_os_str()]);
        assert_eq!((project(&pool.join(name)), project(&pool.on("a", name))), ("42".to_owned(), "42".to_owned()));
    }
    pool.load_rules(&all_to("b"));
    pool.enforce();
    pool.expect_on("b", "file");
    assert_eq!(project(&pool.on("b", "file")), "42");
}

#[test]
fn a_staged_file_leaves_memory_before_it_gets_flags() {
    let disk = Disk::ext4(64 * MIB);
    let pool =
        Pool::builder().branch("a", disk.path()).keys("[staging]\nmode = \"always\"\nmax_age = \"1h\"\n").mount();
    fs::write(pool.join("file"), "x").unwrap();
    chattr("+i", &pool.join("file"));
    assert!(lsattr(&pool.on("a", "file")).contains('i'));
    chattr("-i", &pool.join("file"));
}
