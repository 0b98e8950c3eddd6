//! Rules on access times, and the reads that they are about.

use std::fs::{self, File};

use crate::last_read_days_ago;
use crate::support::MIB;
use crate::support::disk::Disk;
use crate::support::pool::{Pool, text};
use crate::support::run;

const HOT: &str = r#"
[[rule]]
name = "hot files"
when = { atime = "< 1d" }
to = ["hot"]
"#;

/// How data travels, and where new files wait.
const WAYS: [(&str, &str); 3] = [
    ("passthrough = true\nheadroom = 0", ""),
    ("passthrough = false", ""),
    ("passthrough = true\nheadroom = 0", "[staging]\nmode = \"always\"\nmax_age = \"30 ms\""),
];

/// A pool where files that were not read for a day are on `cold`.
fn hot_and_cold(keys: &str, top: &str) -> ([Disk; 2], Pool) {
    let disks = [Disk::ext4(64 * MIB), Disk::tmpfs(64 * MIB)];
    let mut builder = Pool::builder().default(&["cold"]).rules(HOT).keys(top);
    for (name, disk) in ["cold", "hot"].iter().zip(&disks) {
        builder = builder.branch_with(name, disk.path(), keys);
    }
    (disks, builder.mount())
}

/// Makes a file that nobody has read for long.
fn cold_file(pool: &Pool, name: &str) {
    fs::write(pool.join(name), name).unwrap();
    let file = File::open(pool.join(name)).unwrap();
    file.sync_all().unwrap();
    // What the kernel answers by itself changes no access time.
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    drop(file);
    pool.settle_closed();
    last_read_days_ago(&pool.join(name), 40);
    pool.expect_on("cold", name);
}

#[test]
fn a_file_that_was_read_moves_when_its_last_reader_closes_it() {
    for (keys, top) in WAYS {
        let (_disks, pool) = hot_and_cold(keys, top);
        cold_file(&pool, "file");
        let (one, other) = (File::open(pool.join("file")).unwrap(), File::open(pool.join("file")).unwrap());
        assert_eq!(std::io::read_to_string(&one).unwrap(), "file");
        drop(one);
        pool.expect_stays_on("cold", "file");
        drop(other);
        pool.expect_on("hot", "file");
        assert_eq!(fs::read(pool.join("file")).unwrap(), b"file");
    }
}

#[test]
fn a_close_without_a_read_moves_nothing() {
    for (keys, top) in WAYS {
        let (_disks, pool) = hot_and_cold(keys, top);
        cold_file(&pool, "file");
        let moves = pool.moves();
        drop(File::open(pool.join("file")).unwrap());
        pool.settle_closed();
        pool.expect_stays_on("cold", "file");
        assert_eq!(pool.moves(), moves);
    }
}

#[test]
fn a_program_that_is_run_counts_as_read() {
    let (_disks, pool) = hot_and_cold(WAYS[0].0, "");
    fs::copy("/bin/true", pool.join("program")).unwrap();
    pool.settle_closed();
    last_read_days_ago(&pool.join("program"), 40);
    pool.expect_on("cold", "program");
    run(pool.join("program").to_str().unwrap(), [""; 0]);
    pool.expect_on("hot", "program");
}

#[test]
fn check_warns_of_access_times_that_reads_do_not_change() {
    let disks = [Disk::tmpfs(MIB), Disk::tmpfs(MIB)];
    let check = |rules: &str| {
        let builder = Pool::builder().branch("cold", disks[0].path()).branch("hot", disks[1].path());
        let pool = builder.default(&["cold"]).rules(rules).prepare();
        text(&pool.umbrella(["check".as_ref(), pool.config_path().as_os_str()]))
    };
    let remount = |option: &str| {
        run("mount", ["-o", &format!("remount,{option}"), disks[0].path().to_str().unwrap()]);
    };
    let hour = HOT.replace("1d", "1h");
    // Mounts are relatime where nobody says something else.
    let said = check(HOT);
    assert!(!said.contains("hot files"), "a day is what relatime tells: {said}");
    let said = check(&hour);
    assert!(said.contains("rule \"hot files\": mounted relatime: \"cold\", \"hot\";"), "{said}");
    remount("noatime");
    let said = check(HOT);
    assert!(said.contains("rule \"hot files\": mounted noatime: \"cold\";"), "{said}");
    assert!(check(&hour).contains("mounted relatime: \"hot\";"));
    let said = check(&HOT.replace("atime", "mtime"));
    assert!(!said.contains("hot files"), "{said}");
    for (order, warns) in [("least-recently-used", true), ("oldest", false)] {
        let evict = format!("evict = {{ above = \"80%\", until = \"70%\", order = \"{order}\" }}");
        let builder = Pool::builder().branch_with("cold", disks[0].path(), &evict).branch("hot", disks[1].path());
        let pool = builder.default(&["cold", "hot"]).prepare();
        let said = text(&pool.umbrella(["check".as_ref(), pool.config_path().as_os_str()]));
        assert_eq!(said.contains("evict of \"cold\": mounted noatime: \"cold\";"), warns, "{order}: {said}");
    }
    remount("strictatime");
    let said = check(&hour);
    assert!(said.contains("mounted relatime: \"hot\";") && !said.contains("noatime"), "{said}");
    // Options of the pool's own mount count in their place.
    for (option, warns) in [("strictatime", false), ("noatime", true), ("relatime", true)] {
        let builder = Pool::builder().branch("cold", disks[0].path()).branch("hot", disks[1].path());
        let pool = builder.default(&["cold"]).rules(&hour).options(option).mount();
        let said = pool.log();
        assert_eq!(said.contains(&format!("mounted {option}: \"cold\", \"hot\";")), warns, "{option}: {said}");
        assert!(warns || !said.contains("hot files"), "{said}");
    }
}
