//! The facts that a decision looks at: the file, the branches, and where the file is now. The caller fills them in;
//! nothing here reads a disk.

use std::time::Duration;

use umbrella_units::{BranchId, ByteSize, Timestamp};

use super::spec::FileKind;
use crate::heat::Opens;

/// Facts about one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileFacts<'a> {
    /// Absolute inside the pool (`/home/dave/x.avi`), bytes, not necessarily UTF-8.
    pub path: &'a [u8],
    /// Type.
    pub kind: FileKind,
    /// Size in bytes; not looked at while the file is new and there is no guess.
    pub size: ByteSize,
    /// Bytes it occupies, without its holes; not looked at while the file is new.
    pub occupied: ByteSize,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Permission bits, 07777.
    pub mode: u32,
    /// Number of hard links.
    pub links: u32,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the data.
    pub mtime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Birth, where the file system of its branch knows it.
    pub btime: Option<Timestamp>,
    /// How warm it is by `now`.
    pub heat: Opens,
    /// The time of the decision.
    pub now: Timestamp,
    /// How far the file is in its life.
    pub stage: Stage,
    /// The extended attributes that [`super::Rules::xattrs`] names, as far as the file has them; `None` when they are
    /// not known.
    pub xattrs: Option<&'a [Xattr]>,
}

/// An extended attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Xattr {
    /// Its name, `user.keep`.
    pub name: Box<str>,
    /// Its value.
    pub value: Box<[u8]>,
}

impl FileFacts<'_> {
    /// The room the file takes on a branch it moves to; nothing while that is not known.
    pub(super) fn need(&self) -> ByteSize {
        match self.stage {
            Stage::New | Stage::Guessed(_) => ByteSize(0),
            Stage::Settled => self.occupied,
        }
    }
}

/// How far a file is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Being created: size and access type are not known yet, rules that need them are passed over.
    New,
    /// Being created, and its size is a guess from files like it. The access type is not known.
    Guessed(SizePeers),
    /// Closed at least once.
    Settled,
}

/// Which files a new one is taken to be like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SizePeers {
    /// Those with its extension in its directory.
    ExtensionAndDirectory,
    /// Those with its extension.
    Extension,
    /// Those in its directory.
    Directory,
}

/// What placement needs to know of a branch; one for each [`BranchId`], at that index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BranchView {
    /// Whether it can be reached.
    pub online: bool,
    /// False: read-only, draining or removed; nothing new comes here.
    pub writable: bool,
    /// False: the files that are here stay and may grow, and no others come.
    pub creates: bool,
    /// Size.
    pub total: ByteSize,
    /// Free space.
    pub free: ByteSize,
    /// Space that placement leaves free.
    pub min_free: ByteSize,
    /// Its inodes, where its file system counts them; no more of them than the branch may have.
    pub inodes: Option<Inodes>,
}

/// The inodes of a branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inodes {
    /// How many there are.
    pub total: u64,
    /// How many are free.
    pub free: u64,
}

impl Inodes {
    /// The sum of two branches; one that does not count them adds nothing.
    pub(super) fn sum(one: Option<Inodes>, other: Option<Inodes>) -> Option<Inodes> {
        let (Some(a), Some(b)) = (one, other) else { return one.or(other) };
        Some(Inodes { total: a.total.saturating_add(b.total), free: a.free.saturating_add(b.free) })
    }
}

impl BranchView {
    /// Whether a file that is here may stay.
    pub(super) fn open(&self) -> bool {
        self.online && self.writable
    }

    /// Whether a file may be put here at all.
    pub(super) fn takes_new(&self) -> bool {
        self.open() && self.creates
    }

    /// Whether `need` more bytes leave `min_free` untouched. A file of no bytes is there to be written: it needs one,
    /// where space is counted at all.
    pub(super) fn has_room(&self, need: ByteSize) -> bool {
        let least = u64::from(self.total.0 > 0);
        self.has_inode() && self.free.0 >= self.min_free.0.saturating_add(need.0.max(least))
    }

    /// As `has_room`, for a file that moves here.
    pub(super) fn has_room_to_move(&self, need: ByteSize) -> bool {
        self.has_room(need) && self.has_inodes_to_move()
    }

    /// Whether a file can move here: while it does, the note of the move takes an inode, too.
    pub(super) fn has_inodes_to_move(&self) -> bool {
        self.inodes.is_none_or(|inodes| inodes.free > 1)
    }

    /// Whether one more file can be made: a branch without a free inode is full, whatever space it has.
    pub(super) fn has_inode(&self) -> bool {
        self.inodes.is_none_or(|inodes| inodes.free > 0)
    }
}

/// Where a file is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resident {
    /// Its branch.
    pub branch: BranchId,
    /// On that branch since; `None`: not known.
    pub since: Option<Timestamp>,
    /// How long a file stays on that branch before it may move again.
    pub min_stay: Duration,
    /// A fill level moved it there, and it has not changed since: no preference of its list brings it back.
    pub is_evicted: bool,
    /// It was opened since a fill level moved it, or one whose neighbour it is: only then a rule on heat fetches it.
    /// Not looked at for other files.
    pub is_opened: bool,
}

impl Resident {
    /// Whether the file came so recently that it has to stay. A time in the future counts as just now.
    pub(super) fn is_within_min_stay(&self, now: Timestamp) -> bool {
        self.since.is_some_and(|since| since.age(now) < self.min_stay)
    }
}

/// The view of a branch; `None` for an id that the caller does not list.
pub(super) fn view(branches: &[BranchView], id: BranchId) -> Option<&BranchView> {
    branches.get(id.index())
}

/// Whether a branch can be reached; a branch that is not listed cannot.
pub(super) fn is_online(branches: &[BranchView], id: BranchId) -> bool {
    view(branches, id).is_some_and(|branch| branch.online)
}
