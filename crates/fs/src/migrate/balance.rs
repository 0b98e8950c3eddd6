//! Evens out the members of a group: one walk notes what there is, the planner says what to move, and a second walk moves it as the enforcer moves files.
//!
//! - A file moves only between members that its own rule calls equal, and not while `min_stay` holds it. So no rule moves it back.
//! - What a member holds of a directory that is kept together moves as a whole. Where several members hold some of it, it may only go to the one
//!   that holds most.
//! - A file with several names counts once, and moves with all of them. Directories that share such a file move together.
//! - What is open for writing stays, with all that would have to move with it.
//!
//! Nothing of a plan lasts: after a stop or a crash the next balance plans anew.

use rustc_hash::FxHashMap;
use umbrella_policy::balance::{self, Member, Question, Unit};
use umbrella_policy::placement::{FileFacts, Group};
use umbrella_units::{BranchId, ByteSize};

use crate::control::protocol::{BalanceSummary, EnforceSummary, MemberShare, Progress, Purpose};
use crate::error::Error;
use crate::migrate::Migrations;
use crate::migrate::enforce::{Judge, Met, Part, Walk};
use crate::node::Backing;

/// What its moves are put down to.
const NAME: &str = "balance";

/// What a balance is to do.
#[derive(Debug, Clone)]
pub(crate) struct Balance {
    pub(crate) group: String,
    /// How far apart used shares may be, in thousandths of a percent.
    pub(crate) within: u32,
    pub(crate) dry_run: bool,
    pub(crate) bandwidth: Option<ByteSize>,
}

/// What the first walk finds on the members.
pub(crate) struct Inventory {
    group: Group,
    /// Those that are evened out.
    members: Vec<BranchId>,
    units: Vec<Found>,
    /// What a member holds of a directory that is kept together.
    dirs: FxHashMap<(Box<[u8]>, BranchId), usize>,
    /// Files by themselves.
    files: FxHashMap<Backing, usize>,
}

/// What moves as a whole.
#[derive(Debug)]
struct Found {
    on: usize,
    bytes: u64,
    files: u64,
    /// Members that it could be on.
    may_be_on: Vec<usize>,
    /// It is part of this one, which may be part of another.
    joined_to: Option<usize>,
}

impl Migrations {
    /// Evens out the members of a group. `tell` hears how far it is, and ends it by returning false.
    pub(crate) fn balance(
        &self,
        balance: &Balance,
        tell: &mut dyn FnMut(&Progress) -> bool,
    ) -> Result<BalanceSummary, Error> {
        let (group, members) = self.members(&balance.group)?;
        let mut summary = BalanceSummary { members: self.shares(&members), ..BalanceSummary::default() };
        let mut inventory = Inventory {
            group: group.clone(),
            members: members.clone(),
            units: Vec::new(),
            dirs: FxHashMap::default(),
            files: FxHashMap::default(),
        };
        let (bandwidth, purpose) = (balance.bandwidth, Purpose::Balance);
        let look = Walk { dry_run: true, bandwidth, purpose, ..Walk::default() };
        let looked = self.walk_by(look, &Part::Whole, Some(&mut inventory), tell);
        take_over(&mut summary, &looked);
        if looked.stopped {
            return Ok(summary);
        }
        let planned = inventory.plan(&self.room(&members), balance.within);
        summary.bytes_planned = planned.bytes;
        if planned.bytes.0 > 0 {
            let mut moves = PlannedMoves { dirs: planned.dirs, files: planned.files, group };
            let mut tell =
                |progress: &Progress| tell(&Progress { bytes_total: Some(planned.bytes), ..progress.clone() });
            let walk = Walk { dry_run: balance.dry_run, ..look };
            take_over(&mut summary, &self.walk_by(walk, &Part::Whole, Some(&mut moves), &mut tell));
        }
        let now = self.shares(&members);
        for (((member, now), planned), id) in summary.members.iter_mut().zip(now).zip(planned.used).zip(&members) {
            member.used_after = if balance.dry_run { self.shown(*id, planned) } else { now.used };
        }
        Ok(summary)
    }

    /// A group, and those of its members that can be evened out.
    fn members(&self, name: &str) -> Result<(Group, Vec<BranchId>), Error> {
        let active = self.placement.rules.load();
        let Some(group) = active.rules.groups().iter().find(|group| group.name == name) else {
            let known = active.rules.groups().iter().map(|group| group.name.clone()).collect();
            let is_branch = self.branches.named(name).is_ok();
            return Err(Error::UnknownGroup { name: name.to_owned(), is_branch, known });
        };
        let mut members = Vec::new();
        let mut devices: FxHashMap<u64, String> = FxHashMap::default();
        for branch in group.members.iter().filter_map(|id| self.branches.get(*id).ok()) {
            let Some(online) = branch.in_use().filter(|_| branch.is_writable() && !branch.draining()) else { continue };
            if let Some(other) = devices.insert(online.dev, branch.spec.name.clone()) {
                let (group, name) = (name.to_owned(), branch.spec.name.clone());
                return Err(Error::BalanceSameFileSystem { group, name, other });
            }
            members.push(branch.id);
        }
        if members.len() < 2 {
            return Err(Error::NothingToBalance { group: name.to_owned() });
        }
        Ok((group.clone(), members))
    }

    fn shares(&self, members: &[BranchId]) -> Vec<MemberShare> {
        let share = |id: &BranchId| {
            let size = self.branches.get(*id).map_or(ByteSize(0), |branch| branch.space_now().total);
            let used = self.shown(*id, self.room_of(*id).used);
            MemberShare { branch: self.placement.branch_name(*id), size, used, used_after: used }
        };
        members.iter().map(share).collect()
    }

    /// What is used of a member as `status` counts it: with what is kept for root.
    fn shown(&self, id: BranchId, used: ByteSize) -> ByteSize {
        let kept = self.branches.get(id).map_or(0, |branch| {
            let space = branch.space_now();
            space.free_for_root.0.saturating_sub(space.free.0)
        });
        ByteSize(used.0.saturating_add(kept))
    }

    fn room(&self, members: &[BranchId]) -> Vec<Member> {
        members.iter().map(|id| self.room_of(*id)).collect()
    }

    /// How full a member is, without what is kept for root.
    fn room_of(&self, id: BranchId) -> Member {
        let Ok(branch) = self.branches.get(id) else {
            return Member { total: ByteSize(0), used: ByteSize(0), room: ByteSize(0), files: 0 };
        };
        let (space, view) = (branch.space_now(), branch.view());
        let used = space.total.0.saturating_sub(space.free_for_root.0);
        // One is for the notes of the moves.
        let files = view.inodes.map_or(u64::MAX, |inodes| inodes.free.saturating_sub(1));
        let room = if branch.takes_new() { space.free.0.saturating_sub(view.min_free.0) } else { 0 };
        let total = ByteSize(used.saturating_add(space.free.0));
        Member { total, used: ByteSize(used), room: ByteSize(room), files }
    }

    /// The branches that a file may move between without any rule moving it again; none while it is in use.
    fn equals_of(&self, file: &Met<'_>) -> Vec<BranchId> {
        let Met { names, path, branch, meta } = *file;
        let node = self.tree.nodes.find(Backing::of(branch, meta));
        let is_open = node.as_ref().and_then(|node| node.file()).is_some_and(|file| {
            let state = file.state.read();
            state.writers > 0 || state.passthrough > 0
        });
        if is_open || (names.len() as u64) < u64::from(meta.nlink) {
            return Vec::new();
        }
        let placement = &self.placement;
        let (active, views, resident) = (placement.rules.load(), placement.views(), placement.resident(branch, meta));
        let xattrs = placement.xattrs(path, meta, branch);
        let facts = FileFacts { xattrs: xattrs.as_deref(), ..placement.facts(path, meta, branch) };
        active.rules.equals(&facts, &views, &resident, &placement.around(&active))
    }
}

/// What a walk did, of the two the one that came last.
fn take_over(summary: &mut BalanceSummary, walk: &EnforceSummary) {
    summary.files_seen = walk.files_seen;
    summary.files_moved = walk.files_moved;
    summary.bytes_moved = walk.bytes_moved;
    summary.files_busy = walk.files_busy;
    summary.files_failed = walk.files_failed;
    summary.files_no_room = walk.files_no_room;
    summary.stopped = walk.stopped;
    summary.files_left = walk.files_left;
}

/// Where the files of a plan go.
struct PlannedMoves {
    group: Group,
    /// By directory that is kept together and the branch that it leaves.
    dirs: FxHashMap<(Box<[u8]>, BranchId), BranchId>,
    /// Files by themselves.
    files: FxHashMap<Backing, BranchId>,
}

impl Judge for PlannedMoves {
    fn name(&self) -> &'static str {
        NAME
    }

    fn target_of(&mut self, _: &Migrations, file: &Met<'_>) -> Option<BranchId> {
        let kept = || file.names.iter().filter_map(|name| self.group.kept_together(name));
        let of_dir = |dir: &[u8]| self.dirs.get(&(Box::from(dir), file.branch.id)).copied();
        let itself = self.files.get(&Backing::of(file.branch, file.meta)).copied();
        itself.or_else(|| kept().find_map(of_dir))
    }
}

/// Nothing moves; it is noted what could.
impl Judge for Inventory {
    fn name(&self) -> &'static str {
        NAME
    }

    fn target_of(&mut self, migrations: &Migrations, file: &Met<'_>) -> Option<BranchId> {
        self.note(migrations, file);
        None
    }
}

/// What comes of an inventory.
struct Planned {
    dirs: FxHashMap<(Box<[u8]>, BranchId), BranchId>,
    files: FxHashMap<Backing, BranchId>,
    bytes: ByteSize,
    /// On each member, at the end.
    used: Vec<ByteSize>,
}

impl Inventory {
    fn note(&mut self, migrations: &Migrations, file: &Met<'_>) {
        let Met { names, branch, meta, .. } = *file;
        let place = |id: BranchId| self.members.iter().position(|member| *member == id);
        let Some(on) = place(branch.id) else { return };
        let equals = migrations.equals_of(file);
        let may_be_on: Vec<usize> = equals.into_iter().filter_map(place).collect();
        let dirs: Vec<Box<[u8]>> =
            names.iter().filter_map(|name| self.group.kept_together(name)).map(Box::from).collect();
        let of_dirs: Vec<usize> = dirs.into_iter().map(|dir| self.unit_of_dir(dir, branch.id, on)).collect();
        let unit = if let Some((first, others)) = of_dirs.split_first() {
            for other in others {
                self.join(*first, *other);
            }
            self.root(*first)
        } else {
            let unit = self.new_unit(on);
            self.files.insert(Backing::of(branch, meta), unit);
            unit
        };
        if let Some(found) = self.units.get_mut(unit) {
            found.bytes = found.bytes.saturating_add(meta.occupied().0);
            found.files += 1;
            found.may_be_on.retain(|member| may_be_on.contains(member));
        }
    }

    fn unit_of_dir(&mut self, dir: Box<[u8]>, branch: BranchId, on: usize) -> usize {
        let next = self.units.len();
        let unit = *self.dirs.entry((dir, branch)).or_insert(next);
        if unit == next { self.new_unit(on) } else { unit }
    }

    /// One that could be on every member, as far as is known yet.
    fn new_unit(&mut self, on: usize) -> usize {
        let may_be_on = (0..self.members.len()).collect();
        self.units.push(Found { on, bytes: 0, files: 0, may_be_on, joined_to: None });
        self.units.len() - 1
    }

    fn root(&self, unit: usize) -> usize {
        let above = |unit: &usize| self.units.get(*unit).and_then(|found| found.joined_to);
        std::iter::successors(Some(unit), above).last().unwrap_or(unit)
    }

    /// Two directories share a file: they move together.
    fn join(&mut self, one: usize, other: usize) {
        let (one, other) = (self.root(one), self.root(other));
        if one == other {
            return;
        }
        let Some(joined) = self.units.get_mut(other) else { return };
        joined.joined_to = Some(one);
        let (bytes, may_be_on) = (std::mem::take(&mut joined.bytes), std::mem::take(&mut joined.may_be_on));
        let files = std::mem::take(&mut joined.files);
        if let Some(found) = self.units.get_mut(one) {
            found.bytes = found.bytes.saturating_add(bytes);
            found.files += files;
            found.may_be_on.retain(|member| may_be_on.contains(member));
        }
    }

    /// What is split may only come together: the rest goes to the member that holds most.
    fn gather_split(&mut self) {
        let mut holders: FxHashMap<&[u8], Vec<(u64, usize)>> = FxHashMap::default();
        for ((dir, _), unit) in &self.dirs {
            let root = self.root(*unit);
            let bytes = self.units.get(root).map_or(0, |found| found.bytes);
            holders.entry(dir).or_default().push((bytes, root));
        }
        let split = holders.into_values().filter(|holders| holders.len() > 1);
        let mut only = Vec::new();
        for holders in split {
            let on = |unit: usize| self.units.get(unit).map(|found| found.on);
            let most = holders.iter().max_by_key(|(bytes, unit)| (*bytes, std::cmp::Reverse(*unit)));
            let target = most.and_then(|(_, unit)| on(*unit));
            only.extend(holders.iter().map(|(_, unit)| (*unit, target)));
        }
        for (unit, target) in only {
            if let Some(found) = self.units.get_mut(unit) {
                found.may_be_on.retain(|member| Some(*member) == target);
            }
        }
    }

    fn plan(mut self, members: &[Member], within: u32) -> Planned {
        self.gather_split();
        let mut classes: Vec<Vec<usize>> = Vec::new();
        let mut known: FxHashMap<Vec<usize>, usize> = FxHashMap::default();
        let units: Vec<Unit> = self
            .units
            .iter()
            .map(|found| {
                let class = *known.entry(found.may_be_on.clone()).or_insert_with_key(|key| {
                    classes.push(key.clone());
                    classes.len() - 1
                });
                Unit { on: found.on, bytes: ByteSize(found.bytes), files: found.files, class }
            })
            .collect();
        let plan = balance::plan(&Question { members, units: &units, classes: &classes, within });
        let to: FxHashMap<usize, BranchId> =
            plan.moves.iter().filter_map(|next| Some((next.unit, *self.members.get(next.to)?))).collect();
        let bytes = plan.moves.iter().filter_map(|next| units.get(next.unit)).map(|unit| unit.bytes.0).sum();
        let root = |unit: usize| to.get(&self.root(unit)).copied();
        let dirs = self.dirs.iter().filter_map(|(dir, unit)| Some((dir.clone(), root(*unit)?))).collect();
        let files = self.files.iter().filter_map(|(file, unit)| Some((*file, root(*unit)?))).collect();
        Planned { dirs, files, bytes: ByteSize(bytes), used: plan.used }
    }
}
