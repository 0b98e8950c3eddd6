//! What can go wrong below a block device.

use std::fmt;
use std::io;
use std::sync::Arc;

use thiserror::Error;
use umbrella_units::{Lba, SECTOR_BYTES, SectorRange};

/// What was asked of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Opening it.
    Open,
    /// Reading sectors.
    Read,
    /// Writing sectors, data or zeroes.
    Write,
    /// Making writes durable.
    Flush,
    /// Forgetting sectors.
    Discard,
    /// Putting it to sleep or waking it.
    Power,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Operation::Open => "open",
            Operation::Read => "read",
            Operation::Write => "write",
            Operation::Flush => "flush",
            Operation::Discard => "discard",
            Operation::Power => "power management",
        })
    }
}

/// A call to a device that failed.
#[derive(Debug, Clone, Error)]
pub enum BlockError {
    /// Part of it lies beyond the end.
    #[error("{range} are not all on a device of {} sectors", capacity.0)]
    BeyondEnd {
        /// What was asked for.
        range: SectorRange,
        /// How many sectors there are.
        capacity: Lba,
    },
    /// Not whole logical blocks.
    #[error("{bytes} bytes at byte {} are not whole blocks of {logical_block} bytes", at.0 * SECTOR_BYTES)]
    Unaligned {
        /// Where.
        at: Lba,
        /// How many bytes.
        bytes: u64,
        /// What it has to be a multiple of.
        logical_block: u32,
    },
    /// The device may not be written.
    #[error("{device} is read-only")]
    ReadOnly {
        /// Which one.
        device: Arc<str>,
    },
    /// The system refused.
    #[error("{device}: {operation} failed{}: {source}", range.map(|range| format!(" at {range}")).unwrap_or_default())]
    Io {
        /// Which device.
        device: Arc<str>,
        /// What was tried.
        operation: Operation,
        /// Where; nothing for what concerns the whole device.
        range: Option<SectorRange>,
        /// Why.
        source: Arc<io::Error>,
    },
    /// An earlier failure made it unsafe to go on writing.
    #[error("{device} refuses writes since an earlier {operation} failed: {reason}")]
    Poisoned {
        /// Which device.
        device: Arc<str>,
        /// What failed.
        operation: Operation,
        /// How.
        reason: Arc<str>,
    },
}

impl BlockError {
    /// What the system refused.
    pub fn io(device: &Arc<str>, operation: Operation, range: Option<SectorRange>, source: io::Error) -> BlockError {
        BlockError::Io { device: Arc::clone(device), operation, range, source: Arc::new(source) }
    }
}
