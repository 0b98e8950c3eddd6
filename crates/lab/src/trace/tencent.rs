//! Tencent's traces of its cloud block storage: `timestamp,offset,size,type,volume` (SNIA IOTTA; Zhang et al., USENIX
//! ATC 2020). Read only.
//!
//! The timestamp is Unix time in seconds, offset and size are sectors, the type is 0 for a read and 1 for a write.

use super::Record;
use super::cursor::{Cursor, Fields};
use super::devices::Devices;
use super::parse::{Parse, operation, record, sectors, time};
use super::problem::Problem;

pub(super) const HEADER: &str = "Timestamp,Offset,Size,IOType,VolumeID";

/// Whether a line is one.
pub(super) fn looks_like(fields: &Fields<'_>) -> bool {
    fields.len() == 5 && (0..5).all(|place| fields.is_whole(place)) && fields.is_one_of(3, &["0", "1"])
}

/// Reads it.
#[derive(Debug, Default)]
pub(super) struct TencentParser {
    begun: bool,
}

impl Parse for TencentParser {
    fn parse(&mut self, line: &[u8], devices: &mut Devices) -> Result<Option<Record>, Problem> {
        if !std::mem::replace(&mut self.begun, true) && line.starts_with(b"Timestamp") {
            return super::csv::header(line, HEADER.as_bytes(), HEADER);
        }
        let mut fields = Cursor::commas(line);
        let time = time(fields.number("the timestamp")?, 1_000_000_000)?;
        let offset = sectors(fields.number("the offset")?, "the offset")?;
        let size = sectors(fields.number("the size")?, "the size")?;
        let op = operation(fields.field("the type")?, b"0", b"1", "0 (read), 1 (write)")?;
        let device = devices.number(fields.field("the volume")?)?;
        record(time, device, op, offset, size).map(Some)
    }
}
