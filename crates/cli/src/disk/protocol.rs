//! What is said over a disk's control socket, in the form of a pool's: one request, progress, one answer.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use umbrella_block::hybrid::Losses;
use umbrella_units::{ByteSize, SectorRange};

use super::figures::Figure;
use crate::client::{ClientOf, Language};

/// A question or command.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub(crate) enum Request {
    /// Answered with [`Answer::Status`].
    Status,
    /// Answered with [`Answer::Stats`].
    Stats,
    /// Make it a block device of this machine, if it is none yet. Answered with [`Answer::Status`].
    Attach,
    /// Take the disk away and end. Answered with [`Answer::Detached`].
    Detach {
        /// Leave on flash what is there.
        keep_cache: bool,
        /// Hang up on clients.
        force: bool,
    },
}

/// What is answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub(crate) enum Answer {
    /// How it stands.
    Status(Box<DiskStatus>),
    /// What it did, by name.
    Stats { figures: BTreeMap<String, Figure> },
    /// It is no longer offered.
    Detached(Detached),
}

/// How far the flash is emptied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Progress {
    /// Brought to the disk so far.
    pub(crate) done: ByteSize,
    /// What there was at the start.
    pub(crate) total: ByteSize,
}

/// How a disk stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct DiskStatus {
    pub(crate) name: String,
    /// `hybrid`, or the kind of its only device.
    pub(crate) kind: String,
    pub(crate) size: ByteSize,
    pub(crate) read_only: bool,
    /// What it is made of: a real path, or a device without one.
    #[serde(default)]
    pub(crate) disk: String,
    #[serde(default)]
    pub(crate) flash: Option<String>,
    pub(crate) pid: u32,
    pub(crate) version: String,
    pub(crate) uptime_seconds: u64,
    /// As what this machine has it, `/dev/loop0`.
    pub(crate) device: Option<String>,
    /// Where NBD clients find it.
    pub(crate) listen: Vec<String>,
    /// NBD connections now.
    pub(crate) clients: u64,
    /// What its motor does; nothing for what has none.
    pub(crate) power: Option<Motor>,
    /// Nothing without flash.
    pub(crate) cache: Option<CacheStatus>,
    /// What is wrong; nothing when all is well.
    pub(crate) trouble: Vec<String>,
    /// Ranges whose newest data only the flash has, while it is in trouble.
    pub(crate) at_risk: Vec<SectorRange>,
}

/// What a motor does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Motor {
    Spinning,
    Standby,
    /// On its way between the two.
    Changing,
}

/// How the flash before a disk stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct CacheStatus {
    /// Bytes of the log that may not be overwritten.
    pub(crate) used: ByteSize,
    pub(crate) size: ByteSize,
    /// Bytes of the disk whose newest data is only on flash.
    pub(crate) cached: ByteSize,
    pub(crate) when: String,
    pub(crate) algorithm: String,
    pub(crate) spin_down: String,
    pub(crate) laps: f64,
    /// Being emptied: what is left at most.
    pub(crate) draining: Option<ByteSize>,
}

/// What is left when a disk has been taken away.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Detached {
    pub(crate) name: String,
    pub(crate) outcome: Outcome,
    /// Bytes brought from flash to the disk.
    pub(crate) drained: ByteSize,
    /// What is lost; nothing when nobody knows.
    pub(crate) lost: Option<Losses>,
}

/// See [`Detached`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    /// All is on the disk.
    Detached,
    /// The flash still belongs to the disk.
    DetachedWithCache,
    /// All that was whole is on the disk.
    Salvaged,
    /// The disk does without what only the flash had.
    FlashForgotten,
}

/// What is said to the daemons of disks.
#[derive(Debug, Clone)]
pub(crate) struct OfDisks;

impl Language for OfDisks {
    type Request = Request;
    type Answer = Answer;
    type Progress = Progress;
    const OWNED: &'static str = "its daemon";
    const START: &'static str = "offer the disk with `umbrella disk serve CONFIG`";
    const FORCE: &'static str = "it may wait for the disk";
}

/// The way to a disk's daemon.
pub(crate) type DiskClient = ClientOf<OfDisks>;
