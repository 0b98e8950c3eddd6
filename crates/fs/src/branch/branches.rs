//! The branches of a pool: which there are, and which of them can be used.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use umbrella_units::BranchId;

use crate::branch::{Branch, Online};
use crate::context::Context;
use crate::error::{Error, OpError, OpResult};
use crate::ground::locks::{RankedMutex, rank};
use crate::ground::wakeup::{Activity, Wakeup};
use crate::spec::STAGING;

/// See the module.
pub(crate) struct Branches {
    context: Arc<Context>,
    /// By id; a removed branch stays as a tombstone, so that ids are never reused.
    pub(crate) list: ArcSwap<Vec<Arc<Branch>>>,
    /// Held during a change of the branches. By branch the epoch that the tree knows.
    pub(crate) known_epochs: RankedMutex<rank::Branches, Vec<Option<u64>>>,
    /// Counts changes of which branches are online.
    pub(crate) topology: AtomicU64,
    /// Wakes the monitor.
    pub(crate) wakeup: Arc<Wakeup>,
    /// Use of the tree, for the thread that checks fill levels.
    pub(crate) levels: Activity,
    /// Whether the tree was used since the branches were checked last.
    pub(crate) used: AtomicBool,
    staging: OnceLock<BranchId>,
}

impl Branches {
    /// `staging`: the one of them that is the staging area.
    pub(crate) fn new(context: &Arc<Context>, list: Vec<Arc<Branch>>, staging: Option<BranchId>) -> Arc<Branches> {
        let wakeup = Arc::default();
        for branch in &list {
            branch.set_wakeup(&wakeup);
        }
        Arc::new(Branches {
            context: Arc::clone(context),
            list: ArcSwap::from_pointee(list),
            known_epochs: RankedMutex::default(),
            topology: AtomicU64::new(1),
            wakeup,
            levels: Activity::default(),
            used: AtomicBool::new(false),
            staging: staging.map_or_else(OnceLock::new, OnceLock::from),
        })
    }

    /// A branch by id.
    pub(crate) fn get(&self, id: BranchId) -> OpResult<Arc<Branch>> {
        self.list.load().get(id.index()).cloned().ok_or(OpError::Offline)
    }

    /// A branch by name; removed ones are no longer found.
    pub(crate) fn named(&self, name: &str) -> Result<Arc<Branch>, Error> {
        let branches = self.list.load();
        // The staging area is no branch that a user could name.
        let named = |branch: &&Arc<Branch>| branch.spec.name == name && !self.is_staging(branch.id);
        branches.iter().find(named).cloned().ok_or_else(|| Error::UnknownBranch {
            name: name.to_owned(),
            known: branches
                .iter()
                .map(|branch| branch.spec.name.as_str())
                .filter(|name| !name.is_empty() && *name != STAGING)
                .collect::<Vec<_>>()
                .join(", "),
        })
    }

    /// Branches of the pool and the staging area, without those that were removed.
    pub(crate) fn all(&self) -> Vec<Arc<Branch>> {
        self.list.load().iter().filter(|branch| !branch.spec.name.is_empty()).cloned().collect()
    }

    /// Branches that a person could speak of.
    pub(crate) fn all_named(&self) -> Vec<Arc<Branch>> {
        self.all().into_iter().filter(|branch| !self.is_staging(branch.id)).collect()
    }

    /// Names of the branches that a person could speak of, and for which this holds.
    pub(crate) fn names_of(&self, holds: impl Fn(&Branch) -> bool) -> Vec<String> {
        self.all_named().iter().filter(|branch| holds(branch)).map(|branch| branch.spec.name.clone()).collect()
    }

    pub(crate) fn online(&self) -> Vec<(Arc<Branch>, Arc<Online>)> {
        let branches = self.list.load();
        branches.iter().filter_map(|branch| Some((Arc::clone(branch), branch.online()?))).collect()
    }

    /// Whether a file is open whose writes the daemon does not see.
    pub(crate) fn any_written_past_daemon(&self) -> bool {
        self.online().iter().any(|(_, online)| online.unsynced.has_writers())
    }

    /// Whether this is the staging area.
    pub(crate) fn is_staging(&self, branch: BranchId) -> bool {
        self.staging.get() == Some(&branch)
    }

    /// This is the staging area; there was none. Before it is in the list.
    pub(crate) fn set_staging(&self, branch: BranchId) {
        let was_none = self.staging.set(branch).is_ok();
        debug_assert!(was_none, "one reload at a time");
    }

    /// A branch is missing, and that is to be seen (UmbrellaFS: OR semantics).
    pub(crate) fn is_incomplete(&self) -> bool {
        self.context.is_strict()
            && self.list.load().iter().any(|branch| !branch.spec.name.is_empty() && branch.in_use().is_none())
    }

    /// Notes that the tree is in use, so that its branches are checked as often as configured.
    pub(crate) fn note_use(&self) {
        if !self.used.load(Ordering::Relaxed) && !self.used.swap(true, Ordering::Relaxed) {
            self.wakeup.wake();
        }
        self.levels.note();
    }
}
