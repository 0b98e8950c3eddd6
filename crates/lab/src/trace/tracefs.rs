//! Lines of the kernel's block tracepoints, as `trace_pipe` gives them. The reading itself is the command line's; here
//! are only words.
//!
//! `block_rq_issue: 7,0 WS 4096 () 2048 + 8 none,0,0 [dd]` and `block_bio_queue: 7,0 WS 2048 + 8 [dd]`
//! (include/trace/events/block.h), after `process-pid [cpu] flags seconds:`.

use umbrella_units::{ByteSize, Nanos, SECTOR_BYTES};

use super::cursor::{Cursor, decimal, whole};
use super::{TraceOp, blkparse};

/// A request that the kernel reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockEvent {
    /// By the kernel's trace clock.
    pub time: Nanos,
    /// Major and minor number.
    pub device: (u32, u32),
    /// What it does.
    pub op: TraceOp,
    /// The first byte.
    pub offset: ByteSize,
    /// How many bytes.
    pub size: ByteSize,
    /// Whether it is synchronous, metadata, forced to the medium, read ahead.
    pub flags: [Option<char>; 4],
}

/// The request of a line; `None` for anything else, and for requests without data.
pub fn parse_trace_pipe(line: &[u8]) -> Option<BlockEvent> {
    // The process's name may hold anything, so the time is sought from the event's name backwards.
    let (at, name) = [&b": block_rq_issue: "[..], b": block_bio_queue: "]
        .into_iter()
        .find_map(|name| line.windows(name.len()).position(|window| window == name).map(|at| (at, name)))?;
    let before = line.get(..at)?;
    let time = before.rsplit(u8::is_ascii_whitespace).next()?;
    let time = Nanos(decimal(time, "the time", 9).ok()?);
    let mut fields = Cursor::blanks(line.get(at + name.len()..)?);
    let mut numbers = fields.next()?.split(|byte| *byte == b',');
    let mut number = || u32::try_from(whole(numbers.next()?, "").ok()?).ok();
    let device = (number()?, number()?);
    let rwbs = fields.next()?;
    let op = blkparse::op(rwbs)?;
    // Up to the plus, whatever is before the sector: the bytes and the command of block_rq_issue.
    let mut sector = None;
    let sectors = loop {
        let field = fields.next()?;
        if field == b"+" {
            break fields.number("").ok()?;
        }
        sector = Some(field);
    };
    let sector = whole(sector?, "").ok()?;
    if sectors == 0 {
        return None;
    }
    let offset = sector.checked_mul(SECTOR_BYTES)?;
    let size = sectors.checked_mul(SECTOR_BYTES)?;
    offset.checked_add(size)?;
    let operation = rwbs.iter().position(|letter| *letter != b'F').unwrap_or(0);
    let after = rwbs.get(operation + 1..).unwrap_or_default();
    let flags = ['S', 'M', 'F', 'A'].map(|flag| after.contains(&(flag as u8)).then_some(flag));
    Some(BlockEvent { time, device, op, offset: ByteSize(offset), size: ByteSize(size), flags })
}

impl BlockEvent {
    /// The event as a line of the shared CSV, its time counted from `origin`.
    pub fn csv_line(&self, origin: Nanos) -> String {
        let op = match self.op {
            TraceOp::Read => 'R',
            TraceOp::Write => 'W',
            TraceOp::Discard => 'D',
        };
        let flags: String = self.flags.iter().flatten().collect();
        let micros = self.time.since(origin).0 / 1_000;
        let (major, minor) = self.device;
        format!("{micros},{major}:{minor},{op},{},{},{flags}\n", self.offset.0, self.size.0)
    }
}

/// The first line of the shared CSV.
pub const CSV_HEADER: &str = "time_us,dev,op,offset_bytes,size_bytes,flags\n";

/// How many events the kernel says it lost, if the line says so: `CPU:1 [LOST 57 EVENTS]`.
pub fn lost_events(line: &[u8]) -> Option<u64> {
    let line = line.trim_ascii();
    let after = line.strip_prefix(b"CPU:")?;
    let at = after.windows(LOST.len()).position(|window| window == LOST)?;
    let mut fields = Cursor::blanks(after.get(at + LOST.len()..)?);
    // Old kernels do not say how many.
    Some(fields.number("").unwrap_or(1))
}

const LOST: &[u8] = b"[LOST ";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_issued_request_is_read_also_from_a_process_with_a_strange_name() {
        let line = b"     a: b [c-1234    [001] d..1.  4321.987654: block_rq_issue: 7,3 WFSM 4096 () 2048 + 8 none,0,0 [a: b [c]";
        let event = parse_trace_pipe(line).unwrap();
        assert_eq!(event.time, Nanos(4_321_987_654_000));
        assert_eq!(event.device, (7, 3));
        assert_eq!(event.op, TraceOp::Write);
        assert_eq!((event.offset, event.size), (ByteSize(1 << 20), ByteSize(4096)));
        assert_eq!(event.csv_line(Nanos(4_321_000_000_000)), "987654,7:3,W,1048576,4096,SMF\n");
    }

    #[test]
    fn a_queued_request_is_read_and_a_flush_before_it_does_not_hide_it() {
        let line = b"  dd-1 [000] .....  1.000001: block_bio_queue: 253,16 FWFS 0 + 16 [dd]";
        let event = parse_trace_pipe(line).unwrap();
        assert_eq!((event.op, event.size), (TraceOp::Write, ByteSize(8192)));
        let line = b"  dd-1 [000] .....  1.000001: block_bio_queue: 253,16 RA 1 + 1 [dd]";
        assert_eq!(parse_trace_pipe(line).unwrap().csv_line(Nanos(0)), "1000001,253:16,R,512,512,A\n");
    }

    #[test]
    fn what_moves_no_data_is_no_event() {
        for line in [
            &b"  dd-1 [000] .....  1.000001: block_rq_issue: 7,0 FF 0 () 0 + 0 none,0,0 [dd]"[..],
            b"  dd-1 [000] .....  1.000001: block_rq_issue: 7,0 N 0 () 0 + 8 none,0,0 [dd]",
            b"  dd-1 [000] .....  1.000001: block_plug: [dd]",
            b"  dd-1 [000] .....  1.000001: block_bio_queue: 7,0 W 18446744073709551615 + 8 [dd]",
            b"CPU:1 [LOST 57 EVENTS]",
            b"",
            b"\xff\xfe: block_rq_issue: ",
        ] {
            assert_eq!(parse_trace_pipe(line), None, "{}", String::from_utf8_lossy(line));
        }
    }

    #[test]
    fn lost_events_are_counted() {
        assert_eq!(lost_events(b"CPU:1 [LOST 57 EVENTS]"), Some(57));
        assert_eq!(lost_events(b"CPU:1 [LOST EVENTS]"), Some(1));
        assert_eq!(lost_events(b"  dd-1 [000] .....  1.000001: block_plug: [dd]"), None);
    }
}
