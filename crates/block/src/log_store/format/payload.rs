//! The payload of a checkpoint: where the map pages lie, and what the segments are. From the block behind the header
//! on, as many blocks as it needs.
//!
//! ```text
//! offset  bytes
//!      0      8  for each map page: its [index entry](super::IndexEntry), or 0 if it was never written
//!    ...     24  for each segment: an entry of the segment table
//!    ...      -  zeroes up to the end of the block; no part of the payload
//!
//! entry 0     1  state: 0 free, 1 open, 2 full, 3 cleaned, 4 system, 5 next
//!       1     1  stream
//!       2     2  reserved
//!       4     4  live blocks; none in a free, system or next segment
//!       8     8  clock of its youngest block
//!      16     8  clock when it was opened
//! ```
//!
//! *Cleaned*: its live blocks were copied, but a checkpoint before this one may still need it. *Next*: a head continues
//! there; nothing is written yet. *System*: part of a checkpoint area. Open segments and next ones are exactly those of
//! the heads.

use std::fmt;

use umbrella_units::ByteSize;

use super::area::{MAP_BYTES, SEGMENT_BYTES, map_bytes};
use super::checkpoint::{CheckpointHeader, PayloadSum};
use super::checksum::Checksum;
use super::error::{Field, FormatError, Limit, Structure};
use super::ids::{MapPageNo, SegmentState, Slot};
use super::map_page::IndexEntry;
use super::raw::{FieldReader, check, out_of_range, whole};
use super::superblock::Superblock;
use super::{BLOCK_BYTES, Clock, SegmentNo, Stream};

const THIS: Structure = Structure::Payload;

/// A row of the segment table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentEntry {
    /// What it is used for.
    pub state: SegmentState,
    /// Whose it is, or was.
    pub stream: Stream,
    /// Blocks in it that are the newest of their kind.
    pub live: u32,
    /// When its youngest block was written.
    pub youngest: Clock,
    /// When it was opened.
    pub opened: Clock,
}

/// The payload of a checkpoint, checked; read where it lies.
#[derive(Debug, Clone, Copy)]
pub struct Payload<'a> {
    map: &'a [[u8; MAP_BYTES]],
    segments: &'a [[u8; SEGMENT_BYTES]],
}

/// Encodes a payload piece by piece, from the entries of the map index and the rows of the segment table.
#[derive(Debug)]
pub struct PayloadEncoder<M, S> {
    map: M,
    segments: S,
    item: [u8; SEGMENT_BYTES],
    /// Bytes of `item` that are not written yet: its last ones.
    left: usize,
    sum: PayloadSum,
}

impl SegmentState {
    fn number(self) -> u8 {
        match self {
            SegmentState::Free => 0,
            SegmentState::Open => 1,
            SegmentState::Full => 2,
            SegmentState::Cleaned => 3,
            SegmentState::System => 4,
            SegmentState::Next => 5,
        }
    }

    fn of(number: u8) -> Option<SegmentState> {
        Some(match number {
            0 => SegmentState::Free,
            1 => SegmentState::Open,
            2 => SegmentState::Full,
            3 => SegmentState::Cleaned,
            4 => SegmentState::System,
            5 => SegmentState::Next,
            _ => return None,
        })
    }

    fn holds_blocks(self) -> bool {
        match self {
            SegmentState::Open | SegmentState::Full | SegmentState::Cleaned => true,
            SegmentState::Free | SegmentState::System | SegmentState::Next => false,
        }
    }
}

impl fmt::Display for SegmentState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SegmentState::Free => "free",
            SegmentState::Open => "open",
            SegmentState::Full => "full",
            SegmentState::Cleaned => "cleaned",
            SegmentState::System => "system",
            SegmentState::Next => "next",
        })
    }
}

impl SegmentEntry {
    /// A row as stored there; `segment` says which, for the error.
    fn parse(bytes: &[u8; SEGMENT_BYTES], segment: SegmentNo) -> Result<SegmentEntry, FormatError> {
        let mut fields = FieldReader::plain(THIS, bytes);
        let state = fields.u8()?;
        let Some(state) = SegmentState::of(state) else {
            return Err(out_of_range(THIS, Field::State(segment), u64::from(state), Limit::AtMost(5)));
        };
        let stream = Stream(fields.u8()?);
        check(THIS, Field::SegmentReserved(segment), u64::from(fields.u16()?), Limit::Exactly(0))?;
        Ok(SegmentEntry {
            state,
            stream,
            live: fields.u32()?,
            youngest: Clock(fields.u64()?),
            opened: Clock(fields.u64()?),
        })
    }

    fn encode(&self) -> [u8; SEGMENT_BYTES] {
        let mut bytes = [0; SEGMENT_BYTES];
        let front = [self.state.number(), self.stream.0, 0, 0];
        let fields = front.into_iter().chain(self.live.to_le_bytes());
        let fields = fields.chain(self.youngest.0.to_le_bytes()).chain(self.opened.0.to_le_bytes());
        bytes.iter_mut().zip(fields).for_each(|(to, from)| *to = from);
        bytes
    }
}

impl<M, S> PayloadEncoder<M, S>
where
    M: Iterator<Item = Option<IndexEntry>>,
    S: Iterator<Item = SegmentEntry>,
{
    /// Of these map pages and these segments, each from 0 on.
    pub fn new(map: M, segments: S) -> PayloadEncoder<M, S> {
        let sum = PayloadSum { bytes: ByteSize(0), checksum: Checksum(0) };
        PayloadEncoder { map, segments, item: [0; SEGMENT_BYTES], left: 0, sum }
    }

    /// Puts the next bytes into a buffer of whole blocks. Returns how many, whole blocks too: less than the buffer has
    /// at the end, 0 behind it.
    pub fn fill(&mut self, buffer: &mut [u8]) -> usize {
        let size = buffer.len();
        let mut rest = &mut *buffer;
        while !rest.is_empty() && (self.left > 0 || self.next_item()) {
            let count = self.left.min(rest.len());
            let (to, behind) = rest.split_at_mut(count);
            let from = self.item.iter().skip(SEGMENT_BYTES - self.left);
            to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
            self.left -= count;
            rest = behind;
        }
        let used = size - rest.len();
        let filled = used.next_multiple_of(BLOCK_BYTES).min(size);
        rest.iter_mut().take(filled - used).for_each(|byte| *byte = 0);
        self.sum.checksum = self.sum.checksum.append(buffer.split_at(used).0);
        self.sum.bytes.0 += used as u64;
        filled
    }

    /// Length and checksum of the encoded bytes, for the header.
    pub fn sum(&self) -> PayloadSum {
        self.sum
    }

    fn next_item(&mut self) -> bool {
        if let Some(entry) = self.map.next() {
            let bytes = IndexEntry::to_bytes(entry);
            self.item.iter_mut().rev().zip(bytes.into_iter().rev()).for_each(|(to, from)| *to = from);
            self.left = MAP_BYTES;
        } else if let Some(segment) = self.segments.next() {
            self.item = segment.encode();
            self.left = SEGMENT_BYTES;
        }
        self.left > 0
    }
}

impl<'a> Payload<'a> {
    /// Reads the payload of a checkpoint; `bytes` may have more behind it.
    pub fn parse(
        bytes: &'a [u8],
        header: &CheckpointHeader,
        superblock: &Superblock,
    ) -> Result<Payload<'a>, FormatError> {
        let bytes = whole(THIS, bytes, header.payload.bytes.0)?;
        let (stored, computed) = (header.payload.checksum, Checksum::of(bytes));
        if stored != computed {
            return Err(FormatError::Checksum { structure: THIS, stored, computed });
        }
        let shape = &header.shape;
        let map = whole(THIS, bytes, map_bytes(shape))?;
        let (map, segments) = bytes.split_at_checked(map.len()).unwrap_or((map, &[]));
        let payload = Payload { map: map.as_chunks().0, segments: segments.as_chunks().0 };
        let rows = payload.segments.len() as u64;
        check(THIS, Field::Segments, rows, Limit::Exactly(u64::from(shape.segments())))?;
        payload.check_segments(header, superblock)?;
        payload.check_map(header)?;
        Ok(payload)
    }

    /// Where each map page lies, if it was ever written.
    pub fn map(&self) -> impl ExactSizeIterator<Item = Option<IndexEntry>> + use<'a> {
        self.map.iter().map(|bytes| IndexEntry::from_bytes(*bytes))
    }

    /// What each segment is.
    pub fn segments(&self) -> impl Iterator<Item = SegmentEntry> + use<'a> {
        (0..=u32::MAX)
            .map(SegmentNo)
            .zip(self.segments)
            .flat_map(|(segment, bytes)| SegmentEntry::parse(bytes, segment))
    }

    fn segment(&self, segment: SegmentNo) -> Result<SegmentEntry, FormatError> {
        let row = usize::try_from(segment.0).ok().and_then(|row| self.segments.get(row));
        let most = Limit::AtMost((self.segments.len() as u64).saturating_sub(1));
        let row = row.ok_or(out_of_range(THIS, Field::Segments, u64::from(segment.0), most))?;
        SegmentEntry::parse(row, segment)
    }

    fn check_segments(&self, header: &CheckpointHeader, superblock: &Superblock) -> Result<(), FormatError> {
        let shape = &header.shape;
        for (segment, bytes) in (0..=u32::MAX).map(SegmentNo).zip(self.segments) {
            let entry = SegmentEntry::parse(bytes, segment)?;
            let last_stream = Limit::AtMost(u64::from(shape.map_stream().0));
            check(THIS, Field::SegmentStream(segment), u64::from(entry.stream.0), last_stream)?;
            let most = if entry.state.holds_blocks() { shape.segment_blocks() } else { 0 };
            check(THIS, Field::Live(segment), u64::from(entry.live), Limit::AtMost(u64::from(most)))?;
            let state = entry.state;
            if superblock.is_system(segment) && state != SegmentState::System {
                return Err(FormatError::SegmentMismatch { segment, found: state, expected: SegmentState::System });
            }
            let has_head = match state {
                SegmentState::Open => open_slot(header, segment).is_some(),
                SegmentState::Next => header.heads.iter().any(|head| head.next == Some(segment)),
                _ => true,
            };
            if !has_head {
                return Err(FormatError::NoHead { segment, state });
            }
        }
        self.check_heads(header)
    }

    fn check_heads(&self, header: &CheckpointHeader) -> Result<(), FormatError> {
        let expect = |segment, expected| {
            let entry = self.segment(segment)?;
            match entry.state {
                state if state == expected => Ok(entry),
                found => Err(FormatError::SegmentMismatch { segment, found, expected }),
            }
        };
        for (stream, head) in header.streams() {
            if let Some(open) = head.open {
                let entry = expect(open.segment, SegmentState::Open)?;
                let (field, own) = (Field::SegmentStream(open.segment), u64::from(stream.0));
                check(THIS, field, u64::from(entry.stream.0), Limit::Exactly(own))?;
            }
            if let Some(next) = head.next {
                expect(next, SegmentState::Next)?;
            }
        }
        Ok(())
    }

    fn check_map(&self, header: &CheckpointHeader) -> Result<(), FormatError> {
        let shape = &header.shape;
        for (page, entry) in (0..).map(MapPageNo).zip(self.map()) {
            let Some(entry) = entry else { continue };
            check(THIS, Field::MapIndex(page), entry.place_plus_one(), Limit::AtLeast(1))?;
            check(THIS, Field::MapIndex(page), entry.place_plus_one(), Limit::AtMost(shape.places().0))?;
            let place = entry.place();
            let segment = shape.segment_of(place);
            let state = self.segment(segment)?.state;
            let written = match state {
                SegmentState::Open => open_slot(header, segment).is_some_and(|end| shape.slot_of(place) < end),
                state => state.holds_blocks(),
            };
            if !written {
                return Err(FormatError::NothingThere { page, place, state });
            }
        }
        Ok(())
    }
}

/// The first slot that is not written, if the segment is an open one.
fn open_slot(header: &CheckpointHeader, segment: SegmentNo) -> Option<Slot> {
    let mut open = header.heads.iter().filter_map(|head| head.open);
    open.find(|open| open.segment == segment).map(|open| open.slot)
}
