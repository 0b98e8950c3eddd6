//! Branches that disappear, hang and return.

use std::fs;
use std::io::Write;

use umbrella_fs::control::protocol::Abilities;

use crate::support::disk::{Disk, unmount};
use crate::support::pool::{Pool, text};
use crate::support::{MIB, assert_errno, bytes, eventually};
use crate::{last_read_days_ago, names};

/// Looks often, so that tests need not wait.
const PROBES: &str = "probe_interval = \"200ms\"\nprobe_timeout = \"60s\"\n";
const B_BY_NAME: &str = "[[rule]]\nname = \"by name\"\nmatch = [{ glob = \"/**.b\", to = [\"b\", \"default\", \"any\"], offline = \"pass\" }]\n";

#[derive(Debug)]
struct Two {
    pool: Pool,
    b: Disk,
    a: Disk,
}

impl std::ops::Deref for Two {
    type Target = Pool;

    fn deref(&self) -> &Pool {
        &self.pool
    }
}

fn two(keys: &str) -> Two {
    let (a, b) = (Disk::tmpfs(32 * MIB), Disk::ext4(32 * MIB));
    let pool = Pool::builder()
        .branch("a", a.path())
        .branch_with("b", b.path(), "optional = true")
        .default(&["a"])
        .rules(B_BY_NAME)
        .keys(PROBES)
        .keys(keys)
        .mount();
    fs::write(pool.join("on-a"), "a").unwrap();
    fs::write(pool.join("on.b"), "b").unwrap();
    pool.expect_on("b", "on.b");
    Two { pool, b, a }
}

fn wait_until(pool: &Pool, branch: &str, online: bool) {
    eventually(&format!("branch {branch} is {}", if online { "online" } else { "offline" }), || {
        pool.is_online(branch) == online
    });
}

#[test]
fn a_vanished_branch_goes_offline_and_the_rest_works_on() {
    let two = two("on_branch_error = \"skip\"");
    two.b.vanish();
    wait_until(&two, "b", false);
    assert_eq!(names(&two.mount_point()), ["on-a"], "its files are not listed");
    assert!(fs::read(two.join("on.b")).is_err());
    assert_eq!(fs::read(two.join("on-a")).unwrap(), b"a");
    fs::write(two.join("new.b"), "made meanwhile").unwrap();
    assert!(two.a.join("new.b").exists(), "new files go to a branch that is there");
    assert_eq!(names(&two.b.path()), Vec::<String>::new(), "nothing is written under the missing mount point");
    assert_eq!(two.explain("on.b").may_be_on, ["b"]);
    assert_eq!(two.explain("dir/on.b").may_be_on, ["b"]);
    let rules = two.status().rules;
    assert!(rules.iter().any(|rule| rule.inactive.is_some()), "the rule is inactive: {rules:?}");

    two.b.mount();
    wait_until(&two, "b", true);
    eventually("its files are back", || fs::read(two.join("on.b")).is_ok_and(|data| data == b"b"));
    assert_eq!(names(&two.mount_point()), ["new.b", "on-a", "on.b"]);
    assert!(two.status().rules.iter().all(|rule| rule.inactive.is_none()), "the rule is active again");
    fs::write(two.join("later.b"), "x").unwrap();
    two.expect_on("b", "later.b");
    two.enforce();
    two.expect_on("b", "new.b");
    assert_eq!(fs::read(two.join("new.b")).unwrap(), b"made meanwhile");
}

#[test]
fn a_sync_names_the_branches_that_are_away_and_fails_where_their_last_changes_may_be_lost() {
    let two = two("on_branch_error = \"skip\"");
    assert!(two.say(["sync"]).ends_with(": everything is durable\n"));
    two.b.vanish();
    wait_until(&two, "b", false);
    let said = two.say(["sync"]);
    assert!(said.contains("everything is durable (offline, so not synced: \"b\")"), "{said}");
    let said = two.json(["sync"]).remove(0);
    assert_eq!((said["synced"].as_bool(), said["offline"].to_string().as_str()), (Some(true), "[\"b\"]"));

    two.b.mount();
    wait_until(&two, "b", true);
    fs::write(two.join("on.b"), "changed").unwrap();
    two.b.vanish();
    wait_until(&two, "b", false);
    let refused = two.umbrella(["sync"]);
    let said = text(&refused);
    assert!(!refused.status.success(), "{said}");
    assert!(said.contains("branch \"b\" went offline before its last changes were on disk"), "{said}");
}

#[test]
fn a_listing_fails_with_a_missing_branch_where_that_is_asked_for() {
    let two = two("on_branch_error = \"fail\"");
    assert_eq!(names(&two.mount_point()), ["on-a", "on.b"]);
    two.b.vanish();
    wait_until(&two, "b", false);
    let listed: std::io::Result<Vec<_>> = fs::read_dir(two.mount_point()).and_then(Iterator::collect);
    assert_eq!(crate::support::errno(&listed), libc::EIO, "{listed:?}");
    assert_eq!(fs::read(two.join("on-a")).unwrap(), b"a", "a single file is on one branch, which is there");
    two.b.mount();
    wait_until(&two, "b", true);
    eventually("the listing is whole again", || fs::read_dir(two.mount_point()).is_ok_and(|names| names.count() == 2));
}

#[test]
fn files_open_on_a_vanished_branch_fail_cleanly_and_the_pool_lives() {
    let two = two("on_branch_error = \"skip\"");
    let open = fs::File::options().read(true).write(true).open(two.join("on.b")).unwrap();
    two.b.vanish();
    wait_until(&two, "b", false);
    // The kernel keeps the lazily unmounted file system alive for processes that have it open: either answer is right.
    let _ = std::os::unix::fs::FileExt::write_all_at(&open, b"x", 0);
    drop(open);
    fs::write(two.join("still"), "x").unwrap();
    two.settle();
    assert_eq!(names(&two.mount_point()), ["on-a", "still"]);
}

#[test]
fn a_missing_mount_point_is_an_offline_branch_and_never_an_empty_one() {
    let mut two = two("");
    two.pool.stop();
    unmount(&two.b.path());
    two.pool.start();
    assert!(!two.is_online("b"), "the directory is there, the disk is not");
    assert_eq!(names(&two.mount_point()), ["on-a"]);
    fs::create_dir_all(two.join("some/dir")).unwrap();
    fs::write(two.join("some/dir/new.b"), "x").unwrap();
    two.enforce();
    assert_eq!(names(&two.b.path()), Vec::<String>::new(), "nothing is written to the directory under the mount point");
    two.b.mount();
    wait_until(&two, "b", true);
    assert_eq!(names(&two.mount_point()), ["on-a", "on.b", "some"]);
    two.enforce();
    two.expect_on("b", "some/dir/new.b");
}

#[test]
fn a_pool_does_not_start_without_a_branch_that_it_needs() {
    let (a, b) = (Disk::tmpfs(MIB), Disk::tmpfs(MIB));
    let mut pool = Pool::builder().branch("a", a.path()).branch("ssd", b.path()).mount();
    pool.stop();
    unmount(&b.path());
    let error = pool.try_start().expect_err("a branch is missing");
    assert!(error.contains("ssd") && error.contains("--allow-missing"), "{error}");
    let output = pool
        .command()
        .arg("mount")
        .arg(pool.config_path())
        .args(["--daemon", "--allow-missing", "ssd", "--log"])
        .arg(pool.dir().join("log"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output));
    assert!(!pool.is_online("ssd"));
    assert!(pool.umbrella(["unmount"]).status.success());
}

#[test]
fn the_first_mount_without_the_disk_is_told_and_later_its_consequence() {
    let (a, b) = (Disk::tmpfs(MIB), Disk::ext4(8 * MIB));
    unmount(&b.path());
    let pool = Pool::builder().branch("a", a.path()).branch("b", b.path()).prepare();
    let mount = || {
        let log = pool.dir().join("log");
        let args = ["mount".into(), pool.config_path().into_os_string(), "--daemon".into(), "--log".into(), log.into()];
        pool.umbrella(args)
    };
    let first = mount();
    assert!(first.status.success(), "{}", text(&first));
    for said in [text(&first), pool.log()] {
        assert!(said.contains("branch \"b\"") && said.contains("is a plain directory, not a mount point"), "{said}");
        assert!(!said.contains("branch \"a\""), "{said}");
    }
    let status = pool.say(["status"]);
    assert!(status.contains("warning: branch \"b\": ") && status.contains("is a plain directory"), "{status}");
    pool.say(["unmount"]);
    let again = mount();
    assert!(again.status.success() && !text(&again).contains("branch \"b\""), "told once: {}", text(&again));
    pool.say(["unmount"]);
    b.mount();
    let refused = mount();
    assert!(!refused.status.success());
    assert!(text(&refused).contains("hidden below the mount point"), "{}", text(&refused));
}

#[test]
fn a_formatted_disk_is_taken_in_by_the_command_that_the_error_names() {
    let (a, b) = (Disk::tmpfs(MIB), Disk::tmpfs(MIB));
    let mut pool = Pool::builder()
        .branch("a", a.path())
        .branch_with("b", b.path(), "optional = true")
        .default(&["a"])
        .rules(B_BY_NAME)
        .keys(PROBES)
        .mount();
    fs::write(pool.join("old.b"), "x").unwrap();
    let refused = pool.umbrella(["branch", "replace", "b"]);
    assert!(!refused.status.success() && text(&refused).contains("old.b"), "{}", text(&refused));

    // A tmpfs that is mounted again is empty.
    let format = || {
        unmount(&b.path());
        b.mount();
    };
    b.vanish();
    wait_until(&pool, "b", false);
    let early = pool.umbrella(["branch", "replace", "b"]);
    assert!(!early.status.success() && text(&early).contains("not mounted"), "{}", text(&early));
    b.mount();
    eventually("another disk is seen", || format!("{:?}", pool.branch_status("b").state).contains("branch replace b"));
    pool.say(["branch", "replace", "b"]);
    assert!(pool.is_online("b"));
    assert!(!pool.join("old.b").exists());
    fs::write(pool.join("new.b"), "x").unwrap();
    pool.expect_on("b", "new.b");
    pool.remount();
    pool.expect_on("b", "new.b");

    pool.stop();
    let config = pool.config_path();
    let replace = ["branch".as_ref(), "replace".as_ref(), "b".as_ref(), "--pool".as_ref(), config.as_os_str()];
    unmount(&b.path());
    let early = pool.umbrella(replace);
    assert!(!early.status.success() && text(&early).contains("not mounted"), "{}", text(&early));
    b.mount();
    format();
    pool.start();
    assert!(!pool.is_online("b"), "it is not taken in unasked");
    pool.stop();
    pool.say(replace);
    pool.start();
    assert!(pool.is_online("b"));
    fs::write(pool.join("third.b"), "x").unwrap();
    pool.expect_on("b", "third.b");
}

#[test]
fn a_branch_without_its_hidden_folder_is_taken_in_as_new_or_left_as_it_was() {
    let disk = Disk::tmpfs(MIB);
    fs::create_dir(disk.join("a")).unwrap();
    fs::create_dir(disk.join("b")).unwrap();
    let mut pool = Pool::builder().branch("a", disk.join("a")).branch("b", disk.join("b")).default(&["a"]).mount();
    let elsewhere = pool.umbrella(["branch", "replace", "b", "/does/not/exist"]);
    assert!(!elsewhere.status.success(), "{}", text(&elsewhere));
    eventually("a failed replacement changes nothing", || pool.is_online("b"));
    pool.stop();
    fs::remove_dir_all(disk.join("b/.umbrella")).unwrap();
    let error = pool.try_start().unwrap_err();
    let help = format!("umbrella branch replace b --pool {}`", pool.config_path().display());
    assert!(error.contains(&help), "{error}");
    pool.say(["branch".as_ref(), "replace".as_ref(), "b".as_ref(), "--pool".as_ref(), pool.config_path().as_os_str()]);
    pool.start();
    assert!(pool.is_online("b"));
}

#[test]
fn a_branch_directory_moved_away_is_offline_until_it_returns() {
    let disk = Disk::tmpfs(32 * MIB);
    for name in ["a", "b"] {
        fs::create_dir(disk.join(name)).unwrap();
    }
    let pool = Pool::builder()
        .branch("a", disk.join("a"))
        .branch("b", disk.join("b"))
        .default(&["a"])
        .rules(B_BY_NAME)
        .keys(PROBES)
        .mount();
    fs::write(pool.join("on.b"), "b").unwrap();
    fs::rename(disk.join("b"), disk.join("away")).unwrap();
    wait_until(&pool, "b", false);
    assert!(fs::read(pool.join("on.b")).is_err());
    fs::write(pool.join("new.b"), "x").unwrap();
    assert!(disk.join("a/new.b").exists());
    assert!(!disk.join("b").exists(), "the missing directory is not made again");
    fs::rename(disk.join("away"), disk.join("b")).unwrap();
    wait_until(&pool, "b", true);
    eventually("its file is back", || fs::read(pool.join("on.b")).is_ok());
}

/// The paper's scenario: what was read today lives on the local disk, everything else on the remote one.
#[test]
fn work_goes_on_while_the_remote_branch_is_away() {
    let (local, remote) = (Disk::ext4(64 * MIB), Disk::ext4(64 * MIB));
    let pool = Pool::builder()
        .branch("local", local.path())
        .branch_with("remote", remote.path(), "optional = true")
        .default(&["remote"])
        .rules("[[rule]]\nname = \"accessed today\"\nwhen = { atime = \"< 1d\" }\nto = [\"local\"]\n")
        .keys(PROBES)
        .keys("on_branch_error = \"skip\"")
        .mount();
    fs::create_dir(pool.join("project")).unwrap();
    for (name, days) in [("used", 0), ("also-used", 0), ("old", 10), ("older", 100)] {
        fs::write(pool.join("project").join(name), name).unwrap();
        last_read_days_ago(&pool.join("project").join(name), days);
    }
    pool.settle();
    pool.enforce();
    for (name, branch) in [("used", "local"), ("also-used", "local"), ("old", "remote"), ("older", "remote")] {
        pool.expect_on(branch, format!("project/{name}"));
    }

    remote.vanish();
    wait_until(&pool, "remote", false);
    assert_eq!(names(&pool.join("project")), ["also-used", "used"], "what was used today is here");
    crate::append(&pool.join("project/used"), b", and changed on the road").unwrap();
    fs::write(pool.join("project/report"), "written on the road").unwrap();
    fs::rename(pool.join("project/also-used"), pool.join("project/renamed")).unwrap();
    fs::create_dir(pool.join("new-dir")).unwrap();
    fs::write(pool.join("new-dir/file"), "x").unwrap();

    remote.mount();
    wait_until(&pool, "remote", true);
    eventually("the rest is back", || pool.join("project/old").exists());
    assert_eq!(names(&pool.join("project")), ["old", "older", "renamed", "report", "used"]);
    assert_eq!(fs::read_to_string(pool.join("project/used")).unwrap(), "used, and changed on the road");
    for name in ["project/used", "project/renamed", "project/report", "new-dir/file"] {
        last_read_days_ago(&pool.join(name), 3);
    }
    pool.settle();
    pool.enforce();
    for name in ["project/used", "project/renamed", "project/report", "new-dir/file", "project/old"] {
        pool.expect_on("remote", name);
    }
    assert_eq!(fs::read_to_string(pool.join("project/report")).unwrap(), "written on the road");
}

/// What was renamed or exchanged while a branch was away comes back with it under the old name, as a part of what has
/// that name now.
#[test]
fn directories_that_changed_names_while_a_branch_was_away_stay_apart_when_it_returns() {
    let (a, b) = (Disk::ext4(64 * MIB), Disk::ext4(64 * MIB));
    let pool = Pool::builder()
        .branch_with("b", b.path(), "optional = true")
        .branch("a", a.path())
        .default(&["a"])
        .rules(B_BY_NAME)
        .keys(PROBES)
        .keys("on_branch_error = \"skip\"")
        .mount();
    for (dir, files) in [("one", ["x", "y.b"]), ("two", ["z", "w.b"]), ("old", ["u", "v.b"])] {
        fs::create_dir(pool.join(dir)).unwrap();
        fs::create_dir(pool.join(dir).join("sub")).unwrap();
        for name in files {
            fs::write(pool.join(dir).join(name), name).unwrap();
            fs::write(pool.join(dir).join("sub").join(name), name).unwrap();
        }
    }
    let inode = |path: &str| std::os::unix::fs::MetadataExt::ino(&fs::metadata(pool.join(path)).unwrap());
    let numbers = ["one", "two", "old"].map(inode);
    // A directory that is held keeps its number; one that nobody remembers may take that of the copy that returns.
    let _held = ["one", "two", "old"].map(|dir| fs::File::open(pool.join(dir)).unwrap());
    b.vanish();
    wait_until(&pool, "b", false);
    let exchange = rustix::fs::RenameFlags::EXCHANGE;
    rustix::fs::renameat_with(rustix::fs::CWD, pool.join("one"), rustix::fs::CWD, pool.join("two"), exchange).unwrap();
    fs::rename(pool.join("old"), pool.join("new")).unwrap();
    // With its device taken it comes back under another number.
    let _device_taken = Disk::ext4(32 * MIB);
    b.mount();
    wait_until(&pool, "b", true);
    eventually("its files are back", || fs::read(pool.join("one/y.b")).is_ok());
    for (dir, files) in [("one", &["y.b", "z"][..]), ("two", &["w.b", "x"]), ("old", &["v.b"]), ("new", &["u"])] {
        for dir in [dir.to_owned(), format!("{dir}/sub")] {
            let seen: Vec<_> = names(&pool.join(&dir)).into_iter().filter(|name| name != "sub").collect();
            assert_eq!(seen, files, "{dir}");
            for name in files {
                assert_eq!(fs::read_to_string(pool.join(&dir).join(name)).unwrap(), *name, "{dir}");
            }
        }
    }
    assert_eq!(["two", "one", "new"].map(inode), numbers);
    assert_ne!(inode("old"), inode("new"));
}

/// What may be on one branch only is refused while that is away, and lands nowhere else.
#[test]
fn what_has_a_list_of_its_own_is_refused_while_all_of_that_is_away() {
    let (a, b) = (Disk::tmpfs(32 * MIB), Disk::ext4(32 * MIB));
    let pool = Pool::builder()
        .branch("a", a.path())
        .branch_with("b", b.path(), "require_mount = true\noptional = true")
        .default(&["a"])
        .rules("[[rule]]\nname = \"secret\"\nmatch = [{ glob = \"/secret/**\", to = [\"b\"] }]\n")
        .keys(PROBES)
        .keys("on_branch_error = \"skip\"")
        .mount();
    fs::create_dir(pool.join("secret")).unwrap();
    fs::write(pool.join("secret/kept"), "b").unwrap();
    pool.expect_on("b", "secret/kept");
    b.vanish();
    wait_until(&pool, "b", false);
    assert_errno(fs::write(pool.join("secret/new"), "plain"), libc::EIO);
    fs::write(pool.join("other"), "x").unwrap();
    fs::write(pool.join("moving"), "x").unwrap();
    let _ = fs::rename(pool.join("moving"), pool.join("secret/moved"));
    pool.settle();
    assert!(!a.join("secret/new").exists(), "nothing was made in the clear");
    b.mount();
    wait_until(&pool, "b", true);
    fs::write(pool.join("secret/new"), "b").unwrap();
    pool.expect_on("b", "secret/new");
    assert_eq!(fs::read(pool.join("secret/kept")).unwrap(), b"b");
}

/// Each word of `offline`, while the first of a list is away.
#[test]
fn a_rule_skips_passes_or_fails_while_the_first_of_its_list_is_away() {
    let disks = ["first", "second", "away"].map(|_| Disk::ext4(32 * MIB));
    let rule = |word: &str| {
        format!(
            "[[rule]]\nname = {word:?}\nwhen = {{ extension = {word:?} }}\nto = [\"away\", \"second\"]\noffline = {word:?}\n"
        )
    };
    let pool = Pool::builder()
        .branches([("first", disks[0].path()), ("second", disks[1].path())])
        .branch_with("away", disks[2].path(), "require_mount = true\noptional = true")
        .default(&["first"])
        .rules(&["next", "pass", "fail"].map(rule).concat())
        .keys(PROBES);
    let pool = pool.mount();
    let write = |name: &str| fs::write(pool.join(name), "x");
    disks[2].vanish();
    wait_until(&pool, "away", false);
    write("1.next").unwrap();
    write("1.pass").unwrap();
    assert_errno(write("1.fail"), libc::EIO);
    pool.expect_on("second", "1.next");
    pool.expect_on("first", "1.pass");
    let rules = pool.status().rules;
    let inactive: Vec<_> = rules.iter().filter(|rule| rule.inactive.is_some()).map(|rule| &rule.name).collect();
    assert_eq!(inactive, ["pass"]);
    disks[2].mount();
    wait_until(&pool, "away", true);
    for word in ["next", "pass", "fail"] {
        let name = format!("2.{word}");
        write(&name).unwrap();
        pool.expect_on("away", &name);
    }
    pool.enforce();
    for name in ["1.next", "1.pass"] {
        pool.expect_on("away", name);
    }
}

#[test]
fn a_pipe_put_in_a_files_place_on_the_branch_holds_nobody_up() {
    let disk = Disk::ext4(32 * MIB);
    let pool = Pool::builder().branch("a", disk.path()).default(&["a"]).mount();
    fs::write(pool.join("other"), "x").unwrap();
    for round in 0..5 {
        let (name, on_disk) = (format!("f{round}"), disk.join(format!("f{round}")));
        fs::write(pool.join(&name), "content").unwrap();
        fs::metadata(pool.join(&name)).unwrap();
        // Who still has the file open may cut it.
        pool.settle_closed();
        // The inode is usually used again at once, so that only the type tells the two apart.
        fs::remove_file(&on_disk).unwrap();
        nix::unistd::mkfifo(&on_disk, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(nix::unistd::truncate(&pool.join(&name), 3).is_err(), "a pipe has no length");
        assert_eq!(fs::read(pool.join("other")).unwrap(), b"x");
    }
}

#[test]
fn a_branch_that_is_full_when_it_comes_is_not_taken_for_one_that_keeps_nothing() {
    let (tiny, b) = (Disk::tmpfs_with_inodes(16 * MIB, 64), Disk::tmpfs(32 * MIB));
    let fill = |disk: &Disk| {
        (0..1000)
            .map(|number| disk.join(format!("filler-{number}")))
            .take_while(|path| fs::File::create(path).is_ok())
            .count()
    };
    let builder = Pool::builder().branch("tiny", tiny.path()).branch("b", b.path()).default(&["tiny", "b"]);
    let mut pool = builder.mount();
    let before = pool.branch_status("tiny").abilities;
    assert!(before.ownership && before.xattr);
    pool.stop();
    assert!(fill(&tiny) > 10);
    pool.start();
    // Passthrough is not to be had on a branch that is full.
    let now = Abilities { passthrough: before.passthrough, ..pool.branch_status("tiny").abilities };
    assert_eq!(now, before, "as when it was tried last");
}

#[test]
fn a_write_that_failed_is_told_by_fsync_although_the_file_was_to_move() {
    // The disk lies on memory that has no room for its blocks any more: what is written to them is lost.
    let memory = Disk::tmpfs(48 * MIB);
    let a = Disk::ext2_in(&memory.path(), 40 * MIB);
    let b = Disk::tmpfs(64 * MIB);
    let builder = Pool::builder().branch_with("a", a.path(), "passthrough = false").branch("b", b.path());
    let pool = builder.default(&["a", "b"]).mount();
    let mut file = fs::File::create(pool.join("file")).unwrap();
    rustix::fs::syncfs(fs::File::open(a.path()).unwrap()).unwrap();
    let mut filler = fs::File::create(memory.join("filler")).unwrap();
    while filler.write_all(&[0; 4096]).is_ok() {}
    file.write_all(&bytes(1, 8 * MIB)).unwrap();
    // Another program has it written, and learns what happened; the writer has not been told.
    fs::File::open(a.join("file")).unwrap().sync_all().unwrap_err();
    while file.write_all(&[1; 1 << 20]).is_ok() && file.metadata().unwrap().len() < 60 * MIB {}
    file.sync_all().expect_err("what was written first is lost");
    drop(filler);
    fs::remove_file(memory.join("filler")).unwrap();
}
