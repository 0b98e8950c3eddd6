//! Text of `biosnoop` (BCC, and its libbpf version): `TIME(s) COMM PID DISK T SECTOR BYTES [QUE(ms)] LAT(ms)`. Read
//! only.
//!
//! The time is that of the completion; what the request took, and what it waited before, is taken off it (before the
//! recording began, time is 0). A process's name may have blanks, so fields are counted from the end. The `biosnoop.bt`
//! of bpftrace prints no sectors, so nobody can read it as a trace.

use smallvec::SmallVec;

use super::Record;
use super::blkparse::op;
use super::cursor::{Cursor, Fields, decimal, whole};
use super::devices::Devices;
use super::parse::{Parse, record, sectors};
use super::problem::Problem;

/// What a header begins with.
pub(super) const HEADER: &[u8] = b"TIME(s)";

/// Fields of a line without a column for the time in the queue.
const FIELDS: usize = 8;

/// A line's fields; those that say how long it took are apart.
struct BiosnoopLine<'a> {
    time: &'a [u8],
    waits: SmallVec<[&'a [u8]; 2]>,
    /// Disk, kind, sector, bytes.
    request: [&'a [u8]; 4],
}

fn is_fraction(field: &[u8]) -> bool {
    field.contains(&b'.') && field.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.')
}

fn fields(line: &[u8]) -> Option<BiosnoopLine<'_>> {
    let mut cursor = Cursor::blanks(line);
    let fields: SmallVec<[&[u8]; 16]> = std::iter::from_fn(|| cursor.next()).collect();
    let waits: SmallVec<[&[u8]; 2]> =
        fields.iter().rev().take(2).copied().take_while(|field| is_fraction(field)).collect();
    let rest = fields.get(..fields.len().checked_sub(waits.len())?)?;
    if waits.is_empty() || rest.len() < FIELDS - 1 {
        return None;
    }
    Some(BiosnoopLine { time: rest.first()?, waits, request: *rest.last_chunk()? })
}

/// Whether a line is one.
pub(super) fn looks_like(line: &[u8], blanks: &Fields<'_>) -> bool {
    let is_whole = |field: &[u8]| !field.is_empty() && field.iter().all(u8::is_ascii_digit);
    blanks.is_fraction(0)
        && fields(line).is_some_and(|BiosnoopLine { request: [_, kind, sector, bytes], .. }| {
            kind.iter().all(u8::is_ascii_uppercase) && is_whole(bytes) && (is_whole(sector) || sector == b"-1")
        })
}

/// Reads it.
#[derive(Debug, Default)]
pub(super) struct BiosnoopParser;

impl Parse for BiosnoopParser {
    fn parse(&mut self, line: &[u8], devices: &mut Devices) -> Result<Option<Record>, Problem> {
        if line.starts_with(HEADER) {
            return Ok(None);
        }
        let BiosnoopLine { time, waits, request: [disk, kind, sector, bytes] } =
            fields(line).ok_or(Problem::Missing { field: "LAT(ms)" })?;
        let mut time = decimal(time, "TIME(s)", 9)?;
        for wait in waits {
            time = time.saturating_sub(decimal(wait, "LAT(ms)", 6)?);
        }
        let size = whole(bytes, "BYTES")?;
        let Some(op) = op(kind).filter(|_| size > 0) else { return Ok(None) };
        let offset = sectors(whole(sector, "SECTOR")?, "SECTOR")?;
        let device = devices.number(disk)?;
        record(time, device, op, offset, size).map(Some)
    }
}
