//! `umbrella rules reload`: every key but those that only a mount takes up is in force at once, and what changes is
//! shown first.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::Value;

use crate::support::disk::Disk;
use crate::support::pool::{Pool, text};
use crate::support::tree::files_below;
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

/// Where small files go to one branch and large ones to the other.
const BY_SIZE: &str = "[[rule]]\nwhen = { size = \"< 64KiB\" }\nto = [\"b\"]\n";

#[test]
fn a_staging_section_that_is_added_lets_new_files_wait_while_others_are_written() {
    let (_disks, builder) = disks(["a"]);
    let mut pool = builder.stages_by_default().mount();
    put(&pool, "before");
    let mut open = OpenOptions::new().append(true).open(pool.join("before")).unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let (pool_dir, stop) = (pool.mount_point(), &stop);
        let writer = scope.spawn(move || {
            let mut written = 0;
            while !stop.load(Ordering::Relaxed) {
                let path = pool_dir.join(format!("written {written}"));
                fs::write(&path, bytes(written, 5000)).unwrap();
                assert_eq!(fs::read(&path).unwrap(), bytes(written, 5000));
                written += 1;
            }
            written
        });
        pool.write_keys("cache_timeout = \"7s\"\n[staging]\nmode = \"always\"\nmax_age = \"1h\"\n");
        let expected = ["cache_timeout: 1h -> 7s", "staging.mode: auto -> always", "staging.max_age: 30s -> 1h"];
        assert_eq!(changes(&pool), expected);
        open.write_all(b" and after").unwrap();
        drop(open);
        put(&pool, "waits");
        stop.store(true, Ordering::Relaxed);
        assert!(writer.join().unwrap() > 0);
    });
    assert!(!pool.on("a", "waits").exists());
    assert_eq!(fs::read_to_string(pool.join("waits")).unwrap(), "waits");
    assert_eq!(fs::read_to_string(pool.on("a", "before")).unwrap(), "before and after");
    let staging = pool.status().staging.unwrap();
    assert!(staging.accepts && staging.files > 0, "{staging:?}");

    // Its scheduler runs: a shorter age holds.
    pool.write_keys("cache_timeout = \"7s\"\n[staging]\nmode = \"always\"\nmax_age = \"100ms\"\n");
    assert_eq!(changes(&pool), ["staging.max_age: 1h -> 100ms"]);
    eventually("what waited leaves", || pool.on("a", "waits").exists());

    // The section goes away, and comes back.
    pool.write_keys("cache_timeout = \"7s\"\n");
    assert_eq!(changes(&pool), ["staging.mode: always -> auto", "staging.max_age: 100ms -> 30s"]);
    put(&pool, "direct");
    assert!(pool.on("a", "direct").exists());
    pool.write_keys("cache_timeout = \"7s\"\n[staging]\nmode = \"always\"\nmax_age = \"1h\"\n");
    pool.say(RELOAD);
    put(&pool, "waits again");
    assert!(!pool.on("a", "waits again").exists());
    pool.write_keys(
        "cache_timeout = \"7s\"\n[staging]\nmode = \"always\"\nmax_age = \"1h\"\npath = \"/tmp/elsewhere\"\n",
    );
    let why = refused(&pool);
    assert!(why.contains("staging.path cannot change while the pool is mounted"), "{why}");
    let area = pool.status().staging.unwrap().path;
    pool.stop();
    assert_eq!(fs::read_to_string(pool.on("a", "waits again")).unwrap(), "waits again");
    assert!(!area.exists(), "an unmount takes the area away");
}

#[test]
fn rules_that_come_to_need_a_size_let_new_files_wait_for_it() {
    let (_disks, builder) = disks(["a", "b"]);
    let mut pool = builder.stages_by_default().mount();
    assert!(pool.status().staging.is_none());
    pool.load_rules(BY_SIZE);
    let mut open = File::create(pool.join("file")).unwrap();
    open.write_all(b"little").unwrap();
    assert_eq!(pool.found_on("file"), [""; 0]);
    drop(open);
    pool.expect_on("b", "file");
    assert_eq!(pool.moves(), 0, "it was on no wrong branch");
    pool.remount();
    assert_eq!(fs::read_to_string(pool.join("file")).unwrap(), "little");
}

#[test]
fn what_waits_in_an_area_that_a_reload_opened_outlives_a_kill() {
    for keeps_section in [true, false] {
        let (_disks, builder) = disks(["a"]);
        let mut pool = builder.stages_by_default().mount();
        pool.write_keys("[staging]\nmode = \"always\"\nmax_age = \"1h\"\n");
        pool.say(RELOAD);
        fs::create_dir(pool.join("dir")).unwrap();
        put(&pool, "dir/waits");
        assert!(!pool.on("a", "dir/waits").exists());
        pool.kill_9();
        if !keeps_section {
            pool.write_keys("");
        }
        pool.start();
        assert_eq!(fs::read_to_string(pool.join("dir/waits")).unwrap(), "dir/waits");
        pool.expect_on("a", "dir/waits");
        let area = pool.status().staging.unwrap();
        assert_eq!(area.accepts, keeps_section);
        pool.stop();
        assert!(!area.path.exists());
    }
}

#[test]
fn an_area_that_a_kill_left_half_made_is_used_by_the_next_mount() {
    let (_disks, builder) = disks(["a"]);
    let mut pool = builder.stages_by_default().mount();
    let at = pool.dir().join("area");
    fs::create_dir(&at).unwrap();
    pool.write_keys(&format!("[staging]\nmode = \"always\"\nmax_age = \"1h\"\npath = {at:?}\n"));
    pool.say(RELOAD);
    pool.kill_9();
    // Killed before the state directory remembered it.
    let state = pool.dir().join("state");
    let is_pool = |path: &PathBuf| {
        path.parent().is_some_and(|dir| dir.ends_with("pools")) && path.extension() == Some("json".as_ref())
    };
    for path in files_below(&state).into_iter().map(|path| state.join(path)).filter(is_pool) {
        let mut state: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        state["branches"].as_object_mut().unwrap().retain(|name, _| name == "a");
        fs::write(&path, state.to_string()).unwrap();
    }
    pool.start();
    put(&pool, "waits");
    assert!(!pool.on("a", "waits").exists());
    pool.stop();
    assert!(pool.on("a", "waits").exists());
}

#[test]
fn a_dry_run_refuses_an_area_that_cannot_be_opened_and_makes_none() {
    let (_disks, builder) = disks(["a"]);
    let mut pool = builder.stages_by_default().mount();
    let taken = pool.dir().join("taken");
    fs::create_dir(&taken).unwrap();
    fs::write(taken.join("something"), "").unwrap();
    let memory = Disk::tmpfs(32 * MIB);
    let dry_run = |pool: &Pool| pool.umbrella(["rules", "reload", "--dry-run"]);
    let section = |path: &Path, keys: &str| format!("[staging]\nmode = \"always\"\npath = {path:?}\n{keys}\n");
    let unusable = [
        section(&taken, ""),
        section(&taken.join("something/below"), ""),
        section(&pool.dir().join("nowhere"), "volatile = false"),
        section(&memory.path(), "volatile = false"),
    ];
    for keys in unusable {
        pool.write_keys(&keys);
        let told = dry_run(&pool);
        assert!(!told.status.success(), "{keys}: {}", text(&told));
        assert_eq!(text(&told), refused(&pool), "{keys}");
        assert!(text(&told).contains("nothing is reloaded: staging at"), "{}", text(&told));
    }
    assert!(!pool.dir().join("nowhere").exists());
    assert!(!memory.path().join("umbrella-staging").exists(), "a refused reload leaves no folder");

    let free = pool.dir().join("new/area");
    let state = files_below(&pool.dir().join("state"));
    pool.write_keys(&section(&free, ""));
    let told = dry_run(&pool);
    assert!(told.status.success() && text(&told).contains("staging.path: not set -> "), "{}", text(&told));
    assert!(!free.exists() && !pool.dir().join("new").exists() && pool.status().staging.is_none());
    assert_eq!(files_below(&pool.dir().join("state")), state, "nothing is remembered");
    pool.say(RELOAD);
    assert!(pool.status().staging.is_some_and(|staging| staging.accepts));
}

#[test]
fn an_area_that_cannot_be_opened_leaves_all_as_it_was() {
    let (_disks, builder) = disks(["a", "b"]);
    let mut pool = builder.stages_by_default().mount();
    let at = pool.dir().join("taken");
    fs::create_dir(&at).unwrap();
    fs::write(at.join("something"), "").unwrap();
    pool.write_branch("b", "read_only = true\nmin_free = \"5%\"");
    let keys = format!("cache_timeout = \"7s\"\n[staging]\nmode = \"always\"\nmax_age = \"1h\"\npath = {at:?}\n");
    pool.write_keys(&keys);
    let why = refused(&pool);
    assert!(why.contains("nothing is reloaded: staging at") && why.contains("is not empty"), "{why}");
    assert!(pool.status().staging.is_none() && pool.branch_status("b").min_free.0 == 0);
    pool.write_rules("[[rule]]\nwhen = {}\nto = [\"b\", \"any\"]\n");
    pool.write_branch("b", "");
    pool.write_keys("");
    assert_eq!(changes(&pool).len(), 1, "only the rule is new");
    put(&pool, "file");
    pool.expect_on("b", "file");

    fs::remove_file(at.join("something")).unwrap();
    pool.write_keys(&keys);
    assert_eq!(
        changes(&pool)[1..3],
        ["staging.mode: auto -> always", &format!("staging.path: not set -> {}", at.display())]
    );
    put(&pool, "waits");
    assert!(!pool.on("b", "waits").exists());

    // The section goes away with its path, and comes back.
    pool.write_keys("");
    pool.say(RELOAD);
    put(&pool, "direct");
    assert!(pool.on("b", "direct").exists());
    pool.write_keys(&keys);
    pool.say(RELOAD);
    put(&pool, "waits again");
    assert!(!pool.on("b", "waits again").exists());
}
