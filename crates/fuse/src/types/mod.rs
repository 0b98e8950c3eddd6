//! Ids, times and attributes. Ids of nodes, inodes and open files are types of their own.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::Dev;
pub use rustix::fs::FileType;

use crate::abi;
use crate::flags::AttributeFlags;

/// Defines ids that are a number to the kernel.
macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}

ids! {
    /// What the kernel calls a file by. The file system chooses it; it is good until the kernel forgets it.
    NodeId
    /// What programs see in `st_ino`. It may outlive node ids, and need not equal them.
    InodeNumber
    /// What the file system calls an open file by.
    FileHandle
    /// The owner of a lock: the same number for the same owner.
    LockOwner
    /// One request, unique on its connection.
    RequestId
    /// Whom to wake when a file becomes ready, see [`Notifier::poll_wakeup`](crate::Notifier::poll_wakeup).
    PollHandle
}

impl NodeId {
    /// The root of the mount. The highest number, `u64::MAX`, is the crate's own: give it to no file.
    pub const ROOT: NodeId = NodeId(1);
}

/// Number of an error, as in `errno(3)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(i32);

/// Defines the usual errors.
macro_rules! errnos {
    ($($name:ident)*) => {
        #[allow(missing_docs)]
        impl Errno {
            $(pub const $name: Errno = Errno(libc::$name);)*

            /// The name, `ENOENT` and the like, of the usual ones.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $(libc::$name => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

errnos! {
    E2BIG EACCES EAGAIN EBADF EBUSY EDQUOT EEXIST EFAULT EFBIG EINTR EINVAL EIO EISDIR ELOOP EMFILE EMLINK
    ENAMETOOLONG ENODATA ENODEV ENOENT ENOLCK ENOMEM ENOSPC ENOSYS ENOTCONN ENOTDIR ENOTEMPTY ENOTTY ENXIO
    EOPNOTSUPP EOVERFLOW EPERM EPIPE ERANGE EROFS ESTALE ETIMEDOUT ETXTBSY EXDEV
}

impl Errno {
    /// From a number. One that the kernel would not take (0, negative, 512 and above) becomes EIO.
    pub const fn from_raw(number: i32) -> Errno {
        if number > 0 && number < 512 { Errno(number) } else { Errno::EIO }
    }

    /// The number.
    pub const fn raw(self) -> i32 {
        self.0
    }
}

impl From<std::io::Error> for Errno {
    fn from(error: std::io::Error) -> Errno {
        error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
    }
}

impl From<rustix::io::Errno> for Errno {
    fn from(error: rustix::io::Errno) -> Errno {
        Errno::from_raw(error.raw_os_error())
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        std::io::Error::from_raw_os_error(self.0).fmt(f)
    }
}

/// A moment, counted from 1970. Earlier ones have negative seconds; nanoseconds always count forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp {
    /// Whole seconds.
    pub seconds: i64,
    /// Less than a thousand million.
    pub nanoseconds: u32,
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Timestamp {
        match time.duration_since(UNIX_EPOCH) {
            Ok(after) => Timestamp { seconds: after.as_secs() as i64, nanoseconds: after.subsec_nanos() },
            Err(before) => {
                let before = before.duration();
                let seconds = (before.as_secs() as i64).wrapping_neg();
                match before.subsec_nanos() {
                    0 => Timestamp { seconds, nanoseconds: 0 },
                    nanos => Timestamp { seconds: seconds.saturating_sub(1), nanoseconds: 1_000_000_000 - nanos },
                }
            }
        }
    }
}

impl From<Timestamp> for SystemTime {
    /// A moment that `SystemTime` cannot hold becomes 1970.
    fn from(time: Timestamp) -> SystemTime {
        let whole = Duration::from_secs(time.seconds.unsigned_abs());
        let second = if time.seconds < 0 { UNIX_EPOCH.checked_sub(whole) } else { UNIX_EPOCH.checked_add(whole) };
        let nanos = Duration::from_nanos(u64::from(time.nanoseconds));
        second.and_then(|second| second.checked_add(nanos)).unwrap_or(UNIX_EPOCH)
    }
}

/// A time that a caller sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewTime {
    /// The clock's.
    Now,
    /// This one.
    At(Timestamp),
}

/// What `stat` shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes {
    /// Shown as `st_ino`.
    pub ino: InodeNumber,
    /// Kind of the file.
    pub kind: FileType,
    /// Permissions and set-id bits, 12 bits.
    pub permissions: u32,
    /// Number of names.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Of a device file, the device as in `st_rdev`: 12 bits of the driver, 20 bits of its device.
    pub device: Dev,
    /// Bytes.
    pub size: u64,
    /// Units of 512 bytes that it takes.
    pub blocks: u64,
    /// Preferred size of I/O.
    pub block_size: u32,
    /// Last read.
    pub atime: Timestamp,
    /// Last change of the data.
    pub mtime: Timestamp,
    /// Last change of anything.
    pub ctime: Timestamp,
    /// Seldom set.
    pub flags: AttributeFlags,
}

impl Attributes {
    /// An empty file, owned by root, with times of 1970.
    pub fn new(ino: InodeNumber, kind: FileType, permissions: u32) -> Attributes {
        let zero = Timestamp::default();
        Attributes {
            ino,
            kind,
            permissions,
            nlink: 1,
            uid: 0,
            gid: 0,
            device: 0,
            size: 0,
            blocks: 0,
            block_size: 4096,
            atime: zero,
            mtime: zero,
            ctime: zero,
            flags: AttributeFlags::empty(),
        }
    }

    pub(crate) fn mode(&self) -> u32 {
        self.kind.as_raw_mode() | self.permissions & 0o7777
    }

    pub(crate) fn wire(&self) -> abi::Attr {
        abi::Attr {
            ino: self.ino.0,
            size: self.size,
            blocks: self.blocks,
            atime: self.atime.seconds as u64,
            mtime: self.mtime.seconds as u64,
            ctime: self.ctime.seconds as u64,
            atimensec: self.atime.nanoseconds,
            mtimensec: self.mtime.nanoseconds,
            ctimensec: self.ctime.nanoseconds,
            mode: self.mode(),
            nlink: self.nlink,
            uid: self.uid,
            gid: self.gid,
            // The kernel's packing is that of `st_rdev`.
            rdev: self.device as u32,
            blksize: self.block_size,
            flags: self.flags.bits(),
        }
    }
}

/// Kind of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum LockKind {
    /// Shared.
    Read = libc::F_RDLCK,
    /// Exclusive.
    Write = libc::F_WRLCK,
    /// None: releases the lock.
    Unlock = libc::F_UNLCK,
}

/// A lock on bytes of a file, or with `flock` on all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lock {
    /// First byte.
    pub start: u64,
    /// Last byte; `i64::MAX` for the end of the file.
    pub end: u64,
    /// Kind.
    pub kind: LockKind,
    /// Process that holds it.
    pub pid: u32,
}

impl Lock {
    pub(crate) fn from_wire(lock: &abi::FileLock) -> Option<Lock> {
        let kind = match lock.kind as i32 {
            libc::F_RDLCK => LockKind::Read,
            libc::F_WRLCK => LockKind::Write,
            libc::F_UNLCK => LockKind::Unlock,
            _ => return None,
        };
        Some(Lock { start: lock.start, end: lock.end, kind, pid: lock.pid })
    }

    pub(crate) fn wire(&self) -> abi::FileLock {
        abi::FileLock { start: self.start, end: self.end, kind: self.kind as u32, pid: self.pid }
    }
}

#[cfg(test)]
mod tests;
