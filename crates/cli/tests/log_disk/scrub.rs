//! `umbrella disk scrub`, by hand and in time.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;

use serde_json::json;

use crate::house::text;
use crate::support::house::House;
use crate::support::{MIB, bytes, eventually};

/// Where a block of this data lies in a file.
fn place_of(house: &House, file: &str, data: &[u8]) -> u64 {
    let image = fs::read(house.path(file)).expect("it is there");
    let at = image.windows(512).step_by(512).position(|sector| sector == &data[..512]);
    at.expect("it lies somewhere") as u64 * 512
}

fn flip(house: &House, file: &str, at: u64) {
    let file = OpenOptions::new().read(true).write(true).open(house.path(file)).expect("it is there");
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("it is long enough");
    file.write_all_at(&[byte[0] ^ 1], at).expect("there is room");
}

#[test]
fn a_scrub_of_a_log_store_names_what_is_damaged_and_ends_with_1() {
    let house = House::new();
    house.given(&["create", "--kind", "log", "s.img", "--size", "64MiB"]);
    house.given(&["serve", "s.img", "--daemon"]);
    let data = bytes(11, 3 * MIB);
    house.write("s.img", &data);
    assert_eq!(house.status("s.img")["scrub"]["state"], "idle");
    let clean = house.given(&["scrub", "s.img", "--bandwidth", "1GiB"]);
    assert!(clean.contains("3 MiB compared") && clean.contains("no damage found"), "{clean}");
    flip(&house, "s.img", place_of(&house, "s.img", &data[100 * 4096..]) + 9);
    house.refused(&["scrub", "s.img"], 1, &["1 range damaged or unreadable", "Restore the files there from a backup"]);
    let status = house.status("s.img");
    let damaged = json!([{ "start": 800, "sectors": 8 }]);
    assert_eq!(status["scrub"]["last"]["damaged"], damaged, "{status}");
    assert!(status["trouble"].to_string().contains("the last scrub found 1 range"), "{status}");
    house.refused(&["scrub", "s.img", "--bandwidth", "1KiB"], 1, &["64KiB or more"]);
    // Also after a restart, and no more when it is mended.
    house.given(&["detach"]);
    house.given(&["serve", "s.img", "--daemon"]);
    assert_eq!(house.status("s.img")["scrub"]["last"]["damaged"], damaged);
    house.write("s.img", &data);
    house.given(&["scrub", "s.img", "--bandwidth", "1GiB"]);
    assert_eq!(house.status("s.img")["trouble"], json!([]));
    house.given(&["detach"]);
    house.refused(&["scrub", "s.img"], 1, &["is not served", "umbrella disk check --data"]);
}

#[test]
fn a_scrub_that_is_interrupted_goes_on_where_it_was() {
    let house = House::new();
    house.given(&["create", "--kind", "log", "s.img", "--size", "64MiB"]);
    house.given(&["serve", "s.img", "--daemon"]);
    house.write("s.img", &bytes(11, 3 * MIB));
    let slow = ["scrub", "s.img", "--bandwidth", "256KiB"];
    let mut scrubbing = house.umbrella(&slow).spawn().expect("it runs");
    eventually("a scrub runs", || house.status("s.img")["scrub"]["read"].as_u64() > Some(0));
    house.refused(&slow, 1, &["is already being scrubbed"]);
    rustix::process::kill_process(rustix::process::Pid::from_child(&scrubbing), rustix::process::Signal::TERM)
        .expect("it is there");
    scrubbing.wait().expect("it ends");
    eventually("it is interrupted", || house.status("s.img")["scrub"]["state"] == "interrupted");
    let read = house.status("s.img")["scrub"]["read"].as_u64().expect("a number");
    house.given(&["detach"]);
    house.given(&["serve", "s.img", "--daemon"]);
    assert_eq!(
        house.status("s.img")["scrub"],
        json!({ "state": "interrupted", "read": read, "damaged_ranges": 0, "last": null })
    );
    let done = house.json(&["scrub", "s.img", "--bandwidth", "1GiB"]);
    assert_eq!((&done["read"], &done["damaged"]), (&json!(3 * MIB), &json!([])));
}

#[test]
fn a_hybrid_disk_scrubs_its_flash_by_itself_when_it_is_time() {
    let house = House::new();
    let (disk, flash) = (text(&house.path("disk.img")), text(&house.path("flash.img")));
    let config = house.config(
        "pair",
        &format!(
            "[disk]\npath = \"{disk}\"\nsize = \"64MiB\"\n[flash]\npath = \"{flash}\"\nsize = \"16MiB\"\n\
             [cache]\nwhen = \"full\"\nspin_down = \"fixed:timeout=100ms\"\n[scrub]\nevery = \"1m\"\nbandwidth = \"1GiB\"\n"
        ),
    );
    house.given(&["create", &config]);
    house.given(&["serve", &config, "--daemon"]);
    eventually("it was scrubbed", || house.status("pair")["scrub"]["last"].is_object());
    eventually("it sleeps", || house.status("pair")["power"] == "standby");
    let data = bytes(3, MIB);
    house.write("pair", &data);
    assert_eq!(house.json(&["scrub", "pair"])["read"], json!(MIB));
    flip(&house, "flash.img", place_of(&house, "flash.img", &data[8192..]) + 9);
    house.refused(&["scrub", "pair"], 1, &["1 range damaged or unreadable"]);
    assert_eq!(house.status("pair")["power"], "standby", "the disk was not woken");
}

#[test]
fn a_store_that_is_made_anew_under_the_same_name_has_no_result_of_the_one_before() {
    let house = House::new();
    house.given(&["create", "--kind", "log", "s.img", "--size", "64MiB"]);
    house.given(&["serve", "s.img", "--daemon"]);
    house.write("s.img", &bytes(11, MIB));
    house.given(&["scrub", "s.img", "--bandwidth", "1GiB"]);
    assert!(house.status("s.img")["scrub"]["last"].is_object());
    house.given(&["detach"]);
    house.given(&["create", "--kind", "log", "s.img", "--force"]);
    house.given(&["serve", "s.img", "--daemon"]);
    assert_eq!(house.status("s.img")["scrub"]["last"], json!(null));
    house.given(&["detach"]);
}

#[test]
fn what_keeps_no_checksums_says_so() {
    let house = House::new();
    fs::write(house.path("plain"), bytes(1, 8 * MIB)).expect("there is room");
    house.given(&["serve", "--disk", "plain", "--daemon"]);
    house.refused(&["scrub", "plain"], 1, &["keeps no checksums"]);
    assert_eq!(house.status("plain")["scrub"], json!(null));
    house.given(&["detach"]);
}
