//! A device whose changes are kept apart from what it was made of.
//!
//! Chunks that were changed lie in memory and are shared between forks until one of them changes again, so that a fork
//! costs a pointer for each changed chunk. What lies below is only read.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::RwLock;
use umbrella_units::{Lba, SECTOR_BYTES, SectorRange};

use crate::device::{BlockDevice, Durability, Geometry, Zeroes};
use crate::error::BlockError;

/// The least chunk, in sectors: 4 KiB.
const CHUNK_SECTORS: u64 = 8;

/// What a range gets.
#[derive(Debug, Clone, Copy)]
enum Fill<'a> {
    Bytes(&'a [u8]),
    Zeroes,
}

/// Sectors over those of another device. Flushing does nothing, since there is nothing to lose.
pub struct Overlay {
    base: Arc<dyn BlockDevice>,
    geometry: Geometry,
    chunk_sectors: u64,
    chunks: RwLock<BTreeMap<u64, Arc<[u8]>>>,
}

impl fmt::Debug for Overlay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let changed = self.chunks.read().len();
        f.debug_struct("Overlay")
            .field("geometry", &self.geometry)
            .field("changed_chunks", &changed)
            .finish_non_exhaustive()
    }
}

impl Overlay {
    /// Looks like `base`, which must not change any more.
    pub fn new(base: Arc<dyn BlockDevice>) -> Overlay {
        let geometry = base.geometry();
        let chunk_sectors = CHUNK_SECTORS.max(u64::from(geometry.logical_block) / SECTOR_BYTES);
        Overlay { base, geometry, chunk_sectors, chunks: RwLock::default() }
    }

    /// Another one with the same contents; what is written to either is not seen by the other.
    #[must_use]
    pub fn fork(&self) -> Overlay {
        Overlay {
            base: Arc::clone(&self.base),
            geometry: self.geometry,
            chunk_sectors: self.chunk_sectors,
            chunks: RwLock::new(self.chunks.read().clone()),
        }
    }

    /// Where a chunk lies; the last one may be shorter than the others.
    fn range_of(&self, chunk: u64) -> SectorRange {
        let start = Lba(chunk * self.chunk_sectors);
        SectorRange { start, sectors: self.chunk_sectors.min(self.geometry.capacity.0.saturating_sub(start.0)) }
    }

    /// The chunk's part of `range`, and where in the chunk and behind the start of the range that is, in bytes.
    fn part(&self, chunk: u64, range: SectorRange) -> (SectorRange, usize, usize) {
        let whole = self.range_of(chunk);
        let part = range.intersection(whole);
        let bytes = |from: Lba| ((part.start.0 - from.0) * SECTOR_BYTES) as usize;
        (part, bytes(whole.start), bytes(range.start))
    }

    /// The chunks that hold a range that exists.
    fn chunks_of(&self, range: SectorRange) -> std::ops::Range<u64> {
        range.start.0 / self.chunk_sectors..range.end().0.div_ceil(self.chunk_sectors)
    }

    /// Replaces whole sectors, whatever the size of a logical block.
    pub(super) fn put(&self, at: Lba, data: &[u8]) -> Result<(), BlockError> {
        self.fill(SectorRange { start: at, sectors: data.len() as u64 / SECTOR_BYTES }, Fill::Bytes(data))
    }

    /// Clears sectors, whatever the size of a logical block.
    pub(super) fn clear(&self, range: SectorRange) -> Result<(), BlockError> {
        self.fill(range, Fill::Zeroes)
    }

    fn fill(&self, range: SectorRange, fill: Fill<'_>) -> Result<(), BlockError> {
        self.geometry.check_range(range)?;
        if range.sectors == 0 {
            return Ok(());
        }
        let mut chunks = self.chunks.write();
        for number in self.chunks_of(range) {
            let (part, within, behind) = self.part(number, range);
            let length = part.bytes().0 as usize;
            if part == self.range_of(number) {
                // Nothing of what it held is left, so that it is neither read nor copied.
                let chunk: Arc<[u8]> = match fill {
                    Fill::Bytes(data) => Arc::from(&data[behind..behind + length]),
                    Fill::Zeroes => Arc::from(vec![0; length]),
                };
                chunks.insert(number, chunk);
                continue;
            }
            let chunk = match chunks.entry(number) {
                std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
                std::collections::btree_map::Entry::Vacant(entry) => entry.insert(self.unchanged(number)?),
            };
            let Some(target) = Arc::make_mut(chunk).get_mut(within..within + length) else { continue };
            match fill {
                Fill::Bytes(data) => target.copy_from_slice(&data[behind..behind + length]),
                Fill::Zeroes => target.fill(0),
            }
        }
        Ok(())
    }

    /// A chunk as it is below.
    fn unchanged(&self, number: u64) -> Result<Arc<[u8]>, BlockError> {
        let range = self.range_of(number);
        let mut chunk = vec![0; range.bytes().0 as usize];
        self.base.read(range.start, &mut chunk)?;
        Ok(Arc::from(chunk))
    }
}

impl BlockDevice for Overlay {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn read(&self, at: Lba, buffer: &mut [u8]) -> Result<(), BlockError> {
        let range = self.geometry.check(at, buffer.len())?;
        if range.sectors == 0 {
            return Ok(());
        }
        let chunks = self.chunks.read();
        let wanted = self.chunks_of(range);
        let mut unchanged = at;
        for (&number, chunk) in chunks.range(wanted) {
            let (part, within, behind) = self.part(number, range);
            let from = ((unchanged.0 - at.0) * SECTOR_BYTES) as usize;
            if from < behind {
                self.base.read(unchanged, &mut buffer[from..behind])?;
            }
            let length = part.bytes().0 as usize;
            buffer[behind..behind + length].copy_from_slice(&chunk[within..within + length]);
            unchanged = part.end();
        }
        let from = ((unchanged.0 - at.0) * SECTOR_BYTES) as usize;
        if from < buffer.len() { self.base.read(unchanged, &mut buffer[from..]) } else { Ok(()) }
    }

    fn write(&self, at: Lba, data: &[u8], _durability: Durability) -> Result<(), BlockError> {
        self.geometry.check(at, data.len())?;
        self.put(at, data)
    }

    fn flush(&self) -> Result<(), BlockError> {
        Ok(())
    }

    fn discard(&self, range: SectorRange) -> Result<(), BlockError> {
        self.geometry.check_range(range)
    }

    fn write_zeroes(&self, range: SectorRange, _zeroes: Zeroes, _durability: Durability) -> Result<(), BlockError> {
        self.clear(range)
    }
}
