//! How a hybrid disk behaves, and the decisions that follow: when it is quiet enough to flush, and how flushing and
//! other work share the disk and the log.
//!
//! While the log is flushed, it keeps filling. Two things keep that smooth:
//!
//! - Flushing rests after each write to the disk, while others want the disk too and the log has room. So it takes its
//!   share of the disk's time and no more ([`Options::rest`]).
//! - Writers are held back so that the remaining room lasts until flushing frees some ([`Options::write_delay`]). Where
//!   `h` sectors are left and `w` must be flushed before any are freed, a write may continue once the disk has written
//!   `w / h` times as much. Both come to their end at the same time, whatever the sizes are: no writer finds the log
//!   full. This sets in over the first quarter of what is above the high mark.

use serde::{Serialize, Serializer};
use umbrella_units::{ByteSize, Nanos, SECTOR_BYTES, format_duration};

use super::algorithm::Algorithm;
use super::log::Log;
use super::map::LogSector;
use super::when::{Fill, FlushTrigger, Moment, Percent};

/// The longest write to the disk in one request, in sectors: 1 MiB. Other requests wait for no more than one.
pub const MOST_WRITE: u64 = (1 << 20) / SECTOR_BYTES;

/// Sectors that one call of a flush zeroes. A disk that has to write them takes as long as for data, and others wait
/// for no more than that.
pub const MOST_ZEROED_AT_ONCE: u64 = 4 * MOST_WRITE;
/// The longest that one write is held back.
const MOST_DELAY: Nanos = Nanos::from_millis(250);
/// The longest rest after a write to the disk.
const MOST_REST: Nanos = Nanos::from_millis(500);
/// Others want the disk if their last request was less than this time ago.
const CONTENTION_WINDOW: Nanos = Nanos::from_millis(100);
/// Least number of sectors that are flushed before any are freed: 256 MiB.
const LEAST_PASS: u64 = (256 << 20) / SECTOR_BYTES;
/// The log divided by this is what a pass covers, and what is flushed before the next superblock.
const PARTS: u64 = 8;
/// When the log divided by this is all that is left, flushing no longer rests.
const URGENT_DIVISOR: u64 = 16;

/// How a hybrid disk behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Options {
    /// When the log is flushed.
    pub when: FlushTrigger,
    /// How it is flushed.
    pub algorithm: Algorithm,
    /// The high mark of the log.
    pub high: Percent,
    /// Memory for flushing.
    pub memory: ByteSize,
    /// The share of the disk's time that flushing takes while others want the disk too.
    pub drain_share: Percent,
    /// How long no request may have come before the disk counts as quiet.
    #[serde(serialize_with = "as_duration")]
    pub quiet: Nanos,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "what serde calls")]
fn as_duration<S: Serializer>(time: &Nanos, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&format_duration(std::time::Duration::from_nanos(time.0)))
}

impl Default for Options {
    fn default() -> Options {
        Options {
            when: FlushTrigger::default(),
            algorithm: Algorithm::default(),
            high: FlushTrigger::HIGH,
            memory: ByteSize(16 << 20),
            drain_share: Percent(50),
            quiet: Nanos::from_secs(2),
        }
    }
}

impl Options {
    /// Whether to flush now.
    pub fn flushes(&self, moment: Moment, fill: Fill) -> bool {
        self.when.flushes(moment, fill, self.high)
    }

    /// From when on a spinning disk that was last asked for something at `last_access` is flushed because it is quiet;
    /// nothing if it never is.
    pub fn quiet_at(&self, last_access: Nanos, fill: Fill) -> Option<Nanos> {
        self.flushes(Moment::Quiet, fill).then(|| last_access + self.quiet)
    }

    /// Whether a spinning disk is flushed now because it is quiet, or may sleep from `sleep_at` on: the last moment at
    /// which that costs no spin-up.
    pub fn flushes_at_rest(&self, now: Nanos, last_access: Nanos, sleep_at: Option<Nanos>, fill: Fill) -> bool {
        let sleep_due = sleep_at.is_some_and(|at| at <= now);
        self.quiet_at(last_access, fill).is_some_and(|at| sleep_due || at <= now)
    }

    /// How long a writer waits after `size` bytes went into the log while it is flushed: `to_flush` sectors more, at
    /// that rate, until some of it is free again.
    pub fn write_delay(&self, fill: Fill, to_flush: u64, size: ByteSize, rate: DrainRate) -> Nanos {
        let mark = self.high.of(fill.size);
        let Some(above) = fill.used.checked_sub(mark).filter(|above| *above > 0) else { return Nanos(0) };
        let left = fill.size.saturating_sub(fill.used).max(1);
        let pressure = (4.0 * above as f64 / (fill.size - mark).max(1) as f64).min(1.0);
        // The last write is over when it is, however little was planned.
        let times = pressure * to_flush.max(MOST_WRITE) as f64 / left as f64;
        Nanos((rate.time_for(size).0 as f64 * times) as u64).min(MOST_DELAY)
    }

    /// Sectors that a pass up to `until` writes to the disk before it frees anything, at most.
    pub fn until_freed(&self, log: &Log, until: LogSector) -> u64 {
        let pass = until.0.saturating_sub(log.tail().0);
        match self.algorithm {
            // Each sector once, and nothing is free before the last.
            Algorithm::Whole => {
                let all = (log.committed().0 - log.tail().0).max(1);
                (log.map().sectors() as f64 * (pass as f64 / all as f64).min(1.0)) as u64
            }
            // The buffer with which it is enough is written to its end.
            Algorithm::Alg1 | Algorithm::Alg2 | Algorithm::Alg3 | Algorithm::Alg4 => {
                pass.min(log.size() / PARTS + self.memory.0 / SECTOR_BYTES)
            }
        }
    }

    /// How long flushing rests after a write to the disk that took `took`, when the last request of others was
    /// `since_access` ago.
    pub fn rest(&self, took: Nanos, since_access: Nanos, fill: Fill) -> Nanos {
        let share = f64::from(self.drain_share.0.clamp(1, 100)) / 100.0;
        let urgent = fill.used >= fill.size - fill.size / URGENT_DIVISOR;
        if urgent || since_access > CONTENTION_WINDOW {
            return Nanos(0);
        }
        Nanos((took.0 as f64 * (1.0 - share) / share) as u64).min(MOST_REST)
    }
}

/// How much of the log is flushed at once: from its tail to there. What was flushed is free then: a large log is not
/// full all the time that flushing it takes.
pub fn pass_end(log: &Log) -> LogSector {
    LogSector(log.tail().0 + (log.size() / PARTS).max(LEAST_PASS))
}

/// Whether enough of a pass is flushed for it to be worth freeing: all that begins before `done`.
pub fn frees(log: &Log, done: LogSector) -> bool {
    done.0.saturating_sub(log.tail().0) >= log.size() / PARTS
}

/// How fast a disk takes what is flushed, by its last writes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DrainRate {
    /// Bytes a second.
    rate: f64,
}

impl Default for DrainRate {
    /// 20 MB/s, until more is known.
    fn default() -> DrainRate {
        DrainRate { rate: 20e6 }
    }
}

impl DrainRate {
    /// The slowest that is believed, in bytes a second.
    const LEAST: f64 = 1e6;

    /// Learns from a write of `size` bytes, which with the rest after it took the time `took`.
    pub fn observe(&mut self, size: ByteSize, took: Nanos) {
        let rate = size.0 as f64 / took.as_secs_f64().max(1e-6);
        self.rate += (rate - self.rate) / 16.0;
    }

    fn time_for(self, size: ByteSize) -> Nanos {
        Nanos((size.0 as f64 / self.rate.max(DrainRate::LEAST) * 1e9) as u64)
    }
}
