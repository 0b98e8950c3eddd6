//! System calls that fail for one file of a branch: nothing else does, and nothing is taken for gone or done.

use std::fs::{self, File, OpenOptions, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use crate::names;
use crate::support::disk::Disk;
use crate::support::foreign::{fail, fail_all};
use crate::support::pool::{Pool, text};
use crate::support::process::as_nobody;
use crate::support::{MIB, errno, eventually};

const LARGE_TO_B: &str = "[[rule]]\nname = \"large\"\nwhen = { size = \">= 64KiB\" }\nto = [\"b\", \"default\", \"any\"]\noffline = \"pass\"\n";

fn pool(a: &Disk, b: &Disk) -> Pool {
    Pool::builder()
        .branch_with("a", a.path(), "min_stay = \"1h\"")
        .branch("b", b.path())
        .default(&["a"])
        .rules(LARGE_TO_B)
        .keys("cache_timeout = \"0s\"")
        .mount()
}

#[test]
fn an_entry_whose_attributes_cannot_be_read_is_listed_and_counted_by_the_enforcer() {
    let (a, b) = (Disk::ext4(32 * MIB), Disk::ext4(32 * MIB));
    let pool = pool(&a, &b);
    fs::create_dir(pool.join("dir")).unwrap();
    fs::write(pool.join("dir/bad"), "bad").unwrap();
    pool.settle();
    // Put there by somebody else, so that the enforcer has something to move.
    fs::write(a.join("dir/large"), vec![1; 100_000]).unwrap();
    let failing = fail(pool.pid(), "statx", "EIO", "bad");
    assert_eq!(errno(&fs::symlink_metadata(pool.join("dir/bad"))), libc::EIO);
    assert_eq!(names(&pool.join("dir")), ["bad", "large"]);
    let output = pool.umbrella(["enforce"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains("1 failed") && text(&output).contains("dir/bad"), "{}", text(&output));
    assert!(b.join("dir/large").exists(), "the others move");
    assert!(pool.is_online("a"));
    drop(failing);
    assert_eq!(fs::read(pool.join("dir/bad")).unwrap(), b"bad");
    assert_eq!(pool.enforce().files_failed, 0);
}

/// What the kernel was not told it does not forget either.
#[test]
fn a_listing_that_fails_halfway_leaves_nothing_behind_in_the_daemon() {
    let a = Disk::ext4(32 * MIB);
    let keys = "cache_timeout = \"0s\"\non_branch_error = \"fail\"";
    let pool = Pool::builder().branch("a", a.path()).keys(keys).mount();
    fs::create_dir(a.join("dir")).unwrap();
    for number in 0..10 {
        fs::write(a.join(format!("dir/{number}")), "x").unwrap();
    }
    fs::write(a.join("dir/bad"), "x").unwrap();
    assert!(pool.join("dir").is_dir());
    let known = || {
        fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
        pool.status().inodes
    };
    eventually("the kernel forgets what it was not asked for", || known() <= 2);
    let failing = fail(pool.pid(), "statx", "EIO", "bad");
    for _ in 0..3 {
        let listed = fs::read_dir(pool.join("dir")).and_then(Iterator::collect::<std::io::Result<Vec<_>>>);
        assert_eq!(errno(&listed), libc::EIO);
    }
    drop(failing);
    eventually("nothing stays that the kernel was not told of", || known() <= 2);
}

/// A move that fails when the copy is to get its name is none: `min_stay` does not hold the file where it is.
#[test]
fn a_file_whose_move_failed_has_not_moved() {
    let (a, b) = (Disk::ext4(32 * MIB), Disk::ext4(32 * MIB));
    let pool = pool(&a, &b);
    let failing = fail(pool.pid(), "renameat2,linkat", "EIO", "file");
    let content = vec![7; 100_000];
    fs::write(pool.join("file"), &content).unwrap();
    eventually("its move fails", || pool.metric("umbrella_relocations_failed_count") > 0);
    assert!(a.join("file").exists() && !b.join("file").exists());
    assert!(fs::read(pool.join("file")).unwrap() == content);
    drop(failing);
    eventually("the branch is in use", || pool.is_online("b"));
    let summary = pool.enforce();
    assert_eq!((summary.files_moved, summary.files_failed), (1, 0));
    pool.expect_on("b", "file");
    assert!(fs::read(pool.join("file")).unwrap() == content);
}

/// A process that may not keep set-id bits must not write while they cannot be taken away.
#[test]
fn a_copy_into_a_program_that_cannot_lose_its_set_id_bits_fails_and_copies_nothing() {
    let (a, b) = (Disk::ext4(32 * MIB), Disk::ext4(32 * MIB));
    let pool = pool(&a, &b);
    fs::write(pool.join("source"), "theirs").unwrap();
    fs::write(pool.join("program"), "root's").unwrap();
    fs::set_permissions(pool.join("program"), Permissions::from_mode(0o4777)).unwrap();
    pool.settle_closed();
    let mode = || fs::metadata(a.join("program")).unwrap().mode() & 0o7777;
    let copy = || {
        as_nobody(|| {
            let source = File::open(pool.join("source")).unwrap();
            let program = OpenOptions::new().write(true).open(pool.join("program")).unwrap();
            rustix::fs::copy_file_range(source, None, program, None, 6).map_err(std::io::Error::from)
        })
    };
    let failing = fail_all(pool.pid(), "chmod,fchmod,fchmodat", "EIO");
    assert_eq!(errno(&copy()), libc::EIO);
    drop(failing);
    assert_eq!((fs::read(a.join("program")).unwrap(), mode()), (b"root's".to_vec(), 0o4777));
    assert_eq!(copy().unwrap(), 6);
    assert_eq!((fs::read(pool.join("program")).unwrap(), mode()), (b"theirs".to_vec(), 0o777));
}

#[test]
fn a_program_that_cannot_lose_its_set_id_bits_is_not_cut() {
    let (a, b) = (Disk::ext4(32 * MIB), Disk::ext4(32 * MIB));
    let pool = pool(&a, &b);
    fs::write(pool.join("program"), "root's").unwrap();
    fs::set_permissions(pool.join("program"), Permissions::from_mode(0o4777)).unwrap();
    pool.settle_closed();
    let now = || (fs::read(a.join("program")).unwrap(), fs::metadata(a.join("program")).unwrap().mode() & 0o7777);
    let cut = || as_nobody(|| OpenOptions::new().write(true).open(pool.join("program"))?.set_len(2));
    let replace = || as_nobody(|| File::create(pool.join("program")).map(drop));
    let failing = fail_all(pool.pid(), "chmod,fchmod,fchmodat", "EIO");
    assert_eq!((errno(&cut()), errno(&replace())), (libc::EIO, libc::EIO));
    drop(failing);
    assert_eq!(now(), (b"root's".to_vec(), 0o4777));
    cut().unwrap();
    assert_eq!(now(), (b"ro".to_vec(), 0o777));
}
