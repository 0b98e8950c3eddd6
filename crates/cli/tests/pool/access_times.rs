//! Mount options on access times, against ext4 mounted with the same ones.

use std::fs;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, symlink};
use std::path::Path;
use std::time::SystemTime;

use rustix::fs::{AtFlags, CWD, OFlags, Timespec, Timestamps};

use crate::support::disk::Disk;
use crate::support::pool::Pool;
use crate::support::{MIB, run};

const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;

/// Last changed ten days ago, last read `ago` seconds ago.
fn last_read(path: &Path, ago: i64) {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() as i64;
    let at = |ago| Timespec { tv_sec: now - ago, tv_nsec: 0 };
    let times = Timestamps { last_access: at(ago), last_modification: at(10 * DAY) };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

/// What is read, and how long ago it was read before: relatime knows less than a day from more.
const SCENE: [(&str, i64); 6] = [
    ("fresh", HOUR),
    ("stale", 3 * DAY),
    ("dir-fresh", HOUR),
    ("dir-stale", 3 * DAY),
    ("link-fresh", HOUR),
    ("link-stale", 3 * DAY),
];

fn build(folder: &Path) {
    for (name, ago) in SCENE {
        let path = folder.join(name);
        if name.starts_with("dir") {
            fs::create_dir(&path).unwrap();
            fs::write(path.join("file"), "x").unwrap();
        } else if name.starts_with("link") {
            symlink("fresh", &path).unwrap();
        } else {
            fs::write(&path, "some data").unwrap();
        }
        last_read(&path, ago);
    }
}

/// Reads everything through `folder`, and gives what had another access time on `disk` then.
fn changed_by_reading(folder: &Path, disk: &Path) -> Vec<&'static str> {
    let atime = |name: &str| fs::symlink_metadata(disk.join(name)).unwrap().atime();
    let before = SCENE.map(|(name, _)| atime(name));
    for (name, _) in SCENE {
        let path = folder.join(name);
        if name.starts_with("dir") {
            assert_eq!(fs::read_dir(&path).unwrap().count(), 1);
        } else if name.starts_with("link") {
            fs::read_link(&path).unwrap();
        } else {
            assert_eq!(fs::read(&path).unwrap(), b"some data");
        }
    }
    let after = SCENE.map(|(name, _)| atime(name));
    let names = SCENE.iter().map(|(name, _)| *name);
    names.zip(before.iter().zip(&after)).filter(|(_, (before, after))| before != after).map(|(name, _)| name).collect()
}

#[test]
fn reads_change_access_times_as_the_mount_options_say_whatever_those_of_the_branch() {
    for (options, of_the_branch) in [
        ("noatime", "strictatime"),
        ("nodiratime", "relatime"),
        ("strictatime", "noatime"),
        ("relatime", "noatime"),
        ("relatime,nodiratime", "strictatime"),
    ] {
        let plain = Disk::ext4(32 * MIB);
        build(&plain.path());
        run("mount", ["-o".as_ref(), format!("remount,{options}").as_ref(), plain.path().as_os_str()]);
        let expected = changed_by_reading(&plain.path(), &plain.path());
        for passthrough in [true, false] {
            let branch = Disk::ext4(32 * MIB);
            run("mount", ["-o".as_ref(), format!("remount,{of_the_branch}").as_ref(), branch.path().as_os_str()]);
            build(&branch.path());
            let keys = format!("passthrough = {passthrough}");
            let pool = Pool::builder().branch_with("a", branch.path(), &keys).options(options).mount();
            assert_eq!(pool.branch_status("a").abilities.passthrough, passthrough);
            let changed = changed_by_reading(&pool.mount_point(), &branch.path());
            assert_eq!(changed, expected, "{options} on a branch with {of_the_branch}, passthrough: {passthrough}");
        }
    }
}

#[test]
fn without_such_options_access_times_are_those_of_the_branch() {
    for of_the_branch in ["noatime", "strictatime"] {
        let branch = Disk::ext4(32 * MIB);
        run("mount", ["-o".as_ref(), format!("remount,{of_the_branch}").as_ref(), branch.path().as_os_str()]);
        build(&branch.path());
        let pool = Pool::builder().branch("a", branch.path()).options("nosuid").mount();
        let changed = changed_by_reading(&pool.mount_point(), &branch.path());
        assert_eq!(changed.is_empty(), of_the_branch == "noatime", "{changed:?}");
    }
}

/// All calls go through one mount: a rename or a link between two of one file system would fail.
#[test]
fn a_pool_with_noatime_does_all_that_others_do() {
    let (a, b) = (Disk::ext4(32 * MIB), Disk::ext4(32 * MIB));
    let mut pool = Pool::builder()
        .branches([("a", a.path()), ("b", b.path())])
        .default(&["a", "b"])
        .options("noatime")
        .keys("[staging]\nmode = \"always\"\nmax_age = \"1h\"")
        .mount();
    fs::create_dir_all(pool.join("d/e")).unwrap();
    fs::write(pool.join("file"), "data").unwrap();
    pool.say(["sync"]);
    fs::hard_link(pool.join("file"), pool.join("d/name")).unwrap();
    fs::rename(pool.join("file"), pool.join("d/e/moved")).unwrap();
    fs::rename(pool.join("d/e"), pool.join("e")).unwrap();
    let unnamed = fs::File::options()
        .write(true)
        .read(true)
        .custom_flags(OFlags::TMPFILE.bits() as i32)
        .open(pool.join("d"))
        .unwrap();
    rustix::fs::linkat(&unnamed, "", CWD, pool.join("d/late"), AtFlags::EMPTY_PATH).unwrap();
    assert_eq!(fs::metadata(pool.join("e/moved")).unwrap().nlink(), 2);
    pool.load_rules("[[rule]]\nname = \"all\"\nwhen = {}\nto = [\"b\"]\n");
    pool.enforce();
    for name in ["e/moved", "d/name"] {
        assert_eq!(
            (pool.found_on(name), fs::read(pool.join(name)).unwrap()),
            (vec!["b".to_owned()], b"data".to_vec()),
            "{name}"
        );
    }
    drop(unnamed);
    // The branch's own mount is as busy as ever.
    let umount = std::process::Command::new("umount").arg(b.path()).output().unwrap();
    assert!(!umount.status.success(), "the disk is in use");
    pool.remount();
    assert_eq!(fs::read(pool.join("d/name")).unwrap(), b"data");
    pool.stop();
    run("umount", [b.path()]);
}
