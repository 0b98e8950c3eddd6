//! Reads sectors from where they are: pieces from the log, the rest from the disk.

use umbrella_policy::flash_cache::{LogSector, Piece, Source};
use umbrella_units::{Lba, SECTOR_BYTES, SectorRange};

use super::format::LOG_START;
use super::pair::Half;
use crate::error::BlockError;

/// Which half could not be read.
#[derive(Debug)]
pub(super) enum Failed {
    Flash(BlockError),
    Disk(BlockError),
}

impl Failed {
    pub(super) fn error(self) -> BlockError {
        match self {
            Failed::Flash(error) | Failed::Disk(error) => error,
        }
    }
}

/// Fills the buffer with `range`, of which the log has these pieces.
pub(super) fn gather(
    disk: &Half,
    flash: &Half,
    log_size: u64,
    range: SectorRange,
    pieces: &[Piece],
    buffer: &mut [u8],
) -> Result<(), Failed> {
    let mut rest = buffer;
    let mut at = range.start;
    for piece in pieces {
        let gap = SectorRange::between(at, piece.range.start);
        let (before, behind) = rest.split_at_mut((gap.sectors * SECTOR_BYTES) as usize);
        if !before.is_empty() {
            disk.device.read(at, before).map_err(Failed::Disk)?;
        }
        let (own, behind) = behind.split_at_mut((piece.range.sectors * SECTOR_BYTES) as usize);
        match piece.source {
            Source::Zeroes(_) => own.fill(0),
            Source::Log(from) => read_log(flash, from, log_size, own).map_err(Failed::Flash)?,
        }
        (rest, at) = (behind, piece.range.end());
    }
    if rest.is_empty() { Ok(()) } else { disk.device.read(at, rest).map_err(Failed::Disk) }
}

/// Reads from the log; flash with larger blocks is read in whole ones.
pub(super) fn read_log(flash: &Half, from: LogSector, log_size: u64, buffer: &mut [u8]) -> Result<(), BlockError> {
    let place = Lba(LOG_START.0 + from.0 % log_size);
    let block = u64::from(flash.device.geometry().logical_block) / SECTOR_BYTES;
    let sectors = buffer.len() as u64 / SECTOR_BYTES;
    let first = place.0 / block * block;
    let end = (place.0 + sectors).next_multiple_of(block);
    if first == place.0 && end == place.0 + sectors {
        return flash.device.read(place, buffer);
    }
    let mut whole = vec![0; ((end - first) * SECTOR_BYTES) as usize];
    flash.device.read(Lba(first), &mut whole)?;
    let skip = ((place.0 - first) * SECTOR_BYTES) as usize;
    if let Some(own) = whole.get(skip..skip + buffer.len()) {
        buffer.copy_from_slice(own);
    }
    Ok(())
}
