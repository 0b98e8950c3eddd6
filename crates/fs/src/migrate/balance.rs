//! Evens out the members of a group: one walk notes what there is, the planner says what to move, and a second walk
//! moves it as the enforcer moves files.
//!
//! - A file moves only between members that its own rule calls equal, and not while `min_stay` holds it. So no rule
//!   moves it back.
//! - What a member holds of a directory that is kept together moves as a whole. Where several members hold some of it,
//!   it may only go to the one that holds most.
//! - A file with several names counts once, and moves with all of them. Directories that share such a file move
//!   together.
//! - What is open for writing stays, with all that would have to move with it.
//!
//! Nothing of a plan lasts: after a stop or a crash the next balance plans anew.

use rustc_hash::FxHashMap;
use umbrella_policy::balance::{Inventory, InventoryFile, Member, Moves};
use umbrella_policy::placement::{FileFacts, Group};
use umbrella_units::{BranchId, ByteSize};

use crate::control::protocol::{BalanceSummary, EnforceSummary, MemberShare, Progress, Purpose};
use crate::error::Error;
use crate::migrate::Migrations;
use crate::migrate::enforce::{PlacementOverride, VisitedFile, WalkOptions, WalkScope};
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

/// The members that are evened out, of a group.
struct BalancedMembers {
    group: Group,
    members: Vec<BranchId>,
}

/// The first walk: it notes what is on the members.
struct BalanceInventory {
    evened: BalancedMembers,
    inventory: Inventory<Backing>,
}

/// The second walk: the files of a plan move.
struct BalanceMover {
    evened: BalancedMembers,
    moves: Moves<Backing>,
}

impl Migrations {
    /// Evens out the members of a group. `tell` hears how far it is, and ends it by returning false.
    pub(crate) fn balance(
        &self,
        balance: &Balance,
        tell: &mut dyn FnMut(&Progress) -> bool,
    ) -> Result<BalanceSummary, Error> {
        let evened = self.evened(&balance.group)?;
        let members = evened.members.clone();
        let mut summary = BalanceSummary { members: self.shares(&members), ..BalanceSummary::default() };
        let mut noting = BalanceInventory { evened, inventory: Inventory::new(members.len()) };
        let (bandwidth, purpose) = (balance.bandwidth, Purpose::Balance);
        let look = WalkOptions { dry_run: true, bandwidth, purpose, ..WalkOptions::default() };
        let looked = self.walk_with_override(look, &WalkScope::Whole, Some(&mut noting), tell);
        add_walk(&mut summary, &looked);
        if looked.stopped {
            return Ok(summary);
        }
        let BalanceInventory { evened, inventory } = noting;
        let mut moving = BalanceMover { evened, moves: inventory.plan(&self.room(&members), balance.within) };
        let bytes = moving.moves.bytes;
        summary.bytes_planned = bytes;
        if bytes.0 > 0 {
            let mut tell = |progress: &Progress| tell(&Progress { bytes_total: Some(bytes), ..progress.clone() });
            let walk = WalkOptions { dry_run: balance.dry_run, ..look };
            add_walk(&mut summary, &self.walk_with_override(walk, &WalkScope::Whole, Some(&mut moving), &mut tell));
        }
        let (now, planned) = (self.shares(&members), moving.moves.used);
        for (((member, now), planned), id) in summary.members.iter_mut().zip(now).zip(planned).zip(&members) {
            member.used_after = if balance.dry_run { self.shown_usage(*id, planned) } else { now.used };
        }
        Ok(summary)
    }

    /// A group, and those of its members that can be evened out.
    fn evened(&self, name: &str) -> Result<BalancedMembers, Error> {
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
        Ok(BalancedMembers { group: group.clone(), members })
    }

    fn shares(&self, members: &[BranchId]) -> Vec<MemberShare> {
        let share = |id: &BranchId| {
            let size = self.branches.get(*id).map_or(ByteSize(0), |branch| branch.space_now().total);
            let used = self.shown_usage(*id, self.room_of(*id).used);
            MemberShare { branch: self.placement.branch_name(*id), size, used, used_after: used }
        };
        members.iter().map(share).collect()
    }

    /// A member's used space as `status` counts it: with the part that is kept for root.
    fn shown_usage(&self, id: BranchId, used: ByteSize) -> ByteSize {
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
    fn equals_of(&self, file: &VisitedFile<'_>) -> Vec<BranchId> {
        let VisitedFile { names, path, branch, meta } = *file;
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

/// Adds the totals of a walk to the summary. The last walk replaces an earlier one.
fn add_walk(summary: &mut BalanceSummary, walk: &EnforceSummary) {
    summary.files_seen = walk.files_seen;
    summary.files_moved = walk.files_moved;
    summary.bytes_moved = walk.bytes_moved;
    summary.files_busy = walk.files_busy;
    summary.files_failed = walk.files_failed;
    summary.files_no_room = walk.files_no_room;
    summary.stopped = walk.stopped;
    summary.files_left = walk.files_left;
}

impl BalancedMembers {
    fn place(&self, branch: BranchId) -> Option<usize> {
        self.members.iter().position(|member| *member == branch)
    }

    /// The directories that are kept together and have a name of a file.
    fn dirs_of(&self, file: &VisitedFile<'_>) -> impl Iterator<Item = Box<[u8]>> {
        file.names.iter().filter_map(|name| self.group.kept_together(name)).map(Box::from)
    }
}

/// Nothing moves; it is noted what could.
impl PlacementOverride for BalanceInventory {
    fn name(&self) -> &'static str {
        NAME
    }

    fn target_of(&mut self, migrations: &Migrations, file: &VisitedFile<'_>) -> Option<BranchId> {
        let evened = &self.evened;
        let on = evened.place(file.branch.id)?;
        let equals = migrations.equals_of(file);
        let may_be_on: Vec<usize> = equals.into_iter().filter_map(|equal| evened.place(equal)).collect();
        let found = InventoryFile { on, may_be_on: &may_be_on, bytes: file.meta.occupied() };
        self.inventory.note(Backing::of(file.branch, file.meta), found, evened.dirs_of(file));
        None
    }
}

impl PlacementOverride for BalanceMover {
    fn name(&self) -> &'static str {
        NAME
    }

    fn target_of(&mut self, _: &Migrations, file: &VisitedFile<'_>) -> Option<BranchId> {
        let evened = &self.evened;
        let on = evened.place(file.branch.id)?;
        let to = self.moves.target_of(&Backing::of(file.branch, file.meta), on, evened.dirs_of(file))?;
        evened.members.get(to).copied()
    }
}
