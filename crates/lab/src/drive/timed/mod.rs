//! Measures a disk by the times of its reads. It only reads, and never writes.
//!
//! All steps use one observation: a read from the media ends when its last sector has passed under the head. So the
//! time of its end, modulo a turn, is the angle of that sector. The steps:
//!
//! 1. Rotation: the time between two reads of one block is a multiple of the turn, if both came from the media
//!    (`rotation`).
//! 2. Tracks: along a track the angle grows evenly, and jumps where the next track begins (`tracks`).
//! 3. Zones: where the tracks at two places differ in length, a border lies between them (`zones`).
//! 4. Heads: skews, or else the times of moves, repeat from cylinder to cylinder (`heads`).
//! 5. Seeks: a sector that comes under the head just in time shows how long the way to its track takes (`seeks`).
//! 6. Buffer and queue: what a repeated read takes, and what many reads at once gain (`buffer`, `queue`).
//!
//! Sources: Worthington, Ganger, Patt and Wilkes, "On-line extraction of SCSI disk drive parameters", SIGMETRICS 1995;
//! Talagala, Arpaci-Dusseau and Patterson, "Microbenchmark-based extraction of local and global disk characteristics"
//! (Skippy), 1999.

mod buffer;
mod flash;
mod heads;
mod meter;
mod profile;
mod queue;
mod rotation;
mod seeks;
#[cfg(test)]
mod tests;
mod tracks;
mod zones;

use std::io;
use std::time::Duration;

use serde::Serialize;
use thiserror::Error;
use umbrella_units::{ByteSize, Lba, Nanos, SECTOR_BYTES};

pub use buffer::BufferTimings;
pub use flash::{FlashTimings, Latency};
pub use heads::{FoundBy, Heads};
pub use queue::{DepthTiming, QueueTimings};
pub use seeks::SeekTime;
pub use zones::Zone;

use heads::HeadsFound;
use meter::Meter;
use tracks::Track;

/// Smaller devices have no two places far enough apart.
const SMALLEST: ByteSize = ByteSize(16 << 20);
/// The most unreadable blocks: a disk with more should be copied, not measured.
const MOST_UNREADABLE: u64 = 200;

/// When a read was sent, and when its data was there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timed {
    /// Just before it was sent.
    pub sent: Nanos,
    /// Just after it was answered.
    pub done: Nanos,
}

/// What many reads took together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchTime {
    /// From the first being sent until the last was answered.
    pub time: Nanos,
    /// How many of them could not be read.
    pub unreadable: u64,
}

/// Why a read failed.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The sectors cannot be read; others may.
    #[error("sectors that cannot be read")]
    Unreadable,
    /// Nothing can be read any more.
    #[error(transparent)]
    Device(#[from] io::Error),
}

/// A disk whose reads are timed, with a clock.
pub trait TimedReads {
    /// How many sectors it has.
    fn sectors(&self) -> u64;

    /// The block size in sectors: reads begin and end at multiples of it.
    fn block_sectors(&self) -> u32;

    /// The time.
    fn now(&self) -> Nanos;

    /// Lets some time go by without a read.
    fn pause(&mut self, time: Nanos);

    /// Reads `sectors` from `start`, past any cache of the host.
    fn read(&mut self, start: Lba, sectors: u32) -> Result<Timed, ReadError>;

    /// Reads `sectors` from each of `starts`, with `depth` reads on their way at any time.
    fn read_together(&mut self, starts: &[Lba], sectors: u32, depth: u32) -> Result<BatchTime, ReadError>;
}

/// How to measure.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// All of it ends after this time; what was not measured by then is assumed.
    pub time: Nanos,
    /// Where reads go is random; the same seed reads the same places.
    pub seed: u64,
}

/// What is being measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Measurement {
    /// Whether it turns, and how fast.
    Rotation,
    /// Sectors of each track, and where that changes.
    Zones,
    /// Surfaces.
    Heads,
    /// Times of moves.
    Seeks,
    /// What is read ahead and kept.
    Buffer,
    /// What many reads at once gain.
    Queue,
    /// Latency and throughput of a device without platters.
    Flash,
}

/// What was measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DiskTimings {
    /// How large it is.
    pub size: ByteSize,
    /// Reads that were made.
    pub reads: u64,
    /// Blocks that could not be read; they were passed over.
    pub unreadable: u64,
    /// How long it took.
    pub seconds: f64,
    /// What the time did not suffice for; what was not measured of it is assumed, or missing.
    pub cut_short: Vec<Measurement>,
    /// A disk with platters; `None` if no rotation was found.
    pub rotating: Option<RotatingTimings>,
    /// A device without platters.
    pub flash: Option<FlashTimings>,
}

/// What was measured of a disk with platters.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RotatingTimings {
    /// A turn, in milliseconds.
    pub turn_ms: f64,
    /// The same as turns a minute.
    pub rpm: u32,
    /// Surfaces.
    pub heads: Heads,
    /// From the outside to the inside.
    pub zones: Vec<Zone>,
    /// Whether every border of a zone was found to the track.
    pub zones_complete: bool,
    /// Cylinders, by its zones and heads.
    pub cylinders: u32,
    /// To another track of the same cylinder, in milliseconds; nothing for a single head.
    pub head_switch_ms: Option<f64>,
    /// By distance.
    pub seeks: Vec<SeekTime>,
    /// What its buffer does.
    pub buffer: BufferTimings,
    /// What many reads at once gain.
    pub queue: QueueTimings,
    /// The sectors of the device.
    #[serde(skip)]
    sectors: u64,
}

/// Why a disk could not be measured.
#[derive(Debug, Error)]
pub enum MeasureError {
    /// It is too small.
    #[error("it has only {size}; {SMALLEST} or more are needed to measure a disk")]
    TooSmall {
        /// Its size.
        size: ByteSize,
    },
    /// A read failed, and others would too.
    #[error("a read failed")]
    Device(#[from] io::Error),
    /// Too much of it cannot be read.
    #[error("{count} blocks could not be read: rescue the data of this disk before you measure it")]
    Failing {
        /// How many.
        count: u64,
    },
    /// The time of a step is over.
    #[error("time ran out")]
    OutOfTime,
    /// All of the time was over before anything was known.
    #[error(
        "nothing was measured: {given:?} were not enough to find out {unknown}; give a disk that turns {LEAST_TIME:?} \
        or more"
    )]
    TooLittleTime {
        /// All of the time.
        given: Duration,
        /// What was being looked for.
        unknown: &'static str,
    },
    /// One block that cannot be read. Others serve as well.
    #[error("a block cannot be read")]
    Unreadable,
    /// A block that always comes from the buffer. Others serve as well.
    #[error("its buffer answers every read, so its media cannot be timed")]
    Buffered,
    /// The angles do not show tracks.
    #[error("it turns, but its answers come too irregularly to find its tracks; measure it while nothing else uses it")]
    Uneven,
}

impl MeasureError {
    /// Whether another place of the disk may serve as well.
    fn is_local(&self) -> bool {
        matches!(self, MeasureError::Unreadable | MeasureError::Buffered | MeasureError::Uneven)
    }
}

/// `None` for an error that concerns only this place of the disk, so that another place can be measured.
fn none_if_local<T>(result: Result<T, MeasureError>) -> Result<Option<T>, MeasureError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_local() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether a step came to its end; when its time was over it did not.
fn in_time(result: Result<(), MeasureError>) -> Result<bool, MeasureError> {
    match result {
        Ok(()) => Ok(true),
        Err(MeasureError::OutOfTime) => Ok(false),
        Err(error) => Err(error),
    }
}

/// What suffices to know at least how fast a disk turns, and one track of it.
const LEAST_TIME: Duration = Duration::from_secs(10);
/// The shares of the time by which the steps have ended. Without rotation and a track nothing is known: these may take
/// all of it.
const ZONES_BY: f64 = 0.6;
const HEADS_BY: f64 = 0.7;
const SEEKS_BY: f64 = 0.85;
const BUFFER_BY: f64 = 0.93;

/// Measures a disk.
pub fn measure(
    device: &mut dyn TimedReads,
    plan: &Plan,
    progress: &mut dyn FnMut(Measurement),
) -> Result<DiskTimings, MeasureError> {
    let size = ByteSize(device.sectors().saturating_mul(SECTOR_BYTES));
    if size < SMALLEST {
        return Err(MeasureError::TooSmall { size });
    }
    let mut meter = Meter::new(device, plan);
    progress(Measurement::Rotation);
    let turns = known(plan, rotation::find(&mut meter), "whether it turns")?;
    let (mut rotating, mut flash) = (None, None);
    let mut cut_short = Vec::new();
    if turns {
        progress(Measurement::Zones);
        let first = known(plan, tracks::first(&mut meter), "how long its tracks are")?;
        rotating = Some(measure_rotating(&mut meter, first, progress, &mut cut_short)?);
    } else {
        progress(Measurement::Flash);
        let found = flash.insert(FlashTimings::default());
        cut_short.extend((!in_time(found.measure(&mut meter))?).then_some(Measurement::Flash));
    }
    let (reads, unreadable) = meter.counts();
    Ok(DiskTimings { size, reads, unreadable, seconds: meter.elapsed().as_secs_f64(), cut_short, rotating, flash })
}

/// What nothing else can be measured without.
fn known<T>(plan: &Plan, found: Result<T, MeasureError>, unknown: &'static str) -> Result<T, MeasureError> {
    found.map_err(|error| match error {
        MeasureError::OutOfTime => MeasureError::TooLittleTime { given: Duration::from_nanos(plan.time.0), unknown },
        error => error,
    })
}

fn measure_rotating(
    meter: &mut Meter<'_>,
    first: Track,
    progress: &mut dyn FnMut(Measurement),
    cut_short: &mut Vec<Measurement>,
) -> Result<RotatingTimings, MeasureError> {
    let mut note = |step, is_done: bool| cut_short.extend((!is_done).then_some(step));
    meter.until(ZONES_BY);
    let mut tracks = vec![first];
    let surveyed = in_time(zones::survey(meter, &mut tracks))?;
    note(Measurement::Zones, surveyed);
    let spans = zones::spans(&tracks, meter.blocks());

    progress(Measurement::Heads);
    meter.until(HEADS_BY);
    let mut found = HeadsFound::NOTHING;
    let counted = in_time(heads::find(meter, &spans).map(|heads| found = heads))?;
    let mut zones = zones::Map::new(meter, &spans, found.heads.count, [found.track_skew, found.cylinder_skew]);
    note(Measurement::Heads, in_time(zones.measure_skews(meter))? && counted);

    progress(Measurement::Seeks);
    meter.until(SEEKS_BY);
    let mut times = seeks::Seeks::default();
    note(Measurement::Seeks, in_time(times.measure(meter, &zones))?);

    progress(Measurement::Buffer);
    meter.until(BUFFER_BY);
    let mut buffer = BufferTimings::default();
    note(Measurement::Buffer, in_time(buffer.measure(meter, &zones))?);

    progress(Measurement::Queue);
    meter.until(1.0);
    let mut queue = QueueTimings::default();
    note(Measurement::Queue, in_time(queue.measure(meter))?);
    Ok(RotatingTimings {
        turn_ms: meter.turn / 1e6,
        rpm: (60e9 / meter.turn).round() as u32,
        heads: found.heads,
        cylinders: zones.cylinders(),
        zones: zones.zones,
        zones_complete: surveyed,
        head_switch_ms: times.head_switch_ms,
        seeks: times.seeks,
        buffer,
        queue,
        sectors: meter.sectors(),
    })
}
