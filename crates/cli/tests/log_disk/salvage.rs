//! What `umbrella disk salvage` gets out of damaged stores.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::support::nbd::Client;
use crate::support::test_disks::TestDisks;
use crate::support::{MIB, bytes, eventually};
use crate::test_disks::text;

/// A closed store with 3 MiB in it.
fn made() -> (TestDisks, Vec<u8>) {
    let disks = TestDisks::new();
    disks.log_store("s.img");
    let data = bytes(11, 3 * MIB);
    disks.write("s.img", &data);
    disks.given(&["detach"]);
    (disks, data)
}

#[test]
fn a_store_without_a_superblock_is_got_out_as_a_sparse_image() {
    let (disks, data) = made();
    disks.flip("s.img", 40);
    disks.flip("s.img", MIB + 40);
    let before = fs::read(disks.path("s.img")).expect("it is there");
    disks.refused(&["serve", "s.img", "--daemon"], 1, &["both copies of the superblock are damaged"]);
    let salvaged = disks.json(&["salvage", "s.img", "--to", "out.raw"]);
    assert_eq!((&salvaged["ok"], &salvaged["unrecovered"]), (&json!(true), &json!([])), "{salvaged}");
    assert_eq!(salvaged["damage"].as_array().map(Vec::len), Some(1), "{salvaged}");
    let out = fs::read(disks.path("out.raw")).expect("it was written");
    assert_eq!(json!(out.len()), salvaged["size"]);
    assert!(out[..data.len()] == data && out[data.len()..].iter().all(|byte| *byte == 0));
    let blocks = fs::metadata(disks.path("out.raw")).expect("it is there").blocks();
    assert!(blocks * 512 < 8 * MIB, "{blocks} blocks of 512 bytes");
    assert!(fs::read(disks.path("s.img")).expect("it is there") == before, "the image was written to");
    disks.refused(&["salvage", "s.img", "--to", "out.raw"], 1, &["exists already", "--force"]);
    disks.refused(&["salvage", "s.img", "--to", "s.img", "--force"], 1, &["is the image to read"]);
    disks.given(&["salvage", "s.img", "--to", "out.raw", "--force"]);
}

#[test]
fn a_store_whose_beginning_was_written_over_is_not_made_anew_by_following_a_message() {
    let (disks, data) = made();
    disks.overwrite("s.img", 0, &vec![0; 2 * MIB as usize]);
    disks.refused(&["serve", "s.img", "--daemon"], 1, &["umbrella disk salvage"]);
    disks.refused(&["create", "--kind", "log", "s.img"], 1, &["--force"]);
    disks.given(&["salvage", "s.img", "--to", "out.raw"]);
    let out = fs::read(disks.path("out.raw")).expect("it was written");
    assert!(out[..data.len()] == data);
}

#[test]
fn a_block_that_is_lost_is_named_and_the_command_ends_with_1() {
    let (disks, data) = made();
    let image = fs::read(disks.path("s.img")).expect("it is there");
    let at = image.chunks(4096).position(|block| block == &data[100 * 4096..][..4096]).expect("it lies somewhere");
    disks.flip("s.img", at as u64 * 4096 + 9);
    disks.refused(&["salvage", "s.img", "--to", "out.raw"], 1, &["block 100: lost", "1 block of 4 KiB"]);
    let out = fs::read(disks.path("out.raw")).expect("it was written");
    assert!(out[..100 * 4096] == data[..100 * 4096] && out[101 * 4096..data.len()] == data[101 * 4096..]);
}

#[test]
fn what_is_served_is_not_salvaged_and_what_was_never_a_store_is_said_so() {
    let (disks, _) = made();
    disks.given(&["serve", "s.img", "--daemon"]);
    disks.refused(&["salvage", "s.img", "--to", "out.raw"], 1, &["is served", "umbrella disk detach"]);
    disks.given(&["detach"]);
    fs::write(disks.path("plain"), bytes(1, 8 * MIB)).expect("there is room");
    disks.refused(&["salvage", "plain", "--to", "out.raw"], 1, &["no log store is on this device"]);
    assert!(!disks.path("out.raw").exists());
}

#[test]
fn a_hybrid_disk_and_a_store_on_one_are_got_out() {
    let disks = TestDisks::new();
    for (name, log) in [("pair", ""), ("both", "[log]\n")] {
        let disk = text(&disks.path(&format!("{name}.disk")));
        let flash = text(&disks.path(&format!("{name}.flash")));
        let config = disks.config(
            name,
            &format!(
                "[disk]\npath = \"{disk}\"\nsize = \"64MiB\"\n[flash]\npath = \"{flash}\"\nsize = \"32MiB\"\n{log}"
            ),
        );
        disks.given(&["create", &config]);
        disks.given(&["serve", &config, "--daemon"]);
        let data = bytes(3, MIB);
        disks.write(name, &data);
        disks.given(&["detach", name, "--keep-cache"]);
        let salvaged = disks.json(&["salvage", &config, "--to", &format!("{name}.raw")]);
        assert_eq!(salvaged["ok"], json!(true), "{salvaged}");
        let out = fs::read(disks.path(&format!("{name}.raw"))).expect("it was written");
        assert!(out[..data.len()] == data, "{name}");
    }
    // The disk of a pair on its own: nobody says that this is the newest.
    let alone = ["salvage", "both.disk", "--to", "alone.raw"];
    disks.refused(&alone, 1, &["belongs together with the flash", "--flash"]);
}

#[test]
fn a_store_whose_flushed_data_is_damaged_continues_without_it_if_asked_to() {
    let disks = TestDisks::new();
    disks.log_store("s.img");
    let parts: Vec<Vec<u8>> = (40..46).map(|seed| bytes(seed, 64 << 10)).collect();
    let mut client = Client::connect(&disks.path("run/disks/s.img.nbd"), "s.img").expect("it is served");
    for (nth, part) in (0..).zip(&parts) {
        client.write(nth * 256, part).expect("it is written");
        client.flush().expect("it is flushed");
    }
    let pid = disks.status("s.img")["pid"].as_i64().and_then(|pid| Pid::from_raw(pid as i32)).expect("a process");
    kill_process(pid, Signal::KILL).expect("it runs");
    eventually("it is gone", || !disks.said(&["status", "s.img"]).contains("log store"));
    let image = fs::read(disks.path("s.img")).expect("it is there");
    let at = image.chunks(4096).position(|block| block == &parts[1][4096..8192]).expect("it lies somewhere");
    disks.flip("s.img", at as u64 * 4096 + 9);
    disks.refused(&["serve", "s.img", "--daemon"], 1, &["flushed data is lost", "--salvage"]);
    disks.given(&["serve", "s.img", "--daemon", "--salvage"]);
    let status = disks.status("s.img");
    let reported = status["trouble"].to_string();
    assert!(status["read_only"] == false && reported.contains("4 KiB are lost to damage"), "{status}");
    disks.given(&["detach"]);
    disks.refused(&["check", "s.img"], 1, &["1 block is lost to earlier damage", ": 257"]);
    disks.given(&["serve", "s.img", "--daemon"]);
    disks.given(&["detach"]);
}

#[test]
fn a_store_on_a_hybrid_disk_whose_flash_is_damaged_continues_without_what_is_lost() {
    let disks = TestDisks::new();
    let [disk, flash] = ["d", "f"].map(|half| text(&disks.path(half)));
    let config = disks.config(
        "both",
        &format!("[disk]\npath = \"{disk}\"\nsize = \"64MiB\"\n[flash]\npath = \"{flash}\"\nsize = \"32MiB\"\n[cache]\nspin_down = \"fixed:timeout=0\"\nwhen = \"full\"\n[log]\n"),
    );
    disks.given(&["create", &config]);
    disks.given(&["serve", &config, "--daemon"]);
    eventually("it sleeps", || disks.status("both")["power"] == "standby");
    let data = bytes(3, MIB);
    disks.write("both", &data);
    disks.given(&["detach", "both", "--keep-cache"]);
    let image = fs::read(&flash).expect("it is there");
    let file = OpenOptions::new().write(true).open(&flash).expect("it is there");
    for number in [20, 100, 200] {
        let block = &data[number * 4096..][..4096];
        let at = image.chunks(4096).position(|found| found == block).expect("it lies somewhere");
        file.write_all_at(&[0xff; 100], at as u64 * 4096).expect("there is room");
    }
    disks.refused(&["serve", &config, "--daemon"], 1, &["--salvage"]);
    disks.refused(&["check", &config], 1, &["at risk"]);
    disks.given(&["serve", &config, "--daemon", "--salvage"]);
    let status = disks.status("both");
    assert_eq!((&status["read_only"], &status["kind"]), (&json!(false), &json!("log")), "{status}");
    let mut client = Client::connect(&disks.path("run/disks/both.nbd"), "both").expect("it is served");
    let mut lost = Vec::new();
    for number in 0..256 {
        match client.read(number as u64, 1) {
            Ok(read) => assert!(read == data[number * 4096..][..4096], "block {number}"),
            Err(_) => lost.push(number),
        }
    }
    assert!([20, 100, 200].iter().all(|block| lost.contains(block)) && lost.len() <= 12, "{lost:?}");
    for number in lost {
        client.write(number as u64, &data[number * 4096..][..4096]).expect("it is written again");
    }
    drop(client);
    assert!(disks.read("both", data.len()) == data);
    disks.given(&["detach"]);
    disks.given(&["serve", &config, "--daemon"]);
    assert!(disks.read("both", data.len()) == data);
    disks.given(&["detach"]);
}

#[test]
fn damage_that_the_last_scrub_found_is_reported_by_check_until_it_is_written_again() {
    let (disks, data) = made();
    let image = fs::read(disks.path("s.img")).expect("it is there");
    let at = image.chunks(4096).position(|block| block == &data[100 * 4096..][..4096]).expect("it lies somewhere");
    disks.flip("s.img", at as u64 * 4096 + 9);
    disks.given(&["check", "s.img"]);
    disks.given(&["serve", "s.img", "--daemon"]);
    disks.refused(&["scrub", "s.img"], 1, &["1 range damaged"]);
    disks.given(&["detach"]);
    disks.refused(&["check", "s.img"], 1, &["the last scrub found 1 range damaged, and 1 range cannot be read now"]);
    disks.given(&["serve", "s.img", "--daemon"]);
    disks.write("s.img", &data);
    disks.given(&["detach"]);
    disks.given(&["check", "s.img"]);
}

#[test]
fn what_is_left_of_an_image_that_was_cut_is_got_out() {
    let (disks, _) = made();
    let data = bytes(12, 20 * MIB);
    disks.given(&["serve", "s.img", "--daemon"]);
    disks.write("s.img", &data);
    disks.given(&["detach"]);
    let size = fs::metadata(disks.path("s.img")).expect("it is there").len();
    for left in [size - MIB, size / 3] {
        disks.resize("s.img", left);
        let reported = ["s.img ends before its store does: it has", "what lay behind its end is lost"];
        disks.refused(&["salvage", "s.img", "--to", "out", "--force"], 1, &reported);
        let found = fs::read(disks.path("out")).expect("it was written");
        let same = found.chunks(4096).zip(data.chunks(4096)).filter(|(found, data)| found == data).count();
        assert!(same > 0, "{left} bytes: nothing was got out");
    }
}
