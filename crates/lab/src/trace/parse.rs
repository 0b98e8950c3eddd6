//! What every reader of a format does: one line or binary record in, at most one request out.

use thiserror::Error;
use umbrella_units::{ByteSize, Nanos, SECTOR_BYTES};

use super::devices::Devices;
use super::problem::{Excerpt, MAX_TRANSFER, Problem};
use super::{Record, TraceOp};

/// Which of a request's events is taken for the request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Event {
    /// The first of the others that the beginning of the trace has, in this order.
    #[default]
    Auto,
    /// Q: it was asked for.
    Queue,
    /// D: it went to the device.
    Issue,
    /// I: it went into the scheduler's queue.
    Insert,
    /// C: it was done.
    Complete,
}

impl Event {
    /// What it is called on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Event::Auto => "auto",
            Event::Queue => "queue",
            Event::Issue => "issue",
            Event::Insert => "insert",
            Event::Complete => "complete",
        }
    }

    /// Those that `Auto` takes, the first first.
    pub(super) const BY_PREFERENCE: [Event; 4] = [Event::Queue, Event::Issue, Event::Insert, Event::Complete];

    /// Its letter in the text.
    pub(super) fn action(self) -> &'static [u8] {
        match self {
            Event::Auto | Event::Queue => b"Q",
            Event::Issue => b"D",
            Event::Insert => b"I",
            Event::Complete => b"C",
        }
    }
}

/// Why a format cannot hold a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Unwritable {
    /// The format knows no discards.
    #[error("it is a discard, which the format does not have")]
    Discard,
    /// The format counts in sectors.
    #[error("it does not begin on a sector of 512 bytes, and the format counts in sectors")]
    Misaligned,
    /// The format's field is too small.
    #[error("it is too large for the format")]
    TooLarge,
    /// The format's clock cannot say it, or the record is earlier than the one before.
    #[error("its time does not fit the format, or is earlier than that of the previous record")]
    Time,
    /// The format is of one device only.
    #[error("it belongs to a second device, and the format has only one")]
    SecondDevice,
    /// The library that encodes the format refuses it.
    #[error("the format cannot represent it")]
    Encoder,
}

/// Parses one format.
pub(super) trait Parse: Send {
    /// The request of a line without its end (or of a binary record); `None` for lines that hold none.
    fn parse(&mut self, unit: &[u8], devices: &mut Devices) -> Result<Option<Record>, Problem>;

    /// Which of a request's events counts; only blkparse has several.
    fn event(&self) -> Option<Event> {
        None
    }
}

/// Writes one format. A record that the format cannot hold writes nothing.
pub(super) trait Render: Send {
    /// What is before the first record.
    fn begin(&mut self, _out: &mut Vec<u8>) {}

    /// Writes a record of the named device.
    fn record(&mut self, out: &mut Vec<u8>, record: &Record, name: &str) -> Result<(), Unwritable>;

    /// What is behind the last record.
    fn end(&mut self, _out: &mut Vec<u8>) -> Result<(), Unwritable> {
        Ok(())
    }
}

/// A record, if its addresses are possible.
pub(super) fn record(time: u64, device: u32, op: TraceOp, offset: u64, size: u64) -> Result<Record, Problem> {
    if offset.checked_add(size).is_none() {
        return Err(Problem::OutOfRange { offset, size });
    }
    if op != TraceOp::Discard && size > MAX_TRANSFER {
        return Err(Problem::TooLarge { size });
    }
    Ok(Record { time: Nanos(time), device, op, offset: ByteSize(offset), size: ByteSize(size) })
}

/// The operation that a text means.
pub(super) fn operation(found: &[u8], read: &[u8], write: &[u8], known: &'static str) -> Result<TraceOp, Problem> {
    match found {
        found if found == read => Ok(TraceOp::Read),
        found if found == write => Ok(TraceOp::Write),
        _ => Err(Problem::UnknownOp { found: Excerpt::new(found), known }),
    }
}

/// Sectors in bytes.
pub(super) fn sectors(count: u64, field: &'static str) -> Result<u64, Problem> {
    count
        .checked_mul(SECTOR_BYTES)
        .ok_or_else(|| Problem::Overflow { field, found: Excerpt::new(count.to_string().as_bytes()) })
}

/// A time in units of `nanos` nanoseconds.
pub(super) fn time(count: u64, nanos: u64) -> Result<u64, Problem> {
    count
        .checked_mul(nanos)
        .ok_or_else(|| Problem::Overflow { field: "time", found: Excerpt::new(count.to_string().as_bytes()) })
}
