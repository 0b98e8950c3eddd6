//! What every reader of a format does: one line or binary record in, at most one request out.

use umbrella_units::{ByteSize, Nanos, SECTOR_BYTES};

use super::blkparse::Event;
use super::devices::Devices;
use super::error::{Excerpt, Problem};
use super::{Record, TraceOp};

/// The most bytes of one read or write: what the 32-bit size of a Linux bio (`bi_size`) holds.
pub const MAX_TRANSFER: u64 = u32::MAX as u64;

/// A format's reader.
pub(super) trait Parse: Send {
    /// The request of a line without its end (or of a binary record); `None` for lines that hold none.
    fn parse(&mut self, unit: &[u8], devices: &mut Devices) -> Result<Option<Record>, Problem>;

    /// Which of a request's events counts; only blkparse has several.
    fn event(&self) -> Option<Event> {
        None
    }
}

/// A format's writer. Nothing is written of a record that cannot be.
pub(super) trait Render: Send {
    /// What stands before the first record.
    fn begin(&mut self, _out: &mut Vec<u8>) {}

    /// Writes a record of the named device.
    fn record(&mut self, out: &mut Vec<u8>, record: &Record, name: &str) -> Result<(), super::Unwritable>;

    /// What stands behind the last record.
    fn end(&mut self, _out: &mut Vec<u8>) {}
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
