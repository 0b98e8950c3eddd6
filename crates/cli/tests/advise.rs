//! `umbrella advise` on small traces: one recommendation, lines that the other commands accept, and words about what it
//! could not simulate.

#[path = "support/mod.rs"]
mod support;

use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use support::disk::Disk;
use support::looped::Looped;
use support::pool::{Pool, UMBRELLA};
use support::program::{given, output, refused, said};
use support::{MIB, eventually};
use tempfile::TempDir;

fn umbrella() -> Command {
    let mut command = Command::new(UMBRELLA);
    command.arg("advise").env_remove("RUST_LOG").stdin(Stdio::null());
    command
}

fn advise(trace: &Path) -> Command {
    let mut command = umbrella();
    command.arg(trace);
    command
}

fn trace(lines: impl IntoIterator<Item = String>) -> (TempDir, PathBuf) {
    support::program::trace("day.csv", lines)
}

/// A day in which something is written every 20 minutes, and little is read.
fn quiet_day() -> (TempDir, PathBuf) {
    trace((0..72_u64).flat_map(|burst| {
        (0..10_u64).map(move |write| {
            let op = if burst % 24 == 0 && write == 9 { "R" } else { "W" };
            format!(
                "{},sda,{op},{},4096,",
                burst * 1_200_000_000 + write * 1000,
                (burst * 7919 + write * 104_729) % 1_000_000 * 4096
            )
        })
    }))
}

fn json(command: &mut Command) -> Value {
    serde_json::from_str(&given(command.arg("--json"))).expect("one JSON document")
}

fn lines(advice: &Value, place: &str) -> Option<String> {
    let fragments = advice["configuration"].as_array().expect("a list");
    let fragment = fragments.iter().find(|of| of["place"].as_str().is_some_and(|of| of.contains(place)))?;
    fragment["lines"].as_str().map(str::to_owned)
}

#[test]
fn a_disk_that_is_idle_most_of_the_day_gets_flash_and_lines_that_disk_check_accepts() {
    let (folder, day) = quiet_day();
    let advice = json(&mut advise(&day));
    let best = &advice["sleep"]["best"];
    assert!(best["flash"].as_u64().is_some_and(|flash| flash > 0), "{advice:#}");
    let watts = |of: &Value| of["watts"]["mean"].as_f64().expect("watts");
    assert!(watts(best) < watts(&advice["sleep"]["today"]) / 2.0, "{advice:#}");

    let [disk, flash] = ["disk", "flash"].map(|name| folder.path().join(name));
    let lines = lines(&advice, "disk.toml").expect("lines for a disk");
    let lines = lines.replace("/dev/disk/by-id/FLASH", flash.to_str().expect("a name"));
    let config = folder.path().join("media.disk.toml");
    fs::write(&config, format!("[disk]\npath = \"{}\"\n{lines}", disk.display())).expect("a configuration");
    for (path, size) in [(&disk, 64), (&flash, 512)] {
        fs::File::create(path).and_then(|file| file.set_len(size << 20)).expect("a file");
    }
    given(Command::new(UMBRELLA).args(["disk", "create"]).arg(&config));
    given(Command::new(UMBRELLA).args(["disk", "check"]).arg(&config));
}

#[test]
fn the_text_fits_a_page_says_where_watts_come_from_and_what_the_flash_wears() {
    let (_folder, day) = quiet_day();
    let text = given(&mut advise(&day));
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    for part in
        ["720 requests", "mean of 3 seeds", "policy", "spin-down", "a day go to the flash", "the disk's watts: assumed"]
    {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    assert_eq!(text, given(&mut advise(&day)), "the same trace, the same advice");
}

#[test]
fn a_trace_without_waits_changes_nothing() {
    let (_folder, path) = trace((0..100_u64).map(|write| format!("{},sda,W,{},4096,", write * 10_000, write * 4096)));
    let advice = json(&mut advise(&path));
    assert_eq!(advice["write_back"]["best"], Value::Null, "{advice:#}");
    assert_eq!(advice["sleep"]["kind"], "too_short");
    assert_eq!(advice["configuration"], Value::Array(Vec::new()));
    let text = given(&mut advise(&path));
    assert!(text.contains("no difference: leave it to the kernel") && text.contains("is too short"), "{text}");
}

#[test]
fn what_is_cut_and_what_cannot_be_simulated_is_said() {
    let (folder, day) = quiet_day();
    let cut = given(advise(&day).args(["--requests", "100"]));
    assert!(cut.contains("100 requests") && cut.contains("only the beginning of the traces was simulated"), "{cut}");
    let no_motor = given(advise(&day).args(["--disk", "sata_ssd"]));
    assert!(no_motor.contains("sata_ssd has no motor"), "{no_motor}");

    let empty = folder.path().join("empty.csv");
    fs::write(&empty, "time_us,dev,op,offset_bytes,size_bytes,flags\n0,sda,D,0,4096,\n").expect("a trace");
    refused(&mut advise(&empty), 1, &["it has no reads or writes"]);
    refused(&mut advise(&folder.path().join("none.csv")), 1, &["none.csv"]);
    refused(advise(&day).args(["--disk", "moden"]), 1, &["did you mean \"modern\"?"]);
    refused(advise(&day).args(["--memory", "1MiB"]), 2, &["a size from 64 MiB"]);
    refused(advise(&day).args(["--for", "1h"]), 2, &["cannot be used with"]);
    refused(advise(&day).args(["--html", "/none/day.html"]), 1, &["the directory /none does not exist"]);
}

#[test]
fn a_measured_drive_is_used_as_the_disk() {
    let (_folder, day) = quiet_day();
    let drive = concat!(env!("CARGO_MANIFEST_DIR"), "/../lab/tests/fixtures/drive.toml");
    let advice = json(advise(&day).args(["--disk", drive]));
    assert_eq!(
        (&advice["disk"], &advice["sleep"]["kind"]),
        (&Value::from(drive), &Value::from("no_watts")),
        "{advice:#}"
    );
    let busy = |advice: &Value| advice["write_back"]["today"]["busy_s"]["mean"].as_f64();
    assert_ne!(busy(&advice), busy(&json(&mut advise(&day))), "another disk takes another time");
    let text = given(advise(&day).args(["--disk", drive]));
    assert!(text.contains("drive.toml gives no watts"), "{text}");
    refused(advise(&day).args(["--disk", "./none.toml"]), 1, &["none.toml"]);
}

#[test]
fn random_writes_get_a_policy_that_is_confirmed_and_lines_that_check_accepts() {
    let (folder, path) = random_writes();
    let advice = json(advise(&path).args(["--memory", "64MiB"]));
    let Some(lines) = lines(&advice, "[[branch]]") else { panic!("{advice:#}") };
    let branch = folder.path().join("disk1");
    fs::create_dir(&branch).expect("a branch");
    let config = folder.path().join("pool.toml");
    let pool = format!("mount = \"/srv/pool\"\n[[branch]]\nname = \"disk1\"\npath = \"{}\"\n{lines}", branch.display());
    fs::write(&config, pool).expect("a configuration");
    let checked = given(Command::new(UMBRELLA).arg("check").arg(&config));
    assert!(checked.contains("ok"), "{checked}");
    let confirmed = &advice["confirmed"];
    assert_eq!((&confirmed["repeats"], &confirmed["agrees"]), (&Value::Bool(true), &Value::Bool(true)), "{advice:#}");
}

#[test]
fn on_random_writes_to_one_file_no_policy_is_better_than_the_kernel() {
    // The kernel continues where it stopped, around the file. Were it to begin anew each time, all would wait for
    // minutes.
    let mut random = 1_u64;
    let (_folder, path) = trace((0..15_000_u64).map(|number| {
        random = next(random);
        format!("{},sda,W,{},16384,", number * 400, (random >> 33) % 16_384 * 16_384)
    }));
    let text = given(advise(&path).args(["--memory", "64MiB"]));
    assert!(text.contains("kernel with 64 MiB, as today: no policy makes a difference"), "{text}");
}

/// A generator of numbers.
fn next(random: u64) -> u64 {
    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407)
}

/// Enough writes at random places for a policy to have something to order.
fn random_writes() -> (TempDir, PathBuf) {
    let mut random = 1_u64;
    trace((0..4000_u64).map(|number| {
        random = next(random);
        format!("{},sda,W,{},16384,", number * 5000, (random >> 33) % 2000 * 262_144)
    }))
}

#[test]
fn the_page_has_the_text_and_a_plot_of_each_trade_off() {
    let (folder, day) = quiet_day();
    let page = folder.path().join("day.html");
    let text = given(advise(&day).arg("--html").arg(&page));
    assert!(text.ends_with(&format!("page: {}\n", page.display())), "{text}");
    let page = fs::read_to_string(page).expect("the page");
    assert_eq!(page.matches("<figure").count(), 4, "policies, motor, wear, waiting");
    for part in ["spin-down  never -&gt; adaptive", "(advised)", "(today)", "power in W", "128 MiB of flash, adaptive"]
    {
        assert!(page.contains(part), "{part:?} is not in {page}");
    }
}

/// Runs what records as long as `work` takes, and ends the recording then as Ctrl-C does.
fn recorded(command: &mut Command, work: impl FnOnce()) -> Output {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("it starts");
    let instance = PathBuf::from(format!("/sys/kernel/tracing/instances/umbrella-{}", child.id()));
    let filter = instance.join("events/block/block_bio_queue/enable");
    eventually("it records", || fs::read_to_string(&filter).is_ok_and(|on| on.trim() == "1"));
    work();
    support::run("kill", ["-INT", &child.id().to_string()]);
    eventually("the recording ends", || !instance.exists());
    child.wait_with_output().expect("it ends")
}

/// Waits until this many more requests were made.
fn wait_for_more(made: &AtomicU64, more: u64) {
    let enough = made.load(Ordering::Relaxed) + more;
    eventually("there are requests", || made.load(Ordering::Relaxed) >= enough);
}

/// Writes 16 KiB at random places of a file of 256 MiB around the page cache, as long as `what` takes, which can see
/// how often.
fn while_written<T>(file: &Path, what: impl FnOnce(&AtomicU64) -> T) -> T {
    let (stop, made) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            let file = File::options().write(true).custom_flags(libc::O_DIRECT).open(file).expect("the file");
            let buffer = vec![7_u8; (16 << 10) + 4096];
            let data = &buffer[buffer.as_ptr().align_offset(4096)..][..16 << 10];
            let mut random = 1_u64;
            while !stop.load(Ordering::Relaxed) {
                random = next(random);
                file.write_all_at(data, (random >> 33) % 1024 * (256 << 10)).expect("a write");
                made.fetch_add(1, Ordering::Relaxed);
                thread::sleep(Duration::from_millis(2));
            }
        });
        let done = what(&made);
        stop.store(true, Ordering::Relaxed);
        done
    })
}

/// A file of 256 MiB that has its place.
fn large(file: PathBuf) -> PathBuf {
    let made = File::create(&file).expect("a file");
    for part in 0..64 {
        made.write_all_at(&vec![1; 4 << 20], part * (4 << 20)).expect("it can be written");
    }
    made.sync_all().expect("it can be synced");
    file
}

/// Small and quick.
const QUICK: [&str; 4] = ["--requests", "1000", "--memory", "64MiB"];

#[test]
fn a_disk_is_recorded_until_ctrl_c_and_the_kept_recording_gives_the_same_advice() {
    let disk = Disk::ext4(512 * MIB);
    let (file, folder) = (large(disk.join("file")), TempDir::new().expect("a folder"));
    let kept = folder.path().join("kept.csv.gz");
    let mut command = umbrella();
    command.arg("--device").arg(disk.device()).args(["--for", "1h", "--json", "--save"]).arg(&kept).args(QUICK);
    let done = while_written(&file, |made| recorded(&mut command, || wait_for_more(made, 500)));
    assert!(done.status.success() && said(&done).contains("interrupted after"), "{}", said(&done));
    let advice: Value = serde_json::from_slice(&done.stdout).expect("JSON");
    assert!(advice["traces"][0]["requests"].as_u64().is_some_and(|requests| requests > 10), "{advice:#}");
    let again = json(advise(&kept).args(QUICK));
    assert_eq!(again["write_back"], advice["write_back"]);
}

#[test]
fn what_cannot_be_recorded_and_what_nobody_uses_is_refused() {
    refused(umbrella().args(["--device", "/dev/null"]), 1, &["/dev/null is not a block device"]);
    refused(umbrella().args(["--device", "/dev/none"]), 1, &["/dev/none: No such file"]);
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("idle");
    File::create(&file).and_then(|file| file.set_len(MIB)).expect("a file");
    let idle = Looped::on(&file);
    refused(
        umbrella().arg("--device").arg(idle.path()).args(["--for", "1s"]),
        1,
        &["nothing was read or written while it was recorded"],
    );
    refused(umbrella().args(["--apply", "day.csv"]), 2, &["--apply", "cannot be used with"]);
    refused(umbrella().args(["--apply", "--device", "/dev/null"]), 2, &["--apply", "cannot be used with"]);
}

#[test]
fn a_pool_is_advised_disk_by_disk_and_the_decisions_of_its_policies_are_made_again() {
    let (disk, quiet, memory) = (Disk::ext4(512 * MIB), Disk::ext4(64 * MIB), Disk::tmpfs(16 * MIB));
    let file = large(disk.join("file"));
    let pool = Pool::builder()
        .branch_with("disk1", disk.path(), "write_back = \"sweep\"\nwrite_back_limit = \"2MiB\"")
        .branches([("disk2", quiet.path()), ("memory", memory.path())])
        .mount();
    let mut command = pool.command();
    command.args(["advise", "--json", "--for", "1h", "--pool"]).arg(pool.mount_point()).args(QUICK);
    let flushed = || pool.branch_status("disk1").write_back.expect("it has a policy").flushed.0;
    let done = while_written(&file, |made| {
        recorded(&mut command, || {
            // Where the kernel was quicker there is something to do again.
            let (before, mut number) = (flushed(), 0);
            eventually("its policy writes something back", || {
                let text = support::bytes(number, MIB);
                fs::write(pool.join(format!("small{}", number % 20)), text).expect("a file");
                number += 1;
                number >= 20 && flushed() > before + MIB
            });
            wait_for_more(made, 500);
        })
    });
    assert!(done.status.success(), "{}", said(&done));
    let advice: Value = serde_json::from_slice(&done.stdout).expect("JSON");
    let disks = advice["disks"].as_array().expect("a list");
    let first = disks.iter().find(|of| of["branches"][0] == "disk1").expect("the disk");
    assert_eq!(first["advice"]["write_back"]["today"]["policy"], "sweep", "{advice:#}");
    let decisions = &first["decisions"][0];
    assert_eq!((&decisions["policy"], &decisions["error"]), (&"sweep".into(), &Value::Null), "{advice:#}");
    assert!(decisions["recorded"]["pages"].as_u64().is_some_and(|pages| pages > 0), "{advice:#}");
    let second = disks.iter().find(|of| of["branches"][0] == "disk2").expect("the other");
    assert!(second["device"].as_str().is_some_and(|name| name.starts_with("loop")), "{advice:#}");
    assert_eq!(advice["left_out"][0]["branch"], "memory", "{advice:#}");
    let text = fs::read_to_string(pool.config_path()).expect("the configuration");
    assert!(text.contains("write_back_limit = \"2MiB\""), "nobody asked for a change: {text}");
}

#[test]
fn a_pool_gets_the_advised_lines_only_if_that_is_asked_for() {
    let disk = Disk::ext4(512 * MIB);
    let file = large(disk.join("file"));
    let pool = Pool::builder().branch("disk1", disk.path()).mount();
    let before = fs::read_to_string(pool.config_path()).expect("the configuration");
    let advise = |apply: &[&str]| {
        let mut command = pool.command();
        command.args(["advise", "--json", "--for", "1h", "--pool"]).arg(pool.mount_point()).args(QUICK).args(apply);
        command
    };
    refused(&mut advise(&["--apply"]), 1, &["standard input is not a terminal: give --yes"]);
    // The recording ends by itself when it has as many as are simulated.
    let done = while_written(&file, |_| output(&mut advise(&["--apply", "--yes"])));
    assert!(done.status.success(), "{}", said(&done));
    let advice: Value = serde_json::from_slice(&done.stdout).expect("JSON");
    let best = &advice["disks"][0]["advice"]["write_back"]["best"];
    let now = fs::read_to_string(pool.config_path()).expect("the configuration");
    // Which one it is depends on what the machine managed to write.
    let policy = best["policy"].as_str().expect("with more memory or another policy the disk is less busy");
    let policy = if policy.starts_with("file:") { "kernel" } else { policy };
    assert_eq!(advice["applied"]["written"], true, "{advice:#}");
    assert!(now != before && now.contains(&format!("write_back = \"{policy}\"")), "{now}");
    let shown = format!("{:?}", pool.json(["write-back", "show", "disk1"]));
    // The kernel's own is shown as none.
    let in_force = if policy == "kernel" { "\"write_back\": Null" } else { policy };
    assert!(shown.contains(in_force), "it is in force: {shown}");
}

#[test]
fn small_files_that_are_read_at_random_belong_on_flash_and_a_rule_for_them_is_applied() {
    let (disk, flash) = (Disk::ext4(256 * MIB), Disk::ext4(256 * MIB));
    let name = flash.device().file_name().expect("a name").to_owned();
    fs::write(Path::new("/sys/class/block").join(name).join("queue/rotational"), "0").expect("it has no motor now");
    for number in 0..400 {
        fs::write(disk.join(format!("small{number}")), support::bytes(number, 64 << 10)).expect("a file");
    }
    fs::write(disk.join("large"), support::bytes(1, 32 * MIB)).expect("a file");
    support::run("sync", ["-f".as_ref(), disk.path().as_os_str()]);
    let pool = Pool::builder().branch("hdd", disk.path()).branch("ssd", flash.path()).default(&["hdd"]).mount();
    let mut command = pool.command();
    command.args(["advise", "--json", "--for", "1h", "--apply", "--yes", "--pool"]).arg(pool.mount_point()).args(QUICK);
    let (stop, made) = (AtomicBool::new(false), AtomicU64::new(0));
    let done = thread::scope(|scope| {
        scope.spawn(|| {
            let mut buffer = vec![0_u8; (16 << 10) + 4096];
            let start = buffer.as_ptr().align_offset(4096);
            for number in
                (0..400).cycle().map(|number| number * 151 % 400).take_while(|_| !stop.load(Ordering::Relaxed))
            {
                let path = disk.join(format!("small{number}"));
                let file = File::options().read(true).custom_flags(libc::O_DIRECT).open(path).expect("the file");
                file.read_exact_at(&mut buffer[start..start + (16 << 10)], 16 << 10).expect("a read");
                made.fetch_add(1, Ordering::Relaxed);
                thread::sleep(Duration::from_millis(5));
            }
        });
        let done = recorded(&mut command, || wait_for_more(&made, 500));
        stop.store(true, Ordering::Relaxed);
        done
    });
    assert!(done.status.success(), "{}", said(&done));
    let advice: Value = serde_json::from_slice(&done.stdout).expect("JSON");
    let placement = &advice["placement"];
    assert_eq!((&placement["flash"], &placement["files"]), (&"ssd".into(), &401.into()), "{placement:#}");
    assert_eq!(placement["best"], "files up to 64 KiB", "{placement:#}");
    let small = &placement["tried"][0];
    assert_eq!((&small["files"], &small["bytes"]), (&400.into(), &(400 * (64 << 10)).into()), "{placement:#}");
    assert!(small["requests"].as_u64() >= placement["requests"].as_u64().map(|all| all / 2), "{placement:#}");
    assert!(fs::read_to_string(pool.config_path()).expect("a file").contains("when = { size = \"<= 64KiB\" }"));
    assert_eq!(pool.enforce().files_moved, 400);
    pool.expect_on("ssd", "small7");
    pool.expect_on("hdd", "large");
}
