//! SYSTOR '17 traces: `timestamp,response,type,LUN,offset,size` (SNIA IOTTA; Lee et al., SYSTOR 2017, and the README
//! beside the traces). Read only.
//!
//! The timestamp is Unix time in seconds, the response the seconds that the request took; offset and size are bytes.
//! The LUN is the device. A request without a type is one whose response the recorder missed, so that it is unknown
//! what it was: it is skipped.

use super::cursor::{Cursor, Fields};
use super::devices::Devices;
use super::parse::{Parse, record};
use super::problem::{Excerpt, Problem};
use super::{Record, TraceOp};

pub(super) const HEADER: &str = "Timestamp,Response,IOType,LUN,Offset,Size";

/// Whether a line is one.
pub(super) fn looks_like(fields: &Fields<'_>) -> bool {
    fields.len() == 6
        && fields.is_decimal(0)
        && (fields.is_decimal(1) || fields.at(1).is_empty())
        && fields.is_one_of(2, &["R", "W", ""])
        && (3..6).all(|place| fields.is_whole(place))
}

/// Reads it.
#[derive(Debug, Default)]
pub(super) struct SystorParser {
    begun: bool,
}

impl Parse for SystorParser {
    fn parse(&mut self, line: &[u8], devices: &mut Devices) -> Result<Option<Record>, Problem> {
        if !std::mem::replace(&mut self.begun, true) && line.starts_with(b"Timestamp") {
            return super::csv::header(line, HEADER.as_bytes(), HEADER);
        }
        let mut fields = Cursor::commas(line);
        let time = fields.decimal("the timestamp", 9)?;
        fields.field("the response time")?;
        let op = match fields.field("the type")? {
            b"R" => TraceOp::Read,
            b"W" => TraceOp::Write,
            b"" => return Ok(None),
            other => return Err(Problem::UnknownOp { found: Excerpt::new(other), known: "R, W" }),
        };
        let device = fields.field("the LUN")?;
        let offset = fields.number("the offset")?;
        let size = fields.number("the size")?;
        let device = devices.number(device)?;
        record(time, device, op, offset, size).map(Some)
    }
}
