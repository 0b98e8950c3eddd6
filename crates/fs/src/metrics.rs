//! Every figure that the file system counts: one table with name, unit and meaning.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! metrics {
    ($($variant:ident = $name:literal, $help:literal;)*) => {
        /// A counter or gauge. Names are `umbrella_<part>_<noun>_<unit>`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(usize)]
        pub enum Metric {
            $(#[doc = $help] $variant,)*
        }

        /// Name and meaning of each metric, in the order of [`Metric`].
        pub const TABLE: &[(&str, &str)] = &[$(($name, $help),)*];
    };
}

metrics! {
    Relocations = "umbrella_relocations_done_count", "files moved to another branch";
    RelocationBytes = "umbrella_relocations_moved_bytes", "bytes moved to another branch";
    RelocationsPending = "umbrella_relocations_pending_count", "files waiting to be moved or being moved now (gauge)";
    Promotions = "umbrella_promotions_done_count", "files moved because a rule wants warm files";
    PromotionBytes = "umbrella_promotions_moved_bytes", "bytes of those files";
    HeatEvictions = "umbrella_heat_evictions_count", "files that a fill level sent away because they were the coldest";
    HeatEvictionBytes = "umbrella_heat_evictions_bytes", "bytes of those files";
    HeatFiles = "umbrella_heat_files_count", "files whose opens are counted (gauge)";
    RelocationsBusy = "umbrella_relocations_busy_count", "moves put off because the file was open or changing";
    RelocationsFailed = "umbrella_relocations_failed_count", "moves that failed; the file stayed where it was";
    RelocationRests = "umbrella_relocations_rests_count", "times that moves paused because programs used the disk";
    Overflows = "umbrella_overflows_done_count", "files moved under an open writer because their branch was full";
    NoRoom = "umbrella_placements_refused_count", "writes and creations refused because no allowed branch had room";
    Creates = "umbrella_files_created_count", "files created";
    Duplicates = "umbrella_duplicates_seen_count", "names found on more than one branch";
    BranchesLost = "umbrella_branches_lost_count", "times a branch went offline";
    BranchesFound = "umbrella_branches_found_count", "times a branch came online";
    StagedFiles = "umbrella_staging_created_count", "files created in the staging area";
    StagedLeft = "umbrella_staging_left_count", "files that left the staging area for their branch";
    StagedDeleted = "umbrella_staging_deleted_count", "files deleted in the staging area, which touched no disk";
    WriteBackDirty = "umbrella_write_back_dirty_bytes", "dirty or on its way to disk, on branches with a write-back policy (gauge)";
    WriteBackFlushed = "umbrella_write_back_flushed_bytes", "written back in the order of a policy";
    WriteBackRuns = "umbrella_write_back_runs_count", "calls that wrote back a run of adjacent pages";
    WriteBackCleaned = "umbrella_write_back_cleaned_bytes", "written back by others, or deleted, before its turn";
    WriteBackWaits = "umbrella_write_back_waits_count", "writes that were held back because too much was dirty";
    WriteBackErrors = "umbrella_write_back_errors_count", "write-backs that failed";
    NameWalks = "umbrella_name_walks_done_count", "walks of the tree or a part of it after names changed";
    BranchesFailing = "umbrella_branches_failing_count", "branches whose disks report errors (gauge)";
    ReadErrors = "umbrella_branch_read_errors_count", "reads by the daemon that failed as on a failing disk, since errors were last cleared";
    WriteErrors = "umbrella_branch_write_errors_count", "writes and changes by the daemon that failed in this way";
    SyncErrors = "umbrella_branch_sync_errors_count", "syncs by the daemon that failed in this way";
    KernelLogErrors = "umbrella_branch_kernel_log_errors_count", "errors of branches' disks in the kernel's log";
    FileSystemErrors = "umbrella_branch_file_system_errors_count", "errors that branches' file systems counted";
    CopiesCancelled = "umbrella_copies_cancelled_count", "copies dropped because a program wrote to the file";
}

/// The live figures of one pool.
pub struct Metrics {
    values: Vec<AtomicU64>,
}

impl Default for Metrics {
    fn default() -> Self {
        Metrics { values: TABLE.iter().map(|_| AtomicU64::new(0)).collect() }
    }
}

impl Metrics {
    /// Adds to a metric.
    pub fn add(&self, metric: Metric, amount: u64) {
        self.values[metric as usize].fetch_add(amount, Ordering::Relaxed);
    }

    /// Takes from a gauge.
    pub fn sub(&self, metric: Metric, amount: u64) {
        self.values[metric as usize].fetch_sub(amount, Ordering::Relaxed);
    }

    /// Sets a gauge, or a count that is kept elsewhere.
    pub fn set(&self, metric: Metric, value: u64) {
        self.values[metric as usize].store(value, Ordering::Relaxed);
    }

    /// The value now.
    pub fn get(&self, metric: Metric) -> u64 {
        self.values[metric as usize].load(Ordering::Relaxed)
    }

    /// All of them by name.
    pub fn all(&self) -> BTreeMap<String, u64> {
        let values = self.values.iter().map(|value| value.load(Ordering::Relaxed));
        TABLE.iter().map(|(name, _)| (*name).to_owned()).zip(values).collect()
    }
}
