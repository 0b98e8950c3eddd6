//! Errors of a branch's disk, by source: calls of the daemon that failed, and reports of the kernel.
//!
//! A branch with any is *failing*. It is used as before, and reported as failing until the user clears the counts or
//! replaces the disk.

use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use umbrella_units::Timestamp;

use crate::ground::locks::{RankedMutex, rank};

use super::{Branch, now};

/// Errors of a branch's disk since they were cleared.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BranchErrors {
    /// Calls of the daemon that read.
    pub reads: u64,
    /// Calls of the daemon that write or change.
    pub writes: u64,
    /// Calls of the daemon that make durable.
    pub syncs: u64,
    /// Lines in the kernel's log.
    pub kernel_log: u64,
    /// Counted by the file system itself.
    pub file_system: u64,
    /// When the first was seen.
    #[serde(with = "umbrella_units::seconds")]
    pub since: Option<Timestamp>,
    /// The last, for people.
    pub last: String,
}

/// Where an error was noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorSource {
    /// A call of the daemon that reads, attributes and directories too.
    Read,
    /// A call of the daemon that writes, makes, changes or removes.
    Write,
    /// A call of the daemon that makes durable.
    Sync,
    /// The kernel's log.
    KernelLog,
    /// The file system, which found its own structures unreadable or damaged.
    FileSystem,
}

/// The counts of one branch.
#[derive(Debug, Default)]
pub(super) struct Errors {
    counts: RankedMutex<rank::BranchErrors, BranchErrors>,
    /// Their number when they were last reported.
    reported: AtomicU64,
}

impl Errors {
    pub(super) fn new(known: BranchErrors) -> Errors {
        Errors { reported: AtomicU64::new(0), counts: RankedMutex::new(known) }
    }
}

impl BranchErrors {
    /// All of them.
    pub fn total(&self) -> u64 {
        [self.reads, self.writes, self.syncs, self.kernel_log, self.file_system]
            .iter()
            .fold(0, |a, b| a.saturating_add(*b))
    }

    /// Whether there was any.
    pub fn is_failing(&self) -> bool {
        self.total() > 0
    }

    fn add(&mut self, source: ErrorSource, number: u64) {
        let count = match source {
            ErrorSource::Read => &mut self.reads,
            ErrorSource::Write => &mut self.writes,
            ErrorSource::Sync => &mut self.syncs,
            ErrorSource::KernelLog => &mut self.kernel_log,
            ErrorSource::FileSystem => &mut self.file_system,
        };
        *count = count.saturating_add(number);
    }
}

/// Whether an errno speaks of the disk. What the daemon lacks, a branch that is full, read-only or away, and what the
/// caller did wrong do not.
pub(super) fn speaks_of_disk(errno: Errno) -> bool {
    // In the words of file systems the second and third are EFSCORRUPTED and EFSBADCRC.
    matches!(errno, Errno::IO | Errno::UCLEAN | Errno::BADMSG | Errno::REMOTEIO)
}

impl Branch {
    /// Takes note of a call's failure, if it speaks of the disk: it is counted, and the branch is looked at soon.
    pub(crate) fn noted<T>(&self, source: ErrorSource, done: rustix::io::Result<T>) -> rustix::io::Result<T> {
        if let Err(errno) = &done {
            self.note_errno(source, *errno);
        }
        done
    }

    /// As [`Branch::noted`], of what went past it.
    pub(crate) fn note_errno(&self, source: ErrorSource, errno: Errno) {
        if speaks_of_disk(errno) {
            let what = match source {
                ErrorSource::Write => "write",
                ErrorSource::Sync => "sync",
                _ => "read",
            };
            self.note_errors(source, 1, &format!("a {what} of the daemon failed: {errno}"));
        }
        if matches!(errno, Errno::IO | Errno::STALE | Errno::NODEV | Errno::NXIO) {
            self.note_suspect();
        }
    }

    /// Counts errors. The monitor reports them.
    pub(crate) fn note_errors(&self, source: ErrorSource, number: u64, last: &str) {
        {
            let mut counts = self.errors.counts.lock();
            counts.add(source, number);
            counts.since.get_or_insert_with(now);
            // The kernel's log says what a file system only counts.
            if counts.last.is_empty() || source != ErrorSource::FileSystem {
                last.clone_into(&mut counts.last);
            }
        }
        self.call_monitor();
    }

    /// What was counted since the branch was taken in or its counts were cleared, over remounts too.
    pub fn errors(&self) -> BranchErrors {
        self.errors.counts.lock().clone()
    }

    /// The counts, the first time that there are any and each time that there are ten times as many.
    pub(crate) fn unreported_errors(&self) -> Option<BranchErrors> {
        let errors = self.errors();
        let reported = self.errors.reported.load(Ordering::Relaxed);
        let news = errors.is_failing() && errors.total() >= reported.saturating_mul(10);
        news.then(|| {
            self.errors.reported.store(errors.total(), Ordering::Relaxed);
            errors
        })
    }

    /// Resets the counts, and says so where the branch was failing.
    pub fn clear_errors(&self) {
        self.errors.reported.store(0, Ordering::Relaxed);
        let before = std::mem::take(&mut *self.errors.counts.lock());
        if before.is_failing() {
            let (branch, errors) = (&self.spec.name, before.total());
            tracing::info!(branch, errors, "error counts reset: the branch is no longer marked as failing");
        }
    }
}

impl BranchErrors {
    /// For people: `3 reads failed, 2 errors in the kernel's log`.
    pub fn counted(&self) -> String {
        let of = |number: u64, one: &str, many: &str| match number {
            0 => None,
            1 => Some(format!("1 {one}")),
            number => Some(format!("{number} {many}")),
        };
        let counts = [
            of(self.reads, "failed read", "failed reads"),
            of(self.writes, "failed write", "failed writes"),
            of(self.syncs, "failed sync", "failed syncs"),
            of(self.kernel_log, "error in the kernel's log", "errors in the kernel's log"),
            of(self.file_system, "error of its file system", "errors of its file system"),
        ];
        counts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_daemon_lacks_and_what_a_branch_refuses_says_nothing_of_its_disk() {
        let own = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::INTR, Errno::AGAIN];
        let refused = [Errno::NOSPC, Errno::DQUOT, Errno::ROFS, Errno::NOENT, Errno::PERM, Errno::NODATA, Errno::FBIG];
        let away = [Errno::NOTCONN, Errno::TIMEDOUT, Errno::STALE, Errno::NXIO];
        assert!(own.iter().chain(&refused).chain(&away).all(|errno| !speaks_of_disk(*errno)));
        assert!([Errno::IO, Errno::UCLEAN, Errno::BADMSG].into_iter().all(speaks_of_disk));
    }

    #[test]
    fn counts_are_said_as_people_say_them() {
        let errors = BranchErrors { reads: 1, kernel_log: 3, ..BranchErrors::default() };
        assert_eq!(errors.counted(), "1 failed read, 3 errors in the kernel's log");
        assert_eq!(errors.total(), 4);
    }
}
