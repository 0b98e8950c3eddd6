//! The walks that are under way, for `status`.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::control::protocol::{Progress, Purpose, WalkStatus};
use crate::ground::locks::{RankedMutex, rank};
use crate::migrate::Migrations;

/// The walks that are under way, for those who ask what the disks are busy with.
#[derive(Default)]
pub(crate) struct Walks {
    under_way: RankedMutex<rank::EnforcerWalks, Vec<(u64, WalkStatus)>>,
    begun: AtomicU64,
}

/// One walk, until this is dropped.
pub(crate) struct WalkGuard<'a> {
    walks: &'a Walks,
    number: u64,
}

impl Migrations {
    /// For `status`.
    pub(crate) fn walks_under_way(&self) -> Vec<WalkStatus> {
        self.walks.under_way.lock().iter().map(|(_, walk)| walk.clone()).collect()
    }

    pub(crate) fn begin_walk(&self, purpose: Purpose, dry_run: bool, branch: Option<String>) -> WalkGuard<'_> {
        let number = self.walks.begun.fetch_add(1, Ordering::Relaxed);
        let status = WalkStatus { purpose, dry_run, branch, progress: Progress::default() };
        self.walks.under_way.lock().push((number, status));
        WalkGuard { walks: &self.walks, number }
    }
}

impl WalkGuard<'_> {
    pub(crate) fn note(&self, progress: &Progress) {
        if let Some((_, walk)) = self.walks.under_way.lock().iter_mut().find(|(number, _)| *number == self.number) {
            walk.progress.clone_from(progress);
        }
    }
}

impl Drop for WalkGuard<'_> {
    fn drop(&mut self) {
        self.walks.under_way.lock().retain(|(number, _)| *number != self.number);
    }
}
