//! Reads sectors from where they are: pieces from the log, the rest from the disk.

use smallvec::SmallVec;
use umbrella_policy::flash_cache::{CachedExtent, LogMap, LogSector, Source};
use umbrella_units::{Lba, SECTOR_BYTES, SectorRange};

use super::error::HybridError;
use super::format::BLOCK;
use super::half::Half;
use super::sums::{LogChecksums, Part, Unread, read_log};
use crate::device::{Durability, Zeroes};
use crate::error::{BlockError, Operation};

/// What could not be read.
#[derive(Debug)]
pub(super) enum GatherError {
    Flash(BlockError),
    Disk(BlockError),
    /// The flash does not give back what was written to it for these sectors of the disk.
    Damaged(SectorRange),
}

impl GatherError {
    pub(super) fn error(self, flash: &Half) -> BlockError {
        match self {
            GatherError::Flash(error) | GatherError::Disk(error) => error,
            GatherError::Damaged(range) => {
                HybridError::Damaged { flash: flash.name.clone(), range }.on(flash, Operation::Read)
            }
        }
    }

    fn of(piece: &CachedExtent, unread: Unread) -> GatherError {
        match unread {
            Unread::Failed(error) => GatherError::Flash(error),
            Unread::Damaged => GatherError::Damaged(piece.range),
        }
    }
}

/// What the log has of a range: pieces, each with the checksums of its place in the log.
pub(super) struct Cached {
    pub(super) pieces: SmallVec<[CachedExtent; 4]>,
    sums: SmallVec<[Part; 4]>,
}

impl Cached {
    pub(super) fn of(map: &LogMap, sums: &LogChecksums, range: SectorRange) -> Cached {
        let pieces: SmallVec<[CachedExtent; 4]> = map.pieces(range).collect();
        Cached { sums: sums.parts(&pieces), pieces }
    }

    pub(super) fn sectors(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.range.sectors).sum()
    }

    fn iter(&self) -> impl Iterator<Item = (&CachedExtent, &Part)> {
        self.pieces.iter().zip(&self.sums)
    }
}

/// Fills the buffer with `range`; the log has the parts in `cached`.
pub(super) fn gather(
    disk: &Half,
    flash: &Half,
    log_size: u64,
    range: SectorRange,
    cached: &Cached,
    buffer: &mut [u8],
) -> Result<(), GatherError> {
    let mut rest = buffer;
    let mut at = range.start;
    for (piece, sums) in cached.iter() {
        let gap = SectorRange::between(at, piece.range.start);
        let (before, behind) = rest.split_at_mut((gap.sectors * SECTOR_BYTES) as usize);
        if !before.is_empty() {
            disk.device.read(at, before).map_err(GatherError::Disk)?;
        }
        let (own, behind) = behind.split_at_mut((piece.range.sectors * SECTOR_BYTES) as usize);
        match piece.source {
            Source::Zeroes(_) => own.fill(0),
            Source::Log(from) => {
                read_log(flash, from, log_size, sums, own).map_err(|unread| GatherError::of(piece, unread))?;
            }
        }
        (rest, at) = (behind, piece.range.end());
    }
    if rest.is_empty() { Ok(()) } else { disk.device.read(at, rest).map_err(GatherError::Disk) }
}

/// The number of blocks that a copy skips because the flash fails to read them. It is limited because each read may
/// take long on flash that fails altogether.
pub(super) const MOST_FAILED: usize = 16;

/// A piece that was not copied to the disk, and why the log could not supply it.
#[derive(Debug)]
pub(super) struct LeftOut {
    pub(super) piece: CachedExtent,
    pub(super) why: Unread,
}

impl LeftOut {
    pub(super) fn error(self, flash: &Half) -> BlockError {
        GatherError::of(&self.piece, self.why).error(flash)
    }
}

/// Writes to the disk what the log has of a range. What the flash does not give back as it was written is left out,
/// block by block of the log, and returned.
pub(super) fn copy_to_disk(
    disk: &Half,
    flash: &Half,
    log_size: u64,
    cached: &Cached,
) -> Result<Vec<LeftOut>, BlockError> {
    let mut left_out = Vec::new();
    for (piece, sums) in cached.iter() {
        match piece.source {
            Source::Zeroes(_) => disk.device.write_zeroes(piece.range, Zeroes::Unmap, Durability::Cached)?,
            Source::Log(from) => copy_data(disk, flash, log_size, (piece, from, sums), &mut left_out)?,
        }
    }
    Ok(left_out)
}

fn copy_data(
    disk: &Half,
    flash: &Half,
    log_size: u64,
    (piece, from, sums): (&CachedExtent, LogSector, &Part),
    left_out: &mut Vec<LeftOut>,
) -> Result<(), BlockError> {
    let mut buffer = vec![0; piece.range.bytes().0 as usize];
    let why = match read_log(flash, from, log_size, sums, &mut buffer) {
        Ok(()) => return disk.device.write(piece.range.start, &buffer, Durability::Cached),
        Err(why) => why,
    };
    if sums.len() <= 1 {
        left_out.push(LeftOut { piece: *piece, why });
        let failed = left_out.iter().filter(|left| matches!(left.why, Unread::Failed(_))).count();
        return match left_out.pop_if(|_| failed > MOST_FAILED) {
            Some(left) => Err(left.error(flash)),
            None => Ok(()),
        };
    }
    (from.0 / BLOCK..).zip(sums).try_for_each(|(block, &sum)| {
        let (begin, end) = (from.0.max(block * BLOCK), (from.0 + piece.range.sectors).min((block + 1) * BLOCK));
        let start = Lba(piece.range.start.0 + begin - from.0);
        let from = LogSector(begin);
        let own = CachedExtent { range: SectorRange { start, sectors: end - begin }, source: Source::Log(from) };
        copy_data(disk, flash, log_size, (&own, from, &Part::from_slice(&[sum])), left_out)
    })
}
