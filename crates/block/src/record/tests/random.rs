//! Random recordings: what is made, and the rules written down a second time.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

use super::*;

/// Every state that is made is one that the rules allow, for random recordings; and every sector takes every version
/// that it may.
#[test]
fn states_and_rules_agree_on_random_recordings() {
    for seed in 0..25 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut below = |bound: u64| rng.next_u64() % bound;
        let mut recorded = RecordedWrites::default();
        let mut open = Vec::new();
        for letter in b'a'..=b'p' {
            let device = if below(3) == 0 { FLASH } else { DISK };
            let sectors = 1 + below(3);
            let at = below(6);
            let durability = if below(4) == 0 { Durability::Through } else { Durability::Cached };
            open.push(match below(5) {
                0 => recorded.begin_flush(device),
                1 => {
                    let range = range(at, sectors);
                    recorded.0.begin(device, Action::Zeroes { range, durability })
                }
                _ => recorded.begin(device, at, &char::from(letter).to_string().repeat(sectors as usize), durability),
            });
            while !open.is_empty() && below(3) > 0 {
                let index = below(open.len() as u64) as usize;
                let outcome = if below(8) == 0 { Outcome::Failed } else { Outcome::Done };
                recorded.0.end(open.swap_remove(index), outcome);
            }
        }
        let bounds = Bounds { whole: 3, torn: 30, sampled: 300, seed, discarded: Discarded::Zeroed };
        let mut walk = CrashStates::new(recorded.0.clone(), [(DISK, empty()), (FLASH, empty())], bounds);
        let mut rules = [DISK, FLASH].map(|device| Medium::new(device, empty(), Discarded::Zeroed));
        let all = range(0, SECTORS);
        while walk.advance().expect("memory does not fail") != Step::End {
            for (number, rule) in rules.iter_mut().enumerate() {
                rule.advance(&recorded.0, walk.cut()).expect("memory does not fail");
                let mut seen = vec![BTreeSet::new(); SECTORS as usize];
                for state in walk.states() {
                    let state = state.expect("memory does not fail");
                    let device = &state.devices[number];
                    rule.check(&recorded.0, device, all)
                        .unwrap_or_else(|error| panic!("seed {seed}: {error} in {state}"));
                    for (sector, letter) in letters(device).chars().enumerate() {
                        seen[sector].insert(letter);
                    }
                }
                let allowed = naive_versions(&recorded.0, [DISK, FLASH][number], walk.cut());
                assert_eq!(seen, allowed, "seed {seed}, {}", walk.cut());
            }
        }
    }
}

/// The same rules written down once more, sector by sector and without any state.
fn naive_versions(recording: &Recording, device: DeviceNo, cut: CrashPoint) -> Vec<BTreeSet<char>> {
    let begun: Vec<&Change> =
        recording.changes().iter().filter(|change| change.device == device && change.begun < cut).collect();
    let ended = |change: &Change| change.ended.is_some_and(|(at, outcome)| at < cut && outcome == Outcome::Done);
    let is_durable = |change: &Change| {
        let flushed =
            || begun.iter().any(|flush| flush.action == Action::Flush && ended(flush) && change.before(flush));
        ended(change) && (change.action.is_write_through() || flushed())
    };
    let versions = (0..SECTORS).map(|sector| {
        let there = |change: &&&Change| change.action.range().overlaps(range(sector, 1));
        let above =
            |below: &dyn Fn(&Change) -> bool| begun.iter().filter(there).any(|top| is_durable(top) && below(top));
        let mut seen = BTreeSet::new();
        if !above(&|_| true) {
            seen.insert('.');
        }
        for change in begun.iter().filter(there).filter(|change| !above(&|top| change.before(top))) {
            seen.insert(match &change.action {
                Action::Write { data, .. } => char::from(data[0]),
                _ => '.',
            });
        }
        seen
    });
    versions.collect()
}
