//! Each scheme's rules, one at a time.

use super::super::{Clock, Geography, Shape, Stream};
use super::*;

/// A log of 16,384 blocks.
const SHAPE: Shape = Shape { segments: 256, segment_blocks: 64 };

fn scheme(spec: &str) -> Box<dyn Scheme> {
    let mut scheme = SchemeInfo::make(&spec.parse().unwrap()).unwrap();
    scheme.laid_out(SHAPE);
    scheme
}

/// The stream of a block that is written at `now` over a version in `stream` that was written at `then`.
fn rewritten(scheme: &mut dyn Scheme, stream: u8, then: u64, now: u64) -> u8 {
    let old = Some(ReplacedVersion { stream: Stream(stream), written: Clock(then) });
    scheme.written(&Written { now: Clock(now), old, death: None }).0
}

fn new(scheme: &mut dyn Scheme) -> u8 {
    scheme.written(&Written { now: Clock(0), old: None, death: None }).0
}

/// The stream to which the cleaner moves a block of `stream` of that age.
fn moved(scheme: &mut dyn Scheme, stream: u8, age: u64) -> u8 {
    let now = Clock(1_000_000);
    scheme.copied(&Copied { now, from: Stream(stream), written: Clock(now.0 - age), death: None }).0
}

/// Reclaims `count` segments of a stream, each of which lived for `life`.
fn reclaim(scheme: &mut dyn Scheme, stream: u8, life: u64, count: u32) {
    for _ in 0..count {
        scheme.reclaimed(&Reclaimed { stream: Stream(stream), opened: Clock(500), now: Clock(500 + life) });
    }
}

#[test]
fn sepgc_keeps_the_users_blocks_from_the_cleaners() {
    let mut sepgc = scheme("sepgc");
    assert_eq!((new(&mut *sepgc), rewritten(&mut *sepgc, 0, 0, 9), moved(&mut *sepgc, 1, 9)), (1, 1, 0));
}

#[test]
fn dac_is_r_lfs_without_a_place_on_the_disk() {
    let mut dac = scheme("dac:classes=3");
    assert_eq!((dac.geography(), scheme("r_lfs").geography()), (Geography::Log, Geography::Regions));
    assert_eq!(new(&mut *dac), 0);
    assert_eq!([0, 1, 2].map(|stream| rewritten(&mut *dac, stream, 0, 9)), [1, 2, 2]);
    assert_eq!([0, 1, 2].map(|stream| moved(&mut *dac, stream, 9)), [0, 0, 1]);
}

#[test]
fn sepbit_takes_all_updates_for_short_lived_until_it_knows_better() {
    let mut sepbit = scheme("sepbit");
    assert_eq!(new(&mut *sepbit), 4, "class 2");
    assert_eq!(rewritten(&mut *sepbit, 4, 0, 1_000_000), 5, "class 1");
    reclaim(&mut *sepbit, 5, 100, 15);
    assert_eq!(rewritten(&mut *sepbit, 4, 0, 1_000_000), 5, "15 segments say nothing yet");
    reclaim(&mut *sepbit, 5, 116, 1);
    // The mean of 16 lives is 101.
    assert_eq!(rewritten(&mut *sepbit, 5, 0, 100), 5);
    assert_eq!(rewritten(&mut *sepbit, 5, 0, 101), 4);
}

#[test]
fn sepbit_parts_what_is_moved_by_its_age_but_what_was_short_lived_by_that() {
    let mut sepbit = scheme("sepbit");
    reclaim(&mut *sepbit, 5, 100, 16);
    reclaim(&mut *sepbit, 4, 1, 16);
    assert_eq!(moved(&mut *sepbit, 5, 99_999), 3, "class 3, whatever its age");
    assert_eq!([399, 400, 1599, 1600].map(|age| moved(&mut *sepbit, 4, age)), [2, 1, 1, 0]);
}

#[test]
fn sfs_puts_a_block_into_the_group_whose_heat_is_nearest_and_the_group_follows() {
    let mut sfs = scheme("sfs:groups=2");
    // The groups begin at lives of 2^14, the whole log, and 2^6, a segment.
    assert_eq!(new(&mut *sfs), 0);
    assert_eq!([1, 1 << 9, 1 << 11, 1 << 20].map(|life| rewritten(&mut *sfs, 0, 0, life)), [1, 1, 0, 0]);
    for _ in 0..20_000 {
        rewritten(&mut *sfs, 0, 0, 1 << 8);
        rewritten(&mut *sfs, 0, 0, 1 << 20);
    }
    assert_eq!(rewritten(&mut *sfs, 0, 0, 1 << 13), 1, "between 2^8 and 2^20 the middle is 2^14");
}

#[test]
fn oracle_writes_together_what_is_overwritten_together() {
    let mut oracle = scheme("oracle:classes=4,factor=2");
    let mut at =
        |death: Option<u64>| oracle.written(&Written { now: Clock(1000), old: None, death: death.map(Clock) }).0;
    // Stretches of 64, 128 and 256 blocks, and the rest.
    assert_eq!([1001, 1063, 1064, 1191, 1192, 1447, 1448].map(|death| at(Some(death))), [3, 3, 2, 2, 1, 1, 0]);
    assert_eq!(at(None), 0);
    let copied = Copied { now: Clock(1400), from: Stream(0), written: Clock(7), death: Some(Clock(1448)) };
    assert_eq!(oracle.copied(&copied), Stream(3), "its time has come near");
    assert!(oracle.knows_the_future());
}

#[test]
fn organ_moves_a_block_half_the_way_to_what_its_last_life_tells() {
    let mut organ = scheme("organ");
    // Level 0 is a life of 8 to 2 logs, level 1 one of 2 to 1/2, level 4 one of 512 to 128 blocks.
    assert_eq!(new(&mut *organ), 0);
    assert_eq!(rewritten(&mut *organ, 0, 0, 200), 2);
    assert_eq!(rewritten(&mut *organ, 2, 0, 200), 3);
    assert_eq!(rewritten(&mut *organ, 3, 0, 200), 4);
    assert_eq!(rewritten(&mut *organ, 4, 0, 200), 4);
    assert_eq!(rewritten(&mut *organ, 4, 0, 100_000), 2, "one long life does not make it cold");
    assert_eq!(rewritten(&mut *organ, 5, 0, 1), 5);
}

#[test]
fn organ_lets_what_survives_cleaning_grow_colder_only() {
    let mut organ = scheme("organ");
    assert_eq!(moved(&mut *organ, 4, 300), 4, "as young as its level says");
    assert_eq!(moved(&mut *organ, 1, 300), 1, "not hotter");
    assert_eq!(moved(&mut *organ, 5, 100_000), 2);
    assert_eq!(moved(&mut *organ, 2, 900_000), 1);
    assert_eq!(moved(&mut *organ, 1, 900_000), 0);
}

#[test]
fn every_scheme_stays_within_its_streams_whatever_the_times() {
    for info in schemes() {
        let mut scheme = scheme(info.name);
        let streams = scheme.streams();
        assert!((1..=14).contains(&streams), "{}", info.name);
        for time in [0, 1, 63, 1 << 14, 1 << 30, u64::MAX] {
            let then = Clock(u64::MAX - time);
            for stream in (0..streams).map(Stream) {
                let old = Some(ReplacedVersion { stream, written: then });
                let write = Written { now: Clock(u64::MAX), old, death: Some(then) };
                assert!(scheme.written(&write).0 < streams, "{} {time}", info.name);
                let copy = Copied { now: Clock(u64::MAX), from: stream, written: then, death: None };
                assert!(scheme.copied(&copy).0 < streams, "{} {time}", info.name);
                scheme.reclaimed(&Reclaimed { stream, opened: then, now: Clock(u64::MAX) });
            }
        }
    }
}

#[test]
fn every_scheme_and_parameter_is_in_the_documentation() {
    let page = include_str!("../../../../../docs/placement-schemes.md");
    for info in schemes() {
        let row = page.lines().find(|line| line.starts_with(&format!("| `{}` |", info.name)));
        let row = row.unwrap_or_else(|| panic!("docs/placement-schemes.md has no row for {}", info.name));
        for param in info.params {
            assert!(row.contains(&format!("`{}={}`", param.name, param.default)), "{}: {}", info.name, param.name);
        }
    }
}

#[test]
fn an_unknown_scheme_or_a_value_that_is_not_possible_says_what_is() {
    let error = |spec: &str| SchemeInfo::make(&spec.parse().unwrap()).unwrap_err().to_string();
    assert!(error("sepbits").contains("sepbit"), "{}", error("sepbits"));
    assert!(error("organ:levels=14").contains("from 2 to 13"), "{}", error("organ:levels=14"));
}

#[test]
fn no_scheme_that_needs_the_future_is_offered_for_a_disk() {
    let error = |spec: &str| SchemeInfo::make_for_disk(&spec.parse().unwrap()).err().map(|error| error.to_string());
    assert_eq!(error("sepbit"), None);
    let unknown = error("rlfs").unwrap();
    assert!(
        unknown.starts_with("there is no placement scheme \"rlfs\" (did you mean \"r_lfs\"?); known: r_lfs, "),
        "{unknown}"
    );
    let future = error("oracle").unwrap();
    assert!(future.starts_with("the placement scheme \"oracle\" needs to know the future"), "{future}");
    assert!(![unknown, future].iter().any(|reported| reported.contains(", oracle")));
    let in_lab = SchemeInfo::make(&"rlfs".parse().unwrap()).err().unwrap().to_string();
    assert!(in_lab.starts_with("there is no placement scheme") && in_lab.contains(", oracle"), "{in_lab}");
}
