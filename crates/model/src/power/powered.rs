//! A device with a motor that can be switched off.
//!
//! ```text
//!           standby              idle             buffer empty           at rest
//!  spinning -------> finishing ------> flushing ------------> stopping -------> asleep
//!   ^   ^                |  wanted         | wanted              | wanted          | wanted
//!   |   +----------------+-----------------+                     v                 v
//!   +------------------------------------------------------- starting <------------+
//! ```
//!
//! - A disk that is sent to sleep first finishes what it has, and writes out its buffer. What comes before the motor is
//!   off keeps it on.
//! - A motor that was switched off comes to rest before it can be started again.
//! - Requests to a disk that is not spinning wait in their order, and start it. A flush or a discard does not: nothing
//!   is left in the buffer.
//!
//! Not modelled: reads that the buffer of a sleeping disk could answer, the heads' way back from their ramp, failed
//! starts.

use std::collections::VecDeque;
use std::fmt;

use umbrella_units::{Lba, Nanos};

use super::{PowerSpec, PowerState, PowerStats};
use crate::device::{Completion, Device, DeviceStats, Op, Request, RequestId};

/// What the motor does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Motor {
    Spinning,
    /// On until what is under way is done.
    Finishing,
    /// On until the buffer is written out.
    Flushing {
        wanted: bool,
    },
    Stopping {
        until: Nanos,
        wanted: bool,
    },
    Asleep,
    Starting {
        until: Nanos,
        /// Whether it is to sleep again right after.
        again: bool,
    },
}

/// A device with a motor that can be switched off, and a meter.
pub struct Powered {
    device: Box<dyn Device + Send>,
    spec: PowerSpec,
    motor: Motor,
    /// Requests that wait for the motor.
    held: VecDeque<Request>,
    /// Requests that the device has.
    under_way: usize,
    /// What is done and was not asked for yet.
    finished: VecDeque<Completion>,
    /// Kept for its memory.
    scratch: Vec<Completion>,
    now: Nanos,
    stats: PowerStats,
}

impl fmt::Debug for Powered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Powered").field("motor", &self.motor).field("now", &self.now).finish_non_exhaustive()
    }
}

impl Powered {
    /// The device, spinning and idle, at time zero.
    pub fn new(device: Box<dyn Device + Send>, spec: PowerSpec) -> Powered {
        Powered {
            device,
            spec,
            motor: Motor::Spinning,
            held: VecDeque::new(),
            under_way: 0,
            finished: VecDeque::new(),
            scratch: Vec::new(),
            now: Nanos(0),
            stats: PowerStats::default(),
        }
    }

    /// Sends it to sleep, once it has written out its buffer. Does nothing to a device without a motor.
    pub fn standby(&mut self, now: Nanos) {
        self.run(now);
        if self.spec.spindle.is_none() || !self.held.is_empty() {
            return;
        }
        match &mut self.motor {
            Motor::Spinning => {
                self.motor = Motor::Finishing;
                self.settle(self.now);
            }
            Motor::Flushing { wanted } | Motor::Stopping { wanted, .. } => *wanted = false,
            Motor::Starting { again, .. } => *again = true,
            Motor::Finishing | Motor::Asleep => {}
        }
    }

    /// Wakes it up, or keeps it awake if it was about to sleep.
    pub fn wake(&mut self, now: Nanos) {
        self.run(now);
        match &mut self.motor {
            Motor::Finishing => self.motor = Motor::Spinning,
            Motor::Flushing { wanted } | Motor::Stopping { wanted, .. } => *wanted = true,
            Motor::Asleep => self.start(self.now),
            Motor::Starting { again, .. } => *again = false,
            Motor::Spinning => {}
        }
    }

    /// Its state at the latest time that it was given.
    pub fn state(&self) -> PowerState {
        match self.motor {
            Motor::Spinning | Motor::Finishing | Motor::Flushing { .. } if self.device.next_event().is_some() => {
                PowerState::Active
            }
            Motor::Spinning | Motor::Finishing | Motor::Flushing { .. } => PowerState::Idle,
            Motor::Stopping { .. } => PowerState::SpinningDown,
            Motor::Asleep => PowerState::Standby,
            Motor::Starting { .. } => PowerState::SpinningUp,
        }
    }

    /// Whether it is on its way to sleep, and nothing has come in between.
    pub fn is_going_to_sleep(&self) -> bool {
        let undisturbed = match self.motor {
            Motor::Finishing => true,
            Motor::Flushing { wanted } | Motor::Stopping { wanted, .. } => !wanted,
            Motor::Starting { again, .. } => again,
            Motor::Spinning | Motor::Asleep => false,
        };
        undisturbed && self.held.is_empty()
    }

    /// The latest time that it was given.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// What it takes from its supply.
    pub fn spec(&self) -> &PowerSpec {
        &self.spec
    }

    /// The figures of its motor, until the latest time that it was given.
    pub fn power_stats(&self) -> PowerStats {
        self.stats
    }

    fn phase(&self, motor: impl Fn(&super::SpindleSpec) -> super::Phase) -> Nanos {
        self.spec.spindle.as_ref().map(motor).map_or(Nanos(0), |phase| phase.time)
    }

    fn start(&mut self, now: Nanos) {
        self.stats.spin_ups += 1;
        self.motor = Motor::Starting { until: now + self.phase(|spindle| spindle.spin_up), again: false };
    }

    /// Goes on with going to sleep once the device has nothing under way.
    fn settle(&mut self, now: Nanos) {
        match self.motor {
            _ if self.under_way > 0 => {}
            Motor::Finishing => {
                self.motor = Motor::Flushing { wanted: false };
                self.hand_over(now, Request { id: RequestId(0), op: Op::Flush, lba: Lba(0), sectors: 0 });
            }
            Motor::Flushing { wanted } if wanted || !self.held.is_empty() => {
                self.motor = Motor::Spinning;
                self.release(now);
            }
            Motor::Flushing { .. } => {
                self.stats.spin_downs += 1;
                self.motor = Motor::Stopping { until: now + self.phase(|spindle| spindle.spin_down), wanted: false };
            }
            _ => {}
        }
    }

    fn hand_over(&mut self, now: Nanos, request: Request) {
        self.under_way += 1;
        self.device.submit(now, request);
    }

    fn release(&mut self, now: Nanos) {
        while let Some(request) = self.held.pop_front() {
            self.hand_over(now, request);
        }
    }

    /// When the motor's state will change by itself.
    fn motor_event(&self) -> Option<Nanos> {
        match self.motor {
            Motor::Stopping { until, .. } | Motor::Starting { until, .. } => Some(until),
            Motor::Spinning | Motor::Finishing | Motor::Flushing { .. } | Motor::Asleep => None,
        }
    }

    fn turn(&mut self, now: Nanos) {
        match self.motor {
            Motor::Stopping { until, wanted } if until <= now => {
                self.motor = Motor::Asleep;
                if wanted || !self.held.is_empty() {
                    self.start(now);
                }
            }
            Motor::Starting { until, again } if until <= now => {
                self.motor = if again { Motor::Finishing } else { Motor::Spinning };
                self.release(now);
                self.settle(now);
            }
            _ => {}
        }
    }

    /// Measures the time up to `now`, in which nothing happens.
    fn measure(&mut self, now: Nanos) {
        let state = self.state();
        self.stats.add(state, now.since(self.now));
        self.now = self.now.max(now);
    }

    /// Works up to and including `now`.
    fn run(&mut self, now: Nanos) {
        let mut done = std::mem::take(&mut self.scratch);
        while let Some(at) = soonest(self.device.next_event(), self.motor_event()).filter(|&at| at <= now) {
            self.measure(at);
            self.device.advance(at, &mut done);
            self.under_way -= done.len().min(self.under_way);
            // The flush is our own: no caller waits for it, and nothing else is under way beside it.
            if matches!(self.motor, Motor::Flushing { .. }) {
                done.clear();
            }
            self.finished.extend(done.drain(..));
            self.settle(at);
            self.turn(at);
        }
        self.scratch = done;
        self.measure(now);
    }
}

fn soonest(one: Option<Nanos>, other: Option<Nanos>) -> Option<Nanos> {
    one.into_iter().chain(other).min()
}

impl Device for Powered {
    fn room(&self) -> usize {
        let ours = matches!(self.motor, Motor::Flushing { .. });
        (self.device.room() + usize::from(ours)).saturating_sub(self.held.len())
    }

    fn submit(&mut self, now: Nanos, request: Request) {
        self.run(now);
        let now = self.now;
        let needs_platters = matches!(request.op, Op::Read | Op::Write);
        match &mut self.motor {
            Motor::Spinning | Motor::Finishing => {
                self.motor = Motor::Spinning;
                return self.hand_over(now, request);
            }
            Motor::Stopping { .. } | Motor::Asleep if !needs_platters && self.held.is_empty() => {
                return self.finished.push_back(Completion { id: request.id, at: now });
            }
            Motor::Flushing { .. } => {}
            Motor::Stopping { .. } => self.stats.delayed += 1,
            Motor::Starting { again, .. } => {
                *again = false;
                self.stats.delayed += 1;
            }
            Motor::Asleep => {
                self.stats.delayed += 1;
                self.start(now);
            }
        }
        self.held.push_back(request);
    }

    fn next_event(&self) -> Option<Nanos> {
        let finished = (!self.finished.is_empty()).then_some(self.now);
        soonest(finished, soonest(self.device.next_event(), self.motor_event()))
    }

    fn advance(&mut self, now: Nanos, done: &mut Vec<Completion>) {
        self.run(now);
        done.extend(self.finished.drain(..));
    }

    fn capacity(&self) -> Lba {
        self.device.capacity()
    }

    fn stats(&self) -> DeviceStats {
        self.device.stats()
    }
}
