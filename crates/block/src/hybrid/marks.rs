//! Marks in the log, which tell damage near its end from a write that a power cut has cut off.
//!
//! Each header carries two marks ([`Marks`]). The certain mark is the record up to which the log was durable when the
//! header was written. The promised mark is the record up to which it is durable once the flush under way is answered.
//!
//! - A flush writes a mark before it flushes the flash, unless the last record with data promises itself.
//! - A record promises itself if it was written with FUA, or if a flush can be expected. A flush can be expected if the
//!   record before it had already been flushed: a program that flushes each write will probably flush this one too. It
//!   can also be expected if the last two flushes came after the same number of records, and this record reaches that
//!   number.
//! - So a flush costs at most one more write of 4 KiB, and still one flush.
//! - No other record repeats a promise that a record made for an expected flush that did not come: no client was
//!   promised anything.
//! - Once the flush is answered, the next record carries the certain mark. If none comes within [`MARK_WITHIN`], the
//!   keeper writes a mark.
//!
//! Data always leaves room for both marks.

use std::time::{Duration, Instant};

use parking_lot::MutexGuard;
use umbrella_policy::flash_cache::LogSector;

use super::engine::{HybridShared, HybridState};
use super::format::{BLOCK, Header, Marks, RecordNo};
use crate::error::BlockError;

/// What records with data leave free in the log, in sectors: room for a promised and a certain mark.
pub(super) const ROOM_FOR_MARKS: u64 = 2 * BLOCK;
/// How long it takes at most until the log of an idle disk says that what was flushed last is durable.
const MARK_WITHIN: Duration = Duration::from_secs(1);

impl HybridState {
    /// The header of the next record, without its entries; `has_data` if there are any.
    pub(super) fn next_header(&mut self, sequence: RecordNo, at: LogSector, has_data: bool) -> Header {
        let follows = std::mem::take(&mut self.marks.flush_follows);
        let is_expected = has_data && !follows && (self.marks.last_data <= self.durable || self.marks.expects_flush());
        self.marks.expected = is_expected.then_some(sequence);
        let promised = if follows || is_expected { sequence } else { self.marks.promised };
        Header {
            flash: self.superblock.flash,
            epoch: self.superblock.epoch,
            sequence,
            at,
            marks: Marks { certain: self.durable, promised },
            entries: Vec::new(),
            before: self.marks.addresses.take(),
        }
    }
}

impl HybridShared {
    /// Before a flush of the flash: the log says that what it has is durable once that is answered.
    pub(super) fn promise(&self, state: &mut MutexGuard<'_, HybridState>) -> Result<(), BlockError> {
        state.marks.flush_begins();
        if state.marks.expected == Some(state.marks.last_data) {
            state.marks.promised = state.marks.last_data;
        }
        while state.marks.promised < state.marks.last_data {
            if state.writing_record {
                self.committed_now.wait(state);
                self.refuse_if_poisoned(state)?;
                continue;
            }
            // Writes that wait for a record have room; they make it one. Without them only a log of an earlier program
            // is so full.
            if state.building.is_empty() && !state.log.has_room(BLOCK) {
                break;
            }
            state.marks.flush_follows = true;
            self.write_record(state)?;
        }
        Ok(())
    }

    /// After a flush: the log has to record that it was answered.
    pub(super) fn schedule_mark(&self, state: &mut HybridState) {
        if state.kept && state.marks.due_at(state.durable).is_none() {
            state.marks.note_at = Some(Instant::now() + MARK_WITHIN);
            self.keeper.notify_all();
        }
    }

    /// Says that what was flushed last is durable, if no record has.
    pub(super) fn write_due_mark(&self, state: &mut MutexGuard<'_, HybridState>) {
        // A record that is on its way may have been begun before the flush was answered.
        state.marks.note_at = Some(Instant::now() + MARK_WITHIN);
        if !state.writing_record && (!state.building.is_empty() || state.log.has_room(BLOCK)) {
            // A failure poisons the disk, and is part of its status.
            let _ = self.write_record(state);
        }
    }
}
