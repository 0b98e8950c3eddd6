//! DiskSim's ASCII traces: arrival time in milliseconds, device, block, blocks, flags (DiskSim 4.0 reference manual,
//! "Input traces"). Read only.
//!
//! Blocks have 512 bytes; the flags are hexadecimal, their lowest bit says that it is a read.

use super::cursor::{Cursor, Fields};
use super::devices::Devices;
use super::parse::{Parse, record, sectors};
use super::problem::{Excerpt, Problem};
use super::{Record, TraceOp};

/// Whether a line is one.
pub(super) fn looks_like(fields: &Fields<'_>) -> bool {
    fields.len() == 5
        && fields.is_decimal(0)
        && (1..4).all(|place| fields.is_whole(place))
        && flags(fields.at(4)).is_some()
}

fn flags(field: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(field).ok()?;
    let digits = text.strip_prefix("0x").unwrap_or(text);
    // A sign is no digit.
    digits.bytes().all(|digit| digit.is_ascii_hexdigit()).then_some(())?;
    u32::from_str_radix(digits, 16).ok()
}

/// Reads it.
#[derive(Debug, Default)]
pub(super) struct DisksimParser;

impl Parse for DisksimParser {
    fn parse(&mut self, line: &[u8], devices: &mut Devices) -> Result<Option<Record>, Problem> {
        let mut fields = Cursor::blanks(line);
        let Some(time) = fields.next() else { return Ok(None) };
        let time = super::cursor::decimal(time, "the time", 6)?;
        let device = fields.field("the device")?;
        let offset = sectors(fields.number("the block")?, "the block")?;
        let size = sectors(fields.number("the blocks")?, "the blocks")?;
        let found = fields.field("the flags")?;
        let expected = "a hexadecimal number";
        let flags = flags(found).ok_or_else(|| Problem::Unexpected {
            field: "the flags",
            found: Excerpt::new(found),
            expected,
        })?;
        let op = if flags & 1 == 1 { TraceOp::Read } else { TraceOp::Write };
        let device = devices.number(device)?;
        record(time, device, op, offset, size).map(Some)
    }
}
