//! Branches whose disks fail: how the daemon learns of disk errors, and how it reports them.
//!
//! A thread sleeps until the kernel's log or a file system reports an error. The block devices below each branch show
//! which branch the error concerns. Errors of the daemon's own calls are counted where the calls are made. The monitor
//! logs the first error, and again each time the number of errors has grown tenfold. That count is kept for the next
//! mount. `status` shows the counts.

use std::collections::BTreeMap;
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use umbrella_units::BranchId;

use crate::admin::Admin;
use crate::branch::{Branch, BranchErrors, ErrorSource, Online};
use crate::disk::devices::{DeviceStack, Sysfs};
use crate::disk::file_system;
use crate::disk::file_system::FsErrors;
use crate::disk::kernel_log::{DiskError, KernelLog};
use crate::error::Error;
use crate::ground::advice::advised;
use crate::ground::locks::{RankedMutex, rank};
use crate::metrics::Metric;
use crate::warning::{Warning, WarningSubject};

/// What is listened to.
pub(crate) struct DiskErrors {
    sysfs: Sysfs,
    log: RankedMutex<rank::DiskLog, Option<rustix::io::Result<KernelLog>>>,
    events: Option<FsErrors>,
    /// Branches that are, or were, online.
    watched: RankedMutex<rank::DiskWatched, BTreeMap<BranchId, Watched>>,
}

/// What the kernel's words are compared with.
#[derive(Debug)]
struct Watched {
    dev: u64,
    source: Option<String>,
    /// The UUID of a btrfs.
    btrfs: Option<String>,
    /// As it was when the branch came online.
    stack: DeviceStack,
    fsid: u64,
    counts: Counts,
}

/// How the errors of a file system are learned.
#[derive(Debug)]
enum Counts {
    /// It reports each.
    Reported,
    /// It counts them: the device to ask by, and how many there were.
    Read { device: String, seen: u64 },
    /// Not at all.
    Unknown,
}

impl DiskErrors {
    /// Subscribes to the kernel's messages about disks. Where the kernel refuses that (in a container, or not as root),
    /// only the other sources remain.
    pub(crate) fn subscribe() -> DiskErrors {
        let log = KernelLog::open();
        let events = FsErrors::open()
            .inspect_err(|error| tracing::info!(%error, "cannot watch file systems for their errors"))
            .ok();
        DiskErrors {
            sysfs: Sysfs::default(),
            log: RankedMutex::new(Some(log)),
            events,
            watched: RankedMutex::default(),
        }
    }

    fn watch(&self, branch: BranchId, online: &Online) {
        let source = online.source.clone();
        let is_btrfs = online.fs_type == "btrfs" && !online.guarded;
        let btrfs = if is_btrfs { file_system::btrfs_uuid(online.root()) } else { None };
        let stack = self.sysfs.below(online.dev, source.as_deref(), btrfs.as_deref());
        let mut watched = Watched { dev: online.dev, source, btrfs, stack, fsid: 0, counts: Counts::Unknown };
        // A branch that may hang is asked for no more than this.
        if !online.guarded {
            watched.fsid = rustix::fs::fstatvfs(online.root()).map_or(0, |it| it.f_fsid);
            let tells = self.events.as_ref().is_some_and(|events| events.watch(online.root()).is_ok());
            watched.counts = self.counts_of(&watched.stack, tells, &online.fs_type);
        }
        self.watched.lock().insert(branch, watched);
    }

    fn counts_of(&self, stack: &DeviceStack, tells: bool, fs_type: &str) -> Counts {
        let count = |device: &str| file_system::counted(&self.sysfs, device);
        let counter = stack.whole().find_map(|device| Some((device.to_owned(), count(device)?)));
        match counter {
            // ext4 does both, and each error is to count once.
            Some((device, seen)) if !(tells && fs_type == "ext4") => Counts::Read { device, seen },
            _ if tells => Counts::Reported,
            _ => Counts::Unknown,
        }
    }

    /// The branches that an error of a device affects.
    fn affected_branches(&self, error: &DiskError) -> Vec<BranchId> {
        let partition = error.sector.and_then(|sector| self.sysfs.partition_at(&error.device, sector));
        let watched = self.watched.lock();
        let has = |watched: &Watched| {
            // Arrays and volumes change while they are in use. A disk that was pulled out can no longer be found.
            let now = self.sysfs.below(watched.dev, watched.source.as_deref(), watched.btrfs.as_deref());
            let stack = if now == DeviceStack::default() { &watched.stack } else { &now };
            stack.has(&error.device, partition.as_deref())
        };
        watched.iter().filter(|(_, watched)| has(watched)).map(|(branch, _)| *branch).collect()
    }

    /// Branches whose file systems have counted more errors since the last time, and how many.
    fn counted(&self) -> Vec<(BranchId, u64)> {
        let mut more = Vec::new();
        for (branch, watched) in self.watched.lock().iter_mut() {
            let Counts::Read { device, seen } = &mut watched.counts else { continue };
            // A repair of the file system sets counts to 0.
            let now = file_system::counted(&self.sysfs, device).unwrap_or(*seen);
            let before = std::mem::replace(seen, now);
            if now > before {
                more.push((*branch, now - before));
            }
        }
        more
    }
}

impl Admin {
    /// Begins to watch the kernel's messages about this branch's disk.
    pub(crate) fn watch_disk(&self, branch: &Branch) {
        if let Some(online) = branch.online()
            && !self.branches.is_staging(branch.id)
        {
            self.disk_errors.watch(branch.id, &online);
        }
    }

    /// The listener's thread. It sleeps until the kernel has something to say, or the pool ends.
    pub(crate) fn run_disk_errors(&self) {
        let unwatched = |error: Errno| {
            let why = format!("the kernel's log cannot be read: {error}");
            self.context.warn(WarningSubject::DiskErrors, &Warning::DiskErrorsUnwatched { why });
        };
        let log = self.disk_errors.log.lock().take();
        let mut log = log.and_then(|log| log.map_err(unwatched).ok());
        let mut events = self.disk_errors.events.as_ref();
        while !self.context.is_stopping() && (log.is_some() || events.is_some()) {
            let fds = [Some(self.context.ends()), log.as_ref().map(AsFd::as_fd), events.map(AsFd::as_fd)];
            let mut wanted: Vec<_> =
                fds.into_iter().flatten().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
            if let Err(error) = poll(&mut wanted, None)
                && error != Errno::INTR
            {
                return unwatched(error);
            }
            if let Some(open) = &mut log
                && let Err(error) = self.read_log(open)
            {
                unwatched(error);
                log = None;
            }
            if let Some(open) = events
                && let Err(error) = self.read_events(open)
            {
                tracing::warn!(%error, "stopped watching file systems for their errors");
                events = None;
            }
        }
    }

    fn read_log(&self, log: &mut KernelLog) -> rustix::io::Result<()> {
        while let Some(error) = log.next()? {
            for branch in self.disk_errors.affected_branches(&error) {
                // The name of a device that is gone may be another's.
                if let Some(branch) = self.branches.get(branch).ok().filter(|branch| branch.is_online()) {
                    branch.note_errors(ErrorSource::KernelLog, 1, &error.line);
                }
            }
        }
        Ok(())
    }

    fn read_events(&self, events: &FsErrors) -> rustix::io::Result<()> {
        for error in events.read()? {
            let told = |watched: &Watched| watched.fsid == error.fsid && matches!(watched.counts, Counts::Reported);
            let of: Vec<_> = {
                let watched = self.disk_errors.watched.lock();
                watched.iter().filter(|(_, it)| told(it)).map(|(branch, _)| *branch).collect()
            };
            self.note_of_file_systems(of.into_iter().map(|branch| (branch, error.number)));
        }
        Ok(())
    }

    /// Reads the counters of file systems that count their errors.
    pub(crate) fn read_error_counters(&self) {
        self.note_of_file_systems(self.disk_errors.counted());
    }

    fn note_of_file_systems(&self, errors: impl IntoIterator<Item = (BranchId, u64)>) {
        for (branch, number) in errors {
            if let Ok(branch) = self.branches.get(branch) {
                branch.note_errors(ErrorSource::FileSystem, number, "its file system has counted an error");
            }
        }
    }

    /// Tells the log of branches that are failing, and keeps that for the next mount.
    pub(crate) fn report_failing(&self) {
        for branch in self.branches.all_named() {
            let Some(errors) = branch.unreported_errors() else { continue };
            tracing::warn!("{}", advised(&warning(&branch, &errors)));
            self.keep_errors_of(&branch, &errors);
        }
    }

    /// Keeps the counts for the next mount.
    pub(crate) fn keep_errors(&self) {
        for branch in self.branches.all_named() {
            self.keep_errors_of(&branch, &branch.errors());
        }
    }

    fn keep_errors_of(&self, branch: &Branch, errors: &BranchErrors) {
        if let Err(error) = self.context.state.note_errors(&branch.spec.name, errors) {
            tracing::warn!(branch = %branch.spec.name, %error, "cannot save the branch's error counts: the next mount may show old ones");
        }
    }

    /// Of branches that are failing.
    pub(crate) fn failing_warnings(&self) -> Vec<Warning> {
        let failing = self.branches.all_named().into_iter().map(|branch| (branch.errors(), branch));
        failing.filter(|(errors, _)| errors.is_failing()).map(|(errors, branch)| warning(&branch, &errors)).collect()
    }

    /// Brings the metrics of errors up to date.
    pub(crate) fn measure_errors(&self) {
        let all: Vec<_> = self.branches.all_named().iter().map(|branch| branch.errors()).collect();
        let sum = |of: fn(&BranchErrors) -> u64| all.iter().map(of).fold(0, u64::saturating_add);
        for (metric, value) in [
            (Metric::BranchesFailing, sum(|errors| u64::from(errors.is_failing()))),
            (Metric::ReadErrors, sum(|errors| errors.reads)),
            (Metric::WriteErrors, sum(|errors| errors.writes)),
            (Metric::SyncErrors, sum(|errors| errors.syncs)),
            (Metric::KernelLogErrors, sum(|errors| errors.kernel_log)),
            (Metric::FileSystemErrors, sum(|errors| errors.file_system)),
        ] {
            self.context.metrics.set(metric, value);
        }
    }

    /// Resets the error counts of a branch: it is failing no more, unless another error comes.
    pub(crate) fn clear_errors(&self, name: &str) -> Result<(), Error> {
        self.branches.named(name)?.clear_errors();
        self.context.state.note_errors(name, &BranchErrors::default()).map_err(|error| Error::Io {
            doing: format!(
                "branch {name:?}: cannot save that its errors are cleared; the next mount shows them again (run the command again)"
            ),
            source: std::io::Error::other(error),
        })
    }
}

fn warning(branch: &Branch, errors: &BranchErrors) -> Warning {
    let (name, path) = (branch.spec.name.clone(), branch.spec.path.clone());
    Warning::Failing { name, path, counted: errors.counted(), last: errors.last.clone() }
}
