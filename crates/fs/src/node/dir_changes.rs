//! Which copies of a directory have changes that nobody made durable yet.
//!
//! A branch that dies may lose them. An fsync of the directory must say so, although the branch is no longer there:
//!
//! 1. A change of a copy (entries or attributes) notes the branch, its time online, and when.
//! 2. An fsync takes the notes, then syncs each copy. Later changes are noted anew.
//! 3. If the branch of a note is no longer online as it was then, the change may be lost: EIO. While the branch is away
//!    the note stays for some minutes, so that every fsync reports it. If the branch came back, one fsync reports it.
//! 4. If step 2 fails, the notes stay.
//!
//! A change that was two minutes old when its branch went away does not count: every file system has written it by
//! then. Otherwise no fsync would succeed for as long as a disk is unplugged.
//!
//! A name that went from a copy has a second note. A power loss would bring it back, in the place of a newer file on
//! another branch or beside it, where one file system keeps the order by itself. So an fsync of a file first syncs the
//! copies on other branches that have such notes, of its directories and those above:
//!
//! 1. A removal or a rename notes the branch, its time online, when, and a number.
//! 2. An fsync of a file or of the directory reads these notes, and syncs the copies.
//! 3. A note goes if no newer one has taken its place meanwhile. Until then every other fsync finds it, and waits too.

use smallvec::SmallVec;
use umbrella_units::BranchId;

use crate::branch::{Branches, SETTLED, TOLD, uptime};
use crate::ground::at::DirAt;
use crate::ground::locks::{RankedMutex, rank};
use crate::node::NodeId;

/// A change of a copy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DirChange {
    branch: BranchId,
    /// Which time online it was.
    epoch: u64,
    /// When the last one was made ([`uptime`]).
    at: u64,
}

/// Notes that were taken.
pub(crate) type TakenChanges = SmallVec<[DirChange; 2]>;

/// Names that went from a copy; the last of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UnsyncedRemoval {
    pub(crate) branch: BranchId,
    /// Which time online it was.
    pub(crate) epoch: u64,
    at: u64,
    /// Of all removals in the directory.
    number: u64,
}

/// Where names went, one note a branch.
pub(crate) type UnsyncedRemovals = SmallVec<[UnsyncedRemoval; 1]>;

/// See the module.
pub(crate) struct DirChanges {
    notes: RankedMutex<rank::DirChanges, DirNotes>,
}

#[derive(Default)]
struct DirNotes {
    changes: TakenChanges,
    removals: UnsyncedRemovals,
    /// How many names have gone.
    removed: u64,
}

impl DirChanges {
    pub(crate) fn new(dir: NodeId) -> DirChanges {
        DirChanges { notes: RankedMutex::keyed(dir.0, DirNotes::default()) }
    }

    /// Step 1.
    pub(crate) fn note(&self, copy: &DirAt) {
        self.add(DirChange { branch: copy.id(), epoch: copy.online.epoch, at: uptime() });
    }

    /// A name went from this copy.
    pub(crate) fn note_removal(&self, copy: &DirAt) {
        let (branch, epoch, at) = (copy.id(), copy.online.epoch, uptime());
        let mut notes = self.notes.lock();
        notes.removed += 1;
        let number = notes.removed;
        notes.removals.retain(|known| known.branch != branch);
        notes.removals.push(UnsyncedRemoval { branch, epoch, at, number });
    }

    /// The copies that lost names, except on one branch.
    pub(crate) fn removals(&self, except: Option<BranchId>) -> UnsyncedRemovals {
        let mut notes = self.notes.lock();
        if !notes.removals.is_empty() {
            let now = uptime();
            notes.removals.retain(|known| now <= known.at + SETTLED);
        }
        notes.removals.iter().filter(|known| Some(known.branch) != except).copied().collect()
    }

    /// These are durable.
    pub(crate) fn removals_synced(&self, synced: &[UnsyncedRemoval]) {
        if !synced.is_empty() {
            let is_synced = |known: &UnsyncedRemoval| synced.iter().any(|synced| synced.number == known.number);
            self.notes.lock().removals.retain(|known| !is_synced(known));
        }
    }

    fn add(&self, note: DirChange) {
        let notes = &mut self.notes.lock().changes;
        match notes.iter_mut().find(|known| (known.branch, known.epoch) == (note.branch, note.epoch)) {
            Some(known) => known.at = known.at.max(note.at),
            None => notes.push(note),
        }
    }

    /// Step 2.
    pub(crate) fn take(&self) -> TakenChanges {
        std::mem::take(&mut self.notes.lock().changes)
    }

    /// Step 4.
    pub(crate) fn restore(&self, taken: TakenChanges) {
        taken.into_iter().for_each(|note| self.add(note));
    }

    /// Step 3, after all copies that can be reached were synced: whether a change may be lost.
    pub(crate) fn may_have_lost(&self, taken: TakenChanges, branches: &Branches) -> bool {
        let mut lost = false;
        for note in taken {
            // One that was taken out of the pool is missed by nobody.
            let Some(branch) = branches.get(note.branch).ok().filter(|branch| !branch.is_retired()) else { continue };
            // It has not left before the change: where an earlier time is read, it is leaving now.
            let (now, left) = (branch.epoch(), branch.left_at().max(note.at));
            if now == Some(note.epoch) || left > note.at + SETTLED {
                continue;
            }
            lost = true;
            if now.is_none() && uptime() < left + TOLD {
                self.add(note);
            }
        }
        lost
    }
}
