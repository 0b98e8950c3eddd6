//! Ordered write-back of one file system: the interface of this crate.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use umbrella_policy::writeback::Spec;
use umbrella_units::{ByteSize, FileId, PAGE_BYTES, PageIndex, Pages};

use crate::error::FlusherError;
use crate::file::{FileRef, PageRange};
use crate::files::{Answer, Reach, WriteSequence};
use crate::gate::{Gate, STALL_TIMEOUT};
use crate::geometry::Geometry;
use crate::journal::Journal;
use crate::recorded_policy::RecordedPolicy;
use crate::settings::{Limits, Settings};
use crate::shared::{self, CompletionMode, Shared};
use crate::state::{FlushStats, FlusherState};
use crate::status::Status;
use crate::sys::{self, DiskShare, KernelDirty};
use crate::thresholds::{Share, Thresholds};

/// The most pages that one event reports: 4 GiB.
const MOST_PAGES: Pages = Pages(1 << 20);
/// The most questions to the file system before one write is noted.
const QUESTIONS: usize = 3;
/// How long a stop waits for the flusher, which may hang in a call to a dead disk.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// What was written up to now; see [`Flusher::mark`].
#[derive(Debug, Clone, Copy)]
pub struct Mark(WriteSequence);

/// See the module. Events are reported after the call that causes them. Nothing here waits for a disk, except that a
/// file's places may have to be read.
pub struct Flusher {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl std::fmt::Debug for Flusher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Flusher").field("status", &self.status()).finish()
    }
}

impl Flusher {
    /// Starts ordered write-back of the file system that `root` lies on; `root` must be open for reading.
    pub fn start(root: OwnedFd, settings: Settings) -> Result<Arc<Flusher>, FlusherError> {
        Flusher::begin(root, settings, CompletionMode::Reporting)
    }

    /// Starts ordered write-back of a file system that others write to. Errors of a write-back stay for programs that
    /// sync their files: they are not seen here, and [`Flusher::take_error`] knows none.
    pub fn start_for_others(root: OwnedFd, settings: Settings) -> Result<Arc<Flusher>, FlusherError> {
        Flusher::begin(root, settings, CompletionMode::Silent)
    }

    fn begin(root: OwnedFd, settings: Settings, waits: CompletionMode) -> Result<Arc<Flusher>, FlusherError> {
        let limits = settings.limits;
        let policy = RecordedPolicy::new(settings)?;
        let share = Share::new(DiskShare::of(root.as_fd()));
        let (allowance, _) = share.allowance(KernelDirty::read());
        let handle = sys::handle_of(root.as_fd()).and_then(|handle| sys::open_handle(root.as_fd(), &handle));
        let state = FlusherState::new(policy, Geometry::of(root.as_fd()));
        let shared = Arc::new(Shared {
            waits,
            has_handles: handle.is_ok(),
            root,
            started: Instant::now(),
            journal: Mutex::new(None),
            state: Mutex::new(state),
            work: Condvar::new(),
            gate: Gate::new(Thresholds::new(limits, allowance), STALL_TIMEOUT),
            share,
            age: AtomicU64::new(shared::age().0),
            suspicious: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            paused: AtomicBool::new(false),
        });
        let flusher = Arc::new(Flusher { shared, threads: Mutex::default() });
        flusher.spawn("wb-flush", crate::flush_loop::run)?;
        flusher.spawn("wb-gate", |shared| shared.gate.run(|| shared.refresh()))?;
        Ok(flusher)
    }

    fn spawn(&self, name: &'static str, run: fn(&Shared)) -> Result<(), FlusherError> {
        let shared = Arc::clone(&self.shared);
        let started = std::thread::Builder::new().name(name.to_owned()).spawn(move || run(&shared));
        self.threads.lock().push(started.map_err(|source| FlusherError::Thread { name, source })?);
        Ok(())
    }

    /// Pages of a file were written: they are dirty.
    pub fn wrote(&self, file: FileId, by: FileRef<'_>, range: PageRange) {
        let range = range.no_longer_than(MOST_PAGES);
        if range.pages.0 == 0 || self.shared.is_stopping() {
            return;
        }
        let shared = &self.shared;
        let now = shared.now();
        let mut state = shared.state.lock();
        for _ in 0..QUESTIONS {
            let known = state.files.get(file).is_some();
            let unmapped = state.files.first_unmapped(file, range, now);
            if known && unmapped.is_none() {
                break;
            }
            drop(state);
            let reach = if known { None } else { self.open_method(by) };
            let answer = unmapped.map(|from| self.map_pages(by, from));
            state = shared.state.lock();
            if !known && !reach.is_some_and(|reach| state.add_file(file, reach)) {
                return;
            }
            if let Some(answer) = answer {
                state.record_places(now, file, &answer);
            }
        }
        let before = state.policy.dirty();
        state.wrote(now, file, range);
        shared.publish_level(&state);
        let dirty = state.policy.dirty();
        drop(state);
        let background = shared.gate.background();
        if before == Pages(0) || (before <= background && dirty > background) {
            shared.work.notify_one();
        }
    }

    /// How the file will be opened for its write-back; `None` when it cannot be.
    fn open_method(&self, by: FileRef<'_>) -> Option<Reach> {
        match by {
            FileRef::Handle(handle) => Some(Reach::Handle(handle.clone())),
            FileRef::Open(fd) if self.shared.has_handles => sys::handle_of(fd).ok().map(Reach::Handle),
            FileRef::Open(fd) => rustix::io::fcntl_dupfd_cloexec(fd, 0).ok().map(|fd| Reach::Kept(Arc::new(fd))),
        }
    }

    /// Asks the file system where pages from `from` on lie. A failure counts as a complete answer without any places.
    fn map_pages(&self, by: FileRef<'_>, from: PageIndex) -> Answer {
        let query = |fd: BorrowedFd<'_>| {
            let mut found = Vec::new();
            let to = sys::map(fd, from, &mut found)?;
            Ok(Answer { from, to, found })
        };
        let answer = match by {
            FileRef::Open(fd) => query(fd),
            FileRef::Handle(handle) => {
                sys::open_handle(self.shared.root.as_fd(), handle).and_then(|fd| query(fd.as_fd()))
            }
        };
        answer.unwrap_or(Answer { from: PageIndex(0), to: PageIndex(u64::MAX), found: Vec::new() })
    }

    /// Does something to the state, and tells what is dirty then.
    fn change(&self, change: impl FnOnce(&mut FlusherState)) {
        let mut state = self.shared.state.lock();
        change(&mut state);
        self.shared.publish_level(&state);
    }

    /// Pages of a file were read.
    pub fn read(&self, file: FileId, range: PageRange) {
        let range = range.no_longer_than(MOST_PAGES);
        self.change(|state| state.read(self.shared.now(), file, range));
    }

    /// A file ends before page `from` now.
    pub fn truncated(&self, file: FileId, from: PageIndex) {
        self.change(|state| {
            state.drop_from(self.shared.now(), file, from);
            state.files.cut(file, from);
        });
    }

    /// A file's blocks were given, taken or moved, and what was dirty in the range is not any more.
    pub fn extents_changed(&self, file: FileId, range: PageRange) {
        self.change(|state| {
            state.drop_range(self.shared.now(), file, range);
            state.files.forget_places(file);
        });
    }

    /// The last name of a file is gone and no process has it open, or it was moved to another file system.
    pub fn deleted(&self, file: FileId) {
        self.change(|state| state.deleted(self.shared.now(), file));
    }

    /// What was written up to now. To be taken before a sync begins, so that what is written meanwhile is not taken for
    /// synced.
    pub fn mark(&self) -> Mark {
        Mark(self.shared.state.lock().turn)
    }

    /// All pages of a file that were dirty at the mark are on disk now.
    pub fn synced(&self, file: FileId, mark: Mark) {
        self.change(|state| state.synced(self.shared.now(), file, mark.0));
    }

    /// All files that were dirty at the mark are on disk now.
    pub fn synced_all(&self, mark: Mark) {
        self.change(|state| state.synced_all(self.shared.now(), mark.0));
    }

    /// Whether a write-back of the file failed and that was not reported yet; it counts as reported then. Call it after
    /// a sync of the file, which may not report an error that was seen here first.
    pub fn take_error(&self, file: FileId) -> bool {
        let mut state = self.shared.state.lock();
        state.files.get_mut(file).is_some_and(|known| std::mem::take(&mut known.failed))
    }

    /// All files with an error that [`Flusher::take_error`] would report, for a caller that continues without this
    /// flusher.
    pub fn take_errors(&self) -> Vec<FileId> {
        self.shared.state.lock().files.take_failed()
    }

    /// Lets a writer of `wrote` pages continue: at once, or later from another thread, when there is room for more.
    /// Never blocks.
    pub fn when_room(&self, wrote: Pages, go: Box<dyn FnOnce() + Send>) {
        self.shared.gate.pass(wrote, go);
    }

    /// Chooses nothing until [`Flusher::resume`]: the kernel writes back now, and the two would get in each other's
    /// way.
    pub fn pause(&self) {
        self.shared.paused.store(true, Ordering::Release);
    }

    /// Goes on.
    pub fn resume(&self) {
        if self.shared.paused.swap(false, Ordering::AcqRel) {
            // Who has looked already waits by now.
            drop(self.shared.state.lock());
            self.shared.work.notify_one();
        }
    }

    /// Changes the policy. What is dirty stays known; a record ends.
    pub fn set_policy(&self, policy: &Spec) -> Result<(), FlusherError> {
        self.set(|settings| settings.policy = policy.clone())?;
        // What the policy before did says nothing of this one. Errors are the disk's.
        let mut state = self.shared.state.lock();
        state.tally = FlushStats { errors: state.tally.errors, ..FlushStats::default() };
        Ok(())
    }

    /// Changes the limits.
    pub fn set_limits(&self, limits: Limits) -> Result<(), FlusherError> {
        self.set(|settings| settings.limits = limits)
    }

    fn set(&self, set: impl FnOnce(&mut Settings)) -> Result<(), FlusherError> {
        self.shared.with_record(|state| {
            let mut settings = state.policy.settings().clone();
            set(&mut settings);
            state.policy.change(self.shared.now(), settings)
        })?;
        self.shared.refresh();
        self.shared.work.notify_one();
        Ok(())
    }

    /// Starts to record events and selections into a new file of about `most` bytes at most. Ends a record that was
    /// being written.
    pub fn record_to(&self, path: &Path, most: ByteSize) -> Result<(), FlusherError> {
        let journal = Journal::create(path, most)?;
        self.end_record()?;
        let mut place = self.shared.journal.lock();
        self.shared.state.lock().policy.begin_record(self.shared.now())?;
        *place = Some(journal);
        drop(place);
        self.shared.work.notify_one();
        Ok(())
    }

    /// Ends the record, if there is one.
    pub fn end_record(&self) -> Result<(), FlusherError> {
        self.shared.with_record(|state| Ok(state.policy.end_record()))
    }

    /// How it is doing. Never waits for a disk: the journal is locked while a record is written to one.
    pub fn status(&self) -> Status {
        let waits = self.shared.gate.waits();
        let thresholds = self.shared.gate.thresholds();
        let state = self.shared.state.lock();
        let bytes = |pages: Pages| ByteSize(pages.0.saturating_mul(PAGE_BYTES));
        Status {
            policy: state.policy.settings().policy.to_string(),
            dirty: bytes(state.policy.dirty()),
            in_flight: bytes(state.in_flight),
            limit: bytes(thresholds.limit),
            background: bytes(thresholds.background),
            flush_rate: bytes(waits.rate),
            flushed: bytes(state.tally.flushed),
            runs: state.tally.runs,
            cleaned: bytes(state.tally.cleaned),
            waiting: waits.waiting,
            waits: waits.held,
            waited: waits.waited,
            errors: state.tally.errors,
            stalled: waits.stalled,
            recording: state.policy.is_recording(),
            memory: ByteSize(state.policy.bytes().0 + (state.files.bytes() + state.recency.bytes()) as u64),
        }
    }

    /// Ends the threads, and releases waiting writers. What is dirty is left to the kernel.
    pub fn stop(&self) {
        self.shared.stopping.store(true, Ordering::Release);
        self.shared.gate.stop();
        let until = Instant::now() + STOP_TIMEOUT;
        for thread in std::mem::take(&mut *self.threads.lock()) {
            while !thread.is_finished() && Instant::now() < until {
                self.shared.work.notify_all();
                std::thread::sleep(Duration::from_millis(2));
            }
            if thread.is_finished() {
                let _ = thread.join();
            }
        }
        // A flusher that hangs may be writing the record.
        let Some(journal) = self.shared.journal.try_lock_for(STOP_TIMEOUT) else {
            tracing::warn!("cannot end the record of write-back: its disk does not answer");
            return;
        };
        drop(journal);
        if let Err(error) = self.end_record() {
            tracing::warn!(%error, "cannot end the record of write-back");
        }
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn what_it_says_of_itself_and_its_end_do_not_wait_for_the_disk_of_a_record() {
        let dir = tempfile::tempdir().expect("a directory");
        let root = std::fs::File::open(dir.path()).expect("opens");
        let flusher = Flusher::start(root.into(), Settings::parse("cscan").expect("a policy")).expect("starts");
        flusher.record_to(&dir.path().join("record"), ByteSize(1 << 20)).expect("a new file");
        // As while it is written, and the disk does not answer.
        let written = flusher.shared.journal.lock();
        let (said, hears) = mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _ = said.send(flusher.status().recording);
                flusher.stop();
                let _ = said.send(false);
            });
            let heard = [Duration::from_secs(30); 2].map(|timeout| hears.recv_timeout(timeout));
            drop(written);
            assert_eq!(heard, [Ok(true), Ok(false)]);
        });
    }
}
