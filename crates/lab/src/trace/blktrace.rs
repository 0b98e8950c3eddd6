//! The binary files of blktrace: events of 48 bytes in the byte order of the machine that recorded them, each with data
//! behind it (linux/blktrace_api.h, versions 7 and 8). Read only.
//!
//! As in blkparse's text, one kind of event counts, and what moves no data of the file system is skipped.

use super::devices::Devices;
use super::parse::{Event, Parse, record, sectors};
use super::problem::{Excerpt, Problem};
use super::{Record, TraceOp};

/// Bytes of an event without its data.
pub(super) const EVENT_BYTES: usize = 48;

/// The magic number without the version in its lowest byte.
const MAGIC: u32 = 0x6561_7400;

/// Versions so far are 7 and 8; a letter there would be text.
const VERSIONS: std::ops::RangeInclusive<u32> = 1..=31;

/// Categories, in the upper half of the action.
const WRITE: u32 = 1 << 1;
/// A command that passes the file system by.
const COMMAND: u32 = 1 << 9;
const NOTE: u32 = 1 << 10;
const DISCARD: u32 = 1 << 13;

/// An event, as far as it counts here.
#[derive(Debug, Clone, Copy)]
pub(super) struct TraceEvent {
    /// Nanoseconds since some moment.
    pub(super) time: u64,
    sector: u64,
    bytes: u32,
    action: u32,
    device: u32,
    /// Bytes of it, with its data.
    pub(super) length: usize,
}

/// The event that bytes begin with, if they do.
pub(super) fn event(bytes: &[u8]) -> Option<TraceEvent> {
    let bytes = bytes.first_chunk::<EVENT_BYTES>()?;
    let first = *bytes.first_chunk::<4>()?;
    let is_magic = |magic: u32| magic & !0xff == MAGIC && VERSIONS.contains(&(magic & 0xff));
    let little = is_magic(u32::from_le_bytes(first));
    if !little && !is_magic(u32::from_be_bytes(first)) {
        return None;
    }
    let word = |at: usize| {
        let word = *bytes.get(at..)?.first_chunk()?;
        Some(if little { u32::from_le_bytes(word) } else { u32::from_be_bytes(word) })
    };
    let long = |at: usize| {
        let long = *bytes.get(at..)?.first_chunk()?;
        Some(if little { u64::from_le_bytes(long) } else { u64::from_be_bytes(long) })
    };
    let data = *bytes.last_chunk()?;
    let data = if little { u16::from_le_bytes(data) } else { u16::from_be_bytes(data) };
    Some(TraceEvent {
        time: long(8)?,
        sector: long(16)?,
        bytes: word(24)?,
        action: word(28)?,
        device: word(36)?,
        length: EVENT_BYTES + usize::from(data),
    })
}

/// Whether a trace that begins so is one.
pub(super) fn looks_like(head: &[u8]) -> bool {
    event(head).is_some()
}

/// The bytes of an event that begins so.
pub(super) fn record_bytes(prefix: &[u8]) -> Option<usize> {
    event(prefix).map(|event| event.length)
}

impl TraceEvent {
    /// What happened, if it happened to a request's data.
    fn kind(&self) -> Option<Event> {
        let category = self.action >> 16;
        if category & (NOTE | COMMAND) != 0 || self.bytes == 0 {
            return None;
        }
        match self.action & 0xffff {
            1 => Some(Event::Queue),
            7 => Some(Event::Issue),
            8 => Some(Event::Complete),
            12 => Some(Event::Insert),
            _ => None,
        }
    }

    fn op(&self) -> TraceOp {
        let category = self.action >> 16;
        if category & DISCARD != 0 {
            TraceOp::Discard
        } else if category & WRITE != 0 {
            TraceOp::Write
        } else {
            TraceOp::Read
        }
    }
}

/// Reads it.
#[derive(Debug)]
pub(super) struct BlktraceParser {
    event: Event,
}

impl BlktraceParser {
    pub(super) fn new(chosen: Event, head: &[u8]) -> Self {
        let has = |wanted: &Event| {
            let mut rest = head;
            while let Some(event) = event(rest) {
                if event.kind() == Some(*wanted) {
                    return true;
                }
                rest = rest.get(event.length..).unwrap_or_default();
            }
            false
        };
        let auto = || Event::BY_PREFERENCE.into_iter().find(has).unwrap_or(Event::Queue);
        Self { event: if chosen == Event::Auto { auto() } else { chosen } }
    }
}

impl Parse for BlktraceParser {
    fn event(&self) -> Option<Event> {
        Some(self.event)
    }

    fn parse(&mut self, unit: &[u8], devices: &mut Devices) -> Result<Option<Record>, Problem> {
        let Some(event) = event(unit) else {
            let found = Excerpt::new(unit);
            return Err(Problem::Unexpected { field: "the magic number", found, expected: "0x656174 and a version" });
        };
        if event.kind() != Some(self.event) {
            return Ok(None);
        }
        let (major, minor) = (event.device >> 20, event.device & 0xf_ffff);
        let device = devices.number(format!("{major},{minor}").as_bytes())?;
        let offset = sectors(event.sector, "the sector")?;
        record(event.time, device, event.op(), offset, u64::from(event.bytes)).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_magic_number_is_known_in_both_byte_orders_and_no_text_has_it() {
        let with = |magic: &[u8]| [magic, &[0; EVENT_BYTES]].concat();
        for binary in [&b"\x07tae"[..], b"eat\x07", b"\x08tae"] {
            assert!(looks_like(&with(binary)), "{binary:?}");
        }
        for other in [&b""[..], b"\x07ta", b"eat this", b"eat\0", b"tae\x07", b"0,0,W,0,512,\n"] {
            assert!(!looks_like(&with(other)), "{other:?}");
        }
        assert!(!looks_like(b"\x07tae"), "an event has 48 bytes");
    }
}
