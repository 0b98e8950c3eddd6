//! What keeps a move from being done, and what the caller can do about it.

use std::ffi::OsString;
use std::fmt;

use rustix::io::Errno;
use thiserror::Error;

use super::{BranchUuid, Step};

/// Something of a file that its target cannot keep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Loss {
    /// An extended attribute.
    Xattr(OsString),
    /// A POSIX ACL.
    Acl,
    /// Owner and mode.
    Ownership,
    /// Times: whatever is set, it keeps its own.
    Times,
    /// A flag of `chattr`, as its bit of `FS_*_FL`.
    Flag(u32),
    /// It is a device, pipe or socket.
    SpecialFile,
    /// It is a symbolic link.
    Symlink,
    /// It has several names.
    HardLinks,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Loss::Xattr(name) => write!(f, "extended attribute {}", name.display()),
            Loss::Acl => f.write_str("ACL"),
            Loss::Ownership => f.write_str("owner and mode"),
            Loss::Times => f.write_str("times"),
            Loss::Flag(bit) => write!(f, "flag {} (chattr)", flag_letter(*bit)),
            Loss::SpecialFile => f.write_str("device, pipe or socket"),
            Loss::Symlink => f.write_str("symbolic link"),
            Loss::HardLinks => f.write_str("hard links"),
        }
    }
}

/// The letter of `lsattr`.
fn flag_letter(bit: u32) -> char {
    use rustix::fs::IFlags;
    let letters = [(IFlags::SYNC, 'S'), (IFlags::NODUMP, 'd'), (IFlags::NOATIME, 'A'), (IFlags::DIRSYNC, 'D')];
    letters.into_iter().find(|(flag, _)| flag.bits() == bit).map_or('?', |(_, letter)| letter)
}

struct List<'a>(&'a [Loss]);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, loss) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str(", ")?;
            }
            loss.fmt(f)?;
        }
        Ok(())
    }
}

/// Why bytes are not an intent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// Too short, or shorter than it says.
    #[error("cut short")]
    Short,
    /// Longer than it says, or than any intent may be.
    #[error("too long")]
    Long,
    /// Not an intent file.
    #[error("not an intent")]
    Magic,
    /// Of a newer program.
    #[error("format version {0} is not known")]
    Version(u16),
    /// Damaged.
    #[error("checksum is wrong")]
    Checksum,
    /// Kind or field has no meaning.
    #[error("a field has an invalid value")]
    Field,
    /// A path that leaves the branch or names the hidden directory.
    #[error("a path is not allowed")]
    Path,
}

/// Why a file was not moved. Except for `InDoubt`, `GivenUp` and `Stopped`, it is where and as it was, and the copy is
/// gone.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RelocateError {
    /// The caller gave up.
    #[error("cancelled")]
    Cancelled,
    /// The source is no longer what was copied.
    #[error("the file changed while it was copied")]
    Changed,
    /// The target is full.
    #[error("no space left on the target branch")]
    NoSpace,
    /// The target's file system cannot hold a file of this size.
    #[error("the file is too large for the target's file system")]
    TooLarge,
    /// Its directory on the target is no part of the branch's file system.
    #[error("another file system is mounted there, below the target branch (make that a branch of its own)")]
    MountedBelow,
    /// The target cannot keep the file whole.
    #[error("the target branch cannot keep: {}", List(what))]
    WouldLose {
        /// What would be lost.
        what: Vec<Loss>,
    },
    /// A directory where another kind is needed.
    #[error("it is a directory")]
    IsDirectory,
    /// Another kind where a directory is needed.
    #[error("it is not a directory")]
    NotDirectory,
    /// The file is immutable or append-only.
    #[error("the file is immutable or append-only (chattr -ia to let it move)")]
    Pinned,
    /// The file has names that the caller did not list.
    #[error("the file has {nlink} names, {named} of them known in the pool")]
    OtherLinks {
        /// Names it has.
        nlink: u64,
        /// Names given.
        named: usize,
    },
    /// The name is in use on the target branch.
    #[error("another file has its name on that branch: delete or rename one of the two")]
    Taken,
    /// The source cannot be read.
    #[error("reading at byte {offset}: {errno}")]
    Read {
        /// Where.
        offset: u64,
        /// Why.
        errno: Errno,
    },
    /// The copy cannot be written.
    #[error("writing at byte {offset}: {errno}")]
    Write {
        /// Where.
        offset: u64,
        /// Why.
        errno: Errno,
    },
    /// The copy could not be made durable.
    #[error("cannot flush the copy: {errno}")]
    Sync {
        /// Why.
        errno: Errno,
    },
    /// Something else failed.
    #[error("cannot {doing}: {errno}")]
    Io {
        /// What was tried.
        doing: &'static str,
        /// Why.
        errno: Errno,
    },
    /// It failed halfway and could not be undone; the intent stays, and the next recovery decides.
    #[error("stopped halfway ({errno}); it is finished or undone when the branch is back")]
    InDoubt {
        /// Why.
        errno: Errno,
    },
    /// A branch does not say whether a name has changed on it; an intent sees to it that it has not. On the others
    /// nothing has changed.
    #[error("one branch did not confirm the rename ({errno}); it was undone on the others")]
    NoAnswer {
        /// That branch.
        branch: BranchUuid,
        /// Why.
        errno: Errno,
    },
    /// The caller that waited for a move gave up before the source was touched. The steps so far are taken back, if
    /// need be by the next recovery.
    #[error("a branch did not answer in time; the file stays where it is")]
    GivenUp,
    /// An intent too long to write.
    #[error("too many or too long names for one intent")]
    IntentTooLong,
    /// An intent that recovery would not accept: a path or name is not allowed.
    #[error("cannot be recorded: {reason}")]
    BadIntent {
        /// Why.
        reason: DecodeError,
    },
    /// A step hook stopped it.
    #[error("stopped by a step hook after {after:?}")]
    Stopped {
        /// The last step done.
        after: Step,
    },
}

impl RelocateError {
    /// Whether it left nothing for recovery to decide.
    pub fn is_settled(&self) -> bool {
        !matches!(self, RelocateError::InDoubt { .. } | RelocateError::GivenUp | RelocateError::Stopped { .. })
    }

    /// The nearest errno, for a caller that must answer with one.
    pub fn errno(&self) -> Errno {
        match self {
            RelocateError::Cancelled => Errno::INTR,
            RelocateError::GivenUp => Errno::TIMEDOUT,
            RelocateError::Changed | RelocateError::OtherLinks { .. } => Errno::BUSY,
            RelocateError::NoSpace => Errno::NOSPC,
            RelocateError::TooLarge => Errno::FBIG,
            RelocateError::MountedBelow => Errno::XDEV,
            RelocateError::WouldLose { .. } => Errno::NOTSUP,
            RelocateError::IsDirectory => Errno::ISDIR,
            RelocateError::NotDirectory => Errno::NOTDIR,
            RelocateError::Pinned => Errno::PERM,
            RelocateError::Taken => Errno::EXIST,
            RelocateError::IntentTooLong => Errno::TOOBIG,
            RelocateError::BadIntent { .. } => Errno::INVAL,
            RelocateError::Stopped { .. } => Errno::IO,
            RelocateError::Read { errno, .. }
            | RelocateError::Write { errno, .. }
            | RelocateError::Sync { errno }
            | RelocateError::Io { errno, .. }
            | RelocateError::NoAnswer { errno, .. }
            | RelocateError::InDoubt { errno } => *errno,
        }
    }
}

/// Whether a call that failed so may have happened all the same: its answer was lost on the way, as a server or a
/// daemon died, or a disk.
pub(crate) fn is_doubtful(errno: Errno) -> bool {
    [
        Errno::IO,
        Errno::NOTCONN,
        Errno::SHUTDOWN,
        Errno::CONNABORTED,
        Errno::CONNRESET,
        Errno::CONNREFUSED,
        Errno::HOSTDOWN,
        Errno::HOSTUNREACH,
        Errno::STALE,
        Errno::TIMEDOUT,
        Errno::NXIO,
        Errno::NODEV,
        Errno::REMOTEIO,
        Errno::INTR,
    ]
    .contains(&errno)
}

/// Names what was tried when a system call fails, and picks out a full disk.
pub(super) trait ErrorContext<T> {
    fn doing(self, doing: &'static str) -> Result<T, RelocateError>;
}

impl<T> ErrorContext<T> for Result<T, Errno> {
    fn doing(self, doing: &'static str) -> Result<T, RelocateError> {
        self.map_err(|errno| match errno {
            Errno::NOSPC | Errno::DQUOT => RelocateError::NoSpace,
            Errno::FBIG => RelocateError::TooLarge,
            errno => RelocateError::Io { doing, errno },
        })
    }
}
