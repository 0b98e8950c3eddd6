//! The store's state, its threads, and its condition variables.
//!
//! One lock holds all state; no call to the device is made under it. Two threads write complete chunks; the keeper
//! cleans and makes checkpoints. Threads wait on one of four condition variables: `writer` (a chunk is complete),
//! `written` (one is on the disk, or a flush has ended), `room` (segments are free), `keeper`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use umbrella_policy::flash_cache::Percent;
use umbrella_policy::log_layout::{
    BlockCost, CleanerPolicy, CleaningGoal, LogBlock, LogUsage, MapPage, PAGE_ENTRIES, SegmentNo, Victim,
};
use umbrella_units::{BLOCK_SECTORS, BlockNo, ByteSize, Lba, Nanos, PAGE_BYTES, Pages};

use super::core::{AfterCheckpoint, Blocked, Core};
use super::counts::StoreCounts;
use super::error::LogStoreError;
use super::format::{BLOCK_BYTES, CheckpointNo, Counters, Sequence};
use super::named::NamedDevice;
use crate::device::Geometry;
use crate::error::{BlockError, Operation};

/// How a store behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Which segment is cleaned.
    pub victim: Victim,
    /// The most memory for the map; what does not fit is read from the disk when it is needed.
    pub map_memory: ByteSize,
    /// The share of the disk's time, in hundredths, that cleaning takes while others want the disk and cleaning is not
    /// urgent.
    pub clean_share: u32,
    /// How long no request may have come before the store cleans ahead.
    pub quiet: Duration,
    /// The most log between two checkpoints, which is also the most that recovery reads.
    pub checkpoint_every: ByteSize,
    /// Whether threads write, clean and make checkpoints. Without threads, the callers do that work.
    pub threads: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            victim: Victim::default(),
            map_memory: ByteSize(256 << 20),
            clean_share: 30,
            quiet: Duration::from_secs(1),
            checkpoint_every: ByteSize(256 << 20),
            threads: true,
        }
    }
}

/// The number of complete chunks that may wait to be written before writers have to wait.
pub(super) const MOST_WAITING: usize = 4;
/// How many threads write chunks: two, so that the disk has its next request when it ends one.
const WRITERS: usize = 2;

#[expect(clippy::struct_excessive_bools, reason = "they are independent of each other")]
pub(super) struct StoreState {
    pub(super) core: Core,
    /// Chunks up to this one are durable.
    pub(super) flushed_until: Sequence,
    pub(super) flushing: bool,
    /// The last chunk whose durability was reported to users.
    pub(super) answered: Sequence,
    /// When that was.
    pub(super) answered_at: Instant,
    pub(super) poisoned: Option<BlockError>,
    pub(super) read_only: bool,
    /// Whether blocks are skipped if their place is unknown: they are lost then.
    pub(super) skips_lost: bool,
    /// Pages of the map that could not be read and not be rebuilt.
    pub(super) unread: BTreeSet<MapPage>,
    /// Whether a thread rebuilds pages of the map: nothing becomes free meanwhile.
    pub(super) repairing_map: bool,
    pub(super) closing: bool,
    /// Whether threads write and clean.
    pub(super) threads: bool,
    /// The area that has the last checkpoint.
    pub(super) area: usize,
    /// Its number.
    pub(super) noted: CheckpointNo,
    /// Grows whenever segments become free: what was read before may have been overwritten since.
    pub(super) freed: u64,
    /// Segments that could not be read, and are not cleaned.
    pub(super) damaged: Vec<SegmentNo>,
    /// Number of threads that wait for room.
    pub(super) wanted: u32,
    /// Set when there is no way to make room.
    pub(super) stuck: bool,
    /// How often something was done for room since users last wrote or discarded.
    pub(super) room_attempts: RoomAttempts,
    pub(super) last_access: Instant,
    /// How long the cleaner has left the disk to others, in all.
    pub(super) paused: Duration,
    /// Seconds that cleaning takes for a block that it gains, as it was lately.
    pub(super) block_cost: BlockCost,
    pub(super) throttle: WriteThrottle,
    pub(super) counts: StoreCounts,
}

/// Writes that are held back so that cleaning keeps up: one after the other, for together they must not be faster than
/// the cleaner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WriteThrottle {
    /// When the last of them continues.
    until: Instant,
}

impl WriteThrottle {
    pub(super) fn new(now: Instant) -> WriteThrottle {
        WriteThrottle { until: now }
    }

    /// When a write continues that has to wait so long behind those before it.
    pub(super) fn turn(&mut self, now: Instant, delay: Duration) -> Instant {
        self.until = self.until.max(now) + delay;
        self.until
    }
}

/// Attempts to make room that did not succeed.
#[derive(Default)]
pub(super) struct RoomAttempts {
    /// Blocks that users had written and discarded at the last look.
    used: u64,
    count: u64,
}

impl RoomAttempts {
    /// How often each segment may be cleaned before more attempts are futile.
    const MOST: u64 = 8;

    /// Counts an attempt. Returns whether more attempts are futile: the whole log was cleaned several times, and users
    /// could write nothing. Then the table of segments does not match this map, and cleaning would never end.
    pub(super) fn attempt_is_futile(&mut self, counters: &Counters, segments: usize) -> bool {
        let used = counters.user_blocks.wrapping_add(counters.discarded_blocks);
        if used != self.used {
            *self = RoomAttempts { used, count: 0 };
        }
        self.count = self.count.saturating_add(1);
        self.count > Self::MOST * segments as u64 + 64
    }
}

pub(super) struct StoreShared {
    pub(super) named: NamedDevice,
    pub(super) options: Options,
    /// The block of the device where the log begins.
    pub(super) first: BlockNo,
    /// Blocks of a segment.
    pub(super) segment_blocks: u64,
    /// Blocks that are promised; the store may grow.
    pub(super) advertised: AtomicU64,
    pub(super) state: Mutex<StoreState>,
    pub(super) writer: Condvar,
    pub(super) written: Condvar,
    pub(super) room: Condvar,
    pub(super) keeper: Condvar,
    /// Held while a checkpoint is made.
    pub(super) checkpointing: Mutex<()>,
    /// Where the last request to the device ended, and the blocks between requests.
    pub(super) arm: AtomicU64,
    pub(super) travelled: AtomicU64,
}

/// A log store. Close it with [`LogStore::close`]; one that is dropped without is as after a crash, and loses nothing
/// that was flushed.
pub struct LogStore {
    pub(super) shared: Arc<StoreShared>,
    pub(super) threads: Vec<JoinHandle<()>>,
}

impl LogStore {
    /// Whether it is only looked at.
    pub fn is_read_only(&self) -> bool {
        self.shared.state.lock().read_only
    }

    pub(super) fn start(shared: StoreShared) -> Result<LogStore, LogStoreError> {
        let shared = Arc::new(shared);
        let mut store = LogStore { shared: Arc::clone(&shared), threads: Vec::new() };
        if !shared.options.threads || shared.state.lock().read_only {
            return Ok(store);
        }
        shared.state.lock().threads = true;
        for _ in 0..WRITERS {
            let shared = Arc::clone(&shared);
            store.threads.push(store.spawn("log-writer", move || shared.run_writer())?);
        }
        store.threads.push(store.spawn("log-keeper", move || shared.keep())?);
        Ok(store)
    }

    fn spawn(&self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, LogStoreError> {
        std::thread::Builder::new().name(name.to_owned()).spawn(run).map_err(|source| LogStoreError::Thread {
            device: self.shared.named.name.clone(),
            source: Arc::new(source),
        })
    }

    /// Ends it: all is durable then, and a checkpoint says that it ended in order.
    pub fn close(mut self) -> Result<(), LogStoreError> {
        self.stop();
        let state = self.shared.state.lock();
        if state.read_only {
            return Ok(());
        }
        self.shared.refuse_if_poisoned(&state)?;
        drop(state);
        self.shared.flush_all()?;
        self.checkpoint_to(AfterCheckpoint::InOrder)
    }

    /// Makes a checkpoint now.
    pub fn checkpoint(&self) -> Result<(), LogStoreError> {
        self.checkpoint_to(AfterCheckpoint::GoesOn)
    }

    fn checkpoint_to(&self, end: AfterCheckpoint) -> Result<(), LogStoreError> {
        // Where there is no room for the map, cleaning gives it.
        while !self.shared.checkpoint(end)? {
            let mut state = self.shared.state.lock();
            if !self.shared.reclaim_once(&mut state, CleaningGoal::Due)? {
                return Err(LogStoreError::NoRoom { device: self.shared.named.name.clone() });
            }
        }
        Ok(())
    }

    fn stop(&mut self) {
        self.shared.state.lock().closing = true;
        for condition in [&self.shared.writer, &self.shared.written, &self.shared.room, &self.shared.keeper] {
            condition.notify_all();
        }
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the log store has panicked");
            }
        }
        self.shared.state.lock().threads = false;
    }
}

/// A time as policies have it.
pub(super) fn nanos(time: Duration) -> Nanos {
    Nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

impl StoreState {
    /// The state of the store that the cleaner's policy decides by.
    pub(super) fn usage(&self) -> LogUsage {
        LogUsage {
            since_checkpoint: Pages(self.core.since_checkpoint),
            changed: Pages(self.core.map.dirty() as u64),
            since_access: nanos(self.last_access.elapsed()),
            waiting: self.wanted,
        }
    }

    /// Whether there are threads that write chunks. While the store is closed they may have ended before the keeper
    /// has: then it writes its own.
    pub(super) fn has_writers(&self) -> bool {
        self.threads && !self.closing
    }
}

impl Drop for LogStore {
    fn drop(&mut self) {
        self.stop();
    }
}

impl StoreShared {
    /// What the store looks like from above: the promised blocks, with the sectors of the device below.
    pub(super) fn geometry(&self) -> Geometry {
        let below = self.named.device.geometry();
        Geometry {
            capacity: Lba(self.advertised.load(Ordering::Acquire) * BLOCK_SECTORS),
            logical_block: below.logical_block,
            physical_block: BLOCK_BYTES as u32,
            rotational: below.rotational,
            queue_depth: below.queue_depth.max(2),
        }
    }

    /// The policy that decides when to clean, when to write a checkpoint, and which writes wait.
    pub(super) fn pace(&self) -> CleanerPolicy {
        CleanerPolicy {
            clean_share: Percent(self.options.clean_share.min(100) as u8),
            quiet: nanos(self.options.quiet),
            checkpoint_every: Pages(self.options.checkpoint_every.0 / PAGE_BYTES),
            map_memory: Pages(self.options.map_memory.0 / PAGE_BYTES),
            segment: Pages(self.segment_blocks),
        }
    }

    /// Where on the device a block of the log lies.
    pub(super) fn device_block(&self, place: LogBlock) -> BlockNo {
        BlockNo(self.first.0 + place.0)
    }

    /// Reads blocks of the log.
    pub(super) fn read_log(&self, at: LogBlock, buffer: &mut [u8]) -> Result<(), BlockError> {
        let block = self.device_block(at);
        self.moved(block, buffer.len());
        self.named.device.read(Lba(block.0 * BLOCK_SECTORS), buffer)
    }

    /// Counts a move of the device's arm to a block, and over the next `bytes` bytes.
    pub(super) fn moved(&self, block: BlockNo, bytes: usize) {
        let end = block.0 + (bytes / BLOCK_BYTES) as u64;
        let last = self.arm.swap(end, Ordering::Relaxed);
        self.travelled.fetch_add(last.abs_diff(block.0), Ordering::Relaxed);
    }

    /// Reads a page of the map that is not in memory. One that is damaged is rebuilt.
    pub(super) fn load_page(&self, state: &mut MutexGuard<'_, StoreState>, page: MapPage) -> Result<(), BlockError> {
        let entry = state.core.page_entry(page).map_err(|stop| self.defect(state, stop))?;
        let Some(at) = entry else {
            state.core.map.install(page, &[0; PAGE_ENTRIES]);
            return Ok(());
        };
        if let Some(error) = state.core.unusable.get(&page) {
            return Err(error.clone().on(&self.named.name));
        }
        let superblock = state.core.superblock.clone();
        let read = if let Some(data) = state.core.chunks.block(at.place()) {
            self.named.decode_page(data, &superblock, page, at)
        } else {
            let freed = state.freed;
            let read = MutexGuard::unlocked(state, || {
                self.moved(self.device_block(at.place()), BLOCK_BYTES);
                self.named.read_page(&superblock, page, at)
            });
            if !matches!(state.core.page_entry(page), Ok(Some(now)) if now == at) || state.freed != freed {
                return Ok(());
            }
            read
        };
        state.counts.map_reads += 1;
        match read {
            Ok(entries) => state.core.map.install(page, &entries),
            Err(error) => self.repair_map(state, page, error)?,
        }
        self.trim_map(state, Some(page));
        Ok(())
    }

    /// Lets go of pages of the map when there are more than may be in memory, if enough of them can be; never of
    /// `needed`.
    pub(super) fn trim_map(&self, state: &mut StoreState, needed: Option<MapPage>) {
        let (present, changed) = (Pages(state.core.map.present() as u64), Pages(state.core.map.dirty() as u64));
        if let Some(keep) = self.pace().cut_down(&state.core.layout, present, changed) {
            state.core.map.evict(keep.0 as usize, needed);
        }
    }

    /// Whether no more of the map can be changed before a checkpoint: it would not fit into memory.
    pub(super) fn map_is_full(&self, state: &StoreState) -> bool {
        state.core.map.dirty() as u64 > self.pace().map_pages(&state.core.layout).0
    }

    /// What has to happen before something that could not be done can be tried again.
    pub(super) fn unblock(&self, state: &mut MutexGuard<'_, StoreState>, stop: Blocked) -> Result<(), BlockError> {
        match stop {
            Blocked::Absent(page) => self.load_page(state, page),
            Blocked::Full => self.wait_for_room(state),
            Blocked::Format(_) | Blocked::Impossible(_) => Err(self.defect(state, stop)),
        }
    }

    /// What was put together cannot be written: nothing more is.
    pub(super) fn defect(&self, state: &mut StoreState, stop: Blocked) -> BlockError {
        let error = match stop {
            Blocked::Format(source) => self.named.format(source).on(&self.named.name),
            Blocked::Impossible(what) => BlockError::impossible(&self.named.name, Operation::Write, what),
            // A page that is written is in memory, and a thread that completes a chunk has a place for it.
            Blocked::Absent(_) | Blocked::Full => {
                LogStoreError::NoRoom { device: self.named.name.clone() }.on(&self.named.name)
            }
        };
        self.poison(state, Operation::Write, &error);
        error
    }

    pub(super) fn refuse_if_poisoned(&self, state: &StoreState) -> Result<(), BlockError> {
        match &state.poisoned {
            Some(error) => Err(error.clone()),
            None if state.read_only => Err(BlockError::ReadOnly { device: self.named.name.as_str().into() }),
            None => Ok(()),
        }
    }

    /// Refuses all later writes, because after the failure it is unknown what is durable.
    pub(super) fn poison(&self, state: &mut StoreState, operation: Operation, error: &BlockError) {
        if state.poisoned.is_none() {
            tracing::error!(device = self.named.name, %operation, %error, "the log store refuses writes from now on");
            state.poisoned = Some(BlockError::poison(&self.named.name, operation, error));
        }
        for condition in [&self.writer, &self.written, &self.room, &self.keeper] {
            condition.notify_all();
        }
    }
}
