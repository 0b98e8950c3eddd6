//! What a test run that was killed leaves mounted, and the script that takes it away before the next one.

use std::path::Path;

use super::*;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/unmount-dead.sh");

/// What is mounted below a folder.
fn mounts(folder: &Path) -> Vec<String> {
    let folder = folder.to_str().expect("text");
    let table = fs::read_to_string("/proc/self/mounts").expect("the kernel has one");
    table.lines().filter(|line| line.contains(folder)).map(str::to_owned).collect()
}

#[test]
fn what_a_killed_test_left_mounted_is_taken_away_and_the_living_is_left_alone() {
    require_root_and_fuse();
    let folder = temp_dir("left");
    let disks = || {
        TestDisks::at(tempfile::Builder::new().prefix("umbrella-disk-").tempdir_in(folder.path()).expect("a folder"))
    };
    let (killed, living) = (disks(), disks());
    let mut devices = Vec::new();
    for disks in [&killed, &living] {
        let device = disks.given(&["attach", "--disk", "memory:size=32MiB", "--name", "ram"]).trim().to_owned();
        run("mkfs.ext4", ["-q", &device]);
        fs::create_dir(disks.path("mnt")).expect("the folder can be written");
        run("mount", [Path::new(&device), &disks.path("mnt")]);
        devices.push(device);
    }
    let pid = killed.pid("ram");
    kill_process(pid, Signal::KILL).expect("it runs");
    ends(pid);
    assert_eq!(mounts(&killed.path("")).len(), 2, "the file system and the file below it");

    let output = Command::new(SCRIPT).env("UMBRELLA_TEST_DIR", folder.path()).output().expect("it can be started");
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(String::from_utf8_lossy(&output.stdout).matches("left behind").count(), 2);
    assert_eq!(mounts(&killed.path("")), [""; 0]);
    let backing = |device: &str| Path::new("/sys/block").join(device.trim_start_matches("/dev/")).join("loop");
    assert!(!backing(&devices[0]).exists(), "the loop device is free again");
    assert!(backing(&devices[1]).exists());
    assert_eq!(mounts(&living.path("")).len(), 2);

    run("umount", [living.path("mnt")]);
    living.given(&["detach"]);
}
