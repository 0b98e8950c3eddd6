//! The log's account: which stream, segment and slot every block goes to, and what each segment still holds.
//!
//! The caller keeps the logical map, moves the data, and says what has become durable. The rules that make a crash
//! harmless are here:
//!
//! 1. A segment is written from its first slot to its last, by one stream, in chunks; it is not written again until it
//!    has been free.
//! 2. A segment with nothing live is *cleaned*. It becomes free when the data that replaced its blocks is durable
//!    ([`Layout::synced`]). If the log since the last checkpoint passes through it, recovery would read it; then it
//!    becomes free only by the next checkpoint ([`Layout::checkpointed`]).
//! 3. The last chunk of a segment names the segment in which its stream continues, so that recovery can follow every
//!    stream from the checkpoint. A stream that had none to name continues only after a checkpoint that knows where.
//! 4. The user's writes stop at the reserve; the cleaner and the map may use it.

use umbrella_units::Pages;

use super::free::{FreeSegments, Geography};
use super::ids::{Clock, LogBlock, SegmentNo, Shape, Stamps, Stream};
use super::map::MapEntry;
use super::room::Room;
use super::scheme::{Copied, Reclaimed, ReplacedVersion, Scheme, Written};
use super::table::{Segment, State};
use super::victim::Victim;

/// How a log is laid out.
#[derive(Debug)]
pub struct Settings {
    /// How large it is.
    pub shape: Shape,
    /// Where blocks go.
    pub scheme: Box<dyn Scheme>,
    /// Which segment is cleaned.
    pub victim: Victim,
    /// Blocks of a chunk with its header; nothing for a log without headers, where a chunk is a segment.
    pub chunk: Option<u32>,
    /// Whether the map lies in the log, in a stream of its own.
    pub map: bool,
    /// Cleaning is due when fewer segments are free than this many above the reserve.
    pub low: u32,
    /// Cleaning is worthwhile, when there is time, as long as fewer are free than this many above the reserve.
    pub high: u32,
}

/// Where a block goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Put {
    /// Its place.
    pub place: LogBlock,
    /// The stream.
    pub stream: Stream,
    /// Whether the chunk is full with it and has to be sealed.
    pub full: bool,
}

/// There is no room now: clean, or make a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;

/// The position of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Head {
    /// The open segment and the next slot in it; nothing while the stream waits for a checkpoint.
    pub open: Option<(SegmentNo, u32)>,
    /// The segment after it.
    pub next: Option<SegmentNo>,
}

/// A chunk that is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sealed {
    /// The segment after this one, for its header.
    pub next: Option<SegmentNo>,
    /// The segment that ended with it: tell [`Layout::settled`] when it is written.
    pub closed: Option<SegmentNo>,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Growing {
    pub(super) head: Head,
    /// Where the chunk that is being filled starts.
    pub(super) chunk: Option<u32>,
    /// Opened by a checkpoint that is not durable yet.
    pub(super) held: bool,
}

/// The account.
#[derive(Debug)]
pub struct Layout {
    pub(super) shape: Shape,
    pub(super) scheme: Box<dyn Scheme>,
    pub(super) choice: Victim,
    pub(super) chunk: Option<u32>,
    pub(super) has_map: bool,
    pub(super) low: u32,
    pub(super) high: u32,
    pub(super) reserve: u32,
    pub(super) usable: u32,
    /// Segments that a checkpoint may need for the map.
    pub(super) map_room: u32,
    pub(super) stamps: Stamps,
    pub(super) clock: Clock,
    pub(super) table: Vec<Segment>,
    /// Blocks that are current, in all segments.
    pub(super) live: u64,
    pub(super) free: FreeSegments,
    pub(super) growing: Vec<Growing>,
    /// Segments that each stream holds.
    pub(super) held: Vec<u32>,
    /// Cleaned segments, oldest first, with their number in order of cleaning.
    pub(super) cleaned: Vec<(u64, SegmentNo)>,
    pub(super) cleanings: u64,
    /// Segments that wait for a checkpoint to write their map pages elsewhere.
    pub(super) retiring: u32,
    /// Full segments that the log since the last checkpoint passes through.
    pub(super) fresh: Vec<SegmentNo>,
    /// Segments among them that the checkpoint under way covers.
    pub(super) covered: Vec<SegmentNo>,
}

impl Layout {
    /// An empty log. `system` segments are not part of it.
    pub fn new(settings: Settings, system: impl Fn(SegmentNo) -> bool) -> Layout {
        let table = (0..settings.shape.segments).map(|number| {
            let state = if system(SegmentNo(number)) { State::System } else { State::Free };
            Segment { state, ..Segment::FREE }
        });
        let streams = usize::from(settings.scheme.streams()) + usize::from(settings.map);
        let mut layout = Layout::restore(settings, table.collect(), &vec![Head::default(); streams], Clock(0));
        layout.open_heads(false);
        layout
    }

    /// A log as a checkpoint describes it. The caller has checked that table and heads agree.
    pub fn restore(mut settings: Settings, table: Vec<Segment>, heads: &[Head], clock: Clock) -> Layout {
        settings.scheme.laid_out(settings.shape);
        let streams = settings.scheme.streams();
        let all = usize::from(streams) + usize::from(settings.map);
        let system = table.iter().filter(|segment| segment.state == State::System).count() as u32;
        let room = Room { shape: settings.shape, system, streams: all as u8, chunk: settings.chunk, map: settings.map };
        let mut layout = Layout {
            shape: settings.shape,
            choice: settings.victim,
            chunk: settings.chunk,
            has_map: settings.map,
            low: settings.low,
            high: settings.high.max(settings.low),
            reserve: room.reserve(),
            usable: room.usable(),
            map_room: room.map_segments(),
            stamps: if settings.map {
                Stamps::of_segments(settings.shape.segment_blocks)
            } else {
                Stamps::of(settings.shape)
            },
            clock,
            live: table.iter().map(|segment| u64::from(segment.live)).sum(),
            table,
            free: FreeSegments::new(settings.scheme.geography(), settings.shape, streams, all),
            growing: heads.iter().map(|head| Growing { head: *head, ..Growing::default() }).collect(),
            held: vec![0; all],
            cleaned: Vec::new(),
            cleanings: 0,
            retiring: 0,
            fresh: Vec::new(),
            covered: Vec::new(),
            scheme: settings.scheme,
        };
        layout.growing.resize(all, Growing::default());
        layout.close_full_heads();
        for number in 0..layout.shape.segments {
            let segment = &mut layout.table[number as usize];
            // It was closed with nothing live in it just when the checkpoint was made.
            if segment.state == State::Full && segment.live == 0 {
                segment.state = State::Cleaned;
            }
            match segment.state {
                State::Free => layout.free.add(SegmentNo(number)),
                State::Cleaned => layout.add_cleaned(SegmentNo(number)),
                State::System => {}
                State::Open | State::Next | State::Closing | State::Full | State::Retiring => {
                    let stream = segment.stream;
                    layout.hold(stream, true);
                }
            }
        }
        layout
    }

    /// Slots that the smallest chunk takes.
    pub(super) fn least(&self) -> u32 {
        if self.chunk.is_some() { 2 } else { 1 }
    }

    /// How large the log is.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Blocks that the user has written.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// How stamps and clocks relate.
    pub fn stamps(&self) -> Stamps {
        self.stamps
    }

    /// All segments.
    pub fn table(&self) -> &[Segment] {
        &self.table
    }

    /// When the oldest segment that holds anything was opened, except this one.
    ///
    /// Cost: O(segments).
    pub fn oldest_except(&self, number: SegmentNo) -> Option<Clock> {
        let in_use = |segment: &Segment| !matches!(segment.state, State::Free | State::Next | State::System);
        let others = (0..).map(SegmentNo).zip(&self.table).filter(|(other, _)| *other != number);
        others.map(|(_, segment)| segment).filter(|segment| in_use(segment)).map(|segment| segment.opened).min()
    }

    /// The streams, that of the map last.
    pub fn heads(&self) -> impl Iterator<Item = Head> {
        self.growing.iter().map(|growing| growing.head)
    }

    /// How many segments are free, of them those that only the cleaner may use.
    pub fn free(&self) -> (u32, u32) {
        (self.free.len(), self.reserve)
    }

    /// The region a segment lies in: 0 at the edges of the disk. Always 0 where there are no regions.
    pub fn region(&self, segment: SegmentNo) -> usize {
        self.free.region(segment)
    }

    /// How many regions there are.
    pub fn regions(&self) -> usize {
        self.free.regions()
    }

    /// The stream of the map, if the map lies in the log.
    fn map_stream(&self) -> Option<Stream> {
        let streams = self.scheme.streams();
        (self.growing.len() > usize::from(streams)).then_some(Stream(streams))
    }

    /// Whether a write of the user would find room. Cleaning gives room, and so may a checkpoint.
    pub fn admits(&self) -> bool {
        self.free.len() > self.reserve
    }

    /// A place for a block that the user writes over `old`; the old place is forgotten. Enter `place` and the stamp of
    /// [`Layout::clock`] in the map.
    ///
    /// Cost: O(1), and O(log segments) once a segment.
    pub fn write(&mut self, old: Option<MapEntry>, death: Option<Clock>) -> Result<Put, Full> {
        if !self.admits() {
            return Err(Full);
        }
        let earlier = old.map(|entry| ReplacedVersion {
            stream: self.table[self.shape.segment(entry.place).0 as usize].stream,
            written: self.stamps.clock(entry.stamp, self.clock),
        });
        let stream = self.scheme.written(&Written { now: self.clock, old: earlier, death });
        let put = self.append(stream)?;
        self.clock.0 += 1;
        self.enter(put.place, self.clock);
        if let Some(old) = old {
            self.forget(old.place);
        }
        Ok(put)
    }

    /// A place for a live block that is moved; the old place is forgotten. The stamp stays.
    ///
    /// When the stream it belongs to has no room, any other that has takes it.
    pub fn copy(&mut self, old: MapEntry, death: Option<Clock>) -> Result<Put, Full> {
        let from = self.table[self.shape.segment(old.place).0 as usize].stream;
        let written = self.stamps.clock(old.stamp, self.clock);
        let stream = self.scheme.copied(&Copied { now: self.clock, from, written, death });
        let put = self.append(stream).or_else(|Full| self.append_anywhere(stream))?;
        self.enter(put.place, written);
        self.forget(old.place);
        Ok(put)
    }

    /// A place for a page of the map, for the next checkpoint; the old place is forgotten.
    pub fn write_map(&mut self, old: Option<LogBlock>) -> Result<Put, Full> {
        let stream = self.map_stream().unwrap_or(Stream(0));
        let put = self.append(stream).or_else(|Full| self.append_anywhere(stream))?;
        self.enter(put.place, self.clock);
        if let Some(old) = old {
            self.forget_page(old);
        }
        Ok(put)
    }

    fn append_anywhere(&mut self, wanted: Stream) -> Result<Put, Full> {
        let mut streams: Vec<u8> = (0..self.growing.len() as u8).collect();
        streams.sort_unstable_by_key(|stream| stream.abs_diff(wanted.0));
        streams.into_iter().find_map(|stream| self.append(Stream(stream)).ok()).ok_or(Full)
    }

    fn append(&mut self, stream: Stream) -> Result<Put, Full> {
        let growing = &mut self.growing[usize::from(stream.0)];
        let Some((segment, slot)) = growing.head.open.filter(|_| !growing.held) else { return Err(Full) };
        let start = *growing.chunk.get_or_insert(slot);
        let slot = if self.chunk.is_some() && start == slot { slot + 1 } else { slot };
        let end = slot + 1;
        growing.head.open = Some((segment, end));
        let full = end == self.shape.segment_blocks || self.chunk.is_some_and(|chunk| end - start == chunk);
        Ok(Put { place: self.shape.place(segment, slot), stream, full })
    }

    /// How many blocks are current.
    pub fn live(&self) -> Pages {
        Pages(self.live)
    }

    /// The first stream that can be written to now.
    pub fn ready(&self) -> Option<Stream> {
        let ready = self.growing.iter().position(|growing| growing.head.open.is_some() && !growing.held)?;
        Some(Stream(ready as u8))
    }

    /// Opens a chunk that holds no data yet, for a header that only says what is not mapped any more.
    pub fn open_chunk(&mut self, stream: Stream) -> Result<(), Full> {
        let growing = &mut self.growing[usize::from(stream.0)];
        let Some((segment, slot)) = growing.head.open.filter(|_| !growing.held) else { return Err(Full) };
        if growing.chunk.is_none() && self.chunk.is_some() {
            growing.chunk = Some(slot);
            growing.head.open = Some((segment, slot + 1));
        }
        Ok(())
    }

    pub(super) fn enter(&mut self, place: LogBlock, written: Clock) {
        let segment = &mut self.table[self.shape.segment(place).0 as usize];
        segment.live += 1;
        self.live += 1;
        segment.youngest = segment.youngest.max(written);
    }

    /// A page of the map at this place is not needed any more once there is a new checkpoint: recovery does not look
    /// for its successor in the log.
    pub fn forget_page(&mut self, place: LogBlock) {
        let number = self.shape.segment(place);
        let segment = &mut self.table[number.0 as usize];
        if matches!(segment.state, State::Full | State::Retiring) && !segment.fresh {
            segment.fresh = true;
            self.fresh.push(number);
        }
        self.forget(place);
    }

    /// Marks a segment that holds only live pages of the map. The caller has the next checkpoint write these pages.
    pub fn retire(&mut self, number: SegmentNo) {
        let segment = &mut self.table[number.0 as usize];
        if segment.state != State::Full {
            return;
        }
        if segment.live == 0 {
            self.reclaim(number);
        } else {
            segment.state = State::Retiring;
            self.retiring += 1;
        }
    }

    /// A block at this place is not needed any more.
    pub fn forget(&mut self, place: LogBlock) {
        let number = self.shape.segment(place);
        let segment = &mut self.table[number.0 as usize];
        if segment.live > 0 {
            segment.live -= 1;
            self.live -= 1;
        }
        if segment.live == 0 && matches!(segment.state, State::Full | State::Retiring) {
            self.reclaim(number);
        }
    }

    /// Ends the chunk that a stream is filling, full or not.
    pub fn seal(&mut self, stream: Stream) -> Sealed {
        let least = self.least();
        let growing = &mut self.growing[usize::from(stream.0)];
        growing.chunk = None;
        let next = growing.head.next;
        let closed =
            growing.head.open.filter(|(_, slot)| self.shape.segment_blocks - slot < least).map(|(segment, _)| segment);
        if let Some(segment) = closed {
            self.table[segment.0 as usize].state = State::Closing;
            self.fresh.push(segment);
            self.advance(stream);
        }
        Sealed { next, closed }
    }

    fn advance(&mut self, stream: Stream) {
        let next = self.growing[usize::from(stream.0)].head.next;
        self.growing[usize::from(stream.0)].head = Head { open: next.map(|segment| (segment, 0)), next: None };
        if let Some(segment) = next {
            let clock = self.clock;
            let segment = &mut self.table[segment.0 as usize];
            segment.state = State::Open;
            segment.opened = clock;
        }
        if next.is_some() {
            self.choose_next(stream);
        }
    }

    pub(super) fn choose_next(&mut self, stream: Stream) {
        self.growing[usize::from(stream.0)].head.next = self.take(stream, State::Next);
    }

    fn take(&mut self, stream: Stream, state: State) -> Option<SegmentNo> {
        let hotter = self.held.iter().skip(usize::from(stream.0) + 1).sum();
        let own = self.held.get(usize::from(stream.0)).copied().unwrap_or(0);
        let number = self.free.pick(stream, hotter, own)?;
        self.table[number.0 as usize] = Segment { state, stream, opened: self.clock, fresh: true, ..Segment::FREE };
        self.hold(stream, true);
        Some(number)
    }

    pub(super) fn hold(&mut self, stream: Stream, held: bool) {
        if let Some(count) = self.held.get_mut(usize::from(stream.0)) {
            *count = if held { *count + 1 } else { count.saturating_sub(1) };
        }
    }

    /// Gives segments to the streams that have none; those opened by a checkpoint that is not durable yet wait for it.
    pub(super) fn open_heads(&mut self, wait: bool) {
        for stream in (0..self.growing.len() as u8).map(Stream) {
            if self.growing[usize::from(stream.0)].head.open.is_some() {
                continue;
            }
            if let Some(segment) = self.take(stream, State::Open) {
                let growing = &mut self.growing[usize::from(stream.0)];
                growing.head.open = Some((segment, 0));
                growing.held = wait;
            }
        }
        self.choose_nexts();
    }

    /// Every stream that has an open segment gets a next one, if there is one: its open segment will have another
    /// chunk.
    pub(super) fn choose_nexts(&mut self) {
        for stream in (0..self.growing.len() as u8).map(Stream) {
            let head = self.growing[usize::from(stream.0)].head;
            if head.open.is_some() && head.next.is_none() {
                self.choose_next(stream);
            }
        }
    }

    /// All blocks of a closed segment are written out.
    pub fn settled(&mut self, number: SegmentNo) {
        let segment = &mut self.table[number.0 as usize];
        if segment.state == State::Closing {
            segment.state = State::Full;
            if segment.live == 0 {
                self.reclaim(number);
            }
        }
    }

    /// A full segment that cannot be read whole: it keeps what is in it, and is not cleaned.
    pub fn set_aside(&mut self, number: SegmentNo) {
        if let Some(segment) = self.table.get_mut(number.0 as usize)
            && segment.state == State::Full
        {
            segment.state = State::Closing;
        }
    }

    pub(super) fn reclaim(&mut self, number: SegmentNo) {
        let segment = &mut self.table[number.0 as usize];
        self.retiring -= u32::from(segment.state == State::Retiring);
        segment.state = State::Cleaned;
        let (stream, opened) = (segment.stream, segment.opened);
        self.hold(stream, false);
        if stream.0 < self.scheme.streams() {
            self.scheme.reclaimed(&Reclaimed { stream, opened, now: self.clock });
        }
        self.add_cleaned(number);
    }

    fn add_cleaned(&mut self, number: SegmentNo) {
        self.cleaned.push((self.cleanings, number));
        self.cleanings += 1;
    }

    /// Whether the streams lie in regions.
    pub(super) fn has_regions(&self) -> bool {
        self.free.geography() == Geography::Regions && self.free.regions() > 1
    }
}
