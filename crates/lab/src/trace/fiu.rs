//! Traces of Florida International University (SNIA IOTTA: SRCMap, FAST 2010, and I/O deduplication, FAST 2010):
//! `time pid process sector sectors R|W major minor [MD5]`. SRCMap's have no MD5. Read only.
//!
//! Times are nanoseconds, sectors have 512 bytes. A process's name may have blanks, so fields are counted from the end.

use smallvec::SmallVec;

use super::Record;
use super::cursor::{Cursor, whole};
use super::devices::Devices;
use super::parse::{Parse, operation, record, sectors};
use super::problem::Problem;

/// Fields before and behind the process's name.
const FIELDS: usize = 8;

/// The fields of a line: the time, and the six behind the process's name.
fn fields(line: &[u8]) -> Option<(&[u8], [&[u8]; 5])> {
    let mut cursor = Cursor::blanks(line);
    let fields: SmallVec<[&[u8]; 16]> = std::iter::from_fn(|| cursor.next()).collect();
    let without_hash = match fields.split_last()? {
        (last, rest) if last.len() >= 32 && last.iter().all(u8::is_ascii_hexdigit) => rest,
        _ => &fields[..],
    };
    if without_hash.len() < FIELDS {
        return None;
    }
    Some((without_hash.first()?, *without_hash.last_chunk()?))
}

/// Whether a line is one.
pub(super) fn looks_like(line: &[u8]) -> bool {
    let is_whole = |field: &[u8]| !field.is_empty() && field.iter().all(u8::is_ascii_digit);
    fields(line).is_some_and(|(time, [sector, count, op, major, minor])| {
        [time, sector, count, major, minor].into_iter().all(is_whole) && matches!(op, b"R" | b"W")
    })
}

/// Reads it.
#[derive(Debug, Default)]
pub(super) struct FiuParser {
    name: Vec<u8>,
}

impl Parse for FiuParser {
    fn parse(&mut self, line: &[u8], devices: &mut Devices) -> Result<Option<Record>, Problem> {
        let (time, [sector, count, op, major, minor]) =
            fields(line).ok_or(Problem::Missing { field: "the minor device number" })?;
        let time = whole(time, "the time")?;
        let offset = sectors(whole(sector, "the sector")?, "the sector")?;
        let size = sectors(whole(count, "the sectors")?, "the sectors")?;
        let op = operation(op, b"R", b"W", "R, W")?;
        self.name.clear();
        self.name.extend_from_slice(major);
        self.name.push(b',');
        self.name.extend_from_slice(minor);
        let device = devices.number(&self.name)?;
        record(time, device, op, offset, size).map(Some)
    }
}
