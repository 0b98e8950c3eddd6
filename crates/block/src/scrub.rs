//! Scrubbing: all data that has a checksum is read and compared with it, so that damage is known while a backup still
//! has what it hit.
//!
//! Nothing is repaired: there is no second copy to repair it from. Writing a damaged block again mends it.

use serde::{Deserialize, Serialize};
use umbrella_units::{BLOCK_SECTORS, ByteSize, Lba, SECTOR_BYTES, SectorRange};
use uuid::Uuid;

use crate::error::BlockError;

/// Damaged ranges that a scrub names at most.
const MOST_RANGES: usize = 10_000;
/// Bytes that one step reads at most.
const STEP: usize = 256 << 10;

/// The id of a store or pair.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubId(pub Uuid);

/// A device that keeps checksums of its data.
pub trait Scrub: Send + Sync {
    /// Which store or pair it is.
    fn id(&self) -> ScrubId;

    /// How much has checksums now.
    fn checksummed(&self) -> ByteSize;

    /// Reads the first data at or behind a sector that has checksums, as much of it as the buffer holds (at least one
    /// block of 4 KiB), and compares it. The scrubbed range, and its result; `None` if there is no more. It does not
    /// count as an access of users.
    fn scrub(&self, from: Lba, buffer: &mut [u8]) -> Option<(SectorRange, Result<(), BlockError>)>;
}

/// How far a scrub is, and what it found. Can be kept, and gone on with later.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scrubbing {
    /// Where it continues.
    position: Lba,
    /// Up to here it goes block by block: something could not be read.
    #[serde(default)]
    suspect_until: Lba,
    /// Read so far.
    pub read: ByteSize,
    /// What could not be read or was not what had been written, in order.
    pub damaged: Vec<SectorRange>,
    /// More damaged ranges than are named.
    pub unnamed: u64,
}

impl Scrubbing {
    /// Reads the next part; how much that was, nothing at the end. What cannot be read as a whole is read block by
    /// block, in steps of their own.
    pub fn step(&mut self, device: &dyn Scrub, buffer: &mut Buffer) -> Option<ByteSize> {
        let is_suspect = self.position < self.suspect_until;
        let most = if is_suspect { (BLOCK_SECTORS * SECTOR_BYTES) as usize } else { STEP };
        let (range, read) = device.scrub(self.position, buffer.0.get_mut(..most)?)?;
        match read {
            Err(_) if range.sectors > BLOCK_SECTORS => {
                self.suspect_until = range.end();
                return Some(ByteSize(0));
            }
            Err(_) => self.note(range),
            Ok(()) => {}
        }
        self.position = range.end();
        let read = ByteSize(range.sectors * SECTOR_BYTES);
        self.read.0 += read.0;
        Some(read)
    }

    fn note(&mut self, range: SectorRange) {
        let has_room = self.damaged.len() < MOST_RANGES;
        match self.damaged.last_mut() {
            Some(last) if last.end() == range.start => last.sectors += range.sectors,
            _ if has_room => self.damaged.push(range),
            _ => self.unnamed += 1,
        }
    }
}

/// What a scrub reads into; one for all its steps.
pub struct Buffer(Vec<u8>);

impl Default for Buffer {
    fn default() -> Buffer {
        Buffer(vec![0; STEP])
    }
}
