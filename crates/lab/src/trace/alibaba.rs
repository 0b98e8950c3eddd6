//! Alibaba's block traces of 2020: `device_id,opcode,offset,length,timestamp` (github.com/alibaba/block-traces). Read
//! only.
//!
//! Offset and length are bytes, the timestamp is Unix time in microseconds.

use super::Record;
use super::cursor::{Cursor, Fields};
use super::devices::Devices;
use super::parse::{Parse, operation, record, time};
use super::problem::Problem;

pub(super) const HEADER: &str = "device_id,opcode,offset,length,timestamp";

/// Whether a line is one.
pub(super) fn looks_like(fields: &Fields<'_>) -> bool {
    fields.len() == 5
        && fields.is_whole(0)
        && fields.is_one_of(1, &["R", "W"])
        && (2..5).all(|place| fields.is_whole(place))
}

/// Reads it.
#[derive(Debug, Default)]
pub(super) struct AlibabaParser {
    begun: bool,
}

impl Parse for AlibabaParser {
    fn parse(&mut self, line: &[u8], devices: &mut Devices) -> Result<Option<Record>, Problem> {
        if !std::mem::replace(&mut self.begun, true) && line.starts_with(b"device_id") {
            return super::csv::header(line, HEADER.as_bytes(), HEADER);
        }
        let mut fields = Cursor::commas(line);
        let device = fields.field("the device")?;
        let op = operation(fields.field("the operation")?, b"R", b"W", "R, W")?;
        let offset = fields.number("the offset")?;
        let size = fields.number("the length")?;
        let time = time(fields.number("the timestamp")?, 1_000)?;
        let device = devices.number(device)?;
        record(time, device, op, offset, size).map(Some)
    }
}
