//! What the map knows of one branch.
//!
//! Letting a log go (its branch went away) never waits for a thread that writes it: a write may hang with the branch.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustc_hash::{FxHashMap, FxHashSet};

use crate::ground::locks::{RankedMutex, RankedRwLock, rank};

use super::InodeMapError;
use super::log::LogFile;
use super::record::{InodeEntry, RECORD, Record, decode_record, encode};

/// Records that wait for a log that cannot be written; beyond this the oldest knowledge is given up.
const MOST_PENDING: usize = 256 << 20;

/// How far counters leap when a log is read: more numbers than are made up between two write-backs of the kernel.
const LEAP: u64 = 1 << 20;

/// One branch: its entries, the numbers of its range that are shown elsewhere, and its log.
#[derive(Debug, Default)]
pub(super) struct Shard {
    /// There is an entry or a lent number.
    busy: AtomicBool,
    pub(super) state: RankedRwLock<rank::InodeEntries, ShardEntries>,
    /// Counter of the next made-up number.
    next_fresh: AtomicU64,
    /// Held while the log is written. Locked before `log` and `state`.
    writer: RankedMutex<rank::InodeLogWriter, ()>,
    /// Held for a moment. Locked before `state`, never after it.
    log: RankedMutex<rank::InodeLog, Log>,
    /// Records go to the log at once; otherwise only when asked (its file system may hang).
    at_once: AtomicBool,
}

/// Where the log is.
#[derive(Debug, Default)]
enum Log {
    #[default]
    Gone,
    Kept(LogFile),
    /// With the thread that writes it.
    Lent,
}

#[derive(Debug, Default)]
pub(super) struct ShardEntries {
    pub(super) entries: FxHashMap<(u64, u64), InodeEntry>,
    pub(super) lent: FxHashSet<u64>,
    /// Bytes of records that are not in the log yet.
    pending: Vec<u8>,
}

impl Shard {
    /// Whether every file of the branch has the number of its place.
    pub(super) fn is_plain(&self) -> bool {
        !self.busy.load(Ordering::Acquire)
    }

    /// Changes the state, notes `records` and writes them as soon as that is safe.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut ShardEntries, &mut Vec<Record>) -> T) -> T {
        let mut records = Vec::new();
        let (result, wrote) = {
            let mut state = self.state.write();
            let result = change(&mut state, &mut records);
            if !(state.entries.is_empty() && state.lent.is_empty()) {
                self.busy.store(true, Ordering::Release);
            }
            for record in &records {
                state.pending.extend_from_slice(&encode(record));
            }
            if state.pending.len() > MOST_PENDING {
                state.pending.clear();
            }
            (result, !records.is_empty())
        };
        if wrote && self.at_once.load(Ordering::Relaxed) {
            // What cannot be written now stays pending.
            let _ = self.flush();
        }
        result
    }

    /// A counter that no number of the branch's range has.
    pub(super) fn take_counter(&self) -> u64 {
        self.next_fresh.fetch_add(1, Ordering::Relaxed)
    }

    /// Counters below `counter` are used.
    pub(super) fn raise_counter(&self, counter: u64) {
        self.next_fresh.fetch_max(counter, Ordering::Relaxed);
    }

    /// Goes far past every counter that may have been used, also by records that a crash has lost; gives the new one.
    pub(super) fn skip_used_numbers(&self, used: u64) -> u64 {
        self.raise_counter(used);
        self.next_fresh.fetch_add(LEAP, Ordering::Relaxed) + LEAP
    }

    /// Writes what is pending.
    fn flush(&self) -> Result<(), InodeMapError> {
        let _writer = self.writer.lock();
        self.with_log(|log| self.append_pending(log))
    }

    /// Lends the log, if there is one. The caller is the writer. If it was closed meanwhile, it ends here.
    fn with_log(&self, write: impl FnOnce(&mut LogFile) -> Result<(), InodeMapError>) -> Result<(), InodeMapError> {
        let lent = {
            let mut log = self.log.lock();
            if !matches!(*log, Log::Kept(_)) {
                return Ok(());
            }
            std::mem::replace(&mut *log, Log::Lent)
        };
        let Log::Kept(mut file) = lent else { return Ok(()) };
        let done = write(&mut file);
        let mut log = self.log.lock();
        if matches!(*log, Log::Lent) {
            *log = Log::Kept(file);
        }
        done
    }

    fn append_pending(&self, log: &mut LogFile) -> Result<(), InodeMapError> {
        let bytes = std::mem::take(&mut self.state.write().pending);
        if bytes.is_empty() {
            return Ok(());
        }
        log.append(&bytes).map_err(|error| {
            let mut state = self.state.write();
            let later = std::mem::replace(&mut state.pending, bytes);
            state.pending.extend_from_slice(&later);
            error.into()
        })
    }

    /// Writes what is pending and waits for the disk.
    pub(super) fn sync(&self, hidden: BorrowedFd<'_>) -> Result<(), InodeMapError> {
        if !self.at_once.load(Ordering::Relaxed) {
            return self.sync_closed(hidden);
        }
        let file = {
            // While this thread is the writer, no other has the log: a sync that did not find it would sync nothing.
            let _writer = self.writer.lock();
            self.with_log(|log| self.append_pending(log))?;
            match &*self.log.lock() {
                Log::Kept(log) => log.file(),
                Log::Gone | Log::Lent => None,
            }
        };
        file.map_or(Ok(()), |file| rustix::fs::fdatasync(file).map_err(InodeMapError::Io))
    }

    /// As `sync`, for a log that is open only meanwhile.
    fn sync_closed(&self, hidden: BorrowedFd<'_>) -> Result<(), InodeMapError> {
        let _writer = self.writer.lock();
        if self.state.read().pending.is_empty() {
            return Ok(());
        }
        self.with_log(|log| {
            log.reopen(hidden)?;
            let done = self.append_pending(log).and_then(|()| Ok(log.sync()?));
            log.close();
            done
        })
    }

    /// Records that were never written, of an earlier life of the branch.
    pub(super) fn unwritten(&self) -> Vec<Record> {
        self.state.read().pending.chunks_exact(RECORD).map_while(decode_record).collect()
    }

    /// Waits for what an earlier life of the branch still writes: it must not land on what this one does.
    pub(super) fn await_writer(&self) {
        drop(self.writer.lock());
    }

    /// Attaches a log.
    pub(super) fn attach(&self, mut log: LogFile, at_once: bool) {
        if !at_once {
            log.close();
        }
        *self.log.lock() = Log::Kept(log);
        self.at_once.store(at_once, Ordering::Relaxed);
    }

    /// Lets the log go, and forgets the entries that are in it. Lent numbers stay lent.
    pub(super) fn detach(&self) {
        if self.at_once.load(Ordering::Relaxed) {
            let _ = self.flush();
        }
        *self.log.lock() = Log::Gone;
        self.state.write().entries = FxHashMap::default();
    }
}
