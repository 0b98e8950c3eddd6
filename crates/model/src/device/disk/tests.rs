use proptest::prelude::*;
use umbrella_units::SplitMix64;

use super::*;
use crate::device::profiles::{Options, Profile, Spec, profile, profiles};
use crate::device::testing::{random, run, sequential};

fn disks() -> Vec<(Profile, DiskSpec)> {
    let all = profiles().into_iter();
    all.filter_map(|profile| match profile.spec.clone() {
        Spec::Disk(spec) => Some((profile, spec)),
        _ => None,
    })
    .collect()
}

fn spec(name: &str) -> DiskSpec {
    disks().into_iter().find(|(profile, _)| profile.name == name).unwrap().1
}

fn assert_near(what: &str, got: f64, expected: f64, tolerance: f64) {
    assert!((got / expected - 1.0).abs() <= tolerance, "{what}: {got}, expected {expected} within {tolerance}");
}

#[test]
fn seeks_match_the_data_sheet() {
    for (Profile { name, .. }, spec) in disks() {
        let cylinders = Geometry::new(&spec).cylinders();
        for times in [spec.read_seek, spec.write_seek] {
            let curve = SeekCurve::new(times, cylinders);
            assert_eq!(curve.time(0), Nanos(0));
            assert_near(name, curve.time(1).0 as f64, times.track_to_track.0 as f64, 1e-5);
            assert_near(name, curve.time(cylinders - 1).0 as f64, times.full_stroke.0 as f64, 1e-3);
            let mut numbers = SplitMix64::new(1);
            let pairs = 200_000;
            let sum: u64 = (0..pairs)
                .map(|_| {
                    let [from, to] = [(); 2].map(|()| numbers.below(u64::from(cylinders)) as u32);
                    curve.time(from.abs_diff(to)).0
                })
                .sum();
            assert_near(name, sum as f64 / f64::from(pairs), times.average.0 as f64, 0.01);
        }
    }
}

#[test]
fn a_longer_seek_never_takes_less_time() {
    for (Profile { name, .. }, spec) in disks() {
        let cylinders = Geometry::new(&spec).cylinders();
        let curve = SeekCurve::new(spec.read_seek, cylinders);
        let times: Vec<Nanos> = (0..cylinders).map(|distance| curve.time(distance)).collect();
        assert!(times.is_sorted(), "{name}");
    }
}

#[test]
fn a_sector_is_half_a_turn_away_on_average() {
    let geometry = Geometry::new(&spec("cheetah_10k7"));
    let mut numbers = SplitMix64::new(2);
    let count = 100_000;
    let wait = |numbers: &mut SplitMix64| {
        let place = geometry.place(Lba(numbers.below(geometry.capacity().0)));
        geometry.wait(place.angle, Nanos(numbers.below(10_000_000_000))).0
    };
    let sum: u64 = (0..count).map(|_| wait(&mut numbers)).sum();
    // 10,000 rpm: 6 ms a turn.
    assert_near("wait", sum as f64 / f64::from(count), 3_000_000.0, 0.01);
}

#[test]
fn a_track_passes_in_one_turn_and_the_next_one_follows_after_the_switch() {
    for (Profile { name, .. }, spec) in disks() {
        let geometry = Geometry::new(&spec);
        for start in geometry.zone_starts() {
            let track = geometry.track_sectors(start);
            assert_near(name, geometry.transfer(start, u64::from(track)).0 as f64, geometry.turn().0 as f64, 1e-5);
            // The end of one track, the switch, and the next track is just arriving.
            let next = geometry.place(Lba(start.0 + u64::from(track)));
            let first = geometry.place(start);
            let waited = geometry.wait(next.angle, geometry.wait(first.angle, Nanos(0)) + geometry.turn());
            let switch = if spec.heads > 1 { spec.head_switch } else { spec.cylinder_switch };
            assert!(waited.0.abs_diff(switch.0) < 2_000, "{name}: {waited} {switch}");
        }
    }
}

#[test]
fn places_follow_each_other_over_the_whole_disk() {
    for (Profile { name, .. }, spec) in disks() {
        let geometry = Geometry::new(&spec);
        let mut numbers = SplitMix64::new(3);
        for _ in 0..20_000 {
            let lba = numbers.below(geometry.capacity().0 - 1);
            let (here, next) = (geometry.place(Lba(lba)), geometry.place(Lba(lba + 1)));
            assert!(here.head < spec.heads && next.cylinder < geometry.cylinders(), "{name}");
            assert!(next.cylinder == here.cylinder || next.cylinder == here.cylinder + 1, "{name} at {lba}");
        }
        let last = geometry.place(Lba(geometry.capacity().0 - 1));
        assert_eq!(last.cylinder, geometry.cylinders() - 1, "{name}");
        assert_eq!(geometry.capacity().0 * 512, spec.capacity.0, "{name}");
    }
}

#[test]
fn passing_over_two_ranges_takes_as_long_as_passing_over_both() {
    let geometry = Geometry::new(&spec("deskstar_500gb"));
    let mut numbers = SplitMix64::new(4);
    for _ in 0..10_000 {
        let (lba, first, second) =
            (numbers.below(geometry.capacity().0 - 20_000), numbers.below(5000) + 1, numbers.below(5000) + 1);
        let whole = geometry.transfer(Lba(lba), first + second);
        let begun = geometry.transfer(Lba(lba), first);
        let rest = geometry.transfer(Lba(lba + first), second);
        // Where the first part ends with its track, the switch comes after it.
        let gap = whole.0.saturating_sub(begun.0 + rest.0);
        assert!(begun.0 + rest.0 <= whole.0 + 1 && (gap < 3 || (1_390_000..1_810_000).contains(&gap)), "{lba} {gap}");
    }
}

#[test]
fn sequential_reads_and_cached_writes_run_at_the_rate_of_their_zone() {
    for (profile, spec) in disks() {
        let geometry = Geometry::new(&spec);
        let starts: Vec<Lba> = geometry.zone_starts().collect();
        let average_switch = (f64::from(spec.heads - 1) * spec.head_switch.0 as f64
            + spec.cylinder_switch.max(spec.write_seek.track_to_track).0 as f64)
            / f64::from(spec.heads);
        for (zone, &start) in starts.iter().enumerate() {
            let per_turn = f64::from(geometry.track_sectors(start)) * 512.0;
            let expected = per_turn / (geometry.turn().0 as f64 + average_switch) * 1e9;
            if zone == 0 {
                assert_near(profile.name, expected, spec.outer_rate.0 as f64, 0.01);
            }
            if zone + 1 == starts.len() {
                assert_near(profile.name, expected, spec.inner_rate.0 as f64, 0.01);
            }
            for op in [Op::Read, Op::Write] {
                let mut disk = profile.build(&Options { write_cache: Some(true), ..Options::default() });
                let count = 512;
                let mut requests = sequential(op, count, start, 512);
                requests.push((Op::Flush, Lba(0), 0));
                let (_, end) = run(&mut *disk, requests, 1);
                let rate = count as f64 * 512.0 * 512.0 / end.as_secs_f64();
                assert_near(&format!("{} {op:?} zone {zone}", profile.name), rate, expected, 0.04);
            }
        }
    }
}

#[test]
fn a_random_read_takes_a_seek_and_half_a_turn() {
    for (profile, spec) in disks() {
        let mut disk = profile.build(&Options { queue_depth: Some(1), ..Options::default() });
        let count = 5000;
        let requests = random(Op::Read, count, disk.capacity(), 5);
        let (_, end) = run(&mut *disk, requests, 1);
        let turn = 60e9 / f64::from(spec.rpm);
        let expected = spec.overhead.0 as f64 + spec.read_seek.average.0 as f64 + turn / 2.0;
        // Addresses crowd outside, where tracks are longer, so that seeks are somewhat shorter than between random
        // cylinders.
        assert_near(profile.name, end.0 as f64 / count as f64, expected, 0.05);
    }
}

#[test]
fn a_queue_makes_random_reads_faster() {
    for (profile, _) in disks() {
        let time = |depth: u32| {
            let mut disk = profile.build(&Options { queue_depth: Some(depth), ..Options::default() });
            let requests = random(Op::Read, 3000, disk.capacity(), 6);
            run(&mut *disk, requests, depth as usize).1.as_secs_f64()
        };
        let (one, four, all) = (time(1), time(4), time(32));
        assert!(four < one * 0.9 && all < one * 0.5, "{}: {one} {four} {all}", profile.name);
    }
}

#[test]
fn a_far_request_is_served_though_nearer_ones_keep_coming() {
    let spec = spec("deskstar_500gb");
    let mut disk = Disk::new(&spec);
    let mut numbers = SplitMix64::new(7);
    let far = RequestId(u64::MAX);
    for near in 0..31 {
        disk.submit(Nanos(0), Request { id: RequestId(0), op: Op::Read, lba: Lba(near * 10_000), sectors: 8 });
    }
    disk.submit(Nanos(0), Request { id: far, op: Op::Read, lba: Lba(disk.capacity().0 - 8), sectors: 8 });
    let at = busy_until(&mut disk, &mut numbers, far, Nanos(4 * spec.age_limit.0)).expect("it is served");
    assert!(at >= spec.age_limit && at < spec.age_limit + Nanos::from_millis(60), "{at}");
}

/// Keeps the queue full of reads from the outermost part of the disk until `wanted` is done, or `end` has come.
fn busy_until(disk: &mut Disk, numbers: &mut SplitMix64, wanted: RequestId, end: Nanos) -> Option<Nanos> {
    let mut done: Vec<Completion> = Vec::new();
    loop {
        let now = disk.next_event().unwrap();
        if now > end {
            return None;
        }
        disk.advance(now, &mut done);
        if let Some(found) = done.iter().find(|completion| completion.id == wanted) {
            return Some(found.at);
        }
        done.clear();
        while disk.room() > 0 {
            disk.submit(now, Request { id: RequestId(1), op: Op::Read, lba: Lba(numbers.below(1 << 20)), sectors: 8 });
        }
    }
}

/// Writes of 64 KiB all over the disk, as many as `share` of the buffer takes, and a queue full of reads.
fn buffered(disk: &mut Disk, share: f64) {
    let stride = disk.capacity().0 / 1000;
    let writes = (disk.write_room as f64 * share) as u64 / 128;
    for number in 0..writes {
        let lba = Lba((number * 617 % 1000) * stride);
        disk.submit(Nanos(0), Request { id: RequestId(2), op: Op::Write, lba, sectors: 128 });
    }
}

#[test]
fn a_buffer_that_is_more_than_half_full_is_written_out_beside_reads() {
    let mut disk = Disk::new(&spec("deskstar_500gb"));
    let mut numbers = SplitMix64::new(11);
    buffered(&mut disk, 0.7);
    let full = disk.dirty.sectors();
    assert!(full * 2 > disk.write_room);
    assert_eq!(busy_until(&mut disk, &mut numbers, RequestId(u64::MAX), Nanos::from_secs(20)), None);
    let left = disk.dirty.sectors();
    assert!(left * 2 <= disk.write_room, "{left} of {full} sectors are left");
    assert!(left * 4 > disk.write_room, "below half the reads come first: {left} of {full}");
}

#[test]
fn a_write_without_room_in_the_buffer_does_not_wait_for_ever_behind_reads() {
    let spec = spec("deskstar_500gb");
    let mut disk = Disk::new(&spec);
    // All the buffer's data belongs to the innermost part, where the heads never come by.
    let inner = disk.capacity().0 - (1 << 21);
    for near in 0..31 {
        disk.submit(Nanos(0), Request { id: RequestId(1), op: Op::Read, lba: Lba(near * 10_000), sectors: 8 });
    }
    for number in 0..disk.write_room / 128 {
        let lba = Lba(inner + number * 1024);
        disk.submit(Nanos(0), Request { id: RequestId(2), op: Op::Write, lba, sectors: 128 });
    }
    let held = RequestId(u64::MAX);
    disk.submit(Nanos(0), Request { id: held, op: Op::Write, lba: Lba(inner - 8192), sectors: 128 });
    assert_eq!(disk.held.len(), 1);
    let at = busy_until(&mut disk, &mut SplitMix64::new(12), held, Nanos(4 * spec.age_limit.0)).expect("it is let in");
    assert!(at > spec.age_limit && at < spec.age_limit + Nanos::from_millis(100), "{at}");
}

#[test]
fn from_zone_to_zone_the_heads_continue_after_a_switch() {
    for (Profile { name, .. }, spec) in disks() {
        let geometry = Geometry::new(&spec);
        let switch = spec.cylinder_switch.max(spec.write_seek.track_to_track);
        for start in geometry.zone_starts().skip(1) {
            let parts = geometry.transfer(Lba(start.0 - 100), 100) + geometry.transfer(start, 100);
            assert_eq!(geometry.transfer(Lba(start.0 - 100), 200), parts + switch, "{name}");
        }
    }
}

#[test]
fn a_sector_missed_by_a_hair_is_not_a_turn_away() {
    let geometry = Geometry::new(&spec("deskstar_500gb"));
    let place = geometry.place(Lba(123_456));
    let there = geometry.wait(place.angle, Nanos(0));
    assert_eq!(geometry.wait(place.angle, there + Nanos(500)), Nanos(0));
    let turn = geometry.turn().0;
    assert!(geometry.wait(place.angle, there + Nanos(3000)).0.abs_diff(turn - 3000) < 10);
}

#[test]
fn the_write_cache_answers_before_the_media_does() {
    let profile = profile("deskstar_500gb").unwrap();
    let time = |write_cache: bool| {
        let mut disk = profile.build(&Options { write_cache: Some(write_cache), ..Options::default() });
        let requests = random(Op::Write, 64, disk.capacity(), 8);
        run(&mut *disk, requests, 1)
    };
    let ((cached, _), (uncached, end)) = (time(true), time(false));
    assert!(cached[63].at < Nanos::from_millis(64), "{}", cached[63].at);
    assert!(end > Nanos::from_millis(600), "{}", uncached[63].at);
}

#[test]
fn a_share_of_the_buffer_holds_a_share_of_the_writes() {
    let profile = profile("deskstar_500gb").unwrap();
    let kept = |buffer_share: Option<f64>| {
        let mut disk = profile.build(&Options { buffer_share, ..Options::default() });
        // 16 MB of buffer, half of it for writes: what is answered before the media could have it.
        let requests: Vec<_> = (0..64).map(|n| (Op::Write, Lba(n * 1_000_000), 256)).collect();
        let (done, _) = run(&mut *disk, requests, 1);
        done.iter().zip(done.iter().skip(1)).take_while(|(one, next)| next.at - one.at < Nanos::from_millis(2)).count()
    };
    let (whole, half, least) = (kept(None), kept(Some(0.5)), kept(Some(1e-9)));
    assert!(whole >= 60 && (28..40).contains(&half) && least < 8, "{whole}, {half}, {least}");
    assert_eq!(kept(Some(1.0)), whole);
}

#[test]
fn a_flush_waits_for_the_buffer() {
    let mut disk = Disk::new(&spec("deskstar_500gb"));
    let mut requests = random(Op::Write, 20, disk.capacity(), 10);
    requests.push((Op::Flush, Lba(0), 0));
    let (done, end) = run(&mut disk, requests, 32);
    assert_eq!(done.last().unwrap().id, RequestId(20));
    assert!(done[19].at < Nanos::from_millis(20) && end > Nanos::from_millis(50), "{end}");
    assert!(disk.dirty.is_empty());
}

#[test]
fn writes_beyond_the_buffer_wait_for_it() {
    let mut disk = Disk::new(&spec("maxtor_80gb"));
    // 1 MB of buffer for writes; 16 MB written.
    let (done, end) = run(&mut disk, sequential(Op::Write, 128, Lba(0), 256), 1);
    assert_eq!(done.len(), 128);
    assert_near("rate", 16.0 * 1024.0 * 1024.0 / end.as_secs_f64(), 61.4e6, 0.1);
}

#[test]
fn what_was_read_ahead_needs_no_media() {
    let spec = spec("deskstar_500gb");
    let mut disk = Disk::new(&spec);
    let mut done = Vec::new();
    disk.submit(Nanos(0), Request { id: RequestId(0), op: Op::Read, lba: Lba(4096), sectors: 64 });
    // Long enough to fill the segment.
    let later = Nanos::from_secs(1);
    disk.advance(later, &mut done);
    disk.submit(later, Request { id: RequestId(1), op: Op::Read, lba: Lba(4160), sectors: 64 });
    disk.advance(later + Nanos::from_secs(1), &mut done);
    let transfer = Nanos(64 * 512 * 1_000_000_000 / spec.interface.0);
    assert_eq!(done[1].at, later + spec.overhead + transfer);
}

#[test]
fn reading_ahead_that_stopped_continues_when_its_reader_does() {
    let spec = spec("deskstar_500gb");
    let mut disk = Disk::new(&spec);
    let (mut done, mut now, mut at) = (Vec::new(), Nanos(0), 4096);
    let segment = disk.segments.segment_sectors();
    // Far beyond what fits into one segment, each read a second after the one before: only the first needs the media.
    for number in 0..40 {
        disk.submit(now, Request { id: RequestId(number), op: Op::Read, lba: Lba(at), sectors: segment as u32 / 8 });
        at += segment / 8;
        let asked = now;
        now = now + Nanos::from_secs(1);
        disk.advance(now, &mut done);
        let took = done.last().unwrap().at - asked;
        let transfer = Nanos(segment / 8 * 512 * 1_000_000_000 / spec.interface.0);
        assert!(number == 0 || took < spec.overhead + transfer + Nanos(1000), "read {number}: {took}");
    }
}

#[test]
fn reading_ahead_past_a_write_gives_nothing_old() {
    let mut disk = Disk::new(&spec("cheetah_10k7"));
    let requests = [(Op::Read, Lba(4096), 64), (Op::Write, Lba(4160), 8), (Op::Read, Lba(4160), 8)];
    run(&mut disk, requests, 1);
    let stats = disk.stats();
    assert_eq!((stats.reads, stats.writes, stats.sectors_read, stats.sectors_written), (2, 1, 72, 8));
    assert!(disk.segments.hit(4160, 4168));
}

proptest! {
    #[test]
    fn dirty_runs_agree_with_a_set_of_sectors(
        steps in prop::collection::vec((0_u8..4, 0_u64..300, 1_u64..40), 1..200),
    ) {
        let geometry = Geometry::new(&spec("maxtor_80gb"));
        let place = |sector: u64| geometry.place(Lba(sector));
        let (mut runs, mut set) = (DirtyRuns::default(), std::collections::BTreeSet::new());
        for (step, start, length) in steps {
            let end = start + length;
            match step {
                0 | 1 => {
                    runs.add(start, end, place);
                    set.extend(start..end);
                }
                2 => {
                    runs.discard(start, end, place);
                    set.retain(|sector| !(start..end).contains(sector));
                }
                _ => {
                    let first = runs.after(start).next().or_else(|| runs.before(start).next());
                    if let Some((first, at)) = first {
                        prop_assert_eq!(at, place(first));
                        let taken = runs.take(first, length, place);
                        set.retain(|sector| !(first..taken).contains(sector));
                    }
                }
            }
            prop_assert_eq!(runs.sectors(), set.len() as u64);
            for sector in 0..350 {
                prop_assert_eq!(runs.covers(sector, sector + 1), set.contains(&sector), "sector {}", sector);
            }
        }
        prop_assert_eq!(runs.is_empty(), set.is_empty());
    }
}
