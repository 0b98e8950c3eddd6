//! Reading and writing: what goes to the log, what to the disk.

use std::time::{Duration, Instant};

use parking_lot::MutexGuard;
use umbrella_policy::flash_cache::{Moment, WriteRoute};
use umbrella_units::{ByteSize, Lba, Nanos, SECTOR_BYTES, SectorRange};

use super::building::{Building, PendingWrite, WriteData};
use super::engine::{Hybrid, HybridShared, HybridState};
use super::error::HybridError;
use super::format::{BLOCK_BYTES, MOST_DATA};
use super::gather::{Cached, GatherError, gather};
use super::keeper::RETRY;
use super::marks::ROOM_FOR_MARKS;
use super::record::Record;
use super::stats::Motion;
use super::sums::sums_of;
use crate::device::{Allocation, BlockDevice, Durability, Geometry, Zeroes};
use crate::error::{BlockError, Operation};

/// The most sectors in one entry of zeroes, so that a drain of it is bounded: 1 TiB.
const MOST_ZEROES: u64 = (1 << 40) / SECTOR_BYTES;

/// The result of handing a piece to the log.
enum Joined {
    /// The piece is on flash once this many have been committed.
    Waiting(u64),
    /// The situation has changed; the piece may go elsewhere now.
    Again,
}

/// Whether a write was held back before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Throttled {
    No,
    Yes,
}

impl Throttled {
    /// Adds the time that this write was throttled. Counts each write once.
    fn count_throttled(&mut self, state: &mut HybridState, time: Duration) {
        state.counts.slowed += u64::from(*self == Throttled::No);
        state.counts.slowed_time += time;
        *self = Throttled::Yes;
    }
}

impl BlockDevice for Hybrid {
    fn geometry(&self) -> Geometry {
        self.shared.geometry()
    }

    fn read(&self, at: Lba, buffer: &mut [u8]) -> Result<(), BlockError> {
        let range = self.geometry().check(at, buffer.len())?;
        self.shared.read(range, buffer)
    }

    fn write(&self, at: Lba, data: &[u8], durability: Durability) -> Result<(), BlockError> {
        let range = self.geometry().check(at, data.len())?;
        self.shared.write(range, WriteData::Data(data), durability)
    }

    fn flush(&self) -> Result<(), BlockError> {
        self.shared.flush_all()
    }

    /// Only what the log has nothing of, and only while the disk spins: no disk is woken to be told what it need not
    /// know.
    fn discard(&self, range: SectorRange) -> Result<(), BlockError> {
        self.geometry().check_range(range)?;
        let mut state = self.shared.state.lock();
        self.shared.refuse_if_poisoned(&state)?;
        if state.disk != Motion::Spinning || state.log.map().overlaps(range) || state.lost.first_in(range).is_some() {
            return Ok(());
        }
        self.shared.run_on_disk(&mut state, range, || self.shared.disk.device.discard(range))
    }

    fn has_extents(&self) -> bool {
        self.shared.disk.device.has_extents()
    }

    fn first_extent(&self, range: SectorRange) -> Result<(SectorRange, Allocation), BlockError> {
        self.extent(range)
    }

    fn write_zeroes(&self, range: SectorRange, zeroes: Zeroes, durability: Durability) -> Result<(), BlockError> {
        self.geometry().check_range(range)?;
        self.shared.write(range, WriteData::Zeroes(zeroes), durability)
    }
}

impl HybridShared {
    fn write(&self, range: SectorRange, payload: WriteData<'_>, durability: Durability) -> Result<(), BlockError> {
        let most = match payload {
            WriteData::Data(_) => MOST_DATA,
            WriteData::Zeroes(_) => MOST_ZEROES,
        };
        let mut state = self.state.lock();
        self.touch(&mut state);
        state.counts.writes += 1;
        let (mut done, mut logged, mut held) = (0, false, Throttled::No);
        while done < range.sectors {
            self.refuse_if_poisoned(&state)?;
            let rest = SectorRange { start: Lba(range.start.0 + done), sectors: range.sectors - done };
            if state.disk == Motion::Stopping {
                self.spun.wait(&mut state);
                continue;
            }
            let mut part = SectorRange { sectors: rest.sectors.min(most), ..rest };
            let all_to_disk = self.bypasses_log(&state, rest);
            if all_to_disk || self.bypasses_log(&state, part) {
                part = if all_to_disk { rest } else { part };
                let payload = self.payload_of(payload, done, part.sectors)?;
                self.run_on_disk(&mut state, part, || self.write_to_disk(part, payload, durability))?;
                done += part.sectors;
                continue;
            }
            let payload = self.payload_of(payload, done, part.sectors)?;
            let piece = PendingWrite { range: part, payload };
            if let Joined::Waiting(number) = self.join(&mut state, &piece, &mut held)? {
                state.marks.flush_follows |= durability == Durability::Through;
                self.wait_for(&mut state, number)?;
                (done, logged) = (done + part.sectors, true);
                self.request_drain_if_due(&mut state, Moment::Logged);
                self.throttle(&mut state, part.sectors, &mut held);
            }
        }
        state.counts.writes_to_log += u64::from(logged);
        match durability {
            Durability::Through if logged => self.flush_log(&mut state),
            _ => Ok(()),
        }
    }

    /// The next `sectors` sectors of a write whose first `done` sectors are done.
    fn payload_of<'a>(&self, payload: WriteData<'a>, done: u64, sectors: u64) -> Result<WriteData<'a>, BlockError> {
        let WriteData::Data(data) = payload else { return Ok(payload) };
        let (from, to) = (done * SECTOR_BYTES, (done + sectors) * SECTOR_BYTES);
        let part = data.get(from as usize..to as usize);
        let defect =
            || BlockError::impossible(&self.flash.name, Operation::Write, "a write has less data than its range");
        part.map(WriteData::Data).ok_or_else(defect)
    }

    /// The log cannot be written as it should be: nothing more is.
    fn defect(&self, state: &mut HybridState, what: &'static str) -> BlockError {
        let error = BlockError::impossible(&self.flash.name, Operation::Write, what);
        self.poison(state, &self.flash, Operation::Write, &error);
        error
    }

    /// Whether a write goes straight to the disk. It does not while a write to the same sectors is on its way into the
    /// log. Of two writes at the same time either may win, but the winner must not change later.
    fn bypasses_log(&self, state: &HybridState, range: SectorRange) -> bool {
        state.disk == Motion::Spinning
            && state.log.route(range, true) == WriteRoute::Disk
            && state.lost.first_in(range).is_none()
            && !state.pending.iter().any(|(_, other)| other.overlaps(range))
    }

    fn write_to_disk(
        &self,
        range: SectorRange,
        payload: WriteData<'_>,
        durability: Durability,
    ) -> Result<(), BlockError> {
        match payload {
            WriteData::Data(data) => self.disk.device.write(range.start, data, durability),
            WriteData::Zeroes(zeroes) => self.disk.device.write_zeroes(range, zeroes, durability),
        }
    }

    /// Runs a call that changes the disk directly while it spins. Overlapping writes wait before they go to the log.
    fn run_on_disk(
        &self,
        state: &mut MutexGuard<'_, HybridState>,
        range: SectorRange,
        call: impl FnOnce() -> Result<(), BlockError>,
    ) -> Result<(), BlockError> {
        state.disk_needed();
        state.direct_writes.push(range);
        let done = self.forget_head(state, range).and_then(|()| MutexGuard::unlocked(state, call));
        if let Some(place) = state.direct_writes.iter().position(|other| *other == range) {
            state.direct_writes.swap_remove(place);
        }
        state.disk_done();
        state.direct_done += 1;
        self.room.notify_all();
        done
    }

    /// Adds a piece to the record under construction, as soon as the log has room.
    fn join(
        &self,
        state: &mut MutexGuard<'_, HybridState>,
        piece: &PendingWrite<'_>,
        held: &mut Throttled,
    ) -> Result<Joined, BlockError> {
        // The lock was released since the last check, and nothing wakes a writer that begins to wait now.
        self.refuse_if_poisoned(state)?;
        if state.disk == Motion::Stopping || self.bypasses_log(state, piece.range) {
            return Ok(Joined::Again);
        }
        // While an older write to the same sectors is on its way to the disk, this one must not be drained before it
        // arrives.
        if state.direct_writes.iter().any(|other| other.overlaps(piece.range)) {
            self.room.wait(state);
            return Ok(Joined::Again);
        }
        if state.lost.is_too_long_without(piece.range, state.pending.len()) {
            let error = HybridError::LostInPieces { flash: self.flash.name.clone(), range: piece.range };
            return Err(error.on(&self.flash, Operation::Write));
        }
        if !state.building.fits(piece) {
            self.write_record_or_wait(state)?;
            return Ok(Joined::Again);
        }
        if !state.log.has_room(state.building.sectors_with(piece.data()) + ROOM_FOR_MARKS) {
            self.wait_for_room(state, piece.range, held)?;
            return Ok(Joined::Again);
        }
        state.building.add(piece);
        state.joined += 1;
        let number = state.joined;
        state.pending.push_back((number, piece.range));
        Ok(Joined::Waiting(number))
    }

    /// The log is full: it is drained, by the keeper or, where there is none, here. If that fails, what the log has
    /// nothing of goes to the disk.
    fn wait_for_room(
        &self,
        state: &mut MutexGuard<'_, HybridState>,
        range: SectorRange,
        held: &mut Throttled,
    ) -> Result<(), BlockError> {
        if !state.building.is_empty() {
            return self.write_record_or_wait(state);
        }
        let begun = Instant::now();
        self.request_drain_if_due(state, Moment::Full);
        let mut failure = None;
        if !state.kept && !state.draining {
            failure = MutexGuard::unlocked(state, || self.drain()).err();
        } else if let Some((at, error)) = &state.drain_failure
            && at.elapsed() < RETRY
        {
            failure = Some(error.clone());
            self.wake(state)?;
        } else {
            self.room.wait(state);
        }
        held.count_throttled(state, begun.elapsed());
        match failure.filter(|_| !self.bypasses_log(state, range)) {
            Some(error) => Err(error.on(&self.disk, Operation::Write)),
            None => Ok(()),
        }
    }

    fn write_record_or_wait(&self, state: &mut MutexGuard<'_, HybridState>) -> Result<(), BlockError> {
        if state.writing_record {
            self.committed_now.wait(state);
            return self.refuse_if_poisoned(state);
        }
        self.write_record(state)
    }

    /// Returns when the piece of that number is on flash.
    fn wait_for(&self, state: &mut MutexGuard<'_, HybridState>, number: u64) -> Result<(), BlockError> {
        while state.committed < number {
            self.refuse_if_poisoned(state)?;
            if state.writing_record {
                self.committed_now.wait(state);
            } else {
                self.write_record(state)?;
            }
        }
        Ok(())
    }

    /// Writes the record that has been put together; one without writes is a mark.
    pub(super) fn write_record(&self, state: &mut MutexGuard<'_, HybridState>) -> Result<(), BlockError> {
        self.refuse_if_poisoned(state)?;
        let spare = std::mem::take(&mut state.spare);
        let building = std::mem::replace(&mut state.building, Building::reuse(spare));
        let (through, sequence) = (state.joined, state.next_sequence);
        let Some(at) = state.log.reserve(building.sectors_with(0)) else {
            // Room was made sure of when each piece joined, and only the leader takes any.
            return Err(self.defect(state, "the log has no room for a record that was promised room"));
        };
        state.next_sequence = sequence.next();
        state.writing_record = true;
        let place = self.on_flash(state, at);
        let header = state.next_header(sequence, at, !building.is_empty());
        let finished = MutexGuard::unlocked(state, || {
            let (header, bytes) = building.finish(header)?;
            let sums = sums_of(&header, bytes.get(BLOCK_BYTES..)?);
            let written = self.flash.device.write(place, &bytes, Durability::Cached);
            Some((header, bytes, sums, written))
        });
        state.writing_record = false;
        let Some((header, bytes, sums, written)) = finished else {
            return Err(self.defect(state, "a record has less data than its writes"));
        };
        if let Err(error) = written {
            self.poison(state, &self.flash, Operation::Write, &error);
            return Err(error);
        }
        state.log.commit(header.end(), header.logged());
        state.sums.push(at, &sums);
        state.records.push_back(Record { begin: at, end: header.end(), sequence, epoch: header.epoch });
        state.flash_written += bytes.len() as u64;
        state.counts.records += u64::from(!header.is_mark());
        state.marks.written(&header);
        state.lost.record_written(&header);
        state.committed = through;
        while state.pending.front().is_some_and(|(number, _)| *number <= through) {
            state.pending.pop_front();
        }
        state.spare = bytes;
        self.committed_now.notify_all();
        Ok(())
    }

    /// Delays writers while the log fills up although it is being drained.
    fn throttle(&self, state: &mut MutexGuard<'_, HybridState>, sectors: u64, held: &mut Throttled) {
        if !state.draining {
            return;
        }
        let size = ByteSize(sectors * SECTOR_BYTES);
        let delay = self.options.write_delay(state.log.fill(), state.until_freed, size, state.drain_rate);
        if delay > Nanos(0) {
            let delay = Duration::from_nanos(delay.0);
            held.count_throttled(state, delay);
            MutexGuard::unlocked(state, || std::thread::sleep(delay));
        }
    }

    fn read(&self, range: SectorRange, buffer: &mut [u8]) -> Result<(), BlockError> {
        let mut state = self.state.lock();
        self.touch(&mut state);
        state.counts.reads += 1;
        let mut woke = false;
        loop {
            if let Some(lost) = state.lost.first_in(range) {
                let error = HybridError::Lost { flash: self.flash.name.clone(), range: lost };
                return Err(error.on(&self.flash, Operation::Read));
            }
            let cached = Cached::of(state.log.map(), &state.sums, range);
            let from_disk = cached.sectors() < range.sectors;
            if from_disk && state.disk != Motion::Spinning {
                woke |= state.disk == Motion::Asleep;
                self.wake(&mut state)?;
                continue;
            }
            if from_disk {
                state.disk_needed();
                state.direct_reads += 1;
            }
            let size = state.log.size();
            let read =
                MutexGuard::unlocked(&mut state, || gather(&self.disk, &self.flash, size, range, &cached, buffer));
            if from_disk {
                state.direct_reads -= 1;
                state.disk_done();
                if state.disk == Motion::Stopping {
                    self.room.notify_all();
                }
            }
            // What was drained meanwhile may have been overwritten before it was read.
            let oldest = cached.pieces.iter().map(|piece| piece.source.at()).min();
            if oldest.is_some_and(|oldest| oldest < state.log.tail()) {
                continue;
            }
            state.counts.reads_from_log += u64::from(!from_disk);
            state.counts.reads_that_woke += u64::from(woke);
            return read.map_err(|failed| self.read_error(&mut state, failed));
        }
    }

    /// The error for sectors that could not be read.
    fn read_error(&self, state: &mut HybridState, failed: GatherError) -> BlockError {
        let is_damaged = matches!(failed, GatherError::Damaged(_));
        let error = failed.error(&self.flash);
        if is_damaged {
            state.counts.damaged_reads += 1;
            tracing::error!(flash = self.flash.name, %error, "damage of the flash");
        }
        error
    }
}
