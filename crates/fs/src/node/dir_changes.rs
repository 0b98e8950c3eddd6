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

/// See the module.
pub(crate) struct DirChanges {
    notes: RankedMutex<rank::DirChanges, TakenChanges>,
}

impl DirChanges {
    pub(crate) fn new(dir: NodeId) -> DirChanges {
        DirChanges { notes: RankedMutex::keyed(dir.0, TakenChanges::new()) }
    }

    /// Step 1.
    pub(crate) fn note(&self, copy: &DirAt) {
        self.add(DirChange { branch: copy.id(), epoch: copy.online.epoch, at: uptime() });
    }

    fn add(&self, note: DirChange) {
        let mut notes = self.notes.lock();
        match notes.iter_mut().find(|known| (known.branch, known.epoch) == (note.branch, note.epoch)) {
            Some(known) => known.at = known.at.max(note.at),
            None => notes.push(note),
        }
    }

    /// Step 2.
    pub(crate) fn take(&self) -> TakenChanges {
        std::mem::take(&mut *self.notes.lock())
    }

    /// Step 4.
    pub(crate) fn give_back(&self, taken: TakenChanges) {
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
