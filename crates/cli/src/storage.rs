//! What a directory lies on: flash, a rotating disk, or something that is not this machine's.
//!
//! The kernel says of each disk whether it rotates. A partition belongs to its disk. A device that is made of several
//! others (LVM, RAID, dm-crypt, a btrfs of several disks) rotates if one of them does.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use umbrella_units::ByteSize;

use crate::mounts::{self, MountInfo};
use crate::text::visible;

/// What there is below.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Medium {
    /// No motor.
    Flash,
    /// A rotating disk, or several devices of which one rotates.
    Disk,
    /// Another machine, or a daemon.
    Remote,
    /// The kernel does not say.
    Unknown,
}

impl Medium {
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Medium::Flash => "flash",
            Medium::Disk => "rotating disk",
            Medium::Remote => "network or FUSE file system",
            Medium::Unknown => "disk of unknown kind",
        }
    }
}

/// A directory and what is below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Storage {
    pub(crate) path: PathBuf,
    pub(crate) medium: Medium,
    /// The whole disks: `sda`.
    pub(crate) disks: Vec<String>,
    pub(crate) kind: String,
    pub(crate) total: Option<ByteSize>,
    /// The directory is where its file system is mounted.
    pub(crate) is_mount: bool,
    /// It is on the file system of `/`.
    pub(crate) is_on_root: bool,
    /// Device number of the file system.
    pub(crate) device: u64,
}

impl Storage {
    /// `ext4, 3.6 TiB, rotating disk (sda)`
    pub(crate) fn describe(&self) -> String {
        let mut words = vec![visible(&self.kind)];
        words.extend(self.total.map(|total| total.to_string()));
        let disks =
            if self.disks.is_empty() { String::new() } else { format!(" ({})", visible(&self.disks.join(", "))) };
        words.push(format!("{}{disks}", self.medium.describe()));
        words.join(", ")
    }
}

/// Inspects a directory. Calls its file system, which must answer.
pub(crate) fn inspect(path: &Path) -> std::io::Result<Storage> {
    let data = fs::metadata(path)?;
    let path = path.canonicalize()?;
    if let Some(pool) = umbrella_fs::branch::cover::pool_over(&path) {
        let pool = crate::text::visible_path(&pool);
        return Err(std::io::Error::other(format!("it is hidden by the pool at {pool}: unmount the pool first")));
    }
    let mounted = mounts::above(&path);
    let (at, kind, source) = match &mounted {
        Some((at, MountInfo { kind, source, .. })) => (at.as_path(), kind.as_str(), source.as_str()),
        None => (Path::new("/"), "unknown", ""),
    };
    let space = rustix::fs::statvfs(&path).ok();
    let disks = if mounts::may_hang(&path) { BTreeSet::new() } else { disks_of(Path::new("/sys"), data.dev(), source) };
    let medium = if mounts::may_hang(&path) { Medium::Remote } else { medium_of(&disks) };
    let name = |disk: &PathBuf| disk.file_name().map(|name| name.to_string_lossy().into_owned());
    Ok(Storage {
        medium,
        disks: disks.iter().filter_map(name).collect(),
        kind: kind.to_owned(),
        total: space.map(|space| ByteSize(space.f_blocks.saturating_mul(space.f_frsize))),
        is_mount: at == path,
        is_on_root: fs::metadata("/").is_ok_and(|root| root.dev() == data.dev()),
        device: data.dev(),
        path,
    })
}

/// The disks that are mounted on this machine, each once: no system folders, no images of packages.
pub(crate) fn mounted_disks() -> Vec<Storage> {
    let mut seen = BTreeSet::new();
    let mut disks = Vec::new();
    for (at, mounted) in mounts::all() {
        if is_data(&at, &mounted) && seen.insert(mounted.device) {
            disks.extend(inspect(&at));
        }
    }
    disks
}

/// Whether the mount may hold user data.
fn is_data(at: &Path, mounted: &MountInfo) -> bool {
    const KINDS: [&str; 8] = ["ext4", "ext3", "ext2", "xfs", "btrfs", "f2fs", "jfs", "bcachefs"];
    const SYSTEM: [&str; 9] = ["/boot", "/efi", "/usr", "/var", "/etc", "/home", "/snap", "/run", "/nix"];
    let is_system = at == Path::new("/") || SYSTEM.iter().any(|system| at.starts_with(system));
    mounted.source.starts_with("/dev/") && KINDS.contains(&mounted.kind.as_str()) && !is_system
}

fn medium_of(disks: &BTreeSet<PathBuf>) -> Medium {
    let rotates =
        |disk: &PathBuf| fs::read_to_string(disk.join("queue/rotational")).map(|text| text.trim() == "1").ok();
    let known: Vec<Option<bool>> = disks.iter().map(rotates).collect();
    match known.as_slice() {
        [] => Medium::Unknown,
        known if known.contains(&Some(true)) => Medium::Disk,
        known if known.contains(&None) => Medium::Unknown,
        _ => Medium::Flash,
    }
}

/// The whole disks below a file system, as folders of sysfs.
fn disks_of(sys: &Path, device: u64, source: &str) -> BTreeSet<PathBuf> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let mut devices: Vec<PathBuf> =
        fs::canonicalize(sys.join(format!("dev/block/{major}:{minor}"))).into_iter().collect();
    if devices.is_empty() {
        // The device of a btrfs is no block device: the kernel lists its disks, and the table of mounts names one.
        let name = fs::canonicalize(source).unwrap_or_else(|_| source.into());
        let Some(name) = name.file_name() else { return BTreeSet::new() };
        devices = btrfs_members(sys, name);
        if devices.is_empty() {
            devices.extend(fs::canonicalize(sys.join("class/block").join(name)));
        }
    }
    let mut disks = BTreeSet::new();
    // Devices on devices are few; a ring would be the kernel's mistake.
    for _ in 0..16 {
        devices = devices.into_iter().flat_map(|device| underlying_devices(device, &mut disks)).collect();
    }
    disks
}

/// The devices directly below a device. Adds a whole disk to `disks`.
fn underlying_devices(device: PathBuf, disks: &mut BTreeSet<PathBuf>) -> Vec<PathBuf> {
    let slaves = fs::read_dir(device.join("slaves")).into_iter().flatten().flatten();
    let slaves: Vec<PathBuf> = slaves.filter_map(|slave| fs::canonicalize(slave.path()).ok()).collect();
    if !slaves.is_empty() {
        return slaves;
    }
    if device.join("partition").exists() {
        return device.parent().map(Path::to_owned).into_iter().collect();
    }
    disks.insert(device);
    Vec::new()
}

/// The devices of the btrfs that has this one.
fn btrfs_members(sys: &Path, name: &std::ffi::OsStr) -> Vec<PathBuf> {
    let file_systems = fs::read_dir(sys.join("fs/btrfs")).into_iter().flatten().flatten();
    let found = file_systems.map(|fs| fs.path().join("devices")).find(|devices| devices.join(name).exists());
    let members = found.and_then(|devices| fs::read_dir(devices).ok()).into_iter().flatten().flatten();
    members.filter_map(|member| fs::canonicalize(member.path()).ok()).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A sysfs with these devices: the folder, whether it rotates, what it is made of.
    fn sysfs(devices: &[(&str, Option<&str>, &[&str])]) -> tempfile::TempDir {
        let sys = tempfile::tempdir().unwrap();
        fs::create_dir_all(sys.path().join("dev/block")).unwrap();
        fs::create_dir_all(sys.path().join("class/block")).unwrap();
        for (number, (folder, rotates, made_of)) in devices.iter().enumerate() {
            let dir = sys.path().join("devices").join(folder);
            fs::create_dir_all(dir.join("slaves")).unwrap();
            if let Some(rotates) = rotates {
                fs::create_dir_all(dir.join("queue")).unwrap();
                fs::write(dir.join("queue/rotational"), format!("{rotates}\n")).unwrap();
            } else if folder.contains('/') {
                fs::write(dir.join("partition"), "1\n").unwrap();
            }
            for part in *made_of {
                let target = sys.path().join("devices").join(part);
                symlink(target, dir.join("slaves").join(Path::new(part).file_name().unwrap())).unwrap();
            }
            symlink(&dir, sys.path().join(format!("dev/block/8:{number}"))).unwrap();
            symlink(&dir, sys.path().join("class/block").join(dir.file_name().unwrap())).unwrap();
        }
        sys
    }

    fn found(sys: &tempfile::TempDir, minor: u32, source: &str) -> (Medium, Vec<String>) {
        let major = if source.is_empty() { 8 } else { 0 };
        let disks = disks_of(&sys.path().canonicalize().unwrap(), rustix::fs::makedev(major, minor), source);
        let names = disks.iter().map(|disk| disk.file_name().unwrap().to_str().unwrap().to_owned()).collect();
        (medium_of(&disks), names)
    }

    #[test]
    fn a_partition_is_what_its_disk_is() {
        let sys = sysfs(&[("sda", Some("1"), &[]), ("sda/sda1", None, &[]), ("nvme0n1", Some("0"), &[])]);
        assert_eq!(found(&sys, 1, ""), (Medium::Disk, vec!["sda".to_owned()]));
        assert_eq!(found(&sys, 2, ""), (Medium::Flash, vec!["nvme0n1".to_owned()]));
        assert_eq!(found(&sys, 9, ""), (Medium::Unknown, vec![]));
    }

    #[test]
    fn what_is_made_of_several_rotates_if_one_does() {
        let sys = sysfs(&[
            ("sda", Some("1"), &[]),
            ("sda/sda1", None, &[]),
            ("sdb", Some("0"), &[]),
            ("md0", Some("0"), &["sda/sda1", "sdb"]),
            ("dm-0", Some("0"), &["md0"]),
            ("dm-1", Some("1"), &["sdb"]),
        ]);
        assert_eq!(found(&sys, 4, ""), (Medium::Disk, vec!["sda".to_owned(), "sdb".to_owned()]));
        assert_eq!(found(&sys, 5, ""), (Medium::Flash, vec!["sdb".to_owned()]));
    }

    #[test]
    fn a_btrfs_is_all_of_its_devices() {
        let sys = sysfs(&[("sda", Some("0"), &[]), ("sdb", Some("1"), &[]), ("sdc", Some("0"), &[])]);
        let devices = sys.path().join("fs/btrfs/some-uuid/devices");
        fs::create_dir_all(&devices).unwrap();
        for disk in ["sda", "sdb"] {
            symlink(sys.path().join("devices").join(disk), devices.join(disk)).unwrap();
        }
        assert_eq!(found(&sys, 44, "/dev/sda").0, Medium::Disk);
        assert_eq!(found(&sys, 44, "/dev/sdc"), (Medium::Flash, vec!["sdc".to_owned()]));
    }

    #[test]
    fn system_folders_and_package_images_are_no_disks_of_somebody() {
        let mounted = |kind: &str, source: &str| MountInfo {
            kind: kind.to_owned(),
            source: source.to_owned(),
            options: Vec::new(),
            device: 1,
        };
        let is = |at: &str, kind, source| is_data(Path::new(at), &mounted(kind, source));
        assert!(is("/mnt/disk1", "ext4", "/dev/sda1"));
        assert!(!is("/", "ext4", "/dev/sda1") && !is("/boot/efi", "ext4", "/dev/sda2"));
        assert!(!is("/snap/x", "squashfs", "/dev/loop1") && !is("/mnt/tmp", "tmpfs", "tmpfs"));
    }
}
