//! Copies of a directory that changed, in mode, attributes and ACLs, while one of its branches was away.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use rustix::fs::XattrFlags;

use crate::support::disk::Disk;
use crate::support::pool::{Builder, Pool};
use crate::support::tree::{Entry, Times, entry};
use crate::support::{MIB, eventually, run};

const RULES: &str = "[[rule]]\nname = \"by name\"\nmatch = [{ glob = \"/**.b\", to = [\"b\", \"default\", \"any\"], offline = \"pass\" }]\n";
const KEYS: &str = "probe_interval = \"200ms\"\nprobe_timeout = \"1s\"\non_branch_error = \"skip\"";
const ACL: &str = "system.posix_acl_access";
const DEFAULT_ACL: &str = "system.posix_acl_default";

/// The branch that goes away is the first, which would be asked before the others.
fn two_disks() -> (Disk, Disk, Builder) {
    let (a, b) = (Disk::ext4(32 * MIB), Disk::ext4(32 * MIB));
    let builder = Pool::builder().branch_with("a", a.path(), "optional = true").branch("b", b.path());
    (a, b, builder.default(&["a"]).rules(RULES).keys(KEYS))
}

fn setfacl(args: &[&str], path: &Path) {
    run("setfacl", args.iter().map(|&arg| OsString::from(arg)).chain([OsString::from(path)]));
}

fn set(path: &Path, name: &str, value: &str) {
    rustix::fs::setxattr(path, name, value.as_bytes(), XattrFlags::empty()).unwrap();
}

/// Directories on both branches, with an ACL, a default ACL and attributes: one in another.
fn furnish(pool: &Pool) {
    for dir in ["dir", "dir/below", "bare"] {
        let dir = pool.join(dir);
        fs::create_dir(&dir).unwrap();
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o750)).unwrap();
        setfacl(&["-m", "u:4711:rwx,d:u:4711:rwx"], &dir);
        set(&dir, "user.k", "old");
        set(&dir, "user.gone", "x");
        fs::write(dir.join("one"), "").unwrap();
        fs::write(dir.join("two.b"), "").unwrap();
    }
    setfacl(&["-m", "u:4711:rwx"], &pool.mount_point());
    set(&pool.mount_point(), "user.k", "old");
}

/// Takes rights away, gives others, and changes and removes attributes.
fn change(pool: &Pool) {
    for dir in [pool.join("dir"), pool.join("dir/below")] {
        setfacl(&["-m", "u:4711:---,d:u:4711:---,d:u:4712:r-x"], &dir);
        set(&dir, "user.k", "new");
        set(&dir, "user.more", "y");
        rustix::fs::removexattr(&dir, "user.gone").unwrap();
    }
    let bare = pool.join("bare");
    setfacl(&["-b", "-k"], &bare);
    fs::set_permissions(&bare, fs::Permissions::from_mode(0o700)).unwrap();
    for name in ["user.k", "user.gone"] {
        rustix::fs::removexattr(&bare, name).unwrap();
    }
    setfacl(&["-b"], &pool.mount_point());
    set(&pool.mount_point(), "user.k", "new");
}

fn attribute(path: &Path, name: &str) -> Option<Vec<u8>> {
    entry(path, Times::Ignored).xattrs.remove(name.as_bytes())
}

const ALL: [&str; 4] = ["", "bare", "dir", "dir/below"];

fn seen(root: &Path) -> Vec<Entry> {
    ALL.iter().map(|dir| entry(&root.join(dir), Times::Ignored)).collect()
}

/// What was changed is seen, and is on both branches.
fn expect_changed(pool: &Pool, wanted: &[Entry]) {
    assert_eq!(seen(&pool.mount_point()), wanted);
    for branch in ["a", "b"] {
        for (dir, wanted) in ALL.iter().zip(wanted) {
            let mut copy = entry(&pool.on(branch, dir), Times::Ignored);
            // The roots differ in what file systems put there.
            copy.kind = wanted.kind;
            assert_eq!(copy, *wanted, "/{dir} on {branch}");
        }
    }
    assert_eq!(attribute(&pool.join("bare"), ACL), None);
    assert_eq!(attribute(&pool.join("bare"), DEFAULT_ACL), None);
    assert!(attribute(&pool.join("dir/below"), DEFAULT_ACL).is_some());
    assert_eq!(attribute(&pool.join("dir"), "user.k").unwrap(), b"new");
    assert_eq!(attribute(&pool.join("dir"), "user.gone"), None);
    assert_eq!(attribute(&pool.mount_point(), ACL), None);
    assert_eq!(attribute(&pool.mount_point(), "user.k").unwrap(), b"new");
}

#[test]
fn what_changed_on_directories_while_a_branch_was_away_holds_from_its_return_on() {
    let (a, _b, builder) = two_disks();
    let pool = builder.mount();
    furnish(&pool);
    // One is reached by an open descriptor, without a look at any name.
    let held = File::open(pool.join("dir/below")).unwrap();
    a.vanish();
    eventually("it is away", || !pool.is_online("a"));
    change(&pool);
    let wanted = seen(&pool.mount_point());
    let value = |name: &str| {
        let mut value = vec![0; 512];
        let length = rustix::fs::fgetxattr(&held, name, &mut value).unwrap();
        value.truncate(length);
        value
    };
    let names = ["user.k", ACL, DEFAULT_ACL];
    let changed = names.map(value);

    a.mount();
    eventually("it is back", || {
        // Never, however early, what it was.
        assert_eq!(names.map(value), changed);
        pool.is_online("a")
    });
    assert_eq!(names.map(value), changed);
    assert_eq!(attribute(&pool.on("a", "dir/below"), ACL).as_ref(), Some(&changed[1]), "it was put right at once");
    expect_changed(&pool, &wanted);
    fs::write(pool.join("dir/below/three"), "").unwrap();
    assert!(pool.on("a", "dir/below/three").exists());
    expect_changed(&pool, &wanted);
}

#[test]
fn what_changed_on_directories_while_a_branch_was_away_holds_after_a_restart_too() {
    let (a, _b, builder) = two_disks();
    let mut pool = builder.mount();
    furnish(&pool);
    a.vanish();
    eventually("it is away", || !pool.is_online("a"));
    change(&pool);
    let wanted = seen(&pool.mount_point());
    pool.stop();
    a.mount();
    pool.start();
    assert!(pool.is_online("a"));
    expect_changed(&pool, &wanted);
    pool.remount();
    expect_changed(&pool, &wanted);
}

#[test]
fn a_copy_that_was_left_half_changed_is_no_model_for_the_others() {
    let (_a, _b, builder) = two_disks();
    let mut pool = builder.mount();
    furnish(&pool);
    setfacl(&["-m", "u:4711:---"], &pool.join("dir"));
    let wanted = seen(&pool.mount_point());
    pool.stop();
    // What a kill in the middle leaves: the mark, and the newest time of change.
    let half = pool.on("a", "dir");
    set(&half, "trusted.umbrella.behind", "1");
    setfacl(&["-m", "u:4711:rwx"], &half);
    rustix::fs::removexattr(&half, "user.k").unwrap();
    pool.start();
    assert_eq!(seen(&pool.mount_point()), wanted);
    assert_eq!(entry(&half, Times::Ignored), wanted[2], "and it has no mark any more");
}

#[test]
fn a_branch_that_is_new_and_empty_changes_nothing_of_the_root_and_is_not_changed() {
    let (a, b) = (Disk::ext4(32 * MIB), Disk::ext4(32 * MIB));
    fs::write(b.join("file"), "").unwrap();
    let empty = entry(&a.path(), Times::Ignored);
    let pool = Pool::builder().branch("b", b.path()).default(&["b"]).keys(KEYS).mount();
    setfacl(&["-m", "u:4711:r-x"], &pool.mount_point());
    fs::set_permissions(pool.mount_point(), fs::Permissions::from_mode(0o710)).unwrap();
    let wanted = entry(&pool.mount_point(), Times::Ignored);
    pool.say(["branch".as_ref(), "add".as_ref(), "a".as_ref(), a.path().as_os_str()]);
    assert_eq!(entry(&pool.mount_point(), Times::Ignored), wanted);
    assert_eq!(entry(&a.path(), Times::Ignored), empty);
}

#[test]
fn the_root_of_a_branch_that_brings_files_is_not_opened() {
    let (open, shut) = (Disk::ext4(32 * MIB), Disk::ext4(32 * MIB));
    let mode = |disk: &Disk| fs::metadata(disk.path()).unwrap().permissions().mode() & 0o7777;
    for (disk, mode) in [(&open, 0o777), (&shut, 0o700)] {
        fs::write(disk.join("file"), "x").unwrap();
        fs::set_permissions(disk.path(), fs::Permissions::from_mode(mode)).unwrap();
    }
    let builder = Pool::builder().branch("open", open.path()).branch("shut", shut.path()).default(&["open"]).keys(KEYS);
    let mut pool = builder.mount();
    let seen = |pool: &Pool| fs::metadata(pool.mount_point()).unwrap().permissions().mode() & 0o7777;
    assert_eq!((seen(&pool), mode(&open), mode(&shut)), (0o700, 0o777, 0o700));
    assert!(pool.status().warnings.iter().any(|warning| warning.contains("/: open 0777 of 0:0, shut 0700 of 0:0")));
    // What is said through the pool counts from then on, but not for a branch that joins with files of its own.
    fs::set_permissions(pool.mount_point(), fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!((mode(&open), mode(&shut)), (0o755, 0o755));
    let (late, empty) = (Disk::ext4(32 * MIB), Disk::ext4(32 * MIB));
    fs::write(late.join("private"), "x").unwrap();
    for disk in [&late, &empty] {
        fs::set_permissions(disk.path(), fs::Permissions::from_mode(0o700)).unwrap();
    }
    pool.say(["branch".as_ref(), "add".as_ref(), "empty".as_ref(), empty.path().as_os_str()]);
    assert_eq!((seen(&pool), mode(&empty)), (0o755, 0o700), "an empty disk does not count");
    pool.say(["branch".as_ref(), "add".as_ref(), "late".as_ref(), late.path().as_os_str()]);
    assert_eq!((seen(&pool), mode(&late)), (0o700, 0o700), "what it had closed stays closed");
    pool.stop();
    assert_eq!((mode(&open), mode(&late)), (0o755, 0o700));
}

/// Copies that were on the branches before the pool.
#[test]
fn an_acl_of_one_branch_opens_nothing_that_another_has_closed() {
    let (a, b, builder) = two_disks();
    for disk in [&a, &b] {
        for dir in ["opened", "shut", "same"] {
            fs::create_dir(disk.join(dir)).unwrap();
            fs::set_permissions(disk.join(dir), fs::Permissions::from_mode(0o770)).unwrap();
            fs::write(disk.join(dir).join(if disk.path() == a.path() { "on-a" } else { "on-b" }), "").unwrap();
        }
        setfacl(&["-m", "u:4711:r-x"], &disk.join("same"));
    }
    setfacl(&["-m", "u:4711:rwx"], &a.join("opened"));
    for (disk, acl) in [(&a, "u:4711:---,o::rwx"), (&b, "o::rwx")] {
        setfacl(&["-m", acl], &disk.join("shut"));
    }
    let same = entry(&a.join("same"), Times::Ignored);
    let pool = builder.mount();
    let list = |dir: &str, uid: u32| {
        let user = uid.to_string();
        let dir = pool.join(dir);
        let args = ["--reuid", &user, "--regid=4711", "--clear-groups", "ls"];
        std::process::Command::new("setpriv").args(args).arg(dir).output().unwrap().status.success()
    };
    assert!(!list("opened", 4711), "the copy on b gives him nothing");
    assert!(!list("shut", 4711), "the copy on a shuts him out");
    assert!(list("shut", 4712), "whom nobody shut out gets in");
    assert!(list("same", 4711), "what both allow is allowed");
    assert_eq!([a.join("same"), b.join("same")].map(|dir| entry(&dir, Times::Ignored)), [same.clone(), same]);
    assert_eq!((attribute(&a.join("opened"), ACL).is_some(), attribute(&b.join("opened"), ACL)), (true, None));
    let warnings = pool.status().warnings;
    assert!(warnings.iter().any(|warning| warning.starts_with("2 directories")), "{warnings:?}");
    assert!(!warnings.iter().any(|warning| warning.contains("/same")), "{warnings:?}");
    setfacl(&["-m", "u:4711:rwx"], &pool.join("opened"));
    assert!(list("opened", 4711), "it can be opened through the pool");
}

#[test]
fn a_directory_that_could_not_be_removed_everywhere_keeps_all_it_had() {
    let (a, b, builder) = two_disks();
    let mut pool = builder.mount();
    furnish(&pool);
    let dir = pool.join("bare");
    for name in ["one", "two.b"] {
        fs::remove_file(dir.join(name)).unwrap();
    }
    let (before, number) = (entry(&dir, Times::Kept), fs::metadata(&dir).unwrap().ino());
    let immutable = |how: &str| run("chattr", [how.as_ref(), b.join("bare").as_os_str()]);
    immutable("+i");
    let refused = fs::remove_dir(&dir);
    immutable("-i");
    refused.unwrap_err();
    for _ in 0..2 {
        assert_eq!(entry(&dir, Times::Kept), before);
        assert_eq!(entry(&a.join("bare"), Times::Kept).xattrs, before.xattrs);
        assert_eq!(fs::metadata(&dir).unwrap().ino(), number);
        pool.remount();
    }
    fs::write(dir.join("three"), "").unwrap();
    assert!(a.join("bare/three").exists());
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

/// Entries that come and go in a copy make it the one that changed last, and say nothing of its mode.
#[test]
fn a_directory_that_was_closed_stays_closed_whatever_happens_in_the_copy_that_was_away() {
    let (a, _b, builder) = two_disks();
    let mut pool = builder.mount();
    fs::create_dir(pool.join("dir")).unwrap();
    fs::set_permissions(pool.join("dir"), fs::Permissions::from_mode(0o777)).unwrap();
    fs::write(pool.join("dir/one"), "").unwrap();
    fs::write(pool.join("dir/two.b"), "").unwrap();
    a.vanish();
    eventually("it is away", || !pool.is_online("a"));
    for closed in [pool.join("dir"), pool.mount_point()] {
        fs::set_permissions(closed, fs::Permissions::from_mode(0o700)).unwrap();
    }
    a.mount();
    fs::write(a.join("dir/late"), "").unwrap();
    fs::write(a.join("late"), "").unwrap();
    eventually("it is back", || pool.is_online("a"));
    for round in 0..2 {
        for dir in ["", "dir"] {
            for at in [pool.mount_point(), pool.on("a", ""), pool.on("b", "")] {
                assert_eq!(mode(&at.join(dir)), 0o700, "{dir:?} of {} in round {round}", at.display());
            }
        }
        assert!(rustix::fs::lgetxattr(pool.join("dir"), "trusted.umbrella.changed", &mut [0; 32]).is_err());
        assert!(rustix::fs::lgetxattr(pool.on("a", "dir"), "trusted.umbrella.changed", &mut [0; 32]).is_ok());
        let forged = rustix::fs::setxattr(pool.join("dir"), "trusted.umbrella.changed", b"9", XattrFlags::empty());
        assert_eq!(forged, Err(rustix::io::Errno::PERM));
        pool.remount();
    }
}

#[test]
fn a_directory_that_two_owners_had_on_two_disks_is_roots_and_as_closed_as_either() {
    let (a, b, builder) = two_disks();
    for (disk, owner, mode) in [(&a, 65_534, 0o755), (&b, 1, 0o700)] {
        fs::create_dir(disk.join("dir")).unwrap();
        std::os::unix::fs::chown(disk.join("dir"), Some(owner), Some(owner)).unwrap();
        fs::set_permissions(disk.join("dir"), fs::Permissions::from_mode(mode)).unwrap();
    }
    let pool = builder.mount();
    for (at, look) in
        [(pool.join("dir"), (0o700, 0, 0)), (a.join("dir"), (0o755, 65_534, 65_534)), (b.join("dir"), (0o700, 1, 1))]
    {
        let meta = fs::metadata(&at).unwrap();
        assert_eq!((meta.mode() & 0o7777, meta.uid(), meta.gid()), look, "{}", at.display());
    }
    assert!(
        pool.status().warnings.iter().any(|warning| warning.contains("/dir: a 0755 of 65534:65534, b 0700 of 1:1"))
    );
    std::os::unix::fs::chown(pool.join("dir"), Some(1), Some(1)).unwrap();
    for at in [pool.join("dir"), a.join("dir"), b.join("dir")] {
        assert_eq!(fs::metadata(&at).unwrap().uid(), 1, "{}", at.display());
    }
}
