//! The moves of one round, in batches, each file to where it may go by then.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustc_hash::FxHashSet;
use umbrella_policy::placement::spec::EvictOrder;
use umbrella_policy::placement::{Evict, FileFacts, Leaving, Level, Urgency};
use umbrella_units::{BranchId, ByteSize};

use crate::control::protocol::EvictStay;
use crate::error::{OpError, OpResult};
use crate::metrics::Metric;
use crate::migrate::Migrations;
use crate::migrate::batch::{MOST_BYTES, MoveResult};
use crate::migrate::evict::in_hours;
use crate::migrate::evict::look::EvictionVictim;
use crate::migrate::evict::run::EvictionRound;
use crate::migrate::moving::{MoveControl, MoveReason, NotMoved, show};
use crate::node::Backing;
use crate::placement::ActiveRules;
use crate::relocate::{MOST_FILES, Throttle};
use crate::tree::Pinned;
use crate::warning::{Warning, WarningSubject};

/// How often the hours are looked at while a file is copied.
const LOOK_AT_HOURS: Duration = Duration::from_secs(1);
/// Paths that `status` names.
const NAMED_NEXT: usize = 3;

/// A file that moves next.
struct PinnedVictim<'a> {
    /// By all its names.
    pinned: Vec<Pinned<'a>>,
    file: EvictionVictim,
}

/// Files that move together, by the branch that they go to.
type BatchesByTarget<'a> = BTreeMap<BranchId, Vec<PinnedVictim<'a>>>;

struct Evictor<'a> {
    migrations: &'a Migrations,
    active: &'a Arc<ActiveRules>,
    evict: &'a Evict,
    throttle: Option<Arc<Throttle>>,
    skip: &'a mut FxHashSet<Backing>,
    round: EvictionRound,
}

impl Migrations {
    /// Moves files, the best first, until the low mark is reached. What was tried and stays is in `skip` then.
    pub(super) fn move_victims(
        &self,
        active: &Arc<ActiveRules>,
        evict: &Evict,
        files: Vec<EvictionVictim>,
        skip: &mut FxHashSet<Backing>,
    ) -> EvictionRound {
        let throttle = self.context.settings().enforce.bandwidth.map(|bandwidth| Arc::new(Throttle::new(bandwidth)));
        let mut mover = Evictor { migrations: self, active, evict, throttle, skip, round: EvictionRound::default() };
        let mut files = VecDeque::from(files);
        while !files.is_empty() && !mover.is_over() {
            let Some(level) = self.level_now(evict).filter(|level| evict.excess(*level).0 > 0) else { break };
            let batch = mover.take(&mut files, level);
            let named = batch.values().flatten().map(|leaver| &leaver.file).chain(&files);
            let next = named.take(NAMED_NEXT).map(EvictionVictim::shown).collect();
            self.with_run(evict, |run| run.next = next);
            for (target, victims) in batch {
                let crowded_out = mover.move_to(target, victims);
                crowded_out.into_iter().rev().for_each(|file| files.push_front(file));
            }
        }
        mover.round
    }
}

impl<'a> Evictor<'a> {
    /// The hours are over, other rules are in force, or the pool ends.
    fn is_over(&mut self) -> bool {
        let is_short = self.migrations.with_run(self.evict, |run| run.on == Some(Urgency::Short));
        let is_same = Arc::ptr_eq(self.active, &self.migrations.placement.rules.load());
        self.round.is_stopped |=
            self.migrations.context.is_stopping() || !is_same || !(is_short || in_hours(self.evict));
        self.round.is_budget_spent |= self.migrations.is_budget_spent(self.evict, is_short);
        self.round.is_stopped || self.round.is_budget_spent
    }

    /// The next files that free what is still needed, or as many as move together.
    fn take(&mut self, files: &mut VecDeque<EvictionVictim>, level: Level) -> BatchesByTarget<'a> {
        let mut batch = BatchesByTarget::new();
        let mut views = self.migrations.placement.views();
        let urgency = if level.short.0 > 0 { Urgency::Short } else { Urgency::Level };
        let (mut count, mut bytes, mut frees) = (0, 0, 0);
        while count < MOST_FILES && bytes < MOST_BYTES.0 && frees < self.evict.excess(level).0 {
            let Some(file) = files.pop_front() else { break };
            let pinned = match self.pin_all(&file) {
                Ok(pinned) => pinned,
                Err(error) => {
                    self.skip.insert(file.backing);
                    tracing::debug!(path = file.shown(), %error, "it changed before it could leave");
                    continue;
                }
            };
            match self.target_of(&file, urgency, &views) {
                Leaving::To(target) => {
                    let occupied = file.meta.occupied().0;
                    if let Some(view) = views.get_mut(target.index()) {
                        view.free = ByteSize(view.free.0.saturating_sub(occupied));
                        if let Some(inodes) = &mut view.inodes {
                            inodes.free = inodes.free.saturating_sub(1);
                        }
                    }
                    (count, bytes, frees) = (count + 1, bytes + file.meta.size, frees + occupied);
                    batch.entry(target).or_default().push(PinnedVictim { pinned, file });
                }
                Leaving::NoRoom => self.stays(&file, EvictStay::NoRoom),
                Leaving::Nowhere => self.stays(&file, EvictStay::Nowhere),
                Leaving::Held => self.stays(&file, EvictStay::Held),
            }
        }
        batch
    }

    /// The file by all its names, if it is still where it was.
    fn pin_all(&self, file: &EvictionVictim) -> OpResult<Vec<Pinned<'a>>> {
        let tree = &self.migrations.tree;
        let pinned = file.paths.iter().map(|path| Pinned::at_path(tree, path)).collect::<OpResult<Vec<_>>>()?;
        let is_it = |pinned: &Pinned<'_>| pinned.node.file().is_some_and(|it| it.state.read().backing == file.backing);
        if pinned.iter().all(is_it) { Ok(pinned) } else { Err(OpError::Stale) }
    }

    /// Where it may go now: others went there since it was chosen.
    fn target_of(
        &self,
        file: &EvictionVictim,
        urgency: Urgency,
        views: &[umbrella_policy::placement::BranchView],
    ) -> Leaving {
        let placement = &self.migrations.placement;
        let Ok(branch) = self.migrations.branches.get(file.backing.branch) else { return Leaving::Nowhere };
        let Some(path) = file.paths.first() else { return Leaving::Nowhere };
        let resident = placement.resident(&branch, &file.meta);
        let xattrs = placement.xattrs(path, &file.meta, &branch);
        let facts = FileFacts { xattrs: xattrs.as_deref(), ..placement.facts(path, &file.meta, &branch) };
        let around = placement.around(self.active);
        let leaving = || self.active.rules.leaving((self.evict, urgency), &facts, views, &resident, &around);
        match leaving() {
            // Others of its directory that leave with it follow; another was faster.
            Leaving::To(target) if placement.begin_on(self.active, path, target) => leaving(),
            first => first,
        }
    }

    /// Moves files to a branch. Returns the victims that found no room there, because others took it.
    fn move_to(&mut self, target: BranchId, mut victims: Vec<PinnedVictim<'a>>) -> Vec<EvictionVictim> {
        let mut crowded_out = Vec::new();
        while !victims.is_empty() && !self.round.is_stopped {
            let nodes: Vec<_> =
                victims.iter().filter_map(|leaver| Some(Arc::clone(&leaver.pinned.first()?.node))).collect();
            let (context, evict) = (&self.migrations.context, self.evict);
            let (looked, over) = (Cell::new(Instant::now()), Cell::new(false));
            let is_short = self.migrations.with_run(evict, |run| run.on == Some(Urgency::Short));
            let stop = || {
                if looked.get().elapsed() >= LOOK_AT_HOURS {
                    looked.set(Instant::now());
                    over.set(!(is_short || in_hours(evict)));
                }
                over.get() || context.is_stopping()
            };
            let pace = MoveControl { throttle: self.throttle.as_ref(), stop: Some(&stop), ..MoveControl::default() };
            let moved = self.migrations.transfer_first(&nodes, target, MoveReason::Evict, pace);
            self.round.is_stopped |= over.get() || context.is_stopping();
            let rest = victims.split_off(moved.len().min(victims.len()));
            let has_moved = moved.iter().any(Result::is_ok);
            for (leaver, moved) in std::mem::replace(&mut victims, rest).into_iter().zip(moved) {
                if has_moved && matches!(moved, Err(NotMoved::NoRoom | NotMoved::Outdated)) {
                    crowded_out.push(leaver.file);
                } else {
                    self.note(target, &leaver, moved);
                }
            }
        }
        if !crowded_out.is_empty()
            && let Ok(branch) = self.migrations.branches.get(target)
        {
            branch.invalidate_space();
        }
        crowded_out
    }

    fn note(&mut self, target: BranchId, leaver: &PinnedVictim<'_>, moved: MoveResult) {
        let file = &leaver.file;
        match moved {
            Ok(_) => {
                let occupied = file.meta.occupied();
                if self.evict.order == EvictOrder::Coldest {
                    self.migrations.placement.note_moved_by_heat(occupied);
                    self.migrations.context.count(Metric::HeatEvictions);
                    self.migrations.context.metrics.add(Metric::HeatEvictionBytes, occupied.0);
                }
                self.round.files_moved += 1;
                self.round.bytes_moved.0 += occupied.0;
                self.migrations.with_run(self.evict, |run| {
                    run.files_moved += 1;
                    run.bytes_moved.0 += occupied.0;
                });
                tracing::debug!(path = file.shown(), to = self.migrations.placement.branch_name(target), "evicted");
            }
            // Nothing was begun.
            Err(NotMoved::Stopped) => {}
            Err(NotMoved::Busy(_)) if self.round.is_stopped => {}
            Err(NotMoved::Busy(_) | NotMoved::Mapped | NotMoved::Outdated) => self.stays(file, EvictStay::InUse),
            Err(NotMoved::NoRoom | NotMoved::Op(OpError::Offline)) => {
                if let Ok(branch) = self.migrations.branches.get(target) {
                    branch.invalidate_space();
                }
                self.stays(file, EvictStay::NoRoom);
            }
            Err(why) if why.is_gone() => {
                self.skip.insert(file.backing);
            }
            Err(why) => {
                self.stays(file, EvictStay::Failed);
                let context = &self.migrations.context;
                context.count(Metric::RelocationsFailed);
                let path = leaver.pinned.first().map_or_else(|| file.shown(), |pinned| show(&pinned.node));
                let to = self.migrations.placement.branch_name(target);
                context.warn(WarningSubject::Move(path.clone()), &Warning::NotMoved { path, to, why: why.to_string() });
            }
        }
    }

    /// A file that was tried and stays.
    fn stays(&mut self, file: &EvictionVictim, why: EvictStay) {
        self.skip.insert(file.backing);
        self.migrations.with_run(self.evict, |run| run.stays.note(why, &file.meta));
    }
}
