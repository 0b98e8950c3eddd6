//! Disks of the model, measured in virtual time, against the figures that they were made of.

use umbrella_model::device::disk::{Disk, DiskSpec};
use umbrella_model::device::profiles::{Options, Spec, profile};
use umbrella_model::device::{Device, Op, Request, RequestId};

use super::*;

/// A device of the model as a disk that is timed.
struct Virtual {
    device: Box<dyn Device + Send>,
    now: Nanos,
    next: u64,
    block: u32,
    unreadable: Vec<u64>,
}

impl Virtual {
    fn new(name: &str) -> Virtual {
        Virtual::of(profile(name).unwrap().build(&Options::default()))
    }

    fn of(device: Box<dyn Device + Send>) -> Virtual {
        Virtual { device, now: Nanos(0), next: 0, block: 1, unreadable: Vec::new() }
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
        if self.unreadable.iter().any(|bad| (start.0..start.0 + u64::from(sectors)).contains(bad)) {
            self.now = self.now + Nanos::from_secs(1);
            return Err(ReadError::Unreadable);
        }
        let sent = self.now;
        self.submit(start, sectors);
        self.wait(1);
        Ok(Timed { sent, done: self.now })
    }

    fn read_together(&mut self, starts: &[Lba], sectors: u32, depth: u32) -> Result<Together, ReadError> {
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
        Ok(Together { time: self.now - sent, unreadable: 0 })
    }
}

const PLAN: Plan = Plan { time: Nanos::from_secs(3600), seed: 1 };

fn spec(name: &str) -> DiskSpec {
    match profile(name).unwrap().spec {
        Spec::Disk(spec) => spec,
        _ => unreachable!("a disk"),
    }
}

#[test]
fn five_model_disks_are_measured_to_what_they_were_made_of() {
    for name in ["maxtor_80gb", "cheetah_10k7", "travelstar_e7k100", "deskstar_500gb", "modern"] {
        let timings = measure(&mut Virtual::new(name), &PLAN, &mut |_| {}).unwrap();
        let found = timings.rotating.as_ref().expect("it turns");
        eprintln!("{name}: {} reads, {:.1} s", timings.reads, timings.seconds);
        eprintln!("  turn {} heads {:?} zones {} {} cylinders {}", found.turn_ms, found.heads, found.zones.len(), found.zones_complete, found.cylinders);
        let spec = spec(name);
        let disk = Disk::new(&spec);
        let geometry = disk.geometry();
        eprintln!("  truth cylinders {} buffer {:?} queue {:?}", geometry.cylinders(), found.buffer, found.queue);
        eprintln!("  head switch {:?} of {:?}", found.head_switch_ms, spec.head_switch);
        let starts: Vec<u64> = geometry.zone_starts().map(|lba| lba.0).collect();
        let wrong = found.zones.iter().filter(|zone| !starts.contains(&zone.start)).count();
        eprintln!("  {wrong} starts wrong of {}; true {}", found.zones.len(), starts.len());
        for zone in &found.zones {
            let truth = geometry.track_sectors(Lba(zone.start));
            if truth != zone.sectors_per_track || std::env::var("ALL").is_ok() {
                eprintln!("  {:?} of {}", zone, truth);
            }
        }
        for seek in &found.seeks {
            let truth = disk.read_seek().time(seek.cylinders);
            eprintln!("  {} {:.3} {:.3}", seek.cylinders, seek.ms, truth.0 as f64 / 1e6);
        }
    }
}
