//! What can be wrong with a log store.

use thiserror::Error;
use umbrella_policy::PolicyError;
use umbrella_policy::log_layout::{LogBlock, ReplayError};
use umbrella_units::{BlockNo, ByteSize};

use super::format::{ChooseError, FormatError, MapPageNo, PAGE_ENTRIES};
use super::loss::Loss;
use crate::error::{BlockError, Operation};

/// A store that cannot be made, opened, or used further.
#[derive(Debug, Clone, Error)]
pub enum LogStoreError {
    /// The device below failed.
    #[error(transparent)]
    Device(#[from] BlockError),
    /// No superblock, or none that can be used.
    #[error("{device}: {source}")]
    Superblock {
        /// The device.
        device: String,
        /// Why.
        source: Box<ChooseError>,
    },
    /// Neither checkpoint is whole.
    #[error("{device}: both checkpoints are damaged (first: {first}; second: {second}): the store cannot be opened")]
    Checkpoints {
        /// The device.
        device: String,
        /// The error in the first.
        first: Box<FormatError>,
        /// And with the second.
        second: Box<FormatError>,
    },
    /// A structure that was found does not fit.
    #[error("{device}: {source}")]
    Format {
        /// The device.
        device: String,
        /// Why.
        source: Box<FormatError>,
    },
    /// The log after the checkpoint says what cannot be.
    #[error("{device}: the log after the last checkpoint contradicts it: {source}")]
    Replay {
        /// The device.
        device: String,
        /// How.
        source: ReplayError,
    },
    /// Flushed data behind the checkpoint is damaged.
    #[error("{device}: {loss}")]
    FlushedLost {
        /// The device.
        device: String,
        /// What is lost.
        loss: Box<Loss>,
    },
    /// The log after the checkpoint cannot be read to its end.
    #[error(
        "{device}: the log after the last checkpoint cannot be read to its end ({source}). Flushed data may lie there: try again, or use a copy of the disk"
    )]
    LogUnreadable {
        /// The device.
        device: String,
        /// Why.
        source: BlockError,
    },
    /// The log continues in a page of the map that cannot be used, and that cannot be rebuilt whole.
    #[error("{source}; the place of {blocks} of them is unknown")]
    Doubtful {
        /// The error in the page.
        source: Box<LogStoreError>,
        /// Blocks in doubt.
        blocks: u64,
    },
    /// A page of the map is not what was written, or not where the index says.
    #[error(
        "{device}: page {} of the map, at block {} of the log, cannot be used: {source}; blocks {} to {} of the store are lost with it",
        page.0, place.0, page.0 * PAGE_ENTRIES, page.0 * PAGE_ENTRIES + (PAGE_ENTRIES - 1)
    )]
    MapPage {
        /// The device.
        device: String,
        /// Which page.
        page: MapPageNo,
        /// Where it should be.
        place: LogBlock,
        /// The cause.
        source: Box<FormatError>,
    },
    /// A block is not what was written.
    #[error(
        "{device}: block {} of the store, at block {} of the log, is damaged: restore it from a backup, or overwrite it",
        block.0, place.0
    )]
    Damaged {
        /// The device.
        device: String,
        /// Which block.
        block: BlockNo,
        /// Where it lies.
        place: LogBlock,
    },
    /// The checksum of a block is lost with the header of its chunk, or that names another block.
    #[error(
        "{device}: block {} of the store, at block {} of the log, cannot be read: its checksum is damaged, so its data may be wrong",
        block.0, place.0
    )]
    Unverified {
        /// The device.
        device: String,
        /// Which block.
        block: BlockNo,
        /// Where it lies.
        place: LogBlock,
    },
    /// What the block held is lost, and known to be.
    #[error(
        "{device}: block {} of the store is lost, and the log may have only older data: restore it from a backup, or overwrite it", block.0
    )]
    Lost {
        /// The device.
        device: String,
        /// Which block.
        block: BlockNo,
    },
    /// The placement scheme is not known or does not fit.
    #[error("{device}: {source}")]
    Scheme {
        /// The device.
        device: String,
        /// Why.
        source: Box<PolicyError>,
    },
    /// It uses other streams than the store was made with.
    #[error("{device} has {streams} streams, and \"{scheme}\" uses {wanted}; give a scheme with {streams}")]
    OtherStreams {
        /// The device.
        device: String,
        /// Streams of the store.
        streams: u8,
        /// The scheme.
        scheme: String,
        /// Streams of the scheme.
        wanted: u8,
    },
    /// It is larger than a store can be.
    #[error("{device}: {found} is too large; a log store has at most {most}")]
    TooLarge {
        /// The device.
        device: String,
        /// What it has.
        found: ByteSize,
        /// What a store can have.
        most: ByteSize,
    },
    /// There is not enough memory for it.
    #[error(
        "{device}: a log store of {size} takes {needed} of memory, but this machine has {memory}: use a store of about {most} at most"
    )]
    NoMemory {
        /// The device.
        device: String,
        /// What the store promises.
        size: ByteSize,
        /// What it takes.
        needed: ByteSize,
        /// What there is.
        memory: ByteSize,
        /// The largest store for that.
        most: ByteSize,
    },
    /// There is not room for a store.
    #[error("{device}: {} is too small; a log store needs at least {} with segments of {segment}", found.told_apart(*needed)[0], found.told_apart(*needed)[1])]
    TooSmall {
        /// The device.
        device: String,
        /// What it has.
        found: ByteSize,
        /// What is needed.
        needed: ByteSize,
        /// Bytes of a segment.
        segment: ByteSize,
    },
    /// Its blocks are larger than the store's.
    #[error("{device} reads and writes blocks of {block} bytes; a log store needs a device with at most 4096")]
    LargeBlocks {
        /// The device.
        device: String,
        /// Its logical block.
        block: u32,
    },
    /// The device ends before the store does.
    #[error(
        "{device} ends before its store does: it has {}, its label says {}; what lay behind its end is lost",
        present.told_apart(*needed)[0], present.told_apart(*needed)[1]
    )]
    CutOff {
        /// The device.
        device: String,
        /// What it has.
        present: ByteSize,
        /// What the store needs.
        needed: ByteSize,
    },
    /// Something else is there.
    #[error("{device} is not empty, and everything on it would be overwritten")]
    Occupied {
        /// The device.
        device: String,
    },
    /// There is no room although no more is stored than was promised: the cleaner cannot read its victims, or what the
    /// disk says of itself is wrong.
    #[error("{device}: the log has no room left: segments to clean cannot be read, or the store is damaged")]
    NoRoom {
        /// The device.
        device: String,
    },
    /// Something that takes long was ended because the store is being closed.
    #[error("{device}: the store is being closed")]
    Closing {
        /// The device.
        device: String,
    },
    /// A thread could not be started.
    #[error("{device}: cannot start a thread: {source}")]
    Thread {
        /// The device.
        device: String,
        /// Why.
        source: std::sync::Arc<std::io::Error>,
    },
}

impl LogStoreError {
    /// The same as an error of a block device.
    pub(super) fn on(self, device: &str) -> BlockError {
        match self {
            LogStoreError::Device(error) => error,
            other => {
                let reads = matches!(
                    other,
                    LogStoreError::MapPage { .. }
                        | LogStoreError::Lost { .. }
                        | LogStoreError::Damaged { .. }
                        | LogStoreError::Unverified { .. }
                );
                let operation = if reads { Operation::Read } else { Operation::Write };
                BlockError::io(&device.into(), operation, None, std::io::Error::other(other))
            }
        }
    }
}
