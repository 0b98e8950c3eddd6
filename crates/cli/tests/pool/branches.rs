//! Branches that are added, removed and drained on a live mount; rules that are reloaded; directories that are equal
//! everywhere; changes behind the mount's back.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, XattrFlags};

use crate::support::disk::Disk;
use crate::support::pool::{Pool, text};
use crate::support::tree::{Times, entry};
use crate::support::{MIB, assert_errno, bytes, eventually, run};
use crate::{LARGE_FILES, disks, names, pool};

const B_BY_NAME: &str = "[[rule]]\nname = \"by name\"\nmatch = [{ glob = \"/**.b\", to = [\"b\", \"default\", \"any\"], offline = \"pass\" }]\n";

#[test]
fn a_branch_is_added_to_a_live_mount() {
    let pool = pool(["a"], "");
    let new = Disk::tmpfs(16 * MIB);
    fs::write(new.join("already there"), "seen at once").unwrap();
    let before = rustix::fs::statvfs(pool.mount_point()).unwrap();
    pool.say(["branch".as_ref(), "add".as_ref(), "b".as_ref(), new.path().as_os_str()]);
    assert_eq!(fs::read(pool.join("already there")).unwrap(), b"seen at once");
    let after = rustix::fs::statvfs(pool.mount_point()).unwrap();
    assert_eq!(after.f_blocks * after.f_frsize - before.f_blocks * before.f_frsize, 16 * MIB, "statfs counts it");
    let listed: Vec<_> = pool.status().branches.into_iter().map(|branch| branch.name).collect();
    assert_eq!(listed, ["a", "b"]);
    let for_people = pool.say(["branch", "list"]);
    assert!(for_people.contains('b') && for_people.contains(&*new.path().to_string_lossy()), "{for_people}");
    let again = pool.umbrella(["branch".as_ref(), "add".as_ref(), "b".as_ref(), new.path().as_os_str()]);
    assert!(!again.status.success(), "a second branch of the same name is refused");
    let inside = pool.on("a", "");
    let overlapping = pool.umbrella(["branch".as_ref(), "add".as_ref(), "c".as_ref(), inside.as_os_str()]);
    assert!(!overlapping.status.success(), "a directory that is a branch already is refused");
}

#[test]
fn a_branch_that_the_configuration_would_refuse_is_refused_by_the_daemon() {
    let pool = pool(["a"], "");
    let new = Disk::tmpfs(16 * MIB);
    let add = |name: &str, path: &std::path::Path| {
        let output = pool.umbrella(["branch".as_ref(), "add".as_ref(), "--".as_ref(), name.as_ref(), path.as_os_str()]);
        assert!(!output.status.success(), "{name:?} at {} is taken in", path.display());
        text(&output)
    };
    for name in ["", " ", "b ", "b/c", "b\nc", &"b".repeat(65)] {
        let said = add(name, &new.path());
        assert!(said.contains("not a valid name for a branch"), "{name:?}: {said}");
    }
    let link = pool.dir().join("link");
    std::os::unix::fs::symlink(pool.on("a", ""), &link).unwrap();
    fs::create_dir(pool.join("dir")).unwrap();
    let hidden = pool.dir().join(".umbrella/tmp");
    fs::create_dir_all(&hidden).unwrap();
    for path in [&pool.on("a", "dir"), &link, &pool.join("dir"), pool.on("a", "").parent().unwrap(), &hidden] {
        let said = add("b", path);
        assert!(said.contains("lies inside the other"), "{}: {said}", path.display());
    }
    assert_eq!(pool.status().branches.len(), 1);
    assert_eq!(fs::read_dir(new.path()).unwrap().count(), 0, "nothing is written to a branch that is refused");
}

#[test]
fn changes_of_a_live_pool_are_told_as_json() {
    let mut pool = pool(["a"], "");
    let new = Disk::tmpfs(16 * MIB);
    let added = pool.json(["branch".as_ref(), "add".as_ref(), "b".as_ref(), new.path().as_os_str()]).remove(0);
    assert_eq!((added["branch"].as_str(), added["added"].as_bool()), (Some("b"), Some(true)));
    assert!(added["configuration"].as_str().unwrap().starts_with("[[branch]]\nname = \"b\"\n"), "{added}");
    let removed = pool.json(["branch", "remove", "b"]).remove(0);
    assert_eq!((removed["branch"].as_str(), removed["removed"].as_bool()), (Some("b"), Some(true)));
    pool.pool.write_rules(B_BY_NAME.replace("\"b\"", "\"a\"").as_str());
    let mount = pool.mount_point();
    let config = pool.config_path();
    let reloaded = pool.json(["rules".as_ref(), "reload".as_ref(), config.as_os_str()]).remove(0);
    assert_eq!((reloaded["mount"].as_str(), reloaded["rules"].as_u64()), (mount.to_str(), Some(1)));
    let unmounted = pool.json(["unmount"]).remove(0);
    assert_eq!((unmounted["mount"].as_str(), unmounted["outcome"].as_str()), (mount.to_str(), Some("unmounted")));
    assert_eq!(pool.pool.wait_for_end(), Some(true));
}

#[test]
fn a_branch_is_removed_only_by_force_while_it_holds_files() {
    let pool = pool(["a", "b"], B_BY_NAME);
    fs::write(pool.join("on-a"), "a").unwrap();
    fs::write(pool.join("on.b"), "b").unwrap();
    let refused = pool.umbrella(["branch", "remove", "b"]);
    assert!(!refused.status.success());
    assert!(text(&refused).contains('b'), "{}", text(&refused));
    assert_eq!(fs::read(pool.join("on.b")).unwrap(), b"b", "a refused removal changes nothing");
    pool.say(["branch", "remove", "b", "--force"]);
    assert_errno(fs::read(pool.join("on.b")), libc::ENOENT);
    assert_eq!(names(&pool.mount_point()), ["on-a"]);
    assert_eq!(fs::read(pool.on("b", "on.b")).unwrap(), b"b", "its files stay on the branch");
    fs::write(pool.join("new.b"), "x").expect("the rule whose branch is gone is passed over");
    assert_eq!(pool.found_on("new.b"), ["a"]);
    assert!(!pool.umbrella(["branch", "remove", "none"]).status.success());
}

#[test]
fn a_branch_that_is_removed_takes_no_directory_with_it() {
    let rules = "[[rule]]\nname = \"n\"\nmatch = [{ glob = \"/only-here/**\", to = [\"c\"] }]\n";
    let pool = pool(["a", "b", "c"], rules);
    let only = pool.disks[1].join("only-here/deep");
    fs::create_dir_all(&only).unwrap();
    fs::set_permissions(&only, fs::Permissions::from_mode(0o1711)).unwrap();
    pool.say(["branch", "remove", "b"]);
    assert_eq!(names(&pool.mount_point()), ["only-here"]);
    let meta = fs::metadata(pool.join("only-here/deep")).expect("an empty directory stays");
    assert_eq!(meta.permissions().mode() & 0o7777, 0o1711);
    assert_eq!(pool.explain("only-here/deep").on, ["c"], "where a new directory would be made");
}

#[test]
fn a_branch_that_cannot_be_removed_takes_new_files_as_before() {
    let pool = pool(["a", "b"], B_BY_NAME);
    fs::write(pool.join("old.b"), "x").unwrap();
    assert!(!pool.umbrella(["branch", "remove", "b"]).status.success());
    assert!(!pool.branch_status("b").draining);
    fs::write(pool.join("new.b"), "x").unwrap();
    assert_eq!(pool.found_on("new.b"), ["b"]);
    pool.say(["branch", "drain", "b"]);
    fs::write(pool.disks[1].join("late"), "past the mount").unwrap();
    assert!(!pool.umbrella(["branch", "remove", "b"]).status.success());
    assert!(pool.branch_status("b").draining, "a drained branch stays so");
}

#[test]
fn a_rule_that_names_no_other_branch_is_named_by_drain_and_remove() {
    let pool = pool(["a", "b"], "[[rule]]\nname = \"new\"\nmatch = [{ glob = \"/**.b\", to = [\"b\"] }]\n");
    for command in ["drain", "remove"] {
        let said = pool.say(["branch", command, "b"]);
        assert!(said.contains("rule \"new: /**.b\" names no other branch: its new files fail"), "{command}: {said}");
    }
}

#[test]
fn rules_mean_the_branch_again_that_was_removed_and_added() {
    let pool = pool(["a", "b"], B_BY_NAME);
    let said = pool.say(["branch", "remove", "b"]);
    assert!(said.contains("still named by \"by name: /**.b\"") && said.contains("umbrella rules reload"), "{said}");
    fs::write(pool.join("between.b"), "x").unwrap();
    let rules = pool.status().rules;
    let dead = rules.iter().find(|rule| rule.name == "by name: /**.b").unwrap();
    assert_eq!(dead.to, ["b (removed)", "default", "any"]);
    assert!(
        dead.inactive.as_ref().is_some_and(|why| why.contains("\"b\", the first of its list, was removed")),
        "{dead:?}"
    );
    let explained = pool.explain("between.b").outcome;
    assert!(explained.contains("rules still name \"b\", which was removed"), "{explained}");

    pool.say(["branch".as_ref(), "add".as_ref(), "b".as_ref(), pool.on("b", "").as_os_str()]);
    let rules = pool.status().rules;
    let revived = rules.iter().find(|rule| rule.name == "by name: /**.b").unwrap();
    assert_eq!((revived.to.as_slice(), &revived.inactive), (&["b", "default", "any"].map(str::to_owned)[..], &None));
    fs::write(pool.join("after.b"), "x").unwrap();
    assert_eq!(pool.found_on("after.b"), ["b"]);
    pool.enforce();
    pool.expect_on("b", "between.b");
}

#[test]
fn a_drained_branch_gives_its_files_away_and_takes_none() {
    let pool = pool(["a", "b"], B_BY_NAME);
    fs::create_dir(pool.join("dir")).unwrap();
    for i in 0..30 {
        fs::write(pool.join(format!("dir/{i}.b")), bytes(i, 5_000)).unwrap();
    }
    fs::hard_link(pool.join("dir/0.b"), pool.join("dir/link.b")).unwrap();
    std::os::unix::fs::symlink("0.b", pool.join("dir/symlink.b")).unwrap();
    assert_eq!(pool.found_on("dir/7.b"), ["b"]);
    pool.say(["branch", "drain", "b"]);
    pool.settle();
    assert_eq!(pool.disks[1].files().len(), 0, "nothing is left: {:?}", pool.disks[1].files());
    for i in 0..30 {
        assert!(fs::read(pool.join(format!("dir/{i}.b"))).unwrap() == bytes(i, 5_000));
    }
    assert_eq!(fs::metadata(pool.join("dir/link.b")).unwrap().nlink(), 2);
    fs::write(pool.join("late.b"), "x").unwrap();
    assert_eq!(pool.found_on("late.b"), ["a"], "nothing new is placed there");
    assert!(pool.branch_status("b").draining);
    assert_eq!(pool.enforce().files_moved, 0, "the enforcer brings nothing back");
    pool.say(["branch", "remove", "b"]);
    assert_eq!(names(&pool.join("dir")).len(), 32, "an empty branch goes without force");
}

#[test]
fn a_sparse_file_leaves_a_branch_when_what_it_occupies_has_room_elsewhere() {
    let pool = pool(["a", "b"], B_BY_NAME);
    let mut file = fs::File::create(pool.join("sparse.b")).unwrap();
    file.set_len(1 << 30).unwrap();
    std::io::Seek::seek(&mut file, std::io::SeekFrom::End(0)).unwrap();
    std::io::Write::write_all(&mut file, b"the end").unwrap();
    drop(file);
    pool.settle();
    assert_eq!(pool.found_on("sparse.b"), ["b"]);
    assert!(pool.disks[0].free() < 1 << 30, "as a whole it would not fit");
    pool.say(["branch", "drain", "b"]);
    pool.expect_on("a", "sparse.b");
    let meta = fs::metadata(pool.join("sparse.b")).unwrap();
    assert_eq!(meta.len(), (1 << 30) + 7);
    assert!(meta.blocks() * 512 < MIB, "its hole stays a hole");
}

#[test]
fn a_drain_names_what_lies_on_two_branches() {
    let (disks, builder) = disks(["a", "b"]);
    fs::create_dir_all(disks[0].join("dir/clash")).unwrap();
    fs::write(disks[0].join("dir/twice"), "on a").unwrap();
    fs::create_dir(disks[1].join("dir")).unwrap();
    fs::write(disks[1].join("dir/twice"), "on b").unwrap();
    fs::write(disks[1].join("dir/clash"), "a file").unwrap();
    fs::write(disks[1].join("dir/once"), "x").unwrap();
    let pool = builder.mount();
    let drain = || pool.umbrella(["branch", "drain", "b"]);
    let said = text(&drain());
    assert!(
        said.contains("1 name is on another branch too") && said.contains("1 name is a directory on one"),
        "{said}"
    );
    assert!(!said.contains(": ,") && !said.contains("): :"), "{said}");
    for name in ["dir/twice", "dir/clash"] {
        assert!(said.contains(&format!("{:?}", disks[1].join(name))), "{name}: {said}");
    }
    assert!(said.contains(&format!("{:?}", disks[0].join("dir/twice"))), "{said}");
    assert_eq!(pool.found_on("dir/once"), ["a"], "the rest has moved");
    assert!(!said.contains(" 0 ") && said.contains("umbrella branch drain b --stop"), "{said}");
    assert_eq!(fs::read(disks[1].join("dir/twice")).unwrap(), b"on b", "nothing is deleted");
    fs::remove_file(disks[1].join("dir/twice")).unwrap();
    fs::remove_file(disks[1].join("dir/clash")).unwrap();
    let after = drain();
    assert!(after.status.success() && text(&after).contains("umbrella branch remove b"), "{}", text(&after));
}

#[test]
fn a_drain_is_remembered_until_it_is_stopped() {
    let mut pool = pool(["a", "b"], B_BY_NAME);
    pool.say(["branch", "drain", "b"]);
    pool.pool.kill_9();
    pool.pool.start();
    assert!(pool.branch_status("b").draining);
    fs::write(pool.join("one.b"), "x").unwrap();
    assert_eq!(pool.found_on("one.b"), ["a"], "after a restart nothing new is placed there either");
    pool.say(["branch", "drain", "b", "--stop"]);
    fs::write(pool.join("two.b"), "x").unwrap();
    assert_eq!(pool.found_on("two.b"), ["b"]);
    pool.pool.remount();
    assert!(!pool.branch_status("b").draining, "the stop is remembered too");

    pool.say(["branch", "drain", "b"]);
    pool.say(["branch", "remove", "b"]);
    pool.say(["branch".as_ref(), "add".as_ref(), "b".as_ref(), pool.on("b", "").as_os_str()]);
    assert!(!pool.branch_status("b").draining, "a branch that is added anew is not drained");
}

#[test]
fn where_every_branch_is_drained_there_is_no_room() {
    let (_disks, builder) = disks(["a", "b"]);
    let pool = builder.default(&["a", "any"]).mount();
    for name in ["a", "b"] {
        pool.say(["branch", "drain", name]);
    }
    assert_errno(fs::write(pool.join("file"), "x"), libc::ENOSPC);
    assert_errno(fs::create_dir(pool.join("dir")), libc::ENOSPC);
    pool.say(["branch", "drain", "b", "--stop"]);
    fs::write(pool.join("file"), "x").unwrap();
    assert_eq!(pool.found_on("file"), ["b"]);
}

#[test]
fn the_name_of_the_hidden_folder_is_not_explained_as_a_new_file() {
    let pool = pool(["a", "b"], "");
    for path in ["/.umbrella", "/.umbrella/tmp"] {
        let said = pool.pool.umbrella(["explain".as_ref(), pool.join(path.trim_start_matches('/')).as_os_str()]);
        assert!(!said.status.success() && text(&said).contains("reserved for Umbrella's own files"), "{}", text(&said));
    }
}

#[test]
fn rules_are_reloaded_from_the_file() {
    let mut pool = pool(["small", "large"], "");
    fs::write(pool.join("file"), bytes(1, MIB)).unwrap();
    pool.expect_stays_on("small", "file");
    pool.pool.write_rules(LARGE_FILES);
    let config = pool.config_path();
    pool.say(["rules".as_ref(), "reload".as_ref(), config.as_os_str()]);
    assert_eq!(pool.explain("file").rule, "large files");
    pool.enforce();
    pool.expect_on("large", "file");

    pool.pool.write_rules("[[rule]]\nname = \"bad\"\nwhen = { size = \"> 1\" }\nto = [\"nowhere\"]\n");
    let refused = pool.umbrella(["rules".as_ref(), "reload".as_ref(), config.as_os_str()]);
    assert!(!refused.status.success() && text(&refused).contains("nowhere"), "{}", text(&refused));
    assert_eq!(pool.explain("file").rule, "large files", "wrong rules change nothing");
}

#[test]
fn a_reload_names_what_else_the_file_says() {
    let mut pool = pool(["a", "b"], B_BY_NAME);
    let config = pool.config_path();
    let reload: [&std::ffi::OsStr; 3] = ["rules".as_ref(), "reload".as_ref(), config.as_os_str()];
    assert_eq!(pool.json(reload).remove(0)["not_in_force"], serde_json::json!([]), "nothing else is new");
    let new = Disk::tmpfs(16 * MIB);
    let more = format!(
        "[enforce]\nbandwidth = \"1MiB\"\n[[branch]]\nname = \"c\"\npath = {:?}\nmin_free = \"5%\"\n",
        new.path()
    );
    pool.pool.write_rules(&format!("{more}{B_BY_NAME}"));
    let told = pool.json(reload).remove(0);
    assert_eq!(told["not_in_force"], serde_json::json!(["branch \"c\", which is new"]));
    assert_eq!(told["changes"][0]["key"], "enforce.bandwidth");
    let people = pool.say(reload);
    assert!(people.contains("not until the next mount: branch \"c\", which is new"), "{people}");
    assert!(people.contains("`umbrella branch add` takes a new branch in at once"), "{people}");

    let named = B_BY_NAME.replace("[\"b\", ", "[\"c\", ");
    pool.pool.write_rules(&format!("{more}{named}"));
    let refused = text(&pool.umbrella(reload));
    assert!(refused.contains("not in the mounted pool yet: \"c\"") && refused.contains("branch add"), "{refused}");
    pool.pool.write_rules(&format!("{more}{B_BY_NAME}"));

    pool.say(["branch".as_ref(), "add".as_ref(), "c".as_ref(), new.path().as_os_str()]);
    let told = pool.json(reload).remove(0);
    assert_eq!(told["not_in_force"], serde_json::json!([]));
    assert_eq!(told["changes"][0]["key"], "min_free of branch \"c\"");
}

/// Mode, owner, times, extended attributes and ACLs of a directory, on every branch that has it.
fn copies(pool: &Pool, name: &str) -> Vec<crate::support::tree::Entry> {
    pool.found_on(name).iter().map(|branch| entry(&pool.on(branch, name), Times::Kept)).collect()
}

#[test]
fn a_directory_is_the_same_on_every_branch() {
    let disks = [Disk::ext4(32 * MIB), Disk::ext4(32 * MIB)];
    let pool = Pool::builder()
        .branches([("a", disks[0].path()), ("b", disks[1].path())])
        .default(&["a"])
        .rules(B_BY_NAME)
        .mount();
    let dir = pool.join("dir");
    fs::create_dir(&dir).unwrap();
    fs::write(pool.join("dir/one"), "").unwrap();
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o2751)).unwrap();
    rustix::fs::setxattr(&dir, "user.before", b"x", XattrFlags::empty()).unwrap();
    run("setfacl", ["-m".as_ref(), "u:4711:rwx,d:u:4711:rwx".as_ref(), dir.as_os_str()]);
    fs::write(pool.join("dir/two.b"), "").unwrap();
    let check = |what: &str| {
        let copies = copies(&pool, "dir");
        assert_eq!(copies.len(), 2, "{what}");
        let seen = entry(&dir, Times::Kept);
        // A new name changes the time on one branch; the mount shows the newest.
        assert_eq!(Some(seen.mtime), copies.iter().map(|copy| copy.mtime).max(), "{what}");
        for copy in copies {
            assert_eq!(crate::support::tree::Entry { mtime: seen.mtime, ..copy }, seen, "{what}");
        }
        seen
    };
    let seen = check("made for its second file");
    assert!(
        seen.xattrs.contains_key(&b"user.before"[..]) && seen.xattrs.contains_key(&b"system.posix_acl_default"[..])
    );

    fs::set_permissions(&dir, fs::Permissions::from_mode(0o1700)).unwrap();
    check("chmod");
    chown(&dir, Some(4711), Some(4712)).unwrap();
    check("chown");
    rustix::fs::setxattr(&dir, "user.after", b"y", XattrFlags::empty()).unwrap();
    rustix::fs::removexattr(&dir, "user.before").unwrap();
    check("setxattr and removexattr");
    run("setfacl", ["-k".as_ref(), dir.as_os_str()]);
    check("a default ACL removed");
    let times = Timestamps {
        last_access: Timespec { tv_sec: 1, tv_nsec: 2 },
        last_modification: Timespec { tv_sec: 1_234_567_890, tv_nsec: 123_456_789 },
    };
    rustix::fs::utimensat(CWD, &dir, &times, AtFlags::empty()).unwrap();
    assert_eq!(check("utimensat").mtime, (1_234_567_890, 123_456_789));
    assert!(copies(&pool, "dir").iter().all(|copy| copy.mtime == (1_234_567_890, 123_456_789)), "set on both");
    let before = fs::metadata(&dir).unwrap().mtime();
    fs::write(pool.join("dir/three.b"), "").unwrap();
    assert!(fs::metadata(&dir).unwrap().mtime() > before, "a new file changes the time of its directory");
    let now = fs::metadata(&dir).unwrap();
    fs::remove_file(pool.join("dir/one")).unwrap();
    let later = fs::metadata(&dir).unwrap();
    assert!((later.mtime(), later.mtime_nsec()) >= (now.mtime(), now.mtime_nsec()), "and time does not run backwards");
}

#[test]
fn an_overflow_makes_the_directories_it_needs_as_they_are() {
    let (tiny, large) = (Disk::tmpfs(MIB), Disk::tmpfs(32 * MIB));
    let pool = Pool::builder().branch("tiny", tiny.path()).branch("large", large.path()).mount();
    fs::create_dir_all(pool.join("outer/inner")).unwrap();
    chown(pool.join("outer"), Some(1), Some(2)).unwrap();
    fs::set_permissions(pool.join("outer"), fs::Permissions::from_mode(0o711)).unwrap();
    fs::set_permissions(pool.join("outer/inner"), fs::Permissions::from_mode(0o1700)).unwrap();
    fs::write(pool.join("outer/inner/file"), bytes(1, 4 * MIB)).unwrap();
    pool.expect_on("large", "outer/inner/file");
    for name in ["outer", "outer/inner"] {
        let copies = copies(&pool, name);
        assert_eq!(copies.len(), 2);
        assert_eq!(
            (copies[0].mode, copies[0].uid, copies[0].gid),
            (copies[1].mode, copies[1].uid, copies[1].gid),
            "{name}"
        );
    }
}

#[test]
fn a_read_only_branch_is_read_and_never_changed() {
    let (one, archive) = (Disk::tmpfs(16 * MIB), Disk::tmpfs(16 * MIB));
    fs::create_dir(archive.join("dir")).unwrap();
    fs::write(archive.join("dir/old.b"), "old").unwrap();
    let before = crate::support::tree::snapshot(&archive.path(), Times::Kept);
    let pool = Pool::builder()
        .branch("a", one.path())
        .branch_with("b", archive.path(), "read_only = true")
        .default(&["a"])
        .rules(B_BY_NAME)
        .mount();
    assert_eq!(fs::read(pool.join("dir/old.b")).unwrap(), b"old");
    assert_errno(crate::append(&pool.join("dir/old.b"), b"x"), libc::EROFS);
    assert_errno(fs::remove_file(pool.join("dir/old.b")), libc::EROFS);
    assert_errno(fs::set_permissions(pool.join("dir/old.b"), fs::Permissions::from_mode(0o600)), libc::EROFS);
    fs::write(pool.join("dir/new.b"), "new").unwrap();
    assert_eq!(pool.found_on("dir/new.b"), ["a"], "new files go elsewhere");
    pool.enforce();
    assert_eq!(names(&pool.join("dir")), ["new.b", "old.b"]);
    drop(pool);
    let after = crate::support::tree::snapshot(&archive.path(), Times::Kept);
    crate::support::tree::assert_same(&before, &after, "the read-only branch");
}

#[test]
fn changes_behind_the_mount_are_seen_when_nothing_may_be_cached() {
    let (disks, builder) = disks(["a", "b"]);
    let pool = builder.keys("cache_timeout = \"0s\"").mount();
    fs::create_dir(pool.join("dir")).unwrap();
    fs::write(pool.join("dir/file"), "one").unwrap();
    fs::read(pool.join("dir/file")).unwrap();
    assert!(!pool.join("dir/new").exists());

    fs::write(disks[0].join("dir/new"), "from outside").unwrap();
    assert_eq!(fs::read(pool.join("dir/new")).unwrap(), b"from outside", "a new file");
    assert_eq!(names(&pool.join("dir")), ["file", "new"]);
    fs::write(disks[0].join("dir/file"), "longer than before").unwrap();
    assert_eq!(fs::metadata(pool.join("dir/file")).unwrap().len(), 18, "a changed file");
    assert_eq!(fs::read(pool.join("dir/file")).unwrap(), b"longer than before");
    fs::remove_file(disks[0].join("dir/new")).unwrap();
    assert_errno(fs::read(pool.join("dir/new")), libc::ENOENT);
    assert_eq!(names(&pool.join("dir")), ["file"]);
    fs::create_dir(disks[1].join("dir")).unwrap();
    fs::rename(disks[0].join("dir/file"), disks[0].join("dir/renamed")).unwrap();
    fs::copy(disks[0].join("dir/renamed"), disks[1].join("dir/renamed")).unwrap();
    fs::remove_file(disks[0].join("dir/renamed")).unwrap();
    assert_eq!(fs::read(pool.join("dir/renamed")).unwrap(), b"longer than before", "moved to another branch");
    assert_eq!(pool.branch_of("dir/renamed"), "b");
    fs::remove_dir(disks[0].join("dir")).unwrap();
    fs::write(pool.join("dir/made"), "x").expect("a directory that vanished from a branch is made again");
}

/// A copy of a directory may have another name than the others, because its branch was away while they were renamed. It
/// is then a directory of its own: removing one must not touch the other.
#[test]
fn copies_of_a_directory_that_have_different_names_are_different_directories() {
    let (disks, builder) = disks(["a", "b"]);
    let pool = builder.rules(B_BY_NAME).mount();
    fs::create_dir(pool.join("before")).unwrap();
    fs::write(pool.join("before/on-a"), "a").unwrap();
    fs::write(pool.join("before/on.b"), "b").unwrap();
    assert_eq!(names(&pool.join("before")), ["on-a", "on.b"]);
    fs::rename(disks[1].join("before"), disks[1].join("after")).unwrap();
    // First by the new name: that is how it gets to be taken for the one that is known.
    assert_eq!(names(&pool.join("after")), ["on.b"]);
    assert_eq!(names(&pool.join("before")), ["on-a"]);
    assert_eq!(fs::read(pool.join("before/on-a")).unwrap(), b"a");
    assert_eq!(fs::read(pool.join("after/on.b")).unwrap(), b"b");
    let number = |name: &str| fs::metadata(pool.join(name)).unwrap().ino();
    assert_ne!(number("before"), number("after"));
    fs::remove_dir_all(pool.join("after")).unwrap();
    assert_eq!(fs::read(disks[0].join("before/on-a")).unwrap(), b"a", "the other is untouched");
    assert_eq!(names(&pool.join("before")), ["on-a"]);
}

#[test]
fn a_directory_renamed_on_all_its_branches_keeps_its_number() {
    let (disks, builder) = disks(["a", "b"]);
    let pool = builder.rules(B_BY_NAME).mount();
    fs::create_dir(pool.join("before")).unwrap();
    fs::write(pool.join("before/on-a"), "a").unwrap();
    fs::write(pool.join("before/on.b"), "b").unwrap();
    let number = fs::metadata(pool.join("before")).unwrap().ino();
    for disk in &disks {
        fs::rename(disk.join("before"), disk.join("after")).unwrap();
    }
    assert_eq!(names(&pool.join("after")), ["on-a", "on.b"]);
    assert_eq!(fs::metadata(pool.join("after")).unwrap().ino(), number);
    assert_eq!(fs::read(pool.join("after/on.b")).unwrap(), b"b");
}

/// Directories that were on the branches before, as after mergerfs.
#[test]
fn a_directory_that_was_closed_on_one_branch_is_not_opened_by_another() {
    let (disks, builder) = disks(["a", "b"]);
    let perm = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    for (disk, mode) in [(0, 0o700), (1, 0o755)] {
        fs::create_dir(disks[disk].join("private")).unwrap();
        fs::set_permissions(disks[disk].join("private"), fs::Permissions::from_mode(mode)).unwrap();
    }
    let pool = builder.rules("").mount();
    assert_eq!(perm(&pool.join("private")), 0o700);
    assert_eq!(perm(&disks[0].join("private")), 0o700, "it stays closed");
    assert_eq!(perm(&disks[1].join("private")), 0o755, "and no disk is changed");
    assert!(pool.status().warnings.iter().any(|warning| warning.contains("private")), "and it is told");
    fs::set_permissions(pool.join("private"), fs::Permissions::from_mode(0o750)).unwrap();
    assert_eq!([perm(&disks[0].join("private")), perm(&disks[1].join("private"))], [0o750; 2]);
}

#[test]
fn a_directory_keeps_its_set_id_bit_where_all_branches_have_it_and_all_its_copies_are_alike() {
    let (disks, builder) = disks(["a", "b"]);
    let perm = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    for (name, modes) in [("one", [0o2750, 0o755]), ("both", [0o2750, 0o2755])] {
        for (disk, mode) in disks.iter().zip(modes) {
            fs::create_dir(disk.join(name)).unwrap();
            fs::set_permissions(disk.join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
    }
    let pool = builder.rules("").mount();
    for (name, mode) in [("one", 0o750), ("both", 0o2750)] {
        assert_eq!(perm(&pool.join(name)), mode, "{name}");
    }
    for (name, modes) in [("one", [0o2750, 0o755]), ("both", [0o2750, 0o2755])] {
        assert_eq!([perm(&disks[0].join(name)), perm(&disks[1].join(name))], modes, "{name}");
    }
}

#[test]
fn the_newest_of_two_files_of_one_name_is_shown_and_none_is_deleted() {
    let (disks, builder) = disks(["a", "b"]);
    let times = |path: &std::path::Path, tv_sec| {
        let time = Timespec { tv_sec, tv_nsec: 0 };
        let times = Timestamps { last_access: time, last_modification: time };
        rustix::fs::utimensat(CWD, path, &times, AtFlags::empty()).unwrap();
    };
    for (disk, name, content, time) in [
        (0, "newer-on-b", "old", 1_000_000_000),
        (1, "newer-on-b", "new", 1_100_000_000),
        (0, "newer-on-a", "new", 1_100_000_000),
        (1, "newer-on-a", "old", 1_000_000_000),
    ] {
        fs::write(disks[disk].join(name), content).unwrap();
        times(&disks[disk].join(name), time);
    }
    let pool = builder.rules("").mount();
    for name in ["newer-on-a", "newer-on-b"] {
        assert_eq!(fs::read(pool.join(name)).unwrap(), b"new", "{name}");
        assert_eq!(fs::metadata(pool.join(name)).unwrap().mtime(), 1_100_000_000);
        let explanation = pool.explain(name);
        assert_eq!((explanation.on.len(), explanation.duplicates.len()), (1, 1), "{explanation:?}");
    }
    assert_eq!(pool.explain("newer-on-b").on, ["b"]);
    assert_eq!(names(&pool.mount_point()), ["newer-on-a", "newer-on-b"], "each is listed once");
    pool.enforce();
    pool.settle();
    eventually("the status warns of both", || {
        let warnings = pool.status().warnings.join("\n");
        warnings.contains("newer-on-a") && warnings.contains("newer-on-b")
    });
    for name in ["newer-on-a", "newer-on-b"] {
        assert_eq!(pool.found_on(name), ["a", "b"], "no copy of {name} was deleted");
        assert_eq!(fs::read(pool.join(name)).unwrap(), b"new");
        fs::remove_file(pool.on("a", name)).unwrap();
    }
    pool.enforce();
    let warnings = pool.status().warnings.join("\n");
    assert!(!warnings.contains("newer-on"), "there is one of each now: {warnings}");
}

#[test]
fn a_file_that_replaces_one_on_another_branch_is_never_seen_twice() {
    // Where a sync takes its time.
    let (a, b) = (Disk::ext4(64 * MIB), Disk::ext4(64 * MIB));
    let pool = Pool::builder().branch("a", a.path()).branch("b", b.path()).rules(B_BY_NAME).mount();
    let stop = AtomicBool::new(false);
    thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    pool.enforce();
                }
            });
        }
        for number in 0..300 {
            let (from, to) = (pool.join(format!("{number}.a")), pool.join(format!("{number}.b")));
            fs::write(&from, "new").unwrap();
            fs::write(&to, "old").unwrap();
            fs::rename(&from, &to).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(!pool.log().contains("on several branches"), "{}", pool.log());
}

#[test]
fn a_file_and_a_directory_of_one_name_do_not_break_the_pool() {
    let (disks, builder) = disks(["a", "b"]);
    fs::create_dir(disks[0].join("clash")).unwrap();
    fs::write(disks[0].join("clash/inside"), "x").unwrap();
    fs::write(disks[1].join("clash"), "a file").unwrap();
    let pool = builder.mount();
    assert_eq!(names(&pool.mount_point()), ["clash"]);
    let meta = fs::metadata(pool.join("clash")).unwrap();
    assert_eq!(fs::symlink_metadata(pool.join("clash/inside")).is_ok(), meta.is_dir());
    pool.enforce();
    assert_eq!(fs::read(disks[0].join("clash/inside")).unwrap(), b"x");
    assert_eq!(fs::read(disks[1].join("clash")).unwrap(), b"a file");
}

#[test]
fn a_removal_that_cannot_be_noted_is_told_of() {
    let (a, b, state) = (Disk::tmpfs(8 * MIB), Disk::tmpfs(8 * MIB), Disk::tmpfs(MIB));
    let mut pool = Pool::builder().branch("a", a.path()).branch("b", b.path()).prepare();
    fs::remove_dir_all(pool.dir().join("state")).unwrap();
    std::os::unix::fs::symlink(state.path(), pool.dir().join("state")).unwrap();
    pool.start();
    let remove = || pool.umbrella(["branch", "remove", "b", "--pool", pool.mount_point().to_str().unwrap()]);
    let mut ballast = File::create(state.join("ballast")).unwrap();
    while ballast.write_all(&[0; 4096]).is_ok() {}
    drop(ballast);
    let refused = remove();
    assert!(!refused.status.success() && text(&refused).contains("run the command again"), "{}", text(&refused));
    fs::remove_file(state.join("ballast")).unwrap();
    // A test beside this one that starts a program holds copies of this process's descriptors until the program runs.
    crate::support::eventually("the room is free", || state.free() > MIB / 2);
    let again = remove();
    assert!(again.status.success(), "{}", text(&again));
    pool.remount();
    assert!(pool.is_online("b"), "it is in the configuration, as one that is new");
    assert!(!text(&pool.umbrella(["branch", "list"])).contains("draining"));
}
