//! On which block devices a file system lies, as sysfs has it: partitions of disks, and what device mapper, md and
//! bcache are made of.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{major, minor};

/// A chain of devices is no longer than this.
const DEEPEST: usize = 16;

/// The block devices below a file system.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct DeviceStack {
    /// Devices of which it has all.
    whole: BTreeSet<String>,
    /// Disks of which it has partitions.
    disks: BTreeSet<String>,
    /// Disks that are made of no others.
    physical: BTreeSet<String>,
}

impl DeviceStack {
    /// Whether an error of this device, in this partition of it if that is known, is one of the file system's.
    pub(crate) fn has(&self, device: &str, partition: Option<&str>) -> bool {
        if self.whole.contains(device) {
            return true;
        }
        match partition {
            Some(partition) => self.whole.contains(partition),
            None => self.disks.contains(device),
        }
    }

    /// Devices of which it has all.
    pub(crate) fn whole(&self) -> impl Iterator<Item = &str> {
        self.whole.iter().map(String::as_str)
    }

    /// Disks that are made of no others: what has heads to move, or a queue of its own.
    pub(crate) fn physical(&self) -> impl Iterator<Item = &str> {
        self.physical.iter().map(String::as_str)
    }
}

/// What a disk is doing and has done, as the kernel counts it. Source: the kernel's `Documentation/block/stat.rst`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct DiskLoad {
    /// Requests that it has and has not answered.
    pub(crate) in_flight: u64,
    /// For how long all requests together have waited for an answer.
    pub(crate) in_queue: Duration,
}

impl DiskLoad {
    fn parse(stat: &str) -> Option<DiskLoad> {
        let mut fields = stat.split_ascii_whitespace().map(|field| field.parse::<u64>().ok());
        let in_flight = fields.nth(8)??;
        let in_queue = fields.nth(1)??;
        Some(DiskLoad { in_flight, in_queue: Duration::from_millis(in_queue) })
    }
}

/// The kernel's table of devices.
#[derive(Debug, Clone)]
pub(crate) struct Sysfs(PathBuf);

impl Default for Sysfs {
    fn default() -> Sysfs {
        Sysfs("/sys".into())
    }
}

impl Sysfs {
    /// One that lies elsewhere.
    #[cfg(test)]
    pub(crate) fn at(path: &Path) -> Sysfs {
        Sysfs(path.to_owned())
    }

    /// What is below a file system with this number of a device. Where that is no block device's, `source` of its mount
    /// may be one. A btrfs is known by its UUID: the node that was mounted may be gone, and it has other devices.
    pub(crate) fn below(&self, dev: u64, source: Option<&str>, btrfs: Option<&str>) -> DeviceStack {
        let mut stack = DeviceStack::default();
        let members = btrfs.map(|uuid| names(&self.0.join("fs/btrfs").join(uuid).join("devices")));
        if let Some(members) = members.filter(|members| !members.is_empty()) {
            for member in &members {
                self.add(&mut stack, member, DEEPEST);
            }
            return stack;
        }
        let device = source.filter(|source| source.starts_with("/dev/"));
        let named = self.name_of(dev).or_else(|| self.name_of(rustix::fs::stat(device?).ok()?.st_rdev));
        let Some(name) = named else { return stack };
        for member in self.btrfs_of(&name).map_or_else(|| vec![name], |fs| names(&fs.join("devices"))) {
            self.add(&mut stack, &member, DEEPEST);
        }
        stack
    }

    fn add(&self, stack: &mut DeviceStack, name: &str, depth: usize) {
        if depth == 0 || !stack.whole.insert(name.to_owned()) {
            return;
        }
        let folder = self.block(name);
        let (mut made_of, mut itself) = (names(&folder.join("slaves")), name.to_owned());
        if folder.join("partition").exists()
            && let Some(disk) = self.disk_of(name)
        {
            made_of.extend(names(&self.block(&disk).join("slaves")));
            stack.disks.insert(disk.clone());
            itself = disk;
        }
        if made_of.is_empty() {
            stack.physical.insert(itself);
        }
        for below in made_of {
            self.add(stack, &below, depth - 1);
        }
    }

    /// What a device is doing; `None` where the kernel does not say.
    pub(crate) fn load(&self, device: &str) -> Option<DiskLoad> {
        DiskLoad::parse(&std::fs::read_to_string(self.block(device).join("stat")).ok()?)
    }

    /// The partition of a disk in which a sector lies.
    pub(crate) fn partition_at(&self, disk: &str, sector: u64) -> Option<String> {
        let folder = self.block(disk);
        let number = |path: PathBuf| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
        names(&folder).into_iter().find(|name| {
            let partition = folder.join(name);
            let place = || {
                number(partition.join("partition"))?;
                Some((number(partition.join("start"))?, number(partition.join("size"))?))
            };
            place().is_some_and(|(start, size)| sector >= start && sector - start < size)
        })
    }

    /// The sysfs folder of the btrfs that has this device.
    pub(crate) fn btrfs_of(&self, device: &str) -> Option<PathBuf> {
        let all = self.0.join("fs/btrfs");
        names(&all).into_iter().map(|uuid| all.join(uuid)).find(|fs| fs.join("devices").join(device).exists())
    }

    /// The sysfs folder of an ext4.
    pub(crate) fn ext4_of(&self, device: &str) -> PathBuf {
        self.0.join("fs/ext4").join(device)
    }

    /// The name of the block device with this number.
    pub(crate) fn name_of(&self, dev: u64) -> Option<String> {
        if major(dev) == 0 {
            return None;
        }
        let link = self.0.join(format!("dev/block/{}:{}", major(dev), minor(dev)));
        file_name(&std::fs::read_link(link).ok()?)
    }

    fn disk_of(&self, partition: &str) -> Option<String> {
        file_name(std::fs::read_link(self.block(partition)).ok()?.parent()?)
    }

    fn block(&self, name: &str) -> PathBuf {
        self.0.join("class/block").join(name)
    }
}

fn file_name(path: &Path) -> Option<String> {
    Some(path.file_name()?.to_str()?.to_owned())
}

/// What is in a folder; nothing where there is none.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use rustix::fs::makedev;

    use super::*;

    /// Two disks with two partitions each; md0 on the first partitions, a logical volume on md0, a btrfs on the second
    /// ones.
    struct Machine(tempfile::TempDir);

    impl Machine {
        fn new() -> Machine {
            let machine = Machine(tempfile::tempdir().unwrap());
            for (disk, major) in [("sda", 8), ("sdb", 9)] {
                machine.device(disk, &format!("block/{disk}"), (major, 0), &[]);
                for (number, start) in [(1, 2048), (2, 100_000)] {
                    let name = format!("{disk}{number}");
                    let folder = machine.device(&name, &format!("block/{disk}/{name}"), (major, number), &[]);
                    for (file, value) in [("partition", u64::from(number)), ("start", start), ("size", 50_000)] {
                        fs::write(folder.join(file), format!("{value}\n")).unwrap();
                    }
                }
            }
            machine.device("md0", "virtual/md0", (10, 0), &["sda1", "sdb1"]);
            machine.device("dm-0", "virtual/dm-0", (11, 0), &["md0"]);
            let devices = machine.0.path().join("fs/btrfs/0-1-2/devices");
            fs::create_dir_all(&devices).unwrap();
            for name in ["sda2", "sdb2"] {
                fs::create_dir(devices.join(name)).unwrap();
            }
            machine
        }

        fn device(&self, name: &str, path: &str, (major, minor): (u32, u32), slaves: &[&str]) -> PathBuf {
            let root = self.0.path();
            let folder = root.join("devices").join(path);
            for folder in [folder.join("slaves"), root.join("class/block"), root.join("dev/block")] {
                fs::create_dir_all(folder).unwrap();
            }
            for slave in slaves {
                fs::create_dir(folder.join("slaves").join(slave)).unwrap();
            }
            symlink(&folder, root.join("class/block").join(name)).unwrap();
            symlink(&folder, root.join(format!("dev/block/{major}:{minor}"))).unwrap();
            folder
        }

        fn sysfs(&self) -> Sysfs {
            Sysfs(self.0.path().to_owned())
        }

        /// Whether an error of a device at a sector is one of the file system with this number.
        fn concerns(&self, dev: (u32, u32), device: &str, sector: Option<u64>) -> bool {
            let stack = self.sysfs().below(makedev(dev.0, dev.1), None, None);
            let partition = sector.and_then(|sector| self.sysfs().partition_at(device, sector));
            stack.has(device, partition.as_deref())
        }
    }

    #[test]
    fn a_sector_of_a_disk_belongs_to_the_partition_that_holds_it() {
        let machine = Machine::new();
        let (first, second) = ((8, 1), (8, 2));
        assert!(machine.concerns(first, "sda", Some(2048)) && !machine.concerns(second, "sda", Some(2048)));
        assert!(!machine.concerns(first, "sda", Some(149_999)) && machine.concerns(second, "sda", Some(149_999)));
        assert!(machine.concerns(first, "sda1", None) && !machine.concerns(second, "sda1", None));
        assert!(!machine.concerns(first, "sdb", Some(2048)) && !machine.concerns(first, "sdb", None));
    }

    #[test]
    fn where_the_partition_is_not_known_all_file_systems_of_the_disk_are_meant() {
        let machine = Machine::new();
        for sector in [None, Some(3), Some(u64::MAX)] {
            assert!(machine.concerns((8, 1), "sda", sector) && machine.concerns((8, 2), "sda", sector));
            assert!(machine.concerns((11, 0), "sda", sector), "through the volume, the array and the partition");
        }
    }

    #[test]
    fn what_a_file_system_lies_on_is_found_through_volumes_and_arrays() {
        let machine = Machine::new();
        for device in ["dm-0", "md0", "sda1", "sdb1"] {
            assert!(machine.concerns((11, 0), device, None), "{device}");
        }
        assert!(machine.concerns((11, 0), "sdb", Some(2048)) && !machine.concerns((11, 0), "sdb", Some(100_000)));
    }

    #[test]
    fn a_btrfs_lies_on_all_its_devices() {
        let machine = Machine::new();
        assert!(machine.concerns((8, 2), "sdb2", None) && machine.concerns((8, 2), "sdb", Some(100_000)));
        assert!(!machine.concerns((8, 2), "sdb1", None));
    }

    #[test]
    fn a_btrfs_is_found_by_its_uuid_when_the_node_that_was_mounted_is_gone() {
        let machine = Machine::new();
        let sysfs = machine.sysfs();
        let below = |uuid| sysfs.below(makedev(0, 35), Some("/dev/nowhere/at/all"), Some(uuid));
        let stack = below("0-1-2");
        for device in ["sda2", "sdb2"] {
            assert!(stack.has(device, None), "{device}");
        }
        assert!(stack.has("sdb", Some("sdb2")) && !stack.has("sdb", Some("sdb1")));
        assert_eq!(below("3-4-5"), DeviceStack::default());
    }

    #[test]
    fn the_physical_disks_are_found_below_partitions_arrays_and_volumes() {
        let machine = Machine::new();
        let physical = |(major, minor)| {
            let stack = machine.sysfs().below(makedev(major, minor), None, None);
            stack.physical().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(physical((8, 0)), ["sda"], "a whole disk");
        assert_eq!(physical((9, 1)), ["sdb"], "a partition");
        assert_eq!(physical((11, 0)), ["sda", "sdb"], "a volume on an array of partitions");
        assert_eq!(physical((8, 2)), ["sda", "sdb"], "a btrfs on two");
        assert_eq!(physical((77, 7)), <[&str; 0]>::default());
    }

    #[test]
    fn the_load_of_a_disk_is_what_its_statistics_say() {
        let machine = Machine::new();
        let stat = machine.0.path().join("devices/block/sda/stat");
        for (text, load) in [
            // Linux 4.14 has 11 fields, newer ones have more.
            ("  1 2 3 4  5 6 7 8  9 10 1500\n", Some((9, 1500))),
            ("1 2 3 4 5 6 7 8 0 10 11 12 13 14 15 16 17\n", Some((0, 11))),
            ("1 2 3 4 5 6 7 8 9 10\n", None),
            ("1 2 3 4 5 6 7 8 -9 10 11\n", None),
            ("", None),
        ] {
            fs::write(&stat, text).unwrap();
            let load = load.map(|(in_flight, ms)| DiskLoad { in_flight, in_queue: Duration::from_millis(ms) });
            assert_eq!(machine.sysfs().load("sda"), load, "{text}");
        }
        assert_eq!(machine.sysfs().load("nowhere"), None);
    }

    #[test]
    fn a_file_system_without_a_disk_has_none() {
        let sysfs = Machine::new().sysfs();
        assert_eq!(sysfs.below(makedev(0, 35), None, None), DeviceStack::default());
        assert_eq!(sysfs.below(makedev(0, 35), Some("/dev/nowhere/at/all"), None), DeviceStack::default());
        assert_eq!(sysfs.below(makedev(77, 7), None, None), DeviceStack::default());
    }
}
