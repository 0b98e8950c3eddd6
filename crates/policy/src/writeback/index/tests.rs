//! The structures of the index against plain ones.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use umbrella_units::SplitMix64;

use super::runs::{Run, RunSet, Sides};

/// The runs of a set of positions, cut at multiples of `cut`.
fn runs_of(positions: &BTreeSet<u64>, cut: u64) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for &position in positions {
        match runs.last_mut() {
            Some(run) if run.end() == position && !(cut != 0 && position.is_multiple_of(cut)) => run.len += 1,
            _ => runs.push(Run { start: position, len: 1 }),
        }
    }
    runs
}

fn run_with(positions: &BTreeSet<u64>, cut: u64, position: u64) -> Run {
    let mut runs = runs_of(positions, cut).into_iter();
    runs.find(|run| run.start <= position && position < run.end()).expect("the position is there")
}

fn all(set: &RunSet) -> Vec<Run> {
    let mut runs = Vec::new();
    let mut next = set.from(0);
    while let Some(run) = next {
        runs.push(run);
        next = set.from(run.start + 1);
    }
    runs
}

fn compare(set: &mut RunSet, positions: &BTreeSet<u64>, cut: u64, asked: u64) -> Result<(), TestCaseError> {
    let runs = runs_of(positions, cut);
    prop_assert_eq!(&all(&*set), &runs);
    prop_assert_eq!(set.runs(), runs.len());
    let longest = runs.iter().copied().reduce(|best, run| if run.len > best.len { run } else { best });
    prop_assert_eq!(set.longest(), longest);
    prop_assert_eq!(set.at_or_after(asked), runs.iter().copied().find(|run| asked < run.end()));
    prop_assert_eq!(set.from(asked), runs.iter().copied().find(|run| asked <= run.start));
    Ok(())
}

fn check(changes: &[(u64, bool, u64)], cut: u64, scale: u64) -> Result<(), TestCaseError> {
    let (mut set, mut positions) = (RunSet::new(cut), BTreeSet::new());
    for (step, &(position, insert, len)) in changes.iter().enumerate() {
        // Far apart in the large, adjacent in the small.
        let position = (position / 32) * scale + position % 32;
        if insert {
            let sides = set.insert(position);
            prop_assert_eq!(sides.is_some(), positions.insert(position));
            if let Some(sides) = sides {
                let run = run_with(&positions, cut, position);
                prop_assert_eq!(sides, Sides { left: run.start < position, right: position + 1 < run.end() });
                prop_assert_eq!((set.start(position), set.end(position)), (run.start, run.end()));
            }
        } else {
            let run = runs_of(&positions, cut).into_iter().find(|run| run.start <= position && position < run.end());
            let inside = run.filter(|run| position + len <= run.end());
            let sides = inside.map(|run| Sides { left: run.start < position, right: position + len < run.end() });
            prop_assert_eq!(set.remove(position, len), sides);
            if inside.is_some() {
                positions.retain(|other| !(position..position + len).contains(other));
            }
        }
        if step % 16 == 0 || changes.len() < 200 {
            compare(&mut set, &positions, cut, position)?;
        }
    }
    compare(&mut set, &positions, cut, 0)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn runs_are_those_of_a_plain_set(
        changes in prop::collection::vec((0_u64..640, prop::bool::weighted(0.6), 1_u64..4), 1..150),
        cut in prop_oneof![Just(0_u64), Just(1), Just(7), Just(16)],
        scale in prop_oneof![Just(32_u64), Just(33), Just(1 << 31), Just(1 << 33)],
    ) {
        check(&changes, cut, scale)?;
    }
}

/// Numbers that look random, the same each time.
fn scatter(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut random = SplitMix64::new(seed);
    move |below| random.below(below)
}

#[test]
fn runs_stay_right_through_many_leaves_and_groups() {
    let mut random = scatter(7);
    let changes: Vec<_> = (0..30_000).map(|_| (random(40_000), random(10) < 7, 1)).collect();
    let more: Vec<_> = (0..20_000).map(|_| (random(40_000), random(10) < 2, 1)).collect();
    let (mut set, mut positions) = (RunSet::new(0), BTreeSet::new());
    for (position, insert, len) in changes.into_iter().chain(more) {
        if insert {
            assert_eq!(set.insert(position).is_some(), positions.insert(position));
        } else {
            assert_eq!(set.remove(position, len).is_some(), positions.remove(&position));
        }
    }
    assert_eq!(all(&set), runs_of(&positions, 0));
}

#[test]
fn a_slot_table_is_a_map_through_growth_and_removals() {
    use super::table::{SlotTable, hash};
    let mut random = scatter(3);
    let (mut table, mut plain, mut keys) = (SlotTable::default(), BTreeMap::new(), Vec::new());
    for _ in 0..40_000 {
        let key = random(3_000);
        let found = table.find(hash(1, key), |slot| keys[slot as usize] == key);
        assert_eq!(found, plain.get(&key).copied());
        if let Some(slot) = found {
            table.remove(hash(1, key), slot);
            plain.remove(&key);
        } else {
            keys.push(key);
            let slot = (keys.len() - 1) as u32;
            table.insert(hash(1, key), slot, keys.len(), |slot| hash(1, keys[slot as usize]));
            plain.insert(key, slot);
        }
    }
}

#[test]
fn entries_that_overflowed_their_line_are_found() {
    use super::table::{SlotTable, hash};
    // All of these belong to the first line of a table with 1,024 cells.
    let keys: Vec<u64> = (0..).map(|group| group << 4).filter(|&key| hash(1, key).line(10) == 0).take(300).collect();
    let mut table = SlotTable::default();
    let find = |table: &SlotTable, at: usize| table.find(hash(1, keys[at]), |slot| slot as usize == at);
    for round in 0..3 {
        for (at, &key) in keys.iter().enumerate() {
            assert_eq!(find(&table, at), None, "round {round}");
            table.insert(hash(1, key), at as u32, 800, |slot| hash(1, keys[slot as usize]));
        }
        assert!((0..keys.len()).all(|at| find(&table, at) == Some(at as u32)), "round {round}");
        assert_eq!(table.bytes(), 1_024 * 4 + 64, "they are in the table that they were made for");
        for (at, &key) in keys.iter().enumerate() {
            table.remove(hash(1, key), at as u32);
            assert_eq!(find(&table, at), None, "round {round}");
        }
    }
}

#[test]
fn an_heir_whose_slot_is_beyond_what_the_table_was_made_for_is_found() {
    use super::table::{SlotTable, hash};
    let mut table = SlotTable::default();
    table.insert(hash(1, 5), 0, 1, |_| hash(1, 5));
    table.replace(hash(1, 5), 0, 300, 400, |_| hash(1, 5));
    assert_eq!(table.find(hash(1, 5), |slot| slot == 300), Some(300));
    assert_eq!(table.find(hash(1, 5), |slot| slot == 0), None);
}

mod counts {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;
    use umbrella_units::{BlockNo, Nanos};

    use super::super::{BlockNeeds, DirtyIndex, Needs, Segments, Zone, ZoneNeeds, ZoneOrder};
    use super::runs_of;
    use crate::writeback::tests::script::{Plain, Step, steps};

    const SIZE: u64 = 5;

    fn zones(index: &DirtyIndex) -> Vec<Zone> {
        (0..60).filter_map(|number| index.zone_of(BlockNo(number * SIZE))).collect()
    }

    fn counted(blocks: &BTreeSet<u64>, cut: u64) -> Vec<Zone> {
        let mut zones: BTreeMap<u64, Zone> = BTreeMap::new();
        for run in runs_of(blocks, cut) {
            let number = run.start / SIZE;
            let zone = zones.entry(number).or_insert(Zone { number, pages: 0, segments: 0, hit: false });
            zone.pages += run.len;
            zone.segments += 1;
        }
        zones.into_values().collect()
    }

    fn check(steps: &[Step], segments: Segments, inactive_only: bool) -> Result<(), TestCaseError> {
        let zone_needs = ZoneNeeds { blocks: SIZE, order: ZoneOrder::PagesAndLength };
        let blocks = Some(BlockNeeds { segments, zones: Some(zone_needs) });
        let mut index = DirtyIndex::new(Needs { inactive_only, blocks, ..Needs::default() });
        let (mut plain, mut out) = (Plain::default(), Vec::new());
        for step in steps {
            match *step {
                Step::Tell(event) => {
                    index.apply(Nanos(0), event);
                    plain.on(Nanos(0), event);
                }
                Step::Wait(_) => {}
                Step::Select(_) => {
                    let Some(segment) = index.longest_segment() else { continue };
                    out.clear();
                    index.take_blocks(segment, &mut out);
                    for chosen in &out {
                        plain.remove(chosen.page);
                    }
                }
            }
            let in_reach = plain.pages.iter().filter(|page| !(inactive_only && page.active));
            let blocks: BTreeSet<u64> = in_reach.map(|page| page.block).collect();
            let cut = if segments == Segments::InZones { SIZE } else { 0 };
            let counted = counted(&blocks, cut);
            prop_assert_eq!(zones(&index), counted.clone());
            prop_assert_eq!(index.segments(), runs_of(&blocks, cut).len() as u64);
            prop_assert_eq!(index.dirty_zones(), counted.len() as u64);
            prop_assert_eq!(index.dirty_blocks().0, blocks.len() as u64);
            let files: BTreeSet<_> = plain.pages.iter().map(|page| page.key.file).collect();
            prop_assert_eq!(index.dirty_files(), files.len() as u64);
        }
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

        #[test]
        fn zones_and_segments_are_counted_right(steps in steps(120), cut: bool, inactive_only: bool) {
            check(&steps, if cut { Segments::InZones } else { Segments::Whole }, inactive_only)?;
        }
    }
}
