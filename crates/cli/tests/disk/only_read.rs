//! Commands that only look, and disks that are attached with `--read-only`: no image is changed by them, whatever it is
//! and whatever is damaged.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use rustix::process::Signal;

use super::support::{MIB, bytes};
use super::{TestDisks, ends, first};

/// Reads it in every way that there is; its images are as before.
fn look(disks: &TestDisks, disk: &[&str], name: &str, images: &[&str], label: &str) {
    let contents = || images.iter().map(|image| fs::read(disks.path(image)).expect("it is there")).collect::<Vec<_>>();
    let before = contents();
    let looks: &[&[&str]] = &[
        &["check"],
        &["check", "--data"],
        &["attach", "--read-only"],
        &["attach", "--read-only", "--salvage"],
        &["salvage", "--to", "out.raw", "--force"],
    ];
    for look in looks {
        // Only an image of its own can be salvaged.
        let disk = if look[0] == "salvage" { &disk[disk.len() - 1..] } else { disk };
        let attached = disks.run(&[look, disk].concat());
        if look[0] == "attach" && attached.status.success() {
            assert_eq!(disks.status(name)["read_only"], true, "{label}");
            let device = String::from_utf8_lossy(&attached.stdout).trim().to_owned();
            // What is damaged cannot be read.
            let _ = File::open(device).and_then(|device| device.read_exact_at(&mut vec![0; MIB as usize], 0));
            let _ = disks.run(&["detach", name]);
        }
        assert!(contents() == before, "{label}: {look:?} has written");
    }
}

#[test]
fn a_hybrid_disk_that_is_only_read_is_left_as_it_is() {
    let disks = TestDisks::new();
    let config = disks.asleep();
    disks.write("media", &bytes(1, MIB));
    ends(disks.signal("media", Signal::KILL));
    let images = ["media.disk", "media.flash"];
    look(&disks, &[&config], "media", &images, "killed");
    disks.given(&["serve", &config, "--daemon", "--read-only"]);
    assert!(disks.read("media", MIB as usize) == bytes(1, MIB), "what is on the flash is there");
    disks.given(&["detach", "media"]);
    // A copy of the label, a header, data, the label of the disk, and both copies.
    let tag = (64 << 20) - 8192;
    let damages =
        [("media.flash", 20), ("media.flash", MIB + 20), ("media.flash", MIB + 9000), ("media.disk", tag + 20)];
    for (image, at) in damages.into_iter().chain([("media.flash", 4096 + 20), ("media.disk", tag + 4116)]) {
        disks.flip(image, at);
        look(&disks, &[&config], "media", &images, &format!("{image} at {at}"));
    }
}

#[test]
fn a_hybrid_disk_whose_labels_are_damaged_says_so_and_is_salvaged() {
    let disks = TestDisks::new();
    let config = disks.asleep();
    disks.write("media", &bytes(1, MIB));
    ends(disks.signal("media", Signal::KILL));
    let tag = (64 << 20) - 8192;
    for (image, copies) in [("media.flash", [20, 4116]), ("media.disk", [tag + 20, tag + 4116])] {
        for at in copies {
            disks.flip(image, at);
        }
        let reported = ["both copies of the label of", "are damaged", "umbrella disk salvage"];
        disks.refused(&["attach", &config], 1, &reported);
        disks.refused(&["check", &config], 1, &reported);
        disks.refused(&["salvage", &config, "--to", "out.raw", "--force"], 1, &["Umbrella cannot tell"]);
        assert!(first(&disks.path("out.raw"), MIB as usize) == bytes(1, MIB), "{image}: what can be read is got out");
    }
}

#[test]
fn a_plain_disk_and_a_log_store_that_are_only_read_are_left_as_they_are() {
    let disks = TestDisks::new();
    for (kind, name) in [("plain", "p.img"), ("log", "l.img")] {
        if kind == "log" {
            disks.given(&["create", "--kind", "log", name, "--size", "64MiB"]);
        } else {
            File::create(disks.path(name)).and_then(|image| image.set_len(64 << 20)).expect("there is room");
        }
        let disk: &[&str] = if kind == "log" { &[name] } else { &["--disk", name] };
        disks.given(&[&["serve", "--daemon"], disk].concat());
        disks.write(name, &bytes(2, MIB));
        ends(disks.signal(name, Signal::KILL));
        look(&disks, disk, name, &[name], &format!("{kind}, killed"));
        for at in [20, MIB + 20, 32 * MIB + 20] {
            disks.flip(name, at);
            look(&disks, disk, name, &[name], &format!("{kind}, at {at}"));
        }
    }
}
