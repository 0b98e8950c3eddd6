//! How large everything is: the papers' machines and workloads, shrunk together. Thresholds are those of Linux 2.6.12,
//! which they ran.

use std::time::Duration;

use umbrella_units::ByteSize;

use crate::kernel::{BACKGROUND, FOREGROUND, OrderedBy, WriteBackSettings};
use crate::place::Place;

/// Linux, all versions, in the disk's own time.
const EXPIRE: Duration = Duration::from_secs(30);
const EVERY: Duration = Duration::from_secs(5);
/// A share of the papers' sizes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) scale: f64,
    /// The memory of the paper's machine.
    pub(crate) full_memory: ByteSize,
}

impl Sizes {
    /// The scaled number, at least one.
    pub(crate) fn count(&self, full: u64) -> u64 {
        ((full as f64 * self.scale).round() as u64).max(1)
    }

    /// The scaled number of bytes, in whole pages.
    pub(crate) fn bytes(&self, full: u64) -> ByteSize {
        ByteSize(self.count(full / 4096) * 4096)
    }

    /// The memory of the machine, shrunk.
    pub(crate) fn memory(&self) -> ByteSize {
        self.bytes(self.full_memory.0)
    }

    /// Above this dirty data is written in the background.
    pub(crate) fn background(&self) -> ByteSize {
        ByteSize(self.memory().0 * BACKGROUND / 100)
    }

    /// No more may be dirty.
    pub(crate) fn foreground(&self) -> ByteSize {
        ByteSize(self.memory().0 * FOREGROUND / 100)
    }

    /// When the kernel writes back, with this orderer of write-back on the only disk.
    pub(crate) fn settings(&self, place: &Place, ordered_by: OrderedBy) -> WriteBackSettings {
        let (expire, every) = (place.real(EXPIRE), place.real(EVERY));
        WriteBackSettings { ordered_by: [ordered_by; 2], limit: self.foreground(), expire, every }
    }

    /// As [`Sizes::settings`], for two disks that share what may be dirty.
    pub(crate) fn settings_of_two(&self, place: &Place, ordered_by: [OrderedBy; 2]) -> WriteBackSettings {
        let one = self.settings(place, OrderedBy::Kernel);
        WriteBackSettings { ordered_by, limit: ByteSize(one.limit.0 / 2), ..one }
    }
}
