//! What NBD clients learn of the holes of a disk.

use super::*;

/// Length and kind of each extent: 0 is data, 3 a hole.
fn map(house: &House, name: &str) -> Vec<(u64, u64)> {
    let map = run("nbdinfo", ["--map", "--json", &house.nbd(name)]).stdout;
    let map: Value = serde_json::from_slice(&map).expect("JSON");
    let number = |extent: &Value, key: &str| extent[key].as_u64().expect("a number");
    let extents = map.as_array().expect("a list").iter();
    extents.map(|extent| (number(extent, "length"), number(extent, "type"))).collect()
}

fn read_bytes(house: &House, name: &str) -> u64 {
    house.json(&["stats", name])["umbrella_disk_read_bytes"].as_u64().expect("a number")
}

/// Copies it with nbdcopy, which asks for the holes first.
fn copy(house: &House, name: &str) -> PathBuf {
    let copy = house.path("copy");
    let _ = fs::remove_file(&copy);
    run("nbdcopy", [house.nbd(name).as_ref(), copy.as_os_str()]);
    copy
}

#[test]
fn a_copy_of_a_hybrid_disk_reads_only_what_was_written_and_wakes_no_disk_for_what_was_not() {
    let house = House::new();
    let config = house.hybrid("media", "fixed:timeout=0");
    let config = config.to_str().expect("text");
    house.given(&["create", config]);
    house.given(&["serve", config, "--daemon"]);
    let size = (64 << 20) - 8192;
    assert_eq!(map(&house, "media"), [(size, 3)]);
    eventually("it sleeps", || house.status("media")["power"] == "standby");
    let data = bytes(1, MIB);
    house.write("media", &data);
    assert_eq!(map(&house, "media"), [(MIB, 0), (size - MIB, 3)]);
    let before = read_bytes(&house, "media");
    assert_eq!(first(&copy(&house, "media"), data.len()), data);
    assert_eq!(house.status("media")["power"], "standby");
    assert!(read_bytes(&house, "media") - before <= 2 * MIB);
    house.given(&["detach", "media", "--keep-cache"]);
    // What is on the disk itself counts as well.
    house.given(&["detach", config]);
    house.given(&["create", config, "--force"]);
    house.given(&["serve", config, "--daemon"]);
    assert_eq!(map(&house, "media").first().map(|extent| extent.1), Some(0));
    assert_eq!(first(&copy(&house, "media"), data.len()), data);
    house.given(&["detach", "media"]);
}

#[test]
fn a_copy_of_a_large_and_empty_log_store_reads_nothing() {
    let house = House::new();
    house.given(&["create", "--kind", "log", "large.img", "--size", "6GiB"]);
    house.given(&["serve", "large.img", "--daemon"]);
    let empty = map(&house, "large.img");
    assert!(empty.iter().all(|extent| extent.1 == 3), "{empty:?}");
    copy(&house, "large.img");
    assert_eq!(read_bytes(&house, "large.img"), 0);
    let data = bytes(2, MIB);
    house.write("large.img", &data);
    assert_eq!(map(&house, "large.img").first(), Some(&(MIB, 0)));
    assert_eq!(first(&copy(&house, "large.img"), data.len()), data);
    assert!(read_bytes(&house, "large.img") <= 2 * MIB);
    house.given(&["detach"]);
}
