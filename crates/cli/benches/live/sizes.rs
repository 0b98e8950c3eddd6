//! How large everything is: the papers' machines and workloads, shrunk together.

use std::time::Duration;

use umbrella_units::ByteSize;

use crate::kernel::WriteBackSettings;
use crate::place::Place;

/// Linux 2.6.12: in percent of memory.
const BACKGROUND: u64 = 10;
const FOREGROUND: u64 = 40;
/// Linux, all versions, in the disk's own time.
const EXPIRE: Duration = Duration::from_secs(30);
const EVERY: Duration = Duration::from_secs(5);
/// Where the order of write-back is not the kernel's, its own thresholds are so many times as high, so that it keeps out.
const OUT_OF_THE_WAY: u64 = 2;

/// A share of the papers' sizes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) scale: f64,
    /// The memory of the paper's machine.
    pub(crate) full_memory: ByteSize,
}

impl Sizes {
    /// So much of a number, at least one.
    pub(crate) fn count(&self, full: u64) -> u64 {
        ((full as f64 * self.scale).round() as u64).max(1)
    }

    /// So much of so many bytes, in whole pages.
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

    /// Where the kernel orders write-back.
    pub(crate) fn kernel(&self, place: &Place) -> WriteBackSettings {
        WriteBackSettings {
            background: self.background(),
            foreground: self.foreground(),
            expire: place.real(EXPIRE),
            every: place.real(EVERY),
        }
    }

    /// Where a policy does, within the same allowance.
    pub(crate) fn policy(&self, place: &Place) -> WriteBackSettings {
        WriteBackSettings {
            background: ByteSize(self.foreground().0 * OUT_OF_THE_WAY),
            foreground: ByteSize(self.foreground().0 * OUT_OF_THE_WAY * 2),
            ..self.kernel(place)
        }
    }
}
