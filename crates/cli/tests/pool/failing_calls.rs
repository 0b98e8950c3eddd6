//! System calls that fail for one file of a branch: nothing else does, and nothing is taken for gone or done.

use std::fs;

use crate::names;
use crate::support::disk::Disk;
use crate::support::foreign::fail;
use crate::support::pool::{Pool, text};
use crate::support::{MIB, errno, eventually};

const LARGE_TO_B: &str = "[[rule]]\nname = \"large\"\nwhen = { size = \">= 64KiB\" }\nto = [\"b\"]\n";

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
