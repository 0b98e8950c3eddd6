//! Which copies of a directory have changes that no sync has made durable yet.
//!
//! A branch that dies may lose them. An fsync of the directory must say so, although the branch is no longer there:
//!
//! 1. A change of a copy (entries or attributes) notes the branch, its time online, and when.
//! 2. An fsync takes the notes, then syncs each copy. Later changes are noted anew.
//! 3. If the branch of a note is no longer online as it was then, the change may be lost: EIO. While the branch is away
//!    the note stays for some minutes, so that every fsync reports it. If the branch came back, one fsync reports it.
//! 4. If step 2 fails, the notes stay.
//!
//! The notes stay although the kernel forgets the directory, as it does when a branch goes away (`tree::forgotten`).
//!
//! A change that was two minutes old when its branch went away does not count: every file system has written it by
//! then. Otherwise no fsync would succeed for as long as a disk is unplugged.
//!
//! Names have notes of their own. A power loss may take back what happened to a name on one branch, and not what
//! followed on another. A file system keeps that order by itself; over several branches the pool does:
//!
//! - A name that is **gone** would come back, in the place of a newer file on another branch or beside it. So it is
//!   durable before an fsync of a file on another branch is, in the file's directories and those above.
//! - A name that a rename has **given** would be the old one again. A file that moves under it would be there twice. So
//!   it is durable before the file moves, in the file's directories and those above.
//! - A name that has **moved** to another branch in a batch may come back too, until the batch ends. Its file would be
//!   there twice after a rename or another move. So that it went is durable before these.
//!
//! 1. A removal, a rename or a batch notes the branch, when, and a number. There is one note for each branch and kind.
//!    A rename over several branches is durable when it returns, and notes nothing.
//! 2. An fsync of a file or of the directory, a move, and a rename of a file read the notes that they need
//!    ([`DirChanges::unsynced_names`]), and sync these copies. The end of a batch does the same. A rename of a
//!    directory waits for that end.
//! 3. Then a note goes if no newer one has taken its place ([`DirChanges::names_synced`]). Until then all others find
//!    it, and wait too. After two minutes it does not count either.

use smallvec::SmallVec;
use umbrella_units::BranchId;

use crate::branch::{Branches, REPORT_TIME, WRITTEN_AFTER, uptime};
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

/// What happened to a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NameChange {
    /// It was removed, or its file has another name now.
    Gone,
    /// A rename gave it to its file.
    Given,
    /// It went to another branch in a batch that has not ended.
    Moved,
}

/// A change of names in a copy that is perhaps not durable; the last of its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UnsyncedName {
    pub(crate) branch: BranchId,
    pub(crate) change: NameChange,
    at: u64,
    /// Of all changes of names in the directory.
    number: u64,
}

/// Such changes of a directory.
pub(crate) type UnsyncedNames = SmallVec<[UnsyncedName; 2]>;

/// See the module.
pub(crate) struct DirChanges {
    notes: RankedMutex<rank::DirChanges, DirNotes>,
}

#[derive(Default)]
struct DirNotes {
    changes: TakenChanges,
    names: UnsyncedNames,
    /// How many changes of names there were.
    renamed: u64,
}

impl DirNotes {
    fn add(&mut self, note: DirChange) {
        match self.changes.iter_mut().find(|known| (known.branch, known.epoch) == (note.branch, note.epoch)) {
            Some(known) => known.at = known.at.max(note.at),
            None => self.changes.push(note),
        }
    }
}

impl DirChanges {
    pub(crate) fn new(dir: NodeId) -> DirChanges {
        DirChanges { notes: RankedMutex::keyed(dir.0, DirNotes::default()) }
    }

    /// Step 1 of a change.
    pub(crate) fn note(&self, copy: &DirAt) {
        let change = DirChange { branch: copy.id(), epoch: copy.online.epoch, at: uptime() };
        self.notes.lock().add(change);
    }

    /// Step 1 of names, after a change that is noted too.
    pub(crate) fn note_name(&self, copy: &DirAt, change: NameChange) {
        let (branch, at) = (copy.id(), uptime());
        let mut notes = self.notes.lock();
        notes.renamed += 1;
        let number = notes.renamed;
        notes.names.retain(|known| (known.branch, known.change) != (branch, change));
        notes.names.push(UnsyncedName { branch, change, at, number });
    }

    /// Step 2 of names: the notes that are wanted.
    pub(crate) fn unsynced_names(&self, wanted: impl Fn(&UnsyncedName) -> bool) -> UnsyncedNames {
        let mut notes = self.notes.lock();
        if !notes.names.is_empty() {
            let now = uptime();
            notes.names.retain(|known| now <= known.at + WRITTEN_AFTER);
        }
        notes.names.iter().filter(|known| wanted(known)).copied().collect()
    }

    /// Step 3 of names.
    pub(crate) fn names_synced(&self, synced: &[UnsyncedName]) {
        if !synced.is_empty() {
            let is_synced = |known: &UnsyncedName| synced.iter().any(|synced| synced.number == known.number);
            self.notes.lock().names.retain(|known| !is_synced(known));
        }
    }

    /// Step 2.
    pub(crate) fn take(&self) -> TakenChanges {
        std::mem::take(&mut self.notes.lock().changes)
    }

    /// Step 4.
    pub(crate) fn restore(&self, taken: TakenChanges) {
        let mut notes = self.notes.lock();
        taken.into_iter().for_each(|note| notes.add(note));
    }

    /// Step 3, after all copies that can be reached were synced: whether a change may be lost.
    pub(crate) fn may_have_lost(&self, taken: TakenChanges, branches: &Branches) -> bool {
        let mut lost = false;
        for note in taken {
            let Some(loss) = note.loss(branches) else { continue };
            lost = true;
            if !loss.is_back && loss.is_reported() {
                self.notes.lock().add(note);
            }
        }
        lost
    }

    /// Whether a note still counts.
    pub(crate) fn any_counts(&self, branches: &Branches) -> bool {
        let notes = self.notes.lock();
        let is_recent = |at| uptime() <= at + WRITTEN_AFTER;
        notes.names.iter().any(|name| is_recent(name.at))
            || notes
                .changes
                .iter()
                .any(|note| note.loss(branches).map_or_else(|| is_recent(note.at), |loss| loss.is_reported()))
    }
}

/// A change that its branch may have lost as it left.
struct LostChange {
    /// When its branch left.
    left: u64,
    is_back: bool,
}

impl LostChange {
    /// While it is away.
    fn is_reported(&self) -> bool {
        uptime() < self.left + REPORT_TIME
    }
}

impl DirChange {
    /// `None`: the change is not lost.
    fn loss(&self, branches: &Branches) -> Option<LostChange> {
        // A branch that was taken out of the pool is not waited for.
        let branch = branches.get(self.branch).ok().filter(|branch| !branch.is_retired())?;
        // It has not left before the change: where an earlier time is read, it is leaving now.
        let (now, left) = (branch.epoch(), branch.left_at().max(self.at));
        let may_be_lost = now != Some(self.epoch) && left <= self.at + WRITTEN_AFTER;
        may_be_lost.then_some(LostChange { left, is_back: now.is_some() })
    }
}
