//! Disks of the model, measured in virtual time, against the figures that they were made of.

use umbrella_model::device::disk::{Disk, DiskSpec};
use umbrella_model::device::profiles::{Options, Spec, profile};
use umbrella_model::device::{Device, Op, Request, RequestId};

use umbrella_units::SplitMix64;

use super::super::DriveProfile;
use super::*;

/// A device of the model as a disk that is timed.
struct Virtual {
    device: Box<dyn Device + Send>,
    now: Nanos,
    next: u64,
    block: u32,
    unreadable: Vec<u64>,
    failing: bool,
    /// How late the host notices that a read is done.
    late: Option<SplitMix64>,
}

impl Virtual {
    fn new(name: &str) -> Virtual {
        Virtual::of(profile(name).unwrap().build(&Options::default()))
    }

    fn of(device: Box<dyn Device + Send>) -> Virtual {
        Virtual { device, now: Nanos(0), next: 0, block: 1, unreadable: Vec::new(), failing: false, late: None }
    }

    fn submit(&mut self, start: Lba, sectors: u32) -> RequestId {
        let id = RequestId(self.next);
        self.next += 1;
        self.device.try_submit(self.now, Request { id, op: Op::Read, lba: start, sectors }).unwrap();
        id
    }

    fn wait(&mut self, left: usize) -> Vec<RequestId> {
        let mut done = Vec::new();
        while done.len() < left {
            let next = self.device.next_event().unwrap();
            self.device.advance(next, &mut done);
            self.now = self.now.max(next);
        }
        done.iter().map(|completion| completion.id).collect()
    }
}

impl TimedReads for Virtual {
    fn sectors(&self) -> u64 {
        self.device.capacity().0
    }

    fn block_sectors(&self) -> u32 {
        self.block
    }

    fn now(&self) -> Nanos {
        self.now
    }

    fn pause(&mut self, time: Nanos) {
        self.now = self.now + time;
        self.device.advance(self.now, &mut Vec::new());
    }

    fn read(&mut self, start: Lba, sectors: u32) -> Result<Timed, ReadError> {
        if self.failing || self.unreadable.iter().any(|bad| (start.0..start.0 + u64::from(sectors)).contains(bad)) {
            self.now = self.now + Nanos::from_secs(1);
            return Err(ReadError::Unreadable);
        }
        let sent = self.now;
        self.submit(start, sectors);
        self.wait(1);
        if let Some(random) = &mut self.late {
            let usual = random.below(60_000);
            let seldom = if random.below(200) == 0 { random.below(2_000_000) } else { 0 };
            self.now = self.now + Nanos(usual + seldom);
        }
        Ok(Timed { sent, done: self.now })
    }

    fn read_together(&mut self, starts: &[Lba], sectors: u32, depth: u32) -> Result<BatchTime, ReadError> {
        let sent = self.now;
        let mut waiting = 0;
        for &start in starts {
            if waiting == depth as usize || self.device.room() == 0 {
                waiting -= self.wait(1).len();
            }
            self.submit(start, sectors);
            waiting += 1;
        }
        self.wait(waiting);
        Ok(BatchTime { time: self.now - sent, unreadable: 0 })
    }
}

const PLAN: Plan = Plan { time: Nanos::from_secs(3600), seed: 1 };

fn spec(name: &str) -> DiskSpec {
    match profile(name).unwrap().spec {
        Spec::Disk(spec) => spec,
        _ => unreachable!("a disk"),
    }
}

/// What the profile takes for random reads, in its mean, against the disk that it is of; in milliseconds.
fn mean_of_random_reads(spec: &DiskSpec) -> f64 {
    let mut disk = Virtual::of(Box::new(Disk::new(spec)));
    let mut random = SplitMix64::new(7);
    let reads = 2000;
    for _ in 0..reads {
        let start = random.below(disk.sectors() - 8);
        disk.read(Lba(start), 8).unwrap();
    }
    disk.now().as_secs_f64() * 1e3 / f64::from(reads)
}

fn is_near(found: f64, truth: f64, share: f64) -> bool {
    (found - truth).abs() <= truth * share
}

#[test]
fn five_model_disks_are_measured_to_what_they_were_made_of() {
    for (name, by) in [
        ("maxtor_80gb", FoundBy::Skews),
        ("cheetah_10k7", FoundBy::Skews),
        ("travelstar_e7k100", FoundBy::Skews),
        ("deskstar_500gb", FoundBy::Skews),
        ("modern", FoundBy::Moves),
    ] {
        let timings = measure(&mut Virtual::new(name), &PLAN, &mut |_| {}).unwrap();
        let found = timings.rotating.as_ref().expect("it turns");
        let spec = spec(name);
        let disk = Disk::new(&spec);
        let geometry = disk.geometry();
        assert_eq!(found.rpm, spec.rpm, "{name}");
        assert!(is_near(found.turn_ms, 60_000.0 / f64::from(spec.rpm), 1e-6), "{name}: {}", found.turn_ms);
        assert_eq!(found.heads, Heads { count: spec.heads, found_by: by }, "{name}");
        assert!(found.zones_complete, "{name}");
        let zones: Vec<(Lba, u32)> = found.zones.iter().map(|zone| (Lba(zone.start), zone.sectors_per_track)).collect();
        let truth: Vec<(Lba, u32)> =
            geometry.zone_starts().map(|start| (start, geometry.track_sectors(start))).collect();
        assert_eq!(zones, truth, "{name}");
        assert_eq!(found.cylinders, geometry.cylinders(), "{name}");
        let switch = found.head_switch_ms.expect("it has several heads");
        assert!(is_near(switch, spec.head_switch.0 as f64 / 1e6, 0.05), "{name}: {switch}");
        assert!(found.seeks.len() > 25, "{name}");
        for seek in &found.seeks {
            let truth = disk.read_seek().time(seek.cylinders).0 as f64 / 1e6;
            assert!(is_near(seek.ms, truth, 0.05), "{name}: {seek:?} of {truth}");
        }
        for zone in &found.zones {
            let skew = f64::from(zone.sectors_per_track) * spec.head_switch.0 as f64 / geometry.turn().0 as f64;
            assert!((zone.track_skew - skew).abs() < 1.0, "{name}: {zone:?}, {skew}");
        }
        let segment = spec.cache.0 / 2 / u64::from(spec.read_segments) / SECTOR_BYTES;
        assert_eq!(found.buffer.segments, Some(spec.read_segments), "{name}");
        assert!(is_near(f64::from(found.buffer.read_ahead_sectors.unwrap()), segment as f64 * 0.75, 0.05), "{name}");
        assert!(is_near(f64::from(found.buffer.segment_sectors.unwrap()), segment as f64, 0.3), "{name}");
        assert_eq!(found.queue.enough(), Some(spec.queue_depth), "{name}: {:?}", found.queue);
        let profile = found.profile(name).unwrap();
        assert_eq!(DriveProfile::parse(&profile.to_toml()).unwrap(), profile, "{name}");
        let (own, truth) = (mean_of_random_reads(&profile.spec()), mean_of_random_reads(&spec));
        assert!(is_near(own, truth, 0.02), "{name}: {own} of {truth}");
    }
}

#[test]
fn flash_does_not_turn() {
    let timings = measure(&mut Virtual::new("sata_ssd"), &PLAN, &mut |_| {}).unwrap();
    assert_eq!(timings.rotating, None);
    let flash = timings.flash.expect("it is measured as flash");
    assert_eq!(flash.latencies.first().map(|latency| latency.bytes), Some(4096));
    assert_eq!(flash.queue.enough(), Some(1), "the model serves one read at a time");
}

#[test]
fn a_small_device_is_refused() {
    let mut disk = Virtual::new("modern");
    disk.device =
        profile("modern").unwrap().build(&Options { capacity: Some(ByteSize(1 << 20)), ..Options::default() });
    let error = measure(&mut disk, &PLAN, &mut |_| {}).unwrap_err();
    assert!(matches!(error, MeasureError::TooSmall { .. }), "{error}");
}

#[test]
fn unreadable_sectors_are_passed_over_and_counted() {
    let mut disk = Virtual::new("maxtor_80gb");
    disk.unreadable = (0..400).chain([1_000_000]).collect();
    let timings = measure(&mut disk, &PLAN, &mut |_| {}).unwrap();
    assert!((1..=MOST_UNREADABLE).contains(&timings.unreadable), "{}", timings.unreadable);
    assert_eq!(timings.rotating.map(|found| found.rpm), Some(7200));
}

#[test]
fn a_failing_disk_is_left_alone() {
    let mut disk = Virtual::new("maxtor_80gb");
    disk.failing = true;
    let error = measure(&mut disk, &PLAN, &mut |_| {}).unwrap_err();
    assert!(matches!(error, MeasureError::Failing { .. }), "{error}");
}

#[test]
fn what_the_time_does_not_suffice_for_is_assumed() {
    let plan = Plan { time: Nanos::from_secs(60), ..PLAN };
    let timings = measure(&mut Virtual::new("deskstar_500gb"), &plan, &mut |_| {}).unwrap();
    assert!(timings.seconds < 70.0, "{}", timings.seconds);
    let found = timings.rotating.expect("it turns");
    assert!(!found.zones_complete);
    let profile = found.profile("short").unwrap();
    assert_eq!(profile.rpm, 7200);
    assert!(timings.cut_short.contains(&Measurement::Zones), "{:?}", timings.cut_short);
    let whole = measure(&mut Virtual::new("deskstar_500gb"), &PLAN, &mut |_| {}).unwrap();
    assert_eq!(whole.cut_short, []);
}

#[test]
fn all_of_the_time_is_used_before_it_is_said_to_be_too_little() {
    let plan = |seconds| Plan { time: Nanos::from_secs(seconds), ..PLAN };
    for name in ["maxtor_80gb", "cheetah_10k7", "travelstar_e7k100", "deskstar_500gb", "modern"] {
        let mut disk = Virtual::new(name);
        let error = measure(&mut disk, &plan(2), &mut |_| {}).expect_err("it takes longer");
        assert!(disk.now() >= plan(2).time, "{name}: {:?}", disk.now());
        let reported = error.to_string();
        assert!(reported.contains("2s were not enough to find out whether it turns"), "{name}: {reported}");
        let timings = measure(&mut Virtual::new(name), &plan(LEAST_TIME.as_secs()), &mut |_| {}).expect("it is enough");
        assert!(!timings.cut_short.is_empty(), "{name}");
    }
}

#[test]
fn a_host_that_notices_late_still_finds_the_disk() {
    for name in ["maxtor_80gb", "cheetah_10k7", "modern"] {
        let mut disk = Virtual::new(name);
        disk.late = Some(SplitMix64::new(3));
        let timings = measure(&mut disk, &PLAN, &mut |_| {}).unwrap();
        let found = timings.rotating.expect("it turns");
        let spec = spec(name);
        let truth = Disk::new(&spec);
        assert_eq!((found.rpm, found.heads.count), (spec.rpm, spec.heads), "{name}");
        assert_eq!(found.zones.len(), truth.geometry().zone_starts().count(), "{name}");
        for zone in &found.zones {
            let track = truth.geometry().track_sectors(Lba(zone.start + zone.sectors / 2));
            assert!(is_near(f64::from(zone.sectors_per_track), f64::from(track), 0.003), "{name}: {zone:?} of {track}");
        }
        for seek in &found.seeks {
            let time = truth.read_seek().time(seek.cylinders).0 as f64 / 1e6;
            assert!((seek.ms - time).abs() < time * 0.05 + 0.05, "{name}: {seek:?} of {time}");
        }
    }
}
