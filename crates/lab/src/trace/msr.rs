//! MSR Cambridge traces: `timestamp,host,disk,Read|Write,offset,size,response` (SNIA IOTTA 388; Narayanan et al., FAST
//! 2008).
//!
//! The timestamp is a Windows FILETIME (100 ns since 1601), offset and size are bytes. Host and disk together name the
//! device. The response time is skipped; written as 0.

use std::io::Write as _;

use super::cursor::{Cursor, Fields};
use super::devices::Devices;
use super::parse::{Parse, Render, record, time};
use super::problem::{Excerpt, Problem};
use super::{Record, TraceOp, Unwritable};

/// Where written traces begin: 2007-02-22 17:00 UTC, the day of the originals; a trace has no use for its date.
const EPOCH: u64 = 128_166_372_000_000_000;

pub(super) const HEADER: &str = "Timestamp,Hostname,DiskNumber,Type,Offset,Size";

/// Whether a line is one.
pub(super) fn looks_like(fields: &Fields<'_>) -> bool {
    (6..=7).contains(&fields.len())
        && fields.is_whole(0)
        && fields.is_whole(2)
        && op(fields.at(3)).is_ok()
        && fields.is_whole(4)
        && fields.is_whole(5)
}

/// Reads it.
#[derive(Debug, Default)]
pub(super) struct MsrParser {
    begun: bool,
    name: Vec<u8>,
}

impl Parse for MsrParser {
    fn parse(&mut self, line: &[u8], devices: &mut Devices) -> Result<Option<Record>, Problem> {
        if !std::mem::replace(&mut self.begun, true) && line.starts_with(b"Timestamp") {
            return Ok(None);
        }
        let mut fields = Cursor::commas(line);
        let at = time(fields.number("the timestamp")?, 100)?;
        self.name.clear();
        self.name.extend_from_slice(fields.field("the host")?);
        self.name.extend_from_slice(fields.field("the disk number")?);
        let op = op(fields.field("the operation")?)?;
        let offset = fields.number("the offset")?;
        let size = fields.number("the size")?;
        let device = devices.number(&self.name)?;
        record(at, device, op, offset, size).map(Some)
    }
}

/// `Read` or `Write`, in any case.
pub(super) fn op(field: &[u8]) -> Result<TraceOp, Problem> {
    if field.eq_ignore_ascii_case(b"write") {
        Ok(TraceOp::Write)
    } else if field.eq_ignore_ascii_case(b"read") {
        Ok(TraceOp::Read)
    } else {
        Err(Problem::UnknownOp { found: Excerpt::new(field), known: "Read, Write" })
    }
}

/// Writes it.
#[derive(Debug, Default)]
pub(super) struct MsrRenderer;

impl Render for MsrRenderer {
    fn record(&mut self, out: &mut Vec<u8>, record: &Record, name: &str) -> Result<(), Unwritable> {
        let op = match record.op {
            TraceOp::Read => "Read",
            TraceOp::Write => "Write",
            TraceOp::Discard => return Err(Unwritable::Discard),
        };
        let host = name.trim_end_matches(|letter: char| letter.is_ascii_digit());
        let disk = name.get(host.len()..).unwrap_or_default();
        let host = if host.is_empty() { "disk" } else { host };
        let at = (record.time.0 / 100).checked_add(EPOCH).ok_or(Unwritable::Time)?;
        if at > u64::MAX / 100 {
            return Err(Unwritable::Time);
        }
        let disk = if disk.is_empty() { "0" } else { disk };
        let _ = writeln!(out, "{at},{host},{disk},{op},{},{},0", record.offset.0, record.size.0);
        Ok(())
    }
}
