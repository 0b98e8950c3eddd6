//! The enforcer: walks the whole tree and moves what is in the wrong place. Needed for rules on age and on the state of
//! branches, for hard links, after rules changed, and to empty a branch. Leaves access times alone.
//!
//! 1. Directory by directory, each listed on all its branches; of several files of a name the one that users see is
//!    judged.
//! 2. Its rule says where it belongs.
//! 3. It moves as any file does ([`crate::migrate::transfer`]), at the walk's bandwidth, unless it is busy. Small files
//!    wait until there are enough with the same way, and move together ([`crate::migrate::batch`]). The room that
//!    waiting files will take is counted; a dry run only counts.
//! 4. Files of several names wait until the walk has seen all of them, then move together.
//!
//! Nothing of the walk itself lasts: one that a crash ends begins anew, and finds what was moved in its place.

mod gather;
mod placement_override;
mod planned;
mod warm;

use std::ffi::{OsStr, OsString};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustc_hash::{FxHashMap, FxHashSet};
use umbrella_policy::placement::spec::FileKind;
use umbrella_policy::placement::{Choice, FileFacts, Rules, Selection, Slot};
use umbrella_units::{BranchId, ByteSize};

use crate::branch::Branch;
use crate::control::protocol::{
    EnforceSummary, MoveEvent, MoveOutcome, Progress, Purpose, WalkStatus, bytes_unless_text,
};
use crate::error::{OpError, OpResult};
use crate::ground::at::DirAt;
use crate::ground::locks::{RankedMutex, rank};
use crate::ground::meta::Meta;
use crate::migrate::Migrations;
use crate::migrate::batch::MoveResult;
use crate::migrate::enforce::gather::{MisplacedFile, MovesByRoute};
use crate::migrate::enforce::planned::Planned;
use crate::migrate::enforce::warm::{MOST_WARM, WarmFile};
use crate::migrate::moving::{MoveReason, NotMoved};
use crate::node::{Backing, Node, NodeId, path_of};
use crate::relocate::{RelocateError, Throttle};
use crate::tree::Pinned;
use crate::warning::WarningSubject;

use placement_override::Target;
pub(crate) use placement_override::{PlacementOverride, VisitedFile};

/// What a walk is to do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WalkOptions {
    /// Only say what would move.
    pub dry_run: bool,
    /// Bytes a second at most.
    pub bandwidth: Option<ByteSize>,
    /// Only files on this branch.
    pub only: Option<BranchId>,
    /// What `status` says of it.
    pub purpose: Purpose,
}

/// What of the tree is walked.
pub(crate) enum WalkScope {
    Whole,
    /// What is below a directory.
    Below(Arc<Node>),
    /// These files, wherever their names are.
    Files(FxHashSet<Backing>),
}

/// One name of a file with several.
type Name = (Arc<Node>, OsString);

struct EnforceWalker<'a> {
    migrations: &'a Migrations,
    walk: WalkOptions,
    /// In place of the rules.
    placement_override: Option<&'a mut dyn PlacementOverride>,
    throttle: Option<Arc<Throttle>>,
    /// Told each step; false ends the walk.
    tell: &'a mut dyn FnMut(&Progress) -> bool,
    progress: Progress,
    summary: EnforceSummary,
    /// Only these files, for their names.
    sought: Option<FxHashSet<Backing>>,
    /// Other names of what it meets may be outside of what is walked.
    is_part: bool,
    /// Files with several links, and their names as far as met.
    linked: FxHashMap<Backing, (Meta, Vec<Name>)>,
    stopped: bool,
    under_way: WalkGuard<'a>,
    /// The moves that wait, or that a dry run has told.
    planned: Planned,
    /// Small files that wait for others with the same way.
    gathered: MovesByRoute<'a>,
    /// Files that move because they are warm: the warmest first, when all are known.
    warm: Selection<WarmFile>,
}

impl Migrations {
    /// Walks the tree. `tell` receives each file that moves and, now and then, how far the walk is. It ends the walk by
    /// returning false, even in the middle of a file: what was copied of that file is dropped.
    pub(crate) fn enforce(&self, walk: WalkOptions, tell: &mut dyn FnMut(&Progress) -> bool) -> EnforceSummary {
        let summary = self.walk(walk, &WalkScope::Whole, tell);
        if !summary.stopped && walk.only.is_none() && summary.files_no_room == 0 {
            self.context.clear_warning(&WarningSubject::Misplaced);
        }
        self.revisits.retry_given_up();
        // Makes changes on the branches themselves visible.
        if let Some(kernel) = self.context.kernel.get() {
            kernel.drop_names();
        }
        summary
    }

    /// As `enforce`, of a part of the tree.
    pub(crate) fn walk(
        &self,
        walk: WalkOptions,
        part: &WalkScope,
        tell: &mut dyn FnMut(&Progress) -> bool,
    ) -> EnforceSummary {
        self.walk_with_override(walk, part, None, tell)
    }

    /// As `walk`, but `placement_override` decides in place of the rules.
    pub(crate) fn walk_with_override<'a>(
        &'a self,
        walk: WalkOptions,
        part: &'a WalkScope,
        placement_override: Option<&'a mut dyn PlacementOverride>,
        tell: &'a mut dyn FnMut(&Progress) -> bool,
    ) -> EnforceSummary {
        let (root, sought) = match part {
            WalkScope::Whole => (&self.tree.root, None),
            WalkScope::Below(dir) => (dir, None),
            WalkScope::Files(files) => (&self.tree.root, Some(files.clone())),
        };
        let inodes_total = if root.id == NodeId::ROOT { self.inodes_in_use() } else { None };
        let mut walker = EnforceWalker {
            migrations: self,
            walk,
            placement_override,
            throttle: walk.bandwidth.map(|bandwidth| Arc::new(Throttle::new(bandwidth))),
            tell,
            progress: Progress { inodes_total, ..Progress::default() },
            summary: EnforceSummary::default(),
            sought,
            is_part: matches!(part, WalkScope::Below(_)),
            linked: FxHashMap::default(),
            stopped: false,
            under_way: self.begin_walk(
                walk.purpose,
                walk.dry_run,
                walk.only.map(|branch| self.placement.branch_name(branch)),
            ),
            planned: Planned::default(),
            gathered: MovesByRoute::default(),
            warm: Selection::new(ByteSize(u64::MAX), MOST_WARM),
        };
        walker.run(Pinned::again(&self.tree, root));
        walker.summary.stopped = walker.stopped;
        walker.summary.files_left += walker.gathered.len();
        if walker.stopped {
            tracing::info!(moved = walker.summary.files_moved, "the walk was stopped before its end");
        }
        walker.summary
    }

    /// How many inodes a walk will meet, if the branches have their file systems for themselves.
    fn inodes_in_use(&self) -> Option<u64> {
        let branches = self.branches.list.load();
        let in_use = |branch: &Arc<Branch>| {
            let own = branch.online().map(|online| online.is_mount)?;
            let space = branch.space();
            Some((own && space.files_total > 0).then(|| space.files_total.saturating_sub(space.files_free)))
        };
        branches.iter().filter_map(in_use).sum()
    }
}

fn rule_name(rules: &Rules, entry: usize) -> String {
    rules.entries().get(entry).map_or_else(String::new, |entry| entry.name.clone())
}

/// Whether it, or its directory, was deleted or renamed since the walk visited it.
fn is_gone(found: &OpResult<Pinned<'_>>) -> bool {
    found.as_ref().is_err_and(|error| error.is_missing() || *error == OpError::Stale)
}

impl EnforceWalker<'_> {
    fn run(&mut self, root: Pinned<'_>) {
        let migrations = self.migrations;
        // Copies that changed are compared again, as those of all directories below are when they are found. That this
        // one cannot be read is noted at the visit.
        let _attr = {
            let _names = migrations.tree.rename_lock.read();
            migrations.tree.attr_of(&root.node)
        };
        let mut stack = vec![root];
        while let Some(dir) = stack.pop() {
            let mut below = Vec::new();
            self.visit(&dir.node, &mut |name| below.push(name.to_owned()));
            for name in below {
                match Pinned::lookup(&migrations.tree, &dir.node, &name) {
                    Ok(below) => stack.push(below),
                    Err(error) if is_gone(&Err(error)) => {}
                    Err(error) => self.note_unread(&path_of(&dir.node, &name), error),
                }
            }
            if self.stopped {
                return;
            }
        }
        self.move_gathered();
        self.move_warm();
        self.move_linked();
    }

    /// Looks at one directory: each copy's files where they are.
    fn visit(&mut self, dir: &Arc<Node>, descend: &mut dyn FnMut(&OsStr)) {
        self.move_overdue();
        self.progress.current = String::from_utf8_lossy(&dir.path()).into_owned();
        let copies = {
            let _names = self.migrations.tree.rename_lock.read();
            self.migrations.tree.copies(dir)
        };
        let copies = match copies {
            Ok(_) if dir.is_removed() => return,
            Ok(copies) => copies,
            Err(error) if error.is_missing() => return,
            Err(error) => return self.note_unread(&dir.path(), error),
        };
        self.progress.inodes_seen += copies.len() as u64;
        for (name, copy) in self.names_in(dir, &copies) {
            // Of several files of one name, what users see is judged, as it is what would move.
            let found = match copy {
                Some(copy) => match copy.stat(&name) {
                    Ok(meta) => Some((copy.clone(), meta)),
                    Err(error) => {
                        if !error.is_missing() {
                            self.note_unread(&path_of(dir, &name), error);
                        }
                        None
                    }
                },
                None => self.visible_entry(dir, &name),
            };
            let Some((copy, meta)) = found else { continue };
            if meta.kind == FileKind::Directory {
                descend(&name);
                continue;
            }
            self.progress.files_seen += 1;
            self.progress.inodes_seen += 1;
            self.summary.files_seen += 1;
            if self.walk.only.is_none_or(|only| only == copy.id()) && !copy.branch.settings().read_only {
                self.visit_file(dir, name, &copy, &meta);
            }
            if self.progress.files_seen.is_multiple_of(256) {
                self.tick(None);
            }
            if self.stopped {
                return;
            }
        }
        self.tick(None);
    }

    /// Every name once, with the copy that has it, or none where several have.
    fn names_in<'c>(&mut self, dir: &Arc<Node>, copies: &'c [DirAt]) -> Vec<(OsString, Option<&'c DirAt>)> {
        let mut names: Vec<(OsString, Option<&DirAt>)> = Vec::new();
        let mut met: FxHashMap<OsString, usize> = FxHashMap::default();
        for copy in copies {
            let entries = copy.list(true).unwrap_or_else(|error| {
                self.note_unread(&dir.path(), error);
                Vec::new()
            });
            for entry in entries {
                if dir.id == NodeId::ROOT && entry.name == crate::branch::HIDDEN_DIR {
                    continue;
                }
                if copies.len() > 1 {
                    if let Some((_, holder)) = met.get(&entry.name).and_then(|at| names.get_mut(*at)) {
                        *holder = None;
                        continue;
                    }
                    met.insert(entry.name.clone(), names.len());
                }
                names.push((entry.name, Some(copy)));
            }
        }
        names
    }

    /// The entry that users see under a name that several branches have.
    fn visible_entry(&self, dir: &Arc<Node>, name: &OsStr) -> Option<(DirAt, Meta)> {
        let _names = self.migrations.tree.rename_lock.read();
        self.migrations.tree.probe(dir, name).ok()??.at.into_iter().next()
    }

    /// What cannot be looked at: a file, or a directory, which is then not one without files.
    fn note_unread(&mut self, path: &[u8], error: OpError) {
        self.summary.files_failed += 1;
        let event = MoveEvent {
            path: String::from_utf8_lossy(path).into_owned(),
            path_bytes: bytes_unless_text(path),
            from: String::new(),
            to: String::new(),
            size: ByteSize(0),
            rule: String::new(),
            outcome: MoveOutcome::Failed,
            detail: Some(format!("it cannot be read: {error}")),
        };
        self.tick(Some(event));
    }

    fn tick(&mut self, event: Option<MoveEvent>) {
        self.under_way.note(&self.progress);
        self.progress.event = event;
        let go_on = (self.tell)(&self.progress) && !self.migrations.context.is_stopping();
        self.progress.event = None;
        self.progress.is_followed = false;
        self.stopped |= !go_on;
    }

    fn visit_file(&mut self, dir: &Arc<Node>, name: OsString, copy: &DirAt, meta: &Meta) {
        if self.migrations.branches.is_staging(copy.id()) {
            // It is judged when it leaves, which is now if it must be nowhere else.
            if let Ok(file) = Pinned::lookup(&self.migrations.tree, dir, &name).as_ref() {
                self.migrations.evaluate_staged(&file.node, meta);
            }
            return;
        }
        let backing = Backing::of(&copy.branch, meta);
        let is_sought = self.sought.as_ref().map(|sought| sought.contains(&backing));
        if is_sought == Some(false) {
            return;
        }
        if meta.nlink > 1 || is_sought == Some(true) {
            // Judged when all its names are known.
            self.linked.entry(backing).or_insert_with(|| (*meta, Vec::new())).1.push((Arc::clone(dir), name));
            return;
        }
        let path = path_of(dir, &name);
        let found = VisitedFile { names: std::slice::from_ref(&path), path: &path, branch: &copy.branch, meta };
        let Some(Target { branch: target, event, warmth }) = self.target_of(&found) else { return };
        if let Some(warmth) = warmth.filter(|_| !self.walk.dry_run) {
            let found = WarmFile { dir: Arc::clone(dir), name, meta: *meta, event };
            return self.warm.offer(-i128::from(warmth.0), meta.occupied(), found);
        }
        if self.walk.dry_run {
            if self.is_taken(dir, &name, target) {
                self.note(meta, event, Err(NotMoved::Failed(RelocateError::Taken)));
            } else {
                self.note_moved(meta, MoveEvent { outcome: MoveOutcome::WouldMove, ..event });
            }
            return;
        }
        match Pinned::lookup(&self.migrations.tree, dir, &name) {
            // Since it was looked at it was moved, or a newer one of its name came.
            Ok(file) if file.node.file().is_some_and(|file| file.state.read().backing.branch == target) => {}
            Ok(file) => {
                let found = MisplacedFile { file, dir: Arc::clone(dir), name, meta: *meta, event };
                self.gather([copy.id(), target], found);
            }
            Err(error) => self.note_unless_gone((dir, &name), meta, event, Err(NotMoved::from(error))),
        }
    }

    /// Notes the outcome of a file, unless it was deleted meanwhile.
    fn note_unless_gone(
        &mut self,
        (dir, name): (&Arc<Node>, &OsStr),
        meta: &Meta,
        event: MoveEvent,
        moved: MoveResult,
    ) {
        let is_missing = moved.as_ref().is_err_and(NotMoved::is_gone);
        if !(is_missing && is_gone(&Pinned::lookup(&self.migrations.tree, dir, name))) {
            self.note(meta, event, moved);
        }
    }

    /// Whether the branch that a file is to go to has another of its name.
    fn is_taken(&self, dir: &Arc<Node>, name: &OsStr, target: BranchId) -> bool {
        let _names = self.migrations.tree.rename_lock.read();
        let found = self.migrations.tree.dir_at(dir, target).and_then(|dir| dir.find(name));
        found.is_ok_and(|found| found.is_some())
    }

    /// Where a file belongs that is not there and could go; counts those that could not.
    fn by_rules(&mut self, path: &[u8], branch: &Branch, meta: &Meta) -> Option<Target> {
        let active = self.migrations.placement.rules.load();
        let placement = &self.migrations.placement;
        let xattrs = placement.xattrs(path, meta, branch);
        let settled = placement.facts(path, meta, branch);
        let (facts, resident) = (FileFacts { xattrs: xattrs.as_deref(), ..settled }, placement.resident(branch, meta));
        let mut views = self.migrations.placement.views();
        self.planned.apply(&mut views);
        let around = self.migrations.placement.around(&active);
        let around = self.planned.around(&around);
        let decide = || active.rules.decide(&facts, &views, Some(&resident), &around);
        let mut decision = decide();
        if !self.walk.dry_run && placement.begin(&active, path, decision) {
            decision = decide();
        }
        match decision.choice {
            Choice::Place(target) => {
                self.planned.advance_round_robin(active.rules.groups(), target);
                if self.walk.dry_run {
                    self.planned.plan_move(active.rules.groups(), path, [branch.id, target], meta.occupied());
                }
                let rule = rule_name(&active.rules, decision.entry.index());
                let event = self.event(path, [branch.id, target], meta, rule);
                let warmth = active.rules.promotes(decision.entry).then_some(facts.heat);
                return Some(Target { branch: target, event, warmth });
            }
            Choice::NoRoom => {
                self.summary.files_no_room += 1;
                if active.rules.is_misplaced(decision, branch.id) {
                    self.migrations.placement.warn_misplaced(path, branch, decision.entry);
                }
                self.note_no_room(path, branch, meta, &active.rules, decision.entry.index());
            }
            Choice::Stay => {}
        }
        None
    }

    fn note_no_room(&mut self, path: &[u8], branch: &Branch, meta: &Meta, rules: &Rules, entry: usize) {
        let slots = rules.entries().get(entry).map_or(&[][..], |entry| &entry.to);
        let first = slots.iter().flat_map(Slot::members).find(|to| *to != branch.id);
        let mut event = self.event(path, [branch.id, first.unwrap_or(branch.id)], meta, rule_name(rules, entry));
        if first.is_none() {
            event.to.clear();
        }
        let detail =
            Some("no branch of its list can take it: each is full, offline or takes no new files; it stays".to_owned());
        self.tick(Some(MoveEvent { outcome: MoveOutcome::NoRoom, detail, ..event }));
    }

    fn note(&mut self, meta: &Meta, event: MoveEvent, moved: Result<ByteSize, NotMoved>) {
        match moved {
            Ok(_) => self.note_moved(meta, event),
            Err(NotMoved::NoRoom) => {
                self.summary.files_no_room += 1;
                let detail = Some("the branch has no room".to_owned());
                self.tick(Some(MoveEvent { outcome: MoveOutcome::NoRoom, detail, ..event }));
            }
            Err(why @ (NotMoved::Busy(_) | NotMoved::Stopped | NotMoved::Mapped | NotMoved::Outdated)) => {
                let counted = if self.stopped { &mut self.summary.files_left } else { &mut self.summary.files_busy };
                *counted += 1;
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

    fn event(&self, path: &[u8], [from, to]: [BranchId; 2], meta: &Meta, rule: String) -> MoveEvent {
        MoveEvent {
            path: String::from_utf8_lossy(path).into_owned(),
            path_bytes: bytes_unless_text(path),
            from: self.migrations.placement.branch_name(from),
            to: self.migrations.placement.branch_name(to),
            size: ByteSize(meta.size),
            rule,
            outcome: MoveOutcome::Moved,
            detail: None,
        }
    }

    /// Which name of a file with several decides.
    fn deciding<'p>(&self, paths: &'p [Vec<u8>], branch: &Branch, meta: &Meta) -> Option<&'p [u8]> {
        let (active, views) = (self.migrations.placement.rules.load(), self.migrations.placement.views());
        let resident = self.migrations.placement.resident(branch, meta);
        let xattrs = paths.first().and_then(|path| self.migrations.placement.xattrs(path, meta, branch));
        let facts = FileFacts { xattrs: xattrs.as_deref(), ..self.migrations.placement.facts(b"", meta, branch) };
        active.rules.deciding_name(paths.iter().map(Vec::as_slice), &facts, &views, Some(&resident))
    }

    /// Files with several links move when all their names are known, all together.
    fn move_linked(&mut self) {
        for (backing, (meta, names)) in std::mem::take(&mut self.linked) {
            if self.stopped {
                return;
            }
            if names.len() < meta.nlink as usize {
                if self.is_part {
                    self.migrations.search(backing);
                    continue;
                }
                if self.sought.is_some() {
                    self.migrations.revisits.give_up(backing);
                }
            }
            let Ok(branch) = self.migrations.branches.get(backing.branch) else { continue };
            let paths: Vec<_> = names.iter().map(|(dir, name)| path_of(dir, name)).collect();
            let Some(path) = self.deciding(&paths, &branch, &meta) else { continue };
            let found = VisitedFile { names: &paths, path, branch: &branch, meta: &meta };
            let Some(Target { branch: target, event, warmth }) = self.target_of(&found) else { continue };
            if self.walk.dry_run {
                self.note_moved(&meta, MoveEvent { outcome: MoveOutcome::WouldMove, ..event });
                continue;
            }
            // Looking every name up tells the node of all of them.
            let (pinned, missed): (Vec<_>, Vec<_>) = names
                .iter()
                .map(|(dir, name)| Pinned::lookup(&self.migrations.tree, dir, name))
                .partition(Result::is_ok);
            let moved = match (pinned.iter().flatten().next(), missed.iter().find(|missed| !is_gone(missed))) {
                (Some(_), _) if warmth.is_some() && !self.migrations.placement.may_move_by_heat() => continue,
                (Some(file), _) => self.transfer(
                    &file.node,
                    target,
                    if warmth.is_some() { MoveReason::Warm } else { MoveReason::Rule },
                ),
                (None, Some(Err(error))) => Err(NotMoved::from(*error)),
                (None, _) => continue,
            };
            self.note(&meta, event, moved);
        }
    }
}

/// The walks that are under way, for `status`.
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
