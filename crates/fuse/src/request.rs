//! Requests of the kernel: for each operation a struct of named fields.
//!
//! Names and data are borrowed from the buffer that the request came in; they are good until the handler returns.

use std::ffi::OsStr;

use zerocopy::FromBytes;

use crate::abi::{self, bit, fattr, opcode};
use crate::body::{Body, Malformed, Parsed};
use crate::extensions::Extensions;
use crate::flags::{IoctlFlags, RenameFlags, WriteFlags};
use crate::ioctl::FileIoctl;
use crate::types::{DeviceNumber, FileHandle, Lock, LockOwner, NewTime, NodeId, PollHandle, RequestId, Timestamp};

/// Defines the structs of requests.
macro_rules! requests {
    ($($(#[$doc:meta])* struct $name:ident $(<$life:lifetime>)? { $($(#[$field_doc:meta])* $field:ident: $kind:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $name $(<$life>)? { $($(#[$field_doc])* pub $field: $kind,)* }
    )*};
}

requests! {
    /// Who has which name in a directory.
    struct Lookup<'a> {
        /// Directory.
        parent: NodeId,
        /// Name.
        name: &'a OsStr,
    }
    /// The kernel lets go of a node.
    struct Forget {
        /// Which.
        node: NodeId,
        /// How many of the answers that named it are taken back. With as many as were given the node is gone.
        lookups: u64,
    }
    /// Attributes.
    struct GetAttr {
        /// Of whom.
        node: NodeId,
        /// Asked by an open file.
        handle: Option<FileHandle>,
    }
    /// Attributes with the time of birth.
    struct GetStatx {
        /// Of whom.
        node: NodeId,
        /// Asked by an open file.
        handle: Option<FileHandle>,
        /// `AT_STATX_*`.
        flags: u32,
        /// `STATX_*`: what is wanted.
        mask: u32,
    }
    /// Changes attributes: those that are given.
    struct SetAttr {
        /// Of whom.
        node: NodeId,
        /// Asked by an open file.
        handle: Option<FileHandle>,
        /// Permissions and kind.
        mode: Option<u32>,
        /// Owner.
        uid: Option<u32>,
        /// Group.
        gid: Option<u32>,
        /// Truncates or extends.
        size: Option<u64>,
        /// Time of the last read.
        atime: Option<NewTime>,
        /// Time of the last change of the data.
        mtime: Option<NewTime>,
        /// Time of the last change, where the kernel keeps it (`WRITEBACK_CACHE`).
        ctime: Option<Timestamp>,
        /// Whose locks count.
        lock_owner: Option<LockOwner>,
        /// Set-id bits are to be dropped.
        kill_suidgid: bool,
    }
    /// Target of a symbolic link.
    struct ReadLink {
        /// Link.
        node: NodeId,
    }
    /// Makes a file, a device, a pipe or a socket.
    struct MkNod<'a> {
        /// Directory.
        parent: NodeId,
        /// Name.
        name: &'a OsStr,
        /// Kind and permissions.
        mode: u32,
        /// To apply with `DONT_MASK`.
        umask: u32,
        /// For device files.
        device: DeviceNumber,
        /// What else is asked of the new entry.
        extensions: Extensions<'a>,
    }
    /// Makes a directory.
    struct MkDir<'a> {
        /// Directory.
        parent: NodeId,
        /// Name.
        name: &'a OsStr,
        /// Permissions.
        mode: u32,
        /// To apply with `DONT_MASK`.
        umask: u32,
        /// What else is asked of the new entry.
        extensions: Extensions<'a>,
    }
    /// Makes a symbolic link.
    struct SymLink<'a> {
        /// Directory.
        parent: NodeId,
        /// Name.
        name: &'a OsStr,
        /// What it points to.
        target: &'a OsStr,
        /// What else is asked of the new entry.
        extensions: Extensions<'a>,
    }
    /// Takes a name away, of anything but a directory.
    struct Unlink<'a> {
        /// Directory.
        parent: NodeId,
        /// Name.
        name: &'a OsStr,
    }
    /// Takes a directory away.
    struct RmDir<'a> {
        /// Directory.
        parent: NodeId,
        /// Name.
        name: &'a OsStr,
    }
    /// Renames.
    struct Rename<'a> {
        /// Directory.
        parent: NodeId,
        /// Name.
        name: &'a OsStr,
        /// New directory.
        new_parent: NodeId,
        /// New name.
        new_name: &'a OsStr,
        /// How.
        flags: RenameFlags,
    }
    /// Gives a file one more name.
    struct Link<'a> {
        /// File.
        node: NodeId,
        /// Directory.
        new_parent: NodeId,
        /// Name.
        new_name: &'a OsStr,
    }
    /// Opens a file or directory.
    struct Open {
        /// Which.
        node: NodeId,
        /// Flags of `open(2)`.
        flags: i32,
        /// Set-id bits are to be dropped (`O_TRUNC`).
        kill_suidgid: bool,
    }
    /// Makes a file and opens it.
    struct Create<'a> {
        /// Directory.
        parent: NodeId,
        /// Name; empty for a file without one (TMPFILE).
        name: &'a OsStr,
        /// Permissions.
        mode: u32,
        /// To apply with `DONT_MASK`.
        umask: u32,
        /// Flags of `open(2)`.
        flags: i32,
        /// Set-id bits are to be dropped (`O_TRUNC`).
        kill_suidgid: bool,
        /// What else is asked of the new entry.
        extensions: Extensions<'a>,
    }
    /// Reads from a file, or from the listing of a directory.
    struct Read {
        /// Which.
        node: NodeId,
        /// As it was opened.
        handle: FileHandle,
        /// First byte; of a listing, the `next` of the last entry.
        offset: u64,
        /// The most bytes.
        size: u32,
        /// Flags of the open file.
        flags: i32,
        /// Whose locks count.
        lock_owner: Option<LockOwner>,
    }
    /// Writes.
    struct Write<'a> {
        /// File.
        node: NodeId,
        /// As it was opened.
        handle: FileHandle,
        /// First byte.
        offset: u64,
        /// What to write. Begins at a page in memory.
        data: &'a [u8],
        /// What is special.
        write_flags: WriteFlags,
        /// Flags of the open file.
        flags: i32,
        /// Whose locks count.
        lock_owner: Option<LockOwner>,
    }
    /// A descriptor is closed, one of perhaps several.
    struct Flush {
        /// File.
        node: NodeId,
        /// As it was opened.
        handle: FileHandle,
        /// Whose POSIX locks end.
        lock_owner: LockOwner,
    }
    /// An open file or directory is used no more.
    struct Release {
        /// Which.
        node: NodeId,
        /// As it was opened.
        handle: FileHandle,
        /// Flags of the open file.
        flags: i32,
        /// Whose locks end.
        lock_owner: LockOwner,
        /// FLUSH is to be done too.
        flush: bool,
        /// The lock of `flock` ends.
        unlock_flock: bool,
    }
    /// Brings a file or directory to the disk.
    struct FSync {
        /// Which.
        node: NodeId,
        /// As it was opened.
        handle: FileHandle,
        /// Data, and of the attributes only what is needed to read it.
        data_only: bool,
    }
    /// Brings everything to the disk. Linux asks it of virtiofs and of block devices only.
    struct SyncFs {
        /// Any node.
        node: NodeId,
    }
    /// Room that there is.
    struct StatFs {
        /// Any node.
        node: NodeId,
    }
    /// Sets an extended attribute.
    struct SetXattr<'a> {
        /// Of whom.
        node: NodeId,
        /// Name.
        name: &'a OsStr,
        /// Value.
        value: &'a [u8],
        /// `XATTR_CREATE`, `XATTR_REPLACE`.
        flags: u32,
        /// The set-group-id bit is to be dropped.
        kill_sgid: bool,
    }
    /// Value of an extended attribute.
    struct GetXattr<'a> {
        /// Of whom.
        node: NodeId,
        /// Name.
        name: &'a OsStr,
        /// Room of the caller; 0 asks for the size.
        size: u32,
    }
    /// Names of extended attributes.
    struct ListXattr {
        /// Of whom.
        node: NodeId,
        /// Room of the caller; 0 asks for the size.
        size: u32,
    }
    /// Takes an extended attribute away.
    struct RemoveXattr<'a> {
        /// Of whom.
        node: NodeId,
        /// Name.
        name: &'a OsStr,
    }
    /// Whether the caller may access a file; asked without the mount option `default_permissions`.
    struct Access {
        /// Which.
        node: NodeId,
        /// `R_OK`, `W_OK`, `X_OK`.
        mask: u32,
    }
    /// Which lock stands in the way.
    struct GetLock {
        /// File.
        node: NodeId,
        /// As it was opened.
        handle: FileHandle,
        /// Who asks.
        owner: LockOwner,
        /// Lock wanted.
        lock: Lock,
        /// One of `flock`.
        flock: bool,
    }
    /// Locks or unlocks.
    struct SetLock {
        /// File.
        node: NodeId,
        /// As it was opened.
        handle: FileHandle,
        /// Who asks.
        owner: LockOwner,
        /// Lock wanted.
        lock: Lock,
        /// One of `flock`.
        flock: bool,
        /// Whether to wait, for as long as it is not interrupted.
        wait: bool,
    }
    /// Block of the device that holds a block of the file.
    struct BMap {
        /// File.
        node: NodeId,
        /// Which block.
        block: u64,
        /// Bytes of a block.
        block_size: u32,
    }
    /// An ioctl. See [`Ioctl::file_ioctl`] for those of `chattr` and `lsattr`.
    struct Ioctl<'a> {
        /// File or directory.
        node: NodeId,
        /// As it was opened.
        handle: FileHandle,
        /// What is special.
        flags: IoctlFlags,
        /// Number.
        command: u32,
        /// Argument, as the caller gave it.
        argument: u64,
        /// What the caller passes.
        input: &'a [u8],
        /// The most bytes to return.
        output_size: u32,
    }
    /// What can be done with a file without waiting.
    struct Poll {
        /// File.
        node: NodeId,
        /// As it was opened.
        handle: FileHandle,
        /// Whom to wake later.
        wake: PollHandle,
        /// Whether to wake later.
        wants_wake: bool,
        /// `POLLIN` and so on.
        events: u32,
    }
    /// Makes room or holes.
    struct FAllocate {
        /// File.
        node: NodeId,
        /// As it was opened.
        handle: FileHandle,
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
        /// `FALLOC_FL_*`.
        mode: u32,
    }
    /// Finds data or holes.
    struct LSeek {
        /// File.
        node: NodeId,
        /// As it was opened.
        handle: FileHandle,
        /// From where.
        offset: i64,
        /// `SEEK_DATA`, `SEEK_HOLE`.
        whence: i32,
    }
    /// Copies from file to file.
    struct CopyFileRange {
        /// File to read.
        node: NodeId,
        /// As it was opened.
        handle: FileHandle,
        /// First byte.
        offset: u64,
        /// File to write.
        new_node: NodeId,
        /// As it was opened.
        new_handle: FileHandle,
        /// First byte.
        new_offset: u64,
        /// The most bytes.
        length: u64,
        /// None are known.
        flags: u64,
    }
    /// Data that [`Notifier::retrieve`](crate::Notifier::retrieve) asked for.
    struct Retrieved<'a> {
        /// As the notifier gave it.
        id: RequestId,
        /// Of whom.
        node: NodeId,
        /// First byte.
        offset: u64,
        /// What the kernel's cache has.
        data: &'a [u8],
    }
}

impl Ioctl<'_> {
    /// The request as one of those that `chattr`, `lsattr` and project quotas use.
    pub fn file_ioctl(&self) -> Option<FileIoctl> {
        FileIoctl::parse(self.command, self.input)
    }
}

/// A request, read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Operation<'a> {
    Lookup(Lookup<'a>),
    Forget(Forget),
    BatchForget(Vec<Forget>),
    GetAttr(GetAttr),
    Statx(GetStatx),
    SetAttr(SetAttr),
    ReadLink(ReadLink),
    SymLink(SymLink<'a>),
    MkNod(MkNod<'a>),
    MkDir(MkDir<'a>),
    Unlink(Unlink<'a>),
    RmDir(RmDir<'a>),
    Rename(Rename<'a>),
    Link(Link<'a>),
    Open(Open),
    Create(Create<'a>),
    TmpFile(Create<'a>),
    Read(Read),
    Write(Write<'a>),
    StatFs(StatFs),
    Release(Release),
    FSync(FSync),
    SetXattr(SetXattr<'a>),
    GetXattr(GetXattr<'a>),
    ListXattr(ListXattr),
    RemoveXattr(RemoveXattr<'a>),
    Flush(Flush),
    OpenDir(Open),
    ReadDir(Read),
    ReadDirPlus(Read),
    ReleaseDir(Release),
    FSyncDir(FSync),
    SyncFs(SyncFs),
    GetLock(GetLock),
    SetLock(SetLock),
    Access(Access),
    Interrupt(RequestId),
    BMap(BMap),
    Destroy,
    Ioctl(Ioctl<'a>),
    Poll(Poll),
    Retrieved(Retrieved<'a>),
    FAllocate(FAllocate),
    LSeek(LSeek),
    CopyFileRange(CopyFileRange),
    /// INIT once more, or what nobody knows.
    Unknown,
}

/// The name of an operation, for people.
pub fn operation_name(number: u32) -> &'static str {
    match number {
        opcode::LOOKUP => "lookup",
        opcode::FORGET => "forget",
        opcode::GETATTR => "getattr",
        opcode::SETATTR => "setattr",
        opcode::READLINK => "readlink",
        opcode::SYMLINK => "symlink",
        opcode::MKNOD => "mknod",
        opcode::MKDIR => "mkdir",
        opcode::UNLINK => "unlink",
        opcode::RMDIR => "rmdir",
        opcode::RENAME | opcode::RENAME2 => "rename",
        opcode::LINK => "link",
        opcode::OPEN => "open",
        opcode::READ => "read",
        opcode::WRITE => "write",
        opcode::STATFS => "statfs",
        opcode::RELEASE => "release",
        opcode::FSYNC => "fsync",
        opcode::SETXATTR => "setxattr",
        opcode::GETXATTR => "getxattr",
        opcode::LISTXATTR => "listxattr",
        opcode::REMOVEXATTR => "removexattr",
        opcode::FLUSH => "flush",
        opcode::INIT => "init",
        opcode::OPENDIR => "opendir",
        opcode::READDIR => "readdir",
        opcode::RELEASEDIR => "releasedir",
        opcode::FSYNCDIR => "fsyncdir",
        opcode::GETLK => "getlk",
        opcode::SETLK => "setlk",
        opcode::SETLKW => "setlkw",
        opcode::ACCESS => "access",
        opcode::CREATE => "create",
        opcode::INTERRUPT => "interrupt",
        opcode::BMAP => "bmap",
        opcode::DESTROY => "destroy",
        opcode::IOCTL => "ioctl",
        opcode::POLL => "poll",
        opcode::NOTIFY_REPLY => "notify_reply",
        opcode::BATCH_FORGET => "batch_forget",
        opcode::FALLOCATE => "fallocate",
        opcode::READDIRPLUS => "readdirplus",
        opcode::LSEEK => "lseek",
        opcode::COPY_FILE_RANGE | opcode::COPY_FILE_RANGE_64 => "copy_file_range",
        opcode::SYNCFS => "syncfs",
        opcode::TMPFILE => "tmpfile",
        opcode::STATX => "statx",
        _ => "unknown",
    }
}

/// Whether the kernel waits for no answer.
pub(crate) fn is_one_way(number: u32) -> bool {
    matches!(number, opcode::FORGET | opcode::BATCH_FORGET | opcode::INTERRUPT | opcode::NOTIFY_REPLY)
}

/// Shape of requests that was agreed on at INIT.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Shape {
    /// SETXATTR has its second word of flags.
    pub(crate) setxattr_ext: bool,
}

/// Reads a request.
#[allow(clippy::too_many_lines, reason = "one arm an operation, and nothing else")]
pub(crate) fn parse<'a>(header: &abi::InHeader, mut body: Body<'a>, shape: Shape) -> Parsed<Operation<'a>> {
    use Operation as Op;
    let node = NodeId(header.nodeid);
    let extensions = body.extensions(header)?;
    Ok(match header.opcode {
        opcode::LOOKUP => {
            body.no_struct();
            Op::Lookup(Lookup { parent: node, name: body.name()? })
        }
        opcode::FORGET => Op::Forget(Forget { node, lookups: body.take::<abi::ForgetIn>()?.nlookup }),
        opcode::BATCH_FORGET => Op::BatchForget(forgets(&mut body)?),
        opcode::GETATTR => {
            let read: abi::GetattrIn = body.take()?;
            Op::GetAttr(GetAttr { node, handle: handle_if(read.getattr_flags & bit::GETATTR_FH, read.fh) })
        }
        opcode::STATX => {
            let read: abi::StatxIn = body.take()?;
            let handle = handle_if(read.getattr_flags & bit::GETATTR_FH, read.fh);
            Op::Statx(GetStatx { node, handle, flags: read.sx_flags, mask: read.sx_mask })
        }
        opcode::SETATTR => Op::SetAttr(set_attr(node, &body.take()?)),
        opcode::READLINK => Op::ReadLink(ReadLink { node }),
        opcode::SYMLINK => {
            body.no_struct();
            Op::SymLink(SymLink { parent: node, name: body.name()?, target: body.name()?, extensions })
        }
        opcode::MKNOD => {
            let read: abi::MknodIn = body.take()?;
            let (mode, umask, device) = (read.mode, read.umask, DeviceNumber::unpack(read.rdev));
            Op::MkNod(MkNod { parent: node, name: body.name()?, mode, umask, device, extensions })
        }
        opcode::MKDIR => {
            let abi::MkdirIn { mode, umask } = body.take()?;
            Op::MkDir(MkDir { parent: node, name: body.name()?, mode, umask, extensions })
        }
        opcode::UNLINK => {
            body.no_struct();
            Op::Unlink(Unlink { parent: node, name: body.name()? })
        }
        opcode::RMDIR => {
            body.no_struct();
            Op::RmDir(RmDir { parent: node, name: body.name()? })
        }
        opcode::RENAME => {
            let read: abi::RenameIn = body.take()?;
            Op::Rename(rename(node, read.newdir, 0, &mut body)?)
        }
        opcode::RENAME2 => {
            let read: abi::Rename2In = body.take()?;
            Op::Rename(rename(node, read.newdir, read.flags, &mut body)?)
        }
        opcode::LINK => {
            let read: abi::LinkIn = body.take()?;
            Op::Link(Link { node: NodeId(read.oldnodeid), new_parent: node, new_name: body.name()? })
        }
        opcode::OPEN => Op::Open(open(node, &body.take()?)),
        opcode::OPENDIR => Op::OpenDir(open(node, &body.take()?)),
        opcode::CREATE => Op::Create(create(node, &mut body, extensions)?),
        opcode::TMPFILE => Op::TmpFile(create(node, &mut body, extensions)?),
        opcode::READ => Op::Read(read(node, &body.take()?)),
        opcode::READDIR => Op::ReadDir(read(node, &body.take()?)),
        opcode::READDIRPLUS => Op::ReadDirPlus(read(node, &body.take()?)),
        opcode::WRITE => Op::Write(write(node, &mut body)?),
        opcode::STATFS => Op::StatFs(StatFs { node }),
        opcode::RELEASE => Op::Release(release(node, &body.take()?)),
        opcode::RELEASEDIR => Op::ReleaseDir(release(node, &body.take()?)),
        opcode::FSYNC => Op::FSync(fsync(node, &body.take()?)),
        opcode::FSYNCDIR => Op::FSyncDir(fsync(node, &body.take()?)),
        opcode::SYNCFS => Op::SyncFs(SyncFs { node }),
        opcode::SETXATTR => Op::SetXattr(set_xattr(node, &mut body, shape)?),
        opcode::GETXATTR => {
            let read: abi::GetxattrIn = body.take()?;
            Op::GetXattr(GetXattr { node, name: body.name()?, size: read.size })
        }
        opcode::LISTXATTR => Op::ListXattr(ListXattr { node, size: body.take::<abi::GetxattrIn>()?.size }),
        opcode::REMOVEXATTR => {
            body.no_struct();
            Op::RemoveXattr(RemoveXattr { node, name: body.name()? })
        }
        opcode::FLUSH => {
            let read: abi::FlushIn = body.take()?;
            Op::Flush(Flush { node, handle: FileHandle(read.fh), lock_owner: LockOwner(read.lock_owner) })
        }
        opcode::GETLK => {
            let read: abi::LkIn = body.take()?;
            let lock = Lock::from_wire(&read.lk).ok_or(Malformed)?;
            let (handle, owner, flock) = (FileHandle(read.fh), LockOwner(read.owner), read.lk_flags & bit::LK_FLOCK != 0);
            Op::GetLock(GetLock { node, handle, owner, lock, flock })
        }
        opcode::SETLK | opcode::SETLKW => {
            let read: abi::LkIn = body.take()?;
            let lock = Lock::from_wire(&read.lk).ok_or(Malformed)?;
            let (handle, owner, flock) = (FileHandle(read.fh), LockOwner(read.owner), read.lk_flags & bit::LK_FLOCK != 0);
            Op::SetLock(SetLock { node, handle, owner, lock, flock, wait: header.opcode == opcode::SETLKW })
        }
        opcode::ACCESS => Op::Access(Access { node, mask: body.take::<abi::AccessIn>()?.mask }),
        opcode::INTERRUPT => Op::Interrupt(RequestId(body.take::<abi::InterruptIn>()?.unique)),
        opcode::BMAP => {
            let read: abi::BmapIn = body.take()?;
            Op::BMap(BMap { node, block: read.block, block_size: read.blocksize })
        }
        opcode::DESTROY => Op::Destroy,
        opcode::IOCTL => Op::Ioctl(ioctl(node, &mut body)?),
        opcode::POLL => {
            let abi::PollIn { fh, kh, flags, events } = body.take()?;
            let wants_wake = flags & bit::POLL_SCHEDULE_NOTIFY != 0;
            Op::Poll(Poll { node, handle: FileHandle(fh), wake: PollHandle(kh), wants_wake, events })
        }
        opcode::NOTIFY_REPLY => {
            let read: abi::NotifyRetrieveIn = body.take()?;
            let data = body.bytes(read.size as usize)?;
            Op::Retrieved(Retrieved { id: RequestId(header.unique), node, offset: read.offset, data })
        }
        opcode::FALLOCATE => {
            let abi::FallocateIn { fh, offset, length, mode, .. } = body.take()?;
            Op::FAllocate(FAllocate { node, handle: FileHandle(fh), offset, length, mode })
        }
        opcode::LSEEK => {
            let read: abi::LseekIn = body.take()?;
            let (offset, whence) = (read.offset as i64, read.whence as i32);
            Op::LSeek(LSeek { node, handle: FileHandle(read.fh), offset, whence })
        }
        opcode::COPY_FILE_RANGE | opcode::COPY_FILE_RANGE_64 => {
            Op::CopyFileRange(copy_file_range(node, &body.take()?, header.opcode))
        }
        _ => Op::Unknown,
    })
}

fn handle_if(condition: u32, handle: u64) -> Option<FileHandle> {
    (condition != 0).then_some(FileHandle(handle))
}

/// The count is the kernel's word; memory is taken for what is there.
fn forgets(body: &mut Body<'_>) -> Parsed<Vec<Forget>> {
    let head: abi::BatchForgetIn = body.take()?;
    let mut all = Vec::new();
    for _ in 0..head.count {
        let one: abi::ForgetOne = body.take()?;
        all.push(Forget { node: NodeId(one.nodeid), lookups: one.nlookup });
    }
    Ok(all)
}

fn set_attr(node: NodeId, read: &abi::SetattrIn) -> SetAttr {
    let has = |bit| read.valid & bit != 0;
    let time = |given, now, seconds: u64, nanoseconds| match (has(given), has(now)) {
        (false, _) => None,
        (true, true) => Some(NewTime::Now),
        (true, false) => Some(NewTime::At(Timestamp { seconds: seconds as i64, nanoseconds })),
    };
    SetAttr {
        node,
        handle: has(fattr::FH).then_some(FileHandle(read.fh)),
        mode: has(fattr::MODE).then_some(read.mode),
        uid: has(fattr::UID).then_some(read.uid),
        gid: has(fattr::GID).then_some(read.gid),
        size: has(fattr::SIZE).then_some(read.size),
        atime: time(fattr::ATIME, fattr::ATIME_NOW, read.atime, read.atimensec),
        mtime: time(fattr::MTIME, fattr::MTIME_NOW, read.mtime, read.mtimensec),
        ctime: has(fattr::CTIME).then_some(Timestamp { seconds: read.ctime as i64, nanoseconds: read.ctimensec }),
        lock_owner: has(fattr::LOCKOWNER).then_some(LockOwner(read.lock_owner)),
        kill_suidgid: has(fattr::KILL_SUIDGID),
    }
}

fn rename<'a>(parent: NodeId, new_parent: u64, flags: u32, body: &mut Body<'a>) -> Parsed<Rename<'a>> {
    Ok(Rename {
        parent,
        name: body.name()?,
        new_parent: NodeId(new_parent),
        new_name: body.name()?,
        flags: RenameFlags::from_bits_retain(flags),
    })
}

fn open(node: NodeId, read: &abi::OpenIn) -> Open {
    Open { node, flags: read.flags as i32, kill_suidgid: read.open_flags & bit::OPEN_KILL_SUIDGID != 0 }
}

fn create<'a>(parent: NodeId, body: &mut Body<'a>, extensions: Extensions<'a>) -> Parsed<Create<'a>> {
    let abi::CreateIn { flags, mode, umask, open_flags } = body.take()?;
    let kill_suidgid = open_flags & bit::OPEN_KILL_SUIDGID != 0;
    Ok(Create { parent, name: body.name()?, mode, umask, flags: flags as i32, kill_suidgid, extensions })
}

fn read(node: NodeId, read: &abi::ReadIn) -> Read {
    Read {
        node,
        handle: FileHandle(read.fh),
        offset: read.offset,
        size: read.size,
        flags: read.flags as i32,
        lock_owner: (read.read_flags & bit::READ_LOCKOWNER != 0).then_some(LockOwner(read.lock_owner)),
    }
}

fn write<'a>(node: NodeId, body: &mut Body<'a>) -> Parsed<Write<'a>> {
    let read: abi::WriteIn = body.take()?;
    let write_flags = WriteFlags::from_bits_retain(read.write_flags);
    Ok(Write {
        node,
        handle: FileHandle(read.fh),
        offset: read.offset,
        data: body.bytes(read.size as usize)?,
        write_flags,
        flags: read.flags as i32,
        lock_owner: write_flags.contains(WriteFlags::LOCK_OWNER).then_some(LockOwner(read.lock_owner)),
    })
}

fn release(node: NodeId, read: &abi::ReleaseIn) -> Release {
    Release {
        node,
        handle: FileHandle(read.fh),
        flags: read.flags as i32,
        lock_owner: LockOwner(read.lock_owner),
        flush: read.release_flags & bit::RELEASE_FLUSH != 0,
        unlock_flock: read.release_flags & bit::RELEASE_FLOCK_UNLOCK != 0,
    }
}

fn fsync(node: NodeId, read: &abi::FsyncIn) -> FSync {
    FSync { node, handle: FileHandle(read.fh), data_only: read.fsync_flags & bit::FSYNC_FDATASYNC != 0 }
}

fn set_xattr<'a>(node: NodeId, body: &mut Body<'a>, shape: Shape) -> Parsed<SetXattr<'a>> {
    let read: abi::SetxattrIn = if shape.setxattr_ext {
        body.take()?
    } else {
        let abi::SetxattrShortIn { size, flags } = body.take()?;
        abi::SetxattrIn { size, flags, ..abi::SetxattrIn::default() }
    };
    let name = body.name()?;
    let value = body.bytes(read.size as usize)?;
    let kill_sgid = read.setxattr_flags & bit::SETXATTR_ACL_KILL_SGID != 0;
    Ok(SetXattr { node, name, value, flags: read.flags, kill_sgid })
}

fn ioctl<'a>(node: NodeId, body: &mut Body<'a>) -> Parsed<Ioctl<'a>> {
    let read: abi::IoctlIn = body.take()?;
    Ok(Ioctl {
        node,
        handle: FileHandle(read.fh),
        flags: IoctlFlags::from_bits_retain(read.flags),
        command: read.cmd,
        argument: read.arg,
        input: body.bytes(read.in_size as usize)?,
        output_size: read.out_size,
    })
}

fn copy_file_range(node: NodeId, read: &abi::CopyFileRangeIn, number: u32) -> CopyFileRange {
    // The older form answers with 32 bits.
    let most = if number == opcode::COPY_FILE_RANGE { u64::from(u32::MAX) & !4095 } else { u64::MAX };
    CopyFileRange {
        node,
        handle: FileHandle(read.fh_in),
        offset: read.off_in,
        new_node: NodeId(read.nodeid_out),
        new_handle: FileHandle(read.fh_out),
        new_offset: read.off_out,
        length: read.len.min(most),
        flags: read.flags,
    }
}

/// The header at the beginning of what `/dev/fuse` hands over, and what follows.
pub(crate) fn split_header(bytes: &[u8]) -> Parsed<(abi::InHeader, &[u8])> {
    abi::InHeader::read_from_prefix(bytes).map_err(|_| Malformed)
}

#[cfg(test)]
mod tests;
