//! `umbrella disk` as its users call it: disks that are made, served, attached, looked at, and taken away, in order or
//! not.
#![allow(clippy::unnecessary_debug_formatting, reason = "quoted paths are what TOML reads")]

mod damage;
mod holes;
mod hung;
mod in_use;
mod left_behind;
mod messages;
mod mistakes;
mod only_read;
mod power;
#[path = "../support/mod.rs"]
mod support;

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use support::process::{as_nobody, waits};
use support::test_disks::{Killed, TestDisks};
use support::{MIB, bytes, eventually, first, poll, require_root_and_fuse, run, said, temp_dir};

impl TestDisks {
    /// A hybrid disk of files that sleeps after `sleep`, without more options than a user would give.
    fn hybrid(&self, name: &str, sleep: &str) -> String {
        let (disk, flash) = (self.path(&format!("{name}.disk")), self.path(&format!("{name}.flash")));
        let config = self.path(&format!("{name}.disk.toml"));
        let text = format!(
            "[disk]\npath = {disk:?}\nsize = \"64MiB\"\n[flash]\npath = {flash:?}\nsize = \"16MiB\"\n\
             [cache]\nspin_down = \"{sleep}\"\nwhen = \"full\"\n"
        );
        fs::write(&config, text).expect("the folder can be written");
        config.to_str().expect("text").to_owned()
    }

    /// A hybrid disk `media` that is served and sleeps; its configuration.
    fn asleep(&self) -> String {
        let config = self.hybrid("media", "fixed:timeout=0");
        self.given(&["create", &config]);
        self.given(&["serve", &config, "--daemon"]);
        eventually("it sleeps", || self.status("media")["power"] == "standby");
        config
    }

    fn pid(&self, name: &str) -> Pid {
        let pid = self.status(name)["pid"].as_i64().expect("a process");
        Pid::from_raw(pid as i32).expect("a process")
    }

    fn signal(&self, name: &str, signal: Signal) -> Pid {
        let pid = self.pid(name);
        kill_process(pid, signal).expect("the daemon lives");
        pid
    }

    /// Starts a daemon in the foreground.
    fn foreground(&self, args: &[&str]) -> Killed {
        let child = self.umbrella(&[&["serve"], args].concat()).stderr(Stdio::piped()).spawn();
        Killed(child.expect("the program can be started"))
    }

    fn is_served(&self, name: &str) -> bool {
        self.run(&["status", name]).status.success()
    }
}

fn ends(pid: Pid) {
    eventually("the daemon ends", || rustix::process::test_kill_process(pid).is_err());
}

#[test]
fn a_hybrid_disk_is_made_served_and_taken_apart_into_a_plain_disk() {
    let disks = TestDisks::new();
    let config: &str = &disks.hybrid("media", "fixed:timeout=0");
    let before = disks.json(&["check", config]);
    assert_eq!((&before["ok"], before["warnings"].as_array().map(Vec::len)), (&Value::Bool(true), Some(2)));
    let created = disks.json(&["create", config]);
    assert_eq!(created["made"].as_array().map(Vec::len), Some(2));
    assert_eq!(created["size"], (64 << 20) - 8192);
    disks.given(&["serve", config, "--daemon"]);
    eventually("it sleeps", || disks.status("media")["power"] == "standby");
    let data = bytes(1, MIB);
    disks.write("media", &data);
    let status = disks.status("media");
    assert_eq!((&status["kind"], &status["power"]), (&"hybrid".into(), &"standby".into()));
    assert_eq!(status["cache"]["cached"], MIB);
    assert_eq!(first(&disks.path("media.disk"), data.len()), vec![0; data.len()], "the disk was not woken");
    let detached = disks.json(&["detach", "media", "--dissolve"]);
    assert_eq!((&detached["outcome"], &detached["drained"]), (&"dissolved".into(), &MIB.into()));
    assert_eq!(first(&disks.path("media.disk"), data.len()), data);
    assert!(!disks.is_served("media"));
    disks.refused(&["serve", config], 1, &["was detached from its disk", "umbrella disk create"]);
    disks.given(&["create", config]);
    disks.given(&["serve", config, "-d"]);
    assert_eq!(disks.read("media", data.len()), data);
}

#[test]
fn a_hybrid_disk_that_is_detached_is_used_alone_and_attached_again() {
    let disks = TestDisks::new();
    let config: &str = &disks.asleep();
    disks.refused(&["detach", "media", "--dissolve", "--keep-cache"], 2, &[]);
    disks.write("media", &bytes(1, MIB));
    let said = disks.given(&["detach", "media"]);
    assert!(said.contains("can be used alone") && said.contains("--dissolve"), "{said}");
    assert_eq!(first(&disks.path("media.disk"), MIB as usize), bytes(1, MIB));
    // Alone, without the flash.
    disks.given(&["serve", "--disk", "media.disk", "--name", "alone", "--daemon"]);
    disks.write("alone", &bytes(2, MIB));
    disks.given(&["detach", "alone"]);
    assert_eq!(disks.json(&["check", config])["ok"], true);
    disks.given(&["serve", config, "--daemon"]);
    assert_eq!(disks.read("media", MIB as usize), bytes(2, MIB), "what was written to the disk alone counts");
    // While both are in use, the disk is not whole alone.
    ends(disks.signal("media", Signal::KILL));
    disks.refused(&["serve", "--disk", "media.disk", "--daemon"], 1, &["belongs together with the flash"]);
    assert_eq!(disks.json(&["detach", config])["outcome"], "detached");
    assert_eq!(disks.json(&["detach", config, "--dissolve"])["outcome"], "dissolved");
    disks.refused(&["serve", config], 1, &["was detached from its disk", "umbrella disk create"]);
}

#[test]
fn what_is_on_flash_survives_a_kill_and_is_seen_by_check_and_by_the_next_daemon() {
    let disks = TestDisks::new();
    let config: &str = &disks.asleep();
    let data = bytes(2, MIB);
    disks.write("media", &data);
    ends(disks.signal("media", Signal::KILL));
    let checked = disks.json(&["check", config]);
    assert_eq!((&checked["ok"], &checked["pair"]["cached"]), (&Value::Bool(true), &MIB.into()));
    disks.given(&["serve", config, "--daemon"]);
    assert_eq!(disks.read("media", data.len()), data);
    let warned = disks.json(&["check", config]);
    assert_eq!((&warned["ok"], &warned["pair"]), (&Value::Null, &Value::Null));
    let pid = disks.status("media")["pid"].as_u64().expect("a process");
    assert_eq!(warned["unread"], format!("media is served (process {pid})"));
    let kept = disks.json(&["detach", "--keep-cache"]);
    assert_eq!(kept["outcome"], "detached_with_cache");
    assert_eq!(first(&disks.path("media.disk"), data.len()), vec![0; data.len()]);
    // Nobody serves it now: it is named by its configuration.
    disks.refused(&["detach", "media"], 1, &["\"media\" is not a served disk", "no disk is served"]);
    let detached = disks.json(&["detach", config]);
    assert_eq!(detached["drained"], MIB);
    assert_eq!(first(&disks.path("media.disk"), data.len()), data);
}

#[test]
fn a_damaged_log_is_reported_and_not_served() {
    let disks = TestDisks::new();
    let config: &str = &disks.asleep();
    // The second time says in the log that the first was durable.
    disks.write("media", &bytes(3, MIB));
    disks.write("media", &bytes(3, MIB));
    disks.given(&["detach", "--keep-cache"]);
    disks.overwrite("media.flash", (1 << 20) + 8192, &[0xff; 4096]);
    let output = disks.run(&["check", config, "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON document");
    assert_eq!((output.status.code(), &report["ok"]), (Some(1), &Value::Bool(false)));
    assert!(report["errors"][0]["message"].as_str().is_some_and(|text| text.contains("is damaged now")), "{report}");
    disks.refused(&["serve", config, "--daemon"], 1, &["is damaged now"]);
    assert!(!disks.is_served("media"));
}

#[test]
fn an_attached_disk_carries_a_file_system_that_is_still_there_on_the_plain_disk() {
    let disks = TestDisks::new();
    let config: &str = &disks.hybrid("media", "never");
    disks.given(&["create", config]);
    let device = disks.given(&["attach", config]).trim().to_owned();
    assert!(device.starts_with("/dev/loop"), "{device}");
    let again = disks.run(&["attach", config, "--json"]);
    assert!(String::from_utf8_lossy(&again.stdout).contains(&device), "it is attached once");
    assert_eq!(said(&again), "");
    let changed = fs::read_to_string(config).expect("it is there").replace("\"full\"", "\"each\"");
    fs::write(config, changed).expect("the folder can be written");
    let reported = said(&disks.run(&["attach", config]));
    assert!(reported.contains("media is served with when = \"full\", not \"each\""), "{reported}");
    run("mkfs.ext4", ["-q", &device]);
    let mnt = disks.path("mnt");
    fs::create_dir(&mnt).expect("the folder can be made");
    run("mount", [device.as_ref(), mnt.as_os_str()]);
    let data = bytes(4, 3 * MIB);
    fs::write(mnt.join("file"), &data).expect("there is room");
    disks.refused(&["detach", "media"], 1, &[&device, "in use: mounted at ", "unmount"]);
    let failed = disks.run(&["detach", "media", "--json"]);
    let reported: Value = serde_json::from_slice(&failed.stdout).expect("one JSON document");
    assert!(reported["error"].as_str().is_some_and(|reported| reported.contains("in use")), "{reported}");
    assert_eq!(fs::read(mnt.join("file")).expect("it continues"), data);
    run("umount", [&mnt]);
    let stats = disks.json(&["stats", "media"]);
    let counted = |name: &str| stats[name].as_u64().expect("a count");
    assert!(counted("umbrella_disk_written_bytes") >= 3 * MIB, "what this machine writes counts: {stats}");
    assert!(counted("umbrella_disk_reads_count") > 0 && counted("umbrella_disk_flushes_count") > 0, "{stats}");
    assert_eq!(counted("umbrella_disk_clients_accepted_count"), 0);
    disks.given(&["detach", &device]);
    assert!(!disks.path("run/disks/media").exists());
    run("e2fsck", ["-fn".as_ref(), disks.path("media.disk").as_os_str()]);
    run("mount", ["-o".as_ref(), "loop,ro".as_ref(), disks.path("media.disk").as_os_str(), mnt.as_os_str()]);
    let read = fs::read(mnt.join("file"));
    run("umount", [&mnt]);
    assert_eq!(read.expect("it is there"), data);
}

#[test]
fn a_signal_waits_for_a_mounted_device_and_ends_when_it_is_free() {
    let disks = TestDisks::new();
    let device = disks.given(&["attach", "--disk", "memory:size=16MiB", "--name", "ram"]).trim().to_owned();
    run("mkfs.ext4", ["-q", &device]);
    let mnt = disks.path("mnt");
    fs::create_dir(&mnt).expect("the folder can be made");
    run("mount", [device.as_ref(), mnt.as_os_str()]);
    let pid = disks.signal("ram", Signal::TERM);
    eventually("it says that it waits", || disks.logs().contains("waiting until it is free"));
    let trouble = disks.status("ram")["trouble"].to_string();
    assert!(trouble.contains("signal received") && trouble.contains(&device), "{trouble}");
    fs::write(mnt.join("file"), "still served").expect("it continues");
    run("umount", [&mnt]);
    ends(pid);
}

#[test]
fn an_attached_disk_whose_daemon_was_killed_can_be_attached_again() {
    let disks = TestDisks::new();
    let config: &str = &disks.hybrid("media", "never");
    disks.given(&["create", config]);
    disks.given(&["attach", config]);
    ends(disks.signal("media", Signal::KILL));
    let reported = said(&disks.run(&["status"]));
    assert!(
        reported.contains("media: its daemon is gone and did not clean up; attach or serve it again"),
        "{reported}"
    );
    let device = disks.given(&["attach", config]).trim().to_owned();
    assert_eq!(disks.status("media")["device"], device.as_str());
    disks.given(&["detach"]);
}

#[test]
fn what_a_killed_daemon_left_behind_is_cleared_away_by_any_name_of_its_disk() {
    let disks = TestDisks::new();
    let config: &str = &disks.hybrid("media", "never");
    disks.given(&["create", config]);
    let cleared = "media: cleaned up what its daemon left behind";
    let kill = || {
        let device = disks.given(&["attach", config]).trim().to_owned();
        disks.write("media", &bytes(7, MIB));
        // A user of the device keeps it from going with the daemon.
        let used = std::fs::File::open(&device).expect("root may");
        ends(disks.signal("media", Signal::KILL));
        (device, used)
    };
    let is_clear = || {
        let left = std::fs::read_dir(disks.path("run/disks")).expect("it is there").flatten();
        let left: Vec<_> =
            left.map(|entry| entry.file_name()).filter(|name| name.to_string_lossy().starts_with("media")).collect();
        assert!(left.is_empty(), "{left:?}");
        assert!(!said(&disks.run(&["status"])).contains("media"));
    };
    drop(kill());
    disks.refused(&["status", "media"], 1, &["media: its daemon is gone", "umbrella disk detach media"]);
    assert!(disks.given(&["detach", "media"]).contains(cleared));
    is_clear();
    let (device, used) = kill();
    assert!(disks.given(&["detach", &device]).contains(cleared));
    is_clear();
    drop(used);
    drop(kill());
    assert!(disks.given(&["detach", config, "--keep-cache"]).contains(cleared));
    is_clear();
    // What it had on flash is still there, and comes to the disk.
    drop(kill());
    assert_eq!(disks.json(&["detach", config])["outcome"], "detached");
    is_clear();
    assert_eq!(std::fs::read(disks.path("media.disk")).expect("the disk")[..MIB as usize], bytes(7, MIB)[..]);
}

#[test]
fn a_daemon_in_the_foreground_ends_at_a_signal_and_keeps_what_is_on_flash() {
    let disks = TestDisks::new();
    let config: &str = &disks.hybrid("media", "fixed:timeout=0");
    disks.given(&["create", config]);
    let daemon = disks.foreground(&[config]);
    eventually("it sleeps", || disks.is_served("media") && disks.status("media")["power"] == "standby");
    disks.write("media", &bytes(5, MIB));
    disks.refused(&["serve", config], 1, &["media is already served by process"]);
    disks.refused(&["create", config], 1, &["media is served; detach it first"]);
    disks.signal("media", Signal::INT);
    let (code, reported) = daemon.ended();
    assert_eq!(code, Some(0), "{reported}");
    assert!(reported.contains("hybrid, 63.9 MiB, at unix:"), "{reported}");
    assert_eq!(disks.json(&["check", config])["pair"]["cached"], MIB);
}

/// A disk in memory with one client.
fn used(disks: &TestDisks) -> Child {
    disks.given(&["serve", "--disk", "memory:size=16MiB", "--name", "ram", "--daemon"]);
    client_of(disks)
}

/// Another client of it.
fn client_of(disks: &TestDisks) -> Child {
    let client = Command::new("qemu-io")
        .args(["-f", "raw", &format!("nbd+unix:///ram?socket={}", disks.path("run/disks/ram.nbd").display())])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("qemu-io is installed (`make setup` does)");
    eventually("the client is connected", || disks.status("ram")["clients"] == 1);
    client
}

#[test]
fn a_detachment_waits_a_moment_for_a_client_that_hangs_up() {
    let disks = TestDisks::new();
    let mut client = used(&disks);
    // It waits for a second: where the client came to its end later than that, nothing is known, and another hangs up.
    let waited = (0..20).any(|_| {
        let mut detaches =
            disks.umbrella(&["detach"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
        let waits = waits(&mut detaches);
        client.kill().expect("it is our child");
        client.wait().expect("it is our child");
        let is_away = detaches.wait().expect("it is our child").success();
        if !is_away {
            eventually("the client is gone", || disks.status("ram")["clients"] == 0);
            client = client_of(&disks);
        }
        waits && is_away
    });
    let _ = client.kill();
    let _ = client.wait();
    assert!(waited, "nobody waits");
}

#[test]
fn a_disk_that_somebody_uses_is_not_taken_away_unless_told_to() {
    let disks = TestDisks::new();
    let mut client = used(&disks);
    disks.refused(&["detach"], 1, &["in use by NBD clients (1 connected)", "--force"]);
    assert!(disks.is_served("ram"));
    let pid = disks.pid("ram");
    disks.given(&["detach", "--force"]);
    client.kill().expect("it is our child");
    client.wait().expect("it is our child");
    ends(pid);
}

#[test]
fn a_read_only_disk_cannot_be_written() {
    let disks = TestDisks::new();
    fs::write(disks.path("image"), bytes(6, MIB)).expect("the folder can be written");
    disks.given(&["serve", "--disk", "image", "--read-only", "--daemon"]);
    assert_eq!(disks.status("image")["read_only"], true);
    assert_eq!(disks.read("image", MIB as usize), bytes(6, MIB));
    fs::write(disks.path("other"), bytes(7, MIB)).expect("the folder can be written");
    let copied = Command::new("nbdcopy").arg(disks.path("other")).arg(disks.nbd("image")).output();
    assert!(!copied.expect("nbdcopy is installed (`make setup` does)").status.success());
    disks.given(&["detach"]);
    assert_eq!(fs::read(disks.path("image")).expect("it is there"), bytes(6, MIB));
}

#[test]
fn an_emulated_disk_takes_its_time_and_measures_it() {
    let disks = TestDisks::new();
    let disk = "emulated:profile=modern,size=64MiB,speed=50";
    disks.given(&["serve", "--disk", disk, "--name", "slow", "--listen", "127.0.0.1:0", "--daemon"]);
    let status = disks.status("slow");
    assert_eq!((&status["kind"], &status["size"]), (&"emulated".into(), &(64 * MIB).into()));
    let address = status["listen"][0].as_str().expect("an address").to_owned();
    let file = disks.path("data");
    fs::write(&file, bytes(8, MIB)).expect("the folder can be written");
    run("nbdcopy", ["--flush".as_ref(), file.as_os_str(), format!("nbd://{address}").as_ref()]);
    let stats = disks.json(&["stats"]);
    assert!(stats["umbrella_emulated_disk_served_count"].as_u64() > Some(0), "{stats}");
    assert!(stats["umbrella_emulated_disk_energy_joules"].as_f64() > Some(0.0), "{stats}");
    assert_eq!(stats["umbrella_disk_written_bytes"], MIB);
    let table = disks.given(&["stats"]);
    assert!(table.contains("umbrella_disk_written_bytes") && table.contains("bytes written by NBD clients"), "{table}");
}

#[test]
fn several_disks_are_told_apart() {
    let disks = TestDisks::new();
    disks.refused(&["stats"], 1, &["no disk is served (offer one with `umbrella disk serve CONFIG`)"]);
    assert_eq!(disks.given(&["status"]), "no disk is served\n");
    for name in ["one", "two"] {
        disks.given(&["serve", "--disk", "memory:size=1MiB", "--name", name, "--daemon"]);
    }
    disks.refused(&["detach"], 1, &["2 disks are served; name one: one, two"]);
    disks.refused(&["status", "three"], 1, &["\"three\" is not a served disk", "served: one, two"]);
    let all = disks.json(&["status"]);
    let names: Vec<_> = all.as_array().into_iter().flatten().map(|disk| disk["name"].as_str().unwrap_or("")).collect();
    assert_eq!(names, ["one", "two"]);
    disks.given(&["detach", "one"]);
    disks.given(&["detach"]);
}

#[test]
fn a_disk_or_flash_that_holds_something_is_not_overwritten_unless_told_to() {
    let disks = TestDisks::new();
    let config: &str = &disks.hybrid("media", "never");
    disks.given(&["create", config]);
    disks.refused(&["create", config], 1, &["already holds", "detach"]);
    disks.given(&["create", config, "--force"]);
    let other = disks.hybrid("other", "never");
    File::create(disks.path("other.flash")).and_then(|file| file.set_len(16 * MIB)).expect("it can be made");
    run("mkfs.ext4", ["-q".as_ref(), "-F".as_ref(), disks.path("other.flash").as_os_str()]);
    disks.refused(&["create", &other], 1, &["other.flash already holds", "--force"]);
}

#[test]
fn a_disk_whose_newest_data_is_on_a_flash_is_made_no_other_pair_even_by_force() {
    let disks = TestDisks::new();
    let config: &str = &disks.asleep();
    disks.write("media", &bytes(5, MIB));
    disks.given(&["detach", "media", "--keep-cache"]);
    let refused = ["media.disk belongs together with the flash", "detach CONFIG --forget-flash"];
    disks.refused(&["create", config, "--force"], 1, &refused);
    let flash = fs::read(disks.path("media.flash")).expect("it is there");
    fs::remove_file(disks.path("media.flash")).expect("it can be removed");
    disks.refused(&["create", config, "--force"], 1, &refused);
    fs::write(disks.path("media.flash"), flash).expect("it can be written");
    // No new pair is made of one that was written to meanwhile either; what its message says to do works.
    disks.overwrite("media.disk", 0, &[7; 512]);
    disks.refused(&["check", config], 1, &["was written to without", "`umbrella disk detach --forget-flash`"]);
    disks.refused(&["create", config, "--force"], 1, &refused);
    // Its flash is not taken for a disk either.
    let new = ["--disk", "media.flash", "--flash", "file:path=new,size=16MiB"];
    let is_flash = ["media.flash is the flash of the hybrid disk"];
    disks.refused(&["serve", "--disk", "media.flash", "--daemon"], 1, &is_flash);
    disks.refused(&[&["create"], &new[..]].concat(), 1, &is_flash);
    disks.refused(&[&["create", "--force"], &new[..]].concat(), 1, &is_flash);
    // Its label is gone, but it is known to this machine.
    let other = ["--disk", "media.disk", "--flash", "file:path=other,size=16MiB"];
    disks.overwrite("media.disk", 64 * MIB - 8192, &[0; 8192]);
    for force in [&["create"][..], &["create", "--force"]] {
        disks.refused(&[force, &other[..]].concat(), 1, &["was half of a hybrid disk", "--forget-flash"]);
    }
    // The label of the flash as well: there still is a log.
    disks.overwrite("media.flash", 0, &[0; 8192]);
    disks.refused(&["create", config], 1, &["media.flash already holds"]);
    disks.given(&["detach", config, "--forget-flash"]);
    disks.given(&["create", config, "--force"]);
}

#[test]
fn halves_of_different_disks_are_not_served_together() {
    let disks = TestDisks::new();
    for name in ["one", "two"] {
        disks.given(&["create", &disks.hybrid(name, "never")]);
    }
    let mixed = ["--disk", "one.disk", "--flash", "two.flash"];
    disks.refused(&[&["serve"], &mixed[..]].concat(), 1, &["one.disk", "two.flash", "belongs to"]);
    disks.refused(&[&["check"], &mixed[..]].concat(), 1, &["belongs to"]);
}

#[test]
fn what_cannot_be_served_says_why_also_from_the_background() {
    let disks = TestDisks::new();
    disks.refused(&["serve", "--disk", "nowhere", "--daemon"], 1, &["nowhere: No such file or directory"]);
    disks.refused(
        &["serve", "--disk", "memory:size=1MiB", "--listen", "192.0.2.1:1", "--daemon"],
        1,
        &["cannot listen on 192.0.2.1:1"],
    );
    disks.refused(&["attach", "--disk", "memory:size=1000PiB"], 1, &["not enough memory for"]);
    disks.refused(&["create", "--disk", "nowhere"], 1, &["nowhere does not exist; to make it, give its size"]);
    disks.refused(&["serve"], 2, &["required"]);
    disks.refused(&["serve", "--disk", "memory:size=1MiB", "--name", "a/b"], 2, &["cannot be a disk's name"]);
    disks.refused(
        &["serve", "--disk", "memory:size=1MiB", "--when", "now"],
        2,
        &["known: each, full, watermark, piggyback"],
    );
    disks.refused(&["serve", "--disk", "memory:size=1MiB", "--when", "full"], 1, &["needs a flash"]);
    assert_eq!(disks.given(&["status"]), "no disk is served\n");
}

#[test]
fn only_its_owner_may_ask_a_daemon() {
    let disks = TestDisks::new();
    disks.given(&["serve", "--disk", "memory:size=1MiB", "--name", "ram", "--daemon"]);
    for socket in ["ram.sock", "ram.nbd"] {
        let socket = disks.path("run/disks").join(socket);
        let mode = fs::metadata(&socket).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{socket:?}");
        as_nobody(|| std::os::unix::net::UnixStream::connect(&socket).expect_err("nobody may not"));
    }
}
