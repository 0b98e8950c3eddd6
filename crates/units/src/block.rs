//! Addresses and lengths on devices and in files: sectors, blocks, pages, extents, and simulated time.

use std::fmt;
use std::ops::{Add, Sub};

use serde::{Deserialize, Serialize};

use crate::ByteSize;

/// Bytes of a page, the unit of write-back; a block of a device has the same size.
pub const PAGE_BYTES: u64 = 4096;

/// Bytes of a sector, the unit of a device's addresses.
pub const SECTOR_BYTES: u64 = 512;

/// Sectors of a block.
pub const BLOCK_SECTORS: u64 = PAGE_BYTES / SECTOR_BYTES;

/// A block's address on its device, in blocks of [`PAGE_BYTES`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BlockNo(pub u64);

impl BlockNo {
    /// The block that follows; of the last one, itself.
    #[must_use]
    pub fn next(self) -> BlockNo {
        BlockNo(self.0.saturating_add(1))
    }

    /// Blocks between the two, whichever comes first.
    pub fn distance(self, other: BlockNo) -> u64 {
        self.0.abs_diff(other.0)
    }

    /// Where the block begins, in sectors.
    pub fn lba(self) -> Lba {
        Lba(self.0 * BLOCK_SECTORS)
    }
}

/// A sector's address on its device, in sectors of [`SECTOR_BYTES`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Lba(pub u64);

impl Lba {
    /// The block that holds the sector.
    pub fn block(self) -> BlockNo {
        BlockNo(self.0 / BLOCK_SECTORS)
    }
}

/// Adjacent blocks: the unit of I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Extent {
    /// The first block.
    pub start: BlockNo,
    /// How many blocks; never zero.
    pub blocks: u64,
}

impl Extent {
    /// The block after the last.
    pub fn end(self) -> BlockNo {
        BlockNo(self.start.0 + self.blocks)
    }
}

/// Adjacent sectors of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SectorRange {
    /// The first sector.
    pub start: Lba,
    /// How many sectors.
    pub sectors: u64,
}

impl SectorRange {
    /// The sectors from `start` up to, not including, `end`; none when `end` is not behind `start`.
    pub fn between(start: Lba, end: Lba) -> SectorRange {
        SectorRange { start, sectors: end.0.saturating_sub(start.0) }
    }

    /// The sector behind the last one; the end of all addresses where that is beyond it.
    pub fn end(self) -> Lba {
        Lba(self.start.0.saturating_add(self.sectors))
    }

    /// Their bytes.
    pub fn bytes(self) -> ByteSize {
        ByteSize(self.sectors.saturating_mul(SECTOR_BYTES))
    }

    /// What both have; possibly nothing.
    #[must_use]
    pub fn intersection(self, other: SectorRange) -> SectorRange {
        SectorRange::between(self.start.max(other.start), self.end().min(other.end()))
    }

    /// Whether they have a sector in common.
    pub fn overlaps(self, other: SectorRange) -> bool {
        self.intersection(other).sectors > 0
    }
}

impl fmt::Display for SectorRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.sectors {
            0 => write!(f, "no sector at {}", self.start.0),
            1 => write!(f, "sector {}", self.start.0),
            _ => write!(f, "sectors {} to {}", self.start.0, self.end().0 - 1),
        }
    }
}

/// A file, by whatever number its owner gives it (an inode number, or a trace's own).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FileId(pub u64);

impl FileId {
    /// The device itself, as the file whose page `n` is block `n`: what holds metadata, and all pages of a block trace.
    pub const DEVICE: FileId = FileId(0);
}

/// A page's place in its file, in pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PageIndex(pub u64);

/// A number of pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Pages(pub u64);

/// A page of the page cache: which file, which page of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PageKey {
    /// The file.
    pub file: FileId,
    /// The page's place in it.
    pub index: PageIndex,
}

impl PageKey {
    /// The page that caches a block of the device itself.
    pub fn device(block: BlockNo) -> PageKey {
        PageKey { file: FileId::DEVICE, index: PageIndex(block.0) }
    }
}

/// A moment, or a length of time, of a clock that begins at zero; in nanoseconds. Virtual in a model, monotonic when
/// live.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Nanos(pub u64);

impl Nanos {
    /// Later than anything that happens.
    pub const NEVER: Nanos = Nanos(u64::MAX);

    /// A duration in microseconds.
    pub const fn from_micros(micros: u64) -> Nanos {
        Nanos(micros * 1_000)
    }

    /// A duration in milliseconds.
    pub const fn from_millis(millis: u64) -> Nanos {
        Nanos(millis * 1_000_000)
    }

    /// A duration in seconds.
    pub const fn from_secs(secs: u64) -> Nanos {
        Nanos(secs * 1_000_000_000)
    }

    /// In seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// How long after `earlier` this is; zero when it is not.
    #[must_use]
    pub fn since(self, earlier: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add for Nanos {
    type Output = Nanos;

    /// Never wraps: what lies beyond the end of the clock is [`Nanos::NEVER`].
    fn add(self, other: Nanos) -> Nanos {
        Nanos(self.0.saturating_add(other.0))
    }
}

impl Sub for Nanos {
    type Output = Nanos;

    /// Never wraps: zero when `other` is the later one.
    fn sub(self, other: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(other.0))
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.6} s", self.as_secs_f64())
    }
}
