//! Directories that a branch brings which was away from the mount on: nobody knows whether they were copies of those
//! that users changed meanwhile.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::fs::XattrFlags;

use super::{ACL, attribute, copy, look, may, on_disk, set_look, setfacl, two_disks};
use crate::support::MIB;
use crate::support::disk::Disk;
use crate::support::eventually;
use crate::support::pool::{Builder, Pool};

/// Like two disks of which the first decides.
fn first_decides() -> (Disk, Disk, Builder) {
    let (a, b, builder) = two_disks();
    (a, b, builder.keys("directories = \"first\""))
}

/// A pool that knows a disk, and was mounted without it.
fn mounted_without(disk: &Disk, builder: Builder) -> Pool {
    let mut pool = builder.mount();
    pool.stop();
    disk.vanish();
    pool.start();
    pool
}

fn return_of(name: &str, disk: &Disk, pool: &Pool) {
    disk.mount();
    eventually("it is back", || pool.is_online(name));
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// For how many branches a change is noted that have perhaps missed it.
fn unmet_copies(dir: &Path) -> usize {
    let mut value = [0; 1024];
    let length = rustix::fs::lgetxattr(dir, "trusted.umbrella.changed", &mut value).unwrap_or(0);
    std::str::from_utf8(&value[..length]).unwrap().split(' ').filter(|word| word.ends_with(":0")).count()
}

#[test]
fn a_right_that_was_taken_away_while_a_disk_was_missing_does_not_come_back_with_it() {
    for rule in ["safe", "first"] {
        let (a, b, builder) = two_disks();
        for disk in [&a, &b] {
            copy(disk, "dir", (1000, 100, 0o775));
            copy(disk, "acl", (1000, 100, 0o775));
            setfacl(&["-m", "u:4711:rwx"], &disk.join("acl"));
        }
        let on_a = on_disk([&a, &a], &["dir", "acl"]);
        let mut pool = mounted_without(&a, builder.keys(&format!("directories = {rule:?}")));
        chmod(&pool.join("dir"), 0o750);
        // Killed, and mounted without the disk once more.
        pool.kill_9();
        pool.start();
        chmod(&pool.join("dir"), 0o700);
        setfacl(&["-m", "u:4711:---"], &pool.join("acl"));
        assert_eq!(["dir", "acl"].map(|name| unmet_copies(&b.join(name))), [1, 1], "{rule}");
        return_of("a", &a, &pool);
        let lists = |name: &str| may(4711, "100", &format!("ls {}", pool.join(name).display()));
        for _ in 0..2 {
            assert_eq!(look(&pool.join("dir")), (1000, 100, 0o700), "{rule}");
            assert!(!lists("dir") && !lists("acl"), "{rule}");
            assert_eq!(on_disk([&a, &a], &["dir", "acl"]), on_a, "{rule}");
            let warnings = pool.status().warnings;
            assert!(warnings.iter().any(|warning| warning.starts_with("2 directories have different")), "{warnings:?}");
        }
        pool.remount();
        assert_eq!(look(&pool.join("dir")), (1000, 100, 0o700), "{rule}");
        pool.say(["repair".as_ref(), "--equalise".as_ref(), pool.mount_point().as_os_str()]);
        assert_eq!(look(&a.join("dir")), (1000, 100, 0o700), "{rule}");
        assert_eq!(attribute(&a.join("acl"), ACL), attribute(&b.join("acl"), ACL), "{rule}");
        assert_eq!(["dir", "acl"].map(|name| unmet_copies(&b.join(name))), [0, 0], "{rule}");
    }
}

#[test]
fn a_directory_of_the_same_name_on_a_disk_that_was_missing_is_neither_opened_nor_changed() {
    let (a, b, builder) = first_decides();
    for name in ["made", "made-anew", "renamed", "above/below"] {
        copy(&a, name, (0, 0, 0o700));
    }
    copy(&b, "made-anew", (0, 0, 0o755));
    copy(&b, "old-name", (0, 0, 0o700));
    copy(&b, "old-above", (0, 0, 0o755));
    copy(&b, "old-above/below", (0, 0, 0o700));
    let names = ["made", "made-anew", "renamed", "above/below"];
    let before = on_disk([&a, &a], &names);
    let pool = mounted_without(&a, builder.default(&["a", "any"]));
    fs::create_dir(pool.join("made")).unwrap();
    fs::remove_dir_all(pool.join("made-anew")).unwrap();
    fs::create_dir(pool.join("made-anew")).unwrap();
    // Changed before and after it gets the name.
    chmod(&pool.join("old-name"), 0o777);
    fs::rename(pool.join("old-name"), pool.join("renamed")).unwrap();
    fs::rename(pool.join("old-above"), pool.join("above")).unwrap();
    for name in ["made", "made-anew", "above/below"] {
        set_look(&pool.join(name), (1000, 1000, 0o777));
    }
    return_of("a", &a, &pool);
    for name in names {
        assert_eq!(look(&pool.join(name)), (0, 0, 0o700), "{name}");
    }
    assert_eq!(on_disk([&a, &a], &names), before);
}

#[test]
fn the_first_branch_decides_again_after_a_change_of_all_copies() {
    let (a, b, builder) = first_decides();
    copy(&a, "dir", (0, 0, 0o777));
    copy(&b, "dir", (0, 0, 0o777));
    let pool = mounted_without(&a, builder.keys("cache_timeout = \"0s\""));
    chmod(&pool.join("dir"), 0o750);
    return_of("a", &a, &pool);
    assert_eq!(look(&pool.join("dir")).2, 0o750);
    chmod(&pool.join("dir"), 0o755);
    assert_eq!([&a, &b].map(|disk| look(&disk.join("dir")).2), [0o755; 2]);
    assert_eq!(unmet_copies(&b.join("dir")), 0);
    chmod(&a.join("dir"), 0o775);
    assert_eq!(look(&pool.join("dir")).2, 0o775);
    assert_eq!(look(&b.join("dir")).2, 0o755);
}

#[test]
fn the_first_branch_decides_about_a_directory_of_which_no_right_was_changed() {
    let (a, b, builder) = first_decides();
    copy(&a, "dir", (0, 0, 0o777));
    copy(&b, "dir", (0, 0, 0o700));
    let pool = mounted_without(&a, builder);
    rustix::fs::setxattr(pool.join("dir"), "user.k", b"v", XattrFlags::empty()).unwrap();
    return_of("a", &a, &pool);
    assert_eq!(look(&pool.join("dir")).2, 0o777);
}

#[test]
fn of_two_disks_that_were_missing_each_is_noted_once() {
    let (a, b, builder) = first_decides();
    let c = Disk::ext4(32 * MIB);
    for disk in [&a, &b, &c] {
        copy(disk, "dir", (0, 0, 0o777));
    }
    let mut pool = builder.branch_with("c", c.path(), "optional = true").mount();
    pool.stop();
    a.vanish();
    c.vanish();
    pool.start();
    for mode in [0o755, 0o750, 0o700] {
        chmod(&pool.join("dir"), mode);
        pool.remount();
    }
    assert_eq!(unmet_copies(&b.join("dir")), 2);
    return_of("c", &c, &pool);
    assert_eq!(look(&pool.join("dir")).2, 0o700);
    chmod(&pool.join("dir"), 0o711);
    assert_eq!([&b, &c].map(|disk| (look(&disk.join("dir")).2, unmet_copies(&disk.join("dir")))), [(0o711, 1); 2]);
    return_of("a", &a, &pool);
    assert_eq!((look(&pool.join("dir")).2, look(&a.join("dir")).2), (0o711, 0o777));
    chmod(&pool.join("dir"), 0o710);
    for disk in [&a, &b, &c] {
        assert_eq!((look(&disk.join("dir")).2, unmet_copies(&disk.join("dir"))), (0o710, 0));
    }
}
