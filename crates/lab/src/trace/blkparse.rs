//! Text of `blkparse`: `maj,min cpu sequence seconds pid action rwbs sector + sectors [process]`, and a summary at its
//! end.
//!
//! A request appears once for each of its events; only one kind of event is read. By default that is the first of these
//! that the beginning of the trace has: queued, issued, inserted, completed. Lines that move no data of the file system
//! are skipped: flushes, commands that programs send to the disk themselves (smartctl), notes, plugs, the summary. Some
//! recordings hold a record with the time of the wall clock; see [`super::Strictness`]. Source: blkparse 1.2,
//! `process_default` in blkparse_fmt.c.

use super::cursor::{Cursor, Fields, whole};
use super::devices::Devices;
use super::parse::{Event, Parse, record, sectors};
use super::problem::{Excerpt, Problem};
use super::{Record, TraceOp};

/// Reads it.
#[derive(Debug)]
pub(super) struct BlkparseParser {
    event: Event,
    in_summary: bool,
}

impl BlkparseParser {
    pub(super) fn new(event: Event, head: &[u8]) -> Self {
        let chosen = if event == Event::Auto {
            let has =
                |event: &Event| head.split(|byte| *byte == b'\n').any(|line| action_of(line) == Some(event.action()));
            Event::BY_PREFERENCE.into_iter().find(has).unwrap_or(Event::Queue)
        } else {
            event
        };
        Self { event: chosen, in_summary: false }
    }
}

/// `8,16` and the like.
fn is_device(field: &[u8]) -> bool {
    let mut parts = field.split(|byte| *byte == b',');
    let number = |part: Option<&[u8]>| part.is_some_and(|part| whole(part, "").is_ok());
    number(parts.next()) && number(parts.next()) && parts.next().is_none()
}

fn action_of(line: &[u8]) -> Option<&[u8]> {
    let mut fields = Cursor::blanks(line);
    let is_event = fields.next().is_some_and(is_device);
    is_event.then(|| std::iter::from_fn(|| fields.next()).nth(4)).flatten()
}

/// All actions of blkparse (blkparse(1), "ACTION IDENTIFIERS").
const ACTIONS: [&str; 17] = ["Q", "M", "F", "G", "S", "R", "D", "C", "P", "U", "UT", "T", "I", "X", "B", "A", "m"];

/// Whether a line is an event.
pub(super) fn looks_like(fields: &Fields<'_>) -> bool {
    is_device(fields.at(0))
        && fields.is_whole(1)
        && fields.is_whole(2)
        && fields.is_fraction(3)
        && fields.is_whole(4)
        && fields.is_one_of(5, &ACTIONS)
        && fields.at(6).iter().all(u8::is_ascii_uppercase)
}

/// Whether a line is one that blkparse prints beside events: the files it reads, and the first of each part of its
/// summary (a program is `name (pid)` or `name (pid, ...)`).
fn is_beside_events(line: &[u8]) -> bool {
    const BEGINNINGS: [&[u8]; 6] =
        [b"CPU", b"Total (", b"Throughput", b"Events (", b"Input file ", b"discarded traces containing "];
    let of_program = || {
        let inner = line.strip_suffix(b")")?;
        let open = memchr::memrchr(b'(', inner)?;
        let pid = inner.get(open + 1..)?;
        whole(pid.strip_suffix(b", ...").unwrap_or(pid), "").ok()
    };
    BEGINNINGS.iter().any(|start| line.starts_with(start)) || of_program().is_some()
}

/// What the letters of a request say; `None` if it moves no data.
pub(super) fn op(rwbs: &[u8]) -> Option<TraceOp> {
    // An F before the letter asks for a flush first.
    let letter = rwbs.iter().find(|letter| **letter != b'F')?;
    match letter {
        b'R' => Some(TraceOp::Read),
        b'W' => Some(TraceOp::Write),
        b'D' => Some(TraceOp::Discard),
        _ => None,
    }
}

impl Parse for BlkparseParser {
    fn event(&self) -> Option<Event> {
        Some(self.event)
    }

    fn parse(&mut self, line: &[u8], devices: &mut Devices) -> Result<Option<Record>, Problem> {
        let mut fields = Cursor::blanks(line);
        let Some(device) = fields.next() else { return Ok(None) };
        if !is_device(device) {
            self.in_summary |= is_beside_events(line);
            return if self.in_summary {
                Ok(None)
            } else {
                Err(Problem::Unexpected { field: "the device", found: Excerpt::new(device), expected: "major,minor" })
            };
        }
        self.in_summary = false;
        fields.number("the CPU")?;
        fields.number("the sequence")?;
        let time = fields.decimal("the time", 9)?;
        fields.number("the process")?;
        if fields.field("the action")? != self.event.action() {
            return Ok(None);
        }
        let Some(op) = op(fields.field("the operation")?) else { return Ok(None) };
        // Without data there are no sectors: `[process]`, with -t `(time) [process]`, completed `0 [error]`; a command
        // that passes the file system by has its bytes in the sector's place, and perhaps itself:
        // `512 (85 08 ..) [process]`.
        let ends = |field: &[u8]| field.starts_with(b"[") || field.starts_with(b"(");
        let Some(first) = fields.next().filter(|field| !ends(field)) else { return Ok(None) };
        let first = whole(first, "the sector")?;
        let plus = fields.field("the sectors")?;
        if ends(plus) {
            return Ok(None);
        }
        let offset = sectors(first, "the sector")?;
        if plus != b"+" {
            return Err(Problem::Unexpected {
                field: "the mark before the sectors",
                found: Excerpt::new(plus),
                expected: "+",
            });
        }
        let size = sectors(fields.number("the sectors")?, "the sectors")?;
        if size == 0 {
            return Ok(None);
        }
        let device = devices.number(device)?;
        record(time, device, op, offset, size).map(Some)
    }
}
