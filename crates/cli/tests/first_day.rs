//! The commands of the first day: a look at used disks, a first configuration, what mergerfs becomes, and what a
//! machine lacks.
#![allow(clippy::unnecessary_debug_formatting, reason = "quoted paths are what TOML reads")]

mod support;

use std::ffi::OsStr;
use std::fs::{self, File, FileTimes};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, UNIX_EPOCH};

use nix::sys::signal::Signal;
use serde_json::Value;
use support::disk::Disk;
use support::pool::{Builder, Pool, UMBRELLA, text};
use support::process::signal;
use support::{MIB, eventually, temp_dir};

/// Longer than a change is too young to be seen in the attributes.
const OLD_ENOUGH: Duration = Duration::from_millis(2500);

/// Two used disks and a pool over them that is not mounted yet.
fn used() -> ([Disk; 2], Builder) {
    let disks = [Disk::ext4(32 * MIB), Disk::ext4(32 * MIB)];
    let write = |disk: usize, path: &str, content: &str, second: u64| {
        let path = disks[disk].path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        let at = UNIX_EPOCH + Duration::from_secs(second);
        let times = FileTimes::new().set_modified(at).set_accessed(at);
        File::options().write(true).open(&path).unwrap().set_times(times).unwrap();
    };
    write(0, "only/here", "1", 1_000);
    write(0, "films/same", "equal", 1_000);
    write(1, "films/same", "equal", 2_000);
    write(0, "films/other.mkv", "old", 1_000);
    write(1, "films/other.mkv", "newer", 2_000);
    write(0, "Music/a", "", 1_000);
    write(1, "music/b", "", 1_000);
    write(0, "mixed/in", "", 1_000);
    write(1, "mixed", "a file", 1_000);
    fs::set_permissions(disks[0].path().join("films"), fs::Permissions::from_mode(0o700)).unwrap();
    let builder = Pool::builder().branch("one", disks[0].path()).branch("two", disks[1].path());
    (disks, builder)
}

/// Every name below, with what a look could change.
fn snapshot(disks: &[Disk]) -> Vec<String> {
    let mut found = Vec::new();
    let mut left: Vec<_> = disks.iter().map(Disk::path).collect();
    while let Some(path) = left.pop() {
        let data = fs::symlink_metadata(&path).unwrap();
        found.push(format!(
            "{path:?} {:o} {} {} {} {}",
            data.mode(),
            data.size(),
            data.mtime(),
            data.ctime(),
            data.atime()
        ));
        if data.is_dir() {
            left.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    found.sort();
    found
}

fn json_lines(output: &Output) -> Vec<Value> {
    String::from_utf8_lossy(&output.stdout).lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

#[test]
fn check_import_shows_what_used_disks_become_and_changes_nothing() {
    let (disks, builder) = used();
    let pool = builder.prepare();
    // Reading the listing makes its access time young, so it comes once before.
    snapshot(&disks);
    let before = snapshot(&disks);
    let output =
        pool.umbrella(["check".as_ref(), "--import".as_ref(), "--compare".as_ref(), pool.config_path().as_os_str()]);
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    for expected in [
        "same        /films/same  two 5 B, one 5 B",
        "different   /films/other.mkv  two 5 B, one 3 B",
        "directory   /films  one 0700 of 0:0, two 0755 of 0:0",
        "case        /Music (one), /music (two)",
        "kinds       /mixed  a directory on one, a file on two",
        "umbrella repair --duplicates",
    ] {
        assert!(text.contains(expected), "{expected}\n{text}");
    }
    assert_eq!(snapshot(&disks), before);

    let json =
        pool.umbrella(["check".as_ref(), "--import".as_ref(), "--json".as_ref(), pool.config_path().as_os_str()]);
    let lines = json_lines(&json);
    let of = |kind: &str| lines.iter().filter(|line| line["finding"] == kind).count();
    assert_eq!(["file", "directory", "case", "kinds"].map(of), [2, 1, 1, 1]);
    let summary = &lines.last().unwrap()["summary"];
    assert_eq!((&summary["files_same_size"], &summary["files_different"]), (&Value::from(1), &Value::from(1)));
    assert_eq!(summary["branches"][0]["files"], 5);
}

#[test]
fn a_hostile_name_cannot_steer_the_terminal() {
    let disks = [Disk::tmpfs(8 * MIB), Disk::tmpfs(8 * MIB)];
    for disk in &disks {
        fs::write(disk.path().join("a\u{1b}[2J\nwarning: all is well"), "x").unwrap();
    }
    let pool = Pool::builder().branch("one", disks[0].path()).branch("two", disks[1].path()).prepare();
    let output = pool.umbrella(["check".as_ref(), "--import".as_ref(), pool.config_path().as_os_str()]);
    assert!(text(&output).contains(r"/a\u{1b}[2J\nwarning: all is well"), "{}", text(&output));
    let output = repair(&pool, &["--dry-run"]);
    assert!(!text(&output).contains('\u{1b}'), "{}", text(&output));
}

fn repair(pool: &Pool, more: &[&str]) -> Output {
    let config = pool.config_path();
    let args = [OsStr::new("repair"), OsStr::new("--duplicates"), config.as_os_str()];
    pool.umbrella(args.into_iter().chain(more.iter().map(OsStr::new)))
}

#[test]
fn equal_copies_go_only_while_no_daemon_has_the_disks_and_the_tree_stays_the_same() {
    let (disks, builder) = used();
    let mut pool = builder.mount();
    let tree = |pool: &Pool| {
        let read = |name: &str| fs::read(pool.join(name)).unwrap();
        (read("films/same"), read("films/other.mkv"))
    };
    let before = tree(&pool);
    let mounted = repair(&pool, &["--yes"]);
    assert!(!mounted.status.success() && text(&mounted).contains("unmount it"), "{}", text(&mounted));
    pool.stop();
    std::thread::sleep(OLD_ENOUGH);

    let unasked = repair(&pool, &[]);
    assert!(!unasked.status.success() && text(&unasked).contains("--yes"), "{}", text(&unasked));
    let dry = repair(&pool, &["--dry-run", "--keep", "newest"]);
    assert!(
        text(&dry).contains("would delete /films/same") && text(&dry).contains("other (from one).mkv"),
        "{}",
        text(&dry)
    );
    assert!(disks[0].path().join("films/same").exists());

    let done = repair(&pool, &["--yes"]);
    assert!(done.status.success(), "{}", text(&done));
    assert!(text(&done).contains("deleted      /films/same  on one (5 B), kept on two"), "{}", text(&done));
    assert!(!disks[0].path().join("films/same").exists());
    assert!(disks[0].path().join("films/other.mkv").exists(), "a different copy stays unless somebody asks");
    pool.start();
    assert_eq!(tree(&pool), before);
}

#[test]
fn different_copies_are_all_in_the_tree_after_a_rename() {
    let (_disks, builder) = used();
    let mut pool = builder.prepare();
    std::thread::sleep(OLD_ENOUGH);
    let done = repair(&pool, &["--yes", "--keep", "newest", "--json"]);
    assert!(done.status.success(), "{}", text(&done));
    let lines = json_lines(&done);
    let renamed = lines.iter().find(|line| line["outcome"] == "renamed").unwrap();
    assert_eq!(
        (&renamed["path"], &renamed["name"]),
        (&Value::from("/films/other.mkv"), &Value::from("other (from one).mkv"))
    );
    assert_eq!(lines.last().unwrap()["renamed"], 1);
    pool.start();
    assert_eq!(fs::read(pool.join("films/other.mkv")).unwrap(), b"newer");
    assert_eq!(fs::read(pool.join("films/other (from one).mkv")).unwrap(), b"old");
}

#[test]
fn a_copy_that_a_program_has_open_stays() {
    let (disks, builder) = used();
    let pool = builder.prepare();
    let _open = File::open(disks[0].path().join("films/same")).unwrap();
    std::thread::sleep(OLD_ENOUGH);
    let done = repair(&pool, &["--yes"]);
    assert!(text(&done).contains("a program has it open"), "{}", text(&done));
    assert!(disks[0].path().join("films/same").exists());
}

#[test]
fn a_pool_whose_daemon_was_killed_is_mounted_once_before_its_copies_go() {
    let (disks, builder) = used();
    let mut pool = builder.mount();
    signal(pool.pid(), Signal::SIGKILL);
    pool.wait_for_end();
    std::thread::sleep(OLD_ENOUGH);
    let refused = repair(&pool, &["--yes"]);
    assert!(!refused.status.success(), "{}", text(&refused));
    assert!(disks[0].path().join("films/same").exists());
    pool.say(["unmount".as_ref(), pool.mount_point().as_os_str()]);
}

/// The binary with nothing to read, in a folder of its own.
fn umbrella(dir: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(UMBRELLA);
    command.args(args).current_dir(dir).stdin(Stdio::null());
    command.env("UMBRELLA_RUN_DIR", dir.join("run")).env("UMBRELLA_STATE_DIR", dir.join("state"));
    command.env("LIBMOUNT_FSTAB", dir.join("fstab")).output().unwrap()
}

#[test]
fn a_first_configuration_names_the_directories_that_are_given() {
    let (dir, disk) = (temp_dir("init"), Disk::tmpfs(8 * MIB));
    let path = disk.path();
    let path = path.to_str().unwrap();
    let text = text(&umbrella(dir.path(), &["init", "--mount", "/srv/somewhere", path]));
    assert!(text.contains("mount = \"/srv/somewhere\"") && text.contains(&format!("path = {path:?}")), "{text}");
    assert!(text.contains("[[group]]") && text.contains("# tmpfs, 8 MiB, disk of unknown kind"), "{text}");
}

#[test]
fn a_first_configuration_is_printed_for_machines() {
    let (dir, disk) = (temp_dir("init"), Disk::tmpfs(8 * MIB));
    let path = disk.path();
    let path = path.to_str().unwrap();
    let printed = umbrella(dir.path(), &["init", "--json", path]);
    let printed: serde_json::Value = serde_json::from_slice(&printed.stdout).unwrap();
    assert!(printed["configuration"].as_str().unwrap().contains("[[branch]]"), "{printed}");
    let branch = &printed["branches"][0];
    assert_eq!((&branch["path"], &branch["medium"]), (&path.into(), &"unknown".into()), "{printed}");
    assert_eq!((&branch["fs_type"], &branch["is_mount"]), (&"tmpfs".into(), &true.into()), "{printed}");
}

#[test]
fn the_first_mount_over_used_disks_looks_at_them_and_later_ones_do_not() {
    let disks = [Disk::tmpfs(8 * MIB), Disk::tmpfs(8 * MIB)];
    for disk in &disks {
        fs::write(disk.path().join("film"), "film").unwrap();
    }
    let mut pool = Pool::builder().branch("a", disks[0].path()).branch("b", disks[1].path()).mount();
    let reported =
        || pool.status().warnings.iter().any(|one| one.contains("first look") && one.contains("1 file on several"));
    eventually("status tells what was found", reported);
    assert!(pool.say(["status"]).contains("umbrella check --import"));
    pool.remount();
    assert!(!pool.status().warnings.iter().any(|one| one.contains("first look")));
}

#[test]
fn a_first_configuration_asks_and_never_writes_over_a_file() {
    let dir = temp_dir("init");
    let unasked = umbrella(dir.path(), &["init"]);
    assert!(!unasked.status.success() && text(&unasked).contains("--yes"), "{}", text(&unasked));
    fs::write(dir.path().join("pool.toml"), "mine").unwrap();
    let refused = umbrella(dir.path(), &["init", "/tmp", "--output", "pool.toml"]);
    assert!(!refused.status.success() && text(&refused).contains("was not changed"), "{}", text(&refused));
    let below = dir.path().join("a/below");
    fs::create_dir_all(&below).unwrap();
    let (outer, inner) = (dir.path().join("a"), below.to_str().unwrap());
    let outer = outer.to_str().unwrap();
    for (paths, said) in [([outer, inner], "lies in"), ([inner, outer], "lies in"), ([outer, outer], "named twice")] {
        let nested = umbrella(dir.path(), &["init", paths[0], paths[1]]);
        assert!(!nested.status.success() && text(&nested).contains(said), "{}", text(&nested));
    }
    let missing = umbrella(dir.path(), &["init", "/does/not/exist"]);
    assert!(!missing.status.success() && text(&missing).contains("/does/not/exist"), "{}", text(&missing));
    assert_eq!(fs::read(dir.path().join("pool.toml")).unwrap(), b"mine");
}

#[test]
fn a_first_configuration_can_be_mounted() {
    let (dir, disks) = (temp_dir("init"), [Disk::tmpfs(8 * MIB), Disk::tmpfs(8 * MIB)]);
    let mount = dir.path().join("mnt");
    fs::create_dir(&mount).unwrap();
    let paths = [&disks[0], &disks[1]].map(|disk| disk.path().to_str().unwrap().to_owned());
    let args = ["init", "--mount", mount.to_str().unwrap(), "--output", "pool.toml", &paths[0], &paths[1]];
    let written = umbrella(dir.path(), &args);
    assert!(written.status.success(), "{}", text(&written));
    let mounted = umbrella(dir.path(), &["mount", "pool.toml", "--daemon", "--log", "log"]);
    assert!(mounted.status.success(), "{}", text(&mounted));
    fs::write(mount.join("file"), "x").unwrap();
    assert!(umbrella(dir.path(), &["unmount", "pool.toml"]).status.success());
}

#[test]
fn a_mount_of_mergerfs_is_found_in_fstab_and_becomes_a_configuration() {
    let dir = temp_dir("mergerfs");
    let fstab = "/mnt/x /srv/x ext4 defaults 0 0\n/mnt/a:/mnt/b  /srv/pool/  fuse.mergerfs  category.create=mfs,nofail,symlinkify=true 0 0\n";
    fs::write(dir.path().join("fstab"), fstab).unwrap();
    let json = umbrella(dir.path(), &["from-mergerfs", "--json", "/srv/pool"]);
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    let written = json["configuration"].as_str().unwrap();
    assert!(written.contains("spread = \"most-free\"") && written.contains("min_free = \"4GiB\""), "{written}");
    assert_eq!(json["no_equal"][0]["option"], "symlinkify=true");
    assert_eq!(json["mount_options"][0], "nofail");

    // In fstab a space is `\040`.
    let spaced = "/mnt/a:/mnt/b /srv/my\\040pool fuse.mergerfs category.create=ff 0 0\n";
    fs::write(dir.path().join("fstab"), format!("{fstab}{spaced}")).unwrap();
    for mount in ["/srv/my pool", "/srv/my\\040pool"] {
        let found = umbrella(dir.path(), &["from-mergerfs", mount]);
        assert!(text(&found).contains("mount = \"/srv/my pool\""), "{mount}: {}", text(&found));
    }
    let written = umbrella(dir.path(), &["from-mergerfs", "--output", "spaced.toml", "/srv/my pool"]);
    let line = format!("{}/spaced.toml  /srv/my\\040pool  fuse.umbrella", dir.path().display());
    assert!(text(&written).contains(&line), "{}", text(&written));
    assert!(text(&written).contains("umount '/srv/my pool'"), "{}", text(&written));
    let late = umbrella(dir.path(), &["from-mergerfs", "/srv/pool", "--output", "late.toml"]);
    assert!(!late.status.success() && text(&late).contains("before the line"), "{}", text(&late));

    let unknown = umbrella(dir.path(), &["from-mergerfs", "/srv/other"]);
    assert!(!unknown.status.success() && text(&unknown).contains("no line for"), "{}", text(&unknown));
    let words = umbrella(
        dir.path(),
        &["from-mergerfs", "mergerfs", "-o", "category.create=ff", "/mnt/one disk:/mnt/b", "/srv/p"],
    );
    assert!(text(&words).contains("path = \"/mnt/one disk\""), "{}", text(&words));
    fs::write(dir.path().join("pool.toml"), "mine").unwrap();
    let refused = umbrella(dir.path(), &["from-mergerfs", "--output", "pool.toml", "/srv/pool"]);
    assert!(!refused.status.success() && text(&refused).contains("was not changed"), "{}", text(&refused));
}

fn doctor(pool: &Pool, more: &[&str]) -> (Option<i32>, Value) {
    let config = pool.config_path();
    let args = [OsStr::new("doctor"), OsStr::new("--json"), config.as_os_str()];
    let output = pool.umbrella(args.into_iter().chain(more.iter().map(OsStr::new)));
    (
        output.status.code(),
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", text(&output))),
    )
}

fn problems(report: &Value) -> Vec<String> {
    let items = report["items"].as_array().unwrap().iter().filter(|item| item["severity"] == "problem");
    items.map(|item| item["text"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_pool_in_order_has_no_problem_mounted_or_not() {
    let (disks, builder) = used();
    let mut pool = builder.prepare();
    snapshot(&disks);
    let before = snapshot(&disks);
    let (code, report) = doctor(&pool, &[]);
    assert_eq!((code, problems(&report)), (Some(0), vec![]), "{report:#}");
    assert_eq!((&report["mounted"], &report["survey"]["files_different"]), (&Value::from(false), &Value::from(1)));
    assert_eq!(snapshot(&disks), before);
    pool.start();
    let (code, report) = doctor(&pool, &["--quick"]);
    assert_eq!((code, problems(&report)), (Some(0), vec![]), "{report:#}");
    assert_eq!((&report["mounted"], &report["survey"]), (&Value::from(true), &Value::Null));
}

#[test]
fn what_is_wrong_with_a_pool_is_a_problem() {
    let (disks, builder) = used();
    let missing = builder.branch_with("gone", "/does/not/exist", "").prepare();
    let (code, report) = doctor(&missing, &["--quick"]);
    assert_eq!(code, Some(1), "{report:#}");
    assert!(problems(&report)[0].contains("does not exist"), "{report:#}");

    let path = disks[0].path();
    let path = path.to_str().unwrap();
    support::run("mount", ["-o", "remount,ro", path]);
    let (code, report) = doctor(&missing, &["--quick"]);
    support::run("mount", ["-o", "remount,rw", path]);
    assert_eq!(code, Some(1));
    assert!(problems(&report).iter().any(|problem| problem.contains("mounted read-only")), "{report:#}");

    fs::write(missing.config_path(), "mount = 7\n").unwrap();
    let (code, report) = doctor(&missing, &[]);
    assert_eq!((code, problems(&report).len()), (Some(1), 1), "{report:#}");
}

#[test]
fn what_a_killed_daemon_left_is_reported_with_what_to_do() {
    let (_disks, builder) = used();
    let mut pool = builder.mount();
    signal(pool.pid(), Signal::SIGKILL);
    pool.wait_for_end();
    let (code, report) = doctor(&pool, &["--quick"]);
    pool.say(["unmount".as_ref(), pool.mount_point().as_os_str()]);
    assert_eq!(code, Some(1), "{report:#}");
    assert!(problems(&report).iter().any(|problem| problem.contains("left a dead mount")), "{report:#}");
}
