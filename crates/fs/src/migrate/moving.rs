//! What one move is about: why the file moves, what holds the move back, and its names on both branches.

use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::io::Errno;
use smallvec::SmallVec;
use umbrella_units::ByteSize;

use crate::area::Area;
use crate::branch::Online;
use crate::error::OpError;
use crate::ground::at::DirAt;
use crate::ground::kernel_cache::KernelCache;
use crate::migrate::disk_turns::DiskTurn;
use crate::node::{NameChange, Node};
use crate::relocate;
use crate::relocate::{Batch, Durability, DurableCopy, EntryAt, MovedName, RelocateError, Removal, Throttle};
use crate::tree::dirs::modified_at;
use crate::write_back::CopyLocks;

/// Why a file moves: what its users may be doing meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum MoveReason {
    /// A rule says so. Not while a process writes.
    Rule,
    /// A rule wants it because it is warm. Not while a process writes.
    Warm,
    /// Its branch is above a fill level. Not while any process has it open.
    Evict,
    /// Its branch is full and a writer waits. The caller holds the file's `io` lock exclusively.
    Full,
    /// It leaves volatile staging, and owes a power loss nothing. The caller holds the file's `io` lock exclusively.
    Staged,
}

impl MoveReason {
    /// Why a file moves that leaves the staging area. What is not synced on its way needs a little room in the area,
    /// for its intent; where that is full, it leaves as from any full branch.
    pub(crate) fn of_leaving(area: &Area) -> MoveReason {
        if area.spec.volatile && area.has_room_for_intents() { MoveReason::Staged } else { MoveReason::Full }
    }

    /// No caller waits for the move.
    pub(crate) fn is_background(self) -> bool {
        matches!(self, MoveReason::Rule | MoveReason::Warm | MoveReason::Evict)
    }

    pub(crate) fn durability(self) -> Durability {
        match self {
            MoveReason::Rule | MoveReason::Warm | MoveReason::Evict | MoveReason::Full => Durability::Now,
            MoveReason::Staged => Durability::Begun,
        }
    }

    pub(crate) fn holds(self) -> CopyLocks {
        match self {
            MoveReason::Rule | MoveReason::Warm | MoveReason::Evict => CopyLocks::Nothing,
            MoveReason::Full | MoveReason::Staged => CopyLocks::Locks,
        }
    }
}

/// What holds a move back, if anything does.
#[derive(Clone, Copy, Default)]
pub(crate) struct MoveControl<'a> {
    pub(crate) throttle: Option<&'a Arc<Throttle>>,
    /// Asked again and again during the copy; true drops what was copied.
    pub(crate) stop: Option<&'a dyn Fn() -> bool>,
    /// Called whenever the copy gets on.
    pub(crate) alive: Option<&'a dyn Fn()>,
    /// The move's turn on its disks; during it, the move yields to other users of the disks.
    pub(crate) turn: Option<&'a DiskTurn<'a>>,
    /// How long to wait for the locks of directories, whose holder may wait for a branch that hangs; `None`: as long as
    /// it takes.
    pub(crate) lock_timeout: Option<Duration>,
}

/// One name of a file that moves.
pub(crate) struct MovedLink {
    pub(crate) parent: Arc<Node>,
    pub(crate) name: OsString,
    pub(crate) from: DirAt,
    pub(crate) to: DirAt,
}

impl MovedLink {
    /// As [`relocate::verify_unchanged`], wherever the source may hang.
    pub(crate) fn verify_unchanged(&self, copied: &relocate::DurableCopy) -> Result<(), NotMoved> {
        let (dir, name, copied) = (Arc::clone(&self.from.fd), self.name.clone(), copied.clone());
        let verify =
            move |_: &Online| Ok(relocate::verify_unchanged(EntryAt { dir: dir.as_fd(), name: &name }, &copied));
        Ok(self.from.branch.io(verify).map_err(OpError::Sys)??)
    }

    /// The directory shows on its new branch that something was made in it: the copy it was made in will be gone one
    /// day.
    pub(crate) fn advance_times(&self, lock_timeout: Option<Duration>) {
        // Else it is done before the old copy goes.
        let Some(_keeping) = self.parent.dir().and_then(|dir| dir.times.keep(lock_timeout)) else { return };
        if let (Ok(old), Ok(new)) = (self.from.stat_self(), self.to.stat_self())
            && old.mtime > new.mtime
        {
            // A directory that looks unchanged; nothing is lost.
            let _cosmetic = self.to.as_file().set_times(modified_at(&old), KernelCache::SAME_SHOWN);
        }
    }
}

/// What copies take on their branch that are not in their place yet.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ReservedSpace {
    pub(crate) bytes: ByteSize,
    /// Inodes.
    pub(crate) files: u64,
}

/// A file's turn in its batch.
pub(crate) struct BatchedMove<'a> {
    pub(crate) batch: Batch<'a>,
    /// What the intent says of it.
    pub(crate) path: &'a [u8],
    /// By the copies of the batch, its own with them.
    pub(crate) taken: ReservedSpace,
}

impl BatchedMove<'_> {
    pub(crate) fn commit(
        &self,
        link: &MovedLink,
        temp: &OsStr,
        copied: &DurableCopy,
    ) -> Result<Removal, RelocateError> {
        let at = |dir| EntryAt { dir, name: &link.name };
        let name = MovedName { source: at(link.from.fd.as_fd()), target: at(link.to.fd.as_fd()), path: self.path };
        self.batch.place_and_park(name, temp, copied)?;
        link.parent.note_name(&link.from, NameChange::Moved);
        Ok(Removal::Done)
    }
}

/// While it lives, lookups in these directories that find nothing, or too much, wait.
pub(crate) struct MoveSeqGuard<'a> {
    parents: SmallVec<[&'a Arc<Node>; 2]>,
}

impl<'a> MoveSeqGuard<'a> {
    pub(crate) fn begin(parents: &[&'a Arc<Node>]) -> MoveSeqGuard<'a> {
        let moving = MoveSeqGuard { parents: parents.iter().copied().collect() };
        moving.step();
        moving
    }

    fn step(&self) {
        for dir in self.parents.iter().filter_map(|parent| parent.dir()) {
            dir.moves.fetch_add(1, Ordering::AcqRel);
        }
    }
}

impl Drop for MoveSeqGuard<'_> {
    fn drop(&mut self) {
        self.step();
    }
}

/// What a file is called in messages.
pub(crate) fn show(node: &Arc<Node>) -> String {
    String::from_utf8_lossy(&node.path()).into_owned()
}

/// Of a file with names that have not been looked up since the mount.
pub(crate) const OTHER_NAMES: &str = "it has other hard links; a walk that enforces the rules moves them together";

/// Why a file was not moved. It is where it was.
#[derive(Debug)]
pub(crate) enum NotMoved {
    /// Open, changing, or with names that are not all known.
    Busy(&'static str),
    /// The pool, or the walk, came to its end before the copy began.
    Stopped,
    /// Mapped into memory, or open past the mount.
    Mapped,
    /// It changed between the decision and the copy, and belongs elsewhere by now.
    Outdated,
    /// The target has no room.
    NoRoom,
    /// Something failed.
    Failed(RelocateError),
    /// Something failed on the way.
    Op(OpError),
}

impl NotMoved {
    /// Whether nothing is left for recovery to decide.
    pub(crate) fn is_settled(&self) -> bool {
        !matches!(self, NotMoved::Failed(error) if !error.is_settled())
    }

    /// Whether it could move if all its names were known.
    pub(crate) fn lacks_names(&self) -> bool {
        matches!(self, NotMoved::Busy(why) if *why == OTHER_NAMES)
    }

    /// The error if the daemon itself lacked something (descriptors, memory). The branch may still have room for the
    /// file.
    pub(crate) fn own_shortage(&self) -> Option<OpError> {
        let error = match self {
            NotMoved::Op(error) => *error,
            NotMoved::Failed(error) => OpError::Sys(error.errno()),
            _ => return None,
        };
        matches!(error, OpError::Sys(Errno::MFILE | Errno::NFILE | Errno::NOMEM)).then_some(error)
    }

    /// The file, or its name, is not there any more.
    pub(crate) fn is_gone(&self) -> bool {
        match self {
            NotMoved::Op(error) => matches!(error, OpError::Stale) || error.is_missing(),
            NotMoved::Failed(error) => error.errno() == Errno::NOENT,
            _ => false,
        }
    }
}

impl From<OpError> for NotMoved {
    fn from(error: OpError) -> Self {
        if error.is_full() || error == OpError::NoRoom { NotMoved::NoRoom } else { NotMoved::Op(error) }
    }
}

impl From<RelocateError> for NotMoved {
    fn from(error: RelocateError) -> Self {
        match error {
            RelocateError::NoSpace => NotMoved::NoRoom,
            RelocateError::Changed | RelocateError::Cancelled => NotMoved::Busy("it changed while it was copied"),
            other => NotMoved::Failed(other),
        }
    }
}

impl std::fmt::Display for NotMoved {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NotMoved::Busy(why) => f.write_str(why),
            NotMoved::Stopped => f.write_str("the pool is being unmounted, or the walk was stopped"),
            NotMoved::Mapped => f.write_str("it is mapped into memory, or open on the branch itself"),
            NotMoved::Outdated => f.write_str("it changed, and now belongs elsewhere"),
            NotMoved::NoRoom => f.write_str("the branch has no room"),
            NotMoved::Failed(error) => error.fmt(f),
            NotMoved::Op(error) => error.fmt(f),
        }
    }
}
