//! What travels between the kernel and a file system: structs and numbers of the FUSE protocol 7.45.
//!
//! Written from the public description of the interface (`linux/fuse.h`). Names are those of that header, so that a
//! test can hold each struct against the installed one: `InHeader` is `fuse_in_header` there, unless a comment says
//! otherwise. Kernels from 5.6 on (7.31) speak it. A kernel does not send what it does not know, and the flags of INIT
//! settle what a file system may use.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Major number of the protocol.
pub(crate) const MAJOR: u32 = 7;
/// Minor number of the protocol that is understood here.
pub(crate) const MINOR: u32 = 45;
/// The kernel refuses to hand requests to smaller buffers.
pub(crate) const MIN_READ_BUFFER: usize = 8192;
/// Bit of a request's id: it was sent before, to a server that is gone.
pub(crate) const UNIQUE_RESEND: u64 = 1 << 63;
/// Type of an extension: groups of the caller. Smaller numbers count security contexts.
pub(crate) const EXT_GROUPS: u32 = 32;
/// The most security contexts of one request.
pub(crate) const MAX_NR_SECCTX: u32 = 31;

/// Defines the numbers and names of the operations.
macro_rules! operations {
    ($($name:ident = $number:literal $shown:literal;)*) => {
        pub(crate) mod opcode {
            $(pub(crate) const $name: u32 = $number;)*
        }

        /// The name of an operation, for people.
        pub fn operation_name(number: u32) -> &'static str {
            match number {
                $($number => $shown,)*
                _ => "unknown",
            }
        }
    };
}

operations! {
    LOOKUP = 1 "lookup"; FORGET = 2 "forget"; GETATTR = 3 "getattr"; SETATTR = 4 "setattr"; READLINK = 5 "readlink";
    SYMLINK = 6 "symlink"; MKNOD = 8 "mknod"; MKDIR = 9 "mkdir"; UNLINK = 10 "unlink"; RMDIR = 11 "rmdir";
    RENAME = 12 "rename"; LINK = 13 "link"; OPEN = 14 "open"; READ = 15 "read"; WRITE = 16 "write";
    STATFS = 17 "statfs"; RELEASE = 18 "release"; FSYNC = 20 "fsync"; SETXATTR = 21 "setxattr";
    GETXATTR = 22 "getxattr"; LISTXATTR = 23 "listxattr"; REMOVEXATTR = 24 "removexattr"; FLUSH = 25 "flush";
    INIT = 26 "init"; OPENDIR = 27 "opendir"; READDIR = 28 "readdir"; RELEASEDIR = 29 "releasedir";
    FSYNCDIR = 30 "fsyncdir"; GETLK = 31 "getlk"; SETLK = 32 "setlk"; SETLKW = 33 "setlkw"; ACCESS = 34 "access";
    CREATE = 35 "create"; INTERRUPT = 36 "interrupt"; BMAP = 37 "bmap"; DESTROY = 38 "destroy"; IOCTL = 39 "ioctl";
    POLL = 40 "poll"; NOTIFY_REPLY = 41 "notify_reply"; BATCH_FORGET = 42 "batch_forget"; FALLOCATE = 43 "fallocate";
    READDIRPLUS = 44 "readdirplus"; RENAME2 = 45 "rename"; LSEEK = 46 "lseek";
    COPY_FILE_RANGE = 47 "copy_file_range"; SYNCFS = 50 "syncfs"; TMPFILE = 51 "tmpfile"; STATX = 52 "statx";
    COPY_FILE_RANGE_64 = 53 "copy_file_range";
}

/// Numbers of the notifications.
pub(crate) mod notify_code {
    pub(crate) const POLL: i32 = 1;
    pub(crate) const INVAL_INODE: i32 = 2;
    pub(crate) const INVAL_ENTRY: i32 = 3;
    pub(crate) const STORE: i32 = 4;
    pub(crate) const RETRIEVE: i32 = 5;
    pub(crate) const DELETE: i32 = 6;
    pub(crate) const RESEND: i32 = 7;
    pub(crate) const INC_EPOCH: i32 = 8;
    pub(crate) const PRUNE: i32 = 9;
}

/// Bits of [`SetattrIn::valid`].
pub(crate) mod fattr {
    pub(crate) const MODE: u32 = 1 << 0;
    pub(crate) const UID: u32 = 1 << 1;
    pub(crate) const GID: u32 = 1 << 2;
    pub(crate) const SIZE: u32 = 1 << 3;
    pub(crate) const ATIME: u32 = 1 << 4;
    pub(crate) const MTIME: u32 = 1 << 5;
    pub(crate) const FH: u32 = 1 << 6;
    pub(crate) const ATIME_NOW: u32 = 1 << 7;
    pub(crate) const MTIME_NOW: u32 = 1 << 8;
    pub(crate) const LOCKOWNER: u32 = 1 << 9;
    pub(crate) const CTIME: u32 = 1 << 10;
    pub(crate) const KILL_SUIDGID: u32 = 1 << 11;
}

/// Single bits of small flag words.
pub(crate) mod bit {
    pub(crate) const GETATTR_FH: u32 = 1 << 0;
    pub(crate) const LK_FLOCK: u32 = 1 << 0;
    pub(crate) const READ_LOCKOWNER: u32 = 1 << 1;
    pub(crate) const RELEASE_FLUSH: u32 = 1 << 0;
    pub(crate) const RELEASE_FLOCK_UNLOCK: u32 = 1 << 1;
    pub(crate) const FSYNC_FDATASYNC: u32 = 1 << 0;
    pub(crate) const OPEN_KILL_SUIDGID: u32 = 1 << 0;
    pub(crate) const SETXATTR_ACL_KILL_SGID: u32 = 1 << 0;
    pub(crate) const POLL_SCHEDULE_NOTIFY: u32 = 1 << 0;
    pub(crate) const EXPIRE_ONLY: u32 = 1 << 0;
}

/// Requests to the device itself (`ioctl`).
pub(crate) mod device {
    pub(crate) const BACKING_OPEN: u32 = 0x4010_e501;
    pub(crate) const BACKING_CLOSE: u32 = 0x4004_e502;
}

/// Commands of the io_uring transport.
pub(crate) mod uring {
    pub(crate) const REGISTER: u32 = 1;
    pub(crate) const COMMIT_AND_FETCH: u32 = 2;
    /// Room for the header of a request or answer, and for the struct of the operation.
    pub(crate) const HEADER_ROOM: usize = 128;
}

/// Defines structs of the protocol that can be read from bytes and written as bytes.
macro_rules! wire {
    ($($(#[$doc:meta])* struct $name:ident { $($field:ident: $kind:ty,)* })*) => {$(
        $(#[$doc])*
        #[repr(C)]
        #[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
        pub(crate) struct $name { $(pub(crate) $field: $kind,)* }

        impl Default for $name {
            fn default() -> $name {
                zerocopy::FromZeros::new_zeroed()
            }
        }
    )*};
}

wire! {
    /// `fuse_in_header`: before each request.
    struct InHeader {
        len: u32,
        opcode: u32,
        unique: u64,
        nodeid: u64,
        uid: u32,
        gid: u32,
        pid: u32,
        // In units of eight bytes.
        total_extlen: u16,
        padding: u16,
    }
    /// `fuse_out_header`: before each answer and notification.
    struct OutHeader { len: u32, error: i32, unique: u64, }
    struct Attr {
        ino: u64,
        size: u64,
        blocks: u64,
        atime: u64,
        mtime: u64,
        ctime: u64,
        atimensec: u32,
        mtimensec: u32,
        ctimensec: u32,
        mode: u32,
        nlink: u32,
        uid: u32,
        gid: u32,
        rdev: u32,
        blksize: u32,
        flags: u32,
    }
    struct SxTime { tv_sec: i64, tv_nsec: u32, reserved: i32, }
    struct Statx {
        mask: u32,
        blksize: u32,
        attributes: u64,
        nlink: u32,
        uid: u32,
        gid: u32,
        mode: u16,
        spare0: [u16; 1],
        ino: u64,
        size: u64,
        blocks: u64,
        attributes_mask: u64,
        atime: SxTime,
        btime: SxTime,
        ctime: SxTime,
        mtime: SxTime,
        rdev_major: u32,
        rdev_minor: u32,
        dev_major: u32,
        dev_minor: u32,
        spare2: [u64; 14],
    }
    /// `fuse_kstatfs`, which is all of `fuse_statfs_out`.
    struct Kstatfs {
        blocks: u64,
        bfree: u64,
        bavail: u64,
        files: u64,
        ffree: u64,
        bsize: u32,
        namelen: u32,
        frsize: u32,
        padding: u32,
        spare: [u32; 6],
    }
    struct FileLock { start: u64, end: u64, kind: u32, pid: u32, }
    struct EntryOut {
        nodeid: u64,
        generation: u64,
        entry_valid: u64,
        attr_valid: u64,
        entry_valid_nsec: u32,
        attr_valid_nsec: u32,
        attr: Attr,
    }
    struct ForgetIn { nlookup: u64, }
    struct ForgetOne { nodeid: u64, nlookup: u64, }
    struct BatchForgetIn { count: u32, dummy: u32, }
    struct GetattrIn { getattr_flags: u32, dummy: u32, fh: u64, }
    struct AttrOut { attr_valid: u64, attr_valid_nsec: u32, dummy: u32, attr: Attr, }
    struct StatxIn { getattr_flags: u32, reserved: u32, fh: u64, sx_flags: u32, sx_mask: u32, }
    struct StatxOut { attr_valid: u64, attr_valid_nsec: u32, flags: u32, spare: [u64; 2], stat: Statx, }
    struct MknodIn { mode: u32, rdev: u32, umask: u32, padding: u32, }
    struct MkdirIn { mode: u32, umask: u32, }
    struct RenameIn { newdir: u64, }
    struct Rename2In { newdir: u64, flags: u32, padding: u32, }
    struct LinkIn { oldnodeid: u64, }
    struct SetattrIn {
        valid: u32,
        padding: u32,
        fh: u64,
        size: u64,
        lock_owner: u64,
        atime: u64,
        mtime: u64,
        ctime: u64,
        atimensec: u32,
        mtimensec: u32,
        ctimensec: u32,
        mode: u32,
        unused4: u32,
        uid: u32,
        gid: u32,
        unused5: u32,
    }
    struct OpenIn { flags: u32, open_flags: u32, }
    struct CreateIn { flags: u32, mode: u32, umask: u32, open_flags: u32, }
    struct OpenOut { fh: u64, open_flags: u32, backing_id: i32, }
    struct ReleaseIn { fh: u64, flags: u32, release_flags: u32, lock_owner: u64, }
    struct FlushIn { fh: u64, unused: u32, padding: u32, lock_owner: u64, }
    struct ReadIn { fh: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32, padding: u32, }
    struct WriteIn { fh: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: u32, padding: u32, }
    struct WriteOut { size: u32, padding: u32, }
    struct FsyncIn { fh: u64, fsync_flags: u32, padding: u32, }
    /// `fuse_setxattr_in` as it is without the flag [`InitFlags::SETXATTR_EXT`](crate::InitFlags::SETXATTR_EXT).
    struct SetxattrShortIn { size: u32, flags: u32, }
    struct SetxattrIn { size: u32, flags: u32, setxattr_flags: u32, padding: u32, }
    struct GetxattrIn { size: u32, padding: u32, }
    struct GetxattrOut { size: u32, padding: u32, }
    struct LkIn { fh: u64, owner: u64, lk: FileLock, lk_flags: u32, padding: u32, }
    struct LkOut { lk: FileLock, }
    struct AccessIn { mask: u32, padding: u32, }
    /// The part of `fuse_init_in` that every kernel sends.
    struct InitShortIn { major: u32, minor: u32, max_readahead: u32, flags: u32, }
    struct InitIn { major: u32, minor: u32, max_readahead: u32, flags: u32, flags2: u32, unused: [u32; 11], }
    struct InitOut {
        major: u32,
        minor: u32,
        max_readahead: u32,
        flags: u32,
        max_background: u16,
        congestion_threshold: u16,
        max_write: u32,
        time_gran: u32,
        max_pages: u16,
        map_alignment: u16,
        flags2: u32,
        max_stack_depth: u32,
        request_timeout: u16,
        unused: [u16; 11],
    }
    struct InterruptIn { unique: u64, }
    struct BmapIn { block: u64, blocksize: u32, padding: u32, }
    struct BmapOut { block: u64, }
    struct IoctlIn { fh: u64, flags: u32, cmd: u32, arg: u64, in_size: u32, out_size: u32, }
    struct IoctlOut { result: i32, flags: u32, in_iovs: u32, out_iovs: u32, }
    struct PollIn { fh: u64, kh: u64, flags: u32, events: u32, }
    struct PollOut { revents: u32, padding: u32, }
    struct FallocateIn { fh: u64, offset: u64, length: u64, mode: u32, padding: u32, }
    /// `fuse_dirent`, before the name.
    struct Dirent { ino: u64, off: u64, namelen: u32, kind: u32, }
    struct LseekIn { fh: u64, offset: u64, whence: u32, padding: u32, }
    struct LseekOut { offset: u64, }
    struct CopyFileRangeIn {
        fh_in: u64,
        off_in: u64,
        nodeid_out: u64,
        fh_out: u64,
        off_out: u64,
        len: u64,
        flags: u64,
    }
    struct CopyFileRangeOut { bytes_copied: u64, }
    /// `fuse_secctx`, before the name and the context.
    struct Secctx { size: u32, padding: u32, }
    /// `fuse_ext_header`; `fuse_secctx_header` looks the same.
    struct ExtHeader { size: u32, kind: u32, }
    /// `fuse_supp_groups`, before the groups.
    struct SuppGroups { nr_groups: u32, }
    struct NotifyPollWakeupOut { kh: u64, }
    struct NotifyInvalInodeOut { ino: u64, off: i64, len: i64, }
    struct NotifyInvalEntryOut { parent: u64, namelen: u32, flags: u32, }
    struct NotifyDeleteOut { parent: u64, child: u64, namelen: u32, padding: u32, }
    struct NotifyStoreOut { nodeid: u64, offset: u64, size: u32, padding: u32, }
    struct NotifyRetrieveOut { notify_unique: u64, nodeid: u64, offset: u64, size: u32, padding: u32, }
    struct NotifyRetrieveIn { dummy1: u64, offset: u64, size: u32, dummy2: u32, dummy3: u64, dummy4: u64, }
    /// `fuse_notify_prune_out`, before the node ids.
    struct NotifyPruneOut { count: u32, padding: u32, spare: u64, }
    struct BackingMap { fd: i32, flags: u32, padding: u64, }
    struct UringEntInOut { flags: u64, commit_id: u64, payload_sz: u32, padding: u32, reserved: u64, }
    struct UringReqHeader {
        in_out: [u8; uring::HEADER_ROOM],
        op_in: [u8; uring::HEADER_ROOM],
        ring_ent_in_out: UringEntInOut,
    }
    /// `fuse_uring_cmd_req`: in the command area of a submission.
    struct UringCmdReq { flags: u64, commit_id: u64, qid: u16, padding: [u8; 6], }
    /// `io_uring_sqe` of 128 bytes, for commands.
    struct Submission {
        opcode: u8,
        flags: u8,
        ioprio: u16,
        fd: i32,
        cmd_op: u32,
        padding: u32,
        addr: u64,
        len: u32,
        rw_flags: u32,
        user_data: u64,
        buf_index: u16,
        personality: u16,
        splice_fd_in: i32,
        command: UringCmdReq,
        rest: [u8; 56],
    }
}

#[cfg(test)]
mod tests;
