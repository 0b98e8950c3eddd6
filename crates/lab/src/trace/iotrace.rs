//! `.iotrace.csv`: the requests of a file system with their file and flags, `time_us,op,lba_512,len_512,...`. Read
//! only.
//!
//! All of one device. What follows the length (class, flush, metadata, file) a replay of blocks does not need.

use super::cursor::{Cursor, Fields};
use super::devices::Devices;
use super::parse::{Parse, record, sectors};
use super::problem::Problem;
use super::{Record, csv};

pub(super) const HEADER: &str = "time_us,op,lba_512,len_512";

/// Whether a line is one.
pub(super) fn looks_like(fields: &Fields<'_>) -> bool {
    fields.len() >= 10
        && fields.is_decimal(0)
        && fields.is_one_of(1, &["R", "W", "D"])
        && fields.is_whole(2)
        && fields.is_whole(3)
}

/// Reads it.
#[derive(Debug, Default)]
pub(super) struct IoTraceParser {
    begun: bool,
}

impl Parse for IoTraceParser {
    fn parse(&mut self, line: &[u8], devices: &mut Devices) -> Result<Option<Record>, Problem> {
        if !std::mem::replace(&mut self.begun, true) && line.starts_with(b"time") {
            return csv::header(line, HEADER.as_bytes(), HEADER);
        }
        let mut fields = Cursor::commas(line);
        let time = fields.decimal("time_us", 3)?;
        let op = csv::op(fields.field("op")?)?;
        let offset = sectors(fields.number("lba_512")?, "lba_512")?;
        let size = sectors(fields.number("len_512")?, "len_512")?;
        let device = devices.number(b"0")?;
        record(time, device, op, offset, size).map(Some)
    }
}
