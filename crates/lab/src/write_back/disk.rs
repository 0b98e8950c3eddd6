//! The sizes of the disks, for callers that choose one, and parts of disks.

use std::fmt;
use std::str::FromStr;

use umbrella_model::device::profiles::{Options, Profile, profiles};
use umbrella_model::device::{Device, LinearDevice};
use umbrella_units::{ByteSize, Lba, PAGE_BYTES, SECTOR_BYTES};

/// Where on the disk a partition lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartitionPosition {
    /// At the outer edge, where the disk is fastest.
    Start,
    /// Around the middle block.
    Middle,
    /// At the inner edge.
    End,
}

/// A part of the disk: `60GB@middle`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Partition {
    /// How large it is.
    pub size: ByteSize,
    /// Where it lies.
    pub place: PartitionPosition,
}

impl Partition {
    const PLACES: [(&'static str, PartitionPosition); 3] =
        [("start", PartitionPosition::Start), ("middle", PartitionPosition::Middle), ("end", PartitionPosition::End)];

    /// That part of a disk; all of a smaller one.
    pub(super) fn of(self, disk: Box<dyn Device>) -> LinearDevice {
        let blocks = PAGE_BYTES / SECTOR_BYTES;
        let sectors = self.size.0 / PAGE_BYTES * blocks;
        let left = disk.capacity().0.saturating_sub(sectors);
        let first = match self.place {
            PartitionPosition::Start => 0,
            PartitionPosition::Middle => left / 2,
            PartitionPosition::End => left,
        };
        LinearDevice::new(disk, Lba(first / blocks * blocks), Lba(sectors))
    }
}

impl fmt::Display for Partition {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = Partition::PLACES.iter().find(|(_, place)| *place == self.place).map_or("", |(name, _)| name);
        write!(out, "{}B@{place}", self.size.0)
    }
}

impl FromStr for Partition {
    type Err = String;

    fn from_str(text: &str) -> Result<Partition, String> {
        let (size, place) = text.split_once('@').ok_or("give a size and a place, such as 60GB@middle")?;
        let place = Partition::PLACES.iter().find(|(name, _)| *name == place.trim());
        let (_, place) = place.ok_or("the place is start, middle or end, as in 60GB@middle")?;
        let size: ByteSize = size.trim().parse().map_err(|error| format!("{error}"))?;
        if size.0 < PAGE_BYTES {
            Err("too small for a file system".to_owned())
        } else {
            Ok(Partition { size, place: *place })
        }
    }
}

/// A disk's size.
pub fn capacity(profile: &Profile) -> ByteSize {
    ByteSize(profile.build(&Options::default()).capacity().0 * SECTOR_BYTES)
}

/// The names of the disks whose size fits, with commas between them.
pub(super) fn disks_of(fits: impl Fn(ByteSize) -> bool) -> String {
    let all = profiles();
    let names: Vec<&str> = all.iter().filter(|profile| fits(capacity(profile))).map(|profile| profile.name).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_is_said_as_it_is_read() {
        for text in ["61440B@start", "61440B@middle", "61440B@end"] {
            assert_eq!(text.parse::<Partition>().map(|part| part.to_string()), Ok(text.to_owned()));
        }
        for bad in ["", "60GB", "@start", "60GB@", "60GB@top", "1B@end"] {
            assert!(bad.parse::<Partition>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_last_partition_ends_where_the_disk_ends() {
        let disk = || -> Box<dyn Device> {
            umbrella_model::device::profile("deskstar_500gb").expect("a profile").build(&Options::default())
        };
        let part = |text: &str| text.parse::<Partition>().expect("a partition").of(disk()).capacity();
        assert_eq!(part("1GiB@end"), Lba(2 << 20));
        assert_eq!(part("999TB@middle"), disk().capacity());
    }
}
