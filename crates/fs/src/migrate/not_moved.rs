//! Why a move did not happen.

use rustix::io::Errno;

use crate::error::OpError;
use crate::relocate::RelocateError;

/// Of a file with names that nobody has looked up since the mount.
pub(crate) const OTHER_NAMES: &str = "it has other hard links; `umbrella enforce` moves them together";

/// Why a file was not moved. It is where it was.
#[derive(Debug)]
pub(crate) enum NotMoved {
    /// Open, changing, or with names that are not all known.
    Busy(&'static str),
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
    pub(crate) fn is_want_of_names(&self) -> bool {
        matches!(self, NotMoved::Busy(why) if *why == OTHER_NAMES)
    }

    /// What the daemon lacked (descriptors, memory), unless it was the branch: there may be room for the file all the same.
    pub(crate) fn want(&self) -> Option<OpError> {
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
            NotMoved::Mapped => f.write_str("it is mapped into memory, or open on the branch itself"),
            NotMoved::Outdated => f.write_str("it changed, and belongs elsewhere by now"),
            NotMoved::NoRoom => f.write_str("the branch has no room"),
            NotMoved::Failed(error) => error.fmt(f),
            NotMoved::Op(error) => error.fmt(f),
        }
    }
}
