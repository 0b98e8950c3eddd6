//! Directories whose copies differ in owner, mode or ACL: what is shown, and that no disk is changed by it.

mod behind;
mod unmet;

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use rustix::fs::XattrFlags;

use crate::support::disk::Disk;
use crate::support::pool::{Builder, Pool, text};
use crate::support::tree::{Entry, Times, entry};
use crate::support::{MIB, eventually, run};

const B_BY_NAME: &str = "[[rule]]\nname = \"by name\"\nmatch = [{ glob = \"/**.b\", to = [\"b\", \"default\", \"any\"], offline = \"pass\" }]\n";
const KEYS: &str = "probe_interval = \"200ms\"\nprobe_timeout = \"1s\"";
const ACL: &str = "system.posix_acl_access";
const DEFAULT_ACL: &str = "system.posix_acl_default";
const MARK: &str = "trusted.umbrella.behind";

fn two_disks() -> (Disk, Disk, Builder) {
    let (a, b) = (Disk::ext4(32 * MIB), Disk::ext4(32 * MIB));
    let builder = Pool::builder().branch_with("a", a.path(), "optional = true").branch("b", b.path());
    (a, b, builder.default(&["a"]).rules(B_BY_NAME).keys(KEYS))
}

/// `(owner, group, mode)`
type Look = (u32, u32, u32);

fn look(path: &Path) -> Look {
    let meta = fs::metadata(path).unwrap();
    (meta.uid(), meta.gid(), meta.mode() & 0o7777)
}

fn set_look(path: &Path, (uid, gid, mode): Look) {
    chown(path, Some(uid), Some(gid)).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// A copy of a directory on a disk, with a file in it.
fn copy(disk: &Disk, name: &str, wanted: Look) {
    fs::create_dir_all(disk.join(name)).unwrap();
    set_look(&disk.join(name), wanted);
    let own_name = disk.path().display().to_string().replace('/', "-");
    fs::write(disk.join(name).join(own_name), "").unwrap();
}

fn setfacl(args: &[&str], path: &Path) {
    run("setfacl", args.iter().map(|&arg| OsString::from(arg)).chain([OsString::from(path)]));
}

fn attribute(path: &Path, name: &str) -> Option<Vec<u8>> {
    entry(path, Times::Ignored).xattrs.remove(name.as_bytes())
}

/// Whether somebody may do it.
fn may(user: u32, groups: &str, command: &str) -> bool {
    let args = [format!("--reuid={user}"), format!("--regid={user}"), format!("--groups={groups}")];
    Command::new("setpriv").args(args).args(["sh", "-c", command]).output().unwrap().status.success()
}

fn on_disk(disks: [&Disk; 2], names: &[&str]) -> Vec<Entry> {
    let all = disks.into_iter().flat_map(|disk| names.iter().map(|name| disk.join(name)));
    all.map(|path| entry(&path, Times::Ignored)).collect()
}

#[test]
fn what_is_only_shown_changes_no_disk_and_is_what_all_copies_allow() {
    let (a, b, builder) = two_disks();
    let cases = [
        ("TV", (1000, 1000, 0o2775), (0, 0, 0o2775), (0, 0, 0o755)),
        ("closed", (1000, 1000, 0o750), (1001, 1001, 0o705), (0, 0, 0o700)),
        ("group", (1000, 100, 0o770), (1001, 100, 0o770), (0, 100, 0o770)),
        ("same", (1000, 100, 0o2770), (1000, 100, 0o2770), (1000, 100, 0o2770)),
        ("set-id", (1000, 100, 0o2770), (1000, 100, 0o1755), (1000, 100, 0o1750)),
        ("TV/below", (1000, 1000, 0o700), (1000, 1000, 0o770), (1000, 1000, 0o700)),
    ];
    let mut names: Vec<&str> = cases.iter().map(|(name, ..)| *name).collect();
    for (name, on_a, on_b, _) in cases {
        copy(&a, name, on_a);
        copy(&b, name, on_b);
    }
    // The roots too.
    set_look(&a.path(), (1000, 1000, 0o2775));
    set_look(&b.path(), (0, 0, 0o2775));
    names.push("");
    let before = on_disk([&a, &b], &names);
    let mut pool = builder.mount();
    for round in 1..3 {
        run("ls", ["-lR".as_ref(), pool.mount_point().as_os_str()]);
        for (name, _, _, wanted) in cases {
            assert_eq!(look(&pool.join(name)), wanted, "{name}");
        }
        assert_eq!(look(&pool.mount_point()), (0, 0, 0o755));
        assert!(!may(1000, "1000", &format!("touch {}", pool.join("TV/by-1000").display())));
        assert!(may(1000, "100", &format!("ls {}", pool.join("same").display())));
        assert!(may(1002, "100", &format!("ls {}", pool.join("group").display())));
        assert!(!may(1002, "1002", &format!("ls {}", pool.join("group").display())));
        assert_eq!(on_disk([&a, &b], &names), before);
        let warnings = pool.status().warnings;
        let told: Vec<_> = warnings.iter().filter(|warning| warning.contains("repair --equalise")).collect();
        assert!(
            matches!(&told[..], [told] if told.starts_with("6 directories have different owners, modes or ACLs")),
            "{warnings:?}"
        );
        assert_eq!(pool.log().matches("repair --equalise").count(), round, "{}", pool.log());
        pool.remount();
    }
}

#[test]
fn a_change_through_the_pool_makes_all_copies_what_is_shown_with_that_change() {
    let (a, b, builder) = two_disks();
    for name in ["chmod", "chown", "setfacl"] {
        copy(&a, name, (1000, 1000, 0o2775));
        copy(&b, name, (0, 0, 0o2775));
    }
    for (disk, value) in [(&a, b"a"), (&b, b"b")] {
        rustix::fs::setxattr(disk.join("chmod"), "user.own", value, XattrFlags::empty()).unwrap();
    }
    setfacl(&["-m", "u:4711:rwx"], &a.join("setfacl"));
    let pool = builder.mount();
    fs::set_permissions(pool.join("chmod"), fs::Permissions::from_mode(0o770)).unwrap();
    chown(pool.join("chown"), Some(1000), None).unwrap();
    setfacl(&["-m", "u:4712:r-x,d:u:4712:r-x"], &pool.join("setfacl"));
    for at in [pool.mount_point(), a.path(), b.path()] {
        assert_eq!(look(&at.join("chmod")), (0, 0, 0o770), "{}", at.display());
        assert_eq!(look(&at.join("chown")), (1000, 0, 0o755), "{}", at.display());
        assert_eq!(look(&at.join("setfacl")), (0, 0, 0o755), "{}", at.display());
        for acl in [ACL, DEFAULT_ACL] {
            assert_eq!(attribute(&at.join("setfacl"), acl), attribute(&pool.join("setfacl"), acl));
        }
        assert_eq!(attribute(&at.join("chmod"), MARK), None);
    }
    assert!(attribute(&pool.join("setfacl"), DEFAULT_ACL).is_some());
    assert_eq!(attribute(&b.join("chmod"), "user.own").unwrap(), b"b", "other attributes stay");
    assert!(!pool.status().warnings.iter().any(|warning| warning.contains("repair --equalise")));
    // The next mount does not find anything either.
    let mut pool = pool;
    pool.remount();
    assert_eq!(look(&pool.join("chown")), (1000, 0, 0o755));
}

#[test]
fn status_and_log_say_by_what_copies_differ() {
    for (acl_of_b, mode_of_b, expected) in [
        (None, 0o755, "/dir: a 0750 of 1000:100, b 0755 of 1000:100)"),
        (
            Some("u:4712:r-x"),
            0o750,
            "/dir: a 0750 of 1000:100 with an ACL, b 0750 of 1000:100 with an ACL; the ACLs differ)",
        ),
    ] {
        let (a, b, builder) = two_disks();
        copy(&a, "dir", (1000, 100, 0o750));
        copy(&b, "dir", (1000, 100, mode_of_b));
        if let Some(acl) = acl_of_b {
            setfacl(&["-m", "u:4711:r-x"], &a.join("dir"));
            setfacl(&["-m", acl], &b.join("dir"));
        }
        let pool = builder.mount();
        fs::metadata(pool.join("dir")).unwrap();
        let warnings = pool.status().warnings;
        assert!(warnings.iter().any(|warning| warning.contains(expected)), "{warnings:?}");
        assert!(pool.log().contains(expected), "{}", pool.log());
    }
}

#[test]
fn acls_of_copies_that_differ_are_shown_as_what_all_allow() {
    let (a, b, builder) = two_disks();
    for name in ["one", "both", "owner"] {
        copy(&a, name, (1000, 100, 0o750));
        copy(&b, name, (1000, 100, 0o750));
    }
    setfacl(&["-m", "u:4711:rwx"], &a.join("one"));
    setfacl(&["-m", "u:4711:rwx,u:4712:r-x"], &a.join("both"));
    setfacl(&["-m", "u:4711:r-x"], &b.join("both"));
    setfacl(&["-m", "u:4711:rwx"], &a.join("owner"));
    set_look(&b.join("owner"), (4711, 100, 0o550));
    let before = on_disk([&a, &b], &["one", "both", "owner"]);
    let pool = builder.mount();
    let list = |name: &str, user: u32| may(user, "4710", &format!("ls {}", pool.join(name).display()));
    let make = |name: &str, user: u32| may(user, "4710", &format!("touch {}/new", pool.join(name).display()));
    assert!(!list("one", 4711), "b names him not, and gives others nothing");
    assert!(list("both", 4711) && !make("both", 4711) && !list("both", 4712));
    assert!(list("owner", 4711) && !make("owner", 4711), "he owns b's, and may not write there");
    let mode = fs::metadata(pool.join("both")).unwrap().mode() & 0o777;
    assert_eq!(mode, 0o750, "the mode has the mask of what is shown");
    assert!(attribute(&pool.join("both"), ACL).is_some());
    assert_eq!(on_disk([&a, &b], &["one", "both", "owner"]), before);
}

#[test]
fn new_entries_follow_what_is_shown_wherever_they_are_made() {
    let (a, b, builder) = two_disks();
    for (name, on_a, on_b) in [
        ("group", (1000, 100, 0o2777), (1000, 100, 0o777)),
        ("both", (1000, 100, 0o2777), (1000, 100, 0o3777)),
        ("acl", (1000, 100, 0o777), (1000, 100, 0o777)),
    ] {
        copy(&a, name, on_a);
        copy(&b, name, on_b);
    }
    setfacl(&["-m", "d:u:4711:rwx,d:g::rwx,d:o::rwx"], &a.join("acl"));
    let pool = builder.mount();
    let shell = |command: &str| {
        let done = format!("cd {} && umask 027 && {command}", pool.mount_point().display());
        assert!(may(4712, "4712", &done), "{command}");
    };
    shell("for d in group both acl; do touch $d/new $d/new.b; mkdir $d/dir; ln -s x $d/link; done");
    for name in ["new", "new.b", "dir", "link"] {
        let group = |dir: &str| fs::symlink_metadata(pool.join(dir).join(name)).unwrap().gid();
        assert_eq!((group("group"), group("both")), (4712, 100), "{name}");
    }
    assert_eq!((look(&pool.join("group/dir")).2, look(&pool.join("both/dir")).2), (0o750, 0o2750));
    for name in ["new", "new.b"] {
        assert_eq!((pool.branch_of(format!("acl/{name}")) == "b"), name == "new.b");
        let list = format!("cat {}", pool.join("acl").join(name).display());
        assert_eq!(look(&pool.join("acl").join(name)), (4712, 4712, 0o640), "{name}");
        assert!(!may(4711, "4711", &list), "b passes no ACL on, so nobody gets anything by a's");
    }
    assert_eq!(attribute(&pool.join("acl"), DEFAULT_ACL), attribute(&pool.join("acl/dir"), DEFAULT_ACL));
    // Where all pass the same on, it is as on any file system.
    setfacl(&["-m", "d:u:4711:r-x"], &pool.join("acl"));
    shell("touch acl/later acl/later.b");
    for name in ["later", "later.b"] {
        assert!(may(4711, "4711", &format!("cat {}", pool.join("acl").join(name).display())), "{name}");
    }
}

#[test]
fn a_copy_that_the_pool_makes_gets_what_is_shown() {
    let (a, b) = (Disk::ext4(32 * MIB), Disk::ext4(32 * MIB));
    let c = Disk::ext4(32 * MIB);
    let builder = Pool::builder().branch("a", a.path()).branch("b", b.path()).branch("c", c.path());
    let rules = "[[rule]]\nname = \"by name\"\nmatch = [{ glob = \"/**.c\", to = [\"c\"] }]\n";
    copy(&a, "TV", (1000, 1000, 0o2775));
    copy(&b, "TV", (0, 0, 0o2775));
    setfacl(&["-m", "u:4711:rwx"], &b.join("TV"));
    let before = on_disk([&a, &b], &["TV"]);
    let pool = builder.default(&["a"]).rules(rules).keys(KEYS).mount();
    fs::write(pool.join("TV/new.c"), "").unwrap();
    assert!(c.join("TV/new.c").exists());
    assert_eq!(look(&c.join("TV")), (0, 0, 0o755));
    assert_eq!(attribute(&c.join("TV"), ACL), attribute(&pool.join("TV"), ACL));
    assert_eq!(look(&pool.join("TV")), (0, 0, 0o755));
    assert_eq!(on_disk([&a, &b], &["TV"]), before);
}

#[test]
fn the_first_branch_that_is_online_decides_where_that_is_asked_for() {
    let (a, b, builder) = two_disks();
    copy(&a, "TV", (1000, 1000, 0o2775));
    copy(&b, "TV", (1001, 1001, 0o700));
    setfacl(&["-m", "u:4711:rwx"], &a.join("TV"));
    let before = on_disk([&a, &b], &["TV"]);
    let acl = attribute(&a.join("TV"), ACL);
    let pool = builder.keys("directories = \"first\"").mount();
    assert_eq!((look(&pool.join("TV")), attribute(&pool.join("TV"), ACL)), ((1000, 1000, 0o2775), acl.clone()));
    a.vanish();
    eventually("b decides", || look(&pool.join("TV")) == (1001, 1001, 0o700));
    assert_eq!(attribute(&pool.join("TV"), ACL), None);
    a.mount();
    eventually("a is back", || pool.is_online("a"));
    assert_eq!((look(&pool.join("TV")), attribute(&pool.join("TV"), ACL)), ((1000, 1000, 0o2775), acl));
    assert_eq!(on_disk([&a, &b], &["TV"]), before);
}

#[test]
fn what_a_branch_denies_holds_from_the_moment_that_it_comes() {
    let (a, b, builder) = two_disks();
    for name in ["TV", "acl"] {
        copy(&a, name, (1000, 1000, 0o700));
        copy(&b, name, (1001, 1001, 0o755));
    }
    setfacl(&["-m", "u:4711:rwx"], &b.join("acl"));
    let pool = builder.mount();
    let list = |name: &str, user: u32| may(user, "1", &format!("ls {}", pool.join(name).display()));
    a.vanish();
    // And the kernel keeps it.
    eventually("b decides", || list("TV", 1002) && list("acl", 4711));
    a.mount();
    eventually("a is there", || pool.is_online("a"));
    assert!(!list("TV", 1002) && !list("acl", 4711));
    assert_eq!(look(&pool.join("TV")), (0, 0, 0o700));
    assert_eq!(look(&a.join("TV")), (1000, 1000, 0o700));
    a.vanish();
    eventually("b decides alone", || list("TV", 1002) && list("acl", 4711));
    assert_eq!(look(&b.join("TV")), (1001, 1001, 0o755));
}

#[test]
fn a_fresh_disk_closes_no_pool_and_gets_what_is_shown_with_its_first_entry() {
    let (a, b, builder) = two_disks();
    set_look(&a.path(), (0, 0, 0o2755));
    fs::write(a.join("file"), "").unwrap();
    set_look(&b.path(), (1000, 1000, 0o700));
    let mut pool = builder.mount();
    assert_eq!((look(&pool.mount_point()), look(&b.path())), ((0, 0, 0o2755), (1000, 1000, 0o700)));
    assert!(!pool.status().warnings.iter().any(|warning| warning.contains("repair --equalise")));
    pool.remount();
    fs::write(pool.join("on-a"), "").unwrap();
    assert_eq!(look(&b.path()), (1000, 1000, 0o700));
    fs::write(pool.join("new.b"), "").unwrap();
    assert!(b.join("new.b").exists());
    assert_eq!((look(&pool.mount_point()), look(&b.path())), ((0, 0, 0o2755), (0, 0, 0o2755)));
}

#[test]
fn a_change_that_a_kill_interrupted_is_finished_at_the_next_look() {
    let (a, b, builder) = two_disks();
    let mut pool = builder.mount();
    fs::create_dir(pool.join("dir")).unwrap();
    fs::write(pool.join("dir/one"), "").unwrap();
    fs::write(pool.join("dir/two.b"), "").unwrap();
    copy(&a, "old", (0, 0, 0o755));
    copy(&b, "old", (0, 0, 0o755));
    pool.stop();
    // To 1000:1001 0705, of no named copies, without ACLs.
    let mut change = vec![2];
    for number in [0o705, 1000, 1001, 0, u32::MAX, u32::MAX] {
        change.extend_from_slice(&u32::to_le_bytes(number));
    }
    for name in ["dir", "old"] {
        for disk in [&a, &b] {
            rustix::fs::setxattr(disk.join(name), MARK, &change, XattrFlags::empty()).unwrap();
        }
        set_look(&a.join(name), (1000, 1001, 0o705));
    }
    pool.start();
    for name in ["dir", "old"] {
        assert_eq!(look(&pool.join(name)), (1000, 1001, 0o705));
        for disk in [&a, &b] {
            assert_eq!(look(&disk.join(name)), (1000, 1001, 0o705));
            assert!(rustix::fs::getxattr(disk.join(name), MARK, &mut [0; 64]).is_err());
        }
    }
}

/// The mark of a change under way: to 1000:1001 0705, without ACLs, of this directory on these disks.
fn mark_of_a_change(disks: [&Disk; 2], name: &str) -> Vec<u8> {
    let mut change = vec![2];
    for number in [0o705, 1000, 1001, 2] {
        change.extend_from_slice(&u32::to_le_bytes(number));
    }
    for disk in disks {
        let marker = fs::read(disk.join(".umbrella/branch.json")).unwrap();
        let marker: serde_json::Value = serde_json::from_slice(&marker).unwrap();
        let digits = marker["uuid"].as_str().unwrap().to_owned();
        let digit = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
        change.extend((0..digits.len()).step_by(2).map(digit));
        change.extend_from_slice(&fs::metadata(disk.join(name)).unwrap().ino().to_le_bytes());
    }
    change.extend([u32::MAX; 2].map(u32::to_le_bytes).as_flattened());
    change
}

#[test]
fn a_change_that_a_kill_interrupted_undoes_no_later_one() {
    let (a, b, builder) = two_disks();
    copy(&a, "dir", (0, 0, 0o755));
    copy(&b, "dir", (0, 0, 0o755));
    let mut pool = builder.mount();
    assert_eq!(look(&pool.join("dir")), (0, 0, 0o755));
    pool.stop();
    let change = mark_of_a_change([&a, &b], "dir");
    for disk in [&a, &b] {
        rustix::fs::setxattr(disk.join("dir"), MARK, &change, XattrFlags::empty()).unwrap();
    }
    a.vanish();
    pool.start();
    set_look(&pool.join("dir"), (1002, 1002, 0o700));
    a.mount();
    eventually("a is back", || pool.is_online("a"));
    for at in [&pool.mount_point(), &a.path(), &b.path()] {
        assert_eq!(look(&at.join("dir")), (1002, 1002, 0o700), "{}", at.display());
    }
    assert!(rustix::fs::getxattr(a.join("dir"), MARK, &mut [0; 64]).is_err());
}

#[test]
fn a_change_that_a_branch_missed_is_carried_over_after_another_mount_and_another_change() {
    let (a, b, builder) = two_disks();
    // So that the copies have different inode numbers.
    copy(&b, "another", (0, 0, 0o755));
    copy(&a, "dir", (0, 0, 0o755));
    copy(&b, "dir", (0, 0, 0o755));
    let mut pool = builder.mount();
    assert_eq!(look(&pool.join("dir")), (0, 0, 0o755));
    a.vanish();
    eventually("a is away", || !pool.is_online("a"));
    set_look(&pool.join("dir"), (1001, 1001, 0o750));
    pool.remount();
    set_look(&pool.join("dir"), (1001, 1001, 0o700));
    a.mount();
    eventually("a is back", || pool.is_online("a"));
    assert_eq!((look(&pool.join("dir")), look(&a.join("dir"))), ((1001, 1001, 0o700), (1001, 1001, 0o700)));
}

#[test]
fn a_mark_that_a_user_of_the_disk_may_set_changes_nothing() {
    let (a, b, builder) = two_disks();
    copy(&a, "dir", (1000, 1000, 0o700));
    copy(&b, "dir", (1001, 1001, 0o777));
    rustix::fs::setxattr(a.join("dir"), "user.umbrella.behind", b"1", XattrFlags::empty()).unwrap();
    let pool = builder.mount();
    assert_eq!(look(&pool.join("dir")), (0, 0, 0o700));
    assert_eq!((look(&a.join("dir")), look(&b.join("dir"))), ((1000, 1000, 0o700), (1001, 1001, 0o777)));
}

#[test]
fn what_others_made_and_users_changed_while_a_branch_was_away_is_carried_over() {
    let (a, b, builder) = two_disks();
    copy(&a, "met", (1000, 100, 0o755));
    copy(&b, "met", (1000, 100, 0o755));
    copy(&a, "new", (1000, 100, 0o700));
    let pool = builder.default(&["a", "any"]).mount();
    assert_eq!(look(&pool.join("met")), (1000, 100, 0o755));
    a.vanish();
    eventually("a is away", || !pool.is_online("a"));
    // One of that name is on a, but it was never part of this one.
    fs::create_dir(pool.join("new")).unwrap();
    for name in ["met", "new"] {
        set_look(&pool.join(name), (1001, 100, 0o777));
    }
    a.mount();
    eventually("a is back", || pool.is_online("a"));
    assert_eq!((look(&pool.join("met")), look(&a.join("met"))), ((1001, 100, 0o777), (1001, 100, 0o777)));
    assert_eq!((look(&pool.join("new")), look(&a.join("new"))), ((0, 100, 0o700), (1000, 100, 0o700)));
}

#[test]
fn repair_lists_directories_whose_copies_differ_and_makes_them_equal() {
    let (a, b, builder) = two_disks();
    copy(&a, "TV", (1000, 1000, 0o2775));
    copy(&b, "TV", (0, 0, 0o2775));
    copy(&a, "TV/below", (1000, 100, 0o750));
    copy(&b, "TV/below", (1000, 100, 0o705));
    copy(&a, "same", (1000, 100, 0o755));
    copy(&b, "same", (1000, 100, 0o755));
    copy(&a, "films", (1000, 100, 0o755));
    copy(&b, "films", (1001, 100, 0o750));
    setfacl(&["-m", "u:4711:rwx"], &b.join("films"));
    let names = ["TV", "TV/below", "same", "films"];
    let before = on_disk([&a, &b], &names);
    let pool = builder.mount();
    let root = pool.mount_point();
    let said = pool.say(["repair".as_ref(), "--equalise".as_ref(), root.as_os_str(), "--dry-run".as_ref()]);
    assert!(said.contains("/TV  a 2775 1000:1000, b 2775 0:0 -> 0755 0:0"), "{said}");
    assert!(said.ends_with("5 directories looked at, 3 with copies that differ\n"), "{said}");
    assert_eq!(on_disk([&a, &b], &names), before);

    let films = pool.join("films");
    let like = ["repair".as_ref(), "--equalise".as_ref(), films.as_os_str(), "--like".as_ref(), "b".as_ref()];
    let totals = pool.json(like);
    assert_eq!(totals[0]["path"], "/films");
    assert_eq!((&totals[0]["outcome"], &totals[1]["outcome"]), (&"differs".into(), &"equalised".into()));
    assert!(totals[0]["to"].get("branch").is_none(), "{totals:?}");
    assert_eq!((&totals[0]["copies"][0]["mode"], &totals[0]["to"]["mode"]), (&"0755".into(), &"0770".into()));
    assert_eq!((&totals[2]["directories_equalised"], &totals[2]["directories_failed"]), (&1.into(), &0.into()));
    for at in [&pool.mount_point(), &a.path(), &b.path()] {
        assert_eq!(entry(&at.join("films"), Times::Ignored).xattrs, entry(&b.join("films"), Times::Ignored).xattrs);
        assert_eq!(look(&at.join("films")), look(&b.join("films")));
    }
    assert_eq!(look(&b.join("films")).0, 1001);

    let said = pool.say(["repair".as_ref(), "--equalise".as_ref(), root.as_os_str()]);
    assert!(said.ends_with("2 with copies that differ, 2 made equal\n"), "{said}");
    for at in [&pool.mount_point(), &a.path(), &b.path()] {
        assert_eq!((look(&at.join("TV")), look(&at.join("TV/below"))), ((0, 0, 0o755), (1000, 100, 0o700)));
        assert_eq!(look(&at.join("same")), (1000, 100, 0o755));
    }
    assert!(!pool.status().warnings.iter().any(|warning| warning.contains("repair --equalise")));
    let refused =
        pool.umbrella(["repair".as_ref(), "--equalise".as_ref(), root.as_os_str(), "--like".as_ref(), "x".as_ref()]);
    assert!(!refused.status.success());
    fs::write(pool.join("file"), "x").unwrap();
    let file = pool.join("file").display().to_string();
    for (path, told) in [("a", "\"a\" is a branch, not a path"), (&file, "/file is not a directory")] {
        let refused = pool.umbrella(["repair", "--equalise", path]);
        assert!(!refused.status.success() && text(&refused).contains(told), "{}", text(&refused));
    }
}

#[test]
fn repair_says_which_directories_the_branch_to_be_like_does_not_have() {
    let (a, b, builder) = two_disks();
    let c = Disk::ext4(32 * MIB);
    copy(&a, "TV", (1000, 1000, 0o755));
    copy(&b, "TV", (1001, 1000, 0o755));
    let pool = builder.branch("c", c.path()).mount();
    let tree = pool.join("TV");
    let said = pool.say(["repair".as_ref(), "--equalise".as_ref(), tree.as_os_str(), "--like".as_ref(), "c".as_ref()]);
    assert!(said.contains("1 that differ and are not on the branch of --like"), "{said}");
    assert_eq!(look(&a.join("TV")), (1000, 1000, 0o755));
}

#[test]
fn what_is_made_while_copies_become_equal_has_the_mode_that_was_asked_for() {
    let (a, b, builder) = two_disks();
    copy(&a, "TV", (0, 0, 0o2775));
    copy(&b, "TV", (0, 0, 0o755));
    let pool = builder.mount();
    for round in 0..20 {
        set_look(&a.join("TV"), (0, 0, 0o2775));
        set_look(&b.join("TV"), (0, 0, 0o755));
        // The next look finds that they differ.
        let _names = fs::read_dir(pool.join("TV")).unwrap().count();
        let shown = look(&pool.join("TV"));
        assert_eq!(shown.2, 0o755, "round {round}");
        let tree = pool.join("TV");
        let equal = std::thread::spawn(move || set_look(&tree, (0, 0, 0o755)));
        for number in 0..30 {
            let file = pool.join("TV").join(format!("{round}-{number}"));
            fs::write(&file, "").unwrap();
            fs::create_dir(file.with_extension("d")).unwrap();
            assert_eq!(look(&file).2 & 0o44, 0o44, "round {round}, file {number}");
            assert_eq!(look(&file.with_extension("d")).2 & 0o55, 0o55, "round {round}, directory {number}");
        }
        equal.join().unwrap();
    }
}

#[test]
fn a_change_carried_over_to_xfs_leaves_the_acl_there() {
    let (a, b) = (Disk::ext4(32 * MIB), Disk::xfs(300 * MIB));
    let pool = Pool::builder().branch("a", a.path()).branch_with("b", b.path(), "optional = true");
    copy(&a, "dir", (0, 0, 0o777));
    copy(&b, "dir", (0, 0, 0o777));
    let pool = pool.default(&["a"]).keys(KEYS).mount();
    let dir = pool.join("dir");
    setfacl(&["-m", "u:1000:---,d:u:1000:---"], &dir);
    b.vanish();
    eventually("b is away", || !pool.is_online("b"));
    chown(&dir, Some(5), Some(5)).unwrap();
    b.mount();
    eventually("b is back", || pool.is_online("b"));
    assert_eq!((look(&dir).0, look(&b.join("dir")).0), (5, 5));
    for name in [ACL, DEFAULT_ACL] {
        assert!(attribute(&a.join("dir"), name).is_some());
        assert_eq!(attribute(&b.join("dir"), name), attribute(&a.join("dir"), name), "{name}");
    }
    // And back: an ACL that goes while the branch is away goes there too.
    b.vanish();
    eventually("b is away", || !pool.is_online("b"));
    setfacl(&["-b"], &dir);
    b.mount();
    eventually("b is back", || pool.is_online("b"));
    assert_eq!(look(&dir).2, look(&b.join("dir")).2);
    for name in [ACL, DEFAULT_ACL] {
        assert_eq!(attribute(&b.join("dir"), name), None, "{name}");
    }
}

/// Sets attributes until no more fit.
fn fill_attributes(dir: &Path) {
    for bytes in [200, 20, 1] {
        for number in 0.. {
            let name = format!("user.{bytes}-{number}");
            if rustix::fs::setxattr(dir, &name, &vec![b'x'; bytes], XattrFlags::empty()).is_err() {
                break;
            }
        }
    }
}

#[test]
fn a_change_that_cannot_be_noted_for_a_branch_that_is_away_is_refused() {
    let (a, b, builder) = two_disks();
    copy(&a, "dir", (1000, 1000, 0o777));
    copy(&b, "dir", (1000, 1000, 0o777));
    let pool = builder.keys("directories = \"first\"").mount();
    fill_attributes(&pool.join("dir"));
    a.vanish();
    eventually("a is away", || !pool.is_online("a"));
    let refused = fs::set_permissions(pool.join("dir"), fs::Permissions::from_mode(0o700)).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(rustix::io::Errno::NOSPC.raw_os_error()));
    assert_eq!(look(&pool.join("dir")).2, 0o777, "nothing was changed");
}

#[test]
fn an_acl_that_one_copy_has_no_room_for_changes_no_copy() {
    for rule in ["safe", "first"] {
        let (a, b, builder) = two_disks();
        copy(&a, "dir", (0, 0, 0o777));
        copy(&b, "dir", (0, 0, 0o755));
        let pool = builder.keys(&format!("directories = \"{rule}\"")).mount();
        fill_attributes(&b.join("dir"));
        let shown = look(&pool.join("dir"));
        let before = on_disk([&a, &b], &["dir"]);
        let dir = pool.join("dir");
        let refused =
            Command::new("setfacl").args(["-m", "u:1000:rwx,u:1001:rwx,u:1002:rx"]).arg(&dir).output().unwrap();
        assert!(!refused.status.success(), "{rule}");
        assert_eq!(look(&dir), shown);
        assert_eq!(attribute(&dir, ACL), None, "{rule}");
        assert_eq!(on_disk([&a, &b], &["dir"]), before, "{rule}");
    }
}
