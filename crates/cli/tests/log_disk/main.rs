//! Log stores as their users have them: made, served and attached by the program, with real file systems and programs
//! on them, grown, killed and damaged. Needs root, FUSE, the loop driver, fio, postmark, fsx, nbdcopy and qemu-img.

mod file_systems;
mod full;
mod growing;
mod kills;
mod mistakes;
mod salvage;
mod scrub;
#[path = "../support/mod.rs"]
mod support;
mod test_disks;

use std::fs;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use support::test_disks::TestDisks;
use support::{MIB, bytes, eventually, run};
use test_disks::text;

#[test]
fn a_store_is_made_recognised_by_itself_and_closed_in_order() {
    let disks = TestDisks::new();
    let created = disks.json(&["create", "--kind", "log", "a.img", "--size", "64MiB", "--scheme", "r_lfs:regions=2"]);
    assert_eq!((&created["made"], &created["pair"]), (&json!([text(&disks.path("a.img"))]), &Value::Null));
    assert_eq!(created["store"]["scheme"], "r_lfs:regions=2");
    let size = created["size"].as_u64().expect("a number");
    assert!((32 * MIB..64 * MIB).contains(&size), "{size}");

    disks.given(&["serve", "a.img", "--daemon"]);
    let status = disks.status("a.img");
    assert_eq!(
        (&status["kind"], &status["size"], &status["log"]["scheme"]),
        (&json!("log"), &json!(size), &json!("r_lfs:regions=2"))
    );
    let data = bytes(7, 3 * MIB);
    disks.write("a.img", &data);
    assert!(disks.read("a.img", data.len()) == data, "what was written is read");
    let stats = disks.json(&["stats", "a.img"]);
    assert_eq!(stats["umbrella_log_written_bytes"], json!(data.len()));
    assert_eq!(stats["umbrella_log_regions"].as_array().map(Vec::len), Some(2));
    assert_eq!(stats["umbrella_log_victims"].as_array().map(Vec::len), Some(11));
    let shown = disks.given(&["stats", "a.img"]);
    assert!(shown.contains("1 (middle)") && shown.contains("CLEANED WITH"), "{shown}");
    assert_eq!(disks.json(&["detach", "a.img"])["outcome"], "detached");

    let checked = disks.json(&["check", "a.img", "--data"]);
    assert_eq!(
        (&checked["ok"], &checked["store"]["clean"], &checked["warnings"]),
        (&json!(true), &json!(true), &json!([]))
    );
    assert!(checked["store"]["data_checked"].as_u64() >= Some(3 * MIB), "{checked}");
    // Not the file as it is: that would be larger.
    disks.given(&["serve", "a.img", "--daemon", "--read-only"]);
    assert!(disks.read("a.img", data.len()) == data, "it is all there after the next start");
    disks.given(&["detach"]);
}

#[test]
fn schemes_are_listed_with_their_parameters() {
    let disks = TestDisks::new();
    let listed = disks.json(&["schemes"]);
    let names: Vec<&str> = listed.as_array().into_iter().flatten().filter_map(|item| item["name"].as_str()).collect();
    assert!(names.contains(&"r_lfs") && names.contains(&"sepgc"), "{names:?}");
    assert!(disks.given(&["schemes"]).contains("regions=3"));
    for name in names {
        disks.given(&["create", "--kind", "log", "--force", "s.img", "--size", "64MiB", "--scheme", name]);
        assert_eq!(disks.json(&["check", "s.img"])["store"]["scheme"], name);
    }
}

#[test]
fn a_configuration_makes_a_store_on_a_hybrid_disk_and_the_disk_alone_has_it_after_detach() {
    let disks = TestDisks::new();
    let config = disks.config(
        "both",
        &format!(
            "[disk]\npath = \"{}\"\nsize = \"96MiB\"\n[flash]\npath = \"{}\"\nsize = \"24MiB\"\n[cache]\nspin_down = \"fixed:timeout=0\"\n\
             [log]\nscheme = \"sepgc\"\nvictim = \"greedy\"\nmap_memory = \"1MiB\"\nquiet = \"50ms\"\n",
            text(&disks.path("disk")),
            text(&disks.path("flash"))
        ),
    );
    let created = disks.json(&["create", &config]);
    assert!(created["pair"].is_object() && created["store"]["scheme"] == "sepgc", "{created}");
    disks.given(&["serve", &config, "--daemon"]);
    let status = disks.status("both");
    assert_eq!(status["kind"], "log");
    assert!(status["cache"].is_object() && status["log"].is_object(), "{status}");
    eventually("the disk sleeps", || disks.status("both")["power"] == "standby");
    disks.write("both", &bytes(2, MIB));
    let stats = disks.json(&["stats", "both"]);
    assert!(stats["umbrella_cache_logged_count"].as_u64() > Some(0), "writes go to the flash: {stats}");
    let device = disks.attach(&config);
    run("mkfs.ext4", ["-q", "-F", &device]);
    let data = bytes(3, 20 * MIB);
    {
        let mount = disks.mount(&device);
        fs::write(mount.path().join("file"), &data).expect("there is room");
    }
    disks.given(&["detach", "both", "--keep-cache"]);
    let checked = disks.json(&["check", &config, "--data"]);
    assert_eq!((&checked["ok"], &checked["store"]["scheme"]), (&json!(true), &json!("sepgc")));
    assert!(checked["store"]["data_checked"].as_u64() > Some(20 * MIB), "{checked}");
    disks.given(&["detach", &config]);

    let disk = text(&disks.path("disk"));
    assert_eq!(disks.json(&["check", &disk, "--data"])["errors"], json!([]));
    let device = disks.attach(&disk);
    run("e2fsck", ["-f", "-n", &device]);
    {
        let mount = disks.mount(&device);
        assert!(fs::read(mount.path().join("file")).expect("it is there") == data);
    }
    disks.given(&["detach", &device]);
}

#[test]
fn a_store_on_an_emulated_disk_in_memory_is_new_at_each_start() {
    let disks = TestDisks::new();
    let config = disks.config(
        "slow",
        "[disk]\nkind = \"emulated\"\nprofile = \"modern\"\nsize = \"128MiB\"\nspeed = 1000\n[log]\nscheme = \"r_lfs:regions=1\"\n",
    );
    disks.refused(&["create", &config], 1, &["in memory and would be lost"]);
    for _ in 0..2 {
        disks.given(&["serve", &config, "--daemon"]);
        let data = bytes(1, MIB);
        assert!(disks.read("slow", data.len()) == vec![0; data.len()], "it begins empty");
        disks.write("slow", &data);
        assert!(disks.read("slow", data.len()) == data);
        let stats = disks.json(&["stats", "slow"]);
        assert!(stats["umbrella_emulated_disk_served_count"].as_u64() > Some(0), "{stats}");
        disks.given(&["detach", "slow"]);
    }
}

#[test]
fn other_programs_copy_images_to_a_store_and_back() {
    let disks = TestDisks::new();
    disks.log_store("n.img");
    let size = disks.status("n.img")["size"].as_u64().expect("a number");
    let raw = disks.path("raw");
    fs::write(&raw, bytes(9, size)).expect("there is room");
    let (raw, back) = (text(&raw), text(&disks.path("back")));
    let server = format!("nbd:unix:{}:exportname=n.img", text(&disks.path("run/disks/n.img.nbd")));
    // Twice, so that everything is overwritten.
    for _ in 0..2 {
        run("qemu-img", ["convert", "-n", "-f", "raw", "-O", "raw", &raw, &server]);
        run("qemu-img", ["compare", "-f", "raw", "-F", "raw", &raw, &server]);
        run("nbdcopy", [&raw, &disks.nbd("n.img")]);
        run("nbdcopy", [&disks.nbd("n.img"), &back]);
        run("cmp", [&raw, &back]);
    }
    disks.given(&["detach"]);
    disks.given(&["check", "n.img", "--data"]);
}

#[test]
fn a_daemon_is_announced_with_its_name_and_where_it_listens() {
    let disks = TestDisks::new();
    disks.given(&["create", "--kind", "log", "n.img", "--size", "64MiB"]);
    let socket = text(&disks.path("run/disks/n.img.nbd"));
    assert_eq!(disks.given(&["serve", "n.img", "--daemon"]), format!("n.img  unix:{socket}\n"));
    disks.given(&["detach"]);
    assert_eq!(disks.said(&["serve", "n.img", "--daemon"]), "", "a short opening needs no word");
    disks.given(&["detach"]);
}

#[test]
fn an_opening_that_takes_long_says_so() {
    let disks = TestDisks::new();
    let config = |speed: &str| {
        let disk = text(&disks.path("disk"));
        disks.config("slow", &format!("[disk]\nkind = \"emulated\"\nprofile = \"modern\"\npath = \"{disk}\"\nsize = \"64MiB\"\nspeed = {speed}\n[log]\n"))
    };
    disks.given(&["create", &config("1000")]);
    let said = disks.said(&["serve", &config("0.02"), "--daemon"]);
    assert!(said.starts_with("opening slow: 2 s so far\n"), "{said}");
    disks.given(&["detach"]);

    // Ctrl-C meanwhile: no daemon is left, and the store was closed in order.
    let config = config("0.1");
    let mut starter = disks.umbrella(&["serve", &config, "--daemon"]).spawn().expect("timeout(1) runs");
    let socket = disks.path("run/disks/slow.sock");
    eventually("the daemon opens the disk", || socket.exists());
    kill_process(Pid::from_child(&starter), Signal::INT).expect("it runs");
    assert!(!starter.wait().expect("a child").success());
    eventually("the daemon has ended", || !socket.exists());
    assert_eq!(disks.given(&["status"]), "no disk is served\n");
    assert_eq!(disks.json(&["check", &config])["store"]["clean"], true);
}

#[test]
fn segments_that_a_discard_empties_are_said_to_be_free_later() {
    let disks = TestDisks::new();
    let config = disks.config(
        "trim",
        &format!("[disk]\npath = \"{}\"\nsize = \"128MiB\"\n[log]\nquiet = \"1h\"\n", text(&disks.path("disk"))),
    );
    disks.given(&["create", &config]);
    let device = disks.attach(&config);
    let data = disks.path("data");
    fs::write(&data, bytes(1, 80 * MIB)).expect("there is room");
    run("dd", [format!("if={}", text(&data)), format!("of={device}"), "bs=1M".to_owned(), "oflag=direct".to_owned()]);
    let free = disks.status("trim")["log"]["free_segments"].as_u64().expect("a number");
    run("blkdiscard", [&device]);
    let log = disks.status("trim")["log"].clone();
    let emptied = log["emptied_segments"].as_u64().expect("a number");
    assert!(emptied > 200 && log["live"] == 0, "{log}, {free} free before");
    let shown = disks.given(&["status", "trim"]);
    assert!(shown.contains(&format!("segments free, {emptied} more after the next checkpoint\n")), "{shown}");
    disks.given(&["detach", "trim"]);
    disks.given(&["serve", &config, "--daemon"]);
    let shown = disks.given(&["status", "trim"]);
    assert!(!shown.contains("more after the next checkpoint"), "{shown}");
}
