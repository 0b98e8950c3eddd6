//! Rules that join conditions, and those on paths, names, extended attributes and inodes.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use rustix::fs::{XattrFlags, removexattr, setxattr};

use crate::support::disk::Disk;
use crate::support::pool::{Pool, text};
use crate::support::{MIB, bytes};
use crate::{LARGE_FILES, names, pool};

/// Young downloads are on the SSD.
const DOWNLOADS: &str = r#"
[[rule]]
name = "downloads"
when = { path = "/downloads/**", mtime = "< 7d" }
to = ["ssd"]
"#;

/// What carries the attribute is on the SSD.
const KEEP: &str = r#"
[[rule]]
name = "keep"
when = { xattr = { "user.keep" = "ssd" } }
to = ["ssd"]
"#;

/// A pool on file systems that keep extended attributes; files are on `hdd`.
fn kept(rules: &str, keys: &str) -> ([Disk; 2], Pool) {
    let disks = [Disk::ext4(64 * MIB), Disk::ext4(64 * MIB)];
    let mut builder = Pool::builder().default(&["hdd"]).rules(rules).keys(keys);
    for (name, disk) in ["hdd", "ssd"].iter().zip(&disks) {
        builder = builder.branch(name, disk.path());
    }
    (disks, builder.mount())
}

fn changed_days_ago(path: &Path, days: u64) {
    let then = std::time::SystemTime::now() - std::time::Duration::from_secs(days * 86_400);
    File::options().write(true).open(path).unwrap().set_modified(then).unwrap();
}

#[test]
fn downloads_leave_the_ssd_when_they_are_old_and_other_files_never_come() {
    let pool = pool(["hdd", "ssd"], DOWNLOADS);
    fs::create_dir_all(pool.join("downloads/new")).unwrap();
    for (name, branch) in [("downloads/new/film", "ssd"), ("letter", "hdd")] {
        fs::write(pool.join(name), name).unwrap();
        pool.expect_on(branch, name);
    }
    changed_days_ago(&pool.join("downloads/new/film"), 8);
    pool.expect_on("hdd", "downloads/new/film");
    changed_days_ago(&pool.join("downloads/new/film"), 6);
    pool.expect_on("ssd", "downloads/new/film");
    fs::rename(pool.join("downloads"), pool.join("archive")).unwrap();
    pool.expect_on("hdd", "archive/new/film");
    assert_eq!(names(&pool.join("archive/new")), ["film"]);
}

#[test]
fn a_file_moves_when_it_gets_an_attribute_and_back_when_it_loses_it() {
    let (_disks, pool) = kept(KEEP, "");
    fs::write(pool.join("file"), "x").unwrap();
    pool.expect_on("hdd", "file");
    setxattr(pool.join("file"), "user.other", b"ssd", XattrFlags::empty()).unwrap();
    setxattr(pool.join("file"), "user.keep", b"hdd", XattrFlags::empty()).unwrap();
    pool.expect_stays_on("hdd", "file");
    setxattr(pool.join("file"), "user.keep", b"ssd", XattrFlags::empty()).unwrap();
    pool.expect_on("ssd", "file");
    let explained = pool.explain("file");
    assert_eq!(explained.steps[0].reason, "xattr user.keep is ssd");
    assert!(explained.facts.contains(&("user.keep".to_owned(), "ssd".to_owned())), "{explained:?}");
    assert_eq!(pool.enforce().files_moved, 0, "it is where it belongs");
    removexattr(pool.join("file"), "user.keep").unwrap();
    pool.expect_on("hdd", "file");
}

#[test]
fn an_attribute_that_is_set_while_the_file_is_written_counts_at_its_close() {
    let (_disks, pool) = kept(KEEP, "");
    let mut file = File::create(pool.join("file")).unwrap();
    rustix::fs::fsetxattr(&file, "user.keep", b"ssd", XattrFlags::empty()).unwrap();
    file.write_all(b"x").unwrap();
    pool.settle();
    assert_eq!(pool.found_on("file"), ["hdd"], "an open file stays");
    drop(file);
    pool.expect_on("ssd", "file");
}

#[test]
fn a_file_in_memory_leaves_for_the_branch_that_its_attribute_names() {
    let (_disks, pool) = kept(KEEP, "[staging]\nmode = \"always\"\nmax_age = \"1h\"");
    let file = File::create(pool.join("file")).unwrap();
    rustix::fs::fsetxattr(&file, "user.keep", b"ssd", XattrFlags::empty()).unwrap();
    file.sync_all().unwrap();
    assert_eq!(pool.found_on("file"), ["ssd"]);
}

#[test]
fn an_attribute_that_was_set_on_the_branch_counts_at_the_next_walk() {
    let (disks, pool) = kept(KEEP, "");
    fs::write(pool.join("file"), "x").unwrap();
    pool.expect_on("hdd", "file");
    setxattr(disks[0].join("file"), "user.keep", b"ssd", XattrFlags::empty()).unwrap();
    assert_eq!(pool.enforce().files_moved, 1);
    pool.expect_on("ssd", "file");
}

#[test]
fn not_and_any_say_what_stays_away() {
    let rules = r#"
[[rule]]
name = "small and no film"
when = { not = { any = [{ path = "/films/**" }, { name = ["*.iso", "*.img"] }, { size = "> 64KiB" }] } }
to = ["ssd"]
"#;
    let pool = pool(["hdd", "ssd"], rules);
    fs::create_dir(pool.join("films")).unwrap();
    for (name, size, branch) in
        [("note", 10, "ssd"), ("films/note", 10, "hdd"), ("a.iso", 10, "hdd"), ("large", 100 << 10, "hdd")]
    {
        fs::write(pool.join(name), bytes(1, size)).unwrap();
        pool.expect_on(branch, name);
    }
    fs::rename(pool.join("note"), pool.join("note.img")).unwrap();
    pool.expect_on("hdd", "note.img");
}

#[test]
fn explain_shows_which_part_of_a_rule_holds() {
    let rules = r#"
[[rule]]
name = "keep"
when = { any = [{ name = "*.iso" }, { path = "/downloads/**", size = "< 1MiB" }] }
to = ["ssd"]
"#;
    let pool = pool(["hdd", "ssd"], rules);
    fs::write(pool.join("a.iso"), "x").unwrap();
    pool.expect_on("ssd", "a.iso");
    let shown = pool.say(["explain", pool.join("a.iso").to_str().unwrap()]);
    let tree = [
        "1. yes keep: name is a.iso",
        "yes     any of",
        "  yes     name is a.iso",
        "  no      all of",
        "    no      path is /a.iso, the rule wants /downloads/**",
        "    yes     size is 1 B",
    ];
    for line in tree {
        assert!(shown.contains(line), "{line}\n{shown}");
    }
}

#[test]
fn a_branch_without_inodes_is_full_and_a_rule_sees_it_coming() {
    let rules = r#"
[[rule]]
name = "many files"
when = { inodes = { ssd = "> 50%" }, name = "*.log" }
to = ["hdd"]
"#;
    let disks = [Disk::tmpfs_with_inodes(32 * MIB, 64), Disk::tmpfs(32 * MIB)];
    let builder = Pool::builder().default(&["ssd", "hdd"]).rules(rules);
    let pool = builder.branch("ssd", disks[0].path()).branch("hdd", disks[1].path()).mount();
    fs::write(pool.join("first.log"), "x").unwrap();
    pool.expect_on("ssd", "first.log");
    let mut filler = 0;
    while rustix::fs::statvfs(disks[0].path()).unwrap().f_ffree > 0 {
        fs::write(disks[0].join(format!("filler{filler}")), "").unwrap();
        filler += 1;
    }
    pool.settle_room();
    fs::write(pool.join("next"), "x").unwrap();
    pool.expect_on("hdd", "next");
    assert!(pool.explain("other").outcome.contains("\"ssd\" has no free inode"), "{:?}", pool.explain("other"));
    assert_eq!(pool.explain("second.log").rule, "many files");
}

#[test]
fn a_file_that_does_not_exist_is_explained_by_what_it_would_be() {
    let pool = pool(["small", "large"], LARGE_FILES);
    let ask = |facts: &str| {
        let pool_at = pool.mount_point();
        pool.json(["explain", "--pool", pool_at.to_str().unwrap(), "--what-if", facts]).remove(0)
    };
    let large = ask("size=2MiB,mtime=30d,path=/x");
    assert_eq!((&large["belongs"], &large["rule"]), (&"large".into(), &"large files".into()));
    let outcome = large["outcome"].as_str().unwrap();
    let expected = "a file like this begins on small and goes to large when it is closed, if its size is still 2 MiB";
    assert!(outcome.starts_with(expected), "{outcome}");
    assert_eq!(ask("size=2KiB,path=/x")["belongs"], "small");
    assert_eq!(ask("path=/x")["belongs"], "small", "a new file has no size");
    let bad = pool.umbrella(["explain", "--what-if", "sise=1"]);
    assert!(text(&bad).contains("unknown key \"sise\" (did you mean \"size\"?)"), "{}", text(&bad));
}

#[test]
fn explain_says_that_the_size_may_change_until_the_file_is_closed() {
    let pool = pool(["small", "large"], LARGE_FILES);
    let mut file = File::create(pool.join("file")).unwrap();
    file.write_all(&bytes(1, MIB)).unwrap();
    let outcome = pool.explain("file").outcome;
    assert!(outcome.ends_with(", if its size is still 1 MiB"), "{outcome}");
}

/// The data of films goes through the daemon, and what is below `secret` never waits in memory.
const TREATED: &str = r#"
[[rule]]
name = "films"
when = { name = "*.mkv" }
passthrough = false
[[rule]]
name = "secret"
when = { path = "/secret/**" }
staging = "never"
"#;

#[test]
fn a_rule_says_that_files_do_not_wait_in_memory() {
    let (_disks, pool) = kept(TREATED, "[staging]\nmode = \"always\"\nmax_age = \"1h\"");
    fs::create_dir(pool.join("secret")).unwrap();
    fs::write(pool.join("secret/key"), "x").unwrap();
    fs::write(pool.join("open"), "x").unwrap();
    assert_eq!(pool.found_on("secret/key"), ["hdd"]);
    assert_eq!(pool.found_on("open"), [] as [&str; 0], "it waits in memory");
    fs::rename(pool.join("open"), pool.join("secret/open")).unwrap();
    pool.expect_on("hdd", "secret/open");
    assert_eq!(pool.explain("secret/key").rule, "default", "another rule decides the place");
}

#[test]
fn a_rule_says_whether_data_passes_the_daemon_by() {
    let disks = [Disk::tmpfs(64 * MIB), Disk::tmpfs(64 * MIB)];
    let mut builder = Pool::builder().default(&["hdd"]).rules(TREATED);
    for (name, disk) in ["hdd", "ssd"].iter().zip(&disks) {
        builder = builder.branch_with(name, disk.path(), "headroom = 0");
    }
    let pool = builder.mount();
    if !pool.status().passthrough {
        return;
    }
    let opened = |name: &str| {
        let file = File::create(pool.join(name)).unwrap();
        let status = pool.status();
        drop(file);
        (status.open_passthrough, status.open_files)
    };
    assert_eq!(opened("a.mkv"), (0, 1), "through the daemon");
    assert_eq!(opened("a"), (1, 1), "past it");
}

#[test]
fn a_rule_says_that_its_files_wait_in_memory() {
    let rules = "[[rule]]\nname = \"parts\"\nwhen = { name = \"*.part\" }\nstaging = \"always\"\n";
    let (_disks, pool) = kept(rules, "[staging]\nmode = \"auto\"\nmax_age = \"1h\"");
    for name in ["a.part", "b"] {
        fs::write(pool.join(name), "x").unwrap();
    }
    assert_eq!(pool.found_on("a.part"), [] as [&str; 0], "it waits in memory");
    assert_eq!(pool.found_on("b"), ["hdd"], "no rule needs more than its name");
    pool.say(["sync"]);
    assert_eq!(pool.found_on("a.part"), ["hdd"]);
}

#[test]
fn a_rule_says_how_long_its_files_stay() {
    let to = |branch: &str| format!("[[rule]]\nname = \"to\"\nwhen = {{}}\nto = [\"{branch}\"]\n");
    let stay = "[[rule]]\nname = \"letters\"\nwhen = { name = \"*.txt\" }\nmin_stay = \"1h\"\n";
    let (_disks, mut pool) = kept(&to("hdd"), "");
    for name in ["a.txt", "b.jpg"] {
        fs::write(pool.join(name), "x").unwrap();
    }
    pool.settle_closed();
    let lenient = |branch: &str| stay.to_owned() + &to(branch).replace("\"]", "\", \"any\"]");
    pool.load_rules(&lenient("ssd"));
    pool.enforce();
    pool.expect_on("ssd", "a.txt");
    pool.load_rules(&lenient("hdd"));
    pool.enforce();
    pool.expect_on("hdd", "b.jpg");
    pool.expect_stays_on("ssd", "a.txt");
}
