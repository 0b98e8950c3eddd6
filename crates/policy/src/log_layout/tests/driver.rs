//! A store without contents: it keeps the map, cleans, checkpoints, and watches that nothing that a crash could bring
//! back is overwritten.

use std::collections::{BTreeMap, BTreeSet};

use umbrella_units::BlockNo;

use super::super::*;

/// What lies at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Owner {
    Block(BlockNo),
    Page(MapPage),
}

pub(super) struct Driver {
    pub(super) layout: Layout,
    pub(super) map: LogicalMap,
    pub(super) owners: Vec<Option<Owner>>,
    pub(super) pages: BTreeMap<MapPage, LogBlock>,
    /// Where everything lies that a crash now would bring back.
    durable: BTreeMap<Owner, LogBlock>,
    /// Segments that recovery would walk through.
    chain: BTreeSet<SegmentNo>,
    has_map: bool,
    pub(super) copied: u64,
    pub(super) cleaned: u64,
}

pub(super) fn settings(shape: Shape, scheme: &str, victim: Victim, live: bool) -> Settings {
    let scheme = SchemeInfo::make(&scheme.parse().unwrap()).unwrap();
    let chunk = live.then_some((shape.segment_blocks / 2).max(3));
    Settings { shape, scheme, victim, chunk, map: live, low: 2, high: 6 }
}

pub(super) fn room(settings: &Settings) -> Room {
    let streams = settings.scheme.streams() + u8::from(settings.map);
    Room { shape: settings.shape, system: 0, streams, chunk: settings.chunk, map: settings.map }
}

impl Driver {
    pub(super) fn new(settings: Settings, blocks: u64) -> Driver {
        let has_map = settings.map;
        let owners = vec![None; settings.shape.blocks() as usize];
        let mut driver = Driver {
            layout: Layout::new(settings, |_| false),
            map: LogicalMap::new(blocks),
            owners,
            pages: BTreeMap::new(),
            durable: BTreeMap::new(),
            chain: BTreeSet::new(),
            has_map,
            copied: 0,
            cleaned: 0,
        };
        driver.chain = driver.on_heads();
        driver
    }

    fn on_heads(&self) -> BTreeSet<SegmentNo> {
        self.layout
            .heads()
            .flat_map(|head| head.open.map(|(segment, _)| segment).into_iter().chain(head.next))
            .collect()
    }

    /// Where everything lies now.
    fn current(&self) -> BTreeMap<Owner, LogBlock> {
        let all = (0..).map(LogBlock).zip(&self.owners);
        all.filter_map(|(place, owner)| owner.map(|owner| (owner, place))).collect()
    }

    fn placed(&mut self, put: Put, owner: Owner, old: Option<LogBlock>) {
        let shape = self.layout.shape();
        let segment = shape.segment(put.place);
        assert_eq!(self.owners[put.place.0 as usize], None, "{put:?} is in use");
        self.chain.insert(segment);
        if shape.slot(put.place) == u32::from(self.has_map) {
            let lost = self.durable.iter().find(|(_, place)| shape.segment(**place) == segment);
            assert_eq!(lost, None, "segment {segment:?} is written although a crash would bring back what lies in it");
        }
        if let Some(old) = old {
            assert_eq!(self.owners[old.0 as usize].take(), Some(owner));
        }
        self.owners[put.place.0 as usize] = Some(owner);
        if put.full {
            self.seal(put.stream);
        }
    }

    fn seal(&mut self, stream: Stream) {
        if let Some(closed) = self.layout.seal(stream).closed {
            self.layout.settled(closed);
        }
    }

    /// Everything appended is made durable; recovery takes pages of the map from the last checkpoint all the same.
    pub(super) fn sync(&mut self) {
        let mark = self.layout.mark();
        for stream in 0..self.layout.heads().count() as u8 {
            let started = self.layout.heads().nth(usize::from(stream)).and_then(|head| head.open);
            if started.is_some_and(|(_, slot)| slot > 0) {
                self.seal(Stream(stream));
            }
        }
        let pages: Vec<_> =
            self.durable.iter().filter(|(owner, _)| matches!(owner, Owner::Page(_))).map(|(o, p)| (*o, *p)).collect();
        self.durable = self.current();
        self.durable.retain(|owner, _| matches!(owner, Owner::Block(_)));
        self.durable.extend(pages);
        self.layout.synced(mark);
    }

    pub(super) fn checkpoint(&mut self) {
        if self.has_map {
            for page in self.map.take_dirty() {
                let old = self.pages.get(&page).copied();
                if self.map.entries(page).is_none() {
                    self.map.drop_empty(page);
                    if let Some(old) = self.pages.remove(&page) {
                        self.layout.forget_page(old);
                        self.owners[old.0 as usize] = None;
                    }
                    continue;
                }
                let put = self.layout.write_map(old).expect("a checkpoint finds room for the map");
                self.placed(put, Owner::Page(page), old);
                self.pages.insert(page, put.place);
            }
        }
        self.sync();
        let mark = self.layout.checkpoint();
        self.durable = self.current();
        self.layout.checkpointed(mark);
        self.chain = self.on_heads();
    }

    /// Does what the layout asks for; whether it asked for something.
    pub(super) fn reclaim_once(&mut self, goal: CleaningGoal) -> bool {
        match self.layout.reclaim_step(goal) {
            ReclaimStep::None => return false,
            ReclaimStep::Clean(victim) => self.clean(victim),
            ReclaimStep::Sync => self.sync(),
            ReclaimStep::Checkpoint => self.checkpoint(),
        }
        true
    }

    /// Moves what is live out of a segment.
    pub(super) fn clean(&mut self, victim: SegmentNo) {
        let shape = self.layout.shape();
        self.cleaned += 1;
        for slot in 0..shape.segment_blocks {
            let from = shape.place(victim, slot);
            match self.owners[from.0 as usize] {
                None => {}
                Some(Owner::Block(block)) => {
                    let old = self.map.get(block).unwrap().unwrap();
                    assert_eq!(old.place, from);
                    let put = self.layout.copy(old, None).expect("the cleaner finds room");
                    self.map.set(block, Some(MapEntry { place: put.place, ..old })).unwrap();
                    self.placed(put, Owner::Block(block), Some(from));
                    self.copied += 1;
                }
                Some(Owner::Page(page)) => self.map.mark_dirty(page),
            }
        }
        self.layout.retire(victim);
        assert!(matches!(self.layout.table()[victim.0 as usize].state, State::Cleaned | State::Retiring));
    }

    /// What an engine does until a write finds room; panics if it never does.
    fn make_room(&mut self) {
        let limit = 40 * self.layout.shape().segments;
        for _ in 0..limit {
            if self.layout.admits() && !self.layout.stopped() {
                return;
            }
            assert!(
                self.reclaim_once(CleaningGoal::Due),
                "nothing to do: {:?} free, {:?} waiting",
                self.layout.free(),
                self.layout.waiting()
            );
        }
        panic!("no room after {limit} steps: {:?} free, {:?} waiting", self.layout.free(), self.layout.waiting());
    }

    pub(super) fn write(&mut self, block: BlockNo) {
        if self.layout.due() {
            self.reclaim_once(CleaningGoal::Due);
        }
        let put = loop {
            let old = self.map.get(block).unwrap();
            match self.layout.write(old, None) {
                Ok(put) => break put,
                Err(Full) => self.make_room(),
            }
        };
        let stamp = self.layout.stamps().stamp(self.layout.clock());
        let old = self.map.set(block, Some(MapEntry { place: put.place, stamp })).unwrap();
        self.placed(put, Owner::Block(block), old.map(|old| old.place));
    }

    pub(super) fn discard(&mut self, block: BlockNo) {
        if let Some(old) = self.map.set(block, None).unwrap() {
            self.owners[old.place.0 as usize] = None;
            self.layout.forget(old.place);
        }
    }

    /// The account agrees with what lies where.
    pub(super) fn check(&self) {
        let shape = self.layout.shape();
        let in_table: u64 = self.layout.table().iter().map(|segment| u64::from(segment.live)).sum();
        assert_eq!(self.layout.live().0, in_table);
        for (number, segment) in (0..).map(SegmentNo).zip(self.layout.table()) {
            let live = (0..shape.segment_blocks)
                .filter(|slot| self.owners[shape.place(number, *slot).0 as usize].is_some())
                .count();
            assert_eq!(segment.live as usize, live, "live blocks of {number:?}: {segment:?}");
            assert!(
                live == 0 || !matches!(segment.state, State::Free | State::Next | State::Cleaned | State::System),
                "{number:?}: {segment:?}"
            );
        }
        let free = self.layout.table().iter().filter(|segment| segment.state == State::Free).count();
        assert_eq!(self.layout.free().0 as usize, free);
    }
}
