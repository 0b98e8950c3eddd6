//! Compares the data that only the flash has with its checksums. This neither wakes the disk nor keeps it awake.
//! Unreadable data is only reported, since no caller wants it.

use umbrella_policy::flash_cache::Source;
use umbrella_units::{ByteSize, Lba, SECTOR_BYTES, SectorRange};

use super::engine::Hybrid;
use super::gather::{Cached, gather};
use crate::error::BlockError;
use crate::scrub::{Scrub, ScrubId};

impl Scrub for Hybrid {
    fn id(&self) -> ScrubId {
        ScrubId(self.shared.state.lock().superblock.flash)
    }

    fn checksummed(&self) -> ByteSize {
        let stats = self.stats();
        ByteSize(stats.cached.0.saturating_sub(stats.cached_zeroes.0))
    }

    fn scrub(&self, from: Lba, buffer: &mut [u8]) -> Option<(SectorRange, Result<(), BlockError>)> {
        let shared = &self.shared;
        let most = buffer.len() as u64 / SECTOR_BYTES;
        let mut state = shared.state.lock();
        loop {
            let piece = state.log.map().pieces_from(from).find(|piece| matches!(piece.source, Source::Log(_)))?;
            let range = SectorRange { sectors: piece.range.sectors.min(most), ..piece.range };
            let cached = Cached::of(state.log.map(), &state.sums, range);
            let size = state.log.size();
            let part = buffer.get_mut(..(range.sectors * SECTOR_BYTES) as usize)?;
            let read = parking_lot::MutexGuard::unlocked(&mut state, || {
                gather(&shared.disk, &shared.flash, size, range, &cached, part)
            });
            // What was brought to the disk meanwhile may have been written over before it was read.
            if piece.source.at() < state.log.tail() {
                continue;
            }
            return Some((range, read.map_err(|failed| failed.error(&shared.flash))));
        }
    }
}
