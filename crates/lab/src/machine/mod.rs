//! The event loop that joins a policy and the models: clients write to a page cache, a policy decides which of its
//! pages go to a modelled disk.
//!
//! Everything happens in virtual time. Three things advance it: a client that is ready, the disk, and the periodic
//! write-back. The earliest is next. On a tie the disk goes first, then the periodic write-back, then clients in the
//! order in which they became ready. So a run depends only on its input and seed.
//!
//! - `client.rs`: a client, and why it waits; `step.rs`: what its steps do.
//! - `pages.rs`: reads, read-ahead, metadata blocks, and the events that the page cache passes to the policy.
//! - `flusher.rs`: when pages are written (thresholds, expiry, reclaim, fsync), as the page cache demands and the
//!   policy decides; `queue.rs`: how they become requests.
//! - `chooser.rs`: which policy chooses them. `files.rs`: where files lie on disk, and staging.

mod chooser;
mod client;
mod config;
mod counters;
mod files;
mod flusher;
mod foresight;
mod pages;
mod queue;
mod step;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::rc::Rc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use thiserror::Error;
use umbrella_model::allocator::AllocError;
use umbrella_model::device::Device;
use umbrella_model::page_cache::{Change, ExpireBy, PageCache, PageCacheConfig};
use umbrella_policy::writeback::{DirtyPage, WriteBack};
use umbrella_units::{BlockNo, ByteSize, Nanos, PAGE_BYTES, PageKey};

use crate::experiment::Watch;
use crate::result::{AtFinish, Outcome, Setting, WriteWindows};
use crate::workload::{ClientId, Workload};

use chooser::Chooser;
use client::{ClientState, Verdict, Wait};
pub use config::{Allocation, Bookkeeping, Config};
use counters::MachineCounters;
use files::FileTable;
pub use files::Layout;
pub use foresight::{Foresight, WriteLog};
use queue::{DiskQueue, FinishedRequest, Tap, Waiting};

/// Clients that wait for a page; nearly always one.
type Waiters = SmallVec<[u32; 2]>;

/// Why a run ended without an outcome.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RunError {
    /// The files do not fit.
    #[error("the disk is full: {used} of {capacity} are allocated")]
    NoSpace {
        /// What is allocated.
        used: ByteSize,
        /// What there is.
        capacity: ByteSize,
    },
    /// A file is larger than the disk.
    #[error("a file of {size} does not fit on a disk of {capacity}")]
    LargerThanDisk {
        /// The file's size.
        size: ByteSize,
        /// What there is.
        capacity: ByteSize,
    },
    /// The workload does what no file system allows.
    #[error("the file system refuses: {0}")]
    Files(#[from] AllocError),
    /// The watcher ended it before it began.
    #[error("ended while the file system was aged")]
    Stopped,
    /// An address lies beyond the disk's end.
    #[error("address {address} is beyond the disk's end at {capacity}")]
    BeyondEnd {
        /// The address in bytes.
        address: u64,
        /// The disk's size in bytes.
        capacity: u64,
    },
    /// An offline policy would need to know more of the future than fits in memory.
    #[error(
        "a policy that knows the future remembers each write of a page: here that takes more than {most} of memory \
        (use a smaller input)"
    )]
    TooMuchToForesee {
        /// The limit.
        most: ByteSize,
    },
    /// Nothing can happen any more, though clients wait. This is an error of the models, not of the input.
    #[error("{clients} clients wait and nothing will happen any more at {now} ({dirty} dirty pages, {queued} queued)")]
    Stuck {
        /// Clients that wait.
        clients: usize,
        /// When.
        now: Nanos,
        /// Dirty pages.
        dirty: u64,
        /// Pages in the queue.
        queued: u64,
    },
}

/// A machine with one disk, at time zero.
pub struct Computer {
    config: Config,
    cache: PageCache,
    policy: Chooser,
    queue: DiskQueue,
    files: FileTable,
    foresight: Option<Foresight>,
    log: Option<WriteLog>,
    capacity: BlockNo,

    clients: Vec<ClientState>,
    ready: BinaryHeap<Reverse<(Nanos, u64, u32)>>,
    ready_count: u64,
    running: usize,
    throttled: Vec<u32>,
    starved: Vec<u32>,
    cpu_free: Nanos,
    next_wake: Option<Nanos>,
    /// When the journal commits next.
    next_commit: Option<Nanos>,

    /// Pages that are being read from the disk, and the clients that wait for them.
    reading: FxHashMap<PageKey, Waiters>,
    /// The clients that wait for pages to reach the disk.
    syncing: FxHashMap<PageKey, Waiters>,
    /// Pages to be written again as soon as the write under way is done.
    deferred: FxHashMap<PageKey, Waiting>,

    counters: MachineCounters,
    /// What the disk had done when the last client finished.
    at_finish: AtFinish,
    /// Events until the next call of the watcher.
    until_watch: u32,
    /// When clients were last woken because nothing would have happened.
    helped_at: Option<Nanos>,
    /// Dirty pages at the last look at the policy's memory.
    most_seen: u64,
    error: Option<RunError>,

    // Lists that are filled and emptied all the time, kept to save their allocation.
    changes: Vec<Change>,
    selected: Vec<DirtyPage>,
    arrived: Vec<FinishedRequest>,
    touched: Vec<BlockNo>,
    missing: Vec<(BlockNo, PageKey)>,
    keys: Vec<PageKey>,
}

/// Number of events between two calls of the watcher.
const WATCH_EVERY: u32 = 1 << 14;

impl Computer {
    /// A machine over `disk`, reached through what `schedule` puts before it.
    pub fn new(
        config: Config,
        layout: Layout,
        policy: WriteBack,
        disk: Box<dyn Device>,
        schedule: impl FnOnce(Box<dyn Device>) -> Box<dyn Device>,
    ) -> Result<Computer, RunError> {
        Computer::watched(config, layout, policy, disk, schedule, &mut || true)
    }

    /// The same; `go_on` is called now and then while the file system is aged, which takes time.
    pub fn watched(
        config: Config,
        layout: Layout,
        policy: WriteBack,
        disk: Box<dyn Device>,
        schedule: impl FnOnce(Box<dyn Device>) -> Box<dyn Device>,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Computer, RunError> {
        let capacity = disk.capacity().block();
        let dispatched = Rc::new(RefCell::new(WriteWindows::default()));
        let device = schedule(Box::new(Tap::new(disk, Rc::clone(&dispatched))));
        let by_pages = matches!(layout, Layout::Device);
        let expire_by = if by_pages { ExpireBy::Pages } else { config.cache.expire_by };
        let cache = PageCache::new(PageCacheConfig { expire_by, ..config.cache });
        let files = FileTable::new(layout, capacity, &config, go_on)?;
        let next_wake = cache.next_wake(Nanos(0));
        let next_commit = config.ordered_commits;
        Ok(Computer {
            config,
            cache,
            policy: Chooser::of_all(policy),
            queue: DiskQueue::new(device, dispatched),
            files,
            foresight: None,
            log: None,
            capacity,
            clients: Vec::new(),
            ready: BinaryHeap::new(),
            ready_count: 0,
            running: 0,
            throttled: Vec::new(),
            starved: Vec::new(),
            cpu_free: Nanos(0),
            next_wake,
            next_commit,
            reading: FxHashMap::default(),
            syncing: FxHashMap::default(),
            deferred: FxHashMap::default(),
            counters: MachineCounters::default(),
            at_finish: AtFinish::default(),
            until_watch: WATCH_EVERY,
            helped_at: None,
            most_seen: 0,
            error: None,
            changes: Vec::new(),
            selected: Vec::new(),
            arrived: Vec::new(),
            touched: Vec::new(),
            missing: Vec::new(),
            keys: Vec::new(),
        })
    }

    /// Lets writers that are throttled write by this policy, which knows no page yet, instead of asking the machine's.
    #[must_use]
    pub fn with_throttled_writers(mut self, policy: WriteBack) -> Computer {
        self.policy = self.policy.with_writers(policy);
        self
    }

    /// Tells the policy when each page will be written next, as an earlier run of the same input logged it.
    #[must_use]
    pub fn with_foresight(mut self, foresight: Foresight) -> Computer {
        self.foresight = Some(foresight);
        self
    }

    /// Logs when each page is written or removed, for [`Computer::with_foresight`]; taken out with
    /// [`Computer::run_logged`].
    pub fn run_logged(
        mut self,
        setting: Setting,
        workload: &mut dyn Workload,
        watch: &mut Watch<'_>,
    ) -> Result<(Outcome, WriteLog), RunError> {
        self.log = Some(WriteLog::default());
        let outcome = self.run_to_end(setting, workload, watch)?;
        Ok((outcome, self.log.take().unwrap_or_default()))
    }

    /// Runs the workload to its end, then until the last dirty page is on disk.
    pub fn run(
        mut self,
        setting: Setting,
        workload: &mut dyn Workload,
        watch: &mut Watch<'_>,
    ) -> Result<Outcome, RunError> {
        self.run_to_end(setting, workload, watch)
    }

    fn run_to_end(
        &mut self,
        setting: Setting,
        workload: &mut dyn Workload,
        watch: &mut Watch<'_>,
    ) -> Result<Outcome, RunError> {
        while let Some(step) = workload.prepare() {
            if !self.prepare(&step, watch)? {
                return Ok(self.outcome(setting, Nanos(0), Nanos(0), true));
            }
        }
        self.running = workload.clients() as usize;
        self.clients = (0..self.running).map(|_| ClientState::new()).collect();
        (0..self.running as u32).for_each(|client| self.wake(client, Nanos(0)));

        let mut now = Nanos(0);
        let mut interrupted = false;
        while self.running > 0 {
            self.until_watch = self.until_watch.saturating_sub(1);
            if self.until_watch == 0 {
                self.until_watch = WATCH_EVERY;
                if !watch(workload.progress(now)) {
                    interrupted = true;
                    break;
                }
            }
            now = self.next_time_after_help(now)?;
            self.disk_and_timer(now);
            while let Some(&Reverse((at, _, client))) = self.ready.peek()
                && at <= now
            {
                self.ready.pop();
                now = self.run_client(client, at.max(now), workload)?;
            }
            if let Some(error) = self.error.take() {
                return Err(error);
            }
        }
        let finished = now.max(self.cpu_free);
        self.at_finish = self.disk_so_far();
        now = finished;
        if !interrupted {
            (now, interrupted) = self.drain(now, watch)?;
            now = now.max(self.cpu_free);
        }
        Ok(self.outcome(setting, finished, now, interrupted))
    }

    /// As [`Computer::next_time`]. When nothing would happen, because what clients wait for was deleted by others, they
    /// look again, once.
    fn next_time_after_help(&mut self, now: Nanos) -> Result<Nanos, RunError> {
        self.next_time(now).or_else(|stuck| {
            if self.helped_at == Some(now) {
                return Err(stuck);
            }
            self.helped_at = Some(now);
            self.wake_starved(now);
            self.feed(now);
            self.next_time(now)
        })
    }

    /// When something happens next; an error when nothing will.
    fn next_time(&self, now: Nanos) -> Result<Nanos, RunError> {
        let client = self.ready.peek().map(|Reverse((at, _, _))| *at);
        let disk = self.queue.next_event();
        // The timer does nothing unless something is dirty, or a waiting client looks again because of it.
        let looked_for = !self.throttled.is_empty() || !self.starved.is_empty();
        let others = client.is_some() || disk.is_some();
        let timer = self.next_timer().filter(|_| self.cache.counts().dirty > 0 || (looked_for && others));
        let next = [client, disk, timer].into_iter().flatten().min();
        next.map(|next| next.max(now)).ok_or_else(|| self.stuck_error(now))
    }

    /// The periodic write-back, or the journal's next commit.
    fn next_timer(&self) -> Option<Nanos> {
        self.next_wake.into_iter().chain(self.next_commit).min()
    }

    /// Occupies the processor for this long, whatever the work is for.
    fn charge(&mut self, now: Nanos, time: Nanos) {
        self.cpu_free = self.cpu_free.max(now) + time;
    }

    fn stuck_error(&self, now: Nanos) -> RunError {
        RunError::Stuck {
            clients: self.running,
            now,
            dirty: self.cache.counts().dirty,
            queued: self.queue.waiting_writes() as u64,
        }
    }

    /// What the disk completed and the timer wants, up to `now`.
    fn disk_and_timer(&mut self, now: Nanos) {
        if self.queue.next_event().is_some_and(|at| at <= now) {
            self.collect(now);
            self.feed(now);
        }
        if self.next_wake.is_some_and(|at| at <= now) {
            self.expire(now);
            self.next_wake = self.cache.next_wake(now);
            self.feed(now);
        }
        if let Some(every) = self.config.ordered_commits
            && self.next_commit.is_some_and(|at| at <= now)
        {
            self.commit(now);
            self.next_commit = Some(now + every);
            self.feed(now);
        }
    }

    /// Runs the client from `now` on, step by step, until another event comes first. Returns the time then.
    fn run_client(&mut self, client: u32, now: Nanos, workload: &mut dyn Workload) -> Result<Nanos, RunError> {
        let mut now = now;
        loop {
            let id = ClientId(client);
            if self.clients[client as usize].step.is_none() {
                let Some(step) = workload.next(id, now) else {
                    self.clients[client as usize].wait = Wait::Finished;
                    self.running -= 1;
                    return Ok(now);
                };
                let state = &mut self.clients[client as usize];
                state.step = Some(step);
                state.began = workload.due(id).unwrap_or(now).min(now);
                state.done = 0;
            }
            match self.do_step(client, now)? {
                Verdict::Blocked(wait) => {
                    self.wait(client, wait, now);
                    self.feed(now);
                    return Ok(now);
                }
                Verdict::Done(cost) => {
                    let step = self.clients[client as usize].step.take();
                    let at = self.finish_time(step, now, cost);
                    if let Some(step) = step {
                        self.counters.step(&step, self.clients[client as usize].began, at);
                    }
                    let earlier = |other: Option<Nanos>| other.is_some_and(|other| other <= at);
                    let others = self.ready.peek().map(|Reverse((at, _, _))| *at);
                    self.until_watch = self.until_watch.saturating_sub(1);
                    let somebody = earlier(others) || earlier(self.queue.next_event()) || earlier(self.next_timer());
                    if somebody || self.until_watch == 0 {
                        self.wake(client, at);
                        return Ok(now);
                    }
                    now = at;
                }
            }
        }
    }

    /// The time at which a step of this cost ends. Thinking takes the client's own time, other steps the processor's.
    fn finish_time(&mut self, step: Option<crate::workload::FileOperation>, now: Nanos, cost: Nanos) -> Nanos {
        if matches!(step, Some(crate::workload::FileOperation::Think { .. })) {
            return now + cost;
        }
        self.charge(now, cost);
        self.cpu_free
    }

    fn wait(&mut self, client: u32, wait: Wait, now: Nanos) {
        let state = &mut self.clients[client as usize];
        state.wait = wait;
        state.since = now;
        match wait {
            Wait::Throttled => self.throttled.push(client),
            Wait::Memory => self.starved.push(client),
            Wait::Ready | Wait::Pages | Wait::Finished => {}
        }
    }

    /// The client continues at `at`.
    fn wake(&mut self, client: u32, at: Nanos) {
        let state = &mut self.clients[client as usize];
        if matches!(state.wait, Wait::Throttled | Wait::Memory) {
            self.counters.throttled = self.counters.throttled + (at - state.since);
        }
        state.wait = Wait::Ready;
        self.ready_count += 1;
        self.ready.push(Reverse((at, self.ready_count, client)));
    }

    /// What the disk has done and was sent.
    fn disk_so_far(&self) -> AtFinish {
        let disk = self.queue.stats();
        let windows = self.queue.windows();
        AtFinish {
            bytes_written: disk.sectors_written * umbrella_units::SECTOR_BYTES,
            bytes_read: disk.sectors_read * umbrella_units::SECTOR_BYTES,
            write_requests: disk.writes,
            write_distance: windows.mean_distance(),
            windows: windows.counts(),
            sequential: windows.sequential(),
        }
    }

    fn outcome(&self, setting: Setting, finished: Nanos, drained: Nanos, interrupted: bool) -> Outcome {
        let disk = self.queue.stats();
        let at_end = self.disk_so_far();
        Outcome {
            bytes_written: at_end.bytes_written,
            bytes_read: at_end.bytes_read,
            write_requests: at_end.write_requests,
            read_requests: disk.reads,
            write_distance: at_end.write_distance,
            seek_cylinders: disk.seek_cylinders,
            seeks: disk.seeks,
            disk_busy_s: disk.busy.as_secs_f64(),
            windows: at_end.windows,
            boundary_crossings: self.queue.windows().crossings(),
            erases: disk.erases,
            pages_copied: disk.pages_copied,
            at_finish: self.at_finish,
            ..self.counters.outcome(setting, finished, drained, interrupted)
        }
    }

    fn files_failed(&self, error: AllocError) -> RunError {
        match error {
            AllocError::NoSpace { .. } | AllocError::NoInodes { .. } => RunError::NoSpace {
                used: ByteSize(self.files.used() * PAGE_BYTES),
                capacity: ByteSize(self.capacity.0 * PAGE_BYTES),
            },
            other => RunError::Files(other),
        }
    }
}
