//! The store: the map, what lies where, and the cleaner.

use umbrella_policy::log_layout::{
    CleaningGoal, Clock, Full, Layout, LogBlock, LogicalMap, MapEntry, Put, ReclaimStep, SegmentNo, Settings, Shape,
    State,
};
use umbrella_units::{BlockNo, Pages};

use super::foresight::Deaths;
use super::head::Head;
use super::input::{LogInput, Request};
use super::outcome::LogOutcome;
use crate::trace::TraceOp;

/// Nothing that is live.
const NOTHING: u32 = u32::MAX;

/// The writer of a block.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BlockWriter {
    User,
    Cleaner,
}

/// What was counted.
#[derive(Debug, Clone, Copy, Default)]
struct StoreCounters {
    written: Pages,
    read: Pages,
    discarded: Pages,
    copied: Pages,
    cleaner_read: Pages,
    cleaned: u64,
}

/// The log can never admit a write again; it cannot be, while the data are not more than was promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stuck;

pub(super) struct Store<'a> {
    shape: Shape,
    layout: Layout,
    map: LogicalMap,
    /// The block that lies at each place.
    owners: Vec<u32>,
    /// Blocks of the user in each stream's open segment.
    of_user: Vec<u32>,
    deaths: Option<&'a Deaths>,
    /// When the current version of each block dies; only where the future is known.
    death_of: Vec<Option<Clock>>,
    live: Pages,
    counters: StoreCounters,
    foreground: Head,
    all: Head,
}

impl<'a> Store<'a> {
    /// An empty one.
    pub(super) fn new(settings: Settings, blocks: Pages, deaths: Option<&'a Deaths>) -> Store<'a> {
        let shape = settings.shape;
        let streams = usize::from(settings.scheme.streams());
        Store {
            shape,
            layout: Layout::new(settings, |_| false),
            map: LogicalMap::new(blocks.0),
            owners: vec![NOTHING; shape.blocks() as usize],
            of_user: vec![0; streams],
            deaths,
            death_of: if deaths.is_some() { vec![None; blocks.0 as usize] } else { Vec::new() },
            live: Pages(0),
            counters: StoreCounters::default(),
            foreground: Head::default(),
            all: Head::default(),
        }
    }

    /// Writes the data once and forgets what it took.
    pub(super) fn fill(&mut self, data: impl Iterator<Item = BlockNo>) -> Result<(), Stuck> {
        for block in data {
            self.write(block)?;
        }
        self.counters = StoreCounters::default();
        self.foreground.reset();
        self.all.reset();
        Ok(())
    }

    /// Blocks that the user has written since the first writing.
    pub(super) fn written(&self) -> Pages {
        self.counters.written
    }

    pub(super) fn serve(&mut self, request: &Request) -> Result<(), Stuck> {
        match request.op {
            TraceOp::Read => self.read(request),
            TraceOp::Write => LogInput::blocks_of(request).try_for_each(|block| self.write(block))?,
            TraceOp::Discard => LogInput::blocks_of(request).for_each(|block| self.discard(block)),
        }
        Ok(())
    }

    /// Where a block lies; the whole map is in memory.
    fn entry(&mut self, block: BlockNo) -> Option<MapEntry> {
        self.map.get(block).ok().flatten()
    }

    fn enter(&mut self, block: BlockNo, entry: Option<MapEntry>) -> Option<MapEntry> {
        self.map.set(block, entry).ok().flatten()
    }

    fn write(&mut self, block: BlockNo) -> Result<(), Stuck> {
        let death = self.deaths.and_then(|deaths| deaths.overwritten_at(self.layout.clock()));
        if let Some(known) = self.death_of.get_mut(block.0 as usize) {
            *known = death;
        }
        let put = loop {
            let old = self.entry(block);
            match self.layout.write(old, death) {
                Ok(put) => break put,
                Err(Full) => self.reclaim_once().then_some(()).ok_or(Stuck)?,
            }
        };
        let stamp = self.layout.stamps().stamp(self.layout.clock());
        let old = self.enter(block, Some(MapEntry { place: put.place, stamp }));
        match old {
            Some(old) => self.owners[old.place.0 as usize] = NOTHING,
            None => self.live.0 += 1,
        }
        self.counters.written.0 += 1;
        if self.placed(put, block, BlockWriter::User) {
            self.keep_room();
        }
        Ok(())
    }

    fn discard(&mut self, block: BlockNo) {
        let Some(old) = self.enter(block, None) else { return };
        self.owners[old.place.0 as usize] = NOTHING;
        self.layout.forget(old.place);
        self.live.0 -= 1;
        self.counters.discarded.0 += 1;
    }

    fn read(&mut self, request: &Request) {
        self.counters.read.0 += request.extent.blocks;
        let mut run: Option<(LogBlock, Pages)> = None;
        for block in LogInput::blocks_of(request) {
            let Some(place) = self.entry(block).map(|entry| entry.place) else { continue };
            let segment = self.layout.table()[self.shape.segment(place).0 as usize];
            if segment.state == State::Open {
                continue;
            }
            match &mut run {
                Some((start, blocks)) if start.0 + blocks.0 == place.0 => blocks.0 += 1,
                _ => {
                    if let Some((start, blocks)) = run.replace((place, Pages(1))) {
                        self.request(start, blocks, BlockWriter::User);
                    }
                }
            }
        }
        if let Some((start, blocks)) = run {
            self.request(start, blocks, BlockWriter::User);
        }
    }

    /// The disk serves a request, for the user or for the cleaner.
    fn request(&mut self, start: LogBlock, blocks: Pages, of: BlockWriter) {
        if of == BlockWriter::User {
            self.foreground.serve(start, blocks);
        }
        self.all.serve(start, blocks);
    }

    /// Enters what lies there now. Whether a segment is full with it.
    fn placed(&mut self, put: Put, block: BlockNo, writer: BlockWriter) -> bool {
        self.owners[put.place.0 as usize] = block.0 as u32;
        let of_user = &mut self.of_user[usize::from(put.stream.0)];
        *of_user += u32::from(writer == BlockWriter::User);
        if !put.full {
            return false;
        }
        let most = std::mem::take(of_user) * 2 > self.shape.segment_blocks;
        let start = self.shape.place(self.shape.segment(put.place), 0);
        let whole = Pages(self.shape.segment_blocks.into());
        self.request(start, whole, if most { BlockWriter::User } else { BlockWriter::Cleaner });
        if let Some(closed) = self.layout.seal(put.stream).closed {
            self.layout.settled(closed);
        }
        true
    }

    /// All is durable at once: what was cleaned is free.
    fn checkpoint(&mut self) {
        let mark = self.layout.checkpoint();
        self.layout.checkpointed(mark);
    }

    /// What is done once a segment.
    fn keep_room(&mut self) {
        self.checkpoint();
        while self.layout.due() && self.reclaim_once() {}
    }

    /// Does what the layout asks for; whether it asked for something.
    fn reclaim_once(&mut self) -> bool {
        match self.layout.reclaim_step(CleaningGoal::Due) {
            ReclaimStep::None => return false,
            ReclaimStep::Clean(victim) => self.clean(victim),
            ReclaimStep::Sync | ReclaimStep::Checkpoint => {}
        }
        self.checkpoint();
        true
    }

    /// Moves what is live out of a segment.
    fn clean(&mut self, victim: SegmentNo) {
        let whole = Pages(self.shape.segment_blocks.into());
        self.counters.cleaned += 1;
        self.counters.cleaner_read.0 += whole.0;
        self.request(self.shape.place(victim, 0), whole, BlockWriter::Cleaner);
        for slot in 0..self.shape.segment_blocks {
            let from = self.shape.place(victim, slot);
            let owner = self.owners[from.0 as usize];
            if owner == NOTHING {
                continue;
            }
            let block = BlockNo(owner.into());
            let Some(old) = self.entry(block) else { continue };
            let death = self.death_of.get(owner as usize).copied().flatten();
            // What finds no room stays where it is, and the segment is no victim that gains anything any more.
            let Ok(put) = self.layout.copy(old, death) else { return };
            self.enter(block, Some(MapEntry { place: put.place, ..old }));
            self.owners[from.0 as usize] = NOTHING;
            self.counters.copied.0 += 1;
            self.placed(put, block, BlockWriter::Cleaner);
        }
    }

    /// What came of it so far.
    pub(super) fn outcome(&self) -> LogOutcome {
        let StoreCounters { written, read, discarded, copied, cleaner_read, cleaned } = self.counters;
        LogOutcome {
            segments: self.shape.segments,
            segment_blocks: self.shape.segment_blocks,
            blocks: Pages(self.map.blocks()),
            written,
            read,
            discarded,
            copied,
            cleaner_read,
            cleaned,
            write_amplification: (written.0 + copied.0) as f64 / (written.0.max(1)) as f64,
            foreground: self.foreground.travel(),
            all: self.all.travel(),
            live_share: self.live.0 as f64 / self.shape.blocks() as f64,
            ..LogOutcome::default()
        }
    }
}
