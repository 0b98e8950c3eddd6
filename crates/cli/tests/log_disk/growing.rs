//! Growing while a file system is mounted.

use std::fs;

use serde_json::json;

use crate::support::test_disks::TestDisks;
use crate::support::{MIB, bytes, number_from_env, run};
use crate::test_disks::text;

fn device_size(device: &str) -> u64 {
    let size = run("blockdev", ["--getsize64", device]);
    String::from_utf8(size.stdout).expect("text").trim().parse().expect("a number")
}

#[test]
fn xfs_grows_on_a_store_while_it_is_mounted_and_written() {
    let disks = TestDisks::new();
    disks.given(&["create", "--kind", "log", "x.img", "--size", "512MiB"]);
    let device = disks.attach("x.img");
    run("mkfs.xfs", ["-q", "-f", &device]);
    let mount = disks.mount(&device);
    let before = fs::write(mount.path().join("before"), bytes(1, 60 * MIB));
    before.expect("there is room");
    let old = disks.status("x.img")["size"].as_u64().expect("a number");
    assert_eq!(disks.json(&["grow", "x.img"])["size"], json!(old), "there is nothing to grow into yet");

    let room = rustix::fs::statvfs(mount.path()).map(|stat| stat.f_bavail * stat.f_frsize).expect("it is mounted");

    disks.resize("x.img", 640 * MIB);
    let grown = std::thread::scope(|scope| {
        let writer = scope.spawn(|| fs::write(mount.path().join("during"), bytes(2, 40 * MIB)));
        let grown = disks.json(&["grow", &device]);
        writer.join().expect("it ends").expect("there is room");
        grown
    });
    let new = grown["size"].as_u64().expect("a number");
    assert!(new > old + 80 * MIB, "{grown}");
    assert_eq!((&grown["before"], &grown["device"]), (&json!(old), &json!(device)));
    assert_eq!(device_size(&device), new);
    run("xfs_growfs", [mount.path()]);
    // With what was written meanwhile, more than there was room for before.
    fs::write(mount.path().join("after"), bytes(3, room)).expect("there is room");
    assert!(fs::read(mount.path().join("before")).expect("it is there") == bytes(1, 60 * MIB));
    assert!(fs::read(mount.path().join("during")).expect("it is there") == bytes(2, 40 * MIB));
    assert!(fs::read(mount.path().join("after")).expect("it is there") == bytes(3, room));
    drop(mount);
    run("xfs_repair", ["-n", &device]);
    disks.given(&["detach", "x.img"]);
    disks.given(&["check", "x.img"]);
}

#[test]
fn ext4_is_enlarged_after_its_store_has_grown_again_and_again() {
    let disks = TestDisks::new();
    disks.given(&["create", "--kind", "log", "e.img", "--size", "96MiB", "--scheme", "sepgc"]);
    let device = disks.attach("e.img");
    run("mkfs.ext4", ["-q", "-F", &device]);
    let rounds = number_from_env("UMBRELLA_GROW_ROUNDS", 3);
    for round in 1..=rounds {
        let mount = disks.mount(&device);
        fs::write(mount.path().join(format!("file-{round}")), bytes(round, 20 * MIB)).expect("there is room");
        disks.resize("e.img", (96 + round * 40) * MIB);
        let grown = disks.json(&["grow", "e.img"]);
        assert!(grown["size"].as_u64() > grown["before"].as_u64(), "{grown}");
        drop(mount);
        // Not while it is mounted: that needs a right that root in a container may not have.
        run("e2fsck", ["-f", "-p", &device]);
        run("resize2fs", [&device]);
    }
    let mount = disks.mount(&device);
    for round in 1..=rounds {
        assert!(fs::read(mount.path().join(format!("file-{round}"))).expect("it is there") == bytes(round, 20 * MIB));
    }
    drop(mount);
    run("e2fsck", ["-f", "-n", &device]);
    disks.given(&["detach", "e.img"]);
    disks.given(&["check", "e.img", "--data"]);
}

#[test]
fn a_store_that_nobody_serves_grows_too_and_a_plain_disk_does_not() {
    let disks = TestDisks::new();
    let created = disks.json(&["create", "--kind", "log", "u.img", "--size", "64MiB"]);
    disks.resize("u.img", 128 * MIB);
    let grown = disks.json(&["grow", "u.img"]);
    assert_eq!((&grown["before"], &grown["device"]), (&created["size"], &json!(null)));
    assert!(grown["size"].as_u64() > created["size"].as_u64());
    assert_eq!(disks.json(&["check", "u.img"])["store"]["size"], grown["size"]);

    let plain = text(&disks.path("plain"));
    fs::write(&plain, bytes(1, MIB)).expect("there is room");
    disks.given(&["serve", "--disk", &plain, "--daemon"]);
    disks.refused(&["grow", "plain"], 1, &["plain is not a log store"]);
}

/// The steps of docs/disk.md, Enlarge a disk.
#[test]
fn a_store_on_a_hybrid_disk_grows_once_the_pair_was_taken_apart_and_joined_again() {
    let disks = TestDisks::new();
    let [disk, flash] = ["d", "f"].map(|half| text(&disks.path(half)));
    let pair = format!("[disk]\npath = \"{disk}\"\nsize = \"64MiB\"\n[flash]\npath = \"{flash}\"\nsize = \"16MiB\"\n");
    let config = disks.config("both", &format!("{pair}[log]\n"));
    let created = disks.json(&["create", &config]);
    disks.given(&["serve", &config, "--daemon"]);
    let data = bytes(3, MIB);
    disks.write("both", &data);
    disks.refused(&["grow", "both"], 1, &["does not grow", "umbrella disk detach --dissolve"]);
    disks.given(&["detach", "--dissolve"]);
    disks.resize("d", 128 * MIB);
    let without_log = disks.config("pair", &pair);
    disks.given(&["create", &without_log]);
    disks.given(&["serve", &config, "--daemon"]);
    let grown = disks.json(&["grow", "both"]);
    assert!(grown["size"].as_u64() > created["size"].as_u64(), "{grown}");
    assert!(disks.read("both", data.len()) == data);
    disks.given(&["detach"]);
    disks.given(&["check", &config, "--data"]);
}
