//! The superblock while the pair is open. It is written by one thread at a time, which changes what the last one wrote.
//!
//! It holds the beginning of the disk (`head`) while that is certain: from when the disk is put to sleep until the
//! first write that changes its beginning. A program that writes to the disk without its flash, for instance by
//! mounting it, changes that beginning. So the next opening notices it, after an orderly end as well as after a crash
//! of a sleeping disk.

use parking_lot::MutexGuard;
use umbrella_units::{SECTOR_BYTES, SectorRange};

use super::engine::{HybridShared, HybridState};
use super::error::HybridError;
use super::format::FlashSuperblock;
use super::pair::{self, superblock_bytes, write_superblock};
use crate::error::{BlockError, Operation};

impl HybridShared {
    /// Writes the superblock that `change` makes of the last one; nothing is written if it makes none. After a failure
    /// the disk refuses writes.
    pub(super) fn write_label(
        &self,
        state: &mut MutexGuard<'_, HybridState>,
        change: impl FnOnce(FlashSuperblock) -> Option<FlashSuperblock>,
    ) -> Result<(), HybridError> {
        MutexGuard::unlocked(state, || {
            let _turn = self.label.lock();
            let superblock = {
                let mut state = self.state.lock();
                let Some(mut superblock) = change(state.superblock.clone()) else { return Ok(()) };
                state.flash_written += superblock_bytes(&*self.flash.device);
                state.sign(&mut superblock);
                state.superblock.generation = superblock.generation;
                superblock
            };
            let written = write_superblock(&*self.flash.device, &superblock);
            let mut state = self.state.lock();
            match &written {
                Ok(()) => {
                    state.marks.superblock_written(superblock.durable);
                    state.lost.superblock_written(superblock.durable);
                    state.superblock = superblock;
                }
                Err(HybridError::Device(error)) => self.poison(&mut state, &self.flash, Operation::Write, error),
                Err(_) => {}
            }
            written
        })
    }

    /// Before a write to that range of the disk: if it changes how the disk begins, the superblock must not say so any
    /// more.
    pub(super) fn forget_head(
        &self,
        state: &mut MutexGuard<'_, HybridState>,
        range: SectorRange,
    ) -> Result<(), BlockError> {
        if state.superblock.head.is_none() || !range.overlaps(pair::head_range(&self.disk)) {
            return Ok(());
        }
        let forget = |last: FlashSuperblock| last.head.map(|_| FlashSuperblock { head: None, ..last });
        self.write_label(state, forget).map_err(|error| error.on(&self.flash, Operation::Write))
    }

    /// Says in the superblock how the disk begins. No other thread may write to the disk meanwhile, and all that was
    /// written to it is durable.
    pub(super) fn note_head(&self, state: &mut MutexGuard<'_, HybridState>) -> Result<(), HybridError> {
        if state.superblock.head.is_some() {
            return Ok(());
        }
        let head = MutexGuard::unlocked(state, || pair::head_of(&self.disk))?;
        self.write_label(state, |last| Some(FlashSuperblock { head: Some(head), ..last }))
    }
}

impl HybridState {
    /// Adds what every superblock says: what is durable, what is lost, and how much was written to flash up to there.
    /// The next opening adds the records behind that.
    fn sign(&self, superblock: &mut FlashSuperblock) {
        let behind = self.records.iter().rev().take_while(|record| record.sequence > self.durable);
        let sectors: u64 = behind.map(|record| record.end.0 - record.begin.0).sum();
        superblock.generation = self.superblock.generation + 1;
        superblock.durable = self.durable;
        superblock.lost = self.lost.listed(&self.superblock.lost, self.durable);
        superblock.written = self.flash_written.saturating_sub(sectors * SECTOR_BYTES);
    }
}
