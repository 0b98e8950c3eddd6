//! Fillers: headers that take the places of damaged records, so that the log continues behind them.
//!
//! The header of a damaged record may be whole, and then holds what a flush had promised. A filler is written over it.
//! If a power cut tore this write of 4 KiB, the promise and the whole parts of the record would be lost. So fillers are
//! written twice:
//! 1. Copies of them go to the double-write area in front of the log, with the generation of the superblock. The flash
//!    is flushed.
//! 2. They are written in place, and the flash is flushed. An opening that finds a header torn in place takes the copy,
//!    and writes it there before a superblock with another generation makes the copies invalid ([`restore_torn`]).
//!
//! An opening that is cut off has not reported what a filler replaces. The superblock records up to which record losses
//! were reported ([`FlashSuperblock::told`]). Fillers behind that are reported as if they were the damage itself
//! ([`super::recover`]).

use umbrella_units::Lba;

use super::format::{
    BLOCK, BLOCK_BYTES, FlashSuperblock, Header, LOG_START, MOST_COPIES, decode_copies, encode_copies,
};
use super::half::PairHalf;
use crate::device::Durability;
use crate::error::BlockError;

/// Where the double-write area begins: behind the superblocks.
const DOUBLE_WRITE: Lba = Lba(2 * BLOCK);

/// Puts fillers in the places of damaged records, durably. `superblock` is the one on flash.
pub(super) fn write_fillers(
    flash: &PairHalf,
    superblock: &FlashSuperblock,
    fillers: &[Header],
) -> Result<(), BlockError> {
    for fillers in fillers.chunks(MOST_COPIES) {
        flash.device.write(DOUBLE_WRITE, &encode_copies(superblock.generation, fillers), Durability::Cached)?;
        flash.device.flush()?;
        for filler in fillers {
            flash.device.write(place_of(filler, superblock), &filler.encode(), Durability::Cached)?;
        }
        flash.device.flush()?;
    }
    Ok(())
}

/// Writes the copies, durably, where a power cut has torn fillers. `superblock` is the one on flash.
pub(super) fn restore_torn(flash: &PairHalf, superblock: &FlashSuperblock) -> Result<(), BlockError> {
    let mut block = vec![0; BLOCK_BYTES];
    let copies = read_copies(flash, superblock);
    for copy in &copies {
        let place = place_of(copy, superblock);
        let is_whole = flash.device.read(place, &mut block).is_ok()
            && Header::decode(&block).is_ok_and(|header| header.flash == copy.flash && header.at == copy.at);
        if !is_whole {
            flash.device.write(place, &copy.encode(), Durability::Cached)?;
        }
    }
    if copies.is_empty() { Ok(()) } else { flash.device.flush() }
}

fn place_of(header: &Header, superblock: &FlashSuperblock) -> Lba {
    Lba(LOG_START.0 + header.at.0 % superblock.log_size)
}

/// The copies of fillers that may be torn in place. There are none if the area is not whole: it was being written then,
/// and nothing in place was.
pub(super) fn read_copies(flash: &PairHalf, superblock: &FlashSuperblock) -> Vec<Header> {
    let mut bytes = vec![0; (1 + MOST_COPIES) * BLOCK_BYTES];
    if flash.device.read(DOUBLE_WRITE, &mut bytes).is_err() {
        return Vec::new();
    }
    match decode_copies(&bytes) {
        Ok((generation, copies)) if generation == superblock.generation => copies,
        _ => Vec::new(),
    }
}
