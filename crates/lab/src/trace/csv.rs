//! The shared CSV: `time_us,dev,op,offset_bytes,size_bytes,flags`, the format that all others can be converted to.
//!
//! Times are microseconds; a fraction is read (to the nanosecond) and written when there is one. `op` is R, W or D
//! (discard). `flags` is free text that a replay does not need, and may be missing.

use std::io::Write as _;

use super::cursor::{Cursor, Fields};
use super::devices::Devices;
use super::digits;
use super::parse::{Parse, Render, record};
use super::problem::{Excerpt, Problem};
use super::{Record, TraceOp, Unwritable};

pub(super) const HEADER: &str = "time_us,dev,op,offset_bytes,size_bytes";

/// Whether a line is one. A fraction in the place of the device is a response time if the time is that of a clock:
/// seconds since 1970 have ten digits.
pub(super) fn looks_like(fields: &Fields<'_>) -> bool {
    (5..=6).contains(&fields.len())
        && fields.is_decimal(0)
        && !fields.at(1).is_empty()
        && !(fields.is_fraction(1) && fields.whole_digits(0) >= 10)
        && fields.is_one_of(2, &["R", "W", "D"])
        && fields.is_whole(3)
        && fields.is_whole(4)
}

/// Reads it.
#[derive(Debug, Default)]
pub(super) struct CsvParser {
    begun: bool,
}

impl Parse for CsvParser {
    fn parse(&mut self, line: &[u8], devices: &mut Devices) -> Result<Option<Record>, Problem> {
        if !std::mem::replace(&mut self.begun, true) && line.starts_with(b"time") {
            return header(line, HEADER.as_bytes(), HEADER);
        }
        if let Some(Plain { nanos, device, op, offset, size }) = plain(line) {
            let device = devices.number(device)?;
            return record(nanos, device, op, offset, size).map(Some);
        }
        let mut fields = Cursor::commas(line);
        let time = fields.decimal("time_us", 3)?;
        let device = fields.field("dev")?;
        let op = op(fields.field("op")?)?;
        let offset = fields.number("offset_bytes")?;
        let size = fields.number("size_bytes")?;
        let device = devices.number(device)?;
        record(time, device, op, offset, size).map(Some)
    }
}

/// A line as nearly all are: no blanks, no leading zeros in plenty, times to the nanosecond.
struct Plain<'a> {
    nanos: u64,
    device: &'a [u8],
    op: TraceOp,
    offset: u64,
    size: u64,
}

/// Reads a plain line in one pass. Any other line is the cursor's, which knows what is wrong with it, if anything.
#[inline]
fn plain(line: &[u8]) -> Option<Plain<'_>> {
    // What times 1000 always fits.
    const MOST_MICROS: u64 = u64::MAX / 1_000 - 1;
    let (micros, length) = digits::leading(line)?;
    let mut rest = line.get(length..)?;
    let mut nanos = 0;
    if let [b'.', fraction @ ..] = rest {
        let (number, length) = digits::leading(fraction)?;
        nanos = number * [0, 100, 10, 1].get(length)?;
        rest = fraction.get(length..)?;
    }
    let rest = rest.strip_prefix(b",")?;
    let end = rest.iter().position(|byte| *byte == b',')?;
    let (device, rest) = rest.split_at_checked(end)?;
    let is_blank = |byte: Option<&u8>| byte.is_none_or(u8::is_ascii_whitespace);
    let [b',', op, b',', rest @ ..] = rest else { return None };
    if micros > MOST_MICROS || is_blank(device.first()) || is_blank(device.last()) {
        return None;
    }
    let op = match op {
        b'R' => TraceOp::Read,
        b'W' => TraceOp::Write,
        b'D' => TraceOp::Discard,
        _ => return None,
    };
    let (offset, length) = digits::leading(rest)?;
    let rest = rest.get(length..)?.strip_prefix(b",")?;
    let (size, length) = digits::leading(rest)?;
    let ends = rest.get(length).is_none_or(|byte| *byte == b',');
    ends.then_some(Plain { nanos: micros * 1_000 + nanos, device, op, offset, size })
}

/// Accepts a first line that begins as it must.
pub(super) fn header(line: &[u8], begins: &[u8], expected: &'static str) -> Result<Option<Record>, Problem> {
    if line.starts_with(begins) {
        Ok(None)
    } else {
        Err(Problem::Unexpected { field: "the header", found: Excerpt::new(line), expected })
    }
}

/// R, W or D.
pub(super) fn op(field: &[u8]) -> Result<TraceOp, Problem> {
    match field {
        b"R" => Ok(TraceOp::Read),
        b"W" => Ok(TraceOp::Write),
        b"D" => Ok(TraceOp::Discard),
        _ => Err(Problem::UnknownOp { found: Excerpt::new(field), known: "R, W, D" }),
    }
}

/// Writes it.
#[derive(Debug, Default)]
pub(super) struct CsvRenderer;

impl Render for CsvRenderer {
    fn begin(&mut self, out: &mut Vec<u8>) {
        let _ = writeln!(out, "{HEADER},flags");
    }

    fn record(&mut self, out: &mut Vec<u8>, record: &Record, name: &str) -> Result<(), Unwritable> {
        let op = match record.op {
            TraceOp::Read => 'R',
            TraceOp::Write => 'W',
            TraceOp::Discard => 'D',
        };
        let (micros, nanos) = (record.time.0 / 1_000, record.time.0 % 1_000);
        let _ = write!(out, "{micros}");
        if nanos > 0 {
            let _ = write!(out, ".{nanos:03}");
        }
        let _ = writeln!(out, ",{name},{op},{},{},", record.offset.0, record.size.0);
        Ok(())
    }
}
