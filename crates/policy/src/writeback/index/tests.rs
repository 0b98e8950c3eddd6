//! The structures of the index against plain ones.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::runs::{Run, RunSet};

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

fn all(set: &RunSet) -> Vec<Run> {
    let mut runs = Vec::new();
    let mut next = set.from(0);
    while let Some(run) = next {
        runs.push(run);
        next = set.from(run.start + 1);
    }
    runs
}

fn compare(set: &RunSet, positions: &BTreeSet<u64>, cut: u64, asked: u64) -> Result<(), TestCaseError> {
    let runs = runs_of(positions, cut);
    prop_assert_eq!(&all(set), &runs);
    prop_assert_eq!(set.runs(), runs.len());
    let longest = runs.iter().copied().reduce(|best, run| if run.len > best.len { run } else { best });
    prop_assert_eq!(set.longest(), longest);
    prop_assert_eq!(set.holding(asked), runs.iter().copied().find(|run| run.start <= asked && asked < run.end()));
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
            let before: Vec<Run> = runs_of(&positions, cut);
            let joined = set.insert(position);
            prop_assert_eq!(joined.is_some(), positions.insert(position));
            if let Some(joined) = joined {
                for run in [joined.left, joined.right].into_iter().flatten() {
                    prop_assert!(before.contains(&run));
                }
            }
        } else {
            let run = runs_of(&positions, cut).into_iter().find(|run| run.start <= position && position < run.end());
            let inside = run.filter(|run| position + len <= run.end());
            prop_assert_eq!(set.remove(position, len), inside);
            if inside.is_some() {
                positions.retain(|other| !(position..position + len).contains(other));
            }
        }
        if step % 16 == 0 || changes.len() < 200 {
            compare(&set, &positions, cut, position)?;
        }
    }
    compare(&set, &positions, cut, 0)
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
    let mut state = seed;
    move |below| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    }
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
        let hash_of = |slot: u32| hash(1, keys[slot as usize]);
        let found = table.find(hash(1, key), |slot| keys[slot as usize] == key);
        assert_eq!(found, plain.get(&key).copied());
        if let Some(slot) = found {
            table.remove(hash(1, key), slot, hash_of);
            plain.remove(&key);
        } else {
            keys.push(key);
            let slot = (keys.len() - 1) as u32;
            table.insert(hash(1, key), slot, keys.len(), |slot| hash(1, keys[slot as usize]));
            plain.insert(key, slot);
        }
    }
}
