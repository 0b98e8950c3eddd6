//! Five numbers a line, as DiskSim's ASCII format has them, with times in nanoseconds: time, device, sector, sectors,
//! and 0 for a write or 1 for a read. Read only.

use super::Record;
use super::cursor::{Cursor, Fields};
use super::devices::Devices;
use super::parse::{Parse, operation, record, sectors};
use super::problem::Problem;

/// Whether a line is one.
pub(super) fn looks_like(fields: &Fields<'_>) -> bool {
    fields.len() == 5 && (0..4).all(|place| fields.is_whole(place)) && fields.is_one_of(4, &["0", "1"])
}

/// Reads it.
#[derive(Debug, Default)]
pub(super) struct AsciiParser;

impl Parse for AsciiParser {
    fn parse(&mut self, line: &[u8], devices: &mut Devices) -> Result<Option<Record>, Problem> {
        let mut fields = Cursor::blanks(line);
        let Some(time) = fields.next() else { return Ok(None) };
        let time = super::cursor::whole(time, "the time")?;
        let device = fields.field("the device")?;
        let offset = sectors(fields.number("the sector")?, "the sector")?;
        let size = sectors(fields.number("the sectors")?, "the sectors")?;
        let op = operation(fields.field("the operation")?, b"1", b"0", "0 (write), 1 (read)")?;
        let device = devices.number(device)?;
        record(time, device, op, offset, size).map(Some)
    }
}
