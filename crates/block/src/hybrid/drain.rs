//! Bringing the log to the disk: the steps 1 to 7 at the head of [`super`].
//!
//! A block of the log that is damaged stops no drain: its sectors are lost (`lose`), and all others go to the disk. One
//! that the flash fails to read may be read later: all others go to the disk, but the log keeps everything, and the
//! drain fails.
//!
//! With two buffers, a second thread fills one from flash while this one writes the other to the disk. While others
//! want the disk too, draining rests after each write, so that it takes its share of the time and no more; a full log
//! takes all.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use parking_lot::MutexGuard;
use umbrella_policy::flash_cache::{
    CachedExtent, DiskWrite, FlushChunk, FlushPlanner, LogSector, MOST_WRITE, MOST_ZEROED_AT_ONCE, WriteSource, frees,
    pass_end,
};
use umbrella_units::{ByteSize, Lba, SECTOR_BYTES, SectorRange};

use super::engine::{HybridShared, HybridState};
use super::error::HybridError;
use super::format::{BLOCK_BYTES, DiskTag, FlashSuperblock, RecordNo};
use super::gather::{Cached, LeftOut, MOST_FAILED, copy_to_disk};
use super::keeper::nanos;
use super::pair;
use super::sums::{Unread, read_log};
use crate::device::{Durability, Zeroes};
use crate::error::{BlockError, Operation};

/// The smallest buffer, in blocks: a header and data.
const LEAST_BUFFER: u64 = 2;

/// A chunk, and what was read for it.
struct Filled {
    chunk: FlushChunk,
    buffer: Vec<u8>,
    /// Whether all of it is what was written.
    is_whole: bool,
}

/// Blocks that the flash fails to read, so that the log cannot be freed.
#[derive(Debug, Default)]
struct UnreadableBlocks {
    first: Option<HybridError>,
    count: usize,
}

impl HybridShared {
    /// Brings to the disk what the log has now.
    pub(super) fn drain(&self) -> Result<(), HybridError> {
        let mut state = self.state.lock();
        while state.draining {
            self.room.wait(&mut state);
        }
        state.drain_wanted = false;
        if state.log.used() == 0 {
            return Ok(());
        }
        self.refuse_if_poisoned(&state)?;
        state.draining = true;
        let begun = Instant::now();
        let drained = self.drain_chunks(&mut state);
        state.draining = false;
        state.stop_drain = false;
        state.drain_left = 0;
        state.counts.drain_time += begun.elapsed();
        match &drained {
            Ok(()) => {
                state.counts.drains += 1;
                state.drain_failure = None;
            }
            Err(HybridError::Closed | HybridError::Stopped) => {}
            Err(error) => {
                tracing::error!(%error, "cannot write the data on the flash to the disk; it stays on the flash");
                state.drain_failure = Some((Instant::now(), error.clone()));
            }
        }
        self.room.notify_all();
        self.keeper.notify_all();
        drained
    }

    fn drain_chunks(&self, state: &mut MutexGuard<'_, HybridState>) -> Result<(), HybridError> {
        self.wake(state)?;
        let head = pair::head_range(&self.disk);
        if state.log.map().overlaps(head) {
            self.forget_head(state, head)?;
        }
        let end = state.log.committed();
        state.drain_left = state.log.map().sectors();
        while state.log.tail() < end {
            self.drain_pass(state, end)?;
        }
        Ok(())
    }

    /// Brings the oldest part of the log to the disk, and frees it: a large log is not full all the time that draining
    /// it takes.
    fn drain_pass(&self, state: &mut MutexGuard<'_, HybridState>, end: LogSector) -> Result<(), HybridError> {
        let until = end.min(pass_end(&state.log));
        let planner = FlushPlanner::new(self.options.algorithm, self.memory(), &state.log).up_to(until, &state.log);
        let until = planner.until();
        state.until_freed = self.options.until_freed(&state.log, until);
        let buffers = self.options.algorithm.buffers();
        MutexGuard::unlocked(state, || {
            let (filled, to_write) = sync_channel::<Filled>(0);
            let (emptied, to_fill) = sync_channel::<Vec<u8>>(buffers as usize);
            for _ in 0..buffers {
                // The channel holds as many.
                let _ = emptied.send(Vec::new());
            }
            std::thread::scope(|scope| {
                // Each side ends when the other has dropped its end of a channel.
                scope.spawn(move || self.fill(planner, &to_fill, &filled));
                let written = self.write_chunks(&to_write, &emptied, until);
                drop((to_write, emptied));
                written
            })
        })?;
        self.checkpoint(state, until)
    }

    /// Memory for the buffers: each a multiple of the format's block, so that a disk with such blocks can be written
    /// from it.
    fn memory(&self) -> ByteSize {
        let each = self.options.memory.0 / self.options.algorithm.buffers();
        let block = BLOCK_BYTES as u64;
        ByteSize((each / block).max(LEAST_BUFFER) * block * self.options.algorithm.buffers())
    }

    /// Reads chunk after chunk into the buffers that come.
    fn fill(&self, mut planner: FlushPlanner, to_fill: &Receiver<Vec<u8>>, filled: &SyncSender<Filled>) {
        for mut buffer in to_fill {
            let (chunk, sums, size) = {
                let state = self.state.lock();
                let Some(chunk) = planner.next_chunk(&state.log) else { return };
                let sums: Vec<_> = chunk.reads.iter().map(|read| state.sums.part(read.at, read.sectors)).collect();
                (chunk, sums, state.log.size())
            };
            let sectors = chunk.reads.iter().map(|read| read.buffer + read.sectors).max().unwrap_or(0);
            buffer.resize((sectors * SECTOR_BYTES) as usize, 0);
            let mut is_whole = true;
            for (read, sums) in chunk.reads.iter().zip(&sums) {
                let bytes = buffer.get_mut(span(read.buffer, read.sectors));
                is_whole &= bytes.is_some_and(|bytes| read_log(&self.flash, read.at, size, sums, bytes).is_ok());
            }
            if filled.send(Filled { chunk, buffer, is_whole }).is_err() {
                return;
            }
        }
    }

    fn write_chunks(
        &self,
        to_write: &Receiver<Filled>,
        emptied: &SyncSender<Vec<u8>>,
        until: LogSector,
    ) -> Result<(), HybridError> {
        let mut failed = UnreadableBlocks::default();
        for Filled { chunk, buffer, is_whole } in to_write {
            for write in &chunk.writes {
                if is_whole {
                    self.write_out(write, &buffer)?;
                } else {
                    self.write_newest(write.range, &mut failed)?;
                }
            }
            let mut state = self.state.lock();
            if state.closing && state.kept {
                return Err(HybridError::Closed);
            }
            if state.stop_drain {
                return Err(HybridError::Stopped);
            }
            if let Some(done) = chunk.done.filter(|done| failed.count == 0 && frees(&state.log, *done)) {
                self.checkpoint(&mut state, done)?;
                state.until_freed = self.options.until_freed(&state.log, until);
            }
            drop(state);
            // No thread takes it any more when all has been read.
            let _ = emptied.send(buffer);
        }
        failed.first.map_or(Ok(()), Err)
    }

    /// Where something is damaged: writes the newest that the log has of these sectors, which need not be what is
    /// damaged. If it is, it is lost.
    fn write_newest(&self, range: SectorRange, failed: &mut UnreadableBlocks) -> Result<(), HybridError> {
        let mut at = range.start;
        while at < range.end() {
            let part = SectorRange { start: at, sectors: (range.end().0 - at.0).min(MOST_WRITE) };
            let (cached, size) = {
                let state = self.state.lock();
                (Cached::of(state.log.map(), &state.sums, part), state.log.size())
            };
            let mut left_out = Vec::new();
            self.write_paced(part.sectors, || {
                left_out = copy_to_disk(&self.disk, &self.flash, size, &cached)?;
                Ok(())
            })?;
            for LeftOut { piece, why } in left_out {
                match why {
                    Unread::Damaged => self.drop_damaged(&piece)?,
                    Unread::Failed(source) => failed.note(HybridError::Unreadable {
                        flash: self.flash.name.clone(),
                        range: piece.range,
                        source,
                    })?,
                }
            }
            at = part.end();
        }
        Ok(())
    }

    /// Drops a damaged extent from the log, where nothing newer was written meanwhile. Fails if the superblock has no
    /// room to note the loss; then the extent stays in the log.
    fn drop_damaged(&self, damaged: &CachedExtent) -> Result<(), HybridError> {
        let mut state = self.state.lock();
        // The list covers durable records.
        self.flush_records(&mut state)?;
        let behind = |newest: &CachedExtent| damaged.source.at().0 + newest.range.start.0 - damaged.range.start.0;
        let newest = state.log.map().pieces(damaged.range);
        let lost: Vec<_> =
            newest.filter(|newest| newest.source.at().0 == behind(newest)).map(|newest| newest.range).collect();
        let state = &mut *state;
        let fits = state.lost.add(&lost, state.durable, &state.superblock.lost, state.pending.len());
        state.counts.damaged_reads += 1;
        let (flash, range) = (self.flash.name.clone(), damaged.range);
        if !fits {
            return Err(HybridError::Damaged { flash, range });
        }
        tracing::error!("{}", HybridError::Lost { flash, range });
        Ok(())
    }

    /// One write of the plan, in calls of bounded length.
    fn write_out(&self, write: &DiskWrite, buffer: &[u8]) -> Result<(), HybridError> {
        let mut at = write.range.start;
        let mut gathered = Vec::new();
        for part in &write.parts {
            match *part {
                WriteSource::Zeroes(sectors) => {
                    at = self.write_gathered(at, &mut gathered)?;
                    let mut left = sectors;
                    while left > 0 {
                        let range = SectorRange { start: at, sectors: left.min(MOST_ZEROED_AT_ONCE) };
                        self.write_paced(range.sectors, || {
                            self.disk.device.write_zeroes(range, Zeroes::Unmap, Durability::Cached)
                        })?;
                        (at, left) = (range.end(), left - range.sectors);
                    }
                }
                WriteSource::Buffer { from, sectors } => {
                    let bytes = buffer.get(span(from, sectors)).ok_or_else(|| {
                        let what = "the plan of a drain writes what it has not read";
                        BlockError::impossible(&self.flash.name, Operation::Read, what)
                    })?;
                    if write.parts.len() == 1 {
                        return self.write_bytes(at, bytes).map(|_| ());
                    }
                    gathered.extend_from_slice(bytes);
                }
            }
        }
        self.write_gathered(at, &mut gathered).map(|_| ())
    }

    fn write_gathered(&self, at: Lba, gathered: &mut Vec<u8>) -> Result<Lba, HybridError> {
        let end = self.write_bytes(at, gathered)?;
        gathered.clear();
        Ok(end)
    }

    fn write_bytes(&self, mut at: Lba, bytes: &[u8]) -> Result<Lba, HybridError> {
        for piece in bytes.chunks((MOST_WRITE * SECTOR_BYTES) as usize) {
            let sectors = piece.len() as u64 / SECTOR_BYTES;
            self.write_paced(sectors, || self.disk.device.write(at, piece, Durability::Cached))?;
            at = Lba(at.0 + sectors);
        }
        Ok(at)
    }

    /// Writes, and pauses if other requests wait for the disk.
    fn write_paced(&self, sectors: u64, write: impl FnOnce() -> Result<(), BlockError>) -> Result<(), HybridError> {
        let begun = Instant::now();
        write()?;
        let took = begun.elapsed();
        let mut state = self.state.lock();
        state.counts.drained += sectors * SECTOR_BYTES;
        state.drain_left = state.drain_left.saturating_sub(sectors);
        state.until_freed = state.until_freed.saturating_sub(sectors);
        let since_access = nanos(state.last_access.elapsed());
        let rest = self.options.rest(nanos(took), since_access, state.log.fill());
        state.drain_rate.observe(ByteSize(sectors * SECTOR_BYTES), nanos(took) + rest);
        // A close need not wait for it.
        self.pause_keeper(&mut state, Duration::from_nanos(rest.0));
        Ok(())
    }

    fn pause_keeper(&self, state: &mut MutexGuard<'_, HybridState>, rest: Duration) {
        let until = Instant::now() + rest;
        while !state.closing && !state.stop_drain && !self.keeper.wait_until(state, until).timed_out() {}
    }

    /// Steps 3 to 7 for what begins before `done` in the log.
    fn checkpoint(&self, state: &mut MutexGuard<'_, HybridState>, done: LogSector) -> Result<(), HybridError> {
        let direct_done = state.direct_done;
        let flushed = MutexGuard::unlocked(state, || self.disk.device.flush());
        if let Err(error) = flushed {
            self.poison(state, &self.disk, Operation::Flush, &error);
            return Err(error.into());
        }
        state.direct_flushed = state.direct_flushed.max(direct_done);
        self.flush_records(state)?;
        let finished = state.records.partition_point(|record| record.end <= done);
        let (tail, tail_sequence, tail_epoch) = match state.records.get(finished) {
            // `done` may lie in the middle of a record, or before the gap in front of one.
            Some(record) => (record.begin.min(done), record.sequence, record.epoch),
            None => (done, state.next_record_sequence(), state.superblock.epoch),
        };
        self.write_label(state, |last| Some(FlashSuperblock { tail, tail_sequence, tail_epoch, ..last }))?;
        let tag = DiskTag::of(&state.superblock);
        MutexGuard::unlocked(state, || pair::write_tag(&*self.disk.device, &tag))?;
        state.records.drain(..finished);
        state.log.release(tail);
        state.sums.release(tail);
        self.room.notify_all();
        Ok(())
    }
}

impl UnreadableBlocks {
    /// Counts one. An error if there are too many to continue.
    fn note(&mut self, error: HybridError) -> Result<(), HybridError> {
        let first = self.first.get_or_insert(error);
        self.count += 1;
        if self.count > MOST_FAILED { Err(first.clone()) } else { Ok(()) }
    }
}

impl HybridState {
    /// The number of the first record that is not in `records`.
    fn next_record_sequence(&self) -> RecordNo {
        let behind = if self.writing_record { self.next_sequence.before() } else { self.next_sequence };
        self.records.back().map_or(behind, |record| record.sequence.next())
    }
}

fn span(from: u64, sectors: u64) -> std::ops::Range<usize> {
    (from * SECTOR_BYTES) as usize..((from + sectors) * SECTOR_BYTES) as usize
}
