//! The enforcer, and what keeps files from moving too often.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, chown};
use std::time::{Duration, Instant};

use umbrella_fs::control::protocol::MoveOutcome;

use crate::support::pool::{Pool, text};
use crate::support::{KIB, MIB, bytes, eventually, poll};
use crate::{LARGE_FILES, append, disks, last_read_days_ago, names, pool};

const COLD_FILES: &str = r#"
[[rule]]
name = "cold files"
when = { atime = "> 30d" }
to = ["cold"]
"#;

#[test]
fn the_enforcer_moves_what_was_not_read_for_long_and_touches_no_access_time() {
    let mut pool = pool(["warm", "cold"], "");
    fs::create_dir(pool.join("dir")).unwrap();
    for i in 0..20 {
        let path = pool.join(format!("dir/{i}"));
        fs::write(&path, bytes(i, 10_000)).unwrap();
        last_read_days_ago(&path, if i % 2 == 0 { 40 } else { 5 });
    }
    last_read_days_ago(&pool.join("dir"), 50);
    pool.settle();
    pool.pool.load_rules(COLD_FILES);
    let times = || -> Vec<_> {
        let files = (0..20).map(|i| pool.join(format!("dir/{i}")));
        files
            .chain([pool.join("dir")])
            .map(|path| fs::metadata(path).unwrap())
            .map(|m| (m.atime(), m.atime_nsec()))
            .collect()
    };
    let before = times();
    let summary = pool.enforce();
    assert_eq!((summary.files_seen, summary.files_moved, summary.files_failed), (20, 10, 0), "{summary:?}");
    assert_eq!(summary.bytes_moved.0, 100_000);
    for i in 0..20 {
        pool.expect_on(if i % 2 == 0 { "cold" } else { "warm" }, format!("dir/{i}"));
    }
    assert_eq!(times(), before, "access times, of the moved and of the others");
    let again = pool.enforce();
    assert_eq!((again.files_seen, again.files_moved), (20, 0), "the second walk finds everything in its place");
    assert_eq!(times(), before);

    fs::read(pool.join("dir/0")).unwrap();
    pool.enforce();
    pool.expect_on("warm", "dir/0");
}

#[test]
fn a_dry_run_says_what_would_move_and_moves_nothing() {
    let mut pool = pool(["warm", "cold"], "");
    for (name, days) in [("old", 100), ("new", 1)] {
        fs::write(pool.join(name), bytes(1, 5_000)).unwrap();
        last_read_days_ago(&pool.join(name), days);
    }
    pool.settle();
    pool.pool.load_rules(COLD_FILES);
    let (events, summary) = pool.enforce_dry_run();
    assert_eq!((summary.files_seen, summary.files_moved, summary.bytes_moved.0), (2, 1, 5_000));
    let events: Vec<_> = events
        .iter()
        .map(|event| (event.path.as_str(), event.from.as_str(), event.to.as_str(), event.rule.as_str(), event.outcome))
        .collect();
    assert_eq!(events, [("/old", "warm", "cold", "cold files", MoveOutcome::WouldMove)]);
    assert_eq!(pool.found_on("old"), ["warm"]);
    assert_eq!(pool.moves(), 0);
    let for_people = pool.say(["enforce", "--dry-run"]);
    assert!(for_people.contains("/old") && !for_people.contains("/new"), "{for_people}");
}

#[test]
fn a_file_open_for_writing_is_busy_and_moves_later() {
    let pool = pool(["warm", "cold"], COLD_FILES);
    fs::write(pool.join("file"), "x").unwrap();
    let writer = OpenOptions::new().append(true).open(pool.join("file")).unwrap();
    last_read_days_ago(&pool.join("file"), 40);
    let summary = pool.enforce();
    assert_eq!((summary.files_moved, summary.files_busy), (0, 1), "{summary:?}");
    assert_eq!(pool.found_on("file"), ["warm"]);
    drop(writer);
    pool.settle();
    pool.enforce();
    pool.expect_on("cold", "file");
}

/// Takes a minute and a half for the file of [`slow_walk`].
const SLOWLY: &str = "[enforce]\nbandwidth = \"128KiB\"";

/// Starts a walk that moves a file of 12 MiB, and gives the running command once the file is being copied.
fn slow_walk(pool: &mut Pool) -> std::process::Child {
    let data = bytes(1, 12 * MIB);
    fs::write(pool.join("file"), &data).unwrap();
    last_read_days_ago(&pool.join("file"), 40);
    pool.settle();
    pool.load_rules(COLD_FILES);
    let walk = pool.command().args(["enforce", "--json"]).stdout(std::process::Stdio::null()).spawn().unwrap();
    let copies = pool.on("cold", ".umbrella/tmp");
    eventually("it is being copied", || !names(&copies).is_empty());
    walk
}

#[test]
fn a_writer_that_opens_during_the_copy_cancels_it() {
    let (_disks, builder) = disks(["warm", "cold"]);
    let mut pool = builder.keys(SLOWLY).mount();
    let mut walk = slow_walk(&mut pool);
    assert!(walk.try_wait().unwrap().is_none(), "the copy takes longer");
    let start = Instant::now();
    let mut file = OpenOptions::new().append(true).open(pool.join("file")).unwrap();
    file.write_all(b"written meanwhile").unwrap();
    assert!(start.elapsed() < Duration::from_secs(60), "the writer does not wait for the copy: {:?}", start.elapsed());
    let ended = poll(Duration::from_secs(60), || walk.try_wait().unwrap());
    assert!(ended.is_some_and(|status| status.success()), "the walk goes on without the file");
    let mut expected = bytes(1, 12 * MIB);
    expected.extend(b"written meanwhile");
    assert!(fs::read(pool.join("file")).unwrap() == expected);
    assert_eq!(pool.found_on("file"), ["warm"]);
    drop(file);
    pool.settle();
    assert!(fs::read(pool.join("file")).unwrap() == expected);
    assert_eq!(pool.found_on("file").len(), 1);
}

#[test]
fn a_walk_that_is_interrupted_drops_what_it_was_copying() {
    let (disks, builder) = disks(["warm", "cold"]);
    let mut pool = builder.keys(SLOWLY).mount();
    let mut walk = slow_walk(&mut pool);
    let copies = || names(&disks[1].join(".umbrella/tmp"));
    assert_eq!(copies().len(), 1, "it is being copied");
    rustix::process::kill_process(rustix::process::Pid::from_child(&walk), rustix::process::Signal::TERM).unwrap();
    walk.wait().unwrap();
    eventually("what was copied is dropped", || copies().is_empty());
    pool.expect_stays_on("warm", "file");
    assert!(fs::read(pool.join("file")).unwrap() == bytes(1, 12 * MIB));
    assert!(pool.log().contains("the walk was stopped"), "{}", pool.log());
}

#[test]
fn a_drain_that_is_stopped_ends_and_leaves_the_rest_where_it_is() {
    let (disks, builder) = disks(["a", "b"]);
    for i in 0..10 {
        fs::write(disks[1].join(format!("{i}")), bytes(i, 2 * MIB)).unwrap();
    }
    let pool = builder.keys("[enforce]\nbandwidth = \"512KiB\"").mount();
    let mut drain = pool.command().args(["branch", "drain", "b"]).stderr(std::process::Stdio::piped()).spawn().unwrap();
    crate::support::eventually("a file has moved", || pool.moves() > 0);
    pool.say(["branch", "drain", "b", "--stop"]);
    let ended = poll(Duration::from_secs(60), || drain.try_wait().unwrap());
    assert!(ended.is_some_and(|status| !status.success()), "the drain has not done what it was asked to: {ended:?}");
    let said = std::io::read_to_string(drain.stderr.take().unwrap()).unwrap();
    assert!(said.contains("was ended by another command"), "{said}");
    assert!(!pool.branch_status("b").draining);
    assert!(!disks[1].files().is_empty(), "what had not moved stays");
}

#[test]
fn readers_read_on_and_names_change_during_the_copy() {
    let (_disks, builder) = disks(["warm", "cold"]);
    let mut pool = builder.keys("[enforce]\nbandwidth = \"4MiB\"").mount();
    let mut walk = slow_walk(&mut pool);
    assert!(fs::read(pool.join("file")).unwrap() == bytes(1, 12 * MIB), "a reader during the copy");
    fs::rename(pool.join("file"), pool.join("renamed")).unwrap();
    assert!(poll(Duration::from_secs(60), || walk.try_wait().unwrap()).is_some());
    pool.settle();
    assert_eq!(names(&pool.mount_point()), ["renamed"]);
    assert!(fs::read(pool.join("renamed")).unwrap() == bytes(1, 12 * MIB));
    assert_eq!(pool.found_on("renamed").len(), 1, "one whole copy");
    assert_eq!(pool.found_on("file").len(), 0);
}

#[test]
fn a_file_removed_during_the_copy_stays_removed() {
    let (disks, builder) = disks(["warm", "cold"]);
    let mut pool = builder.keys("[enforce]\nbandwidth = \"4MiB\"").mount();
    let mut walk = slow_walk(&mut pool);
    fs::remove_file(pool.join("file")).unwrap();
    assert!(poll(Duration::from_secs(60), || walk.try_wait().unwrap()).is_some());
    pool.settle();
    assert_eq!(names(&pool.mount_point()), Vec::<String>::new());
    for disk in &disks {
        assert_eq!(disk.files().len(), 0);
        eventually("its space is free again", || disk.free() > 31 * MIB);
    }
}

#[test]
fn the_bandwidth_is_limited() {
    let mut pool = pool(["warm", "cold"], "");
    for i in 0..6 {
        fs::write(pool.join(format!("{i}")), bytes(i, MIB)).unwrap();
        last_read_days_ago(&pool.join(format!("{i}")), 40);
    }
    pool.settle();
    pool.pool.load_rules(COLD_FILES);
    let start = Instant::now();
    pool.say(["enforce", "--bandwidth", "2MiB"]);
    let took = start.elapsed();
    assert!(took >= Duration::from_millis(1_800), "6 MiB at 2 MiB a second took {took:?}");
    assert_eq!(pool.moves(), 6);
}

/// Grows and shrinks a file around 64 KiB; how often it moved.
fn oscillate(pool: &Pool) -> u64 {
    let before = pool.moves();
    fs::write(pool.join("file"), bytes(1, 60 * KIB)).unwrap();
    for _ in 0..10 {
        append(&pool.join("file"), &bytes(2, 8 * KIB)).unwrap();
        pool.settle_closed();
        OpenOptions::new().write(true).open(pool.join("file")).unwrap().set_len(60 * KIB).unwrap();
        pool.settle_closed();
    }
    assert!(fs::read(pool.join("file")).unwrap() == bytes(1, 60 * KIB));
    pool.moves() - before
}

#[test]
fn without_hysteresis_a_file_oscillates() {
    let moved = oscillate(&pool(["small", "large"], LARGE_FILES));
    assert_eq!(moved, 20);
}

#[test]
fn a_band_stops_the_oscillation() {
    let rules = LARGE_FILES.replace("\">= 64KiB\"", "\">= 64KiB\", hysteresis = \"16KiB\"");
    let pool = pool(["small", "large"], &rules);
    let moved = oscillate(&pool);
    assert!(moved <= 1, "moved {moved} times");
    nix::unistd::truncate(&pool.join("file"), 10 * KIB as i64).unwrap();
    pool.expect_on("small", "file");
}

#[test]
fn a_least_stay_stops_the_oscillation() {
    let disks = [crate::Disk::tmpfs(32 * MIB), crate::Disk::tmpfs(32 * MIB)];
    let pool = Pool::builder()
        .branch("small", disks[0].path())
        .branch_with("large", disks[1].path(), "min_stay = \"1h\"")
        .default(&["small"])
        .rules(LARGE_FILES)
        .mount();
    assert_eq!(oscillate(&pool), 1);
    let explanation = pool.explain("file");
    assert_eq!(explanation.on, ["large"]);
    assert!(explanation.outcome.contains("min_stay"), "{}", explanation.outcome);
    assert_eq!(pool.enforce().files_moved, 0);
}

#[test]
fn a_least_stay_does_not_hold_what_was_made_on_the_branch() {
    let disks = [crate::Disk::tmpfs(32 * MIB), crate::Disk::tmpfs(32 * MIB)];
    let pool = Pool::builder()
        .branch_with("small", disks[0].path(), "min_stay = \"1h\"")
        .branch("large", disks[1].path())
        .default(&["small"])
        .rules(LARGE_FILES)
        .mount();
    fs::write(pool.join("file"), vec![1; 100 * KIB as usize]).unwrap();
    pool.expect_on("large", "file");
}

#[test]
fn the_names_of_one_file_move_together() {
    let pool = pool(["small", "large"], LARGE_FILES);
    fs::create_dir(pool.join("dir")).unwrap();
    fs::write(pool.join("one"), "x").unwrap();
    fs::hard_link(pool.join("one"), pool.join("dir/two")).unwrap();
    fs::hard_link(pool.join("one"), pool.join("dir/three")).unwrap();
    let inode = fs::metadata(pool.join("one")).unwrap().ino();
    append(&pool.join("dir/two"), &bytes(1, MIB)).unwrap();
    pool.settle();
    pool.enforce();
    let on = pool.found_on("one");
    assert_eq!(on.len(), 1);
    for name in ["one", "dir/two", "dir/three"] {
        assert_eq!(pool.found_on(name), on, "all names on one branch");
        let meta = fs::metadata(pool.join(name)).unwrap();
        assert_eq!((meta.ino(), meta.nlink(), meta.len()), (inode, 3, MIB + 1), "{name}");
    }
    assert_eq!(on, ["large"]);
}

#[test]
fn names_of_one_file_that_belong_apart_come_to_rest() {
    let rules = "[[rule]]\nname = \"n\"\nmatch = [{ glob = \"/**.b\", to = [\"b\", \"default\", \"any\"], offline = \"pass\" }]\n";
    let pool = pool(["a", "b"], rules);
    fs::write(pool.join("one"), "shared").unwrap();
    fs::hard_link(pool.join("one"), pool.join("two.b")).unwrap();
    pool.settle();
    pool.enforce();
    let on = pool.found_on("one");
    assert_eq!((on.len(), pool.found_on("two.b")), (1, on.clone()), "one file, one branch");
    for _ in 0..3 {
        assert_eq!(pool.enforce().files_moved, 0, "it does not go to and fro");
    }
    assert_eq!(fs::metadata(pool.join("two.b")).unwrap().nlink(), 2);
}

#[test]
fn of_the_names_of_one_file_one_with_a_list_of_named_branches_decides() {
    let rules = "[[rule]]\nname = \"n\"\nmatch = [{ glob = \"/secret/**\", to = [\"b\"] }]\n";
    let pool = pool(["a", "b"], rules);
    fs::create_dir(pool.join("secret")).unwrap();
    fs::write(pool.join("secret/letter"), "x").unwrap();
    fs::hard_link(pool.join("secret/letter"), pool.join("also")).unwrap();
    pool.settle();
    assert_eq!(pool.enforce().files_moved, 0, "the other name takes it off its branch no more");
    assert_eq!(pool.found_on("also"), ["b"]);
    let explanation = pool.explain("also");
    assert_eq!(explanation.belongs.as_deref(), Some("b"));
    assert!(explanation.outcome.contains("its name /secret/letter decides"), "{}", explanation.outcome);
}

#[test]
fn an_exchange_takes_no_file_to_where_its_rule_forbids_it() {
    let rule = |name: &str, uid: u32, to: &str| {
        format!("[[rule]]\nname = {name:?}\nwhen = {{ uid = {uid} }}\nto = [{to:?}]\n")
    };
    let pool = pool(["a", "b"], &(rule("eves", 1001, "a") + &rule("daves", 1000, "b")));
    let exchange = |one: &str, other: &str| {
        let exchange = rustix::fs::RenameFlags::EXCHANGE;
        rustix::fs::renameat_with(rustix::fs::CWD, pool.join(one), rustix::fs::CWD, pool.join(other), exchange)
    };
    for [one, other] in [["daves", "anybodys"], ["anybodys", "daves"]] {
        for (name, uid) in [("eves", 1001), ("daves", 1000), ("anybodys", 0)] {
            let _ = fs::remove_file(pool.join(name));
            fs::write(pool.join(name), name).unwrap();
            chown(pool.join(name), Some(uid), None).unwrap();
        }
        let on = || ["eves", "daves", "anybodys"].map(|name| pool.found_on(name).concat());
        pool.settle();
        assert_eq!(on(), ["a", "b", "a"]);
        // What is open for writing would stay where it was brought.
        let writer = OpenOptions::new().append(true).open(pool.join("daves")).unwrap();
        // Neither may come to the other's branch.
        assert_eq!(exchange("daves", "eves"), Err(rustix::io::Errno::NOSPC));
        assert_eq!(on(), ["a", "b", "a"]);
        exchange(one, other).unwrap();
        assert_eq!(fs::read(pool.join("anybodys")).unwrap(), b"daves");
        assert_eq!(pool.found_on("anybodys"), ["b"], "dave's file stays where it was");
        drop(writer);
    }
}

#[test]
fn files_that_each_name_binds_to_another_branch_can_be_exchanged() {
    let rules = "[[rule]]\nname = \"n\"\nmatch = [\
                 { glob = \"/one/**\", to = [\"a\"] }, { glob = \"/two/**\", to = [\"b\"] }]\n";
    let pool = pool(["a", "b"], rules);
    for dir in ["one", "two"] {
        fs::create_dir(pool.join(dir)).unwrap();
        fs::write(pool.join(dir).join("file"), dir).unwrap();
    }
    let exchange = rustix::fs::RenameFlags::EXCHANGE;
    let (one, two) = (pool.join("one/file"), pool.join("two/file"));
    rustix::fs::renameat_with(rustix::fs::CWD, &one, rustix::fs::CWD, &two, exchange).unwrap();
    assert_eq!((fs::read(&one).unwrap(), fs::read(&two).unwrap()), (b"two".to_vec(), b"one".to_vec()));
    // Both are judged: nobody has to come by.
    eventually("both are where their names belong", || {
        ["one/file", "two/file"].map(|name| pool.found_on(name).concat()) == ["a", "b"]
    });
    assert_eq!(["one/file", "two/file"].map(|name| pool.found_on(name).concat()), ["a", "b"]);
}

#[test]
fn the_enforcer_runs_by_itself_in_its_window() {
    let (disks, builder) = disks(["warm", "cold"]);
    // All day but one minute that is far away.
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime).tv_sec;
    let minute = (now / 60 + 12 * 60) % (24 * 60);
    let end = format!("{:02}:{:02}", minute / 60, minute % 60);
    let begin = format!("{:02}:{:02}", (minute + 1) % (24 * 60) / 60, (minute + 1) % 60);
    fs::write(disks[0].join("file"), "x").unwrap();
    last_read_days_ago(&disks[0].join("file"), 40);
    let pool = builder.rules(COLD_FILES).keys(&format!("[enforce]\nwindow = \"{begin}-{end}\"")).mount();
    let moved = poll(Duration::from_secs(300), || (pool.found_on("file") == ["cold"]).then_some(()));
    assert!(moved.is_some(), "the file is on {:?} after 300 s inside the window", pool.found_on("file"));
}

#[test]
fn what_has_no_room_where_it_belongs_is_counted_and_stays() {
    let (warm, cold) = (crate::Disk::tmpfs(32 * MIB), crate::Disk::tmpfs(MIB));
    let pool = Pool::builder()
        .branches([("warm", warm.path()), ("cold", cold.path())])
        .default(&["warm"])
        .rules(COLD_FILES)
        .mount();
    fs::write(pool.join("huge"), bytes(1, 4 * MIB)).unwrap();
    last_read_days_ago(&pool.join("huge"), 40);
    pool.settle();
    let summary = pool.enforce();
    assert_eq!((summary.files_moved, summary.files_no_room, summary.files_failed), (0, 1, 0), "{summary:?}");
    let told = text(&pool.umbrella(["enforce"]));
    assert!(told.contains("no room") && told.contains("/huge"), "{told}");
    let warned = |pool: &Pool| {
        pool.status().warnings.iter().any(|one| one.contains("/huge") && one.contains("(cold) does not name"))
    };
    assert!(warned(&pool), "{:?}", pool.status().warnings);
    pool.expect_stays_on("warm", "huge");
    assert!(fs::read(pool.join("huge")).unwrap() == bytes(1, 4 * MIB));
    assert_eq!(cold.files().len(), 0, "no piece of it is left");
    fs::remove_file(pool.join("huge")).unwrap();
    pool.enforce();
    assert!(!warned(&pool), "none is left: {:?}", pool.status().warnings);
}

#[test]
fn a_dry_run_promises_no_more_than_there_is_room_for() {
    let (warm, cold) = (crate::Disk::tmpfs(32 * MIB), crate::Disk::tmpfs(6 * MIB));
    let pool = Pool::builder().branch("warm", warm.path()).branch("cold", cold.path()).default(&["warm"]).mount();
    for name in ["1", "2", "3"] {
        fs::write(pool.join(name), bytes(1, 4 * MIB)).unwrap();
        last_read_days_ago(&pool.join(name), 40);
    }
    pool.settle();
    let mut pool = pool;
    pool.load_rules(COLD_FILES);
    let (events, promised) = pool.enforce_dry_run();
    let events: Vec<_> = events.iter().filter(|event| event.outcome == MoveOutcome::WouldMove).collect();
    assert_eq!((events.len(), promised.files_moved, promised.files_no_room), (1, 1, 2), "{promised:?}");
    let done = pool.enforce();
    assert_eq!((done.files_moved, done.files_no_room, done.files_failed), (1, 2, 0), "as it was promised");
    let rest = pool.enforce();
    assert_eq!((rest.files_moved, rest.files_no_room), (0, 2), "the others are still in the wrong place");
}

#[test]
fn a_file_read_while_the_enforcer_walks_can_be_removed_at_once() {
    let mut pool = pool(["warm", "cold"], "");
    for i in 0..300 {
        let path = pool.join(format!("{i}"));
        fs::write(&path, bytes(i, 3_000)).unwrap();
        last_read_days_ago(&path, 40);
    }
    pool.settle();
    pool.pool.load_rules(COLD_FILES);
    let mut walk = pool.command().args(["enforce", "--json"]).stdout(std::process::Stdio::null()).spawn().unwrap();
    for i in 0..300 {
        let path = pool.join(format!("{i}"));
        assert!(io_read(&path) == bytes(i, 3_000), "file {i}");
        if i % 3 == 0 {
            fs::remove_file(&path).unwrap();
        }
    }
    assert!(poll(Duration::from_secs(60), || walk.try_wait().unwrap()).is_some());
    pool.settle();
    assert_eq!(names(&pool.mount_point()).len(), 200);
    for i in (0..300).filter(|i| i % 3 != 0) {
        assert!(io_read(&pool.join(format!("{i}"))) == bytes(i, 3_000));
        assert_eq!(pool.found_on(format!("{i}")).len(), 1);
    }
}

fn io_read(path: &std::path::Path) -> Vec<u8> {
    let mut file = File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut data = Vec::new();
    std::io::Read::read_to_end(&mut file, &mut data).unwrap();
    data
}

#[test]
fn what_a_killed_daemon_had_still_to_move_moves_after_the_next_mount() {
    let (_disks, builder) = disks(["a", "large"]);
    let mut pool = builder.rules(LARGE_FILES).mount();
    let mut open = File::create(pool.join("grows")).unwrap();
    open.write_all(&bytes(1, 3 * MIB)).unwrap();
    assert_eq!(pool.found_on("grows"), ["a"], "it is open for writing");
    pool.kill_9();
    drop(open);
    pool.start();
    pool.expect_on("large", "grows");
    assert!(fs::read(pool.join("grows")).unwrap() == bytes(1, 3 * MIB));
    // After an end in order nothing is looked for: this file waits for its close, or for the enforcer.
    pool.stop();
    fs::write(pool.on("a", "behind"), bytes(2, 3 * MIB)).unwrap();
    pool.start();
    pool.expect_stays_on("a", "behind");
}

#[test]
fn of_two_files_of_one_name_the_enforcer_judges_the_one_that_users_see() {
    let (disks, builder) = disks(["warm", "cold"]);
    for (disk, days) in [(0, 40), (1, 5)] {
        fs::write(disks[disk].join("file"), format!("{days} days")).unwrap();
        set_days_ago(&disks[disk].join("file"), days);
    }
    let pool = builder.rules(&COLD_FILES.replace("atime = \"> 30d\"", "mtime = \"> 1d\"")).mount();
    assert_eq!(fs::read(pool.join("file")).unwrap(), b"5 days");
    for _ in 0..2 {
        let summary = pool.enforce();
        assert_eq!((summary.files_seen, summary.files_moved, summary.files_failed), (1, 0, 0), "{summary:?}");
    }
    assert_eq!(pool.enforce_dry_run().1.files_moved, 0);
    assert_eq!(pool.found_on("file"), ["warm", "cold"], "neither is touched");
}

/// Sets both times `days` days back.
fn set_days_ago(path: &std::path::Path, days: u64) {
    let then = std::time::SystemTime::now() - Duration::from_secs(days * 86_400);
    let times = fs::FileTimes::new().set_accessed(then).set_modified(then);
    File::options().write(true).open(path).unwrap().set_times(times).unwrap();
}

#[test]
fn names_that_are_not_utf8_are_told_byte_for_byte_in_json() {
    let mut pool = pool(["warm", "cold"], "");
    let name = std::ffi::OsStr::from_bytes(b"caf\xe9");
    for name in [name, "plain".as_ref()] {
        fs::write(pool.join(name), "x").unwrap();
        last_read_days_ago(&pool.join(name), 40);
    }
    pool.settle();
    pool.pool.load_rules(COLD_FILES);
    let (events, _) = pool.enforce_dry_run();
    let mut told: Vec<_> = events.into_iter().map(|event| (event.path, event.path_bytes)).collect();
    told.sort();
    assert_eq!(told, [("/caf\u{fffd}".to_owned(), Some(b"/caf\xe9".to_vec())), ("/plain".to_owned(), None)]);
    assert_eq!(pool.explain(name).path_bytes.as_deref(), Some(&b"/caf\xe9"[..]));
}
