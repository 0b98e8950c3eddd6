//! What a user may get wrong, and what must not happen then.

use std::fs::{self, File};

use super::support::{MIB, run};
use super::{House, said};

#[test]
fn a_configuration_of_the_same_name_is_not_taken_for_the_disk_that_is_served() {
    let house = House::new();
    let config = house.hybrid("b2", "never");
    let config = config.to_str().expect("text");
    house.given(&["create", config]);
    let device = house.given(&["attach", config]);
    fs::create_dir(house.path("other")).expect("the folder can be made");
    let other = house.hybrid("other/b2", "never");
    let other = other.to_str().expect("text");
    for command in ["attach", "serve", "detach", "status", "stats", "create"] {
        let parts = ["b2 is served already with another configuration (disk /", "b2.disk, flash /", "another name"];
        house.refused(&[command, other], 1, &parts);
    }
    house.refused(&["attach", "--disk", "memory:size=1MiB", "--name", "b2"], 1, &["with another configuration"]);
    house.refused(&["attach", config, "--read-only"], 1, &["b2 is served already, and can be written"]);
    // The same file by another path is the same disk.
    std::os::unix::fs::symlink(house.path("b2.disk"), house.path("link")).expect("the link can be made");
    assert_eq!(house.given(&["attach", "--disk", "link", "--flash", "b2.flash", "--name", "b2"]), device);
    house.given(&["detach", config]);
}

#[test]
fn half_of_a_hybrid_disk_is_not_written_on_its_own() {
    let house = House::new();
    let config = house.hybrid("media", "never");
    house.given(&["create", config.to_str().expect("text")]);
    let told = ["media.disk belongs together with the flash ", "its data may be old", "--read-only"];
    house.refused(&["serve", "--disk", "media.disk", "--daemon"], 1, &told);
    house.refused(&["attach", "--disk", "media.disk"], 1, &told);
    house.refused(&["check", "--disk", "media.disk"], 0, &["warning: ", told[0]]);
    house.given(&["serve", "--disk", "media.disk", "--read-only", "--daemon"]);
    house.given(&["detach", "media"]);
}

#[test]
fn an_image_that_is_mounted_is_not_made_half_of_a_hybrid_disk() {
    let house = House::new();
    let config = house.hybrid("media", "never");
    File::create(house.path("media.disk")).and_then(|file| file.set_len(64 * MIB)).expect("it can be made");
    run("mkfs.ext4", ["-q".as_ref(), "-F".as_ref(), house.path("media.disk").as_os_str()]);
    let mnt = house.path("mnt");
    fs::create_dir(&mnt).expect("the folder can be made");
    run("mount", ["-o".as_ref(), "loop".as_ref(), house.path("media.disk").as_os_str(), mnt.as_os_str()]);
    let created = house.run(&["create", config.to_str().expect("text"), "--force"]);
    run("umount", [&mnt]);
    assert!(said(&created).contains("media.disk is in use as /dev/loop"), "{}", said(&created));
    assert!(!house.path("media.flash").exists());
}

#[test]
fn a_disk_that_was_not_made_yet_says_how_it_is_made() {
    let house = House::new();
    let config = house.hybrid("media", "never");
    let config = config.to_str().expect("text");
    for command in [&["attach", config][..], &["serve", config, "--daemon"], &["serve", config]] {
        house.refused(command, 1, &["media.disk is not there yet: `umbrella disk create CONFIG` makes it"]);
    }
}

#[test]
fn a_flash_that_is_too_small_is_refused_before_anything_is_made() {
    let house = House::new();
    let pair = ["--disk", "file:path=disk,size=64MiB", "--flash", "file:path=flash,size=4MiB"];
    for command in ["check", "create"] {
        house.refused(&[&[command], &pair[..]].concat(), 1, &["4 MiB is too small; give it at least 5 MiB"]);
    }
    // The disk can be made, the flash cannot.
    let pair = ["--disk", "file:path=disk,size=64MiB", "--flash", "file:path=no/flash,size=16MiB"];
    house.refused(&[&["create"], &pair[..]].concat(), 1, &["no/flash"]);
    assert!(!house.path("disk").exists());
}
