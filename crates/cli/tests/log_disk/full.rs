//! A sparse image on a file system that fills up.

use std::fs::{self, File};
use std::io::Write;

use crate::support::disk::Disk;
use crate::support::test_disks::TestDisks;
use crate::support::{MIB, bytes, run};
use crate::test_disks::text;

#[test]
fn a_store_whose_file_system_is_full_says_what_to_do_and_that_works() {
    let disks = TestDisks::new();
    let small = Disk::tmpfs(60 * MIB);
    let image = text(&small.path().join("f.img"));
    let create = ["create", "--kind", "log", &image, "--size", "200MiB"];
    let warned = disks.said(&create);
    assert!(warned.contains("warning: ") && warned.contains("f.img may need "), "{warned}");
    assert!(warned.contains("its file system has ") && warned.contains(" free"), "{warned}");

    let device = disks.attach(&image);
    run("mkfs.ext4", ["-q", "-F", &device]);
    let kept = bytes(1, 10 * MIB);
    {
        let mount = disks.mount(&device);
        let mut file = File::create(mount.path().join("kept")).expect("there is room");
        file.write_all(&kept).and_then(|()| file.sync_all()).expect("there is room");
        let mut file = File::create(mount.path().join("too much")).expect("there is room");
        let written = file.write_all(&bytes(2, 100 * MIB)).and_then(|()| file.sync_all());
        written.expect_err("the file system of the image is full");
        let trouble = disks.status("f.img")["trouble"].to_string();
        assert!(
            trouble.contains("No space left on device")
                && trouble.contains("make room for it, then detach it and attach it again"),
            "{trouble}"
        );
        assert_eq!(trouble.matches("f.img").count(), 1, "{trouble}");
        assert!(fs::read(mount.path().join("kept")).expect("it can be read") == kept);
    }
    let reported = ["f.img is detached and its daemon has ended, but with an error", "make room for it"];
    disks.refused(&["detach", "f.img"], 1, &reported);
    assert_eq!(disks.given(&["status"]), "no disk is served\n");

    small.has_room_for(200 * MIB);
    let device = disks.attach(&image);
    {
        let mount = disks.mount(&device);
        assert!(fs::read(mount.path().join("kept")).expect("it is there") == kept);
        let mut file = File::create(mount.path().join("more")).expect("there is room");
        file.write_all(&bytes(3, 60 * MIB)).and_then(|()| file.sync_all()).expect("there is room now");
    }
    run("e2fsck", ["-f", "-n", &device]);
    disks.given(&["detach", "f.img"]);
    disks.given(&["check", &image, "--data"]);
}

#[test]
fn an_image_that_fits_is_made_without_a_warning() {
    let disks = TestDisks::new();
    let large = Disk::tmpfs(100 * MIB);
    let image = text(&large.path().join("f.img"));
    assert_eq!(disks.said(&["create", "--kind", "log", &image, "--size", "64MiB"]), "");
}
