//! Two names that are exchanged (`RENAME_EXCHANGE`), wherever what they stand for lies.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::fs::{CWD, RenameFlags};

use crate::support::process::as_nobody;
use crate::support::tree::{Times, snapshot};
use crate::support::{assert_errno, errno};
use crate::{Data, Two};

fn two() -> Two {
    Two::new(Data::Passthrough)
}

fn exchange(one: &Path, other: &Path) -> io::Result<()> {
    rustix::fs::renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).map_err(io::Error::from)
}

fn inode(path: impl AsRef<Path>) -> u64 {
    fs::symlink_metadata(path).unwrap().ino()
}

/// Makes directories and files with their paths as contents.
fn make(root: &Path, paths: &[&str]) {
    for path in paths {
        match path.strip_suffix('/') {
            Some(dir) => fs::create_dir(root.join(dir)).unwrap(),
            None => fs::write(root.join(path), path).unwrap(),
        }
    }
}

/// Contents and inode numbers of everything below.
fn all_below(root: &Path) -> BTreeMap<PathBuf, (u64, Vec<u8>)> {
    let tree = snapshot(root, Times::Ignored);
    let look = |path: &PathBuf| {
        let at = root.join(path);
        let meta = fs::symlink_metadata(&at).unwrap();
        (meta.ino(), if meta.is_file() { fs::read(at).unwrap() } else { Vec::new() })
    };
    tree.keys().map(|path| (path.clone(), look(path))).collect()
}

#[test]
fn exchange_swaps_files_of_two_branches() {
    let two = two();
    fs::write(two.join("one"), "on a").unwrap();
    fs::write(two.join("two.b"), "on b").unwrap();
    let inodes = (inode(two.join("one")), inode(two.join("two.b")));
    exchange(&two.join("one"), &two.join("two.b")).unwrap();
    assert_eq!(fs::read(two.join("one")).unwrap(), b"on b");
    assert_eq!(fs::read(two.join("two.b")).unwrap(), b"on a");
    assert_eq!((inode(two.join("two.b")), inode(two.join("one"))), inodes, "inode numbers went with the files");
    two.expect_on("a", "one");
    two.expect_on("b", "two.b");
    assert_errno(exchange(&two.join("one"), &two.join("none")), libc::ENOENT);
}

#[test]
fn exchange_swaps_a_file_and_a_directory_of_one_branch() {
    let two = two();
    make(&two.mount_point(), &["file", "dir/", "dir/x"]);
    exchange(&two.join("file"), &two.join("dir")).unwrap();
    assert_eq!(fs::read(two.join("dir")).unwrap(), b"file");
    assert_eq!(fs::read(two.join("file/x")).unwrap(), b"dir/x");
}

/// Names that end in `.b` are on the second branch, so directories lie where their files are.
#[test]
fn exchange_swaps_directories_and_files_that_lie_on_any_branches() {
    let cases: [&[&str]; 8] = [
        &["one/", "one/x", "p/", "p/other/", "p/other/y"],
        &["one/", "one/x", "p/", "p/other.b/", "p/other.b/y.b"],
        &["one/", "one/x", "one/y.b", "p/", "p/other/", "p/other/z"],
        &["one/", "one/x", "one/y.b", "p/", "p/other/", "p/other/z", "p/other/deep/", "p/other/deep/w.b"],
        &["one.b/", "one.b/y.b", "p.b/", "p.b/other", "p.b/stay.b"],
        &["one", "p/", "p/other.b/", "p/other.b/y.b"],
        &["one.b", "p/", "p/other/", "p/other/x", "p/other/y.b"],
        &["one/", "one/deep/", "one/deep/x.b", "p.b/", "p.b/other.b"],
    ];
    for data in Data::ALL {
        let mut two = Two::new(data);
        for (number, paths) in cases.iter().enumerate() {
            let dir = format!("case-{number}");
            for root in two.both() {
                fs::create_dir(root.join(&dir)).unwrap();
                make(&root.join(&dir), paths);
            }
            let one = paths[0].trim_end_matches('/');
            let other = paths.iter().find(|path| path.contains("/other")).unwrap().trim_end_matches('/');
            let root = two.join(&dir);
            let before = all_below(&root);
            two.same("exchange", |root| errno(&exchange(&root.join(&dir).join(one), &root.join(&dir).join(other))));
            let expected: BTreeMap<_, _> = before
                .into_iter()
                .map(|(path, what)| {
                    let renamed = [(one, other), (other, one)].iter().find_map(|(old, new)| {
                        let rest = path.strip_prefix(old).ok()?;
                        Some(if rest.as_os_str().is_empty() { new.into() } else { Path::new(new).join(rest) })
                    });
                    (renamed.unwrap_or(path), what)
                })
                .collect();
            assert_eq!(all_below(&root), expected, "{paths:?}");
            two.same("what is there", |root| {
                snapshot(&root.join(&dir), Times::Ignored).into_keys().collect::<Vec<_>>()
            });
        }
        let root = two.mount_point();
        let before = all_below(&root);
        two.pool.remount();
        assert_eq!(all_below(&two.mount_point()), before, "after a remount");
    }
}

#[test]
fn a_directory_is_not_exchanged_with_what_is_in_it() {
    let two = two();
    for root in two.both() {
        make(&root, &["d/", "d/x", "d/y.b", "d/e.b/", "d/e.b/f.b/", "d/e.b/f.b/z.b"]);
    }
    two.same("exchanges of what lies in itself", |root| {
        let exchange = |one: &str, other: &str| errno(&exchange(&root.join(one), &root.join(other)));
        [
            exchange("d", "d/e.b"),
            exchange("d/e.b/f.b", "d"),
            exchange("d", "d/x"),
            exchange("d/e.b/f.b/z.b", "d/e.b"),
            exchange("d", "d"),
            exchange("d", "none"),
            exchange("none", "d"),
        ]
    });
}

#[test]
fn files_open_below_an_exchanged_directory_stay_usable() {
    for data in Data::ALL {
        let two = Two::new(data);
        make(&two.mount_point(), &["one/", "one/x", "one/y.b", "two.b/", "two.b/z.b"]);
        let mut x = File::options().append(true).open(two.join("one/x")).unwrap();
        let mut z = File::options().append(true).open(two.join("two.b/z.b")).unwrap();
        let dir = File::open(two.join("one")).unwrap();
        exchange(&two.join("one"), &two.join("two.b")).unwrap();
        x.write_all(b" and more").unwrap();
        z.write_all(b" and more").unwrap();
        assert_eq!(fs::read(two.join("two.b/x")).unwrap(), b"one/x and more");
        assert_eq!(fs::read(two.join("one/z.b")).unwrap(), b"two.b/z.b and more");
        let made = rustix::fs::openat(
            &dir,
            "new.b",
            rustix::fs::OFlags::CREATE | rustix::fs::OFlags::WRONLY,
            rustix::fs::Mode::from(0o644),
        );
        drop(made.unwrap());
        assert!(two.join("two.b/new.b").exists(), "an open directory is the one with the other name now");
        drop((x, z));
        two.settle();
        assert_eq!(fs::read(two.join("two.b/y.b")).unwrap(), b"one/y.b");
        fs::remove_dir_all(two.join("one")).unwrap();
        fs::remove_dir_all(two.join("two.b")).unwrap();
    }
}

#[test]
fn a_sticky_directory_guards_what_lies_on_other_branches_too() {
    let two = two();
    for root in two.both() {
        make(&root, &["sticky/", "sticky/mine/", "sticky/mine/x", "sticky/theirs.b/", "sticky/theirs.b/y.b"]);
        fs::set_permissions(&root, fs::Permissions::from_mode(0o777)).unwrap();
        fs::set_permissions(root.join("sticky"), fs::Permissions::from_mode(0o1777)).unwrap();
        std::os::unix::fs::chown(root.join("sticky/mine"), Some(65534), Some(65534)).unwrap();
    }
    two.same("exchange with what belongs to another", |root| {
        errno(&as_nobody(|| exchange(&root.join("sticky/mine"), &root.join("sticky/theirs.b"))))
    });
    for root in two.both() {
        std::os::unix::fs::chown(root.join("sticky/theirs.b"), Some(65534), Some(65534)).unwrap();
    }
    two.same("exchange of one's own", |root| {
        errno(&as_nobody(|| exchange(&root.join("sticky/mine"), &root.join("sticky/theirs.b"))))
    });
    assert_eq!(fs::read(two.join("sticky/theirs.b/x")).unwrap(), b"sticky/mine/x");
}

#[test]
fn nobody_sees_a_name_missing_while_directories_of_two_branches_are_exchanged() {
    let two = two();
    make(&two.mount_point(), &["one/", "one/x", "one/y.b", "two.b/", "two.b/z.b", "link/"]);
    symlink("one", two.join("link/to")).unwrap();
    let done = AtomicBool::new(false);
    let looked = thread::scope(|scope| {
        let look = scope.spawn(|| {
            let mut looked = 0;
            while !done.load(Ordering::SeqCst) {
                for name in ["one", "two.b"] {
                    fs::metadata(two.join(name)).unwrap();
                    let names = fs::read_dir(two.join(name)).unwrap().count();
                    assert!(names == 1 || names == 2, "{names}");
                }
                looked += 1;
            }
            looked
        });
        for _ in 0..300 {
            exchange(&two.join("one"), &two.join("two.b")).unwrap();
        }
        done.store(true, Ordering::SeqCst);
        look.join().unwrap()
    });
    assert!(looked > 0);
    assert_eq!(fs::read(two.join("one/x")).unwrap(), b"one/x");
    assert_eq!(fs::read(two.join("two.b/z.b")).unwrap(), b"two.b/z.b");
}
