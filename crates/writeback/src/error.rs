//! Errors of a flusher. A failed write-back is no error here: it is counted, and reported to programs that sync the
//! file.

use std::io;
use std::path::PathBuf;

use thiserror::Error;
use umbrella_policy::writeback::WriteBackError;
use umbrella_units::ByteSize;

/// Why a flusher does not start, or does not do what was asked.
#[derive(Debug, Error)]
pub enum FlusherError {
    /// The policy cannot be made.
    #[error(transparent)]
    Policy(#[from] WriteBackError),
    /// The policy has to know the future.
    #[error("policy \"{name}\" needs to know the future, which only the lab does (try cscan)")]
    Offline {
        /// Its name.
        name: &'static str,
    },
    /// The limit leaves no room for an order.
    #[error("a limit of {given} is too low (give at least {least}, or leave it out)")]
    LimitTooLow {
        /// What was given.
        given: ByteSize,
        /// The least.
        least: ByteSize,
    },
    /// The background threshold is not below the limit.
    #[error(
        "write-back would begin at {background}, but must begin below the limit of {limit} (leave it out, or lower it)"
    )]
    BackgroundAboveLimit {
        /// Where it begins.
        background: ByteSize,
        /// The limit.
        limit: ByteSize,
    },
    /// A thread cannot be started.
    #[error("cannot start the thread {name}: {source}")]
    Thread {
        /// Its name.
        name: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// The record's file is there already.
    #[error("{}: exists already, and may be another record (name a new file)", path.display())]
    RecordExists {
        /// The file.
        path: PathBuf,
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
    #[error("the flusher has stopped")]
    Stopped,
}
