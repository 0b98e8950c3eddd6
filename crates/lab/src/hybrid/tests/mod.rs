//! The event loop: its times on devices whose requests take a round time each, so that every time can be worked out by
//! hand, and its data on modelled devices.

mod contents;
mod times;

use std::collections::VecDeque;

use umbrella_model::device::{Completion, Device, DeviceStats, Op, Request};
use umbrella_model::power::{Milliwatts, Phase, PowerSpec, Powered, SpindleSpec};
use umbrella_units::{ByteSize, Lba, Nanos, SECTOR_BYTES, SectorRange};

use super::engine::Engine;
use super::*;

/// Serves one request after the other in the same time each; flushing takes none.
struct Clockwork {
    each: Nanos,
    free_at: Nanos,
    under_way: VecDeque<Completion>,
}

impl Device for Clockwork {
    fn room(&self) -> usize {
        1 - self.under_way.len()
    }

    fn submit(&mut self, now: Nanos, request: Request) {
        let time = if matches!(request.op, Op::Flush) { Nanos(0) } else { self.each };
        self.free_at = self.free_at.max(now) + time;
        self.under_way.push_back(Completion { id: request.id, at: self.free_at });
    }

    fn next_event(&self) -> Option<Nanos> {
        self.under_way.front().map(|completion| completion.at)
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Completion>) {
        while self.under_way.front().is_some_and(|completion| completion.at <= now) {
            done.extend(self.under_way.pop_front());
        }
    }

    fn capacity(&self) -> Lba {
        Lba(1_000_000)
    }

    fn stats(&self) -> DeviceStats {
        DeviceStats::default()
    }
}

const SECOND: Nanos = Nanos::from_secs(1);

/// 4 W active, 2 W idle, 1 W asleep; 2 s of 3 W down, 5 s of 6 W up: it pays after 34 s.
const DISK: PowerSpec = PowerSpec {
    active: Milliwatts(4000),
    idle: Milliwatts(2000),
    spindle: Some(SpindleSpec {
        standby: Milliwatts(1000),
        spin_down: Phase { time: Nanos::from_secs(2), power: Milliwatts(3000) },
        spin_up: Phase { time: Nanos::from_secs(5), power: Milliwatts(6000) },
    }),
};

const FLASH: PowerSpec = PowerSpec { active: Milliwatts(1000), idle: Milliwatts(0), spindle: None };

fn clockwork(each: Nanos, power: PowerSpec) -> Powered {
    Powered::new(Box::new(Clockwork { each, free_at: Nanos(0), under_way: VecDeque::new() }), power)
}

/// A log of `log` sectors; the disk sleeps after 10 s.
fn small(log: u64) -> HybridSetup {
    let cache = Cache::Finite(ByteSize(log * SECTOR_BYTES));
    HybridSetup { cache, spin_down: "fixed:timeout=10s".to_owned(), ..HybridSetup::default() }
}

fn at(millis: u64, direction: Direction, start: u64, sectors: u64) -> Arrival {
    Arrival { at: Nanos::from_millis(millis), direction, range: SectorRange { start: Lba(start), sectors } }
}

fn read(millis: u64, start: u64, sectors: u64) -> Arrival {
    at(millis, Direction::Read, start, sectors)
}

fn write(millis: u64, start: u64, sectors: u64) -> Arrival {
    at(millis, Direction::Write, start, sectors)
}

/// A run of `seconds` seconds, with 10 ms for each request of the disk and 1 ms for each of the flash.
fn run_for(seconds: u64, setup: &HybridSetup, arrivals: &[Arrival]) -> HybridOutcome {
    let input = HybridInput::new("by hand", arrivals.to_vec(), Nanos::from_secs(seconds));
    let devices = || (clockwork(Nanos::from_millis(10), DISK), clockwork(Nanos::from_millis(1), FLASH));
    let mut nobody = ();
    let engine = Engine::with(setup, &input, &mut nobody, devices).unwrap();
    engine.run(&mut |_| true).unwrap()
}

/// Times as whole milliseconds.
fn millis(seconds: f64) -> u64 {
    (seconds * 1000.0).round() as u64
}
