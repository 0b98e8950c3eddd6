//! What can go wrong with a governor. A failed write-back is no error here: it is counted, and told to who syncs the file.

use std::io;
use std::path::PathBuf;

use thiserror::Error;
use umbrella_policy::writeback::WriteBackError;

/// Why a governor does not start, or does not do what was asked.
#[derive(Debug, Error)]
pub enum GovernorError {
    /// The policy cannot be made.
    #[error(transparent)]
    Policy(#[from] WriteBackError),
    /// The policy has to be told the future.
    #[error("policy \"{name}\" needs to know the future, which only the lab does (try zone_segment)")]
    Offline {
        /// Its name.
        name: &'static str,
    },
    /// The limit leaves no room for an order.
    #[error("a limit of {given} pages is too low (give at least {least} pages, that is 1 MiB)")]
    LimitTooLow {
        /// What was given.
        given: u64,
        /// The least.
        least: u64,
    },
    /// The background threshold is not below the limit.
    #[error("write-back would begin at {background} pages, above the limit of {limit} (leave it out, or lower it)")]
    BackgroundAboveLimit {
        /// Where it begins.
        background: u64,
        /// The limit.
        limit: u64,
    },
    /// A thread cannot be started.
    #[error("cannot start the thread {name}: {source}")]
    Thread {
        /// Its name.
        name: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// The record cannot be written.
    #[error("{}: {source}", path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// It stopped.
    #[error("the governor has stopped")]
    Stopped,
}
