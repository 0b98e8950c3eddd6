//! Log stores as their users have them: made, served and attached by the program, with real file systems and programs
//! on them, grown, killed and damaged. Needs root, FUSE, the loop driver, fio, postmark, fsx, nbdcopy and qemu-img.

mod file_systems;
mod full;
mod growing;
mod house;
mod kills;
mod mistakes;
mod salvage;
mod scrub;
#[path = "../support/mod.rs"]
mod support;

use std::fs;

use house::text;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use support::house::House;
use support::{MIB, bytes, eventually, run};

#[test]
fn a_store_is_made_recognised_by_itself_and_closed_in_order() {
    let house = House::new();
    let created = house.json(&["create", "--kind", "log", "a.img", "--size", "64MiB", "--scheme", "r_lfs:regions=2"]);
    assert_eq!((&created["made"], &created["pair"]), (&json!([text(&house.path("a.img"))]), &Value::Null));
    assert_eq!(created["store"]["scheme"], "r_lfs:regions=2");
    let size = created["size"].as_u64().expect("a number");
    assert!((32 * MIB..64 * MIB).contains(&size), "{size}");

    house.given(&["serve", "a.img", "--daemon"]);
    let status = house.status("a.img");
    assert_eq!(
        (&status["kind"], &status["size"], &status["log"]["scheme"]),
        (&json!("log"), &json!(size), &json!("r_lfs:regions=2"))
    );
    let data = bytes(7, 3 * MIB);
    house.write("a.img", &data);
    assert!(house.read("a.img", data.len()) == data, "what was written is read");
    let stats = house.json(&["stats", "a.img"]);
    assert_eq!(stats["umbrella_log_written_bytes"], json!(data.len()));
    assert_eq!(stats["umbrella_log_regions"].as_array().map(Vec::len), Some(2));
    assert_eq!(stats["umbrella_log_victims"].as_array().map(Vec::len), Some(11));
    let shown = house.given(&["stats", "a.img"]);
    assert!(shown.contains("1 (middle)") && shown.contains("CLEANED WITH"), "{shown}");
    assert_eq!(house.json(&["detach", "a.img"])["outcome"], "detached");

    let checked = house.json(&["check", "a.img", "--data"]);
    assert_eq!(
        (&checked["ok"], &checked["store"]["clean"], &checked["warnings"]),
        (&json!(true), &json!(true), &json!([]))
    );
    assert!(checked["store"]["data_checked"].as_u64() >= Some(3 * MIB), "{checked}");
    // Not the file as it is: that would be larger.
    house.given(&["serve", "a.img", "--daemon", "--read-only"]);
    assert!(house.read("a.img", data.len()) == data, "it is all there after the next start");
    house.given(&["detach"]);
}

#[test]
fn schemes_are_listed_with_their_parameters() {
    let house = House::new();
    let listed = house.json(&["schemes"]);
    let names: Vec<&str> = listed.as_array().into_iter().flatten().filter_map(|item| item["name"].as_str()).collect();
    assert!(names.contains(&"r_lfs") && names.contains(&"sepgc"), "{names:?}");
    assert!(house.given(&["schemes"]).contains("regions=3"));
    for name in names {
        house.given(&["create", "--kind", "log", "--force", "s.img", "--size", "64MiB", "--scheme", name]);
        assert_eq!(house.json(&["check", "s.img"])["store"]["scheme"], name);
    }
}

#[test]
fn a_configuration_makes_a_store_on_a_hybrid_disk_and_the_disk_alone_has_it_after_detach() {
    let house = House::new();
    let config = house.config(
        "both",
        &format!(
            "[disk]\npath = \"{}\"\nsize = \"96MiB\"\n[flash]\npath = \"{}\"\nsize = \"24MiB\"\n[cache]\nspin_down = \"fixed:timeout=0\"\n\
             [log]\nscheme = \"sepgc\"\nvictim = \"greedy\"\nmap_memory = \"1MiB\"\nquiet = \"50ms\"\n",
            text(&house.path("disk")),
            text(&house.path("flash"))
        ),
    );
    let created = house.json(&["create", &config]);
    assert!(created["pair"].is_object() && created["store"]["scheme"] == "sepgc", "{created}");
    house.given(&["serve", &config, "--daemon"]);
    let status = house.status("both");
    assert_eq!(status["kind"], "log");
    assert!(status["cache"].is_object() && status["log"].is_object(), "{status}");
    eventually("the disk sleeps", || house.status("both")["power"] == "standby");
    house.write("both", &bytes(2, MIB));
    let stats = house.json(&["stats", "both"]);
    assert!(stats["umbrella_cache_logged_count"].as_u64() > Some(0), "writes go to the flash: {stats}");
    let device = house.attach(&config);
    run("mkfs.ext4", ["-q", "-F", &device]);
    let data = bytes(3, 20 * MIB);
    {
        let mount = house.mount(&device);
        fs::write(mount.path().join("file"), &data).expect("there is room");
    }
    house.given(&["detach", "both", "--keep-cache"]);
    let checked = house.json(&["check", &config, "--data"]);
    assert_eq!((&checked["ok"], &checked["store"]["scheme"]), (&json!(true), &json!("sepgc")));
    assert!(checked["store"]["data_checked"].as_u64() > Some(20 * MIB), "{checked}");
    house.given(&["detach", &config]);

    let disk = text(&house.path("disk"));
    assert_eq!(house.json(&["check", &disk, "--data"])["errors"], json!([]));
    let device = house.attach(&disk);
    run("e2fsck", ["-f", "-n", &device]);
    {
        let mount = house.mount(&device);
        assert!(fs::read(mount.path().join("file")).expect("it is there") == data);
    }
    house.given(&["detach", &device]);
}

#[test]
fn a_store_on_an_emulated_disk_in_memory_is_new_at_each_start() {
    let house = House::new();
    let config = house.config(
        "slow",
        "[disk]\nkind = \"emulated\"\nprofile = \"modern\"\nsize = \"128MiB\"\nspeed = 1000\n[log]\nscheme = \"r_lfs:regions=1\"\n",
    );
    house.refused(&["create", &config], 1, &["in memory and would be lost"]);
    for _ in 0..2 {
        house.given(&["serve", &config, "--daemon"]);
        let data = bytes(1, MIB);
        assert!(house.read("slow", data.len()) == vec![0; data.len()], "it begins empty");
        house.write("slow", &data);
        assert!(house.read("slow", data.len()) == data);
        let stats = house.json(&["stats", "slow"]);
        assert!(stats["umbrella_emulated_disk_served_count"].as_u64() > Some(0), "{stats}");
        house.given(&["detach", "slow"]);
    }
}

#[test]
fn other_programs_copy_images_to_a_store_and_back() {
    let house = House::new();
    house.given(&["create", "--kind", "log", "n.img", "--size", "64MiB"]);
    house.given(&["serve", "n.img", "--daemon"]);
    let size = house.status("n.img")["size"].as_u64().expect("a number");
    let raw = house.path("raw");
    fs::write(&raw, bytes(9, size)).expect("there is room");
    let (raw, back) = (text(&raw), text(&house.path("back")));
    let server = format!("nbd:unix:{}:exportname=n.img", text(&house.path("run/disks/n.img.nbd")));
    // Twice, so that everything is overwritten.
    for _ in 0..2 {
        run("qemu-img", ["convert", "-n", "-f", "raw", "-O", "raw", &raw, &server]);
        run("qemu-img", ["compare", "-f", "raw", "-F", "raw", &raw, &server]);
        run("nbdcopy", [&raw, &house.nbd("n.img")]);
        run("nbdcopy", [&house.nbd("n.img"), &back]);
        run("cmp", [&raw, &back]);
    }
    house.given(&["detach"]);
    house.given(&["check", "n.img", "--data"]);
}

#[test]
fn a_daemon_is_announced_with_its_name_and_where_it_listens() {
    let house = House::new();
    house.given(&["create", "--kind", "log", "n.img", "--size", "64MiB"]);
    let socket = text(&house.path("run/disks/n.img.nbd"));
    assert_eq!(house.given(&["serve", "n.img", "--daemon"]), format!("n.img  unix:{socket}\n"));
    house.given(&["detach"]);
    assert_eq!(house.said(&["serve", "n.img", "--daemon"]), "", "a short opening needs no word");
    house.given(&["detach"]);
}

#[test]
fn an_opening_that_takes_long_says_so() {
    let house = House::new();
    let config = |speed: &str| {
        let disk = text(&house.path("disk"));
        house.config("slow", &format!("[disk]\nkind = \"emulated\"\nprofile = \"modern\"\npath = \"{disk}\"\nsize = \"64MiB\"\nspeed = {speed}\n[log]\n"))
    };
    house.given(&["create", &config("1000")]);
    let said = house.said(&["serve", &config("0.02"), "--daemon"]);
    assert!(said.starts_with("opening slow: 2 s so far\n"), "{said}");
    house.given(&["detach"]);

    // Ctrl-C meanwhile: no daemon is left, and the store was closed in order.
    let config = config("0.1");
    let mut starter = house.umbrella(&["serve", &config, "--daemon"]).spawn().expect("timeout(1) runs");
    let socket = house.path("run/disks/slow.sock");
    eventually("the daemon opens the disk", || socket.exists());
    kill_process(Pid::from_child(&starter), Signal::INT).expect("it runs");
    assert!(!starter.wait().expect("a child").success());
    eventually("the daemon has ended", || !socket.exists());
    assert_eq!(house.given(&["status"]), "no disk is served\n");
    assert_eq!(house.json(&["check", &config])["store"]["clean"], true);
}

#[test]
fn segments_that_a_discard_empties_are_said_to_be_free_later() {
    let house = House::new();
    let config = house.config(
        "trim",
        &format!("[disk]\npath = \"{}\"\nsize = \"128MiB\"\n[log]\nquiet = \"1h\"\n", text(&house.path("disk"))),
    );
    house.given(&["create", &config]);
    let device = house.attach(&config);
    let data = house.path("data");
    fs::write(&data, bytes(1, 80 * MIB)).expect("there is room");
    run("dd", [format!("if={}", text(&data)), format!("of={device}"), "bs=1M".to_owned(), "oflag=direct".to_owned()]);
    let free = house.status("trim")["log"]["free_segments"].as_u64().expect("a number");
    run("blkdiscard", [&device]);
    let log = house.status("trim")["log"].clone();
    let emptied = log["emptied_segments"].as_u64().expect("a number");
    assert!(emptied > 200 && log["live"] == 0, "{log}, {free} free before");
    let shown = house.given(&["status", "trim"]);
    assert!(shown.contains(&format!("segments free, {emptied} more after the next checkpoint\n")), "{shown}");
    house.given(&["detach", "trim"]);
    house.given(&["serve", &config, "--daemon"]);
    let shown = house.given(&["status", "trim"]);
    assert!(!shown.contains("more after the next checkpoint"), "{shown}");
}
