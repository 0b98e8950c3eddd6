//! Schedulers by name.

use thiserror::Error;
use umbrella_units::did_you_mean;

use super::deadline::{Deadline, DeadlineSettings};
use super::elevator::Elevator;
use super::noop::Noop;
use super::{Order, Scheduler};
use crate::device::Device;

/// A scheduler that can be built.
#[derive(Debug, Clone, Copy)]
pub struct SchedulerInfo {
    /// What users call it.
    pub name: &'static str,
    /// What it does, in a few words.
    pub summary: &'static str,
    /// Where it comes from.
    pub source: &'static str,
    pub(super) order: fn() -> Box<dyn Order>,
}

/// A name that no scheduler has.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("no request scheduler is called {name:?}{} (known: {})", did_you_mean(name, known.iter().copied()), known.join(", "))]
pub struct UnknownScheduler {
    /// What was asked for.
    pub name: String,
    /// What there is.
    pub known: Vec<&'static str>,
}

const SCHEDULERS: [SchedulerInfo; 3] = [
    SchedulerInfo {
        name: "noop",
        summary: "first come, first served; merges only",
        source: "Linux block/noop-iosched.c",
        order: || Box::new(Noop::default()),
    },
    SchedulerInfo {
        name: "deadline",
        summary: "batches by address, reads first, deadlines of 500 ms for reads and 5 s for writes",
        source: "Linux block/deadline-iosched.c",
        order: || Box::new(Deadline::new(DeadlineSettings::default())),
    },
    SchedulerInfo {
        name: "elevator",
        summary: "one way over the disk by ascending address (C-LOOK)",
        source: "the textbook's",
        order: || Box::new(Elevator::default()),
    },
];

/// All schedulers, in the order in which they are listed to users.
pub fn schedulers() -> &'static [SchedulerInfo] {
    &SCHEDULERS
}

/// The scheduler of that name.
pub fn scheduler(name: &str) -> Result<&'static SchedulerInfo, UnknownScheduler> {
    let known = || SCHEDULERS.iter().map(|info| info.name).collect();
    SCHEDULERS
        .iter()
        .find(|info| info.name == name)
        .ok_or_else(|| UnknownScheduler { name: name.to_owned(), known: known() })
}

impl SchedulerInfo {
    /// Its queue of `limit` requests (Linux's default is 128) before `device`.
    pub fn build(&self, device: Box<dyn Device>, limit: usize) -> Box<dyn Device> {
        Box::new(Scheduler::new(device, (self.order)(), limit))
    }
}
