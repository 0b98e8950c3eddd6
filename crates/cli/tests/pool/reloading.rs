//! `umbrella rules reload`: every key but those that only a mount takes up is in force at once, and what changes is
//! shown first.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use crate::support::disk::Disk;
use crate::support::pool::{Pool, text};
use crate::support::{MIB, bytes, eventually};
use crate::{On, disks, names, pool};

const RELOAD: [&str; 2] = ["rules", "reload"];

/// What a reload says that it changes.
#[track_caller]
fn changes(pool: &Pool) -> Vec<String> {
    let told = pool.json(RELOAD).remove(0);
    let text = |change: &Value| {
        let value = |key: &str| change[key].as_str().unwrap_or("-").to_owned();
        format!("{}: {} -> {}", value("key"), value("old"), value("new"))
    };
    told["changes"].as_array().unwrap().iter().map(text).collect()
}

/// What a refused reload says.
#[track_caller]
fn refused(pool: &Pool) -> String {
    let output = pool.umbrella(RELOAD);
    assert!(!output.status.success(), "{}", text(&output));
    text(&output)
}

fn put(pool: &Pool, name: &str) {
    fs::write(pool.join(name), name).unwrap();
}

fn with_keys<const N: usize>(names: [&str; N], keys: &str) -> On<N> {
    let (disks, builder) = disks(names);
    On { pool: builder.keys(keys).mount(), disks }
}

#[test]
fn a_dry_run_shows_the_difference_and_changes_nothing() {
    let On { mut pool, disks: _disks } = pool(["a", "b"], "");
    pool.write_branch("a", "min_free = \"5%\"");
    pool.write_rules("[[rule]]\nname = \"texts\"\nwhen = { extension = \"txt\" }\nto = [\"b\"]\n");
    let told = pool.say(["rules", "reload", "--dry-run"]);
    assert!(told.contains("min_free of branch \"a\": 0 B -> 5%"), "{told}");
    assert!(told.contains("rule \"texts\": new") && told.contains("2 settings would change"), "{told}");
    put(&pool, "a.txt");
    pool.expect_on("a", "a.txt");
    assert_eq!(changes(&pool), ["rule \"texts\": - -> new", "min_free of branch \"a\": 0 B -> 5%"]);
    put(&pool, "b.txt");
    pool.expect_on("b", "b.txt");
    assert_eq!(changes(&pool), [""; 0], "the second reload has nothing to change");
}

#[test]
fn what_only_a_mount_takes_up_is_refused_by_name_and_nothing_changes() {
    let On { mut pool, disks } = pool(["a", "b"], "");
    let config = fs::read_to_string(pool.config_path()).unwrap();
    let swapped = [
        (format!("{:?}", disks[1].path()), format!("{:?}", disks[1].path().join("below")), "path of branch \"b\""),
        (format!("{:?}", pool.mount_point()), "\"/srv/elsewhere\"".to_owned(), "mount"),
        ("default = ".to_owned(), "transport = \"dev\"\ndefault = ".to_owned(), "transport"),
    ];
    fs::create_dir(disks[1].path().join("below")).unwrap();
    for (old, new, key) in swapped {
        if config.contains("transport = ") && key == "transport" {
            continue;
        }
        let text = config.replacen(&old, &new, 1).replace("name = \"a\"", "name = \"a\"\nmin_free = \"20MiB\"");
        fs::write(pool.config_path(), text).unwrap();
        let why = refused(&pool);
        assert!(why.contains(key) && why.contains("unmount and mount"), "{why}");
        assert_eq!(pool.branch_status("a").min_free.0, 0, "{key}: nothing is taken up");
    }
    pool.write_rules("");
    assert_eq!(changes(&pool), [""; 0]);
}

#[test]
fn a_branch_with_another_min_free_gets_no_new_files() {
    let On { mut pool, disks: _disks } = pool(["a", "b"], "");
    pool.load_rules("[[rule]]\nwhen = {}\nto = [\"a\", \"b\"]\n");
    fs::write(pool.join("before"), bytes(1, 2 * MIB)).unwrap();
    pool.expect_on("a", "before");
    pool.write_branch("a", "min_free = \"31MiB\"\nheadroom = \"32MiB\"\npassthrough = false");
    assert_eq!(changes(&pool).len(), 3);
    put(&pool, "after");
    pool.expect_on("b", "after");
    assert!(!pool.branch_status("a").abilities.passthrough);
}

#[test]
fn a_file_stays_only_as_long_as_the_branch_says_now() {
    let disks = [Disk::ext4(32 * MIB), Disk::ext4(32 * MIB)];
    let to = |branch: &str| format!("[[rule]]\nwhen = {{}}\nto = [\"{branch}\", \"any\"]\n");
    let builder = Pool::builder().branch("a", disks[0].path()).branch_with("b", disks[1].path(), "min_stay = \"1h\"");
    let mut pool = builder.rules(&to("a")).mount();
    put(&pool, "file");
    pool.load_rules(&to("b"));
    pool.enforce();
    pool.expect_on("b", "file");
    pool.load_rules(&to("a"));
    pool.enforce();
    pool.expect_stays_on("b", "file");
    pool.write_branch("b", "");
    assert_eq!(changes(&pool), ["min_stay of branch \"b\": 1h -> 0s"]);
    pool.enforce();
    pool.expect_on("a", "file");
}

#[test]
fn a_branch_becomes_read_only_when_nobody_writes_there_and_writable_again() {
    let On { mut pool, disks: _disks } = pool(["a", "b"], "");
    put(&pool, "file");
    let mut open = OpenOptions::new().append(true).open(pool.join("file")).unwrap();
    pool.write_branch("a", "read_only = true");
    let why = refused(&pool);
    assert!(why.contains("cannot become read-only") && why.contains("open for writing (1)"), "{why}");
    open.write_all(b"more").unwrap();
    drop(open);
    pool.settle_closed();
    assert_eq!(changes(&pool), ["read_only of branch \"a\": false -> true"]);
    let error = OpenOptions::new().append(true).open(pool.join("file")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReadOnlyFilesystem);
    assert!(fs::remove_file(pool.join("file")).is_err() && fs::write(pool.join("new"), "").is_err());
    pool.write_branch("a", "");
    pool.say(RELOAD);
    fs::write(pool.join("file"), "written again").unwrap();
    put(&pool, "new");
}

#[test]
fn a_branch_that_was_mounted_read_only_can_be_written_after_a_reload() {
    let (disks, builder) = disks(["a"]);
    fs::write(disks[0].join("file"), "there before").unwrap();
    let mut pool = builder.prepare();
    pool.write_branch("a", "read_only = true");
    pool.start();
    assert!(fs::write(pool.join("file"), "").is_err());
    pool.write_branch("a", "");
    pool.say(RELOAD);
    assert_eq!(fs::read_to_string(pool.join("file")).unwrap(), "there before");
    fs::write(pool.join("file"), "new").unwrap();
    put(&pool, "another");
    assert_eq!(names(&pool.mount_point()), ["another", "file"]);
}

#[test]
fn a_group_chooses_by_its_new_word() {
    let group = |spread: &str| {
        format!(
            "[[group]]\nname = \"both\"\nbranches = [\"a\", \"b\"]\nspread = \"{spread}\"\n[[rule]]\nwhen = {{}}\nto = [\"both\"]\n"
        )
    };
    let On { mut pool, disks } = pool(["a", "b"], &group("in-order"));
    fs::write(disks[0].join("ballast"), bytes(2, 4 * MIB)).unwrap();
    put(&pool, "one");
    pool.expect_on("a", "one");
    pool.write_rules(&group("most-free"));
    assert_eq!(changes(&pool), ["spread of group \"both\": - -> -"]);
    put(&pool, "two");
    pool.expect_on("b", "two");
}

#[test]
fn hours_that_are_added_let_the_enforcer_walk() {
    let On { mut pool, disks: _disks } = pool(["a", "b"], "");
    put(&pool, "file");
    pool.load_rules("[[rule]]\nwhen = {}\nto = [\"b\", \"a\"]\n");
    pool.expect_stays_on("a", "file");
    pool.write_keys("enforce = { window = \"00:00-24:00\", bandwidth = \"1MiB\" }");
    let expected = ["enforce.window: not set -> 00:00-24:00", "enforce.bandwidth: not set -> 1 MiB"];
    assert_eq!(changes(&pool), expected);
    pool.expect_on("b", "file");
}

#[test]
fn branches_are_asked_as_often_as_the_file_says_now() {
    let On { mut pool, disks } = with_keys(["a", "b"], "probe_interval = \"1h\"\nprobe_timeout = \"20s\"");
    disks[1].vanish();
    assert!(pool.is_online("b"), "nobody has looked");
    pool.write_keys("probe_interval = \"1s\"\nprobe_timeout = \"5s\"");
    assert_eq!(changes(&pool), ["probe_interval: 1h -> 1s", "probe_timeout: 20s -> 5s"]);
    eventually("the monitor has seen it", || !pool.is_online("b"));
}

#[test]
fn the_kernel_forgets_what_it_kept_by_the_old_time() {
    let On { mut pool, disks } = pool(["a"], "");
    put(&pool, "file");
    let length = |pool: &Pool| fs::metadata(pool.join("file")).unwrap().len();
    assert!(!pool.join("later").exists());
    assert_eq!(length(&pool), 4);
    fs::write(disks[0].join("file"), "behind the mount").unwrap();
    fs::write(disks[0].join("later"), "").unwrap();
    pool.write_keys("cache_timeout = \"0s\"");
    assert_eq!(changes(&pool), ["cache_timeout: 1h -> 0s"]);
    assert_eq!(length(&pool), 16);
    assert!(pool.join("later").exists());
    fs::write(disks[0].join("file"), "again").unwrap();
    assert_eq!(length(&pool), 5, "and it keeps nothing from now on");
}

#[test]
fn a_directory_is_shown_by_the_new_rule_at_once() {
    let (disks, builder) = disks(["a", "b"]);
    for (disk, mode) in disks.iter().zip([0o755, 0o700]) {
        fs::create_dir(disk.join("dir")).unwrap();
        fs::set_permissions(disk.join("dir"), fs::Permissions::from_mode(mode)).unwrap();
    }
    let mut pool = builder.mount();
    let mode = |pool: &Pool| fs::metadata(pool.join("dir")).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&pool), 0o700);
    pool.write_keys("directories = \"first\"");
    assert_eq!(changes(&pool), ["directories: safe -> first"]);
    assert_eq!(mode(&pool), 0o755);
}

#[test]
fn a_listing_fails_for_a_missing_branch_from_now_on() {
    let On { mut pool, disks } = with_keys(["a", "b"], "probe_interval = \"1s\"");
    put(&pool, "file");
    disks[1].vanish();
    eventually("b is offline", || !pool.is_online("b"));
    assert_eq!(names(&pool.mount_point()), ["file"]);
    pool.write_keys("probe_interval = \"1s\"\non_branch_error = \"fail\"");
    assert_eq!(changes(&pool), ["on_branch_error: skip -> fail"]);
    let listed = fs::read_dir(pool.mount_point()).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    assert!(listed.is_err(), "{listed:?}");
}

#[test]
fn threads_are_started_until_there_are_as_many_as_the_file_says() {
    let On { mut pool, disks: _disks } = with_keys(["a"], "transport = \"dev\"\nthreads = 2");
    let tasks = format!("/proc/{}/task", pool.pid());
    let serving = || {
        let comm = |task: std::io::Result<fs::DirEntry>| fs::read_to_string(task.unwrap().path().join("comm"));
        fs::read_dir(&tasks).unwrap().filter_map(|task| comm(task).ok()).filter(|it| it == "fuse-dev\n").count()
    };
    assert!(serving() < 24);
    pool.write_keys("transport = \"dev\"\nthreads = 24");
    assert_eq!(changes(&pool), ["threads: 2 -> 24"]);
    eventually("there are as many", || serving() >= 24);
}

#[test]
fn a_branch_is_written_back_by_its_new_policy() {
    let disk = Disk::ext4(64 * MIB);
    let mut pool = Pool::builder().branch("a", disk.path()).mount();
    let policy = |pool: &Pool| pool.json(["write-back", "show"]).remove(0).to_string();
    assert!(!policy(&pool).contains("zone_segment"));
    pool.write_branch("a", "write_back = \"zone_segment\"");
    assert_eq!(changes(&pool), ["write_back of branch \"a\": not set -> zone_segment"]);
    assert!(policy(&pool).contains("zone_segment"), "{}", policy(&pool));
}

#[test]
fn staged_files_leave_by_the_new_limits() {
    let staging = |keys: &str| format!("[staging]\nmode = \"always\"\n{keys}\n");
    let On { mut pool, disks: _disks } = with_keys(["a"], &staging("max_age = \"1h\""));
    let on_disk = |pool: &Pool, name: &str| pool.on("a", name).exists();
    put(&pool, "waits");
    assert!(!on_disk(&pool, "waits"));
    pool.write_keys(&staging("max_age = \"1h\"\nmax_file = \"4KiB\"\nsize = \"8MiB\""));
    assert_eq!(changes(&pool), ["staging.size: not set -> 8 MiB", "staging.max_file: 1 MiB -> 4 KiB"]);
    fs::write(pool.join("large"), bytes(3, 8192)).unwrap();
    assert!(on_disk(&pool, "large") && !on_disk(&pool, "waits"));
    assert!(pool.status().staging.unwrap().limit.0 <= 8 * MIB);
    pool.write_keys(&staging("max_age = \"100ms\"\nmax_file = \"4KiB\"\nsize = \"8MiB\""));
    pool.say(RELOAD);
    eventually("what waited is too old now", || on_disk(&pool, "waits"));
}

#[test]
fn staging_can_be_switched_off_and_on_again() {
    let keys = "[staging]\nmode = \"always\"\nmax_age = \"1h\"\n";
    let On { mut pool, disks: _disks } = with_keys(["a"], keys);
    put(&pool, "waits");
    pool.write_keys("[staging]\nmode = \"never\"\nmax_age = \"1h\"\n");
    assert_eq!(changes(&pool), ["staging.mode: always -> never"]);
    assert!(pool.on("a", "waits").exists(), "what waits leaves before the answer");
    put(&pool, "direct");
    assert!(pool.on("a", "direct").exists());
    pool.write_keys(keys);
    assert_eq!(changes(&pool), ["staging.mode: never -> always"]);
    put(&pool, "waits again");
    assert!(!pool.on("a", "waits again").exists());
    pool.write_keys("[staging]\nmax_age = \"1h\"\npath = \"/tmp/elsewhere\"\n");
    let why = refused(&pool);
    assert!(why.contains("staging.path"), "{why}");
}

#[test]
fn a_staging_section_for_a_pool_that_was_mounted_without_one_is_refused_as_a_whole() {
    let (_disks, builder) = disks(["a"]);
    let mut pool = builder.stages_by_default().mount();
    pool.write_keys("cache_timeout = \"7s\"\n[staging]\nmode = \"always\"\n");
    let why = refused(&pool);
    assert!(why.contains("[staging] cannot change while the pool is mounted"), "{why}");
    put(&pool, "file");
    assert!(pool.on("a", "file").exists());
    pool.remount();
    put(&pool, "waits");
    assert!(!pool.on("a", "waits").exists());
}
