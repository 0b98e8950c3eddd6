//! The enforcer: walks the whole tree and moves what is in the wrong place. Needed for rules on age and on the state of
//! branches, for hard links, after rules changed, and to empty a branch. Leaves access times alone.

use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustc_hash::FxHashMap;
use umbrella_policy::placement::spec::FileKind;
use umbrella_policy::placement::{Choice, Rules};
use umbrella_units::{BranchId, ByteSize};

use super::Pool;
use super::place::settled_facts;
use super::transfer::{Cause, NotMoved};
use crate::at::DirAt;
use crate::control::protocol::{EnforceSummary, MoveEvent, MoveOutcome, Progress};
use crate::error::{Error, OpError, OpResult};
use crate::meta::Meta;
use crate::node::{Backing, Node, NodeId, path_of};
use crate::relocate::Throttle;

/// How long a walk waits for a file that is open past the mount.
const MAPPED_PATIENCE: Duration = Duration::from_millis(100);

/// What a walk is to do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Walk {
    /// Only say what would move.
    pub dry_run: bool,
    /// Bytes a second at most.
    pub bandwidth: Option<ByteSize>,
    /// Only files on this branch.
    pub only: Option<BranchId>,
}

/// One name of a file with several.
type Name = (Arc<Node>, OsString);

struct Walker<'a> {
    pool: &'a Pool,
    walk: Walk,
    throttle: Option<Throttle>,
    /// Told each step; false ends the walk.
    tell: &'a mut dyn FnMut(&Progress) -> bool,
    progress: Progress,
    summary: EnforceSummary,
    /// Files with several links, and their names as far as met.
    linked: FxHashMap<Backing, (Meta, Vec<Name>)>,
    stopped: bool,
}

impl Pool {
    /// Walks the tree. `tell` hears of each file that moves and, now and then, how far the walk is; it ends the walk by
    /// returning false.
    pub fn enforce(&self, walk: Walk, tell: &mut dyn FnMut(&Progress) -> bool) -> Result<EnforceSummary, Error> {
        let branches = self.branches.load();
        let files_total = branches.iter().filter(|branch| branch.is_online()).map(|branch| {
            let space = branch.space();
            space.files_total.saturating_sub(space.files_free)
        });
        let progress = Progress { files_total: files_total.sum(), ..Progress::default() };
        let mut walker = Walker {
            pool: self,
            walk,
            throttle: walk.bandwidth.map(Throttle::new),
            tell,
            progress,
            summary: EnforceSummary::default(),
            linked: FxHashMap::default(),
            stopped: false,
        };
        walker.run();
        Ok(walker.summary)
    }

    /// Empties a branch: nothing new goes there, and every file moves to where else it may be. `Branch::set_draining` stays on,
    /// over unmounts too, until [`Pool::stop_drain`].
    pub fn drain(&self, name: &str, tell: &mut dyn FnMut(&Progress) -> bool) -> Result<EnforceSummary, Error> {
        let branch = self.branch_named(name)?;
        let unkept = |error| Error::DrainUnkept { name: name.to_owned(), source: error };
        branch.set_draining(true).map_err(unkept)?;
        let bandwidth = self.spec.enforce.bandwidth;
        let walk = Walk { dry_run: false, bandwidth, only: Some(branch.id) };
        let summary = self.enforce(walk, &mut |progress| tell(progress) && branch.draining())?;
        if !branch.draining() {
            return Err(Error::DrainStopped { name: name.to_owned() });
        }
        let kept = self.keep_dirs(&branch);
        let unread = |source| Error::BranchUnreadable { name: name.to_owned(), source };
        let (example, twice, clash) = self.leftover_on(&branch).map_err(unread)?.into_example();
        match example {
            None => kept.map(|()| summary),
            Some(example) => Err(Error::NotDrained {
                name: name.to_owned(),
                example,
                busy: summary.files_busy,
                no_room: summary.files_no_room,
                failed: summary.files_failed,
                twice: twice.map(Box::new),
                clash: clash.map(Box::new),
            }),
        }
    }

    /// Places new files on a branch again, and ends the walk that empties it.
    pub fn stop_drain(&self, name: &str) -> Result<(), Error> {
        let unkept = |error| Error::DrainUnkept { name: name.to_owned(), source: error };
        self.branch_named(name)?.set_draining(false).map_err(unkept)
    }

    /// Directories that only a drained branch has get a copy elsewhere, so that none vanishes with it.
    pub(super) fn keep_dirs(&self, branch: &crate::branch::Branch) -> Result<(), Error> {
        // What is in the staging area does not stay either.
        let stays = |other: BranchId| other != branch.id && !self.is_staging(other);
        let Some(other) = self.branches.load().iter().find(|other| stays(other.id) && other.is_writable()).cloned()
        else {
            return Ok(());
        };
        let path_error = |node: &Arc<Node>| {
            let path = String::from_utf8_lossy(&node.path()).into_owned();
            move |source| Error::Path { path, source }
        };
        let mut stack = vec![Pinned::root(self)];
        while let Some(dir) = stack.pop() {
            let copies = self.copies(&dir.node).map_err(path_error(&dir.node))?;
            if !copies.iter().any(|copy| stays(copy.id())) {
                let _names = self.rename_lock.read();
                self.ensure_dir(&dir.node, other.id).map_err(path_error(&dir.node))?;
            }
            for entry in self.listing_of(&dir.node, 0).map_err(path_error(&dir.node))?.after(0) {
                if entry.kind == FileKind::Directory
                    && let Ok(below) = Pinned::lookup(self, &dir.node, &entry.name)
                {
                    stack.push(below);
                }
            }
        }
        Ok(())
    }
}

/// A node that is kept for as long as a walk needs it.
pub(super) struct Pinned<'a> {
    pool: &'a Pool,
    pub(super) node: Arc<Node>,
}

impl<'a> Pinned<'a> {
    pub(super) fn root(pool: &'a Pool) -> Pinned<'a> {
        Pinned::again(pool, &pool.root)
    }

    /// A node that is kept already, for longer.
    pub(super) fn again(pool: &'a Pool, node: &Arc<Node>) -> Pinned<'a> {
        node.retain();
        Pinned { pool, node: Arc::clone(node) }
    }

    pub(super) fn lookup(pool: &'a Pool, parent: &Arc<Node>, name: &std::ffi::OsStr) -> OpResult<Pinned<'a>> {
        let _names = pool.rename_lock.read();
        let (node, _) = pool.lookup_in(parent, name)?;
        Ok(Pinned { pool, node })
    }
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        if self.node.id != NodeId::ROOT {
            self.pool.nodes.release(&self.node, 1);
        }
    }
}

impl Walker<'_> {
    fn run(&mut self) {
        let pool = self.pool;
        let mut stack = vec![Pinned::root(pool)];
        while let Some(dir) = stack.pop() {
            self.visit(&dir.node, &mut |name| {
                if let Ok(below) = Pinned::lookup(pool, &dir.node, name) {
                    stack.push(below);
                }
            });
            if self.stopped {
                return;
            }
        }
        self.move_linked();
    }

    /// Looks at one directory: each copy's files where they are.
    fn visit(&mut self, dir: &Arc<Node>, descend: &mut dyn FnMut(&std::ffi::OsStr)) {
        self.progress.current = String::from_utf8_lossy(&dir.path()).into_owned();
        let copies = {
            let _names = self.pool.rename_lock.read();
            self.pool.copies(dir)
        };
        let copies = match copies {
            Ok(copies) => copies,
            Err(error) => return self.note_unread(error),
        };
        // Directories on several branches are walked once; files that just moved are not met again on the next branch.
        let mut seen = rustc_hash::FxHashSet::default();
        for copy in copies {
            let entries = copy.list(true).unwrap_or_else(|error| {
                self.note_unread(error);
                Vec::new()
            });
            for entry in entries {
                if dir.id == NodeId::ROOT && entry.name == super::HIDDEN {
                    continue;
                }
                let Ok(meta) = copy.stat(&entry.name) else { continue };
                if meta.kind == FileKind::Directory {
                    if seen.insert(entry.name.clone()) {
                        descend(&entry.name);
                    }
                    continue;
                }
                if !seen.insert(entry.name.clone()) {
                    continue;
                }
                self.progress.files_seen += 1;
                self.summary.files_seen += 1;
                if !self.stopped && self.walk.only.is_none_or(|only| only == copy.id()) && !copy.branch.spec.read_only {
                    self.look_at(dir, entry.name, &copy, &meta);
                }
                if self.progress.files_seen.is_multiple_of(256) {
                    self.tick(None);
                }
                if self.stopped {
                    return;
                }
            }
        }
        self.tick(None);
    }

    /// A directory that cannot be read is not a directory without files.
    fn note_unread(&mut self, error: OpError) {
        self.summary.files_failed += 1;
        let event = MoveEvent {
            path: self.progress.current.clone(),
            from: String::new(),
            to: String::new(),
            size: ByteSize(0),
            rule: String::new(),
            outcome: MoveOutcome::Failed,
            detail: Some(format!("the directory cannot be read: {error}")),
        };
        self.tick(Some(event));
    }

    fn tick(&mut self, event: Option<MoveEvent>) {
        self.progress.event = event;
        let go_on = (self.tell)(&self.progress) && !self.pool.stopping.load(Ordering::Relaxed);
        self.progress.event = None;
        self.stopped |= !go_on;
    }

    fn look_at(&mut self, dir: &Arc<Node>, name: OsString, copy: &DirAt, meta: &Meta) {
        if self.pool.is_staging(copy.id()) {
            return; // It is judged when it leaves.
        }
        if meta.nlink > 1 {
            // Judged when all its names are known.
            let backing = Pool::backing(&copy.branch, meta);
            self.linked.entry(backing).or_insert_with(|| (*meta, Vec::new())).1.push((Arc::clone(dir), name));
            return;
        }
        let path = path_of(dir, &name);
        let rules = self.pool.rules.load();
        let resident = self.pool.resident(&copy.branch, meta);
        let decision = rules.rules.decide(&settled_facts(&path, meta), &self.pool.views(), Some(&resident));
        let target = match decision.choice {
            Choice::Stay => return,
            Choice::NoRoom => {
                self.summary.files_no_room += 1;
                return;
            }
            Choice::Place(target) => target,
        };
        let event = self.event(&path, copy.id(), target, meta, &rules.rules, decision.entry.index());
        if self.walk.dry_run {
            self.note_moved(meta, MoveEvent { outcome: MoveOutcome::WouldMove, ..event });
            return;
        }
        let moved = match Pinned::lookup(self.pool, dir, &name) {
            Ok(file) => self.transfer(&file.node, target),
            Err(error) => Err(NotMoved::from(error)),
        };
        self.note(meta, event, moved);
    }

    /// A file that is mapped stays; one that somebody had open a moment ago moves.
    fn transfer(&self, node: &Arc<Node>, target: BranchId) -> Result<ByteSize, NotMoved> {
        match self.pool.transfer(node, target, Cause::Rule, self.throttle.as_ref()) {
            Err(NotMoved::Mapped) => {
                let throttle = self.throttle.as_ref();
                self.pool.transfer_patiently(node, target, Cause::Rule, throttle, MAPPED_PATIENCE)
            }
            done => done,
        }
    }

    fn note(&mut self, meta: &Meta, event: MoveEvent, moved: Result<ByteSize, NotMoved>) {
        match moved {
            Ok(_) => self.note_moved(meta, event),
            Err(NotMoved::NoRoom) => {
                self.summary.files_no_room += 1;
                let detail = Some("the branch has no room".to_owned());
                self.tick(Some(MoveEvent { outcome: MoveOutcome::Failed, detail, ..event }));
            }
            Err(why @ (NotMoved::Busy(_) | NotMoved::Mapped)) => {
                self.summary.files_busy += 1;
                self.tick(Some(MoveEvent { outcome: MoveOutcome::Busy, detail: Some(why.to_string()), ..event }));
            }
            Err(why) => {
                self.summary.files_failed += 1;
                self.tick(Some(MoveEvent { outcome: MoveOutcome::Failed, detail: Some(why.to_string()), ..event }));
            }
        }
    }

    fn note_moved(&mut self, meta: &Meta, event: MoveEvent) {
        let size = ByteSize(meta.size);
        self.summary.files_moved += 1;
        self.summary.bytes_moved.0 += size.0;
        self.progress.files_moved += 1;
        self.progress.bytes_moved.0 += size.0;
        self.tick(Some(event));
    }

    fn event(&self, path: &[u8], from: BranchId, to: BranchId, meta: &Meta, rules: &Rules, entry: usize) -> MoveEvent {
        MoveEvent {
            path: String::from_utf8_lossy(path).into_owned(),
            from: self.pool.branch_name(from),
            to: self.pool.branch_name(to),
            size: ByteSize(meta.size),
            rule: rules.entries().get(entry).map_or_else(String::new, |entry| entry.name.clone()),
            outcome: MoveOutcome::Moved,
            detail: None,
        }
    }

    /// Files with several links move when all their names are known, all together.
    fn move_linked(&mut self) {
        for (backing, (meta, names)) in std::mem::take(&mut self.linked) {
            if self.stopped {
                return;
            }
            let Some(path) = names.iter().map(|(dir, name)| path_of(dir, name)).min() else { continue };
            let Ok(branch) = self.pool.branch(backing.branch) else { continue };
            let rules = self.pool.rules.load();
            let resident = self.pool.resident(&branch, &meta);
            let decision = rules.rules.decide(&settled_facts(&path, &meta), &self.pool.views(), Some(&resident));
            let target = match decision.choice {
                Choice::Place(target) => target,
                Choice::Stay => continue,
                Choice::NoRoom => {
                    self.summary.files_no_room += 1;
                    continue;
                }
            };
            let event = self.event(&path, backing.branch, target, &meta, &rules.rules, decision.entry.index());
            if self.walk.dry_run {
                self.note_moved(&meta, MoveEvent { outcome: MoveOutcome::WouldMove, ..event });
                continue;
            }
            // Looking every name up tells the node of all of them.
            let pinned: Vec<_> =
                names.iter().filter_map(|(dir, name)| Pinned::lookup(self.pool, dir, name).ok()).collect();
            let moved = match pinned.first() {
                Some(file) => self.transfer(&file.node, target),
                None => Err(NotMoved::Busy("it is gone")),
            };
            self.note(&meta, event, moved);
        }
    }
}
