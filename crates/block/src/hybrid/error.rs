//! What can be wrong with a hybrid disk.

use std::fmt;

use thiserror::Error;
use umbrella_policy::flash_cache::LogSector;
use umbrella_units::{ByteSize, SectorRange};
use uuid::Uuid;

use super::contents::Contents;
use super::format::{Damage, Epoch, RecordNo};
use super::half::PairHalf;
use crate::error::{BlockError, Operation};

/// What can be wrong with a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "each message says it")]
pub enum Fault {
    #[error("its header is not whole")]
    Header,
    #[error("another record is in its place")]
    Another,
    #[error("it is left over from before a crash")]
    Leftover,
    #[error("its header is invalid")]
    Impossible,
    #[error("its data is not what was written")]
    Data,
    #[error("it cannot be read")]
    Unreadable,
}

/// Where there is too little room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// On this device.
    Device(String),
    /// Behind the file system on this disk.
    BehindFileSystem(String),
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Location::Device(device) => f.write_str(device),
            Location::BehindFileSystem(disk) => {
                write!(f, "the space behind the file system on {disk} (shrink the file system first)")
            }
        }
    }
}

/// What can be wrong with a hybrid disk.
#[derive(Debug, Clone, Error)]
pub enum HybridError {
    /// A device failed.
    #[error(transparent)]
    Device(#[from] BlockError),
    /// The flash has no superblock.
    #[error("{}", without_label(flash, "flash", *first, *second))]
    NoSuperblock {
        /// The flash.
        flash: String,
        /// The error in the first copy.
        first: Damage,
        /// And with the second.
        second: Damage,
    },
    /// Both copies of the superblock claim to be the newest, and differ.
    #[error(
        "the copies of the label of {flash} differ, and both have the number {generation}: one was changed, or put back from a copy"
    )]
    Contradiction {
        /// The flash.
        flash: String,
        /// The generation of both.
        generation: u64,
    },
    /// The disk has no tag.
    #[error("{}", without_label(disk, "disk", *first, *second))]
    NoTag {
        /// The disk.
        disk: String,
        /// The error in the first copy.
        first: Damage,
        /// And with the second.
        second: Damage,
    },
    /// The disk has a flash, which is not what was given as such.
    #[error(
        "{disk} belongs together with the flash {wanted}, and {flash} is not the flash of a hybrid disk ({damage}); give the right one"
    )]
    FlashLost {
        /// The disk.
        disk: String,
        /// What was given as its flash.
        flash: String,
        /// Its flash.
        wanted: Uuid,
        /// The error in the first copy of the superblock.
        damage: Damage,
    },
    /// The disk has no tag, and the flash has the log of a disk of its size.
    #[error(
        "{disk} has no label of a hybrid disk, and {flash} has the log of the disk {wanted}: give that disk. If it is {disk}, you can give up the data on the flash"
    )]
    TagGone {
        /// The disk.
        disk: String,
        /// The flash.
        flash: String,
        /// Its disk.
        wanted: Uuid,
    },
    /// The disk has become larger, so that its tag is not where it is looked for.
    #[error(
        "{disk} had {} when it was joined with its flash, and has {} now: give it its old size again", was.told_apart(*is)[0], was.told_apart(*is)[1]
    )]
    DiskGrew {
        /// The disk.
        disk: String,
        /// How large it was; a few kilobytes may be missing.
        was: ByteSize,
        /// How large it is.
        is: ByteSize,
    },
    /// The disk has become smaller, and has lost its tag.
    #[error(
        "{disk} had {} when it was joined with its flash, shrank to {} and lost the label at its end; give it its old size again", was.told_apart(*is)[0], was.told_apart(*is)[1]
    )]
    DiskCut {
        /// The disk.
        disk: String,
        /// How large it was; a few kilobytes may be missing.
        was: ByteSize,
        /// How large it is.
        is: ByteSize,
    },
    /// Two halves of different pairs.
    #[error("{disk} belongs to the flash {wanted}, and {flash} is {found}; give the flash that it was created with")]
    ForeignFlash {
        /// The disk.
        disk: String,
        /// The flash that was given.
        flash: String,
        /// What the disk asks for.
        wanted: Uuid,
        /// What was found.
        found: Uuid,
    },
    /// The flash is of this disk, and the disk of another flash, or a copy of the disk.
    #[error("{flash} belongs to the disk {wanted}, and {disk} is {found}; give the disk that it was created with")]
    ForeignDisk {
        /// The disk that was given.
        disk: String,
        /// The flash.
        flash: String,
        /// What the flash asks for.
        wanted: Uuid,
        /// What was found.
        found: Uuid,
    },
    /// One half is older than the other: one of them is a copy, or was put back from a backup.
    #[error(
        "{older} is older than {newer} (opened {older_epoch} and {newer_epoch} times), so it is a copy or from a \
        backup: give the newer one"
    )]
    Stale {
        /// The half that is older.
        older: String,
        /// The id of the other one.
        newer: String,
        /// How often the older one was opened.
        older_epoch: Epoch,
        /// And the other.
        newer_epoch: Epoch,
    },
    /// The flash is from before something was brought from it to the disk.
    #[error("{flash} is older than {disk}, so it is a copy or from a backup: give the newer flash")]
    OldFlash {
        /// The disk.
        disk: String,
        /// The flash.
        flash: String,
    },
    /// The pair was taken apart.
    #[error("{flash} was detached from its disk, which is a plain disk now")]
    Detached {
        /// The flash.
        flash: String,
    },
    /// The two do not fit.
    #[error("{place}: has {}, and needs {}", found.told_apart(*needed)[0], found.told_apart(*needed)[1])]
    TooSmall {
        /// Which device, or which part of it.
        place: Location,
        /// How large it is.
        found: ByteSize,
        /// How large it must be.
        needed: ByteSize,
    },
    /// The disk was written to while the flash had newer data.
    #[error(
        "{disk} was written to without {flash}, which has newer data than the disk had; together they would mix old and new data"
    )]
    Changed {
        /// The disk.
        disk: String,
        /// The flash.
        flash: String,
    },
    /// It cannot be known whether the disk was written to.
    #[error(
        "the beginning of {disk} cannot be read ({source}), and it may have been written to without {flash}: copy the disk (`ddrescue`), and use the copy"
    )]
    HeadUnreadable {
        /// The disk.
        disk: String,
        /// The flash.
        flash: String,
        /// Why.
        source: BlockError,
    },
    /// Its blocks are larger than the format's.
    #[error("{device} reads and writes blocks of {block} bytes; a hybrid disk needs devices with at most 4096")]
    LargeBlocks {
        /// Which device.
        device: String,
        /// Its logical block.
        block: u32,
    },
    /// A record that was durable is damaged.
    #[error(
        "{flash}: record {sequence} at sector {} of the log was written and flushed, and is damaged now ({fault}){}", at.0,
        range.map(|range| format!("; it held {range}")).unwrap_or_default()
    )]
    Corrupt {
        /// The flash.
        flash: String,
        /// Which record.
        sequence: RecordNo,
        /// Where it should be.
        at: LogSector,
        /// The cause.
        fault: Fault,
        /// What it held, as far as that is known.
        range: Option<SectorRange>,
    },
    /// Something else is there.
    #[error("{device} already holds {contents}")]
    Occupied {
        /// Which device.
        device: String,
        /// What was found.
        contents: Contents,
    },
    /// What is only in a damaged part of the log.
    #[error(
        "the newest data of {range} is lost in a damaged part of the log of {flash}; write it again, or restore it from a backup"
    )]
    Lost {
        /// The flash.
        flash: String,
        /// What is lost.
        range: SectorRange,
    },
    /// A write in the middle of lost sectors that are already in too many pieces.
    #[error(
        "{flash} has no room to note which parts of lost sectors you write again; write the lost sectors around {range} too, in order"
    )]
    LostInPieces {
        /// The flash.
        flash: String,
        /// What was to be written.
        range: SectorRange,
    },
    /// Damage that cannot be skipped.
    #[error(
        "{flash}: the sectors in the damaged part of its log are unknown or too many; the disk can only be opened read-only"
    )]
    LossUnknown {
        /// The flash.
        flash: String,
    },
    /// The flash does not give back what was written.
    #[error(
        "{flash} has a damaged copy of {range} of the disk. Write these sectors again, or restore the files there from a backup"
    )]
    Damaged {
        /// The flash.
        flash: String,
        /// Which sectors of the disk, at most.
        range: SectorRange,
    },
    /// The log cannot be read to its end.
    #[error(
        "the log of {flash} cannot be read ({source}), and flushed data may be there: try again, or continue without what cannot be read"
    )]
    LogUnreadable {
        /// The flash.
        flash: String,
        /// Why.
        source: BlockError,
    },
    /// The flash cannot be read where the log has what goes to the disk.
    #[error(
        "{flash} cannot be read ({source}) where it has the newest data of {range}. The log cannot be emptied until you write these sectors again"
    )]
    Unreadable {
        /// The flash.
        flash: String,
        /// The first sectors of the disk that it cannot give.
        range: SectorRange,
        /// Why.
        source: BlockError,
    },
    /// A drain that was stopped.
    #[error("stopped: the data on the flash stays there")]
    Stopped,
    /// It is being closed or was detached.
    #[error("the hybrid disk is closed")]
    Closed,
}

/// An error in a half that has no label, or a damaged one.
fn without_label(device: &str, half: &str, first: Damage, second: Damage) -> String {
    let other = other_copy(first, second);
    if Damage::is_of_label(first, second) {
        format!("both copies of the label of {device} are damaged ({first}{other})")
    } else {
        format!("{device} is not the {half} of a hybrid disk ({first}{other})")
    }
}

/// The error in the second copy of a label, if that is something else.
fn other_copy(first: Damage, second: Damage) -> String {
    if first == second { String::new() } else { format!("; its copy: {second}") }
}

impl HybridError {
    /// The same as an error of a block device.
    pub(super) fn on(self, half: &PairHalf, operation: Operation) -> BlockError {
        match self {
            HybridError::Device(error) => error,
            other => BlockError::io(&half.name.as_str().into(), operation, None, std::io::Error::other(other)),
        }
    }
}
