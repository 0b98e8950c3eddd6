//! What can go wrong below a block device.

use std::fmt;
use std::io;
use std::sync::Arc;

use rustix::io::Errno;
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
    /// An earlier failure made it unsafe to continue writing.
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

    /// An impossible state, which is never treated as sound.
    pub(crate) fn impossible(device: &str, operation: Operation, what: &'static str) -> BlockError {
        let defect = format!("{what}: a defect of this program, please report it");
        BlockError::io(&device.into(), operation, None, io::Error::other(defect))
    }

    /// The error of all later writes, because this call failed.
    pub fn poison(device: &str, operation: Operation, cause: &BlockError) -> BlockError {
        let reason = match cause {
            BlockError::Poisoned { device: below, .. } if **below == *device => return cause.clone(),
            // What is said once already is left out.
            BlockError::Io { device: below, operation: failed, range, source }
                if **below == *device && *failed == operation =>
            {
                let at = range.map(|range| format!("at {range}: ")).unwrap_or_default();
                format!("{at}{}", with_remedy(source))
            }
            BlockError::Io { source, .. } => format!("{cause}{}", remedy(source)),
            cause => cause.to_string(),
        };
        BlockError::Poisoned { device: device.into(), operation, reason: reason.into() }
    }
}

/// Why the system refused, with what to do about it where that is plain.
pub(crate) fn with_remedy(source: &io::Error) -> String {
    format!("{source}{}", remedy(source))
}

fn remedy(source: &io::Error) -> &'static str {
    let full = [Errno::NOSPC, Errno::DQUOT].map(Errno::raw_os_error);
    if source.raw_os_error().is_some_and(|code| full.contains(&code)) {
        "; make room for it, then detach it and attach it again: flushed data is safe"
    } else {
        ""
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poisoned(code: Errno, below: &str) -> String {
        let range = SectorRange { start: Lba(8), sectors: 8 };
        let cause = BlockError::io(&below.into(), Operation::Write, Some(range), code.into());
        BlockError::poison("a.img", Operation::Write, &cause).to_string()
    }

    #[test]
    fn a_device_that_refuses_writes_is_named_once() {
        assert_eq!(poisoned(Errno::IO, "a.img").matches("a.img").count(), 1);
        assert!(poisoned(Errno::IO, "a.img").ends_with("Input/output error (os error 5)"));
        assert!(poisoned(Errno::IO, "b.img").contains("b.img: write failed"));
    }

    #[test]
    fn where_there_is_no_room_it_is_said_what_to_do() {
        for (code, below) in [(Errno::NOSPC, "a.img"), (Errno::DQUOT, "b.img")] {
            let reported = poisoned(code, below);
            assert!(reported.contains("make room for it, then detach it and attach it again"), "{reported}");
        }
    }
}
