//! Ordered write-back of a file system that is in no pool: the pages that the kernel reports as dirty go to a
//! [`Flusher`].
//!
//! A step of [`Watch::step`]:
//! 1. The contents of the ring go to the flusher: files in the order in which they come, the pages of each file in file
//!    order, neighbours in one piece. This loses the order of events within one step, some hundredths of a second. But
//!    it asks for the places of a file in many pieces one after the other, and the more so the more work there is. A
//!    file whose inode was reused is a new file, and the knowledge of the old one is forgotten.
//! 2. Files with lost events are looked through with cachestat(2), and their dirty pages go to the flusher.
//! 3. Files that the kernel wrote to, then the others in turn, are compared with the file system: they may be deleted,
//!    shortened, or clean by now. The time for this is limited.
//! 4. While the kernel has more dirty than its background threshold, its own flusher is at work, and nothing is written
//!    back here.
//!
//! Nothing here can do harm: the flusher only starts writes that were due anyway. Unseen, forgotten or wrong
//! information costs only order, or a system call that finds nothing to write. Errors of a write-back stay for the
//! programs that own the files ([`Flusher::start_for_others`]). Memory is bounded: pages that become dirty beyond
//! [`MOST_FILES`] files and [`MOST_PAGES`] pages are left to the kernel. Source: BPF takes the place of TESA's hooks in
//! the kernel.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;
use rustix::fs::FlockOperation;
use serde::Serialize;
use umbrella_units::{ByteSize, FileId, PAGE_BYTES, PageIndex, Pages};

use super::dirtied::Dirtied;
use super::error::WatchError;
use super::mounted::Mounted;
use super::record::{FileKey, KernelReport, LostEvents};
use super::scan;
use super::source::Source;
use crate::sys::KernelDirty;
use crate::{FileHandle, FileRef, Flusher, PageRange, Settings, Status, sys};

/// Files that are remembered.
const MOST_FILES: usize = 64 << 10;
/// Dirty pages that are remembered: 32 GiB.
const MOST_PAGES: u64 = 8 << 20;
/// What is taken from the ring before the rest has its turn.
const MOST_AT_ONCE: usize = 64 << 10;
/// How often files are compared with what is so, and how long each time: two parts of a hundred of one processor.
const CHECK_EVERY: Duration = Duration::from_millis(250);
const CHECK_TIME: Duration = Duration::from_millis(5);
/// How long one file is looked through after a loss.
const SCAN_TIME: Duration = Duration::from_millis(50);
/// A file is not compared again before.
const CHECK_AGAIN: Duration = Duration::from_secs(1);
/// When the kernel, which does not let anything be dirty for much longer than 30 s, has surely written a file.
const EXPIRED: Duration = Duration::from_secs(60);
/// Pauses between two steps, when something happens and when nothing does.
const SHORT_PAUSE: Duration = Duration::from_millis(20);
const LONG_PAUSE: Duration = Duration::from_millis(250);

/// How the watching goes, beside the flusher's own status.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct WatchStatus {
    /// What the flusher says.
    #[serde(flatten)]
    pub flusher: Status,
    /// Records that came out of the ring.
    pub events: u64,
    /// The size of the pages that they reported as dirty.
    pub dirtied: ByteSize,
    /// Records that the ring had no room for.
    pub lost: u64,
    /// Files that were looked through because of it.
    pub scanned: u64,
    /// What was dirty but not remembered, since there was too much of it.
    pub ignored: ByteSize,
    /// Files that are believed to have dirty pages.
    pub files: u64,
    /// Whether the kernel writes back by itself now, since too much is dirty.
    pub gives_way: bool,
}

/// See the module.
pub struct Watch {
    mounted: Mounted,
    source: Source,
    flusher: Arc<Flusher>,
    files: FxHashMap<FileId, WatchedFile>,
    /// Files that the kernel wrote to, and all files in turn.
    suspects: VecDeque<QueuedFile>,
    turns: VecDeque<QueuedFile>,
    lives: u64,
    totals: WatchStatus,
    lost: LostEvents,
    checked: Instant,
    busy: bool,
    /// Nothing more can be remembered.
    full: bool,
    lock: OwnedFd,
}

/// A file in a queue. It has left it when it was forgotten, also when it is known again.
#[derive(Clone, Copy)]
struct QueuedFile {
    file: FileKey,
    life: u64,
}

/// The state of a file.
struct WatchedFile {
    generation: u32,
    life: u64,
    /// When it was written last.
    written: Instant,
    handle: FileHandle,
    /// Behind the last page that was seen.
    end: PageIndex,
    suspect: bool,
    checked: Instant,
}

/// What follows from a look at a file.
enum FileCheck {
    Gone,
    Clean,
    Dirty,
    /// The kernel does not say.
    Unknown,
}

impl Watch {
    /// Watches the file system mounted at `path`, with a ring of `ring` bytes, and orders its write-back. `run_dir`
    /// holds the lock that keeps a second flusher away.
    pub fn start(path: &Path, settings: Settings, ring: ByteSize, run_dir: &Path) -> Result<Watch, WatchError> {
        let mounted = Mounted::at(path)?;
        let lock = lock(&mounted, run_dir)?;
        let source = Source::watch(mounted.device(), ring)?;
        let root = mounted.root().map_err(|source| WatchError::Path { path: path.to_owned(), source })?;
        let flusher = Flusher::start_for_others(root, settings)?;
        Ok(Watch {
            mounted,
            source,
            flusher,
            files: FxHashMap::default(),
            suspects: VecDeque::new(),
            turns: VecDeque::new(),
            lives: 0,
            totals: WatchStatus::default(),
            lost: LostEvents::default(),
            checked: Instant::now(),
            busy: false,
            full: false,
            lock,
        })
    }

    /// The file system.
    pub fn mounted(&self) -> &Mounted {
        &self.mounted
    }

    /// Its flusher.
    pub fn flusher(&self) -> &Arc<Flusher> {
        &self.flusher
    }

    /// See the module; to be called again after [`Watch::pause`].
    pub fn step(&mut self) -> Result<(), WatchError> {
        self.take();
        let lost = self.source.lost()?;
        if lost != self.lost {
            self.totals.lost = lost.records;
            self.lost = lost;
        }
        self.inspect_queue()?;
        self.pause_while_kernel_writes(KernelDirty::read());
        if self.checked.elapsed() >= CHECK_EVERY {
            if !self.mounted.is_mounted() {
                return Err(WatchError::Unmounted { path: self.mounted.path().to_owned() });
            }
            self.check();
            self.full = self.flusher.status().dirty.0 / PAGE_BYTES >= MOST_PAGES;
            self.checked = Instant::now();
        }
        Ok(())
    }

    /// Step 4.
    fn pause_while_kernel_writes(&mut self, kernel: Option<KernelDirty>) {
        let overloaded = kernel.is_some_and(|kernel| kernel.dirty > kernel.background);
        if overloaded {
            self.flusher.pause();
        } else {
            self.flusher.resume();
        }
        self.totals.gives_way = overloaded;
    }

    /// How long to wait before the next step.
    pub fn pause(&self) -> Duration {
        if self.busy { SHORT_PAUSE } else { LONG_PAUSE }
    }

    /// How it goes.
    pub fn status(&self) -> WatchStatus {
        WatchStatus { flusher: self.flusher.status(), files: self.files.len() as u64, ..self.totals.clone() }
    }

    /// Step 1.
    fn take(&mut self) {
        let mut dirtied = Dirtied::default();
        let mut written = Vec::new();
        let taken = self.source.drain(MOST_AT_ONCE, |seen| match seen {
            KernelReport::Dirtied { file, first, pages, .. } => dirtied.add(file, PageRange { first, pages }),
            KernelReport::Written { file, .. } => written.push(file),
        });
        self.totals.events += taken as u64;
        self.totals.dirtied.0 += dirtied.pages * PAGE_BYTES;
        self.busy = taken > 0;
        for (file, range) in dirtied.in_order() {
            self.note_written(file, range);
        }
        for file in written {
            self.enqueue_check(file);
        }
    }

    fn note_written(&mut self, file: FileKey, range: PageRange) {
        if self.files.get(&file.file).is_some_and(|known| known.generation != file.generation) {
            self.flusher.deleted(file.file);
            self.files.remove(&file.file);
        }
        if !self.files.contains_key(&file.file) {
            let Some(handle) = self.mounted.handle(file) else { return };
            if self.full || self.files.len() >= MOST_FILES {
                self.totals.ignored.0 += range.pages.0 * PAGE_BYTES;
                return;
            }
            self.note_handle(file, handle);
        }
        if let Some(known) = self.files.get_mut(&file.file) {
            known.end = known.end.max(range.end());
            known.written = Instant::now();
            self.flusher.wrote(file.file, FileRef::Handle(&known.handle), range);
        }
    }

    fn note_handle(&mut self, file: FileKey, handle: FileHandle) {
        self.lives += 1;
        let now = Instant::now();
        let known = WatchedFile {
            generation: file.generation,
            life: self.lives,
            written: now,
            handle,
            end: PageIndex(0),
            suspect: false,
            checked: now,
        };
        self.files.insert(file.file, known);
        self.turns.push_back(QueuedFile { file, life: self.lives });
    }

    fn enqueue_check(&mut self, file: FileKey) {
        let known = self.files.get_mut(&file.file).filter(|known| known.generation == file.generation);
        if let Some(known) = known.filter(|known| !known.suspect) {
            known.suspect = true;
            self.suspects.push_back(QueuedFile { file, life: known.life });
        }
    }

    fn known(&mut self, turn: QueuedFile) -> Option<&mut WatchedFile> {
        self.files.get_mut(&turn.file.file).filter(|known| known.life == turn.life)
    }

    /// Step 2.
    fn inspect_queue(&mut self) -> Result<(), WatchError> {
        if self.lost.records == self.lost.unnoted {
            return Ok(());
        }
        let begun = Instant::now();
        while begun.elapsed() < SCAN_TIME
            && let [file] = self.source.overflowed(1)?[..]
        {
            self.busy = true;
            self.totals.scanned += 1;
            let opened = self.mounted.handle(file).and_then(|handle| self.open(&handle).ok());
            let Some(opened) = opened else { continue };
            let mut found = Vec::new();
            scan::dirty_ranges(opened.as_fd(), SCAN_TIME, &mut found);
            for range in found {
                self.note_written(file, range);
            }
        }
        Ok(())
    }

    fn open(&self, handle: &FileHandle) -> io::Result<OwnedFd> {
        sys::open_handle(self.mounted.root()?.as_fd(), handle)
    }

    /// Step 3.
    fn check(&mut self) {
        let begun = Instant::now();
        for _ in 0..self.suspects.len() {
            if begun.elapsed() > CHECK_TIME {
                return;
            }
            let Some(turn) = self.suspects.pop_front() else { return };
            match self.known(turn) {
                Some(known) if known.checked.elapsed() < CHECK_AGAIN => self.suspects.push_back(turn),
                Some(known) => {
                    known.suspect = false;
                    self.compare(turn);
                }
                None => {}
            }
        }
        for _ in 0..self.turns.len() {
            if begun.elapsed() > CHECK_TIME {
                return;
            }
            let Some(turn) = self.turns.pop_front() else { return };
            if self.known(turn).is_some_and(|known| known.checked.elapsed() >= CHECK_AGAIN) {
                self.compare(turn);
            }
            if self.known(turn).is_some() {
                self.turns.push_back(turn);
            }
        }
    }

    /// Compares the noted state of a file with the file system.
    fn compare(&mut self, turn: QueuedFile) {
        let Some(known) = self.known(turn) else { return };
        known.checked = Instant::now();
        let (handle, end, expired) = (known.handle.clone(), known.end, known.written.elapsed() > EXPIRED);
        let file = turn.file.file;
        let mark = self.flusher.mark();
        match self.inspect_file(&handle, file, end) {
            Ok(FileCheck::Gone) => {
                self.flusher.deleted(file);
                self.files.remove(&file);
            }
            Ok(FileCheck::Dirty) => {}
            Ok(FileCheck::Unknown) if !expired => {}
            Ok(FileCheck::Clean | FileCheck::Unknown) => {
                self.flusher.synced(file, mark);
                self.files.remove(&file);
            }
            Err(error) => tracing::debug!(inode = file.0, %error, "cannot check a file for dirty pages"),
        }
    }

    fn inspect_file(&mut self, handle: &FileHandle, file: FileId, end: PageIndex) -> io::Result<FileCheck> {
        let opened = match self.open(handle) {
            Err(error) if error.raw_os_error() == Some(libc::ESTALE) => return Ok(FileCheck::Gone),
            opened => opened?,
        };
        let stat = rustix::fs::fstat(&opened)?;
        if stat.st_nlink == 0 {
            return Ok(FileCheck::Gone);
        }
        let size = PageIndex(stat.st_size.cast_unsigned().div_ceil(PAGE_BYTES));
        if size < end {
            self.flusher.truncated(file, size);
            if let Some(known) = self.files.get_mut(&file) {
                known.end = size;
            }
        }
        let all = PageRange { first: PageIndex(0), pages: Pages(size.0) };
        match sys::dirty_pages(opened.as_fd(), all) {
            Ok(Pages(0)) => Ok(FileCheck::Clean),
            Ok(_) => Ok(FileCheck::Dirty),
            // Before Linux 6.5 it cannot be asked.
            Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => Ok(FileCheck::Unknown),
            Err(error) => Err(error),
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.flusher.stop();
        // A process that was started and does not run yet has the descriptor too: the lock would end with the last of
        // them.
        let _ = rustix::fs::flock(&self.lock, FlockOperation::Unlock);
    }
}

/// One flusher for a file system: two would write the same pages twice.
fn lock(mounted: &Mounted, run_dir: &Path) -> Result<OwnedFd, WatchError> {
    let device = mounted.device();
    let path = run_dir.join(format!("flusher-{}-{}.lock", rustix::fs::major(device), rustix::fs::minor(device)));
    let failed = |source| WatchError::Path { path: path.clone(), source };
    fs::create_dir_all(run_dir).map_err(failed)?;
    let file = File::options().create(true).truncate(false).read(true).write(true).open(&path).map_err(failed)?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {
            fs::write(&path, std::process::id().to_string()).map_err(failed)?;
            Ok(file.into())
        }
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let holder = fs::read_to_string(&path).map_err(failed)?;
            Err(WatchError::AlreadyRunning { path: mounted.path().to_owned(), holder })
        }
        Err(error) => Err(failed(error.into())),
    }
}
