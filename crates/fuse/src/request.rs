//! Requests of the kernel: for each operation a struct of named fields.
//!
//! Names and data are borrowed from the buffer that the request came in; they are good until the handler returns.

use std::ffi::OsStr;

use crate::extensions::Extensions;
use crate::flags::{IoctlFlags, RenameFlags, WriteFlags};
use crate::ioctl::FileIoctl;
use crate::types::{FileHandle, Lock, LockOwner, NewTime, NodeId, PollHandle, RequestId, Timestamp};

/// What the fields are that most requests have, where they do not say it themselves.
macro_rules! field_doc {
    ($field:ident $(#[$said:meta])+) => {
        ""
    };
    (node) => {
        "The node."
    };
    (handle) => {
        "The open file."
    };
    (parent) => {
        "Directory."
    };
    (name) => {
        "Name."
    };
    (umask) => {
        "The caller's umask, to apply with `DONT_MASK`."
    };
    (extensions) => {
        "What the kernel adds: groups, security contexts."
    };
    (lock_owner) => {
        "The lock owner."
    };
    (offset) => {
        "First byte."
    };
}

/// Defines the structs of requests.
macro_rules! requests {
    ($($(#[$doc:meta])* struct $name:ident $(<$life:lifetime>)? { $($(#[$field_doc:meta])* $field:ident: $kind:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $name $(<$life>)? { $($(#[$field_doc])* #[doc = field_doc!($field $(#[$field_doc])*)] pub $field: $kind,)* }
    )*};
}

requests! {
    /// Looks up a name in a directory.
    struct Lookup<'a> {
        parent: NodeId,
        name: &'a OsStr,
    }
    /// The kernel lets go of a node.
    struct Forget {
        node: NodeId,
        /// How many lookups are taken back. The node is gone when all that were answered are.
        lookups: u64,
    }
    /// Attributes.
    struct GetAttr {
        node: NodeId,
        /// The open file that asks, if one does.
        handle: Option<FileHandle>,
    }
    /// Attributes with the time of birth.
    struct GetStatx {
        node: NodeId,
        /// The open file that asks, if one does.
        handle: Option<FileHandle>,
        /// `AT_STATX_*`.
        flags: u32,
        /// `STATX_*`: what is wanted.
        mask: u32,
    }
    /// Changes attributes: those that are given.
    struct SetAttr {
        node: NodeId,
        /// The open file that asks, if one does.
        handle: Option<FileHandle>,
        /// Permissions and kind.
        mode: Option<u32>,
        /// Owner.
        uid: Option<u32>,
        /// Group.
        gid: Option<u32>,
        /// New size.
        size: Option<u64>,
        /// Access time.
        atime: Option<NewTime>,
        /// Modification time.
        mtime: Option<NewTime>,
        /// Time of the last status change, if the kernel keeps it (`WRITEBACK_CACHE`).
        ctime: Option<Timestamp>,
        lock_owner: Option<LockOwner>,
        /// Drop the set-id bits.
        kill_suidgid: bool,
    }
    /// Target of a symbolic link.
    struct ReadLink {
        /// Link.
        node: NodeId,
    }
    /// Makes a file, a device, a pipe or a socket.
    struct MkNod<'a> {
        parent: NodeId,
        name: &'a OsStr,
        /// Kind and permissions.
        mode: u32,
        umask: u32,
        /// For device files.
        device: rustix::fs::Dev,
        extensions: Extensions<'a>,
    }
    /// Makes a directory.
    struct MkDir<'a> {
        parent: NodeId,
        name: &'a OsStr,
        /// Permissions.
        mode: u32,
        umask: u32,
        extensions: Extensions<'a>,
    }
    /// Makes a symbolic link.
    struct SymLink<'a> {
        parent: NodeId,
        name: &'a OsStr,
        /// What it points to.
        target: &'a OsStr,
        extensions: Extensions<'a>,
    }
    /// Removes a name of anything but a directory.
    struct Unlink<'a> {
        parent: NodeId,
        name: &'a OsStr,
    }
    /// Removes a directory.
    struct RmDir<'a> {
        parent: NodeId,
        name: &'a OsStr,
    }
    /// Renames.
    struct Rename<'a> {
        parent: NodeId,
        name: &'a OsStr,
        /// New directory.
        new_parent: NodeId,
        /// New name.
        new_name: &'a OsStr,
        /// Flags of `renameat2(2)`.
        flags: RenameFlags,
    }
    /// Makes a hard link.
    struct Link<'a> {
        node: NodeId,
        /// Directory.
        new_parent: NodeId,
        /// Name.
        new_name: &'a OsStr,
    }
    /// Opens a file or directory.
    struct Open {
        node: NodeId,
        /// Flags of `open(2)`.
        flags: i32,
        /// Drop the set-id bits (`O_TRUNC`).
        kill_suidgid: bool,
    }
    /// Makes a file and opens it.
    struct Create<'a> {
        parent: NodeId,
        /// Name; empty for a file without one (TMPFILE).
        name: &'a OsStr,
        /// Permissions.
        mode: u32,
        umask: u32,
        /// Flags of `open(2)`.
        flags: i32,
        /// Drop the set-id bits (`O_TRUNC`).
        kill_suidgid: bool,
        extensions: Extensions<'a>,
    }
    /// Reads from a file, or from the listing of a directory.
    struct Read {
        node: NodeId,
        handle: FileHandle,
        /// First byte; of a listing, the `next` of the last entry.
        offset: u64,
        /// The most bytes.
        size: u32,
        /// Flags of the open file.
        flags: i32,
        lock_owner: Option<LockOwner>,
    }
    /// Writes.
    struct Write<'a> {
        node: NodeId,
        handle: FileHandle,
        offset: u64,
        /// What to write. Begins at a page in memory.
        data: &'a [u8],
        /// Flags.
        write_flags: WriteFlags,
        /// Flags of the open file.
        flags: i32,
        lock_owner: Option<LockOwner>,
    }
    /// A descriptor of the open file is closed; there may be others.
    struct Flush {
        node: NodeId,
        handle: FileHandle,
        /// The owner whose POSIX locks are released.
        lock_owner: LockOwner,
    }
    /// The last descriptor of an open file or directory is closed.
    struct Release {
        node: NodeId,
        handle: FileHandle,
        /// Flags of the open file.
        flags: i32,
        /// The owner whose locks are released.
        lock_owner: LockOwner,
        /// Do what FLUSH does as well.
        flush: bool,
        /// Release the `flock` lock.
        unlock_flock: bool,
    }
    /// Makes a file or directory durable, as `fsync(2)`.
    struct FSync {
        node: NodeId,
        handle: FileHandle,
        /// As `fdatasync(2)`: only the attributes that are needed to read the data.
        data_only: bool,
    }
    /// Makes the whole file system durable. Linux sends it to virtiofs and to block devices only.
    struct SyncFs {
        /// Any node.
        node: NodeId,
    }
    /// Free and total space.
    struct StatFs {
        /// Any node.
        node: NodeId,
    }
    /// Sets an extended attribute.
    struct SetXattr<'a> {
        node: NodeId,
        name: &'a OsStr,
        /// Value.
        value: &'a [u8],
        /// `XATTR_CREATE`, `XATTR_REPLACE`.
        flags: u32,
        /// Drop the set-group-id bit.
        kill_sgid: bool,
    }
    /// Value of an extended attribute.
    struct GetXattr<'a> {
        node: NodeId,
        name: &'a OsStr,
        /// Size of the caller's buffer; 0 asks for the size of the value.
        size: u32,
    }
    /// Names of extended attributes.
    struct ListXattr {
        node: NodeId,
        /// Size of the caller's buffer; 0 asks for the size of the value.
        size: u32,
    }
    /// Removes an extended attribute.
    struct RemoveXattr<'a> {
        node: NodeId,
        name: &'a OsStr,
    }
    /// Whether the caller may access a file; asked without the mount option `default_permissions`.
    struct Access {
        node: NodeId,
        /// `R_OK`, `W_OK`, `X_OK`.
        mask: u32,
    }
    /// Asks for a lock that conflicts.
    struct GetLock {
        node: NodeId,
        handle: FileHandle,
        /// Which owner wants the lock.
        owner: LockOwner,
        /// Lock wanted.
        lock: Lock,
        /// It is a `flock` lock.
        flock: bool,
    }
    /// Locks or unlocks.
    struct SetLock {
        node: NodeId,
        handle: FileHandle,
        /// Which owner wants the lock.
        owner: LockOwner,
        /// Lock wanted.
        lock: Lock,
        /// It is a `flock` lock.
        flock: bool,
        /// Wait for the lock, until interrupted.
        wait: bool,
    }
    /// Block of the device that holds a block of the file.
    struct BMap {
        node: NodeId,
        /// The block's number in the file.
        block: u64,
        /// Bytes of a block.
        block_size: u32,
    }
    /// An ioctl. See [`Ioctl::file_ioctl`] for those of `chattr` and `lsattr`.
    struct Ioctl<'a> {
        /// File or directory.
        node: NodeId,
        handle: FileHandle,
        /// Flags.
        flags: IoctlFlags,
        /// The ioctl's number.
        command: u32,
        /// The argument, as the caller gave it.
        argument: u64,
        /// Data of the caller.
        input: &'a [u8],
        /// The most bytes to return.
        output_size: u32,
    }
    /// Asks which operations would not block.
    struct Poll {
        node: NodeId,
        handle: FileHandle,
        /// What to wake when that changes.
        wake: PollHandle,
        /// Wake it when that changes.
        wants_wake: bool,
        /// `POLLIN` and so on.
        events: u32,
    }
    /// Allocates space, or punches a hole.
    struct FAllocate {
        node: NodeId,
        handle: FileHandle,
        offset: u64,
        /// Bytes.
        length: u64,
        /// `FALLOC_FL_*`.
        mode: u32,
    }
    /// Finds data or holes.
    struct LSeek {
        node: NodeId,
        handle: FileHandle,
        /// From where.
        offset: i64,
        /// `SEEK_DATA`, `SEEK_HOLE`.
        whence: i32,
    }
    /// Copies data from one file to another.
    struct CopyFileRange {
        /// File to read.
        node: NodeId,
        handle: FileHandle,
        offset: u64,
        /// File to write.
        new_node: NodeId,
        /// The open file.
        new_handle: FileHandle,
        /// First byte.
        new_offset: u64,
        /// The most bytes.
        length: u64,
        /// No flags are defined.
        flags: u64,
    }
    /// Data that [`Notifier::retrieve`](crate::Notifier::retrieve) asked for.
    struct Retrieved<'a> {
        /// The id that the notifier returned.
        id: RequestId,
        node: NodeId,
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
