//! The effect of events on a flusher, compared with the plainest possible page cache: a list of dirty pages with their
//! uses, whose policy gets each event by hand.

use std::collections::BTreeMap;

use proptest::prelude::*;
use umbrella_policy::writeback::{WriteBack, policies};

use super::*;
use crate::file::FileHandle;
use crate::settings::Settings;
use crate::sys::Mapped;

fn handle(file: u64) -> Reach {
    Reach::Handle(FileHandle::from_inode(file, 1).expect("small numbers"))
}

fn state(policy: &str) -> FlusherState {
    FlusherState::new(
        RecordedPolicy::new(Settings::parse(policy).expect("a policy")).expect("a policy"),
        Geometry::Unknown,
    )
}

fn range(first: u64, pages: u64) -> PageRange {
    PageRange { first: PageIndex(first), pages: Pages(pages) }
}

/// Every file lies in one piece, at a million blocks for each.
fn block(file: u64, page: u64) -> BlockNo {
    BlockNo(file * 1_000_000 + page)
}

fn record_places(state: &mut FlusherState, file: u64) {
    state.add_file(FileId(file), handle(file));
    let found = vec![Mapped { pages: range(0, 1 << 20), block: block(file, 0) }];
    state.record_places(Nanos(0), FileId(file), &Answer { from: PageIndex(0), to: PageIndex(u64::MAX), found });
}

/// The naive model: a page's uses since it was first seen, and whether it is active.
struct Naive {
    policy: WriteBack,
    uses: BTreeMap<(u64, u64), (bool, bool)>,
    dirty: std::collections::BTreeSet<(u64, u64)>,
    lost: Vec<u64>,
}

impl Naive {
    fn key((file, index): (u64, u64)) -> PageKey {
        PageKey { file: FileId(file), index: PageIndex(index) }
    }

    fn access(&mut self, now: Nanos, at: (u64, u64)) {
        let (referenced, active) = self.uses.entry(at).or_default();
        if !*referenced {
            *referenced = true;
        } else if !*active {
            (*referenced, *active) = (false, true);
            if self.dirty.contains(&at) {
                self.policy.on(now, Event::Activate { page: Naive::key(at) });
            }
        }
    }

    fn write(&mut self, now: Nanos, at: (u64, u64)) {
        let active = self.uses.get(&at).is_some_and(|(_, active)| *active);
        self.policy.on(now, Event::Dirty { page: Naive::key(at), block: block(at.0, at.1), active });
        self.dirty.insert(at);
        self.access(now, at);
    }

    fn read(&mut self, now: Nanos, at: (u64, u64)) {
        if self.lost.contains(&at.0) {
            return;
        }
        if self.dirty.contains(&at) {
            self.policy.on(now, Event::Touch { page: Naive::key(at) });
        }
        self.access(now, at);
    }

    fn cut(&mut self, now: Nanos, file: u64, from: u64) {
        self.dirty.retain(|&(its, index)| its != file || index < from);
        self.policy.on(now, Event::Truncate { file: FileId(file), from: PageIndex(from) });
    }
}

fn acts() -> impl Strategy<Value = Vec<(u8, u64, u64, u64)>> {
    prop::collection::vec((0u8..12, 1u64..5, 0u64..60, 1u64..6), 1..150)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn the_policy_decides_as_with_hand_made_events(acts in acts()) {
        for info in policies().iter().filter(|info| !info.offline) {
            let mut state = state(info.name);
            let mut naive = Naive {
                policy: WriteBack::parse(info.name).expect("a policy"),
                uses: BTreeMap::new(),
                dirty: std::collections::BTreeSet::new(),
                lost: vec![1, 2, 3, 4],
            };
            for (at, &(kind, file, first, pages)) in acts.iter().enumerate() {
                let now = Nanos::from_millis(at as u64 * 5);
                let id = FileId(file);
                match kind {
                    0 => {
                        state.deleted(now, id);
                        naive.cut(now, file, 0);
                        naive.policy.on(now, Event::Delete { file: id });
                        naive.uses.retain(|(its, _), _| *its != file);
                        naive.lost.push(file);
                    }
                    1 => {
                        state.drop_from(now, id, PageIndex(first));
                        naive.cut(now, file, first);
                    }
                    2 => {
                        state.synced(now, id, state.turn);
                        naive.cut(now, file, 0);
                    }
                    3 | 4 => {
                        state.read(now, id, range(first, pages));
                        (first..first + pages).for_each(|index| naive.read(now, (file, index)));
                    }
                    5 => {
                        // Not through `choose`: the aging of its active list is its own.
                        let (mut chosen, mut expected) = (Vec::new(), Vec::new());
                        state.policy.select(now, Pages(pages), &mut chosen);
                        naive.policy.select(now, Pages(pages), &mut expected);
                        for page in &expected {
                            naive.dirty.remove(&(page.page.file.0, page.page.index.0));
                        }
                        prop_assert_eq!(chosen, expected, "{}", info.name);
                    }
                    _ => {
                        record_places(&mut state, file);
                        naive.lost.retain(|lost| *lost != file);
                        state.wrote(now, id, range(first, pages));
                        (first..first + pages).for_each(|index| naive.write(now, (file, index)));
                    }
                }
                prop_assert_eq!(state.policy.dirty(), naive.policy.dirty());
                prop_assert_eq!(state.policy.dirty().0, naive.dirty.len() as u64);
            }
        }
    }

    #[test]
    fn whatever_is_dirty_is_chosen_in_the_end(acts in acts()) {
        for info in policies().iter().filter(|info| !info.offline) {
            let mut state = state(info.name);
            for (at, &(kind, file, first, pages)) in acts.iter().enumerate() {
                let now = Nanos(at as u64);
                record_places(&mut state, file);
                state.wrote(now, FileId(file), range(first, pages));
                if kind < 6 {
                    state.wrote(now, FileId(file), range(first, pages));
                }
            }
            let dirty = state.level();
            let mut chosen = Vec::new();
            for _ in 0..=dirty.0 {
                state.choose(Nanos(1 << 20), Pages(7), &mut chosen);
            }
            prop_assert_eq!(chosen.len() as u64, dirty.0, "{}", info.name);
            prop_assert_eq!((state.policy.dirty(), state.in_flight), (Pages(0), dirty));
            state.settle(dirty);
            prop_assert_eq!(state.level(), Pages(0));
        }
    }
}

#[test]
fn pages_are_moved_when_their_place_becomes_known() {
    let mut state = state("cscan");
    state.add_file(FileId(9), handle(9));
    let nothing = Answer { from: PageIndex(0), to: PageIndex(u64::MAX), found: Vec::new() };
    state.record_places(Nanos(0), FileId(9), &nothing);
    state.wrote(Nanos(0), FileId(9), range(0, 3));
    record_places(&mut state, 9);
    let mut chosen = Vec::new();
    state.choose(Nanos(1), Pages(9), &mut chosen);
    assert_eq!(chosen.iter().map(|page| page.block).collect::<Vec<_>>(), [block(9, 0), block(9, 1), block(9, 2)]);
}

#[test]
fn what_is_written_while_a_sync_runs_stays_dirty() {
    let mut state = state("file");
    record_places(&mut state, 1);
    state.wrote(Nanos(0), FileId(1), range(0, 3));
    let turn = state.turn;
    state.wrote(Nanos(1), FileId(1), range(1, 1));
    state.synced(Nanos(2), FileId(1), turn);
    assert_eq!(state.policy.dirty(), Pages(3), "more than is, rather than less");
    state.synced_all(Nanos(3), state.turn);
    assert_eq!(state.policy.dirty(), Pages(0));
}

#[test]
fn an_answer_of_the_page_cache_holds_unless_just_these_pages_were_written_meanwhile() {
    let mut state = state("cscan");
    record_places(&mut state, 1);
    record_places(&mut state, 2);
    let mut holds = |file, first, pages| {
        state.compare(FileId(1), range(10, 5));
        state.wrote(Nanos(0), FileId(file), range(first, pages));
        state.compared()
    };
    assert!(holds(1, 0, 10) && holds(1, 15, 9) && holds(2, 10, 5));
    assert!(!holds(1, 14, 1) && !holds(1, 0, 11) && !holds(1, 0, 100));
}

#[test]
fn a_large_hole_drops_all_behind_its_beginning_at_once() {
    let mut state = state("zone");
    record_places(&mut state, 1);
    state.wrote(Nanos(0), FileId(1), range(0, 100));
    state.drop_range(Nanos(1), FileId(1), range(10, 5));
    assert_eq!(state.policy.dirty(), Pages(95));
    state.drop_range(Nanos(1), FileId(1), range(50, u64::MAX));
    assert_eq!(state.policy.dirty(), Pages(45));
}

#[test]
fn files_without_dirty_pages_are_forgotten_when_there_are_too_many() {
    let mut state = state("file");
    for file in 1..100_000 {
        assert!(state.add_file(FileId(file), handle(file)));
        if file % 1000 == 0 {
            state.wrote(Nanos(file), FileId(file), range(0, 1));
        }
    }
    assert!(state.files.iter().count() <= 1 << 16);
    assert_eq!(state.dirty_files().count(), 99, "those with dirty pages are not");
}

#[test]
fn what_is_to_be_closed_stays_bounded_while_the_flusher_hangs() {
    let mut state = state("file");
    for file in 1..10_000 {
        record_places(&mut state, file);
        state.deleted(Nanos(file), FileId(file));
    }
    assert!(state.gone.len() <= crate::files::MOST_OPEN, "{} files", state.gone.len());
}
