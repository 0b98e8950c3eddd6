//! Answers: one type for each kind of reply, and how it is laid out for the kernel.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use zerocopy::IntoBytes;

use crate::abi;
use crate::backing::BackingFile;
use crate::flags::OpenFlags;
use crate::ioctl::FsXattr;
use crate::types::{Attributes, FileHandle, FileType, InodeNumber, Lock, NodeId, Timestamp};

/// What a request can be answered with.
pub trait Answer: sealed::Parts {}

impl<T: sealed::Parts> Answer for T {}

pub(crate) mod sealed {
    /// The pieces of an answer, in the order in which the kernel reads them.
    pub trait Parts {
        /// Calls with the pieces.
        fn with<R>(&self, call: impl FnOnce(&[&[u8]]) -> R) -> R;
    }
}

use sealed::Parts;

/// Answers that are one struct for the kernel.
macro_rules! one_struct {
    ($($answer:ty => |$it:ident| $wire:expr;)*) => {$(
        impl Parts for $answer {
            fn with<R>(&self, call: impl FnOnce(&[&[u8]]) -> R) -> R {
                let $it = self;
                call(&[$wire.as_bytes()])
            }
        }
    )*};
}

one_struct! {
    Entry => |it| it.wire();
    Opened => |it| it.wire();
    Stat => |it| it.wire();
    Statx => |it| it.wire();
    Space => |it| it.wire();
    Written => |it| abi::WriteOut { size: it.0, padding: 0 };
    Copied => |it| abi::CopyFileRangeOut { bytes_copied: it.0 };
    Offset => |it| abi::LseekOut { offset: it.0 };
    Block => |it| abi::BmapOut { block: it.0 };
    Ready => |it| abi::PollOut { revents: it.0, padding: 0 };
    // The lock in the way, or one of the kind `Unlock`.
    Lock => |it| abi::LkOut { lk: it.wire() };
}

/// Success, and nothing more to say.
impl Parts for () {
    fn with<R>(&self, call: impl FnOnce(&[&[u8]]) -> R) -> R {
        call(&[])
    }
}

/// Whole seconds and nanoseconds, as the kernel wants a time to live.
fn ttl(duration: Duration) -> (u64, u32) {
    (duration.as_secs(), duration.subsec_nanos())
}

/// A name and whom it names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Whom. Each answer counts as one lookup, until [`Forget`](crate::Forget).
    pub node: NodeId,
    /// Tells files apart that have the same node id one after the other.
    pub generation: u64,
    /// How long the kernel may keep the name.
    pub entry_ttl: Duration,
    /// How long the kernel may keep the attributes.
    pub attributes_ttl: Duration,
    /// Attributes.
    pub attributes: Attributes,
}

impl Entry {
    /// Says that nobody has the name, for this time. The error ENOENT says it for this once.
    pub fn negative(entry_ttl: Duration) -> Entry {
        let mut attributes = Attributes::new(InodeNumber(0), FileType::RegularFile, 0);
        attributes.nlink = 0;
        Entry { node: NodeId(0), generation: 0, entry_ttl, attributes_ttl: Duration::ZERO, attributes }
    }

    fn wire(&self) -> abi::EntryOut {
        let ((entry_valid, entry_valid_nsec), (attr_valid, attr_valid_nsec)) =
            (ttl(self.entry_ttl), ttl(self.attributes_ttl));
        abi::EntryOut {
            nodeid: self.node.0,
            generation: self.generation,
            entry_valid,
            attr_valid,
            entry_valid_nsec,
            attr_valid_nsec,
            attr: self.attributes.wire(),
        }
    }
}

/// Attributes, and how long the kernel may keep them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// Attributes.
    pub attributes: Attributes,
    /// How long they may be kept.
    pub ttl: Duration,
}

impl Stat {
    fn wire(&self) -> abi::AttrOut {
        let (attr_valid, attr_valid_nsec) = ttl(self.ttl);
        abi::AttrOut { attr_valid, attr_valid_nsec, dummy: 0, attr: self.attributes.wire() }
    }
}

/// Attributes with the time of birth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Statx {
    /// Attributes.
    pub attributes: Attributes,
    /// How long they may be kept.
    pub ttl: Duration,
    /// When the file came to be, where it is known.
    pub birth: Option<Timestamp>,
}

impl Statx {
    fn wire(&self) -> abi::StatxOut {
        let time = |time: Timestamp| abi::SxTime { tv_sec: time.seconds, tv_nsec: time.nanoseconds, reserved: 0 };
        let of = &self.attributes;
        let with_birth = if self.birth.is_some() { libc::STATX_BTIME } else { 0 };
        let stat = abi::Statx {
            mask: libc::STATX_BASIC_STATS | with_birth,
            blksize: of.block_size,
            nlink: of.nlink,
            uid: of.uid,
            gid: of.gid,
            mode: of.mode() as u16,
            ino: of.ino.0,
            size: of.size,
            blocks: of.blocks,
            atime: time(of.atime),
            btime: time(self.birth.unwrap_or_default()),
            ctime: time(of.ctime),
            mtime: time(of.mtime),
            rdev_major: rustix::fs::major(of.device),
            rdev_minor: rustix::fs::minor(of.device),
            ..abi::Statx::default()
        };
        let (attr_valid, attr_valid_nsec) = ttl(self.ttl);
        abi::StatxOut { attr_valid, attr_valid_nsec, stat, ..abi::StatxOut::default() }
    }
}

/// Whom an answer in pieces names, if it is an [`Entry`].
pub(crate) fn named(operation: u32, parts: &[&[u8]]) -> Option<NodeId> {
    use abi::opcode as op;
    let names = [op::LOOKUP, op::CREATE, op::TMPFILE, op::MKNOD, op::MKDIR, op::SYMLINK, op::LINK];
    let entry = parts.first().filter(|_| names.contains(&operation))?;
    Some(NodeId(u64::from_le_bytes(*entry.first_chunk()?)))
}

/// A file or directory that was opened.
#[derive(Debug, Clone)]
pub struct Opened {
    handle: FileHandle,
    flags: OpenFlags,
    /// Its id, or 0.
    backing: i32,
}

impl Opened {
    /// Reads and writes come to the file system.
    pub fn new(handle: FileHandle, flags: OpenFlags) -> Opened {
        Opened { handle, flags: flags - OpenFlags::PASSTHROUGH, backing: 0 }
    }

    /// Reads and writes go to the backing file. Keep it until the handle is released: the kernel needs it until then.
    pub fn passthrough(handle: FileHandle, flags: OpenFlags, backing: &BackingFile) -> Opened {
        Opened { handle, flags: flags | OpenFlags::PASSTHROUGH, backing: backing.raw() }
    }

    fn wire(&self) -> abi::OpenOut {
        abi::OpenOut { fh: self.handle.0, open_flags: self.flags.bits(), backing_id: self.backing }
    }
}

/// A file that was made and opened.
#[derive(Debug, Clone)]
pub struct Created {
    /// Its name.
    pub entry: Entry,
    /// How it is open.
    pub opened: Opened,
}

impl Parts for Created {
    fn with<R>(&self, call: impl FnOnce(&[&[u8]]) -> R) -> R {
        call(&[self.entry.wire().as_bytes(), self.opened.wire().as_bytes()])
    }
}

/// Data of a file, or the target of a link: see `Reply<Data>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Data {}

/// The value of an extended attribute, or all names, each ended by a zero: see `Reply<Xattr>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Xattr {}

/// Number of bytes that were written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written(pub u32);

/// Number of bytes that were copied, at most the number that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copied(pub u64);

// The older form of the answer has 32 bits and padding: where the low half comes first both look the same.
const _: () = assert!(cfg!(target_endian = "little"));

/// Where data or a hole begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offset(pub u64);

/// A block of the device below.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block(pub u64);

/// What can be done without waiting: `POLLIN` and so on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ready(pub u32);

/// Room of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Space {
    /// Bytes of a block.
    pub block_size: u32,
    /// All blocks.
    pub blocks: u64,
    /// Free blocks.
    pub blocks_free: u64,
    /// Blocks free to everybody.
    pub blocks_available: u64,
    /// All inodes.
    pub files: u64,
    /// Free inodes.
    pub files_free: u64,
    /// Bytes of the longest name.
    pub longest_name: u32,
}

impl Space {
    fn wire(&self) -> abi::Kstatfs {
        abi::Kstatfs {
            blocks: self.blocks,
            bfree: self.blocks_free,
            bavail: self.blocks_available,
            files: self.files,
            ffree: self.files_free,
            bsize: self.block_size,
            namelen: self.longest_name,
            frsize: self.block_size,
            ..abi::Kstatfs::default()
        }
    }
}

/// The answer to an ioctl.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IoctlAnswer {
    /// What `ioctl(2)` returns.
    pub result: i32,
    /// What is copied to the caller.
    pub output: Vec<u8>,
}

impl IoctlAnswer {
    /// To [`FileIoctl::GetFlags`](crate::FileIoctl::GetFlags).
    pub fn flags(flags: u32) -> IoctlAnswer {
        IoctlAnswer { result: 0, output: flags.as_bytes().to_vec() }
    }

    /// To [`FileIoctl::GetFsXattr`](crate::FileIoctl::GetFsXattr).
    pub fn fs_xattr(value: &FsXattr) -> IoctlAnswer {
        IoctlAnswer { result: 0, output: value.as_bytes().to_vec() }
    }
}

impl Parts for IoctlAnswer {
    fn with<R>(&self, call: impl FnOnce(&[&[u8]]) -> R) -> R {
        let head = abi::IoctlOut { result: self.result, ..abi::IoctlOut::default() };
        call(&[head.as_bytes(), &self.output])
    }
}

/// A piece of a directory's listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    bytes: Vec<u8>,
    room: usize,
}

/// The listing has no room for the entry: it belongs in the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;

/// An entry of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listed<'a> {
    /// Shown as `d_ino`.
    pub ino: InodeNumber,
    /// The offset that asks for the entry after this one.
    pub next: u64,
    /// Kind.
    pub kind: FileType,
    /// Name.
    pub name: &'a OsStr,
}

impl Listing {
    /// An empty one, with the room that the request states ([`Read::size`](crate::Read::size)).
    pub fn new(room: u32) -> Listing {
        Listing { bytes: Vec::new(), room: room as usize }
    }

    /// Adds an entry, to the answer to READDIR.
    pub fn add(&mut self, entry: &Listed<'_>) -> Result<(), Full> {
        self.push(&[], entry)
    }

    /// Adds an entry with attributes, to the answer to READDIRPLUS. Counts as one lookup of the node if it was added
    /// and is neither `.` nor `..`; [`Listing::add_plain`] adds one without.
    pub fn add_with_attributes(&mut self, entry: &Listed<'_>, attributes: &Entry) -> Result<(), Full> {
        self.push(attributes.wire().as_bytes(), entry)
    }

    /// Adds an entry without attributes to the answer to READDIRPLUS.
    pub fn add_plain(&mut self, entry: &Listed<'_>) -> Result<(), Full> {
        self.push(abi::EntryOut::default().as_bytes(), entry)
    }

    /// Whether nothing was added yet.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    fn push(&mut self, before: &[u8], entry: &Listed<'_>) -> Result<(), Full> {
        let name = entry.name.as_bytes();
        let length = (before.len() + size_of::<abi::Dirent>() + name.len()).next_multiple_of(8);
        if self.bytes.len() + length > self.room {
            return Err(Full);
        }
        let head = abi::Dirent {
            ino: entry.ino.0,
            off: entry.next,
            namelen: name.len() as u32,
            // `DT_REG` and so on.
            kind: entry.kind.as_raw_mode() >> 12,
        };
        let end = self.bytes.len() + length;
        for piece in [before, head.as_bytes(), name] {
            self.bytes.extend_from_slice(piece);
        }
        self.bytes.resize(end, 0);
        Ok(())
    }
}

impl Parts for Listing {
    fn with<R>(&self, call: impl FnOnce(&[&[u8]]) -> R) -> R {
        call(&[&self.bytes])
    }
}

#[cfg(test)]
mod tests;
