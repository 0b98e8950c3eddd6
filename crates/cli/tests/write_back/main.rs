//! Ordered write-back on real mounts: what is dirty is known, the limit is kept, nothing is lost, and what was decided
//! can be decided again.
#![allow(clippy::unnecessary_debug_formatting, reason = "quoted paths are what TOML reads")]

mod broken;
mod copies;
mod devices;
mod order;
#[path = "../support/mod.rs"]
mod support;

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use devices::{Remembering, Slow};
use support::disk::Disk;
use support::pool::{Pool, text};
use support::{KIB, MIB, bytes, eventually};
use umbrella_fs::spec::FlusherStatus;
use umbrella_units::ByteSize;

/// A pool of one ext4 branch "disk" with these keys; of a pair of names the second goes out of scope first.
fn pool(keys: &str) -> (Disk, Pool) {
    let disk = Disk::ext4(512 * MIB);
    let pool = Pool::builder().branch_with("disk", disk.path(), keys).mount();
    (disk, pool)
}

fn flusher(pool: &Pool) -> FlusherStatus {
    pool.branch_status("disk").write_back.expect("the branch has a policy")
}

fn dirty(pool: &Pool) -> u64 {
    flusher(pool).dirty.0
}

/// How much of the first `length` bytes of a file the kernel has dirty: cachestat(2).
fn dirty_in_cache(file: &File, length: u64) -> ByteSize {
    const CACHESTAT: libc::c_long = 451;
    let (range, mut found) = ([0, length], [0_u64; 5]);
    // SAFETY: reads two numbers, fills five.
    let asked = unsafe { libc::syscall(CACHESTAT, file.as_raw_fd(), range.as_ptr(), found.as_mut_ptr(), 0) };
    assert_eq!(asked, 0, "cachestat: {}", std::io::Error::last_os_error());
    ByteSize(found[1] * 4096)
}

/// The kernel wrote something back by itself, as it does when this machine stands still for seconds. The amount of
/// dirty data cannot be predicted then.
#[derive(Debug)]
struct Disturbed;

/// Fails unless the flusher believes that `bytes` bytes are dirty. A different belief only counts as disturbed, if the
/// kernel does not have this number of dirty bytes of these files of the disk either.
#[track_caller]
fn expect_dirty(pool: &Pool, files: &[&str], bytes: u64) -> Result<(), Disturbed> {
    let believed = flusher(pool);
    if believed.dirty.0 == bytes {
        return Ok(());
    }
    let open = files.iter().map(|file| File::open(pool.on("disk", file)).expect("it is there"));
    let in_cache: u64 = open.map(|file| dirty_in_cache(&file, u64::MAX >> 1).0).sum();
    assert_ne!(in_cache, bytes, "{believed:?}");
    println!("expected {bytes}, the kernel has {in_cache} dirty, the flusher: {believed:?}");
    Err(Disturbed)
}

/// Does it until nobody disturbs it.
fn undisturbed(mut attempt: impl FnMut() -> Result<(), Disturbed>) {
    assert!((0..20).any(|_| attempt().is_ok()), "not what is expected, however often it is done");
}

/// Overwrites random blocks of 16 KiB in `files` files of 1 MiB until it is stopped; returns what it wrote last where.
fn overwrite(folder: &Path, files: u64, seed: u64, stop: &AtomicBool) -> Vec<(u64, u64, u64)> {
    let mut state = seed | 1;
    let mut written = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let (file, block) = (state % files, state / files % 64);
        let path = folder.join(file.to_string());
        let open = OpenOptions::new().write(true).open(&path);
        open.and_then(|open| open.write_all_at(&bytes(state, 16 * KIB), block * 16 * KIB)).expect("it can be written");
        written.push((file, block, state));
    }
    written
}

fn make_files(folder: &Path, files: u64) {
    for file in 0..files {
        fs::write(folder.join(file.to_string()), vec![0; MIB as usize]).expect("a file");
    }
}

/// Fails unless each block holds what was written there last.
fn expect_written(folder: &Path, written: &[(u64, u64, u64)]) {
    let mut last = std::collections::BTreeMap::new();
    last.extend(written.iter().map(|&(file, block, seed)| ((file, block), seed)));
    for ((file, block), seed) in last {
        let mut found = vec![0; 16 * KIB as usize];
        let open = File::open(folder.join(file.to_string())).expect("it is there");
        open.read_exact_at(&mut found, block * 16 * KIB).expect("it is long enough");
        assert!(found == bytes(seed, 16 * KIB), "block {block} of file {file} differs");
    }
}

#[test]
fn what_is_dirty_is_known_until_it_is_synced_cut_deleted_or_replaced() {
    let (_disk, pool) = pool("write_back = \"zone_segment\"\nwrite_back_limit = \"64MiB\"");
    undisturbed(|| {
        for name in ["file", "a", "b"] {
            let _ = fs::remove_file(pool.join(name));
        }
        assert_eq!(dirty(&pool), 0);
        let path = pool.join("file");
        let file = File::create(&path).unwrap();
        file.write_all_at(&bytes(1, 4 * MIB), 0).unwrap();
        expect_dirty(&pool, &["file"], 4 * MIB)?;
        file.write_all_at(&bytes(2, MIB), MIB).unwrap();
        expect_dirty(&pool, &["file"], 4 * MIB)?;
        file.sync_all().unwrap();
        assert_eq!(dirty(&pool), 0);
        file.write_all_at(&bytes(3, 4 * MIB), 0).unwrap();
        file.set_len(3 * MIB / 2).unwrap();
        expect_dirty(&pool, &["file"], 3 * MIB / 2)?;
        fs::remove_file(&path).unwrap();
        assert_eq!(dirty(&pool), 0);
        drop(file);

        fs::write(pool.join("a"), bytes(4, MIB)).unwrap();
        fs::write(pool.join("b"), bytes(5, 2 * MIB)).unwrap();
        expect_dirty(&pool, &["a", "b"], 3 * MIB)?;
        fs::rename(pool.join("a"), pool.join("b")).unwrap();
        expect_dirty(&pool, &["b"], MIB)?;
        File::open(pool.join("b")).unwrap().sync_data().unwrap();
        assert_eq!(dirty(&pool), 0);
        assert!(fs::read(pool.join("b")).unwrap() == bytes(4, MIB));
        Ok(())
    });
}

#[test]
fn what_the_kernel_wrote_back_by_itself_is_noticed() {
    let (disk, pool) = pool("write_back = \"zone\"\nwrite_back_limit = \"64MiB\"");
    fs::write(pool.join("file"), bytes(1, 8 * MIB)).unwrap();
    let status = flusher(&pool);
    assert_eq!(status.dirty.0 + status.cleaned.0, 8 * MIB, "{status:?}");
    rustix::fs::syncfs(File::open(disk.path()).unwrap()).unwrap();
    eventually("nothing is believed dirty", || dirty(&pool) == 0);
}

#[test]
fn a_file_that_moves_to_another_branch_leaves_no_dirty_pages_behind() {
    let disks = [Disk::ext4(128 * MIB), Disk::ext4(128 * MIB)];
    let keys = "write_back = \"zone_segment\"";
    let rule = "[[rule]]\nname = \"large\"\nwhen = { size = \">= 1MiB\" }\nto = [\"other\"]\n";
    let pool = Pool::builder()
        .branch_with("disk", disks[0].path(), keys)
        .branch_with("other", disks[1].path(), keys)
        .default(&["disk"])
        .rules(rule)
        .mount();
    fs::write(pool.join("file"), bytes(1, 4 * MIB)).unwrap();
    pool.expect_on("other", "file");
    assert_eq!(dirty(&pool), 0);
    assert!(fs::read(pool.join("file")).unwrap() == bytes(1, 4 * MIB));
}

#[test]
fn writers_never_have_much_more_dirty_than_the_limit() {
    let disk = Remembering::over(Slow::new);
    let keys = "write_back = \"cscan\"\nwrite_back_limit = \"4MiB\"";
    let pool = Pool::builder().branch_with("disk", &disk.at, keys).mount();
    let (stop, most) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let status = flusher(&pool);
                most.fetch_max(status.dirty.0 + status.in_flight.0, Ordering::Relaxed);
            }
        });
        let writers: Vec<_> = (0..4_u64)
            .map(|number| {
                let path = pool.join(number.to_string());
                scope.spawn(move || fs::write(path, bytes(number, 12 * MIB)).unwrap())
            })
            .collect();
        for writer in writers {
            writer.join().unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        watcher.join().unwrap();
    });
    // One write of each writer may be under way beyond it.
    let most = most.load(Ordering::Relaxed);
    assert!(most <= 4 * MIB + 4 * MIB, "{most} bytes were dirty");
    let status = flusher(&pool);
    assert!(status.waits > 0 && status.errors == 0, "{status:?}");
    // The kernel, too, writes something when this machine stands still for seconds.
    assert!(status.flushed.0 + status.cleaned.0 >= 40 * MIB && status.flushed.0 > 0, "{status:?}");
    for number in 0..4 {
        assert!(fs::read(pool.join(number.to_string())).unwrap() == bytes(number, 12 * MIB), "file {number} differs");
    }
}

#[test]
fn the_policy_changes_under_load_and_nothing_is_lost() {
    let (disk, mut pool) = pool("write_back = \"zone_segment\"\nwrite_back_limit = \"2MiB\"");
    make_files(&pool.mount_point(), 8);
    let stop = AtomicBool::new(false);
    let written = thread::scope(|scope| {
        let writer = scope.spawn(|| overwrite(&pool.mount_point(), 8, 42, &stop));
        let names = umbrella_policy::writeback::policies().iter().filter(|info| !info.offline).map(|info| info.name);
        for name in names.chain(["kernel", "zone_segment:alpha=2,zone=64KiB", "kernel", "file"]) {
            let limit: &[&str] = if name == "kernel" { &[] } else { &["--limit", "2MiB"] };
            pool.say(["write-back", "set", "disk", name].iter().chain(limit));
            let shown = pool.branch_status("disk").write_back;
            assert_eq!(shown.map(|status| status.policy).as_deref().unwrap_or("kernel"), name);
            thread::sleep(Duration::from_millis(30));
        }
        stop.store(true, Ordering::Relaxed);
        writer.join().unwrap()
    });
    expect_written(&pool.mount_point(), &written);
    assert_eq!(flusher(&pool).errors, 0);
    pool.stop();
    expect_written(&disk.path(), &written);
}

#[test]
fn what_is_counted_is_of_the_policy_that_is_set() {
    let (_disk, pool) = pool("write_back = \"zone_segment\"\nwrite_back_limit = \"2MiB\"");
    make_files(&pool.mount_point(), 8);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let writer = scope.spawn(|| overwrite(&pool.mount_point(), 8, 42, &stop));
        let before = flusher(&pool).runs;
        eventually("100 runs are written back", || flusher(&pool).runs > before + 100);
        stop.store(true, Ordering::Relaxed);
        writer.join().unwrap();
    });
    let standing = || (flusher(&pool).runs, flusher(&pool).flushed);
    eventually("it is done", || {
        let before = standing();
        thread::sleep(Duration::from_millis(300));
        standing() == before
    });
    pool.say(["write-back", "set", "disk", "cscan"]);
    assert!(flusher(&pool).runs < 100, "{:?}", flusher(&pool));
}

#[test]
fn xfs_and_btrfs_have_ordered_write_back_too() {
    for disk in [Disk::xfs(300 * MIB), Disk::btrfs(256 * MIB)] {
        let keys = "write_back = \"zone_segment\"\nwrite_back_limit = \"2MiB\"";
        let pool = Pool::builder().branch_with("disk", disk.path(), keys).mount();
        make_files(&pool.mount_point(), 8);
        let stop = AtomicBool::new(false);
        let written = thread::scope(|scope| {
            let writer = scope.spawn(|| overwrite(&pool.mount_point(), 8, 5, &stop));
            let before = flusher(&pool).runs;
            eventually("100 runs are written back", || flusher(&pool).runs > before + 100);
            stop.store(true, Ordering::Relaxed);
            writer.join().unwrap()
        });
        expect_written(&pool.mount_point(), &written);
        assert_eq!(flusher(&pool).errors, 0);
    }
}

#[test]
fn a_recorded_run_is_decided_again_bit_for_bit() {
    let (_disk, pool) = pool("write_back = \"zone_segment:alpha=4\"\nwrite_back_limit = \"2MiB\"");
    make_files(&pool.mount_point(), 16);
    let record = pool.dir().join("events");
    pool.say(["write-back".as_ref(), "record".as_ref(), "disk".as_ref(), record.as_os_str()]);
    let again = pool.umbrella(["write-back".as_ref(), "record".as_ref(), "disk".as_ref(), record.as_os_str()]);
    assert!(text(&again).contains("a record is being written already"), "{}", text(&again));
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let writer = scope.spawn(|| overwrite(&pool.mount_point(), 16, 7, &stop));
        let before = flusher(&pool).runs;
        eventually("300 runs are written back", || flusher(&pool).runs > before + 300);
        fs::remove_file(pool.join("15")).ok();
        stop.store(true, Ordering::Relaxed);
        // The file that was removed may be missed by the writer.
        let _ = writer.join();
    });
    pool.say(["write-back", "record", "disk", "--stop"]);
    let again = pool.umbrella(["write-back".as_ref(), "record".as_ref(), "disk".as_ref(), record.as_os_str()]);
    assert!(text(&again).contains("exists already"), "an existing file is left alone: {}", text(&again));

    let replay = |policy: &[&str]| {
        let mut args = vec!["lab".as_ref(), "run".as_ref(), "--events".as_ref(), record.as_os_str()];
        args.extend(policy.iter().map(std::ffi::OsStr::new));
        pool.json(args).pop().expect("a result")
    };
    let same = replay(&[]);
    assert_eq!(same["complete"], true);
    assert_eq!(same["recorded"], same["chosen"]);
    assert!(same["recorded"]["pages"].as_u64() > Some(300), "{same}");
    let other = replay(&["--policy", "cscan"]);
    assert_eq!((&other["recorded"], &other["recorded_by"]), (&same["recorded"], &same["recorded_by"]));
    assert!(other["chosen"]["pages"].as_u64() > Some(300), "{other}");
    let mut args = vec!["lab".as_ref(), "run".as_ref(), "--events".as_ref(), record.as_os_str()];
    args.extend(["--policy", "nonsense"].map(std::ffi::OsStr::new));
    let said = text(&pool.umbrella(args));
    assert!(
        said.contains("umbrella: there is no policy \"nonsense\"; known: file,"),
        "the file is not to blame: {said}"
    );
}

#[test]
fn a_change_of_policy_reports_that_the_record_ends() {
    let (_disk, pool) = pool("write_back = \"cscan\"");
    let set = |policy: &str| pool.say(["write-back", "set", "disk", policy]);
    let complete = "the record of the previous policy is complete";
    assert!(!set("sweep").contains(complete));
    let record = |name: &str| {
        let file = pool.dir().join(name);
        pool.say(["write-back".as_ref(), "record".as_ref(), "disk".as_ref(), file.as_os_str()]);
    };
    record("a");
    assert!(!set("sweep").contains(complete), "the same policy");
    assert!(set("cscan").contains(complete));
    let stopped = text(&pool.umbrella(["write-back", "record", "disk", "--stop"]));
    assert!(stopped.contains("ends by itself when it is full, and when the policy changes"), "{stopped}");
    record("b");
    assert!(set("kernel").contains(complete));
    assert_eq!(pool.json(["write-back", "set", "disk", "sweep"])[0]["ended_record"], false);
    record("c");
    assert_eq!(pool.json(["write-back", "set", "disk", "cscan"])[0]["ended_record"], true);
}

#[test]
fn what_little_is_dirty_is_written_back_by_the_policy_before_the_kernel_does() {
    let (_disk, pool) = pool("write_back = \"sweep\"\nwrite_back_limit = \"64MiB\"");
    let tried = (0..3).any(|seed| {
        let before = flusher(&pool).flushed.0;
        fs::write(pool.join("file"), bytes(seed, MIB)).expect("a file");
        eventually("it has left", || {
            let now = flusher(&pool);
            now.dirty.0 + now.in_flight.0 == 0
        });
        flusher(&pool).flushed.0 == before + MIB
    });
    assert!(tried, "the kernel wrote it, three times of three: {:?}", flusher(&pool));
}

#[test]
fn a_record_of_a_time_in_which_nothing_was_chosen_says_so() {
    let (_disk, pool) = pool("write_back = \"cscan\"");
    let record = pool.dir().join("events");
    pool.say(["write-back".as_ref(), "record".as_ref(), "disk".as_ref(), record.as_os_str()]);
    fs::write(pool.join("file"), bytes(1, 64 * KIB)).unwrap();
    pool.say(["write-back", "record", "disk", "--stop"]);
    let shown = pool.say(["lab".as_ref(), "run".as_ref(), "--events".as_ref(), record.as_os_str()]);
    assert!(shown.contains("the policy chose nothing during the recording"), "{shown}");
}

#[test]
fn setting_a_policy_reports_the_limits_in_force() {
    let (_disk, pool) = pool("write_back = \"kernel\"");
    let holds = "branch \"disk\" is written back by \"sweep\", from 4 MiB of dirty data on; writers wait at 16 MiB;";
    eventually("the kernel leaves so much", || {
        let said = pool.say(["write-back", "set", "disk", "sweep", "--limit", "16MiB", "--background", "4MiB"]);
        assert!(said.contains("of dirty data on; writers wait at"), "{said}");
        said.starts_with(holds)
    });
    let shown = pool.say(["write-back", "show"]);
    let heading = shown.lines().next().unwrap_or_default().to_owned();
    assert!(heading.contains("BACKGROUND") && shown.contains("4 MiB"), "{shown}");
    let said = pool.say(["write-back", "set", "disk", "kernel"]);
    assert!(said.starts_with("branch \"disk\" is written back by \"kernel\"; to keep it"), "{said}");
}

#[test]
fn what_was_written_survives_a_killed_daemon() {
    let (_disk, mut pool) = pool("write_back = \"zone_segment\"\nwrite_back_limit = \"2MiB\"");
    make_files(&pool.mount_point(), 8);
    let (folder, stop) = (pool.mount_point(), AtomicBool::new(false));
    for seed in [3, 5, 9] {
        let began = Instant::now();
        stop.store(false, Ordering::Relaxed);
        let written = thread::scope(|scope| {
            let timer = scope.spawn(|| {
                while began.elapsed() < Duration::from_millis(300) {
                    thread::sleep(Duration::from_millis(10));
                }
                stop.store(true, Ordering::Relaxed);
            });
            let written = overwrite(&folder, 8, seed, &stop);
            timer.join().unwrap();
            written
        });
        pool.kill_9();
        pool.start();
        expect_written(&folder, &written);
    }
}

#[test]
fn hostile_words_are_refused_with_what_would_do() {
    let (_disk, pool) = pool("write_back = \"cscan\"");
    for (args, why) in [
        (vec!["zone_sgment"], "did you mean \"zone_segment\"?"),
        (vec![""], "there is no policy \"\""),
        (vec!["zone_segment:alpha=-1"], "alpha=-1 is not possible"),
        (vec!["zone_segment:zone=0"], "zone=0 is not possible"),
        (vec!["zone_segment:alpha=1,alpha=2"], "given twice"),
        (vec!["clairvoyant"], "needs to know the future"),
        (vec!["cscan", "--limit", "1KiB"], "too low"),
        (vec!["kernel", "--limit", "8MiB"], "limits need a policy"),
        (vec!["cscan", "--limit", "16777215TiB", "--background", "16777215TiB"], "(leave it out, or lower it)"),
    ] {
        let output = pool.umbrella(["write-back", "set", "disk"].into_iter().chain(args.iter().copied()));
        assert!(!output.status.success() && text(&output).contains(why), "{args:?}: {}", text(&output));
    }
    let unknown = pool.umbrella(["write-back", "set", "nonsense", "cscan"]);
    assert!(text(&unknown).contains("no branch is called \"nonsense\"; the branches are: disk"), "{}", text(&unknown));
    let record = pool.umbrella(["write-back", "record", "disk", "/nonexistent/file"]);
    assert!(!record.status.success() && text(&record).contains("/nonexistent/file"), "{}", text(&record));
    let inside = pool.join("events");
    let record = pool.umbrella(["write-back".as_ref(), "record".as_ref(), "disk".as_ref(), inside.as_os_str()]);
    assert!(text(&record).contains("would record itself") && !inside.exists(), "{}", text(&record));
    assert_eq!(flusher(&pool).policy, "cscan", "it continues as it was");
    pool.say(["write-back", "set", "disk", "cscan", "--limit", "64MiB"]);
    pool.say(["write-back", "set", "disk", "sweep"]);
    assert_eq!(flusher(&pool).limit.0, 64 << 20, "another policy has the limits that were");
    pool.say(["write-back", "set", "disk", "kernel"]);
    let record = pool.umbrella(["write-back", "record", "disk", "/tmp/x"]);
    assert!(text(&record).contains("the kernel decides its write-back"), "{}", text(&record));
    assert!(pool.say(["write-back", "show"]).contains("written back by the kernel: \"disk\""));
}

#[test]
fn what_is_not_named_of_the_limits_stays_as_it_was() {
    let (_disk, pool) = pool("write_back = \"sweep\"\nwrite_back_limit = \"64MiB\"\nwrite_back_background = \"8MiB\"");
    // The kernel leaves less while others have much dirty.
    let expect = |given: &[&str], limit: u64, background: u64, why: &str| {
        pool.say(["write-back", "set", "disk", "cscan"].iter().chain(given));
        eventually(why, || {
            let status = flusher(&pool);
            (status.limit.0, status.background.0) == (limit * MIB, background * MIB)
        });
    };
    pool.say(["write-back", "set", "disk", "kernel"]);
    expect(&[], 64, 8, "after the kernel, as it is configured");
    expect(&["--limit", "32MiB"], 32, 8, "the background threshold stays");
    expect(&["--background", "4MiB"], 32, 4, "the limit stays");
    expect(&["--limit", "2MiB"], 2, 1, "what would not be below the new limit is half of it");
    let above = pool.umbrella(["write-back", "set", "disk", "cscan", "--background", "3MiB"]);
    assert!(text(&above).contains("must begin below the limit of 2 MiB"), "{}", text(&above));
}

#[test]
fn a_limit_that_was_given_goes_back_to_what_the_kernel_leaves() {
    let (_disk, pool) = pool("write_back = \"sweep\"\nwrite_back_limit = \"4MiB\"\nwrite_back_background = \"1MiB\"");
    pool.say(["write-back", "set", "disk", "cscan", "--limit", "auto"]);
    eventually("the limit is the kernel's, the other one stays", || {
        let status = flusher(&pool);
        status.limit.0 > 4 * MIB && status.background.0 == MIB
    });
    pool.say(["write-back", "set", "disk", "cscan", "--limit", "8MiB", "--background", "auto"]);
    eventually("half of the limit", || {
        let status = flusher(&pool);
        (status.limit.0, status.background.0) == (8 * MIB, 4 * MIB)
    });
    let neither = pool.umbrella(["write-back", "set", "disk", "cscan", "--limit", "automatic"]);
    assert!(text(&neither).contains("and not \"auto\" either"), "{}", text(&neither));
    let kernel = pool.umbrella(["write-back", "set", "disk", "kernel", "--limit", "auto"]);
    assert!(text(&kernel).contains("limits need a policy"), "{}", text(&kernel));
}

#[test]
fn what_was_warned_of_a_write_back_goes_when_it_is_changed() {
    let disk = Disk::tmpfs(64 * MIB);
    let pool = Pool::builder().branch_with("disk", disk.path(), "write_back = \"cscan\"").mount();
    let shown = pool.say(["status"]);
    assert!(shown.contains("the kernel decides when it is written back"), "{shown}");
    pool.say(["write-back", "set", "disk", "kernel"]);
    let shown = pool.say(["status"]);
    assert!(!shown.contains("the kernel decides when it is written back"), "it was asked for: {shown}");
}

#[test]
fn a_configuration_with_an_unknown_policy_is_refused_with_the_known_ones() {
    let pool = Pool::builder().branch_with("disk", "/srv/disk", "write_back = \"zone_sgment\"").prepare();
    let output = pool.umbrella(["check".as_ref(), pool.config_path().as_os_str()]);
    let said = text(&output);
    assert!(!output.status.success());
    for word in ["zone_sgment", "did you mean \"zone_segment\"?", "two_queue_sorted", "\"kernel\" leaves the order"] {
        assert!(said.contains(word), "{word:?} is missing in: {said}");
    }
}
