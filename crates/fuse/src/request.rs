//! Requests of the kernel: for each operation a struct of named fields.
//!
//! Names and data are borrowed from the buffer that the request came in; they are good until the handler returns.

use std::ffi::OsStr;

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
