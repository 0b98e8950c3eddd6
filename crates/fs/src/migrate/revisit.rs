//! Files whose rule may be another one since names changed, although no close reports it: those below a directory that
//! got another name, and files with several names.
//!
//! One thread looks at them, by walks of the enforcer ([`crate::migrate::enforce`]), one after the other:
//!
//! - The files below a renamed directory. Only the directory waits, however much is below it.
//! - Files with names that have not been looked up since the mount. A walk of the whole tree searches for the names of
//!   many files at once. Such walks take at most a tenth of the time. Where no walk can find all names of a file, no
//!   other walk is made for it.
//!
//! Nothing is walked where no rule looks at names. After a crash, or an unmount that leaves something, the enforcer
//! finds what waited.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustc_hash::FxHashSet;

use crate::control::protocol::Purpose;
use crate::ground::locks::{Condvar, LeafMutex, rank};
use crate::ground::meta::Meta;
use crate::metrics::Metric;
use crate::migrate::enforce::WalkScope;
use crate::migrate::mover::is_due;
use crate::migrate::warm::Warmed;
use crate::migrate::{Migrations, WalkOptions};
use crate::node::{Backing, Node};

/// Changes within this time are searched for by the same walk.
const GATHER: Duration = Duration::from_secs(1);
/// The pause after a search, as a multiple of the search's duration.
const PAUSE_FACTOR: u32 = 9;
/// Directories that wait at most: with more, everything is walked.
const MOST_DIRS: usize = 1024;
/// Most files that wait, and most files that are remembered because no walk can help. Others are left to the enforcer.
const MOST_FILES: usize = 1 << 16;
/// Files whose neighbours wait; those of more do not come along.
const MOST_WARMED: usize = 1024;

/// See the module.
#[derive(Default)]
pub(crate) struct Revisits {
    due: LeafMutex<rank::RevisitsDue, PendingRevisits>,
    wake: Condvar,
}

#[derive(Default)]
struct PendingRevisits {
    /// Each has a reference.
    dirs: VecDeque<Arc<Node>>,
    files: FxHashSet<Backing>,
    /// When the files are searched for, if there are any.
    search_at: Option<Instant>,
    /// No search before.
    rests_until: Option<Instant>,
    /// They have names that are not in the tree; until the enforcer has walked.
    given_up: FxHashSet<Backing>,
    is_walking: bool,
    /// Files whose neighbours come along.
    warmed: VecDeque<Warmed>,
}

impl PendingRevisits {
    /// What is walked next; `at_once`: also what has time.
    fn take(&mut self, at_once: bool) -> Option<WalkScope> {
        if let Some(dir) = self.dirs.pop_front() {
            return Some(WalkScope::Below(dir));
        }
        self.search_at.take_if(|at| at_once || *at <= Instant::now())?;
        Some(WalkScope::Files(std::mem::take(&mut self.files)))
    }
}

impl Revisits {
    /// Whether anything waits, or is being looked at.
    pub(crate) fn is_due(&self) -> bool {
        let due = self.due.lock();
        due.is_walking || !due.dirs.is_empty() || !due.files.is_empty() || !due.warmed.is_empty()
    }

    /// The neighbours of a file come along.
    pub(super) fn warm(&self, warmed: Warmed) {
        let mut due = self.due.lock();
        if due.warmed.len() < MOST_WARMED {
            due.warmed.push_back(warmed);
            self.wake.notify_all();
        }
    }

    /// Names may have been made in the tree past the mount.
    pub(crate) fn retry_given_up(&self) {
        self.due.lock().given_up.clear();
    }

    /// A file has other names than when it was searched for, or its inode is another file's.
    pub(crate) fn forget(&self, file: Backing) {
        self.due.lock().given_up.remove(&file);
    }

    /// Wakes the thread, which sees that the pool ends.
    pub(crate) fn stop(&self) {
        let _due = self.due.lock();
        self.wake.notify_all();
    }

    /// Not all names of this file are in the tree, as far as a search could tell.
    pub(crate) fn give_up(&self, file: Backing) {
        let mut due = self.due.lock();
        if due.given_up.len() < MOST_FILES {
            due.given_up.insert(file);
        }
    }
}

impl Migrations {
    /// The last name of a file is gone, or the file moved to another branch.
    pub(crate) fn note_gone(&self, backing: Backing) {
        self.write_back.forget(backing);
        self.revisits.forget(backing);
    }

    /// A directory has another name: what is below it may belong elsewhere.
    pub(crate) fn revisit_below(&self, dir: &Arc<Node>) {
        if !self.placement.rules.load().rules.asked().paths {
            return;
        }
        let mut due = self.revisits.due.lock();
        if due.dirs.iter().any(|waiting| waiting.id == dir.id) {
            return;
        }
        let mut dir = dir;
        if due.dirs.len() >= MOST_DIRS {
            due.dirs.drain(..).for_each(|node| self.tree.nodes.release(&node, 1));
            dir = &self.tree.root;
        }
        dir.retain();
        due.dirs.push_back(Arc::clone(dir));
        self.revisits.wake.notify_all();
    }

    /// A file has another name, or lost one: as [`Migrations::evaluate_soon`]. The caller holds the rename lock shared.
    /// `found`: its attributes, if they are known.
    pub(crate) fn evaluate_renamed(&self, node: &Arc<Node>, found: Option<Meta>) {
        let Some(file) = node.file().filter(|_| is_due(node)) else { return };
        self.revisits.forget(file.state.read().backing);
        let found = found.map(|found| self.tree.attr_with(node, found));
        let Some(attr) = found.or_else(|| self.tree.attr_of(node).ok()) else { return };
        self.evaluate_meta(node, &attr.meta);
        if self.placement.rules.load().rules.asked().names && file.state.read().names.len() < attr.meta.nlink as usize {
            self.search_names(node);
        }
    }

    /// One of a file's names is gone, and these attributes are left. The caller holds the rename lock shared.
    pub(crate) fn evaluate_unlinked(&self, node: &Arc<Node>, meta: &Meta) {
        let Some(file) = node.file().filter(|_| self.placement.rules.load().rules.asked().names) else { return };
        self.revisits.forget(file.state.read().backing);
        if file.state.read().names.len() < meta.nlink as usize {
            self.search_names(node);
        } else if is_due(node) {
            self.evaluate_meta(node, meta);
        }
    }

    /// Has the names of a file searched for that have not been looked up since the mount; then it is judged, and moves
    /// with all of them.
    pub(crate) fn search_names(&self, node: &Node) {
        if let Some(file) = node.file() {
            let backing = file.state.read().backing;
            self.search(backing);
        }
    }

    /// As [`Migrations::search_names`].
    pub(crate) fn search(&self, file: Backing) {
        if !self.placement.rules.load().rules.asked().names || self.branches.is_staging(file.branch) {
            return;
        }
        let mut due = self.revisits.due.lock();
        if due.given_up.contains(&file) {
            return;
        }
        if due.files.len() >= MOST_FILES {
            // The next mount looks for them.
            return self.moves_left.store(true, Ordering::Relaxed);
        }
        due.files.insert(file);
        if due.search_at.is_none() {
            let soon = Instant::now() + GATHER;
            due.search_at = Some(due.rests_until.map_or(soon, |rested| rested.max(soon)));
            self.revisits.wake.notify_all();
        }
    }

    /// The thread.
    pub(crate) fn run_revisits(&self) {
        let mut due = self.revisits.due.lock();
        while !self.context.is_stopping() {
            if let Some(warmed) = due.warmed.pop_front() {
                due.is_walking = true;
                drop(due);
                self.warm_neighbours(&warmed);
                due = self.revisits.due.lock();
                due.is_walking = false;
                continue;
            }
            if let Some(part) = due.take(false) {
                due.is_walking = true;
                drop(due);
                self.revisit(part);
                due = self.revisits.due.lock();
                due.is_walking = false;
                continue;
            }
            match due.search_at {
                Some(at) => drop(self.revisits.wake.wait_until(&mut due, at)),
                None => self.revisits.wake.wait(&mut due),
            }
        }
    }

    /// Looks at all that waits, on the calling thread.
    pub(crate) fn revisit_all(&self) {
        let warmed = std::mem::take(&mut self.revisits.due.lock().warmed);
        for warmed in &warmed {
            self.warm_neighbours(warmed);
        }
        loop {
            let part = self.revisits.due.lock().take(true);
            let Some(part) = part else { return };
            self.revisit(part);
        }
    }

    fn revisit(&self, part: WalkScope) {
        let began = Instant::now();
        self.context.count(Metric::NameWalks);
        let walk = WalkOptions {
            bandwidth: self.context.settings().enforce.bandwidth,
            purpose: Purpose::Renamed,
            ..WalkOptions::default()
        };
        let summary = self.walk(walk, &part, &mut |_| true);
        if summary.stopped {
            self.moves_left.store(true, Ordering::Relaxed);
        }
        if summary.files_moved > 0 || summary.files_failed > 0 {
            tracing::info!("moved files whose new names belong on other branches: {summary}");
        }
        match part {
            WalkScope::Whole => {}
            WalkScope::Below(dir) => self.tree.nodes.release(&dir, 1),
            WalkScope::Files(_) => {
                self.revisits.due.lock().rests_until = Some(Instant::now() + began.elapsed() * PAUSE_FACTOR);
            }
        }
    }
}
