//! Fill levels: a small fast disk in front of a large one, kept below its mark.

use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps};
use umbrella_fs::control::protocol::{EvictState, EvictStatus, EvictStay};

use crate::append;
use crate::support::disk::Disk;
use crate::support::pool::Pool;
use crate::support::{MIB, TIMEOUT, bytes, eventually, poll, run};

/// Files go to `ssd` first.
const SSD_FIRST: &str = r#"
[[rule]]
name = "ssd first"
when = { path = "/**" }
to = ["ssd", "hdd"]
"#;

/// A small ssd with a fill level in front of a large disk. The pool goes before its disks, which are busy until then.
fn pool(evict: &str) -> ([Disk; 2], Pool) {
    pool_with(&format!("evict = {{ {evict} }}"))
}

fn pool_with(keys: &str) -> ([Disk; 2], Pool) {
    let disks = [Disk::ext4(64 * MIB), Disk::ext4(256 * MIB)];
    let pool = Pool::builder()
        .branch_with("ssd", disks[0].path(), keys)
        .branch("hdd", disks[1].path())
        .rules(SSD_FIRST)
        .mount();
    (disks, pool)
}

fn level(pool: &Pool) -> EvictStatus {
    pool.status().evicts.remove(0)
}

fn used(disk: &Disk) -> f64 {
    let space = rustix::fs::statvfs(disk.path()).unwrap();
    100.0 - space.f_bavail as f64 * 100.0 / space.f_blocks as f64
}

/// Writes a file that is `days` days old.
fn aged(pool: &Pool, name: &str, seed: u64, len: u64, days: i64) {
    fs::write(pool.join(name), bytes(seed, len)).unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() as i64;
    let time = Timespec { tv_sec: now - days * 86_400, tv_nsec: 0 };
    let times = Timestamps { last_access: time, last_modification: time };
    rustix::fs::utimensat(CWD, pool.join(name), &times, AtFlags::empty()).unwrap();
}

fn stays(status: &EvictStatus, why: EvictStay) -> u64 {
    status.stays.iter().filter(|stays| stays.why == why).map(|stays| stays.files).sum()
}

#[test]
fn an_ssd_under_a_steady_stream_keeps_between_its_marks_and_the_oldest_leave_first() {
    let ([ssd, hdd], pool) = pool(r#"above = "80%", until = "70%""#);
    let name = |at: u64| format!("{at:03}");
    let mut highest = 0.0_f64;
    for at in 0..90 {
        // No faster than files leave.
        eventually("it leaves room for the next", || used(&ssd) < 85.0);
        fs::write(pool.join(name(at)), bytes(at, MIB)).unwrap();
        highest = highest.max(used(&ssd));
    }
    eventually("the level is below its high mark", || used(&ssd) <= 80.0 && level(&pool).state == EvictState::Below);
    pool.settle_closed();
    assert!(highest < 100.0 && used(&ssd) > 60.0, "at most {highest}, at last {}", used(&ssd));
    let first_on_ssd = (0..90).find(|at| ssd.join(name(*at)).exists()).expect("the newest are there");
    for at in 0..90 {
        let (on, other) = if at < first_on_ssd { (&hdd, &ssd) } else { (&ssd, &hdd) };
        assert!(on.join(name(at)).exists() && !other.join(name(at)).exists(), "{at} of {first_on_ssd}");
        assert!(fs::read(pool.join(name(at))).unwrap() == bytes(at, MIB), "{at}");
    }
    let status = level(&pool);
    assert_eq!((status.of.as_str(), status.files_moved), ("ssd", first_on_ssd));
    assert!(pool.say(["status"]).contains("evict: \"ssd\""));
}

#[test]
fn at_night_everything_leaves_but_what_is_in_use() {
    let ([ssd, hdd], pool) = pool(r#"above = "0%", until = "0%", window = "00:00-24:00""#);
    fs::create_dir_all(pool.join("a/b")).unwrap();
    for at in 0..30 {
        fs::write(pool.join(format!("a/b/{at}")), bytes(at, 10_000 * at)).unwrap();
    }
    std::os::unix::fs::symlink("b/1", pool.join("a/link")).unwrap();
    fs::write(pool.join("a/two"), b"names").unwrap();
    fs::hard_link(pool.join("a/two"), pool.join("a/b/two")).unwrap();
    fs::write(pool.join("open"), b"open").unwrap();
    let open = File::open(pool.join("open")).unwrap();
    eventually("all else has left", || ssd.files() == [Path::new("open")] || ssd.files() == [ssd.join("open")]);
    eventually("that is told", || level(&pool).state == EvictState::Rests);
    assert_eq!(stays(&level(&pool), EvictStay::InUse), 1, "{:?}", level(&pool));
    assert_eq!(level(&pool).next, [] as [String; 0], "what left does not leave next");
    let outcome = pool.explain("open").outcome;
    assert!(outcome.contains("in the hours 00:00-24:00 (evict)"), "{outcome}");
    assert_eq!(fs::read_link(pool.join("a/link")).unwrap(), Path::new("b/1"));
    assert_eq!(fs::read(pool.join("a/b/two")).unwrap(), b"names");
    drop(open);
    pool.settle_closed();
    // Much that is new ends its rest.
    fs::write(pool.join("new"), bytes(1, 4 * MIB)).unwrap();
    // It may come by while the new one is being written: then both wait for the end of its rest, a minute.
    let both_left = poll(4 * TIMEOUT, || ssd.files().is_empty().then_some(()));
    assert!(both_left.is_some(), "{:?}", level(&pool));
    assert!(hdd.join("a/b/two").exists());
}

#[test]
fn a_file_of_four_bytes_does_not_satisfy_a_fill_level() {
    let ([ssd, _hdd], pool) = pool(r#"above = "60%", until = "50%""#);
    aged(&pool, "tiny", 1, 4, 30);
    aged(&pool, "large", 2, 20 * MIB, 20);
    aged(&pool, "newer", 3, 16 * MIB, 10);
    pool.expect_on("ssd", "newer");
    aged(&pool, "newest", 4, 8 * MIB, 1);
    for name in ["tiny", "large"] {
        pool.expect_on("hdd", name);
    }
    pool.expect_stays_on("ssd", "newer");
    eventually("it is below its low mark", || used(&ssd) <= 50.0 && level(&pool).state == EvictState::Below);
}

#[test]
fn what_left_comes_back_only_when_it_changes_itself() {
    let ([ssd, _hdd], mut pool) = pool(r#"above = "60%", until = "30%""#);
    for at in 0..4 {
        aged(&pool, &format!("{at}"), at, 11 * MIB, 10 - at as i64);
    }
    for at in ["0", "1", "2"] {
        pool.expect_on("hdd", at);
    }
    pool.settle_closed();
    assert_eq!(pool.enforce().files_moved, 0, "the list prefers the ssd, which has room for one");
    let outcome = pool.explain("0").outcome;
    assert!(outcome.contains("too full (evict)"), "{outcome}");
    pool.remount();
    fs::read(pool.join("0")).unwrap();
    assert_eq!(pool.enforce().files_moved, 0, "after another mount, and after a read");
    fs::remove_file(pool.join("3")).unwrap();
    eventually("its room is free", || used(&ssd) < 15.0);
    fs::write(pool.join("1"), b"short now").unwrap();
    pool.expect_on("ssd", "1");
    pool.expect_stays_on("hdd", "2");
    fs::rename(pool.join("0"), pool.join("renamed")).unwrap();
    pool.expect_on("ssd", "renamed");
}

#[test]
fn what_changes_comes_back_only_up_to_the_low_mark() {
    let ([ssd, _hdd], pool) = pool(r#"above = "60%", until = "30%""#);
    for at in 0..4 {
        aged(&pool, &format!("{at}"), at, 11 * MIB, 10 - at as i64);
    }
    pool.expect_on("hdd", "2");
    pool.settle_closed();
    eventually("their room is free", || used(&ssd) <= 30.0);
    for at in ["0", "1", "2"] {
        append(&pool.join(at), b"more").unwrap();
    }
    pool.settle_closed();
    assert_eq!(pool.enforce().files_failed, 0);
    assert!(used(&ssd) <= 30.0, "{}", used(&ssd));
}

#[test]
fn a_daemon_that_is_killed_while_files_leave_loses_none_and_brings_none_back() {
    let ([ssd, hdd], mut pool) = pool(r#"above = "0%", until = "0%""#);
    let name = |at: u64| format!("d{}/{at}", at % 3);
    for dir in 0..3 {
        fs::create_dir(pool.join(format!("d{dir}"))).unwrap();
    }
    let count = 600;
    for at in 0..count {
        fs::write(pool.join(name(at)), bytes(at, 20_000)).unwrap();
    }
    assert!(poll(TIMEOUT, || (hdd.files().len() > 50).then_some(())).is_some(), "{:?}", level(&pool));
    pool.kill_9();
    pool.start();
    for at in 0..count {
        assert!(fs::read(pool.join(name(at))).unwrap() == bytes(at, 20_000), "{at}");
    }
    let open = name(count - 1);
    let file = File::open(pool.join(&open)).unwrap();
    let others_left =
        poll(4 * TIMEOUT, || (ssd.files().len() <= 1 && level(&pool).state == EvictState::Rests).then_some(()));
    assert!(others_left.is_some(), "{:?}", level(&pool));
    drop(file);
    // A file that was in use when its turn came leaves after a rest of a minute, although nobody uses the pool.
    let all_left = poll(4 * TIMEOUT, || ssd.files().is_empty().then_some(()));
    assert!(all_left.is_some(), "{:?}", level(&pool));
    assert_eq!(hdd.files().len(), count as usize);
    pool.settle_closed();
    // Moves that were under way when the daemon was killed may have lost their marks, and no others.
    let back = pool.enforce().files_moved;
    assert!(back <= 1, "{back} files came back");
}

#[test]
fn outside_of_its_hours_a_fill_level_waits_unless_less_than_min_free_is_free() {
    let today: u64 = String::from_utf8(run("date", ["+%u"]).stdout).unwrap().trim().parse().unwrap();
    let other_day = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"][((today + 2) % 7) as usize];
    let evict = format!(
        "evict = {{ above = \"50%\", until = \"40%\", window = \"{other_day} 01:00-02:00\" }}\nmin_free = \"30%\""
    );
    let ([ssd, _hdd], pool) = pool_with(&evict);
    fs::write(pool.join("old"), bytes(1, 24 * MIB)).unwrap();
    fs::write(pool.join("new"), bytes(2, 12 * MIB)).unwrap();
    eventually("it waits", || level(&pool).state == EvictState::AwaitsHours);
    std::thread::sleep(Duration::from_secs(6));
    assert_eq!((level(&pool).files_moved, used(&ssd) > 50.0), (0, true));
    append(&pool.join("new"), &bytes(3, 8 * MIB)).unwrap();
    pool.expect_on("hdd", "old");
    pool.expect_stays_on("ssd", "new");
    assert!(pool.log().contains("outside of the hours of its `evict`"), "{}", pool.log());
}

#[test]
fn what_may_not_leave_is_counted() {
    let disks = [Disk::ext4(64 * MIB), Disk::ext4(64 * MIB)];
    let secrets = "[[rule]]\nname = \"secrets\"\nwhen = { path = \"/secret/**\" }\nto = [\"ssd\"]\n";
    let pool = Pool::builder()
        .branch_with("ssd", disks[0].path(), "evict = { above = \"20%\", until = \"10%\" }")
        .branch("hdd", disks[1].path())
        .rules(&(secrets.to_owned() + SSD_FIRST))
        .mount();
    let means = |path: &str| pool.explain(path).outcome;
    fs::write(pool.join("small"), b"small").unwrap();
    assert!(means("small").contains("it may leave for hdd above 20% of \"ssd\""), "{}", means("small"));
    fs::create_dir(pool.join("secret")).unwrap();
    fs::write(pool.join("secret/a"), bytes(1, 12 * MIB)).unwrap();
    fs::write(pool.join("free"), bytes(2, 3 * MIB)).unwrap();
    pool.expect_on("hdd", "free");
    eventually("it rests", || level(&pool).state == EvictState::Rests);
    assert_eq!(stays(&level(&pool), EvictStay::Nowhere), 1);
    pool.expect_stays_on("ssd", "secret/a");
    assert!(means("secret/a").contains("it may not leave above 20% of \"ssd\""), "{}", means("secret/a"));
}

#[test]
fn a_branch_that_is_too_full_is_told_so_before_anybody_has_looked_for_files() {
    let ([ssd, _hdd], pool) = pool(r#"above = "80%", until = "70%""#);
    eventually("the first look has been", || level(&pool).state == EvictState::Below);
    // The next look is within five seconds.
    fs::write(ssd.join("past the mount"), bytes(1, 50 * MIB)).unwrap();
    pool.settle_room();
    let told = level(&pool);
    assert!(told.used.0 * 100 > told.total.0 * 80 && told.state != EvictState::Below, "{told:?}");
}

/// What the fill level of the first branch says from now on; it is in force at once.
fn reload(pool: &mut Pool, keys: &str) {
    pool.write_branch("ssd", keys);
    pool.say(["rules", "reload"]);
}

/// A pool over file systems whose space is counted to the page, and whose ssd has no fill level yet.
fn unlimited() -> ([Disk; 3], Pool) {
    let disks = [Disk::tmpfs(64 * MIB), Disk::tmpfs(128 * MIB), Disk::tmpfs(128 * MIB)];
    let mut builder = Pool::builder();
    for (name, disk) in ["ssd", "hdd", "second"].iter().zip(&disks) {
        builder = builder.branch(name, disk.path());
    }
    let rules = SSD_FIRST.replace("\"hdd\"]", "\"hdd\", \"second\"]");
    (disks, builder.rules(&rules).mount())
}

/// Sets how many days ago a file was read and changed.
fn set_days(pool: &Pool, name: &str, read: i64, changed: i64) {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() as i64;
    let ago = |days: i64| Timespec { tv_sec: now - days * 86_400, tv_nsec: 0 };
    let times = Timestamps { last_access: ago(read), last_modification: ago(changed) };
    rustix::fs::utimensat(CWD, pool.join(name), &times, AtFlags::empty()).unwrap();
}

#[test]
fn a_fill_level_that_is_reloaded_is_in_force_at_once() {
    let (_disks, mut pool) = pool(r#"above = "0%", until = "0%", min_age = "1d""#);
    fs::write(pool.join("file"), bytes(1, MIB)).unwrap();
    pool.settle_closed();
    eventually("it rests", || level(&pool).state == EvictState::Rests);
    assert_eq!(pool.found_on("file"), ["ssd"], "it is too young");
    reload(&mut pool, r#"evict = { above = "0%", until = "0%" }"#);
    // A rest lasts a minute.
    let left = poll(TIMEOUT / 2, || (pool.found_on("file") == ["hdd"]).then_some(()));
    assert!(left.is_some(), "{:?}", level(&pool));
}

#[test]
fn a_list_that_is_reloaded_lets_files_leave_at_once() {
    let (_disks, mut pool) = pool(r#"above = "0%", until = "0%""#);
    pool.load_rules("[[rule]]\nwhen = {}\nto = [\"ssd\"]\n");
    fs::write(pool.join("file"), bytes(1, MIB)).unwrap();
    eventually("it rests", || level(&pool).state == EvictState::Rests && stays(&level(&pool), EvictStay::Nowhere) == 1);
    pool.load_rules(SSD_FIRST);
    let left = poll(TIMEOUT / 2, || (pool.found_on("file") == ["hdd"]).then_some(()));
    assert!(left.is_some(), "{:?}", level(&pool));
}

#[test]
fn each_order_has_another_file_that_leaves_first() {
    for (order, first) in [("largest", "large"), ("least-recently-used", "unread"), ("oldest", "old")] {
        let (_disks, mut pool) = unlimited();
        for (name, mib, read, changed) in [("large", 16, 1, 1), ("unread", 8, 30, 2), ("old", 8, 1, 30)] {
            fs::write(pool.join(name), bytes(mib, mib * MIB)).unwrap();
            set_days(&pool, name, read, changed);
        }
        pool.settle_closed();
        reload(&mut pool, &format!("evict = {{ above = \"45%\", until = \"40%\", order = \"{order}\" }}"));
        pool.expect_on("hdd", first);
        eventually("it has ended", || level(&pool).state == EvictState::Below);
        for other in ["large", "unread", "old"].into_iter().filter(|other| *other != first) {
            pool.expect_stays_on("ssd", other);
        }
    }
}

#[test]
fn only_and_min_age_say_what_leaves_and_to_where() {
    let (_disks, mut pool) = unlimited();
    fs::create_dir(pool.join("films")).unwrap();
    for (name, days) in [("films/old", 3), ("films/new", 0), ("letter", 3)] {
        aged(&pool, name, 1, MIB, days);
    }
    pool.settle_closed();
    let evict = r#"above = "0%", until = "0%", only = { path = "/films/**" }, min_age = "1d", to = ["second"]"#;
    reload(&mut pool, &format!("evict = {{ {evict} }}"));
    pool.expect_on("second", "films/old");
    eventually("every file that may leave has left", || level(&pool).state == EvictState::Rests);
    for other in ["films/new", "letter"] {
        pool.expect_stays_on("ssd", other);
    }
}

#[test]
fn what_came_recently_stays_unless_less_than_min_free_is_free() {
    let (_disks, mut pool) = unlimited();
    pool.load_rules("[[rule]]\nwhen = {}\nto = [\"hdd\"]\n");
    fs::write(pool.join("file"), bytes(1, 8 * MIB)).unwrap();
    pool.settle_closed();
    let stay = "min_stay = \"1h\"\n";
    reload(&mut pool, stay);
    pool.load_rules(SSD_FIRST);
    pool.enforce();
    pool.expect_on("ssd", "file");
    let evict = "evict = { above = \"0%\", until = \"0%\" }\n";
    reload(&mut pool, &format!("{stay}{evict}"));
    eventually("it is held", || stays(&level(&pool), EvictStay::Held) == 1);
    pool.expect_stays_on("ssd", "file");
    reload(&mut pool, &format!("{stay}{evict}min_free = \"60MiB\""));
    let left = poll(TIMEOUT / 2, || (pool.found_on("file") == ["hdd"]).then_some(()));
    assert!(left.is_some(), "{:?}", level(&pool));
}

/// Two small disks, a group with a fill level of its own, in front of a large one.
fn grouped(evict: &str) -> ([Disk; 3], Pool) {
    let disks = [Disk::tmpfs(32 * MIB), Disk::tmpfs(32 * MIB), Disk::tmpfs(128 * MIB)];
    let mut builder = Pool::builder().keys("probe_interval = \"1s\"");
    for (name, disk) in ["a", "b", "hdd"].iter().zip(&disks) {
        builder = builder.branch(name, disk.path());
    }
    let group = format!("[[group]]\nname = \"fast\"\nbranches = [\"a\", \"b\"]\nevict = {{ {evict} }}\n");
    (disks, builder.rules(&(group + &SSD_FIRST.replace("\"ssd\"", "\"fast\""))).mount())
}

#[test]
fn a_group_is_as_full_as_its_members_together() {
    let ([a, b, _hdd], pool) = grouped(r#"above = "60%", until = "40%""#);
    // A member that is nearly full, and an empty one: less than half of both.
    for at in 0..3 {
        fs::write(a.join(format!("{at}")), bytes(at, 9 * MIB)).unwrap();
        set_days(&pool, &format!("{at}"), 0, 30 - at as i64);
    }
    pool.settle_room();
    fs::write(pool.join("young"), bytes(4, 8 * MIB)).unwrap();
    pool.expect_stays_on("b", "young");
    assert_eq!((level(&pool).state, level(&pool).files_moved), (EvictState::Below, 0));
    fs::write(pool.join("younger"), bytes(5, 8 * MIB)).unwrap();
    for old in ["0", "1"] {
        pool.expect_on("hdd", old);
    }
    eventually("it has ended", || level(&pool).state == EvictState::Below);
    assert_eq!((pool.found_on("2"), b.files().len(), level(&pool).of), (vec!["a".to_owned()], 2, "fast".to_owned()));
}

#[test]
fn a_group_with_a_member_away_goes_by_the_others() {
    let ([_a, b, _hdd], pool) = grouped(r#"above = "60%", until = "40%""#);
    b.vanish();
    eventually("it is offline", || !pool.is_online("b"));
    for at in 0..3 {
        aged(&pool, &format!("{at}"), at, 7 * MIB, 30 - at as i64);
    }
    pool.expect_on("hdd", "0");
    eventually("it has ended", || level(&pool).state == EvictState::Below);
    let status = level(&pool);
    assert_eq!((status.total.0, pool.found_on("2")), (32 * MIB, vec!["a".to_owned()]), "{status:?}");
}

#[test]
fn at_night_pipes_sockets_and_devices_leave_too() {
    let ([ssd, _hdd, _second], mut pool) = unlimited();
    nix::unistd::mkfifo(&pool.join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    drop(std::os::unix::net::UnixListener::bind(pool.join("socket")).unwrap());
    let mode = rustix::fs::Mode::RUSR;
    rustix::fs::mknodat(CWD, pool.join("null"), rustix::fs::FileType::CharacterDevice, mode, rustix::fs::makedev(1, 3))
        .unwrap();
    fs::write(pool.join("file"), "x").unwrap();
    pool.settle_closed();
    reload(&mut pool, "evict = { above = \"0%\", until = \"0%\" }");
    for name in ["pipe", "socket", "null", "file"] {
        pool.expect_on("hdd", name);
    }
    assert_eq!(ssd.files(), [] as [std::path::PathBuf; 0]);
}

#[test]
fn a_season_leaves_for_one_disk() {
    let disks = [64, 64, 64].map(|size| Disk::tmpfs(size * MIB));
    let mut builder = Pool::builder();
    for (name, disk) in ["ssd", "a", "b"].iter().zip(&disks) {
        builder = builder.branch(name, disk.path());
    }
    let group = "[[group]]\nname = \"hdd\"\nbranches = [\"a\", \"b\"]\nspread = \"random\"\ntogether = \"/TV/*/*\"\n";
    let mut pool = builder.rules(&(group.to_owned() + SSD_FIRST)).mount();
    let seasons = ["TV/Show/S1", "TV/Show/S2"];
    let episodes: Vec<String> =
        seasons.iter().flat_map(|at| (0..4).map(move |number| format!("{at}/{number}"))).collect();
    for season in seasons {
        fs::create_dir_all(pool.join(season)).unwrap();
    }
    for episode in &episodes {
        fs::write(pool.join(episode), bytes(1, MIB)).unwrap();
    }
    pool.settle_closed();
    reload(&mut pool, "evict = { above = \"0%\", until = \"0%\" }");
    eventually("all have left", || episodes.iter().all(|episode| pool.found_on(episode) != ["ssd"]));
    let places: Vec<String> = episodes.iter().map(|episode| pool.found_on(episode).concat()).collect();
    assert!(places.chunks(4).all(|season| season.iter().all(|on| *on == season[0])), "{places:?}");
}
