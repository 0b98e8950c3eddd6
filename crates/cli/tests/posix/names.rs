//! Names: renames and links over branches, listings, and names of every length and every byte.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirEntryExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, RawDir, RenameFlags};

use crate::support::tree::{Times, snapshot};
use crate::support::{assert_errno, errno};
use crate::{Data, Two};

fn two() -> Two {
    Two::new(Data::Passthrough)
}

fn rename_with(from: &Path, to: &Path, flags: RenameFlags) -> io::Result<()> {
    rustix::fs::renameat_with(CWD, from, CWD, to, flags).map_err(io::Error::from)
}

fn inode(path: impl AsRef<Path>) -> u64 {
    fs::symlink_metadata(path).unwrap().ino()
}

#[test]
fn rename_without_replacing_refuses_a_name_that_another_branch_holds() {
    let two = two();
    fs::write(two.join("from"), "1").unwrap();
    fs::write(two.join("to.b"), "2").unwrap();
    assert_errno(rename_with(&two.join("from"), &two.join("to.b"), RenameFlags::NOREPLACE), libc::EEXIST);
    assert_eq!(
        (fs::read(two.join("from")).unwrap(), fs::read(two.join("to.b")).unwrap()),
        (b"1".to_vec(), b"2".to_vec())
    );
    rename_with(&two.join("from"), &two.join("free.b"), RenameFlags::NOREPLACE).unwrap();
    two.expect_on("b", "free.b");
}

#[test]
fn rename_over_a_file_of_another_branch_replaces_it() {
    let two = two();
    fs::write(two.join("new"), "new").unwrap();
    fs::write(two.join("old.b"), "old").unwrap();
    let open = File::open(two.join("old.b")).unwrap();
    let expected = inode(two.join("new"));
    fs::rename(two.join("new"), two.join("old.b")).unwrap();
    assert_eq!(fs::read(two.join("old.b")).unwrap(), b"new");
    assert_eq!(inode(two.join("old.b")), expected);
    assert_eq!(io::read_to_string(&open).unwrap(), "old", "who had the replaced file open still reads it");
    assert_eq!(open.metadata().unwrap().nlink(), 0);
    drop(open);
    two.expect_on("b", "old.b");
    assert_eq!(fs::read_dir(two.mount_point()).unwrap().count(), 1);
}

#[test]
fn links_between_directories_of_different_branches_never_fail_with_exdev() {
    let two = two();
    fs::create_dir(two.join("d")).unwrap();
    fs::create_dir(two.join("e.b")).unwrap();
    fs::create_dir(two.join("e.b/deep")).unwrap();
    fs::write(two.join("d/file"), "shared").unwrap();
    fs::write(two.join("e.b/deep/only.b"), "on b").unwrap();
    fs::hard_link(two.join("d/file"), two.join("e.b/deep/link.b")).unwrap();
    fs::hard_link(two.join("e.b/deep/only.b"), two.join("d/back")).unwrap();
    for (file, link) in [("d/file", "e.b/deep/link.b"), ("e.b/deep/only.b", "d/back")] {
        assert_eq!(inode(two.join(file)), inode(two.join(link)), "{file} and {link} are one file");
        assert_eq!(fs::metadata(two.join(link)).unwrap().nlink(), 2);
    }
    fs::write(two.join("e.b/deep/link.b"), "written through one name").unwrap();
    assert_eq!(fs::read(two.join("d/file")).unwrap(), b"written through one name");
    two.settle();
    assert_eq!(inode(two.join("d/file")), inode(two.join("e.b/deep/link.b")), "still one file after everything moved");
    fs::remove_file(two.join("d/file")).unwrap();
    assert_eq!(fs::metadata(two.join("e.b/deep/link.b")).unwrap().nlink(), 1);
    assert_eq!(fs::read(two.join("e.b/deep/link.b")).unwrap(), b"written through one name");
}

#[test]
fn hard_links_are_one_file_after_a_remount_too() {
    let mut two = two();
    fs::write(two.join("one"), "x").unwrap();
    fs::create_dir(two.join("d")).unwrap();
    for name in ["two", "three.b", "d/four"] {
        fs::hard_link(two.join("one"), two.join(name)).unwrap();
    }
    let before = inode(two.join("one"));
    two.pool.remount();
    for name in ["d/four", "three.b", "two", "one"] {
        let meta = fs::metadata(two.join(name)).unwrap();
        assert_eq!((meta.ino(), meta.nlink()), (before, 4), "{name}");
    }
}

#[test]
fn a_file_has_as_many_names_as_its_branch_allows() {
    let two = two();
    two.same("the largest number of links", |root| {
        let dir = root.join("names");
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("0"), "x").unwrap();
        let refused = (1..70_000).find_map(|i| match fs::hard_link(dir.join("0"), dir.join(i.to_string())) {
            Ok(()) => None,
            result => Some((i, errno(&result))),
        });
        (refused, fs::metadata(dir.join("0")).unwrap().nlink())
    });
}

#[test]
fn a_symbolic_link_can_be_hard_linked() {
    let two = two();
    two.same("link of a symlink", |root| {
        symlink("target", root.join("s")).unwrap();
        let linked = rustix::fs::linkat(CWD, root.join("s"), CWD, root.join("t.b"), AtFlags::empty());
        let meta = fs::symlink_metadata(root.join("t.b")).unwrap();
        (linked.is_ok(), meta.nlink(), meta.file_type().is_symlink(), fs::read_link(root.join("t.b")).unwrap())
    });
}

#[test]
fn a_directory_is_renamed_on_every_branch_that_holds_it() {
    let two = two();
    fs::create_dir_all(two.join("old/sub")).unwrap();
    for name in ["old/x", "old/y.b", "old/sub/z", "old/sub/w.b"] {
        fs::write(two.join(name), name).unwrap();
    }
    let before = inode(two.join("old"));
    let open = File::open(two.join("old/sub/w.b")).unwrap();
    fs::create_dir(two.join("elsewhere")).unwrap();
    fs::rename(two.join("old"), two.join("elsewhere/new")).unwrap();
    assert!(!two.join("old").exists());
    assert_eq!(inode(two.join("elsewhere/new")), before);
    for name in ["x", "y.b", "sub/z", "sub/w.b"] {
        assert_eq!(fs::read_to_string(two.join("elsewhere/new").join(name)).unwrap(), format!("old/{name}"));
    }
    assert_eq!(io::read_to_string(open).unwrap(), "old/sub/w.b");
    assert_eq!(two.found_on("old"), Vec::<String>::new());
}

#[test]
fn renaming_directories_obeys_what_any_branch_holds() {
    let two = two();
    two.same("directory renames", |root| {
        for dir in ["from", "full", "empty", "parent"] {
            fs::create_dir(root.join(dir)).unwrap();
        }
        fs::write(root.join("from/a"), "").unwrap();
        fs::write(root.join("full/only-on.b"), "").unwrap();
        fs::write(root.join("file.b"), "").unwrap();
        let rename = |from: &str, to: &str| errno(&fs::rename(root.join(from), root.join(to)));
        [
            rename("from", "full"),
            rename("from", "file.b"),
            rename("file.b", "empty"),
            rename("parent", "parent/below"),
            rename("full/only-on.b", "full"),
            rename("from", "empty"),
            rename("none", "empty"),
            rename("empty/a", "empty/a"),
        ]
    });
    assert_eq!(fs::read_dir(two.join("empty")).unwrap().count(), 1);
}

#[test]
fn a_directory_is_removed_only_when_it_is_empty_on_every_branch() {
    let two = two();
    fs::create_dir(two.join("dir")).unwrap();
    fs::write(two.join("dir/kept.b"), "").unwrap();
    fs::write(two.join("dir/gone"), "").unwrap();
    fs::remove_file(two.join("dir/gone")).unwrap();
    assert_errno(fs::remove_dir(two.join("dir")), libc::ENOTEMPTY);
    assert!(two.join("dir/kept.b").exists(), "a refused rmdir removes nothing");
    fs::write(two.join("dir/again"), "x").expect("a refused rmdir leaves a directory that can be used");
    fs::remove_file(two.join("dir/again")).unwrap();
    fs::remove_file(two.join("dir/kept.b")).unwrap();
    fs::remove_dir(two.join("dir")).unwrap();
    assert_eq!(two.found_on("dir"), Vec::<String>::new(), "the directory is gone from every branch");
}

#[test]
fn listings_stay_whole_while_files_come_and_go() {
    let two = two();
    fs::create_dir(two.join("many")).unwrap();
    let stable: BTreeSet<OsString> = (0..10_000)
        .map(|i| if i % 2 == 0 { format!("stable-{i}").into() } else { format!("stable-{i}.b").into() })
        .collect();
    for name in &stable {
        File::create(two.join("many").join(name)).unwrap();
    }
    let (stop, made) = (AtomicBool::new(false), AtomicU64::new(0));
    let root = two.join("many");
    let name = |i: u64| root.join(if i.is_multiple_of(2) { format!("churn-{i}") } else { format!("churn-{i}.b") });
    thread::scope(|scope| {
        let churn = scope.spawn(|| {
            for i in 0.. {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                File::create(name(i)).unwrap();
                if i >= 50 {
                    fs::remove_file(name(i - 50)).unwrap();
                }
                made.store(i, Ordering::Relaxed);
            }
        });
        let mut rounds = 0;
        while (rounds < 5 || made.load(Ordering::Relaxed) < 300) && !churn.is_finished() {
            let mut seen = BTreeSet::new();
            for entry in fs::read_dir(&root).unwrap() {
                let name = entry.unwrap().file_name();
                assert!(seen.insert(name.clone()), "round {rounds}: {} is listed twice", name.display());
            }
            let missing: Vec<_> = stable.difference(&seen).take(5).collect();
            assert!(missing.is_empty(), "round {rounds}: not listed: {missing:?}");
            rounds += 1;
        }
        stop.store(true, Ordering::Relaxed);
        churn.join().unwrap();
    });
}

/// Names with the offsets to continue after them, as `getdents64` gives them.
fn listing(dir: &OwnedFd) -> Vec<(Vec<u8>, u64, u64)> {
    let mut buffer = Vec::with_capacity(1024);
    let mut raw = RawDir::new(dir, buffer.spare_capacity_mut());
    let mut entries = Vec::new();
    while let Some(entry) = raw.next() {
        let entry = entry.unwrap();
        entries.push((entry.file_name().to_bytes().to_vec(), entry.next_entry_cookie(), entry.ino()));
    }
    entries
}

#[test]
fn a_listing_can_continue_from_any_place_in_it() {
    let two = two();
    for i in 0..150 {
        fs::write(two.join(format!("file-{i}")), "").unwrap();
        fs::write(two.join(format!("file-{i}.b")), "").unwrap();
    }
    let dir = rustix::fs::open(two.mount_point(), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
    let whole = listing(&dir);
    assert_eq!(whole.len(), 302, "300 files, . and ..");
    for at in [0, 1, 2, 77, 150, 299, 301] {
        rustix::fs::seek(&dir, rustix::fs::SeekFrom::Start(whole[at].1)).unwrap();
        let rest: Vec<_> = listing(&dir).into_iter().map(|entry| entry.0).collect();
        let expected: Vec<_> = whole[at + 1..].iter().map(|entry| entry.0.clone()).collect();
        assert_eq!(rest, expected, "after entry {at}");
    }
    rustix::fs::seek(&dir, rustix::fs::SeekFrom::Start(0)).unwrap();
    fs::remove_file(two.join("file-7.b")).unwrap();
    assert_eq!(listing(&dir).len(), 301, "rewinding sees what changed");
}

#[test]
fn a_listing_that_begins_after_a_change_shows_it_whoever_else_lists() {
    let two = two();
    let dir = two.join("many");
    fs::create_dir(&dir).unwrap();
    (0..2000).for_each(|number| drop(File::create(dir.join(format!("keep-{number}"))).unwrap()));
    let stop = AtomicBool::new(false);
    let listed = |dir: &Path| -> BTreeSet<OsString> {
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    };
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    listed(&dir);
                }
            });
        }
        let wrong = (0..300).find_map(|number| {
            let name = OsString::from(format!("new-{number}"));
            File::create(dir.join(&name)).unwrap();
            let there = listed(&dir).contains(&name);
            fs::remove_file(dir.join(&name)).unwrap();
            let gone = !listed(&dir).contains(&name);
            (!there || !gone).then_some((number, there, gone))
        });
        stop.store(true, Ordering::Relaxed);
        assert_eq!(wrong, None, "round, listed when it was there, not listed when it was gone");
    });
}

#[test]
fn attributes_come_with_a_listing_for_those_who_use_them() {
    let mut two = two();
    for dir in ["one", "other", "third"] {
        fs::create_dir(two.join(dir)).unwrap();
        (0..100).for_each(|number| fs::write(two.join(dir).join(format!("file-{number}")), "x").unwrap());
    }
    two.pool.remount();
    let known = || two.status().inodes;
    let list = |dir: &str| fs::read_dir(two.join(dir)).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    let seen = |names: &[PathBuf]| names.iter().collect::<BTreeSet<_>>().len();
    let before = known();
    let names = list("one");
    assert_eq!(seen(&names), 100);
    let few = known().saturating_sub(before);
    assert!(few < 5, "who lists names only gets {few} attributes");
    assert!(names.iter().all(|path| path.metadata().is_ok_and(|data| data.len() == 1)));
    let before = known();
    assert_eq!(seen(&list("other")), 100);
    let all = known().saturating_sub(before);
    assert!(all >= 100, "who used them gets them all: {all}");
    // Another thread lists names only.
    let before = known();
    thread::scope(|scope| scope.spawn(|| assert_eq!(seen(&list("third")), 100)).join().unwrap());
    assert!(known() < before + 50);
}

#[test]
fn a_directory_can_be_emptied_while_it_is_listed() {
    let two = two();
    fs::create_dir(two.join("dir")).unwrap();
    for i in 0..2_000 {
        File::create(two.join(format!("dir/{i}{}", if i % 3 == 0 { ".b" } else { "" }))).unwrap();
    }
    for entry in fs::read_dir(two.join("dir")).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    fs::remove_dir(two.join("dir")).expect("nothing was left out");
}

#[test]
fn listings_tell_the_inode_number_and_type_that_stat_tells() {
    let two = two();
    fs::create_dir(two.join("dir")).unwrap();
    for name in ["file", "file.b"] {
        fs::write(two.join(name), "").unwrap();
    }
    symlink("x", two.join("link")).unwrap();
    symlink("x", two.join("link.b")).unwrap();
    for entry in fs::read_dir(two.mount_point()).unwrap() {
        let entry = entry.unwrap();
        let meta = fs::symlink_metadata(entry.path()).unwrap();
        assert_eq!(entry.ino(), meta.ino(), "{}", entry.path().display());
        assert_eq!(entry.file_type().unwrap(), meta.file_type(), "{}", entry.path().display());
    }
}

#[test]
fn names_are_bytes() {
    let two = two();
    let names: [&[u8]; 6] = [b"\xff\xfe", b"latin \xe9t\xe9.b", b"new\nline", b" ", b"\x01.b", b"back\\slash\"quote"];
    for name in names {
        let path = two.join(OsStr::from_bytes(name));
        fs::write(&path, name).unwrap();
        assert_eq!(fs::read(&path).unwrap(), name);
        let explanation = two.umbrella([OsStr::new("explain"), path.as_os_str()]);
        assert!(explanation.status.success(), "explain of {}", name.escape_ascii());
    }
    let listed: BTreeSet<_> =
        fs::read_dir(two.mount_point()).unwrap().map(|entry| entry.unwrap().file_name().into_vec()).collect();
    assert_eq!(listed, names.iter().map(|name| name.to_vec()).collect());
    two.settle();
    for name in names {
        let path = two.join(OsStr::from_bytes(name));
        assert_eq!(fs::read(&path).unwrap(), name);
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn names_may_have_255_bytes_and_no_more() {
    let two = two();
    for suffix in ["", ".b"] {
        two.same("long names", |root| {
            let name = |length: usize| root.join("n".repeat(length - suffix.len()) + suffix);
            let written = errno(&fs::write(name(255), "x"));
            let renamed = errno(&fs::rename(name(255), root.join("short")));
            let back = errno(&fs::rename(root.join("short"), name(255)));
            let too_long = errno(&fs::write(name(256), "x"));
            let looked_up = errno(&fs::metadata(name(256)));
            (written, renamed, back, too_long, looked_up, fs::read(name(255)).unwrap())
        });
    }
    two.settle();
    let moved = "n".repeat(253) + ".b";
    two.expect_on("b", &moved);
    fs::rename(two.join(&moved), two.join("n".repeat(253))).unwrap();
    two.expect_on("a", "n".repeat(253));
}

#[test]
fn paths_may_be_as_long_as_on_ext4() {
    let two = two();
    two.same("paths around 4,096 bytes", |root| {
        let mut path = root.to_owned();
        while path.as_os_str().len() < 3_800 {
            path.push("d".repeat(100));
        }
        fs::create_dir_all(&path).unwrap();
        let mut results = BTreeMap::new();
        for length in [4_000_usize, 4_094, 4_095, 4_096, 4_097] {
            let room = length - path.as_os_str().len() - 1;
            let long = if room > 255 {
                let below = path.join("e".repeat(100));
                fs::create_dir_all(&below).unwrap();
                below.join("f".repeat(room - 101))
            } else {
                path.join("f".repeat(room))
            };
            assert_eq!(long.as_os_str().len(), length);
            results.insert(length, (errno(&fs::write(&long, "x")), errno(&fs::metadata(&long))));
        }
        results
    });
}

/// With `openat` a tree may be deeper than any path may be long.
#[test]
fn trees_may_be_deeper_than_a_path_is_long() {
    let two = two();
    let name = "d".repeat(200);
    let open_dir = |at: &OwnedFd, name: &str| {
        rustix::fs::openat(at, name, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap()
    };
    let root = || rustix::fs::open(two.mount_point(), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
    let mut dir = root();
    for depth in 0..30 {
        rustix::fs::mkdirat(&dir, &*name, Mode::from(0o755)).unwrap_or_else(|error| panic!("depth {depth}: {error}"));
        dir = open_dir(&dir, &name);
    }
    for file in ["deep", "deep.b"] {
        let made = rustix::fs::openat(&dir, file, OFlags::CREATE | OFlags::RDWR, Mode::from(0o644)).unwrap();
        rustix::io::write(&made, b"at the bottom").unwrap();
        drop(made);
        rustix::fs::renameat(&dir, file, &dir, format!("x{file}")).unwrap();
        assert!(rustix::fs::statat(&dir, format!("x{file}"), AtFlags::empty()).is_ok());
        rustix::fs::unlinkat(&dir, format!("x{file}"), AtFlags::empty()).unwrap();
    }
    let mut dirs = vec![root()];
    for _ in 0..30 {
        dirs.push(open_dir(dirs.last().unwrap(), &name));
    }
    while dirs.pop().is_some() {
        if let Some(parent) = dirs.last() {
            rustix::fs::unlinkat(parent, &*name, AtFlags::REMOVEDIR).unwrap();
        }
    }
}

#[test]
fn symbolic_links_are_followed_and_loops_end() {
    let two = two();
    two.same("symbolic links", |root| {
        fs::create_dir(root.join("dir")).unwrap();
        fs::write(root.join("dir/file.b"), "found").unwrap();
        symlink("dir/file.b", root.join("relative")).unwrap();
        symlink("loop-2.b", root.join("loop-1")).unwrap();
        symlink("loop-1", root.join("loop-2.b")).unwrap();
        symlink("nowhere", root.join("dangling.b")).unwrap();
        let longest = |length: usize| errno(&symlink("t".repeat(length), root.join(format!("long-{length}"))));
        (
            fs::read(root.join("relative")).unwrap(),
            errno(&fs::read(root.join("loop-1"))),
            errno(&fs::metadata(root.join("dangling.b"))),
            fs::symlink_metadata(root.join("dangling.b")).unwrap().len(),
            fs::read_link(root.join("loop-2.b")).unwrap(),
            [longest(1), longest(1_000), longest(4_095), longest(4_096)],
        )
    });
    assert_eq!(errno(&fs::read(two.join("loop-1"))), libc::ELOOP);
}

#[test]
fn a_link_that_leads_out_of_the_mount_is_followed_by_the_caller_only() {
    let two = two();
    let outside = two.dir().join("outside");
    fs::write(&outside, "outside").unwrap();
    symlink(&outside, two.join("out")).unwrap();
    assert_eq!(fs::read(two.join("out")).unwrap(), b"outside");
    fs::rename(two.join("out"), two.join("out.b")).unwrap();
    two.expect_on("b", "out.b");
    assert_eq!(fs::read_link(two.join("out.b")).unwrap(), outside);
    assert_eq!(fs::read(&outside).unwrap(), b"outside", "what the link leads to was not touched");
}

#[test]
fn a_tree_copied_in_is_the_same_tree() {
    let two = two();
    let source: PathBuf = concat!(env!("CARGO_MANIFEST_DIR"), "/src").into();
    for target in [two.join("copy"), two.join("copy.b")] {
        crate::support::run("cp", [OsStr::new("-a"), source.as_os_str(), target.as_os_str()]);
        two.settle();
        let expected = snapshot(&source, Times::Kept);
        crate::support::tree::assert_same(&expected, &snapshot(&target, Times::Kept), "cp -a into the mount");
    }
}
