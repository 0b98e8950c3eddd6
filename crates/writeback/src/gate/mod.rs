//! Where writers wait. No thread waits, only the answer to a write.
//!
//! Below the set point an answer goes out at once. Between set point and limit, answers go out in order, at a pace that
//! follows the disk. It is twice the disk's rate just above the set point, its rate in the middle, and zero at the
//! limit. So every write is slowed down a little, instead of a single one for long.
//!
//! No writer is stuck. All waiting writers continue when nothing reached the disk for [`STALL_TIMEOUT`], when the
//! policy has nothing to offer, and when the flusher stops. Then only the kernel's own limits hold.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use umbrella_units::{Nanos, Pages};

use crate::thresholds::Thresholds;

/// How long writers wait for a disk that does nothing.
pub(crate) const STALL_TIMEOUT: Duration = Duration::from_secs(5);
/// How often a writer's turn is looked at, at least.
const LOOK: Duration = Duration::from_millis(20);
/// How often the kernel's thresholds are looked at while something is dirty.
const TICK: Duration = Duration::from_millis(250);
/// The rate of the disk is measured over so long.
const WINDOW: Duration = Duration::from_millis(250);
/// The rate that is assumed before any was measured, and the least, in pages a second.
const UNKNOWN_RATE: f64 = 2048.0;
const LEAST_RATE: f64 = 64.0;

/// What continues when its turn has come.
pub(crate) type Continuation = Box<dyn FnOnce() + Send>;

struct Waiter {
    pages: Pages,
    since: Instant,
    go: Continuation,
}

/// Figures for the status.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct GateStats {
    pub(crate) waiting: u64,
    pub(crate) held: u64,
    pub(crate) waited: Nanos,
    /// Pages that reached the disk in a second, lately.
    pub(crate) rate: Pages,
    pub(crate) stalled: bool,
}

/// What the disk did since the last measurement, and in how long; rests between do not count.
struct Window {
    last: Instant,
    busy: Duration,
    pages: Pages,
}

impl Window {
    /// Pages reached the disk. A rate, now and then.
    fn add(&mut self, now: Instant, pages: Pages) -> Option<f64> {
        self.busy += now.saturating_duration_since(self.last);
        self.pages.0 += pages.0;
        self.last = now;
        if self.busy < WINDOW {
            return None;
        }
        let measured = self.pages.0 as f64 / self.busy.as_secs_f64();
        (self.busy, self.pages) = (Duration::ZERO, Pages(0));
        Some(measured)
    }
}

struct GateState {
    waiting: VecDeque<Waiter>,
    thresholds: Thresholds,
    /// The last writer that was released: when, and how many pages it wrote.
    last: (Instant, Pages),
    /// Pages a second.
    rate: Option<f64>,
    window: Window,
    progress: Instant,
    stalled: bool,
    stopped: bool,
    waits: u64,
    waited: Duration,
}

/// See the module.
pub(crate) struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
    /// Pages dirty or on their way.
    level: AtomicU64,
    set_point: AtomicU64,
    background: AtomicU64,
    stall_timeout: Duration,
}

/// At which rate writers may write, when the disk writes at `rate`; `None`: not now.
fn pace(level: Pages, thresholds: Thresholds, rate: f64) -> Option<f64> {
    if level >= thresholds.limit {
        return None;
    }
    let (room, span) = (thresholds.limit.0 - level.0, thresholds.limit.0 - thresholds.set_point.0);
    Some(rate.max(LEAST_RATE) * 2.0 * room as f64 / span.max(1) as f64)
}

impl Gate {
    pub(crate) fn new(thresholds: Thresholds, stall_timeout: Duration) -> Gate {
        let now = Instant::now();
        Gate {
            state: Mutex::new(GateState {
                waiting: VecDeque::new(),
                thresholds,
                last: (now, Pages(0)),
                rate: None,
                window: Window { last: now, busy: Duration::ZERO, pages: Pages(0) },
                progress: now,
                stalled: false,
                stopped: false,
                waits: 0,
                waited: Duration::ZERO,
            }),
            changed: Condvar::new(),
            level: AtomicU64::new(0),
            set_point: AtomicU64::new(thresholds.set_point.0),
            background: AtomicU64::new(thresholds.background.0),
            stall_timeout,
        }
    }

    /// Sets the number of pages that are dirty or on their way.
    pub(crate) fn set_level(&self, level: Pages) {
        if self.level.swap(level.0, Ordering::Relaxed) == 0 && level.0 > 0 {
            // Who has looked already waits by now.
            drop(self.state.lock());
            self.changed.notify_one();
        }
    }

    /// Lets a writer continue, now or later.
    pub(crate) fn pass(&self, wrote: Pages, go: Continuation) {
        if self.level().0 < self.set_point.load(Ordering::Relaxed) {
            return go();
        }
        let mut state = self.state.lock();
        if state.stopped || state.stalled {
            drop(state);
            return go();
        }
        state.waits += 1;
        state.waiting.push_back(Waiter { pages: wrote, since: Instant::now(), go });
        drop(state);
        self.changed.notify_one();
    }

    /// The disk begins to work after a rest.
    pub(crate) fn begins(&self) {
        self.state.lock().window.last = Instant::now();
    }

    /// Notes that `pages` pages reached the disk.
    pub(crate) fn progress(&self, pages: Pages) {
        let mut state = self.state.lock();
        let now = Instant::now();
        state.progress = now;
        state.stalled = false;
        if let Some(measured) = state.window.add(now, pages) {
            state.rate = Some(state.rate.map_or(measured, |rate| f64::midpoint(rate, measured)));
        }
        if !state.waiting.is_empty() {
            self.changed.notify_one();
        }
    }

    /// Nothing can be written: no writer shall wait for it.
    pub(crate) fn nothing_to_write(&self) {
        self.state.lock().stalled = true;
        self.changed.notify_one();
    }

    pub(crate) fn set_thresholds(&self, thresholds: Thresholds) {
        self.set_point.store(thresholds.set_point.0, Ordering::Relaxed);
        self.background.store(thresholds.background.0, Ordering::Relaxed);
        self.state.lock().thresholds = thresholds;
        self.changed.notify_one();
    }

    /// Where write-back begins.
    pub(crate) fn background(&self) -> Pages {
        Pages(self.background.load(Ordering::Relaxed))
    }

    fn level(&self) -> Pages {
        Pages(self.level.load(Ordering::Relaxed))
    }

    pub(crate) fn thresholds(&self) -> Thresholds {
        self.state.lock().thresholds
    }

    pub(crate) fn waits(&self) -> GateStats {
        let state = self.state.lock();
        GateStats {
            waiting: state.waiting.len() as u64,
            held: state.waits,
            waited: Nanos(u64::try_from(state.waited.as_nanos()).unwrap_or(u64::MAX)),
            rate: Pages(state.rate.unwrap_or_default() as u64),
            stalled: state.stalled,
        }
    }

    /// Releases all writers, now and later.
    pub(crate) fn stop(&self) {
        self.state.lock().stopped = true;
        self.changed.notify_one();
    }

    /// Lets writers go until the flusher stops, and calls `tick` now and then. It sleeps while nothing is dirty and no
    /// writer waits.
    pub(crate) fn run(&self, tick: impl Fn()) {
        let mut ticked = Instant::now();
        loop {
            if ticked.elapsed() >= TICK {
                ticked = Instant::now();
                tick();
            }
            let mut state = self.state.lock();
            // Not before: a tick takes a while, and writers continue meanwhile.
            let (due, wait) = state.due(self.level(), Instant::now(), self.stall_timeout);
            if due.is_empty() {
                if state.stopped {
                    return;
                }
                if self.level() == Pages(0) && state.waiting.is_empty() {
                    self.changed.wait(&mut state);
                } else {
                    self.changed.wait_for(&mut state, wait.min(TICK));
                }
            }
            drop(state);
            for waiter in due {
                (waiter.go)();
            }
        }
    }
}

impl GateState {
    /// Returns the writers whose turn has come, or else the time until the next check.
    fn due(&mut self, level: Pages, now: Instant, stall_timeout: Duration) -> (Vec<Waiter>, Duration) {
        let Some(first) = self.waiting.front() else { return (Vec::new(), TICK) };
        let stalled_from = self.progress.max(first.since) + stall_timeout;
        self.stalled |= level >= self.thresholds.set_point && now >= stalled_from;
        let all = self.stopped || self.stalled || level < self.thresholds.set_point;
        let go = if all {
            self.waiting.len()
        } else {
            let Some(pace) = pace(level, self.thresholds, self.rate.unwrap_or(UNKNOWN_RATE)) else {
                return (Vec::new(), LOOK);
            };
            let after = Duration::from_secs_f64((self.last.1.0 as f64 / pace).min(1.0));
            let due = self.last.0 + after;
            if now < due {
                return (Vec::new(), (due - now).min(LOOK));
            }
            1
        };
        let gone: Vec<Waiter> = self.waiting.drain(..go).collect();
        self.last = (now, gone.last().map_or(Pages(0), |waiter| waiter.pages));
        self.waited += gone.iter().map(|waiter| now.saturating_duration_since(waiter.since)).sum::<Duration>();
        (gone, Duration::ZERO)
    }
}

#[cfg(test)]
mod tests;
