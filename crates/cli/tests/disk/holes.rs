//! What NBD clients learn of the holes of a disk.

use super::*;

/// Length and kind of each extent: 0 is data, 3 a hole.
fn map(disks: &TestDisks, name: &str) -> Vec<(u64, u64)> {
    let map = run("nbdinfo", ["--map", "--json", &disks.nbd(name)]).stdout;
    let map: Value = serde_json::from_slice(&map).expect("JSON");
    let number = |extent: &Value, key: &str| extent[key].as_u64().expect("a number");
    let extents = map.as_array().expect("a list").iter();
    extents.map(|extent| (number(extent, "length"), number(extent, "type"))).collect()
}

fn read_bytes(disks: &TestDisks, name: &str) -> u64 {
    disks.json(&["stats", name])["umbrella_disk_read_bytes"].as_u64().expect("a number")
}

/// Copies it with nbdcopy, which asks for the holes first.
fn copy(disks: &TestDisks, name: &str) -> PathBuf {
    let copy = disks.path("copy");
    let _ = fs::remove_file(&copy);
    run("nbdcopy", [disks.nbd(name).as_ref(), copy.as_os_str()]);
    copy
}

#[test]
fn a_copy_of_a_hybrid_disk_reads_only_what_was_written_and_wakes_no_disk_for_what_was_not() {
    let disks = TestDisks::new();
    let config: &str = &disks.hybrid("media", "fixed:timeout=0");
    disks.given(&["create", config]);
    disks.given(&["serve", config, "--daemon"]);
    let size = (64 << 20) - 8192;
    assert_eq!(map(&disks, "media"), [(size, 3)]);
    eventually("it sleeps", || disks.status("media")["power"] == "standby");
    let data = bytes(1, MIB);
    disks.write("media", &data);
    assert_eq!(map(&disks, "media"), [(MIB, 0), (size - MIB, 3)]);
    let before = read_bytes(&disks, "media");
    assert_eq!(first(&copy(&disks, "media"), data.len()), data);
    assert_eq!(disks.status("media")["power"], "standby");
    assert!(read_bytes(&disks, "media") - before <= 2 * MIB);
    disks.given(&["detach", "media", "--keep-cache"]);
    // What is on the disk itself counts as well.
    disks.given(&["detach", config]);
    disks.given(&["create", config, "--force"]);
    disks.given(&["serve", config, "--daemon"]);
    assert_eq!(map(&disks, "media").first().map(|extent| extent.1), Some(0));
    assert_eq!(first(&copy(&disks, "media"), data.len()), data);
    disks.given(&["detach", "media"]);
}

#[test]
fn a_copy_of_a_large_and_empty_log_store_reads_nothing() {
    let disks = TestDisks::new();
    disks.given(&["create", "--kind", "log", "large.img", "--size", "6GiB"]);
    disks.given(&["serve", "large.img", "--daemon"]);
    let empty = map(&disks, "large.img");
    assert!(empty.iter().all(|extent| extent.1 == 3), "{empty:?}");
    copy(&disks, "large.img");
    assert_eq!(read_bytes(&disks, "large.img"), 0);
    let data = bytes(2, MIB);
    disks.write("large.img", &data);
    assert_eq!(map(&disks, "large.img").first(), Some(&(MIB, 0)));
    assert_eq!(first(&copy(&disks, "large.img"), data.len()), data);
    assert!(read_bytes(&disks, "large.img") <= 2 * MIB);
    disks.given(&["detach"]);
}
