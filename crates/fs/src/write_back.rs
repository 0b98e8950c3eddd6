//! Branches with a write-back policy: what the pool reports to their flushers, and which callers wait for them.
//!
//! A flusher lives as long as its branch is online, and knows files by their inode numbers on the branch. Every change
//! to a file's pages that passes through the daemon is reported after it was made. The kernel handles changes that
//! bypass the daemon: passthrough, and changes behind the mount's back. Such a branch gives passthrough to readers, and
//! to writers that come while one reads. A branch that may hang has no flusher: its calls run elsewhere.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use rustc_hash::{FxHashMap, FxHashSet};
use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::Errno;
use umbrella_units::{BranchId, ByteSize, FileId, PAGE_BYTES, PageIndex, Pages};
use umbrella_writeback::{FileRef, Flusher, PageRange, Settings, Status};

use crate::branch::{Branch, Branches, ErrorSource};
use crate::context::Context;
use crate::control::protocol::WriteBackStatus;
use crate::error::{Error, OpError, OpResult};
use crate::ground::advice::advised;
use crate::ground::at::{DirAt, FileAt};
use crate::ground::locks::{RankedMutex, rank};
use crate::metrics::Metric;
use crate::node::{Backing, Node};
use crate::relocate::{Durability, Limits, RelocateError};
use crate::spec::{WriteBackChange, WriteBackSpec, resolve};
use crate::warning::{Warning, WarningSubject};

/// The flushers of a pool, by branch.
pub(crate) struct WriteBack {
    context: Arc<Context>,
    branches: Arc<Branches>,
    flushers: Flushers,
}

#[derive(Default)]
struct Flushers {
    running: ArcSwap<Vec<Option<Arc<Flusher>>>>,
    /// What was chosen since the mount in place of what the configuration says.
    chosen: RankedMutex<rank::WriteBackChosen, FxHashMap<BranchId, Option<WriteBackSpec>>>,
    /// Held while that changes: of two at once each would keep what the other replaced.
    changing: RankedMutex<rank::WriteBackChange, ()>,
    /// Files whose write-back failed under a flusher that is gone. The next sync reports it.
    failed: RankedMutex<rank::WriteBackFailed, FxHashSet<(BranchId, FileId)>>,
}

impl WriteBack {
    pub(crate) fn new(context: &Arc<Context>, branches: &Arc<Branches>) -> Arc<WriteBack> {
        Arc::new(WriteBack {
            context: Arc::clone(context),
            branches: Arc::clone(branches),
            flushers: Flushers::default(),
        })
    }

    /// The flusher of a branch, if it has one.
    pub(crate) fn flusher_of_branch(&self, branch: BranchId) -> Option<Arc<Flusher>> {
        self.flushers.of(branch)
    }

    /// A file is gone from where it was: the next one with its number has nothing to do with it.
    pub(crate) fn forget(&self, backing: Backing) {
        self.flushers.forget(backing);
    }
}

/// What a thread that copies holds meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CopyLocks {
    /// Nothing that others wait for.
    Nothing,
    /// Locks.
    Locks,
}

/// Waits until the flusher lets more be written, at most as long as its gate holds writers.
fn wait_for_room(flusher: &Flusher, pages: Pages) {
    let (go, gone) = std::sync::mpsc::channel();
    flusher.when_room(pages, Box::new(move || drop(go)));
    // Ends when `go` is dropped: nothing is ever sent.
    let _: Result<(), _> = gone.recv();
}

impl Flushers {
    pub(crate) fn of(&self, branch: BranchId) -> Option<Arc<Flusher>> {
        self.running.load().get(branch.index())?.clone()
    }

    /// A file is gone: the next one with its number has nothing to do with it.
    fn forget(&self, backing: Backing) {
        if let Some(flusher) = self.of(backing.branch) {
            flusher.deleted(FileId(backing.ino));
        }
        self.failed.lock().remove(&(backing.branch, FileId(backing.ino)));
    }

    /// Puts a flusher in the place of the one that is there, which ends.
    fn replace(&self, branch: BranchId, flusher: Option<&Arc<Flusher>>) {
        let mut ended = None;
        self.running.rcu(|running| {
            let mut running = Vec::clone(running);
            running.resize(running.len().max(branch.index() + 1), None);
            if let Some(place) = running.get_mut(branch.index()) {
                ended = std::mem::replace(place, flusher.cloned());
            }
            running
        });
        if let Some(ended) = ended {
            ended.stop();
            self.failed.lock().extend(ended.take_errors().into_iter().map(|file| (branch, file)));
        }
    }
}

/// Makes a copy to a branch, which the flusher follows while it grows. With `CopyLocks::Nothing` it waits for room like
/// any writer. A copy that is synced when it is made is clean then.
pub(crate) fn copy_within_limit<T>(
    flusher: Option<Arc<Flusher>>,
    holds: CopyLocks,
    limits: Limits<'_>,
    copy: impl FnOnce(&Limits<'_>) -> Result<T, RelocateError>,
) -> Result<T, RelocateError> {
    let Some(flusher) = flusher else { return copy(&limits) };
    let made = OnceLock::new();
    let pace = |file: BorrowedFd<'_>, offset: u64, length: ByteSize| {
        let Ok(stat) = rustix::fs::fstat(file) else { return };
        let id = *made.get_or_init(|| FileId(stat.st_ino));
        let range = PageRange::of_bytes(offset, length.0);
        flusher.wrote(id, FileRef::Open(file), range);
        if holds == CopyLocks::Nothing {
            wait_for_room(&flusher, range.pages);
        }
    };
    let copied = copy(&Limits { written: Some(&pace), ..limits });
    match (made.get(), &copied) {
        (Some(id), Err(_)) => flusher.deleted(*id),
        // No process can have written it: it is in no directory of the tree yet.
        (Some(id), Ok(_)) if limits.durability == Durability::Now => flusher.synced(*id, flusher.mark()),
        _ => {}
    }
    copied
}

impl WriteBack {
    /// A branch came online: its flusher starts, if it is to have one.
    pub(crate) fn start_flusher_of(&self, branch: &Branch) {
        let chosen = self.flushers.chosen.lock().get(&branch.id).cloned();
        let wanted = chosen.unwrap_or_else(|| branch.settings().write_back.clone());
        let started = wanted.map(|wanted| self.start_flusher(branch, &wanted));
        let name = &branch.spec.name;
        match started.transpose() {
            Ok(flusher) => {
                self.flushers.replace(branch.id, flusher.as_ref());
                self.context.clear_warning(&WarningSubject::WriteBack(name.clone()));
            }
            Err(error) => {
                self.flushers.replace(branch.id, None);
                let why = advised(&error);
                self.context.warn(WarningSubject::WriteBack(name.clone()), &Warning::KernelWritesBack { why });
            }
        }
    }

    fn start_flusher(&self, branch: &Branch, wanted: &WriteBackSpec) -> Result<Arc<Flusher>, Error> {
        let failed = |reason: String| Error::WriteBack { name: branch.spec.name.clone(), reason };
        let online = branch.online().ok_or_else(|| failed("it is offline".to_owned()))?;
        if matches!(online.fs_type.as_str(), "tmpfs" | "ramfs") {
            return Err(failed(format!("{} has no disk to write back to", online.fs_type)));
        }
        if online.guarded {
            return Err(failed(format!("{} has no ordered write-back", online.fs_type)));
        }
        let settings = wanted.settings().map_err(|error| failed(error.to_string()))?;
        let root = rustix::io::fcntl_dupfd_cloexec(online.root(), 0).map_err(|error| failed(error.to_string()))?;
        Flusher::start(root, settings).map_err(|error| failed(error.to_string()))
    }

    /// A branch went offline, or the pool ends.
    pub(crate) fn stop_flusher(&self, branch: BranchId) {
        if self.flushers.of(branch).is_some() {
            self.flushers.replace(branch, None);
        }
    }

    /// Ends all flushers.
    pub(crate) fn stop_flushers(&self) {
        for branch in self.branches.list.load().iter() {
            self.stop_flusher(branch.id);
        }
    }

    /// Whether the branch has a write-back policy.
    pub(crate) fn has_flusher(&self, branch: BranchId) -> bool {
        self.flushers.of(branch).is_some()
    }

    /// The flusher of the file's branch, and the file's number there.
    fn flusher_of(&self, file: &FileAt) -> Option<(Arc<Flusher>, FileId)> {
        let flusher = self.flushers.of(file.branch.id)?;
        let stat = rustix::fs::fstat(&file.fd).ok()?;
        (stat.st_dev == file.online.dev).then_some((flusher, FileId(stat.st_ino)))
    }

    /// Bytes of a file were written.
    pub(crate) fn note_written(&self, file: &FileAt, offset: u64, length: usize) {
        if let Some((flusher, id)) = self.flusher_of(file) {
            flusher.wrote(id, FileRef::Open(file.fd.as_fd()), PageRange::of_bytes(offset, length as u64));
        }
    }

    /// A file came to a branch, and is not synced there: all of it is dirty.
    pub(crate) fn note_arrived(&self, dir: &DirAt, name: &OsStr, size: ByteSize) {
        if !self.has_flusher(dir.id()) {
            return;
        }
        // What was taken away since has nothing to tell.
        if let Ok(file) = dir.open(name, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOATIME) {
            self.note_written(&file, 0, size.0 as usize);
        }
    }

    /// Waits until the branch that a file came to has room for more dirty pages, if it has a policy. Not under locks.
    pub(crate) fn await_room(&self, node: &Node) {
        let branch = node.file().map(|file| file.state.read().backing.branch);
        if let Some(flusher) = branch.and_then(|branch| self.flushers.of(branch)) {
            wait_for_room(&flusher, Pages(1));
        }
    }

    /// Bytes of a file were read.
    pub(crate) fn note_read(&self, file: &FileAt, offset: u64, length: usize) {
        if let Some((flusher, id)) = self.flusher_of(file) {
            flusher.read(id, PageRange::of_bytes(offset, length as u64));
        }
    }

    /// A file has another length.
    pub(crate) fn note_truncated(&self, file: &FileAt, size: u64) {
        if let Some((flusher, id)) = self.flusher_of(file) {
            flusher.truncated(id, PageIndex(size.div_ceil(PAGE_BYTES)));
        }
    }

    /// Space of a file was allocated, freed or shifted.
    pub(crate) fn note_allocated(&self, file: &FileAt, mode: FallocateFlags, offset: u64, length: u64) {
        let Some((flusher, id)) = self.flusher_of(file) else { return };
        let shifts = FallocateFlags::COLLAPSE_RANGE | FallocateFlags::INSERT_RANGE;
        let frees = FallocateFlags::PUNCH_HOLE | FallocateFlags::ZERO_RANGE;
        let range = if mode.intersects(shifts) {
            PageRange { first: PageIndex(offset / PAGE_BYTES), pages: Pages(u64::MAX) }
        } else if mode.intersects(frees) {
            PageRange::of_bytes(offset, length)
        } else {
            PageRange::of_bytes(offset, 0)
        };
        flusher.extents_changed(id, range);
    }

    /// Syncs a file with `sync`, and tells that it is synced. An error that the flusher saw before the caller did is
    /// the caller's now.
    pub(crate) fn syncing(&self, file: &FileAt, sync: impl FnOnce() -> OpResult<()>) -> OpResult<()> {
        let Some((flusher, id)) = self.flusher_of(file) else {
            return sync().and_then(|()| if self.failed_before(file) { Err(OpError::Sys(Errno::IO)) } else { Ok(()) });
        };
        let mark = flusher.mark();
        let done = sync();
        let failed = flusher.take_error(id) | self.failed_before(file);
        done?;
        if failed {
            file.branch.note_errno(ErrorSource::Sync, Errno::IO);
            return Err(OpError::Sys(Errno::IO));
        }
        flusher.synced(id, mark);
        Ok(())
    }

    /// Whether a write-back of the file failed under an earlier flusher; said once.
    fn failed_before(&self, file: &FileAt) -> bool {
        let mut failed = self.flushers.failed.lock();
        !failed.is_empty()
            && rustix::fs::fstat(&file.fd).is_ok_and(|stat| failed.remove(&(file.branch.id, FileId(stat.st_ino))))
    }

    /// As `syncing`, for a whole branch.
    pub(crate) fn syncing_all(&self, branch: BranchId, sync: impl FnOnce() -> OpResult<()>) -> OpResult<()> {
        let Some(flusher) = self.flushers.of(branch) else { return sync() };
        let mark = flusher.mark();
        sync()?;
        flusher.synced_all(mark);
        Ok(())
    }

    /// Answers a write to a branch: at once, or when the branch has room for more dirty pages. Never blocks.
    pub(crate) fn when_room(
        &self,
        branch: impl FnOnce() -> Option<BranchId>,
        wrote: usize,
        answer: impl FnOnce() + Send + 'static,
    ) {
        if self.flushers.running.load().iter().all(Option::is_none) {
            return answer();
        }
        match branch().and_then(|branch| self.flushers.of(branch)) {
            Some(flusher) => flusher.when_room(PageRange::of_bytes(0, wrote as u64).pages, Box::new(answer)),
            None => answer(),
        }
    }

    /// The state of a branch's write-back; `None`: the kernel decides.
    pub(crate) fn write_back_of(&self, branch: BranchId) -> Option<Status> {
        self.flushers.of(branch).map(|flusher| flusher.status())
    }

    /// The branches of the pool with their write-back, or the one of this name.
    pub(crate) fn write_back(&self, name: Option<&str>) -> Result<Vec<WriteBackStatus>, Error> {
        let told = |branch: &Branch| WriteBackStatus {
            branch: branch.spec.name.clone(),
            write_back: self.write_back_of(branch.id),
        };
        if let Some(name) = name {
            return Ok(vec![told(&*self.branches.named(name)?)]);
        }
        Ok(self.branches.all_named().iter().map(|branch| told(branch)).collect())
    }

    /// Changes how a branch is written back, until the pool is unmounted (`None`: the kernel decides).
    pub(crate) fn set_write_back(&self, name: &str, change: Option<WriteBackChange>) -> Result<(), Error> {
        let branch = self.branches.named(name)?;
        let _one_at_a_time = self.flushers.changing.lock();
        // After a while under the kernel what is not named is as the configuration says.
        let before = self.wanted_write_back(name)?.or_else(|| branch.settings().write_back.clone());
        let wanted = change.map(|change| change.of(before.as_ref()));
        let failed = |reason: String| Error::WriteBack { name: name.to_owned(), reason };
        let settings = wanted.as_ref().map(WriteBackSpec::settings).transpose();
        let settings: Option<Settings> = settings.map_err(|error| failed(error.to_string()))?;
        match (self.flushers.of(branch.id), settings) {
            (Some(flusher), Some(settings)) => {
                let changed = flusher.set_policy(&settings.policy).and_then(|()| flusher.set_limits(settings.limits));
                changed.map_err(|error| failed(error.to_string()))?;
            }
            (Some(_), None) => self.stop_flusher(branch.id),
            (None, Some(_)) if branch.is_online() => {
                let flusher = wanted.as_ref().map(|wanted| self.start_flusher(&branch, wanted)).transpose()?;
                self.flushers.replace(branch.id, flusher.as_ref());
            }
            (None, _) => {}
        }
        self.flushers.chosen.lock().insert(branch.id, wanted);
        self.context.clear_warning(&WarningSubject::WriteBack(name.to_owned()));
        Ok(())
    }

    /// The write-back that a branch is to have: what was chosen since the mount, else what the configuration says.
    pub(crate) fn wanted_write_back(&self, name: &str) -> Result<Option<WriteBackSpec>, Error> {
        let branch = self.branches.named(name)?;
        let chosen = self.flushers.chosen.lock().get(&branch.id).cloned();
        Ok(chosen.unwrap_or_else(|| branch.settings().write_back.clone()))
    }

    /// Records what a branch's policy sees and decides, into a new file of at most `most` bytes. Without a file, the
    /// record ends.
    pub(crate) fn record_write_back(&self, name: &str, file: Option<&Path>, most: ByteSize) -> Result<(), Error> {
        let branch = self.branches.named(name)?;
        let failed = |reason: String| Error::WriteBack { name: name.to_owned(), reason };
        let nothing = || Error::NothingToRecord { name: name.to_owned() };
        let flusher = self.flushers.of(branch.id).ok_or_else(nothing)?;
        // As it is written first: in the mount, looking for links would ask this daemon.
        let mount = &self.context.spec.mount;
        if file.is_some_and(|file| file.starts_with(mount) || resolve(file).starts_with(mount)) {
            return Err(failed("a record inside the pool would record itself (name a file elsewhere)".to_owned()));
        }
        let done = match file {
            Some(_) if flusher.status().recording => {
                return Err(Error::RecordUnderWay { name: name.to_owned() });
            }
            Some(file) => flusher.record_to(file, most),
            None if !flusher.status().recording => {
                return Err(failed(
                    "no record is being written (a record ends by itself when it is full, and when the policy changes)"
                        .to_owned(),
                ));
            }
            None => flusher.end_record(),
        };
        done.map_err(|error| failed(error.to_string()))
    }

    /// Has every branch write out what it has.
    pub(crate) fn sync_branches(&self) -> OpResult<()> {
        self.sync_those(|_| true)
    }

    /// Has branches write out what they have, all at once: one that hangs keeps no other from it.
    pub(crate) fn sync_those(&self, which: impl Fn(&Branch) -> bool) -> OpResult<()> {
        let sync = |branch: &Branch| {
            let Some(online) = branch.online() else { return Ok(()) };
            let (root, taken) = (Arc::clone(&online.root), online.unsynced.take());
            let synced = self.syncing_all(branch.id, || {
                Ok(branch.noted(ErrorSource::Sync, branch.io(move |_| rustix::fs::syncfs(&*root)))?)
            });
            synced.inspect_err(|_| online.unsynced.restore(taken))
        };
        let branches = self.branches.list.load();
        std::thread::scope(|scope| {
            let wanted = branches.iter().filter(|branch| which(branch));
            let syncs: Vec<_> = wanted
                .map(|branch| {
                    let started = std::thread::Builder::new().spawn_scoped(scope, || sync(branch));
                    // Without a thread it is done here.
                    started.map_err(|_| sync(branch))
                })
                .collect();
            let panicked = |_| Err(OpError::Sys(Errno::IO));
            syncs.into_iter().try_for_each(|it| it.map_or_else(|done| done, |it| it.join().unwrap_or_else(panicked)))
        })
    }

    /// Brings the metrics of write-back up to date.
    pub(crate) fn measure_write_back(&self) {
        let statuses: Vec<Status> = self.flushers.running.load().iter().flatten().map(|it| it.status()).collect();
        let sum = |of: fn(&Status) -> u64| statuses.iter().map(of).sum();
        for (metric, value) in [
            (Metric::WriteBackDirty, sum(|status| status.dirty.0 + status.in_flight.0)),
            (Metric::WriteBackFlushed, sum(|status| status.flushed.0)),
            (Metric::WriteBackRuns, sum(|status| status.runs)),
            (Metric::WriteBackCleaned, sum(|status| status.cleaned.0)),
            (Metric::WriteBackWaits, sum(|status| status.waits)),
            (Metric::WriteBackErrors, sum(|status| status.errors)),
        ] {
            self.context.metrics.set(metric, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_goes_with_its_file_and_is_not_told_to_who_has_its_number_next() {
        let flushers = Flushers::default();
        let failed = |ino: u64| flushers.failed.lock().contains(&(BranchId(0), FileId(ino)));
        flushers.failed.lock().extend([(BranchId(0), FileId(7)), (BranchId(0), FileId(8))]);
        flushers.forget(Backing { branch: BranchId(0), foreign_dev: 1, ino: 7 });
        assert!(!failed(7));
        assert!(failed(8));
    }
}
