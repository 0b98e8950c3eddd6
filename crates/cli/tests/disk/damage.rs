//! Flash that is damaged or lost. Undamaged data can be read, lost data is named, and nothing is given up without a
//! command.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use rustix::process::Signal;
use serde_json::Value;

use super::support::{MIB, bytes};
use super::{TestDisks, ends, first};

/// A disk that sleeps, not served, whose `data` only its flash has; it begins at 1 MiB + 4 KiB of the flash.
fn asleep_with(disks: &TestDisks, data: &[u8]) -> String {
    let config = disks.asleep();
    disks.write("media", data);
    disks.given(&["detach", "--keep-cache"]);
    config
}

fn damage(disks: &TestDisks) {
    disks.overwrite("media.flash", (1 << 20) + 8192, &[0xff; 4096]);
}

/// The only range of a list, as bytes of the disk.
fn only_range(list: &Value) -> std::ops::Range<usize> {
    assert_eq!(list.as_array().map(Vec::len), Some(1), "{list}");
    let number = |name: &str| list[0][name].as_u64().expect("a number") as usize * 512;
    number("start")..number("start") + number("sectors")
}

/// A disk whose log is damaged, its data, and what of it is lost.
fn damaged(disks: &TestDisks) -> (String, Vec<u8>, std::ops::Range<usize>) {
    let data = bytes(3, MIB);
    let config = asleep_with(disks, &data);
    damage(disks);
    disks.refused(&["attach", &config], 1, &["is damaged now", "umbrella disk attach --salvage"]);
    let report: Value = serde_json::from_slice(&disks.run(&["check", &config, "--json"]).stdout).expect("a document");
    let lost = only_range(&report["pair"]["at_risk"]);
    assert!(!lost.is_empty() && lost.len() < data.len(), "{lost:?}");
    (config, data, lost)
}

/// All but what is lost is there, and that is an error.
fn assert_whole_but(device: &Value, data: &[u8], lost: &std::ops::Range<usize>) {
    let device = File::open(device.as_str().expect("a device")).expect("it can be opened");
    let mut read = vec![0; data.len()];
    device.read_exact_at(&mut read[..lost.start], 0).expect("it is whole");
    device.read_exact_at(&mut read[lost.end..], lost.end as u64).expect("it is whole");
    device.read_exact_at(&mut [0; 4096], lost.start as u64).expect_err("it is lost");
    assert!(read[..lost.start] == data[..lost.start] && read[lost.end..] == data[lost.end..]);
}

#[test]
fn a_damaged_pair_continues_without_what_is_lost_until_that_is_written_again() {
    let disks = TestDisks::new();
    let (config, data, lost) = damaged(&disks);
    let config = config.as_str();
    let attached = disks.json(&["attach", config, "--salvage"]);
    assert_whole_but(&attached["device"], &data, &lost);
    let status = disks.status("media");
    assert_eq!((&status["read_only"], only_range(&status["at_risk"])), (&Value::Bool(false), lost.clone()));
    assert!(status["trouble"].to_string().contains("fail until they are written again"), "{status}");
    let detached = disks.json(&["detach"]);
    assert_eq!(
        (&detached["outcome"], only_range(&detached["lost"]["at_risk"])),
        (&"detached_with_cache".into(), lost.clone())
    );
    disks.refused(
        &["check", config],
        1,
        &["at risk: sectors", "until they are written again", "not on the disk yet: 0 B, in 0 ranges; "],
    );
    disks.refused(&["attach", config], 0, &[]);
    disks.refused(&["detach"], 0, &["umbrella disk detach --salvage CONFIG"]);
    // Without --salvage: it was skipped for good.
    let attached = disks.json(&["attach", config]);
    assert_whole_but(&attached["device"], &data, &lost);
    let device = File::options().write(true).open(attached["device"].as_str().expect("a device")).expect("it opens");
    device.write_all_at(&data[lost.clone()], lost.start as u64).expect("it can be written");
    device.sync_all().expect("it is flushed");
    drop(device);
    assert_eq!(disks.json(&["detach"])["outcome"], "detached");
    assert_eq!(disks.json(&["check", config])["ok"], true);
    assert!(first(&disks.path("media.disk"), data.len()) == data);
}

#[test]
fn a_damaged_pair_that_is_only_read_is_left_as_it_is() {
    let disks = TestDisks::new();
    let (config, data, lost) = damaged(&disks);
    let config = config.as_str();
    let before = fs::read(disks.path("media.flash")).expect("it is there");
    let attached = disks.json(&["attach", config, "--salvage", "--read-only"]);
    assert_whole_but(&attached["device"], &data, &lost);
    let status = disks.status("media");
    assert_eq!((&status["read_only"], &status["kind"]), (&Value::Bool(true), &"hybrid".into()));
    assert_eq!(only_range(&status["at_risk"]), lost);
    assert!(status["trouble"].to_string().contains("is damaged now"), "{status}");
    disks.refused(&["detach", config, "--salvage"], 1, &["media is served", "--keep-cache"]);
    assert_eq!(disks.json(&["detach"])["outcome"], "detached_with_cache");
    assert!(fs::read(disks.path("media.flash")).expect("it is there") == before, "nothing was written");
}

#[test]
fn a_damaged_pair_is_taken_apart_without_what_is_lost_when_told_so() {
    let disks = TestDisks::new();
    let data = bytes(4, MIB);
    let config = asleep_with(&disks, &data);
    damage(&disks);
    disks.refused(&["detach", &config], 1, &["is damaged now"]);
    disks.refused(&["detach", &config, "--salvage", "--keep-cache"], 2, &[]);
    let detached = disks.json(&["detach", &config, "--salvage"]);
    assert_eq!(detached["outcome"], "salvaged");
    let lost = only_range(&detached["lost"]["at_risk"]);
    assert_eq!(detached["drained"], data.len() - lost.len());
    let mut plain = data;
    plain[lost].fill(0);
    assert!(first(&disks.path("media.disk"), plain.len()) == plain);
    disks.refused(&["detach", &config, "--salvage"], 1, &["was taken apart already", "umbrella disk create"]);
    disks.given(&["create", &config]);
}

#[test]
fn a_block_of_flash_that_is_damaged_while_it_is_in_use_keeps_nobody_from_detaching() {
    let disks = TestDisks::new();
    let data = bytes(9, MIB);
    let config = disks.asleep();
    disks.write("media", &data);
    damage(&disks);
    let detached = disks.json(&["detach"]);
    let lost = only_range(&detached["lost"]["at_risk"]);
    assert_eq!((&detached["outcome"], lost.len()), (&"detached_with_cache".into(), 4096), "{detached}");
    let on_disk = first(&disks.path("media.disk"), data.len());
    assert!(on_disk[..lost.start] == data[..lost.start] && on_disk[lost.end..] == data[lost.end..]);
    let attached = disks.json(&["attach", &config]);
    assert_whole_but(&attached["device"], &data, &lost);
    disks.refused(
        &["detach"],
        0,
        &["without its flash the disk is incomplete", "umbrella disk detach --salvage CONFIG"],
    );
    assert_eq!(disks.json(&["detach", &config, "--salvage"])["outcome"], "salvaged");
}

#[test]
fn taking_apart_a_damaged_pair_continues_after_an_interruption() {
    let disks = TestDisks::new();
    let config = asleep_with(&disks, &bytes(4, MIB));
    damage(&disks);
    let mut label = vec![0; 8192];
    let disk = File::open(disks.path("media.disk"));
    disk.and_then(|disk| disk.read_exact_at(&mut label, 64 * MIB - 8192)).expect("it has a label");
    disks.given(&["detach", &config, "--salvage"]);
    // As if the power had gone before the label was wiped.
    disks.overwrite("media.disk", 64 * MIB - 8192, &label);
    disks.refused(&["serve", "--disk", "media.disk", "--daemon"], 1, &["belongs together with the flash"]);
    let detached = disks.json(&["detach", &config, "--salvage"]);
    assert_eq!((&detached["outcome"], &detached["lost"]), (&"salvaged".into(), &Value::Null));
    disks.given(&["serve", "--disk", "media.disk", "--daemon"]);
    disks.given(&["detach"]);
}

#[test]
fn damage_that_may_have_been_flushed_is_listed_once_and_the_rest_continues() {
    let disks = TestDisks::new();
    let config: &str = &disks.asleep();
    let data = bytes(8, MIB);
    disks.write("media", &data);
    ends(disks.signal("media", Signal::KILL));
    let flash = File::open(disks.path("media.flash")).expect("it is there");
    let block = |number: u64| {
        let mut block = vec![0; 4096];
        flash.read_exact_at(&mut block, (1 << 20) + number * 4096).expect("it can be read");
        block
    };
    // Records without entries. The daemon may have lived long enough to note that the flush was answered.
    let marks: Vec<u64> =
        (0..600).filter(|number| block(*number).starts_with(b"UMBRECRD") && block(*number)[12..16] == [0; 4]).collect();
    if let [_, noted, ..] = marks[..] {
        disks.overwrite("media.flash", (1 << 20) + noted * 4096, &[0; 4096]);
    }
    damage(&disks);
    let output = disks.run(&["check", config, "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).expect("a document");
    let lost = only_range(&report["pair"]["perhaps_lost"]["at_risk"]);
    assert!(!output.status.success() && !lost.is_empty() && lost.len() < data.len(), "{report}");
    disks.refused(&["check", config], 1, &["perhaps lost: sectors", "continues with the rest"]);
    disks.given(&["serve", config, "--daemon"]);
    let status = disks.status("media");
    assert!(status["trouble"].to_string().contains("damaged near its end"), "{status}");
    let read = disks.read("media", data.len());
    assert!(read[..lost.start] == data[..lost.start] && read[lost.end..] == data[lost.end..]);
    assert!(read[lost.clone()].iter().all(|&byte| byte == 0), "older data is there");
    disks.given(&["detach", "--keep-cache"]);
    assert_eq!(disks.json(&["check", config])["ok"], true, "it was reported");
}

#[test]
fn a_flash_that_is_gone_is_forgotten_only_when_told_so() {
    let disks = TestDisks::new();
    let config = asleep_with(&disks, &bytes(5, MIB));
    fs::rename(disks.path("media.flash"), disks.path("away")).expect("it can be renamed");
    disks.refused(&["attach", &config], 1, &["media.flash"]);
    disks.refused(&["detach", &config], 1, &["media.flash"]);
    disks.refused(&["serve", "--disk", "media.disk", "--daemon"], 1, &["belongs together with the flash"]);
    let detached = disks.json(&["detach", &config, "--forget-flash"]);
    assert_eq!((&detached["outcome"], &detached["lost"]), (&"flash_forgotten".into(), &Value::Null));
    disks.given(&["serve", "--disk", "media.disk", "--daemon"]);
    disks.given(&["detach"]);
}

#[test]
fn a_flash_that_is_forgotten_while_it_can_be_read_says_what_it_had() {
    let disks = TestDisks::new();
    let config = asleep_with(&disks, &bytes(6, MIB));
    disks.given(&["serve", &config, "--daemon"]);
    disks.refused(&["detach", &config, "--forget-flash"], 1, &["media is served"]);
    ends(disks.signal("media", Signal::KILL));
    disks.refused(&["detach", &config, "--forget-flash"], 0, &["is given up", "lost: sectors 0 to 2047"]);
    assert!(first(&disks.path("media.disk"), 4096) == vec![0; 4096]);
    disks.refused(&["attach", &config], 1, &["is a plain disk now", "umbrella disk create"]);
    disks.refused(&["detach", &config, "--salvage"], 1, &["was taken apart already"]);
    disks.given(&["create", &config]);
}

#[test]
fn a_flash_that_is_found_again_after_it_was_forgotten_is_freed_and_the_disk_keeps_what_it_holds() {
    let disks = TestDisks::new();
    let config: &str = &asleep_with(&disks, &bytes(5, MIB));
    fs::rename(disks.path("media.flash"), disks.path("away")).expect("it can be renamed");
    disks.given(&["detach", config, "--forget-flash"]);
    disks.overwrite("media.disk", 0, &bytes(6, MIB));
    fs::rename(disks.path("away"), disks.path("media.flash")).expect("it can be renamed");
    for command in [&["attach", config][..], &["detach", config, "--salvage"], &["check", config]] {
        disks.refused(command, 1, &["has no label of a hybrid disk", "umbrella disk detach --forget-flash"]);
    }
    disks.refused(&["create", config], 1, &["--forget-flash"]);
    disks.given(&["detach", config, "--forget-flash"]);
    disks.given(&["create", config]);
    disks.given(&["serve", config, "--daemon"]);
    assert!(disks.read("media", MIB as usize) == bytes(6, MIB));
    disks.given(&["detach"]);
}

#[test]
fn the_error_of_a_lost_flash_says_what_to_do_and_not_to_make_a_new_one() {
    let disks = TestDisks::new();
    let config: &str = &asleep_with(&disks, &bytes(4, MIB));
    let flash = disks.path("media.flash");
    let kept = fs::read(&flash).expect("it is there");
    let way_out = ["belongs together with the flash", "--forget-flash"];
    fs::write(&flash, vec![0; kept.len()]).expect("it can be written");
    for command in ["check", "attach", "create", "detach"] {
        disks.refused(&[command, config], 1, &way_out);
    }
    fs::remove_file(&flash).expect("it is there");
    disks.refused(&["check", config], 1, &["belongs together with the flash", "which is missing", "--forget-flash"]);
    // A file of another length than the configuration says is looked into all the same.
    fs::write(&flash, &kept[..kept.len() / 2]).expect("it can be written");
    disks.refused(&["check", config], 1, &["has 8 MiB, and needs 16 MiB"]);
    fs::write(&flash, &kept).expect("it can be written");
    disks.given(&["check", config]);
}

#[test]
fn a_disk_that_has_become_larger_is_told_as_such() {
    let disks = TestDisks::new();
    let config: &str = &asleep_with(&disks, &bytes(5, MIB));
    disks.resize("media.disk", 65 * MIB);
    for command in ["check", "attach"] {
        disks.refused(&[command, config], 1, &["had 64 MiB when it was joined with its flash, and has 65 MiB"]);
    }
    disks.resize("media.disk", 64 * MIB);
    disks.given(&["attach", config]);
}
