//! SPC traces, as the UMass repository has them: `ASU,LBA,size,op,time` (SPC trace file format specification 1.0.1).
//!
//! The LBA counts sectors of 512 bytes, the size bytes, the time seconds from the start. Fields that follow are
//! skipped.

use std::io::Write as _;

use umbrella_units::SECTOR_BYTES;

use super::cursor::{Cursor, Fields};
use super::devices::Devices;
use super::parse::{Parse, Render, record, sectors};
use super::problem::{Excerpt, Problem};
use super::{Record, TraceOp, Unwritable};

/// Whether a line is one.
pub(super) fn looks_like(fields: &Fields<'_>) -> bool {
    fields.is_whole(0)
        && fields.is_whole(1)
        && fields.is_whole(2)
        && fields.is_one_of(3, &["R", "W", "r", "w"])
        && fields.is_decimal(4)
}

/// Reads it.
#[derive(Debug, Default)]
pub(super) struct SpcParser;

impl Parse for SpcParser {
    fn parse(&mut self, line: &[u8], devices: &mut Devices) -> Result<Option<Record>, Problem> {
        let mut fields = Cursor::commas(line);
        let device = fields.field("the ASU")?;
        let offset = sectors(fields.number("the LBA")?, "the LBA")?;
        let size = fields.number("the size")?;
        let op = op(fields.field("the operation")?)?;
        let time = fields.decimal("the time", 9)?;
        let device = devices.number(device)?;
        record(time, device, op, offset, size).map(Some)
    }
}

/// R or W, in any case.
pub(super) fn op(field: &[u8]) -> Result<TraceOp, Problem> {
    match field {
        b"R" | b"r" => Ok(TraceOp::Read),
        b"W" | b"w" => Ok(TraceOp::Write),
        _ => Err(Problem::UnknownOp { found: Excerpt::new(field), known: "R, W" }),
    }
}

/// Writes it.
#[derive(Debug, Default)]
pub(super) struct SpcRenderer;

impl Render for SpcRenderer {
    fn record(&mut self, out: &mut Vec<u8>, record: &Record, _name: &str) -> Result<(), Unwritable> {
        let op = match record.op {
            TraceOp::Read => 'R',
            TraceOp::Write => 'W',
            TraceOp::Discard => return Err(Unwritable::Discard),
        };
        if !record.offset.0.is_multiple_of(SECTOR_BYTES) {
            return Err(Unwritable::Misaligned);
        }
        let (seconds, nanos) = (record.time.0 / 1_000_000_000, record.time.0 % 1_000_000_000);
        let _ = writeln!(
            out,
            "{},{},{},{op},{seconds}.{nanos:09}",
            record.device,
            record.offset.0 / SECTOR_BYTES,
            record.size.0
        );
        Ok(())
    }
}
