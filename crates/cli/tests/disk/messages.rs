//! Hybrid disks in memory, and messages about a flash that is not empty.

use super::*;

#[test]
fn a_hybrid_disk_in_memory_is_made_at_each_start_and_half_of_one_is_refused() {
    let disks = TestDisks::new();
    let memory = ["--disk", "memory:size=32MiB", "--flash", "memory:size=16MiB", "--name", "ram"];
    disks.given(&[&["check"], &memory[..]].concat());
    disks.given(&[&["serve", "--daemon"], &memory[..]].concat());
    let data = bytes(3, MIB);
    disks.write("ram", &data);
    assert_eq!(disks.read("ram", data.len()), data);
    disks.given(&["detach", "ram"]);
    disks.refused(&[&["create"], &memory[..]].concat(), 1, &["in memory and would be lost", "is made at each start"]);
    let file = disks.path("half.img");
    File::create(&file).and_then(|file| file.set_len(32 << 20)).expect("the folder can be written");
    let half = ["--disk", file.to_str().expect("text"), "--flash", "memory:size=16MiB", "--name", "half"];
    for command in ["check", "serve", "create"] {
        disks.refused(&[&[command], &half[..]].concat(), 1, &["the flash is in memory", "give the flash a path"]);
    }
}

#[test]
fn what_is_not_on_the_disk_yet_adds_up_also_where_it_is_zeroes() {
    let disks = TestDisks::new();
    let config: &str = &disks.asleep();
    disks.write("media", &bytes(1, MIB));
    run("qemu-io", ["-f", "raw", "-c", "write -z 16M 32M", &disks.nbd("media")]);
    let cache = disks.status("media")["cache"].clone();
    assert_eq!((&cache["cached"], &cache["cached_zeroes"]), (&(33 * MIB).into(), &(32 * MIB).into()));
    assert!(cache["used"].as_u64() < Some(2 * MIB), "{cache}");
    let reported = disks.given(&["status", "media"]);
    assert!(
        reported.contains("not on the disk yet: 1 MiB of data, and 32 MiB of zeroes, which take no room"),
        "{reported}"
    );
    disks.given(&["detach", "media", "--keep-cache"]);
    let reported = disks.given(&["check", config]);
    assert!(
        reported.contains("not on the disk yet: 1 MiB of data, and 32 MiB of zeroes, which take no room, in 2 ranges"),
        "{reported}"
    );
}
