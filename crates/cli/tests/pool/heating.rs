//! Heat: files that are opened often come to the fast branch, and the coldest leave it first.

use std::fs::{self, File};

use umbrella_fs::control::protocol::EvictState;
use umbrella_units::ByteSize;

use crate::support::disk::Disk;
use crate::support::pool::Pool;
use crate::support::{MIB, bytes, eventually};

/// Warm files go to `ssd`, and all others stay where they are.
const WARM: &str = r#"
[[rule]]
name = "warm"
when = { heat = "> 2", hysteresis = 1 }
to = ["ssd", "hdd"]
"#;

/// A small ssd and a large disk, on which files begin.
fn pool(heat: &str, evict: &str) -> (Pool, [Disk; 2]) {
    let disks = [Disk::ext4(64 * MIB), Disk::ext4(256 * MIB)];
    let keys = if evict.is_empty() { String::new() } else { format!("evict = {{ {evict} }}") };
    let pool = Pool::builder()
        .branch_with("hdd", disks[1].path(), "")
        .branch_with("ssd", disks[0].path(), &keys)
        .default(&["hdd", "ssd"])
        // The heat is written down every twelfth round.
        .keys("probe_interval = \"100ms\"\n")
        .rules(&format!("[heat]\n{heat}\n{WARM}"))
        .mount();
    (pool, disks)
}

fn open(pool: &Pool, name: &str, times: usize) {
    for _ in 0..times {
        drop(File::open(pool.join(name)).unwrap());
    }
    pool.settle_closed();
}

fn heat(pool: &Pool, name: &str) -> f64 {
    let facts = pool.explain(name).facts;
    facts.iter().find(|(fact, _)| fact == "heat").unwrap().1.parse().unwrap()
}

#[test]
fn a_file_that_heats_up_comes_to_the_ssd_and_others_stay() {
    let (pool, _disks) = pool("neighbours = 0", "");
    for name in ["a", "b"] {
        fs::write(pool.join(name), bytes(1, MIB)).unwrap();
    }
    open(&pool, "a", 2);
    pool.expect_stays_on("hdd", "a");
    assert!((1.9..=2.0).contains(&heat(&pool, "a")), "{}", heat(&pool, "a"));
    open(&pool, "a", 2);
    pool.expect_on("ssd", "a");
    pool.expect_stays_on("hdd", "b");
    assert!(fs::read(pool.join("a")).unwrap() == bytes(1, MIB));
    eventually("it is counted", || pool.metric("umbrella_promotions_done_count") == 1);
    let status = pool.status().heat.unwrap();
    assert_eq!((status.files, status.warm, status.files_promoted), (1, Some(1), 1));
    assert_eq!((status.bytes_promoted, status.files_evicted), (ByteSize(MIB), 0));
    let text = pool.say(["status"]);
    assert!(text.contains("heat: opens of 1 file are counted, 1 of them warm; 1 file (1 MiB) came"), "{text}");
    assert_eq!(pool.json(["status"])[0]["heat"]["warm"], 1);
    let text = pool.say(["explain", "--what-if", "heat=6,size=1MiB,path=/x"]);
    assert!(text.contains("heat is 6"), "{text}");
}

/// Reads a file to its end, past no cache of the kernel: it has been dropped.
fn read_cold(pool: &Pool, name: &str) {
    let file = File::open(pool.join(name)).unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    std::io::copy(&mut &file, &mut std::io::sink()).unwrap();
    drop(file);
    pool.settle_closed();
}

#[test]
fn bytes_that_the_daemon_sees_heat_a_file_by_its_share_and_those_in_passthrough_do_not() {
    for passthrough in [false, true] {
        let disk = Disk::ext4(256 * MIB);
        let keys = format!("passthrough = {passthrough}\nheadroom = \"1MiB\"");
        let pool = Pool::builder().branch_with("d", disk.path(), &keys).rules("[heat]\n").mount();
        fs::write(pool.join("large"), bytes(1, 128 * MIB)).unwrap();
        fs::write(pool.join("small"), bytes(2, MIB)).unwrap();
        pool.settle_closed();
        assert_eq!(pool.branch_status("d").abilities.passthrough, passthrough);
        let written = heat(&pool, "large");
        assert_eq!(written > 0.9, !passthrough, "{written}");
        read_cold(&pool, "large");
        let read = heat(&pool, "large") - written;
        assert_eq!(read > 1.9, !passthrough, "an open, and as many bytes as the file has: {read}");
        assert!(read > 0.9 && read < 2.1, "{read}");
        for _ in 0..2 {
            read_cold(&pool, "small");
        }
        assert!((1.9..=2.0).contains(&heat(&pool, "small")), "{}", heat(&pool, "small"));
    }
}

#[test]
fn a_file_that_a_fill_level_moved_returns_when_it_heats_up() {
    let (pool, [ssd, _hdd]) = pool("neighbours = 0", r#"above = "70%", until = "50%", order = "coldest""#);
    for at in 0..5 {
        let name = format!("{at}");
        fs::write(pool.join(&name), bytes(at, 10 * MIB)).unwrap();
        // All are warm, the first least.
        open(&pool, &name, 4 + at as usize);
        eventually("it is at rest", || !matches!(pool.status().evicts[0].state, EvictState::Moving));
    }
    // The last ones do not come any more: the ssd is at its low mark.
    let on_ssd = || (0..5).filter(|at| ssd.join(format!("{at}")).exists()).count();
    assert!((1..=2).contains(&on_ssd()), "{}", on_ssd());
    // Who fills it with new files sends all away.
    fs::write(ssd.join("past the mount"), bytes(9, 32 * MIB)).unwrap();
    eventually("all have left", || on_ssd() == 0 && !matches!(pool.status().evicts[0].state, EvictState::Moving));
    fs::remove_file(ssd.join("past the mount")).unwrap();
    assert_eq!(pool.enforce().files_failed, 0);
    // There is room, when the removed file is let go: for the warmest first, whatever the way of the walk.
    eventually("the warmest is there again", || {
        pool.enforce();
        ssd.join("4").exists()
    });
}

#[test]
fn a_warm_file_that_a_fill_level_moved_rests_until_it_is_opened() {
    let (mut pool, [ssd, _hdd]) = pool("neighbours = 0", r#"above = "70%", until = "50%", order = "coldest""#);
    for name in ["a", "b"] {
        fs::write(pool.join(name), bytes(1, 10 * MIB)).unwrap();
        open(&pool, name, 4);
        pool.expect_on("ssd", name);
    }
    fs::write(ssd.join("past the mount"), bytes(9, 32 * MIB)).unwrap();
    for name in ["a", "b"] {
        pool.expect_on("hdd", name);
    }
    fs::remove_file(ssd.join("past the mount")).unwrap();
    pool.settle_room();
    // There is room, and both are warm: nothing comes back by itself, also after another mount.
    for _ in 0..2 {
        assert_eq!(pool.enforce().files_moved, 0);
        pool.remount();
    }
    let said = pool.explain("a").outcome;
    assert!(said.contains("stays until it changes or is opened"), "{said}");
    open(&pool, "a", 1);
    pool.expect_on("ssd", "a");
    assert_eq!(pool.enforce().files_moved, 0);
    pool.expect_stays_on("hdd", "b");
}

#[test]
fn the_coldest_leaves_first() {
    let disks = [Disk::ext4(64 * MIB), Disk::ext4(256 * MIB)];
    let pool = Pool::builder()
        .branch_with("ssd", disks[0].path(), r#"evict = { above = "70%", until = "50%", order = "coldest" }"#)
        .branch("hdd", disks[1].path())
        .default(&["ssd", "hdd"])
        .mount();
    for (at, opens) in [(0, 2), (1, 0), (2, 1)] {
        let name = format!("{at}");
        fs::write(pool.join(&name), bytes(at, 10 * MIB)).unwrap();
        open(&pool, &name, opens);
    }
    fs::write(pool.join("3"), bytes(3, 15 * MIB)).unwrap();
    open(&pool, "3", 1);
    for (name, on) in [("1", "hdd"), ("0", "ssd")] {
        pool.expect_on(on, name);
    }
    pool.expect_stays_on("ssd", "0");
    let status = pool.status().heat.unwrap();
    assert_eq!((status.warm, status.files_promoted), (None, 0), "no rule wants warm files");
    eventually("it is counted", || pool.status().heat.unwrap().files_evicted == pool.status().evicts[0].files_moved);
    assert!(pool.say(["status"]).contains("left as the coldest"));
}

#[test]
fn the_next_files_of_the_directory_come_along() {
    let (pool, _disks) = pool("neighbours = 2", "");
    fs::create_dir(pool.join("season")).unwrap();
    for episode in 1..=5 {
        fs::write(pool.join(format!("season/e{episode}")), bytes(episode, 100_000)).unwrap();
    }
    open(&pool, "season/e2", 4);
    for name in ["season/e2", "season/e3", "season/e4"] {
        pool.expect_on("ssd", name);
    }
    for name in ["season/e1", "season/e5"] {
        pool.expect_stays_on("hdd", name);
    }
    assert!(pool.enforce().files_moved == 0, "they stay where they came");
}

#[test]
fn the_next_file_of_a_number_is_the_one_with_the_next_number() {
    let (pool, _disks) = pool("neighbours = 2", "");
    for episode in [1, 2, 3, 9, 10, 11, 12, 20] {
        fs::write(pool.join(format!("episode {episode}")), bytes(episode, 10_000)).unwrap();
    }
    open(&pool, "episode 9", 4);
    for name in ["episode 9", "episode 10", "episode 11"] {
        pool.expect_on("ssd", name);
    }
    for name in ["episode 1", "episode 2", "episode 12", "episode 20"] {
        pool.expect_stays_on("hdd", name);
    }
}

#[test]
fn heat_lasts_over_a_mount_and_what_was_written_down_over_a_kill() {
    let (mut pool, [ssd, hdd]) = pool("neighbours = 0", "");
    for name in ["a", "b"] {
        fs::write(pool.join(name), bytes(1, 10_000)).unwrap();
        open(&pool, name, 2);
    }
    pool.remount();
    assert!((1.9..=2.0).contains(&heat(&pool, "a")), "{}", heat(&pool, "a"));
    // Another name is the same file.
    fs::hard_link(pool.join("b"), pool.join("second")).unwrap();
    fs::rename(pool.join("a"), pool.join("renamed")).unwrap();
    assert!((1.9..=2.0).contains(&heat(&pool, "second")), "{}", heat(&pool, "second"));
    // It comes to the ssd, which keeps its heat from then on; the hdd still has what it was before.
    let kept = ssd.join(".umbrella/heat");
    assert!(!kept.exists() && hdd.join(".umbrella/heat").exists());
    open(&pool, "renamed", 1);
    pool.expect_on("ssd", "renamed");
    eventually("it is written down", || kept.exists());
    pool.kill_9();
    pool.start();
    assert!((2.9..=3.0).contains(&heat(&pool, "renamed")), "{}", heat(&pool, "renamed"));
    // One that is damaged costs the heat and nothing else.
    pool.stop();
    for kept in [kept, hdd.join(".umbrella/heat")] {
        fs::write(kept, b"UMBRHEATnonsense").unwrap();
    }
    pool.start();
    assert!(heat(&pool, "renamed") == 0.0, "{}", heat(&pool, "renamed"));
    assert!(fs::read(pool.join("renamed")).unwrap() == bytes(1, 10_000));
}

#[test]
fn the_next_file_with_the_number_of_a_deleted_one_is_cold() {
    let (pool, _disks) = pool("neighbours = 0", "");
    fs::write(pool.join("a"), b"a").unwrap();
    open(&pool, "a", 2);
    for at in 0..50 {
        fs::remove_file(pool.join("a")).unwrap();
        fs::write(pool.join("a"), bytes(at, 10)).unwrap();
        assert!(heat(&pool, "a") == 0.0, "{}", heat(&pool, "a"));
    }
}

#[test]
fn no_more_moves_in_a_day_than_max_move_and_one_file() {
    let (mut pool, [ssd, _hdd]) = pool("neighbours = 0\nmax_move = \"1KiB/day\"", "");
    for at in 0..4 {
        fs::write(pool.join(format!("{at}")), bytes(at, MIB)).unwrap();
        open(&pool, &format!("{at}"), 3 + at as usize);
    }
    eventually("one has come", || (0..4).any(|at| ssd.join(format!("{at}")).exists()));
    let count = || (0..4).filter(|at| ssd.join(format!("{at}")).exists()).count();
    pool.enforce();
    assert_eq!(count(), 1);
    let waits = (0..4).map(|at| pool.explain(format!("{at}")).outcome).any(|said| said.contains("max_move"));
    assert!(waits, "explain says why the others wait");
    pool.remount();
    pool.enforce();
    assert_eq!(count(), 1, "what was moved counts after another mount too");
    let text = pool.say(["rules", "reload", "--dry-run"]);
    assert!(!text.contains("heat."), "{text}");
    pool.write_rules(&format!("[heat]\nneighbours = 0\nmax_move = \"unlimited\"\n{WARM}"));
    let text = pool.say(["rules", "reload"]);
    assert!(text.contains("heat.max_move"), "{text}");
    pool.enforce();
    for at in 0..4 {
        pool.expect_on("ssd", format!("{at}"));
    }
}

#[test]
fn without_a_rule_on_heat_nothing_is_counted_unless_the_section_asks() {
    let disks = [Disk::ext4(64 * MIB)];
    for (section, counted) in [("", false), ("[heat]\n", true)] {
        let pool = Pool::builder().branch("d", disks[0].path()).rules(section).mount();
        fs::write(pool.join("a"), b"a").unwrap();
        open(&pool, "a", 2);
        let explained = pool.explain("a");
        assert_eq!(explained.facts.iter().any(|(name, _)| name == "heat"), counted, "{section:?}");
        assert!(!counted || heat(&pool, "a") > 0.0);
        assert_eq!(pool.status().heat.is_some(), counted);
        assert_eq!(pool.say(["status"]).contains("heat:"), counted);
    }
}
