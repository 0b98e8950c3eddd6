//! What is said over a disk's control socket, in the form of a pool's: one request, progress, one answer.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use umbrella_block::hybrid::Losses;
use umbrella_block::log_store::RegionStats;
use umbrella_units::{ByteSize, SectorRange};

use super::figures::Figure;
use crate::client::{ClientOf, Protocol};
use crate::config::disk::Front;

/// A question or command.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub(crate) enum Request {
    /// Answered with [`Answer::Status`].
    Status,
    /// Answered with [`Answer::Stats`].
    Stats,
    /// Make it a block device of this machine, if it is none yet. Answered with [`Answer::Status`].
    Attach {
        /// By what.
        #[serde(default)]
        front: Front,
    },
    /// Take the space that a log store's device has become larger by. Answered with [`Answer::Grown`].
    Grow,
    /// Compare all that has checksums with them. Answered with [`Answer::Scrubbed`].
    Scrub {
        /// Bytes a second at most; what the configuration says if nothing is said.
        bandwidth: Option<ByteSize>,
        /// From the beginning, also when one was interrupted.
        restart: bool,
    },
    /// Take the disk away and end. Answered with [`Answer::Detached`].
    Detach {
        /// What becomes of what is on flash.
        flash: AtDetach,
        /// Hang up on clients.
        force: bool,
    },
}

/// What becomes of the flash of a hybrid disk that is taken away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AtDetach {
    /// What is on it goes to the disk, which can be used alone; the two still belong together.
    Empty,
    /// It keeps what it has, and the disk is not whole without it.
    Keep,
    /// What is on it goes to the disk, and the two no longer belong together.
    Dissolve,
}

/// What is answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub(crate) enum Answer {
    /// Its state.
    Status(Box<DiskStatus>),
    /// What it did, by name.
    Stats {
        figures: BTreeMap<String, Figure>,
        /// Where the watts of those figures come from that are energies, for each device.
        #[serde(default)]
        watts: BTreeMap<String, String>,
        /// Nothing without a log store.
        #[serde(default)]
        log: Option<LogTables>,
    },
    /// It has grown as far as there is room.
    Grown(GrowResult),
    /// All that has checksums was compared with them.
    Scrubbed(ScrubResult),
    /// It is no longer offered.
    Detached(Detached),
}

/// How far the flash is emptied, or a disk scrubbed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Progress {
    /// Brought to the disk, or read, so far.
    pub(crate) done: ByteSize,
    /// What there was at the start.
    pub(crate) total: ByteSize,
    /// The end has begun: it continues also when no client waits any more.
    #[serde(default)]
    pub(crate) ending: bool,
}

/// The state of a disk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct DiskStatus {
    pub(crate) name: String,
    /// `log`, `hybrid`, or the kind of its only device.
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
    /// The device that it is attached as, `/dev/loop0`.
    pub(crate) device: Option<String>,
    /// Where NBD clients find it.
    pub(crate) listen: Vec<String>,
    /// NBD connections now.
    pub(crate) clients: u64,
    /// What its motor does; nothing for what has none.
    pub(crate) power: Option<Motor>,
    /// Nothing without flash.
    pub(crate) cache: Option<CacheStatus>,
    /// Nothing without a log store.
    #[serde(default)]
    pub(crate) log: Option<LogStatus>,
    /// Nothing for what keeps no checksums.
    #[serde(default)]
    pub(crate) scrub: Option<ScrubStatus>,
    /// Problems; empty when there are none.
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

/// The state of the flash before a disk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct CacheStatus {
    /// Bytes of the log that may not be overwritten.
    pub(crate) used: ByteSize,
    pub(crate) size: ByteSize,
    /// Bytes of the disk whose newest data is only on flash.
    pub(crate) cached: ByteSize,
    /// The zeroes among them, which take no room.
    #[serde(default)]
    pub(crate) cached_zeroes: ByteSize,
    pub(crate) when: String,
    pub(crate) algorithm: String,
    pub(crate) spin_down: String,
    pub(crate) laps: f64,
    /// What sleeping has to be worth to the policy, and where that comes from.
    #[serde(default)]
    pub(crate) break_even: BreakEven,
    /// Being emptied: what is left at most.
    pub(crate) draining: Option<ByteSize>,
}

/// How long a disk has to be idle so that sleeping pays.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BreakEven {
    pub(crate) seconds: u64,
    /// Configured, or reckoned from watts and times that are measured, of a data sheet, or assumed; in words.
    pub(crate) source: String,
}

/// The state of a log store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct LogStatus {
    pub(crate) scheme: String,
    /// What of its size is in use.
    pub(crate) live: ByteSize,
    pub(crate) segments: u32,
    pub(crate) free_segments: u32,
    /// Empty ones that are free after the next checkpoint.
    #[serde(default)]
    pub(crate) emptied_segments: u32,
    /// Since it was made.
    pub(crate) segments_cleaned: u64,
    /// All bytes written for each that was asked for, since it was made.
    pub(crate) write_amplification: f64,
}

/// What of a log store's figures is a table of its own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct LogTables {
    /// From the edges of the disk to its middle.
    #[serde(rename = "umbrella_log_regions")]
    pub(crate) regions: Vec<Region>,
    /// Segments cleaned since the opening, by the tenths of them that were live.
    #[serde(rename = "umbrella_log_victims")]
    pub(crate) victims: [u64; 11],
}

/// A region of the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Region {
    pub(crate) segments: u32,
    pub(crate) free: u32,
    pub(crate) live: ByteSize,
    /// Segments with data of another region.
    pub(crate) guests: u32,
}

impl From<&RegionStats> for Region {
    fn from(&RegionStats { segments, free, live, guests }: &RegionStats) -> Region {
        Region { segments, free, live, guests }
    }
}

/// What a log store has grown by.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GrowResult {
    pub(crate) name: String,
    pub(crate) before: ByteSize,
    pub(crate) size: ByteSize,
    /// What it is attached to.
    pub(crate) device: Option<String>,
}

/// What is left when a disk has been taken away.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Detached {
    pub(crate) name: String,
    pub(crate) outcome: DetachOutcome,
    /// Bytes brought from flash to the disk.
    pub(crate) drained: ByteSize,
    /// What is lost; nothing when that is unknown.
    pub(crate) lost: Option<Losses>,
    /// What is, if the last flush before the disk was opened had been answered.
    #[serde(default, skip_serializing_if = "Losses::is_empty")]
    pub(crate) perhaps_lost: Losses,
}

/// See [`Detached`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum DetachOutcome {
    /// All is on the disk.
    Detached,
    /// What is on flash stays there.
    DetachedWithCache,
    /// All is on the disk, and the flash no longer belongs to it.
    Dissolved,
    /// All that was whole is on the disk.
    Salvaged,
    /// The disk does without what only the flash had.
    FlashForgotten,
    /// It was in memory: nothing is left.
    Gone,
    /// Its daemon was gone; what it left behind is, too.
    LeftoversCleared,
}

/// The protocol of disks.
#[derive(Debug, Clone)]
pub(crate) struct DiskProtocol;

impl Protocol for DiskProtocol {
    type Request = Request;
    type Answer = Answer;
    type Progress = Progress;
    const OWNED: &'static str = "its daemon";
    const START: &'static str = "offer the disk with `umbrella disk serve CONFIG`";
    const FORCE: &'static str = "it may be waiting for the disk; `kill -9` on it loses no flushed data, and `umbrella \
        disk attach` continues from there";

    fn ping() -> Request {
        Request::Status
    }
}

/// A client of a disk's daemon.
pub(crate) type DiskClient = ClientOf<DiskProtocol>;

/// What a scrub found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ScrubResult {
    /// Seconds since 1970.
    pub(crate) ended: u64,
    pub(crate) read: ByteSize,
    /// What could not be read, or was not what had been written.
    pub(crate) damaged: Vec<SectorRange>,
    /// More damaged ranges than are named.
    pub(crate) unnamed: u64,
}

impl ScrubResult {
    /// Whether all was as it had been written.
    pub(crate) fn is_clean(&self) -> bool {
        self.damaged.is_empty()
    }

    /// How many ranges are damaged.
    pub(crate) fn ranges(&self) -> u64 {
        self.damaged.len() as u64 + self.unnamed
    }
}

/// The state of the scrubs of a disk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ScrubStatus {
    pub(crate) state: ScrubState,
    /// Bytes that the running or interrupted one has read.
    pub(crate) read: ByteSize,
    pub(crate) damaged_ranges: u64,
    /// The last one that came to its end.
    pub(crate) last: Option<ScrubResult>,
}

/// Whether a disk is being scrubbed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ScrubState {
    Idle,
    Running,
    /// It continues where it was.
    Interrupted,
}
