//! Room that was promised to what waits, and that no other file may take.
//!
//! A staged file has been accepted, but its blocks are still free on the branches. A writer there would get them, and
//! the staged file, whose program was told that all is well, would no longer find a place. So where the branches
//! together have little more than was promised, waiting files leave first. Later writers then get the error of a full
//! branch, as without staging.
//!
//! Files that are made and writes that pass through the daemon wait for it ([`Staging::destage_before_write`]). The
//! scheduler follows writes that bypass the daemon, and leaves them some room ([`MOST_AHEAD`]) until its next look.

use std::time::{Duration, Instant};

use smallvec::SmallVec;
use umbrella_units::BranchId;

use crate::area::{Area, SPARE_INODES, id_of, keeps_all};
use crate::branch::{Branch, Space};
use crate::staging::Staging;

/// What is written past the daemon before the scheduler looks again, at most; on small branches a twentieth of them.
const MOST_AHEAD: u64 = 512 << 20;
/// How long no thread tries again after one of them could not leave.
const RETRY: Duration = Duration::from_secs(1);

/// What the branches that may take staged files have together, file systems that hold several counted once.
#[derive(Default)]
struct StagingRoom {
    total: u64,
    free: u64,
    counts_inodes: bool,
    inodes: u64,
}

/// More than is written, and more files than are made, while a figure of the branches' room is used.
const STALE: StagingRoom = StagingRoom { total: 0, free: 1 << 30, counts_inodes: true, inodes: 1 << 13 };

impl StagingRoom {
    /// Whether the room is hardly more than waiting files need, after `need` more bytes were written.
    fn is_short(&self, area: &Area, need: u64) -> bool {
        if self.total == 0 {
            return false; // There is none that a write could take.
        }
        let (promised, files) = (area.used().0, area.files());
        let ahead = need.saturating_add((self.total / 20).min(MOST_AHEAD));
        let few_inodes = self.counts_inodes && self.inodes < files.saturating_mul(2).saturating_add(SPARE_INODES);
        few_inodes || self.free < promised.saturating_mul(2).saturating_add(ahead)
    }

    fn less(self, by: &StagingRoom) -> StagingRoom {
        StagingRoom { free: self.free.saturating_sub(by.free), inodes: self.inodes.saturating_sub(by.inodes), ..self }
    }
}

impl Staging {
    /// Lets waiting files leave first where a write of `need` bytes to a branch could take their room. Not under locks.
    pub(crate) fn destage_before_write(&self, branch: BranchId, need: u64) {
        if let Some(area) = self.staged.area().filter(|area| area.branch.id != branch) {
            self.destage_if_short(area, need);
        }
    }

    /// As [`Staging::destage_before_write`], before a file is made.
    pub(crate) fn destage_before_create(&self) {
        if let Some(area) = self.staged.area() {
            self.destage_if_short(area, 0);
        }
    }

    /// Lets waiting files leave where the branches have little more room than those need, after a write of `need`
    /// bytes. Not under locks.
    pub(crate) fn destage_if_short(&self, area: &Area, need: u64) {
        if !self.is_short_of_room(area, need) {
            return;
        }
        // A caller that comes meanwhile waits as well.
        let mut stuck = self.stuck.lock();
        if stuck.is_some_and(|since| since.elapsed() < RETRY) || !self.is_short_of_room(area, need) {
            return;
        }
        *stuck = if self.destage_all_possible(area) { None } else { Some(Instant::now()) };
    }

    /// As [`Staging::destage_if_short`] after no write, without waiting for what leaves.
    pub(crate) fn begin_destage_if_short(&self, area: &Area) {
        let Some(stuck) = self.stuck.try_lock() else { return };
        if stuck.is_none_or(|since| since.elapsed() >= RETRY) && self.is_short_of_room(area, 0) {
            self.hand_to_workers(area, self.all_free(area));
        }
    }

    fn is_short_of_room(&self, area: &Area, need: u64) -> bool {
        if area.files() == 0 {
            return false;
        }
        // All that waits is counted against each list: more than enough, and seldom more than one list.
        let lists = area.queue.lock().promises.lists();
        let all = lists.is_empty().then_some(None);
        // Asked of the branches themselves only where it may matter: what is known may be older than what was written
        // since.
        lists.iter().map(|list| Some(&**list)).chain(all).any(|list| {
            self.room_for_staged(list, Branch::space).less(&STALE).is_short(area, need)
                && self.room_for_staged(list, Branch::space_now).is_short(area, need)
        })
    }

    /// On the branches of a list, or on all.
    fn room_for_staged(&self, list: Option<&[BranchId]>, space: impl Fn(&Branch) -> Space) -> StagingRoom {
        let mut seen = SmallVec::<[u64; 8]>::new();
        let mut room = StagingRoom { counts_inodes: true, ..StagingRoom::default() };
        for branch in self.branches.list.load().iter() {
            let Some(online) = branch.in_use().filter(|_| !self.branches.is_staging(branch.id)) else { continue };
            let is_listed = list.is_none_or(|list| list.contains(&branch.id));
            let may = is_listed && branch.takes_new() && keeps_all(&branch.abilities());
            if !may || seen.contains(&online.dev) {
                continue;
            }
            seen.push(online.dev);
            let space = space(branch);
            room.total = room.total.saturating_add(space.total.0);
            room.free = room.free.saturating_add(space.free.0);
            let inodes = branch.inodes(space);
            room.counts_inodes &= inodes.is_some();
            room.inodes = room.inodes.saturating_add(inodes.map_or(0, |inodes| inodes.free));
        }
        room
    }

    /// All that waits leaves, as far as it can without waiting for a branch that hangs; whether nothing is left of it.
    fn destage_all_possible(&self, area: &Area) -> bool {
        let all = area.all();
        self.hand_to_workers(area, self.all_free(area));
        self.workers.wait_until_idle();
        self.release_left();
        let queue = area.queue.lock();
        !all.iter().any(|node| queue.nodes.contains_key(&id_of(node)))
    }
}
