//! Nodes: the objects that the kernel refers to. A node is one file or directory of the merged tree. Its id is made
//! here and never used twice, so a file may change its branch (and its inode there) without the kernel noticing.
//!
//! The order of its locks: [`crate::ground::locks::rank`].

mod dir_changes;
mod handle;
pub(crate) mod looks;
mod table;
pub(crate) mod times;

use std::any::Any;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;

use smallvec::SmallVec;
use umbrella_policy::heat::COUNTED_BYTES;
use umbrella_policy::placement::spec::FileKind;
use umbrella_units::{BranchId, ByteSize, Ino, Timestamp};

pub(crate) use self::dir_changes::{DirChanges, NameChange, UnsyncedName};
use crate::branch::{Branch, Online};
use crate::ground::at::{DirAt, FileAt};
use crate::ground::locks::{RankedMutex, RankedRwLock, rank};
use crate::ground::meta::Meta;
use crate::inode_map::BackingKey;
use crate::rights::ShownRights;

pub(crate) use handle::Handle;
pub use handle::{DataPath, HandleId};
pub(crate) use table::NodeTable;

/// Identity of a node towards the kernel; never reused while the pool is mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

impl NodeId {
    /// The root of the tree.
    pub const ROOT: NodeId = NodeId(1);
}

/// An inode on a branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Backing {
    pub(crate) branch: BranchId,
    /// As in [`crate::ground::meta::Meta`].
    pub(crate) foreign_dev: u64,
    pub(crate) ino: u64,
}

impl Backing {
    pub(crate) fn of(branch: &Branch, meta: &Meta) -> Backing {
        Backing { branch: branch.id, foreign_dev: meta.foreign_dev, ino: meta.ino }
    }
}

/// The key of an inode's number.
pub(crate) fn key_of(online: &Online, backing: Backing) -> BackingKey {
    BackingKey { slot: online.slot, foreign_dev: backing.foreign_dev, ino: backing.ino }
}

/// As [`key_of`], of an inode that was looked at.
pub(crate) fn inode_key(online: &Online, meta: &Meta) -> BackingKey {
    BackingKey { slot: online.slot, foreign_dev: meta.foreign_dev, ino: meta.ino }
}

/// One file or directory of the merged tree.
pub(crate) struct Node {
    pub(crate) id: NodeId,
    pub(crate) ino: Ino,
    pub(crate) kind: FileKind,
    /// Birth of the file as users see it.
    pub(crate) born: Option<Timestamp>,
    /// References by the kernel (lookups) and by walks of our own.
    refs: AtomicU64,
    pub(crate) looks: looks::Looks,
    pub(crate) body: Body,
}

/// What differs between directories and everything else.
#[expect(clippy::large_enum_variant, reason = "most nodes are files, and a box would cost each an allocation")]
pub(crate) enum Body {
    Dir(Box<Dir>),
    File(File),
}

/// A directory.
pub(crate) struct Dir {
    pub(crate) state: RankedRwLock<rank::DirState, DirState>,
    /// Odd while a relocation moves an entry from one branch's copy to another's.
    pub(crate) moves: AtomicU64,
    /// Held while such a move is committed.
    pub(crate) commit: RankedMutex<rank::DirCommit, ()>,
    /// Held while the attributes of all copies are changed or compared.
    pub(crate) attributes: RankedMutex<rank::DirAttributes, ()>,
    /// Changes that no sync has made durable yet.
    pub(crate) changes: DirChanges,
    /// Keeps what users give it while others are put back.
    pub(crate) times: times::DirTimes,
    /// The topology of the pool for which they were compared; 0: never.
    pub(crate) alike: AtomicU64,
    /// How often it is open for listing.
    pub(crate) readers: AtomicU32,
    /// The topology of the pool when the reader began whose listing the kernel keeps.
    pub(crate) listed_at: AtomicU64,
    /// The merged listing, kept from one batch to the next.
    pub(crate) listing: RankedMutex<rank::DirListing, Option<Arc<crate::ground::listing::Listing>>>,
}

/// Where a directory is.
#[derive(Default)]
pub(crate) struct DirState {
    /// `None` for the root.
    pub(crate) place: Option<(Arc<Node>, OsString)>,
    /// Its copies, in the order of the branches.
    pub(crate) copies: SmallVec<[DirCopy; 2]>,
    /// Topology of the pool when the copies were last looked for.
    pub(crate) topology: u64,
    /// Where its copy was made here, and is perhaps not on the disk yet.
    pub(crate) unsynced: SmallVec<[BranchId; 2]>,
    pub(crate) removed: bool,
    /// The last copies of a directory that was removed. A process that is in it, or has it open, uses them until the
    /// kernel forgets the node.
    pub(crate) kept: SmallVec<[DirAt; 2]>,
    /// Where not every copy has what is shown.
    pub(crate) divergence: Option<Arc<Divergence>>,
    /// The last comparison of several copies.
    pub(crate) comparison: Option<Box<Comparison>>,
}

/// When the copies of a directory were compared, and what they were.
pub(crate) struct Comparison {
    pub(crate) at: Instant,
    pub(crate) copies: SmallVec<[ComparedCopy; 2]>,
}

/// A copy of a directory when it was compared.
pub(crate) struct ComparedCopy {
    pub(crate) branch: BranchId,
    pub(crate) seen: ModeAndOwner,
    /// A change of an ACL changes it.
    pub(crate) ctime: Timestamp,
}

/// Copies of a directory that differ in owner, mode or ACLs, as they were compared last.
pub(crate) struct Divergence {
    /// What users see.
    pub(crate) shown: ShownRights,
    /// Whose other attributes users see.
    pub(crate) model: Option<BranchId>,
    /// Where new entries get from the branch's file system what is shown.
    pub(crate) inherits_as: SmallVec<[BranchId; 2]>,
    /// Roots that hold nothing of their own, and get what is shown with their first entry.
    pub(crate) empty: SmallVec<[BranchId; 2]>,
}

/// Mode, owner and group.
pub(crate) type ModeAndOwner = (u32, u32, u32);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DirCopy {
    pub(crate) branch: BranchId,
    pub(crate) backing: Backing,
}

/// A file of any kind but a directory.
pub(crate) struct File {
    /// Shared by reads and writes that go through the daemon; exclusive while the file changes its branch under them.
    pub(crate) io: RankedRwLock<rank::FileIo, ()>,
    pub(crate) state: RankedRwLock<rank::FileState, FileState>,
    /// Bytes that were read and written through the daemon.
    pub(crate) transferred: AtomicU64,
}

impl File {
    /// Counts bytes that were read or written through the daemon. `Some`, for each full portion of them: the bytes
    /// since the last `Some`.
    pub(crate) fn note_transfer(&self, bytes: usize) -> Option<ByteSize> {
        let before = self.transferred.fetch_add(bytes as u64, Ordering::Relaxed);
        let portions = |bytes: u64| bytes / COUNTED_BYTES.0;
        let more = portions(before.wrapping_add(bytes as u64)).saturating_sub(portions(before));
        (more > 0).then_some(ByteSize(more * COUNTED_BYTES.0))
    }
}

/// What keeps passthrough registered with the kernel; dropped, it ends.
pub type PassthroughToken = Arc<dyn Any + Send + Sync>;

/// Where a file is, and its open handles.
#[expect(clippy::struct_excessive_bools, reason = "independent facts of one file")]
pub(crate) struct FileState {
    pub(crate) backing: Backing,
    /// Known names; all of them only when there are as many as the file has links.
    pub(crate) names: SmallVec<[(Arc<Node>, OsString); 1]>,
    /// Open handles.
    pub(crate) handles: SmallVec<[Weak<Handle>; 2]>,
    /// Handles open for writing.
    pub(crate) writers: u32,
    /// Handles whose data goes past the daemon.
    pub(crate) passthrough: u32,
    /// Handles whose data goes through the daemon and the kernel's page cache.
    pub(crate) cached: u32,
    pub(crate) token: Option<PassthroughToken>,
    /// Was open in passthrough: a mapping may live on after the last handle is closed.
    pub(crate) was_passthrough: bool,
    /// Was open for reading and writing in passthrough: a store through a shared mapping may change its times without
    /// any report.
    pub(crate) shared_mapping: bool,
    /// The access time before the first handle was opened, where rules ask for it.
    pub(crate) accessed: Option<Timestamp>,
    /// It was warm when it was opened, and its place is to be looked at when the last handle is closed.
    pub(crate) is_warm: bool,
    /// Written, or changed in what rules look at, since its place was last judged.
    pub(crate) needs_evaluation: bool,
    /// Set to stop the copy under way.
    pub(crate) copying: Option<Arc<AtomicBool>>,
    /// A writer waits for that copy (for `io`), and so cannot spoil it.
    pub(crate) copy_is_awaited: bool,
    /// Made a moment ago, and nothing was set on it since: it has no file capability, which the kernel asks for before
    /// the first write.
    pub(crate) is_bare: AtomicBool,
    /// Made without a name, to be given one: a copy of it must be a file of the same kind.
    pub(crate) may_be_linked: bool,
    /// A move gave it its names, and a power loss may take these, or bring the old ones back. It left volatile memory
    /// by itself, until a program syncs it with its directories; or its batch has not ended.
    pub(crate) has_unsynced_names: bool,
    /// No name is left (or there never was one).
    pub(crate) unlinked: bool,
    /// What has no handles here, but may be open (a pipe, a device), when its last name is gone.
    pub(crate) kept: Option<Box<FileAt>>,
    /// The path that rules look at while it is unlinked: the last one it had, or the one it was made under.
    pub(crate) past_path: Option<Box<[u8]>>,
}

impl FileState {
    /// Aborts a relocation that is copying, because the file is about to change.
    pub(crate) fn abort_copy(&mut self) {
        *self.is_bare.get_mut() = false;
        if let Some(cancel) = self.copying.take() {
            cancel.store(true, Ordering::Relaxed);
            self.needs_evaluation = true;
        }
    }

    /// Aborts a relocation that is copying, because of a write, unless writers wait for it anyway.
    pub(crate) fn abort_copy_for_writer(&mut self) {
        if !self.copy_is_awaited {
            self.abort_copy();
        }
    }

    /// A copy begins.
    pub(crate) fn copy_begins(&mut self, flag: &Arc<AtomicBool>, is_awaited: bool) {
        self.copying = Some(Arc::clone(flag));
        self.copy_is_awaited = is_awaited;
    }

    /// The copy that had this flag has come to its end.
    pub(crate) fn copy_ended(&mut self, flag: &Arc<AtomicBool>) {
        self.copying.take_if(|copying| Arc::ptr_eq(copying, flag));
    }

    /// Removes the last name. The file stays for open handles.
    pub(crate) fn lose_last_name(&mut self, parent: &Arc<Node>, name: &OsStr) {
        self.names.clear();
        self.unlinked = true;
        self.past_path = (!self.handles.is_empty()).then(|| path_of(parent, name).into());
    }

    /// Whether a file that was found under this name has no other: neither one that was found, nor one that it was
    /// given since. While it moves, its links are fewer for a moment. `moves`: the directory's, before it was looked
    /// at.
    pub(crate) fn has_only_name(
        &self,
        found: &crate::ground::meta::Meta,
        (parent, name): (&Arc<Node>, &OsStr),
        moves: Option<u64>,
    ) -> bool {
        found.nlink <= 1
            && matches!(self.names.as_slice(), [(known, known_name)] if known.id == parent.id && known_name == name)
            && moves.is_some_and(|moves| parent.is_unmoved_since(moves))
    }

    /// The file through a handle, or as it is kept without a name.
    pub(crate) fn open_file(&self) -> Option<FileAt> {
        let handle = self.any_handle().map(|handle| FileAt::clone(&handle.current()));
        handle.or_else(|| self.kept.as_deref().cloned())
    }

    /// An open handle, if there is one.
    pub(crate) fn any_handle(&self) -> Option<Arc<Handle>> {
        self.handles.iter().find_map(Weak::upgrade)
    }
}

impl Node {
    pub(crate) fn new_dir(id: NodeId, ino: Ino, born: Option<Timestamp>, state: DirState) -> Arc<Node> {
        let dir = Dir {
            state: RankedRwLock::keyed(id.0, state),
            moves: AtomicU64::new(0),
            commit: RankedMutex::keyed(id.0, ()),
            attributes: RankedMutex::keyed(id.0, ()),
            times: times::DirTimes::new(id),
            changes: DirChanges::new(id),
            alike: AtomicU64::new(0),
            readers: AtomicU32::new(0),
            listed_at: AtomicU64::new(0),
            listing: RankedMutex::keyed(id.0, None),
        };
        Node::new(id, ino, FileKind::Directory, born, Body::Dir(Box::new(dir)))
    }

    pub(crate) fn new_file(
        id: NodeId,
        ino: Ino,
        kind: FileKind,
        born: Option<Timestamp>,
        state: FileState,
    ) -> Arc<Node> {
        let (io, state) = (RankedRwLock::keyed(id.0, ()), RankedRwLock::keyed(id.0, state));
        let file = File { io, state, transferred: AtomicU64::new(0) };
        Node::new(id, ino, kind, born, Body::File(file))
    }

    fn new(id: NodeId, ino: Ino, kind: FileKind, born: Option<Timestamp>, body: Body) -> Arc<Node> {
        let (refs, looks) = (AtomicU64::new(1), looks::Looks::default());
        Arc::new(Node { id, ino, kind, born, refs, looks, body })
    }

    pub(crate) fn dir(&self) -> Option<&Dir> {
        match &self.body {
            Body::Dir(dir) => Some(dir),
            Body::File(_) => None,
        }
    }

    /// Notes what happened to a name in a copy of this directory.
    pub(crate) fn note_name(&self, copy: &DirAt, change: NameChange) {
        if let Some(dir) = self.dir() {
            dir.changes.note_name(copy, change);
        }
    }

    /// Whether no entry of this directory was on its way from one branch to another since its `moves` were read.
    pub(crate) fn is_unmoved_since(&self, moves: u64) -> bool {
        moves.is_multiple_of(2) && self.dir().is_some_and(|dir| dir.moves.load(Ordering::Acquire) == moves)
    }

    pub(crate) fn file(&self) -> Option<&File> {
        match &self.body {
            Body::File(file) => Some(file),
            Body::Dir(_) => None,
        }
    }

    /// Whether it is a directory that has no name any more.
    pub(crate) fn is_removed(&self) -> bool {
        self.dir().is_some_and(|dir| dir.state.read().removed)
    }

    /// One more reference; only while another one is held, or under the table's lock.
    pub(crate) fn retain(&self) {
        self.refs.fetch_add(1, Ordering::Relaxed);
    }

    /// A place in the tree: parent and name. `None` for the root and for files without a name.
    pub(crate) fn place(&self) -> Option<(Arc<Node>, OsString)> {
        match &self.body {
            Body::Dir(dir) => dir.state.read().place.clone(),
            Body::File(file) => file.state.read().names.first().cloned(),
        }
    }

    /// All paths of a file, as far as they are known.
    pub(crate) fn paths(&self) -> Vec<Vec<u8>> {
        let names = self.file().map(|file| file.state.read().names.clone()).unwrap_or_default();
        names.iter().map(|(parent, name)| path_of(parent, name)).collect()
    }

    /// The path that rules look at: of several names the first in alphabetical order, so that it is always the same
    /// one.
    pub(crate) fn rule_path(&self) -> Vec<u8> {
        let Some(file) = self.file() else { return self.path() };
        let names = file.state.read().names.clone();
        names.iter().map(|(parent, name)| path_of(parent, name)).min().unwrap_or_else(|| self.path())
    }

    /// How the copies of a directory differ; `None` where they do not.
    pub(crate) fn divergence(&self) -> Option<Arc<Divergence>> {
        self.dir()?.state.read().divergence.clone()
    }

    /// The path in the pool, beginning with `/`; for a file with several names, one of them; for one without, where it
    /// was.
    pub(crate) fn path(&self) -> Vec<u8> {
        match self.place() {
            None => {
                let past = self.file().and_then(|file| file.state.read().past_path.as_deref().map(<[u8]>::to_vec));
                past.unwrap_or_else(|| b"/".to_vec())
            }
            Some((parent, name)) => path_of(&parent, &name),
        }
    }
}

/// The path in the pool of a name in a directory.
pub(crate) fn path_of(parent: &Arc<Node>, name: &OsStr) -> Vec<u8> {
    let mut names: SmallVec<[OsString; 16]> = SmallVec::new();
    let mut at = Arc::clone(parent);
    while let Some((above, name)) = at.place() {
        names.push(name);
        at = above;
    }
    let mut path = Vec::with_capacity(names.iter().map(|n| n.len() + 1).sum::<usize>() + name.len() + 1);
    for part in names.iter().rev() {
        path.push(b'/');
        path.extend_from_slice(part.as_bytes());
    }
    path.push(b'/');
    path.extend_from_slice(name.as_bytes());
    path
}

impl Drop for Node {
    /// Lets go of the parents one after the other: a deep tree must not recurse.
    fn drop(&mut self) {
        let mut next = match &mut self.body {
            Body::Dir(dir) => dir.state.get_mut().place.take().map(|(parent, _)| parent),
            Body::File(_) => None,
        };
        while let Some(node) = next {
            next = Arc::into_inner(node).and_then(|mut node| match &mut node.body {
                Body::Dir(dir) => dir.state.get_mut().place.take().map(|(parent, _)| parent),
                Body::File(_) => None,
            });
        }
    }
}
