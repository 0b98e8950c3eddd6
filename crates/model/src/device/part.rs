//! A part of a device, as a partition is: its first sector is not the device's.

use umbrella_units::{Lba, Nanos};

use super::{Completion, Device, DeviceStats, Request};

/// Sectors of a device from `first` on.
pub struct LinearDevice {
    device: Box<dyn Device>,
    first: Lba,
    sectors: Lba,
}

impl LinearDevice {
    /// `sectors` sectors from `first` on, cut off at the device's end.
    pub fn new(device: Box<dyn Device>, first: Lba, sectors: Lba) -> LinearDevice {
        let room = device.capacity().0.saturating_sub(first.0);
        LinearDevice { device, first, sectors: Lba(sectors.0.min(room)) }
    }
}

impl Device for LinearDevice {
    fn room(&self) -> usize {
        self.device.room()
    }

    fn submit(&mut self, now: Nanos, request: Request) {
        // Nothing beyond the part's end is transferred.
        let (start, end) = request.clamped(self.sectors);
        let sectors = u32::try_from(end - start).unwrap_or(u32::MAX);
        self.device.submit(now, Request { lba: Lba(self.first.0 + start), sectors, ..request });
    }

    fn next_event(&self) -> Option<Nanos> {
        self.device.next_event()
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Completion>) {
        self.device.advance(now, done);
    }

    fn capacity(&self) -> Lba {
        self.sectors
    }

    fn stats(&self) -> DeviceStats {
        self.device.stats()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Op, RequestId, profile};
    use super::*;

    /// The cylinders that the heads travel to read the first sector of a part, from the disk's first one.
    fn travelled(first: u64) -> u64 {
        let disk = profile("deskstar_500gb").expect("a profile").build(&super::super::Options::default());
        let mut part = LinearDevice::new(disk, Lba(first), Lba(2048));
        assert_eq!(part.capacity(), Lba(2048));
        part.submit(Nanos(0), Request { id: RequestId(1), op: Op::Read, lba: Lba(0), sectors: 8 });
        let mut done = Vec::new();
        while let Some(at) = part.next_event() {
            part.advance(at, &mut done);
        }
        assert_eq!(done.len(), 1);
        part.stats().seek_cylinders
    }

    #[test]
    fn the_heads_go_to_where_the_part_lies() {
        assert_eq!(travelled(0), 0);
        assert!(travelled(400_000_000) > travelled(200_000_000));
    }

    #[test]
    fn nothing_lies_beyond_the_end_of_the_device_or_of_the_part() {
        let disk = || -> Box<dyn Device> {
            profile("deskstar_500gb").expect("a profile").build(&super::super::Options::default())
        };
        let all = disk().capacity();
        assert_eq!(LinearDevice::new(disk(), Lba(all.0 - 8), Lba(100)).capacity(), Lba(8));
        let mut part = LinearDevice::new(disk(), Lba(100), Lba(8));
        part.submit(Nanos(0), Request { id: RequestId(1), op: Op::Write, lba: Lba(4), sectors: 100 });
        let mut done = Vec::new();
        while let Some(at) = part.next_event() {
            part.advance(at, &mut done);
        }
        assert_eq!(part.stats().sectors_written, 4);
    }
}
