//! Branches that take no new files, and branches with a limit on the number of files.

use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::support::disk::Disk;
use crate::support::pool::{Pool, text};
use crate::support::{MIB, assert_errno, bytes};
use crate::{append, disks};

/// Inodes in use on a file system.
pub(crate) fn inodes_used(disk: &Disk) -> u64 {
    let stat = rustix::fs::statvfs(disk.path()).unwrap();
    stat.f_files - stat.f_ffree
}

#[test]
fn a_branch_with_create_false_keeps_its_files_and_gets_no_others() {
    let old = Disk::tmpfs(32 * MIB);
    let new = Disk::tmpfs(16 * MIB);
    fs::create_dir(old.join("dir")).unwrap();
    fs::write(old.join("dir/kept"), "before").unwrap();
    let rule = "[[rule]]\nname = \"back\"\nwhen = { name = \"*.back\" }\nto = [\"old\"]\n";
    let pool = Pool::builder()
        .default(&["old", "new"])
        .branch_with("old", old.path(), "create = false")
        .branch("new", new.path())
        .rules(rule)
        .mount();
    fs::write(pool.join("dir/fresh"), "x").unwrap();
    pool.expect_on("new", "dir/fresh");
    append(&pool.join("dir/kept"), b" and after").unwrap();
    fs::rename(pool.join("dir/kept"), pool.join("dir/renamed")).unwrap();
    fs::hard_link(pool.join("dir/renamed"), pool.join("dir/second")).unwrap();
    assert_eq!(fs::read_to_string(old.join("dir/renamed")).unwrap(), "before and after");
    assert_eq!(fs::metadata(old.join("dir/second")).unwrap().nlink(), 2);
    assert_eq!(pool.enforce().files_moved, 0, "what is there stays");
    assert_errno(fs::write(pool.join("no.back"), "x"), libc::ENOSPC);
    let explanation = pool.explain("other.back");
    assert!(explanation.outcome.contains("takes no new files (create = false)"), "{}", explanation.outcome);
    fs::remove_file(pool.join("dir/second")).unwrap();
    let status = text(&pool.umbrella(["status"]));
    assert!(status.contains("online, no new files"), "{status}");
}

#[test]
fn a_file_that_outgrows_its_branch_moves_to_none_with_create_false() {
    let [small, closed, large] = [8, 64, 32].map(|mib| Disk::tmpfs(mib * MIB));
    let pool = Pool::builder()
        .default(&["small", "closed", "large"])
        .branch("small", small.path())
        .branch_with("closed", closed.path(), "create = false")
        .branch("large", large.path())
        .mount();
    fs::write(pool.join("film"), bytes(1, 20 * MIB)).unwrap();
    pool.expect_on("large", "film");
}

#[test]
fn a_branch_with_as_many_files_as_it_may_have_is_full() {
    let few = Disk::tmpfs(32 * MIB);
    let many = Disk::tmpfs(16 * MIB);
    let most = inodes_used(&few) + 20;
    let pool = Pool::builder()
        .default(&["few", "many"])
        .branch_with("few", few.path(), &format!("max_files = {most}"))
        .branch("many", many.path())
        .mount();
    for file in 0..30 {
        fs::write(pool.join(format!("f{file}")), "x").unwrap();
        pool.settle_room();
    }
    assert!(inodes_used(&few) <= most, "{} of {most}", inodes_used(&few));
    pool.expect_on("few", "f0");
    pool.expect_on("many", "f29");
    let status = pool.branch_status("few");
    assert_eq!((status.max_files, status.files_used), (Some(most), Some(most)));
    let explanation = pool.explain("another");
    assert!(explanation.outcome.contains(&format!("has no free inode (of {most})")), "{}", explanation.outcome);
    let told = text(&pool.umbrella(["status"]));
    assert!(told.contains("max_files reached"), "{told}");
}

#[test]
fn max_files_needs_a_file_system_of_its_own() {
    let (_disks, builder) = disks(["a"]);
    let shared = Disk::tmpfs(8 * MIB);
    fs::create_dir(shared.join("part")).unwrap();
    let mut pool = builder.branch_with("b", shared.join("part"), "max_files = 10").prepare();
    let told = pool.try_start().unwrap_err();
    assert!(told.contains("cannot have max_files: it is not a mount point"), "{told}");
}

#[test]
fn a_reload_refuses_max_files_where_files_cannot_be_counted() {
    let shared = Disk::tmpfs(8 * MIB);
    fs::create_dir(shared.join("part")).unwrap();
    let own = Disk::tmpfs(8 * MIB);
    let mut pool = Pool::builder().branch("own", own.path()).branch("part", shared.join("part")).mount();
    pool.write_branch("part", "max_files = 10");
    for args in [&["rules", "reload"][..], &["rules", "reload", "--dry-run"]] {
        let refused = pool.umbrella(args);
        let told = text(&refused);
        assert!(!refused.status.success(), "{told}");
        assert!(told.contains("branch \"part\": ") && told.contains("it is not a mount point"), "{told}");
    }
    assert_eq!(pool.branch_status("part").max_files, None);
    pool.write_branch("part", "");
    pool.write_branch("own", "max_files = 1000");
    pool.say(["rules", "reload"]);
    assert_eq!(pool.branch_status("own").max_files, Some(1000));
}
