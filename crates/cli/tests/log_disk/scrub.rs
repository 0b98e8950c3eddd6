//! `umbrella disk scrub`, by hand and in time.

use std::fs;

use serde_json::json;

use crate::support::test_disks::TestDisks;
use crate::support::{MIB, bytes, eventually};
use crate::test_disks::text;

/// Where a block of this data lies in a file.
fn place_of(disks: &TestDisks, file: &str, data: &[u8]) -> u64 {
    let image = fs::read(disks.path(file)).expect("it is there");
    let at = image.windows(512).step_by(512).position(|sector| sector == &data[..512]);
    at.expect("it lies somewhere") as u64 * 512
}

#[test]
fn a_scrub_of_a_log_store_names_what_is_damaged_and_ends_with_1() {
    let disks = TestDisks::new();
    disks.log_store("s.img");
    let data = bytes(11, 3 * MIB);
    disks.write("s.img", &data);
    assert_eq!(disks.status("s.img")["scrub"]["state"], "idle");
    let clean = disks.given(&["scrub", "s.img", "--bandwidth", "1GiB"]);
    assert!(clean.contains("3 MiB compared") && clean.contains("no damage found"), "{clean}");
    disks.flip("s.img", place_of(&disks, "s.img", &data[100 * 4096..]) + 9);
    disks.refused(&["scrub", "s.img"], 1, &["1 range damaged or unreadable", "Restore the files there from a backup"]);
    let status = disks.status("s.img");
    let damaged = json!([{ "start": 800, "sectors": 8 }]);
    assert_eq!(status["scrub"]["last"]["damaged"], damaged, "{status}");
    assert!(status["trouble"].to_string().contains("the last scrub found 1 range"), "{status}");
    disks.refused(&["scrub", "s.img", "--bandwidth", "1KiB"], 1, &["64KiB or more"]);
    // Also after a restart, and no more when it is mended.
    disks.given(&["detach"]);
    disks.given(&["serve", "s.img", "--daemon"]);
    assert_eq!(disks.status("s.img")["scrub"]["last"]["damaged"], damaged);
    disks.write("s.img", &data);
    disks.given(&["scrub", "s.img", "--bandwidth", "1GiB"]);
    assert_eq!(disks.status("s.img")["trouble"], json!([]));
    disks.given(&["detach"]);
    disks.refused(&["scrub", "s.img"], 1, &["is not served", "umbrella disk check --data"]);
}

#[test]
fn a_scrub_that_is_interrupted_continues_where_it_was() {
    let disks = TestDisks::new();
    disks.log_store("s.img");
    disks.write("s.img", &bytes(11, 3 * MIB));
    let slow = ["scrub", "s.img", "--bandwidth", "256KiB"];
    let mut scrubbing = disks.umbrella(&slow).spawn().expect("it runs");
    eventually("a scrub runs", || disks.status("s.img")["scrub"]["read"].as_u64() > Some(0));
    disks.refused(&slow, 1, &["is already being scrubbed"]);
    rustix::process::kill_process(rustix::process::Pid::from_child(&scrubbing), rustix::process::Signal::TERM)
        .expect("it is there");
    scrubbing.wait().expect("it ends");
    eventually("it is interrupted", || disks.status("s.img")["scrub"]["state"] == "interrupted");
    let read = disks.status("s.img")["scrub"]["read"].as_u64().expect("a number");
    disks.given(&["detach"]);
    disks.given(&["serve", "s.img", "--daemon"]);
    assert_eq!(
        disks.status("s.img")["scrub"],
        json!({ "state": "interrupted", "read": read, "damaged_ranges": 0, "last": null })
    );
    let done = disks.json(&["scrub", "s.img", "--bandwidth", "1GiB"]);
    assert_eq!((&done["read"], &done["damaged"]), (&json!(3 * MIB), &json!([])));
}

#[test]
fn a_hybrid_disk_scrubs_its_flash_by_itself_when_it_is_time() {
    let disks = TestDisks::new();
    let (disk, flash) = (text(&disks.path("disk.img")), text(&disks.path("flash.img")));
    let config = disks.config(
        "pair",
        &format!(
            "[disk]\npath = \"{disk}\"\nsize = \"64MiB\"\n[flash]\npath = \"{flash}\"\nsize = \"16MiB\"\n\
             [cache]\nwhen = \"full\"\nspin_down = \"fixed:timeout=100ms\"\n[scrub]\nevery = \"1m\"\nbandwidth = \"1GiB\"\n"
        ),
    );
    disks.given(&["create", &config]);
    disks.given(&["serve", &config, "--daemon"]);
    eventually("it was scrubbed", || disks.status("pair")["scrub"]["last"].is_object());
    eventually("it sleeps", || disks.status("pair")["power"] == "standby");
    let data = bytes(3, MIB);
    disks.write("pair", &data);
    assert_eq!(disks.json(&["scrub", "pair"])["read"], json!(MIB));
    disks.flip("flash.img", place_of(&disks, "flash.img", &data[8192..]) + 9);
    disks.refused(&["scrub", "pair"], 1, &["1 range damaged or unreadable"]);
    assert_eq!(disks.status("pair")["power"], "standby", "the disk was not woken");
}

#[test]
fn a_store_that_is_made_anew_under_the_same_name_has_no_result_of_the_one_before() {
    let disks = TestDisks::new();
    disks.log_store("s.img");
    disks.write("s.img", &bytes(11, MIB));
    disks.given(&["scrub", "s.img", "--bandwidth", "1GiB"]);
    assert!(disks.status("s.img")["scrub"]["last"].is_object());
    disks.given(&["detach"]);
    disks.given(&["create", "--kind", "log", "s.img", "--force"]);
    disks.given(&["serve", "s.img", "--daemon"]);
    assert_eq!(disks.status("s.img")["scrub"]["last"], json!(null));
    disks.given(&["detach"]);
}

#[test]
fn what_keeps_no_checksums_says_so() {
    let disks = TestDisks::new();
    fs::write(disks.path("plain"), bytes(1, 8 * MIB)).expect("there is room");
    disks.given(&["serve", "--disk", "plain", "--daemon"]);
    disks.refused(&["scrub", "plain"], 1, &["keeps no checksums"]);
    assert_eq!(disks.status("plain")["scrub"], json!(null));
    disks.given(&["detach"]);
}
