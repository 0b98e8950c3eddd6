//! The interface of everything that holds sectors.

use umbrella_units::{ByteSize, Lba, SECTOR_BYTES, SectorRange};

use crate::error::BlockError;

/// What a device is like; of it only the capacity changes while the device is open, and only by
/// [`BlockDevice::refresh`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// How many sectors it has.
    pub capacity: Lba,
    /// The least that it reads or writes, in bytes: a power of two, at least [`SECTOR_BYTES`]. Addresses and lengths
    /// are multiples.
    pub logical_block: u32,
    /// What it reads and writes without extra work, in bytes: a power of two, at least the logical block.
    pub physical_block: u32,
    /// Whether distance costs time.
    pub rotational: bool,
    /// How many calls are worth making at once; 1 for a device that answers at once or one after another anyway.
    pub queue_depth: u32,
}

impl Geometry {
    /// Its size in bytes.
    pub fn size(&self) -> ByteSize {
        ByteSize(self.capacity.0 * SECTOR_BYTES)
    }

    /// The sectors of a transfer of `bytes` bytes at `at`, if they exist and are whole logical blocks.
    pub fn check(&self, at: Lba, bytes: usize) -> Result<SectorRange, BlockError> {
        let block = u64::from(self.logical_block);
        let range = SectorRange { start: at, sectors: bytes as u64 / SECTOR_BYTES };
        if !(bytes as u64).is_multiple_of(block) || !at.0.is_multiple_of(block / SECTOR_BYTES) {
            return Err(BlockError::Unaligned { at, bytes: bytes as u64, logical_block: self.logical_block });
        }
        self.check_range(range)?;
        Ok(range)
    }

    /// Whether all of the range exists.
    pub fn check_range(&self, range: SectorRange) -> Result<(), BlockError> {
        if range.start.0.checked_add(range.sectors).is_none_or(|end| end > self.capacity.0) {
            return Err(BlockError::BeyondEnd { range, capacity: self.capacity });
        }
        Ok(())
    }
}

/// What must be true when a write returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Reads return it at once. A power cut may lose it until the next flush.
    Cached,
    /// It is on the medium (FUA). Says nothing of earlier writes.
    Through,
}

/// How zeroes may be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Zeroes {
    /// The space may be given back.
    Unmap,
    /// The space stays allocated.
    Keep,
}

/// Whether a range has space of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allocation {
    /// It may hold anything.
    Data,
    /// It reads as zeroes and occupies nothing, or next to nothing.
    Hole,
}

/// A device that stores sectors. Calls block, and may come from many threads at once.
///
/// The guarantees are those of a disk:
/// - A power cut may tear a write between sectors, never inside one.
/// - A read that overlaps a write under way sees either the old or the new data.
/// - When [`flush`](BlockDevice::flush) returns, all writes that had returned before it was called are durable.
/// - After a failed flush nothing written before it can be relied on, and the device refuses writes.
pub trait BlockDevice: Send + Sync {
    /// What it is like.
    fn geometry(&self) -> Geometry;

    /// Looks whether what is below has become larger; [`geometry`](BlockDevice::geometry) says so then.
    fn refresh(&self) -> Result<(), BlockError> {
        Ok(())
    }

    /// Fills `buffer` from sector `at` on.
    fn read(&self, at: Lba, buffer: &mut [u8]) -> Result<(), BlockError>;

    /// Writes `data` from sector `at` on.
    fn write(&self, at: Lba, data: &[u8], durability: Durability) -> Result<(), BlockError>;

    /// Makes all writes that have returned durable. Of several flushes at once, only one may report a loss: a caller
    /// that flushes from several threads has them take turns.
    fn flush(&self) -> Result<(), BlockError>;

    /// The contents of the range are not needed any more; reads return the old contents or zeroes.
    fn discard(&self, range: SectorRange) -> Result<(), BlockError>;

    /// Whether it can say where its holes are.
    fn has_extents(&self) -> bool {
        false
    }

    /// How a range begins that is not empty: its first part that is allocated in one way, or a beginning of that; never
    /// empty itself. What is written meanwhile may be seen or not. All data where it cannot say.
    fn first_extent(&self, range: SectorRange) -> Result<(SectorRange, Allocation), BlockError> {
        self.geometry().check_range(range)?;
        Ok((range, Allocation::Data))
    }

    /// The range reads as zeroes.
    fn write_zeroes(&self, range: SectorRange, zeroes: Zeroes, durability: Durability) -> Result<(), BlockError>;
}

/// The methods of [`BlockDevice`] that a device hands on to the one in its field as they are:
/// `forward!(inner: geometry, read, flush);`.
#[macro_export]
macro_rules! forward {
    ($inner:tt: $($method:ident),+) => { $($crate::forward!(@ $method $inner);)+ };
    (@ geometry $inner:tt) => {
        fn geometry(&self) -> $crate::Geometry {
            self.$inner.geometry()
        }
    };
    (@ refresh $inner:tt) => {
        fn refresh(&self) -> Result<(), $crate::BlockError> {
            self.$inner.refresh()
        }
    };
    (@ has_extents $inner:tt) => {
        fn has_extents(&self) -> bool {
            self.$inner.has_extents()
        }
    };
    (@ first_extent $inner:tt) => {
        fn first_extent(
            &self,
            range: ::umbrella_units::SectorRange,
        ) -> Result<(::umbrella_units::SectorRange, $crate::Allocation), $crate::BlockError> {
            self.$inner.first_extent(range)
        }
    };
    (@ read $inner:tt) => {
        fn read(&self, at: ::umbrella_units::Lba, buffer: &mut [u8]) -> Result<(), $crate::BlockError> {
            self.$inner.read(at, buffer)
        }
    };
    (@ write $inner:tt) => {
        fn write(
            &self,
            at: ::umbrella_units::Lba,
            data: &[u8],
            durability: $crate::Durability,
        ) -> Result<(), $crate::BlockError> {
            self.$inner.write(at, data, durability)
        }
    };
    (@ flush $inner:tt) => {
        fn flush(&self) -> Result<(), $crate::BlockError> {
            self.$inner.flush()
        }
    };
    (@ discard $inner:tt) => {
        fn discard(&self, range: ::umbrella_units::SectorRange) -> Result<(), $crate::BlockError> {
            self.$inner.discard(range)
        }
    };
    (@ write_zeroes $inner:tt) => {
        fn write_zeroes(
            &self,
            range: ::umbrella_units::SectorRange,
            zeroes: $crate::Zeroes,
            durability: $crate::Durability,
        ) -> Result<(), $crate::BlockError> {
            self.$inner.write_zeroes(range, zeroes, durability)
        }
    };
}

/// Whether each byte is 0. Compares 64 at a time: looking at each by itself takes several times as long.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    let zeroes = [0; 64];
    bytes.chunks(64).all(|chunk| zeroes.starts_with(chunk))
}
