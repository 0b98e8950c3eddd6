//! What the daemon lacks: descriptors, memory or threads. That says nothing of a branch.

use std::io;

use rustix::io::Errno;
use thiserror::Error;

/// What is lacking. Shown as what to do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum Shortage {
    /// Descriptors, by the limit of the process.
    #[error("raise LimitNOFILE= in a unit, or `ulimit -n`, and try again")]
    Descriptors,
    /// Descriptors, by the limit of the machine.
    #[error("raise the sysctl fs.file-max, and try again")]
    FilesOfAll,
    /// Memory.
    #[error("raise MemoryMax= in a unit, or `ulimit -v`, and try again")]
    Memory,
    /// Threads, or memory for their stacks.
    #[error("raise TasksMax= and MemoryMax= in a unit, or `ulimit -u` and `ulimit -v`, and try again")]
    Threads,
}

impl Shortage {
    pub(crate) fn of(errno: Errno) -> Option<Shortage> {
        match errno {
            Errno::MFILE => Some(Shortage::Descriptors),
            Errno::NFILE => Some(Shortage::FilesOfAll),
            Errno::NOMEM => Some(Shortage::Memory),
            _ => None,
        }
    }

    /// An error with what to do about it, where something is lacking.
    pub(crate) fn added_to(error: &io::Error) -> String {
        match Errno::from_io_error(error).and_then(Shortage::of) {
            Some(shortage) => format!("{error} ({shortage})"),
            None => error.to_string(),
        }
    }
}
