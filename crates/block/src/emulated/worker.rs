//! The disk's own thread: it alone holds the model. It hands calls to the model, and answers them when the model says.
//!
//! Events inside the model happen at their exact virtual time, however late the thread wakes up. A request arrives when
//! its caller made it, and a place in the queue is filled when it becomes free.

use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};

use rustc_hash::FxHashMap;
use umbrella_model::device::{Completion, Device, Op, Request, RequestId};
use umbrella_model::power::{PowerState, Powered};
use umbrella_units::{Lba, Nanos};

use super::Meter;
use super::clock::Clock;

/// A message from a caller, with the time of the call. The answer says that it is done.
#[derive(Debug)]
pub(super) enum WorkerMessage {
    Serve(PendingRequest),
    Standby { at: Nanos, answer: SyncSender<()> },
    Wake { at: Nanos, answer: SyncSender<()> },
    Meter { at: Nanos, answer: SyncSender<Meter> },
    Stop,
}

/// A request whose caller waits.
#[derive(Debug)]
pub(super) struct PendingRequest {
    pub(super) at: Nanos,
    pub(super) op: Op,
    pub(super) lba: Lba,
    pub(super) sectors: u32,
    pub(super) answer: SyncSender<()>,
}

/// A wait for something else than a request.
#[derive(Debug)]
struct PendingWait {
    asleep: bool,
    answer: SyncSender<()>,
}

pub(super) struct DiskWorker {
    device: Powered,
    /// Requests that the device has no room for, in their order.
    waiting: VecDeque<PendingRequest>,
    under_way: FxHashMap<RequestId, (Nanos, SyncSender<()>)>,
    waits: Vec<PendingWait>,
    next: u64,
    served: u64,
    waited: Nanos,
    done: Vec<Completion>,
}

impl DiskWorker {
    pub(super) fn new(device: Powered) -> DiskWorker {
        DiskWorker {
            device,
            waiting: VecDeque::new(),
            under_way: FxHashMap::default(),
            waits: Vec::new(),
            next: 0,
            served: 0,
            waited: Nanos(0),
            done: Vec::new(),
        }
    }

    /// Serves until it is stopped, or until no caller is left.
    pub(super) fn run(mut self, clock: Clock, orders: &Receiver<WorkerMessage>) {
        // Sleeps end when they should, not up to 50 us later. Without it the disk answers a little late.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        loop {
            let first = match self.device.next_event() {
                None => orders.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(at) => orders.recv_timeout(clock.until(at)),
            };
            let first = match first {
                Ok(order) => Some(order),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            // All that came at once is there when the device chooses.
            for order in first.into_iter().chain(orders.try_iter()) {
                if matches!(order, WorkerMessage::Stop) {
                    return;
                }
                self.take(order);
            }
            self.advance(clock.now());
        }
    }

    /// Takes an order at the time at which it was given.
    pub(super) fn take(&mut self, order: WorkerMessage) {
        match order {
            WorkerMessage::Serve(wanted) => {
                self.advance(wanted.at);
                self.waiting.push_back(wanted);
                self.admit(self.device.now());
            }
            WorkerMessage::Standby { at, answer } => {
                self.advance(at);
                self.device.standby(at);
                self.waits.push(PendingWait { asleep: true, answer });
            }
            WorkerMessage::Wake { at, answer } => {
                self.advance(at);
                self.device.wake(at);
                self.waits.push(PendingWait { asleep: false, answer });
            }
            WorkerMessage::Meter { at, answer } => {
                self.advance(at);
                reply(&answer, self.meter());
            }
            WorkerMessage::Stop => {}
        }
    }

    /// Works up to and including that virtual time.
    pub(super) fn advance(&mut self, now: Nanos) {
        while let Some(at) = self.device.next_event().filter(|&at| at <= now) {
            self.step(at);
        }
        self.step(now);
    }

    fn step(&mut self, at: Nanos) {
        self.device.advance(at, &mut self.done);
        for completion in self.done.drain(..) {
            if let Some((since, answer)) = self.under_way.remove(&completion.id) {
                self.served += 1;
                self.waited = self.waited + completion.at.since(since);
                reply(&answer, ());
            }
        }
        self.admit(at);
        let device = &self.device;
        self.waits.retain(|wait| {
            let granted = if wait.asleep { !device.is_going_to_sleep() } else { is_spinning(device.state()) };
            if granted {
                reply(&wait.answer, ());
            }
            !granted
        });
    }

    fn admit(&mut self, now: Nanos) {
        while self.device.room() > 0 {
            let Some(PendingRequest { at, op, lba, sectors, answer }) = self.waiting.pop_front() else { return };
            let id = RequestId(self.next);
            self.next += 1;
            self.under_way.insert(id, (at, answer));
            self.device.submit(now.max(at), Request { id, op, lba, sectors });
        }
    }

    pub(super) fn meter(&self) -> Meter {
        Meter {
            now: self.device.now(),
            state: self.device.state(),
            device: self.device.stats(),
            power: self.device.power_stats(),
            spec: *self.device.spec(),
            served: self.served,
            waited: self.waited,
        }
    }
}

fn is_spinning(state: PowerState) -> bool {
    matches!(state, PowerState::Active | PowerState::Idle)
}

/// Sends an answer. A caller that has stopped waiting does not get it.
fn reply<T>(answer: &SyncSender<T>, what: T) {
    let _ = answer.try_send(what);
}
