//! Lines of the kernel's block tracepoints, as `trace_pipe` gives them. The reading itself is the command line's; here are only words.
//!
//! `block_rq_issue: 7,0 WS 4096 () 2048 + 8 none,0,0 [dd]` and `block_bio_queue: 7,0 WS 2048 + 8 [dd]`
//! (include/trace/events/block.h), after `process-pid [cpu] flags seconds:`.

use umbrella_units::{ByteSize, Nanos, SECTOR_BYTES};

use super::cursor::{Cursor, decimal, whole};
use super::{TraceOp, blkparse};

/// A request that the kernel told of.
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
    // Up to the plus, whatever stands before the sector: the bytes and the command of block_rq_issue.
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
