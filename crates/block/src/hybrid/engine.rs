//! The engine's state, and its locks and condition variables.
//!
//! One lock holds all state; no call to a device is made under it. Threads wait on one of four condition variables:
//! `committed` (a record is on flash), `room` (the log, or the range, is free), `spun` (the disk has started or
//! stopped), `keeper`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use umbrella_policy::flash_cache::{DrainRate, Log, LogSector, Moment, Options};
use umbrella_policy::spin_down::SpinDown;
use umbrella_units::{ByteSize, Lba, Nanos, SECTOR_BYTES, SectorRange};

use super::building::Building;
use super::error::HybridError;
use super::fillers::{restore_torn, write_fillers};
use super::format::{BLOCK_BYTES, FlashSuperblock, LOG_START, RecordNo, VERSION};
use super::half::PairHalf;
use super::log_marks::LogMarks;
use super::losses::Losses;
use super::lost_sectors::LostSectors;
use super::pair;
use super::ranges::joined;
use super::record::Record;
use super::recover::recover;
use super::stats::{HybridStats, Motion};
use super::sums::LogChecksums;
use crate::device::Geometry;
use crate::error::{BlockError, Operation};
use crate::spindle::Spindle;

/// Counts of events since the opening.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct HybridCounts {
    pub(super) reads: u64,
    pub(super) reads_from_log: u64,
    pub(super) reads_that_woke: u64,
    pub(super) writes: u64,
    pub(super) writes_to_log: u64,
    pub(super) records: u64,
    pub(super) flushes: u64,
    pub(super) spin_ups: u64,
    pub(super) spin_downs: u64,
    pub(super) asleep: Duration,
    pub(super) drains: u64,
    pub(super) drained: u64,
    pub(super) drain_time: Duration,
    pub(super) damaged_reads: u64,
    pub(super) slowed: u64,
    pub(super) slowed_time: Duration,
}

#[expect(clippy::struct_excessive_bools, reason = "they are independent of each other")]
pub(super) struct HybridState {
    pub(super) log: Log,
    /// The checksums of its contents.
    pub(super) sums: LogChecksums,
    /// Sectors that cannot be read until they are written again.
    pub(super) lost: LostSectors,
    pub(super) records: VecDeque<Record>,
    /// As it was written last.
    pub(super) superblock: FlashSuperblock,
    /// Bytes ever written to the flash.
    pub(super) flash_written: u64,
    pub(super) next_sequence: RecordNo,
    /// Records up to this one are durable.
    pub(super) durable: RecordNo,
    /// How much of that the log says itself.
    pub(super) marks: LogMarks,

    pub(super) building: Building,
    pub(super) spare: Vec<u8>,
    /// Writes that joined a record that is not on flash yet, with their numbers.
    pub(super) pending: VecDeque<(u64, SectorRange)>,
    /// Whether a thread writes a record.
    pub(super) writing_record: bool,
    /// Writes that joined a record, and those of them that are on flash.
    pub(super) joined: u64,
    pub(super) committed: u64,

    pub(super) disk: Motion,
    pub(super) slept_since: Option<Instant>,
    /// Whether it is not to be put to sleep.
    pub(super) held_awake: bool,
    /// Writes to the disk under way that did not come from the log.
    pub(super) direct_writes: Vec<SectorRange>,
    pub(super) direct_reads: u32,
    /// How many of those writes have ended, and how many had when the last flush of the disk began that went well.
    pub(super) direct_done: u64,
    pub(super) direct_flushed: u64,

    pub(super) draining: bool,
    pub(super) drain_wanted: bool,
    pub(super) stop_drain: bool,
    pub(super) drain_left: u64,
    /// Sectors that the drain has yet to write before it frees any, at most.
    pub(super) until_freed: u64,
    pub(super) drain_rate: DrainRate,
    pub(super) drain_failure: Option<(Instant, HybridError)>,
    pub(super) poisoned: Option<BlockError>,
    /// When the disk may sleep; nothing while it is in use.
    pub(super) spin_down: Option<SpinDown>,
    pub(super) sleep_at: Option<Instant>,
    pub(super) opened: Instant,
    /// Whether a keeper puts the disk to sleep and drains the log.
    pub(super) kept: bool,
    pub(super) closing: bool,
    /// The time of the last call.
    pub(super) last_access: Instant,
    pub(super) counts: HybridCounts,
}

pub(super) struct HybridShared {
    pub(super) disk: PairHalf,
    pub(super) flash: PairHalf,
    pub(super) spindle: Arc<dyn Spindle>,
    pub(super) options: Options,
    pub(super) state: Mutex<HybridState>,
    /// Held while the superblock is written; taken without the lock of the state.
    pub(super) label: Mutex<()>,
    pub(super) committed_now: Condvar,
    pub(super) room: Condvar,
    pub(super) spun: Condvar,
    pub(super) keeper: Condvar,
}

/// A disk with a flash log before it. Close it with [`Hybrid::close`]; what is dropped without is as after a crash, and
/// loses nothing.
pub struct Hybrid {
    pub(super) shared: Arc<HybridShared>,
    pub(super) keeper: Option<JoinHandle<()>>,
    perhaps_lost: Losses,
}

impl Hybrid {
    /// Opens a pair; the disk is awake then. With `spin_down` it is put to sleep and drained by itself, in a thread;
    /// without, when the caller says so.
    pub fn open(
        disk: PairHalf,
        flash: PairHalf,
        spindle: Arc<dyn Spindle>,
        options: Options,
        spin_down: Option<SpinDown>,
    ) -> Result<Hybrid, HybridError> {
        spindle.wake()?;
        let (disk, flash) = (disk.with_serialized_flushes(), flash.with_serialized_flushes());
        let labels = pair::read_labels(&disk, &flash)?;
        let old = labels.superblock.clone();
        let found = recover(&flash, &old)?;
        let perhaps_lost = found.perhaps_lost();
        if !(found.log.map().is_empty() && found.lost.is_empty()) {
            labels.refuse_changed_disk(&disk, &flash)?;
        }
        labels.refuse_records_of(found.end.epoch, &disk, &flash)?;
        // Nothing refuses the pair any more: an opening that is refused leaves the damage to be found again.
        restore_torn(&flash, &old)?;
        write_fillers(&flash, &old, &found.fillers)?;
        // What was just read may be in the flash's cache only: before anything says that it is durable, it has to be.
        flash.device.flush()?;
        log_upgrade(&flash, &old);
        let labels_written = pair::SUPERBLOCKS_AT_OPENING * pair::superblock_bytes(&*flash.device);
        let durable = found.end.next_sequence.before();
        let superblock = FlashSuperblock {
            generation: old.generation + 1,
            head: None,
            epoch: labels.tag.epoch.next(),
            durable,
            // A log that ends before what was durable is refused.
            unreported: durable.0.saturating_sub(old.last_reported().0),
            written: old.written.saturating_add(found.uncounted).saturating_add(labels_written),
            lost: found.lost,
            ..old
        };
        let superblock = pair::begin_epoch(&disk, &flash, superblock)?;
        let kept = spin_down.is_some();
        let last = superblock.durable;
        let mut state = HybridState {
            log: found.log,
            sums: found.sums,
            lost: LostSectors::new(superblock.lost.clone()),
            records: found.records,
            flash_written: superblock.written,
            superblock,
            next_sequence: last.next(),
            durable: last,
            marks: LogMarks::behind(last, found.addresses),
            building: Building::default(),
            spare: Vec::new(),
            pending: VecDeque::new(),
            writing_record: false,
            joined: 0,
            committed: 0,
            disk: Motion::Spinning,
            slept_since: None,
            held_awake: false,
            direct_writes: Vec::new(),
            direct_reads: 0,
            direct_done: 0,
            direct_flushed: 0,
            draining: false,
            drain_wanted: false,
            stop_drain: false,
            drain_left: 0,
            until_freed: 0,
            drain_rate: DrainRate::default(),
            drain_failure: None,
            poisoned: None,
            kept,
            spin_down,
            sleep_at: None,
            opened: Instant::now(),
            closing: false,
            last_access: Instant::now(),
            counts: HybridCounts::default(),
        };
        state.disk_done();
        // The disk has just been woken.
        state.drain_wanted = options.flushes(Moment::SpunUp, state.log.fill());
        let shared = Arc::new(HybridShared {
            disk,
            flash,
            spindle,
            options,
            state: Mutex::new(state),
            label: Mutex::new(()),
            committed_now: Condvar::new(),
            room: Condvar::new(),
            spun: Condvar::new(),
            keeper: Condvar::new(),
        });
        let keeper = if kept { Some(Arc::clone(&shared).start_keeper()?) } else { None };
        Ok(Hybrid { shared, keeper, perhaps_lost })
    }

    /// Wakes the disk, if it sleeps; returns when it spins.
    pub fn wake(&self) -> Result<(), HybridError> {
        let mut state = self.shared.state.lock();
        Ok(self.shared.wake(&mut state)?)
    }

    /// Puts the disk to sleep, unless it is being drained. What was written to it is flushed before.
    pub fn sleep(&self) -> Result<(), HybridError> {
        self.shared.sleep()
    }

    /// Keeps the disk awake, for a drain after which the disk stays in use.
    pub fn keep_awake(&self) {
        self.shared.state.lock().held_awake = true;
    }

    /// Ends [`Hybrid::keep_awake`].
    pub fn allow_sleep(&self) {
        self.shared.state.lock().held_awake = false;
        self.shared.keeper.notify_all();
    }

    /// Ends the drain under way after the chunk that it is at, if there is one; that drain returns
    /// [`HybridError::Stopped`]. What it has not brought to the disk stays in the log.
    pub fn stop_drain(&self) {
        let mut state = self.shared.state.lock();
        state.stop_drain = state.draining;
        self.shared.keeper.notify_all();
    }

    /// Brings all that the log has to the disk.
    pub fn drain(&self) -> Result<(), HybridError> {
        self.shared.drain()
    }

    /// Closes the pair: stops the keeper, makes all writes durable, and notes that in the superblock. So the next
    /// opening does not mistake later damage for a write that was cut off, and recognises a disk that was changed. Data
    /// in the log stays there for the next opening.
    pub fn close(mut self) -> Result<(), HybridError> {
        self.stop_keeper();
        self.shared.flush_all()?;
        let mut state = self.shared.state.lock();
        if !(state.log.map().is_empty() && state.lost.ranges().is_empty()) {
            self.shared.note_head(&mut state)?;
        }
        self.shared.write_label(&mut state, Some)
    }

    /// Ends it: all that the log has goes to the disk, and the disk says so. It can be used without the flash from then
    /// on, and the two still belong together.
    ///
    /// Where sectors are lost the disk does not say so: alone it would show what was there before. Returns them.
    pub fn detach(mut self) -> Result<Vec<SectorRange>, HybridError> {
        let superblock = self.empty()?;
        if superblock.lost.is_empty() {
            pair::note_empty(&self.shared.disk, &superblock)?;
        }
        Ok(superblock.lost)
    }

    /// Ends the pair: writes all data of the log to the disk, which is a plain disk afterwards.
    pub fn dissolve(mut self) -> Result<(), HybridError> {
        let superblock = self.empty()?;
        pair::part(&self.shared.disk, &self.shared.flash, &superblock)
    }

    /// Drains everything to the disk and makes it durable. The disk must be awake, and no write may be under way.
    fn empty(&mut self) -> Result<FlashSuperblock, HybridError> {
        self.stop_keeper();
        self.shared.drain()?;
        self.shared.flush_all()?;
        let mut state = self.shared.state.lock();
        self.shared.refuse_if_poisoned(&state)?;
        self.shared.wake(&mut state)?;
        self.shared.write_label(&mut state, Some)?;
        Ok(state.superblock.clone())
    }

    /// What would be lost without the flash: the sectors whose newest data is only in the log, in order, joined.
    pub fn at_risk(&self) -> Vec<SectorRange> {
        let state = self.shared.state.lock();
        joined(state.log.map().pieces_from(Lba(0)).map(|piece| piece.range))
    }

    /// What damage has taken: these sectors cannot be read until they are written again.
    pub fn lost(&self) -> Vec<SectorRange> {
        self.shared.state.lock().lost.ranges().to_vec()
    }

    /// What damaged records held that were skipped at the opening: it is lost if the last flush before was answered,
    /// which is not known.
    pub fn perhaps_lost(&self) -> &Losses {
        &self.perhaps_lost
    }

    /// Its counters and its state.
    pub fn stats(&self) -> HybridStats {
        let state = self.shared.state.lock();
        let bytes = |sectors: u64| ByteSize(sectors * SECTOR_BYTES);
        let nanos = |time: Duration| Nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        let asleep_now = state.slept_since.map_or(Duration::ZERO, |since| since.elapsed());
        let counts = &state.counts;
        HybridStats {
            disk: state.disk,
            log_used: bytes(state.log.used()),
            log_size: bytes(state.log.size()),
            cached: bytes(state.log.map().sectors()),
            cached_zeroes: bytes(state.log.map().zeroes()),
            flash_written: ByteSize(state.flash_written),
            log_laps: state.log.laps(),
            reads: counts.reads,
            reads_from_log: counts.reads_from_log,
            reads_that_woke: counts.reads_that_woke,
            writes: counts.writes,
            writes_to_log: counts.writes_to_log,
            records: counts.records,
            flushes: counts.flushes,
            spin_ups: counts.spin_ups,
            spin_downs: counts.spin_downs,
            asleep: nanos(counts.asleep + asleep_now),
            draining: state.draining,
            drains: counts.drains,
            drained: ByteSize(counts.drained),
            drain_time: nanos(counts.drain_time),
            drain_left: bytes(state.drain_left),
            damaged_reads: counts.damaged_reads,
            slowed: counts.slowed,
            slowed_time: nanos(counts.slowed_time),
            refuses_writes: state.poisoned.as_ref().map(ToString::to_string),
            drain_failure: state.drain_failure.as_ref().map(|(_, error)| error.to_string()),
        }
    }

    fn stop_keeper(&mut self) {
        self.shared.state.lock().closing = true;
        self.shared.keeper.notify_all();
        if let Some(keeper) = self.keeper.take()
            && keeper.join().is_err()
        {
            tracing::error!("the thread that puts the disk to sleep has panicked");
        }
        self.shared.state.lock().kept = false;
    }
}

/// Logs that the labels are written in a newer version.
fn log_upgrade(flash: &PairHalf, old: &FlashSuperblock) {
    if old.version < VERSION {
        tracing::info!(
            flash = flash.name,
            from = old.version,
            to = VERSION,
            "upgrading the pair to a newer format; earlier versions of this program can no longer read it"
        );
    }
}

impl Drop for Hybrid {
    fn drop(&mut self) {
        self.stop_keeper();
    }
}

impl HybridShared {
    /// What the hybrid disk looks like from above.
    pub(super) fn geometry(&self) -> Geometry {
        let (disk, flash) = (self.disk.device.geometry(), self.flash.device.geometry());
        Geometry {
            capacity: pair::offered(disk.capacity),
            logical_block: disk.logical_block,
            physical_block: disk.physical_block.max(BLOCK_BYTES as u32),
            rotational: disk.rotational,
            queue_depth: disk.queue_depth.max(flash.queue_depth).max(2),
        }
    }

    /// Where a place of the log is on flash.
    pub(super) fn on_flash(&self, state: &HybridState, at: LogSector) -> Lba {
        Lba(LOG_START.0 + at.0 % state.log.size())
    }

    pub(super) fn refuse_if_poisoned(&self, state: &HybridState) -> Result<(), BlockError> {
        match &state.poisoned {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    /// Refuses all later writes, because after the failure it is unknown what is durable.
    pub(super) fn poison(&self, state: &mut HybridState, half: &PairHalf, operation: Operation, error: &BlockError) {
        if state.poisoned.is_none() {
            tracing::error!(device = half.name, %operation, %error, "the hybrid disk refuses writes from now on");
            state.poisoned = Some(BlockError::poison(&half.name, operation, error));
        }
        self.committed_now.notify_all();
        self.room.notify_all();
    }

    /// Notes the time of a call.
    pub(super) fn touch(&self, state: &mut HybridState) {
        state.last_access = Instant::now();
    }

    /// Requests a drain if the policy wants one now.
    pub(super) fn request_drain_if_due(&self, state: &mut HybridState, moment: Moment) {
        if self.options.flushes(moment, state.log.fill()) && !state.draining {
            state.drain_wanted = true;
            self.keeper.notify_all();
        }
    }

    /// Makes all writes that have returned durable, in the log and on the disk.
    pub(super) fn flush_all(&self) -> Result<(), BlockError> {
        let mut state = self.state.lock();
        self.refuse_if_poisoned(&state)?;
        state.counts.flushes += 1;
        self.flush_log(&mut state)?;
        let done = state.direct_done;
        if done > state.direct_flushed {
            // As a read: the disk does not fall asleep meanwhile. If it is about to, it flushes by itself.
            while matches!(state.disk, Motion::Stopping | Motion::Starting) {
                self.spun.wait(&mut state);
            }
            if state.disk == Motion::Spinning {
                state.disk_needed();
                state.direct_reads += 1;
                let flushed = MutexGuard::unlocked(&mut state, || self.disk.device.flush());
                state.direct_reads -= 1;
                state.disk_done();
                self.room.notify_all();
                match &flushed {
                    Ok(()) => state.direct_flushed = state.direct_flushed.max(done),
                    Err(error) => self.poison(&mut state, &self.disk, Operation::Flush, error),
                }
                flushed?;
            }
        }
        self.refuse_if_poisoned(&state)
    }

    /// Makes all records that are on flash durable.
    pub(super) fn flush_log(&self, state: &mut MutexGuard<'_, HybridState>) -> Result<(), BlockError> {
        if state.marks.last_data <= state.durable {
            return Ok(());
        }
        self.promise(state)?;
        self.flush_records(state)
    }

    /// The same, where the superblock that says so is written next.
    pub(super) fn flush_records(&self, state: &mut MutexGuard<'_, HybridState>) -> Result<(), BlockError> {
        if state.marks.last_data <= state.durable {
            return Ok(());
        }
        let last = state.records.back().map_or(RecordNo(0), |record| record.sequence);
        let flushed = MutexGuard::unlocked(state, || self.flash.device.flush());
        match &flushed {
            Ok(()) => {
                state.durable = state.durable.max(last);
                self.schedule_mark(state);
            }
            Err(error) => self.poison(state, &self.flash, Operation::Flush, error),
        }
        flushed
    }
}
