//! Requests over io_uring (Linux 6.14).
//!
//! The kernel has a queue for each possible processor, and puts a request into the queue of who asks. A queue has entries: an entry takes one
//! request and is free again when that was answered. What the kernel does shapes what is done here:
//!
//! - A request is delivered in the context of the thread that submitted its entry's last command. So each entry has a thread and a ring of its
//!   own: a handler that waits keeps nobody else's request.
//! - A new entry does not fetch what waits in its queue. So there is a spare before the handler that takes the last free entry is
//!   called, up to a stated number, and a poke after it was registered ([`poker`](super::poker)).
//! - The entry that became free last is taken first: the thread that is warm. The others sleep.
//! - Once INIT's answer accepts io_uring the kernel holds every request back until each queue has an entry or a registration fails. So rings,
//!   buffers and threads are made before. Once the rings are ready there is no way back.
//! - Entries are never given back before the connection ends.
//! - Forgets and interruptions come from `/dev/fuse`: they get through when all entries are taken.
//!
//! An idle entry holds some 30 KiB of the process (stack, ring) and as much in the kernel, and what its buffer was used for. Of entries beyond the first
//! [`WARM`] of a queue, which only a burst needs, the buffer gives a large request's memory back.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

use super::Transport;
use super::poker::{MOST_PROCESSORS, Pokers, pin_this_thread};
use super::slot::Slot;
use crate::abi::opcode;
use crate::body::Body;
use crate::channel::Channel;
use crate::device::Device;
use crate::filesystem::Serve;
use crate::operation::is_one_way;
use crate::sys::uring::{Entry, Fetched};

/// Entries of a queue at the beginning: one that works, and the spare.
const AT_FIRST: usize = 2;
/// Entries of a queue that keep the memory of large requests.
const WARM: usize = 4;
/// More than this of a buffer is given back.
const KEPT: usize = 64 << 10;
/// Where root allows the kernel to do it.
const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// What the rings are made for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    /// Possible processors.
    pub(crate) queues: usize,
    /// The most entries of a queue.
    pub(crate) most: usize,
    /// Bytes of a buffer.
    pub(crate) payload: usize,
}

/// Whether io_uring may be tried: the number of queues, or the reason against it. Allows the kernel to do it, if it must be.
pub(crate) fn possible(transport: Transport) -> Result<usize, String> {
    if transport == Transport::Dev {
        return Err("it was asked for".to_owned());
    }
    // Loads the kernel's module, which has the switch.
    let _ = Device::open();
    let switch = std::fs::read_to_string(SWITCH).map_err(|_| "this kernel has no FUSE over io_uring".to_owned())?;
    if switch.trim() != "Y" {
        std::fs::write(SWITCH, "Y").map_err(|error| format!("{SWITCH} is N and cannot be changed: {error}"))?;
        tracing::info!("FUSE over io_uring was off and is now on ({SWITCH})");
    }
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible").map_err(|error| error.to_string())?;
    queues_for(&text)
}

/// One queue for each processor up to the last of this list of possible ones.
fn queues_for(possible: &str) -> Result<usize, String> {
    match last_processor(possible) {
        Some(last) if last < MOST_PROCESSORS => Ok(last + 1),
        Some(last) => Err(format!("it needs threads for each of {} possible processors", last + 1)),
        None => Err("the possible processors are not known".to_owned()),
    }
}

/// The last of a list as `0-3` or `0,2-5`.
fn last_processor(list: &str) -> Option<usize> {
    list.trim().rsplit(['-', ',']).next()?.parse().ok()
}

/// All queues of a connection.
pub(crate) struct Rings {
    device: Arc<Device>,
    server: Arc<dyn Serve>,
    sizes: Sizes,
    queues: Vec<Queue>,
    pokers: Pokers,
    gate: Gate,
    ended: AtomicBool,
    threads: Mutex<Vec<JoinHandle<()>>>,
    slots: Mutex<Vec<Arc<Slot>>>,
}

/// The entries of one processor. No cache line has two: each is written with every request, on its own processor.
#[derive(Default)]
#[repr(align(64))]
struct Queue {
    all: AtomicUsize,
    free: AtomicUsize,
    growing: Mutex<()>,
    /// It was said that it cannot grow.
    warned: AtomicBool,
}

/// Holds threads back: until the rings are to be registered, and until requests are to be served.
#[derive(Default)]
struct Gate {
    phase: Mutex<Phase>,
    changed: Condvar,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
enum Phase {
    #[default]
    Prepared,
    Registering,
    Serving,
    Ended,
}

impl Gate {
    fn set(&self, phase: Phase) {
        *self.phase.lock().unwrap_or_else(PoisonError::into_inner) = phase;
        self.changed.notify_all();
    }

    /// Waits until this phase is there or over.
    fn wait(&self, phase: Phase) -> Phase {
        let now = self.phase.lock().unwrap_or_else(PoisonError::into_inner);
        *self.changed.wait_while(now, |now| *now < phase).unwrap_or_else(PoisonError::into_inner)
    }
}

/// Rings that the kernel does not know yet, with threads that wait.
pub(crate) struct Prepared {
    rings: Arc<Rings>,
    registered: Vec<Receiver<io::Result<()>>>,
    /// Made before it is needed: by then there may be no descriptors.
    give_back: Entry,
}

/// Why there are no rings after all.
#[derive(Debug)]
pub(crate) enum Refused {
    /// `/dev/fuse` has the requests.
    GivenBack(io::Error),
    /// Nobody gets requests.
    Stuck(io::Error),
}

impl Rings {
    /// Makes rings, buffers and threads.
    pub(crate) fn prepare(
        device: &Arc<Device>,
        server: Arc<dyn Serve>,
        sizes: Sizes,
        pokers: Pokers,
    ) -> io::Result<Prepared> {
        let rings = Arc::new(Rings {
            device: Arc::clone(device),
            server,
            sizes,
            queues: (0..sizes.queues).map(|_| Queue::default()).collect(),
            pokers,
            gate: Gate::default(),
            ended: AtomicBool::new(false),
            threads: Mutex::default(),
            slots: Mutex::default(),
        });
        let prepared = (0..sizes.queues).flat_map(|queue| [queue; AT_FIRST]).map(|queue| rings.start(queue));
        let prepared = prepared.collect::<io::Result<_>>().and_then(|registered| {
            let slot = Arc::new(Slot::new(4096)?);
            let give_back = Entry::new(&slot, device.as_fd().as_raw_fd(), 0)?;
            Ok(Prepared { rings: Arc::clone(&rings), registered, give_back })
        });
        prepared.inspect_err(|_| rings.end())
    }

    /// Starts one entry's thread, which registers when the gate lets it and says how that went.
    fn start(self: &Arc<Rings>, queue: usize) -> io::Result<Receiver<io::Result<()>>> {
        let slot = Arc::new(Slot::new(self.sizes.payload)?);
        let entry = Entry::new(&slot, self.device.as_fd().as_raw_fd(), queue as u16)?;
        let (say, hear) = sync_channel(1);
        let is_warm = self.queues.get(queue).is_none_or(|queue| queue.all.load(Ordering::SeqCst) < WARM);
        let (rings, kept) = (Arc::clone(self), Arc::clone(&slot));
        let thread = Builder::new().name(format!("fuse-ring-{queue}")).spawn(move || {
            Worker { rings, queue, slot, entry, is_warm, pinned: false, tries: 0 }.run(&say);
        })?;
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        self.slots.lock().unwrap_or_else(PoisonError::into_inner).push(kept);
        Ok(hear)
    }

    /// Lets requests be served.
    pub(crate) fn serve(&self) {
        self.gate.set(Phase::Serving);
    }

    /// The connection is over: threads that sleep or hold a request end; those in a handler when it returns.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
        self.gate.set(Phase::Ended);
        for slot in self.slots.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            slot.end();
        }
        loop {
            let thread = self.threads.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let Some(thread) = thread else { break };
            // A panic in it was logged when it happened.
            let _ = thread.join();
        }
    }

    /// Sees to it that the queue has a free entry, if it may have one more.
    fn grow(self: &Arc<Rings>, number: usize) {
        let Some(queue) = self.queues.get(number) else { return };
        let _growing = queue.growing.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.free.load(Ordering::SeqCst) > 0 || self.ended.load(Ordering::SeqCst) {
            return;
        }
        let most = self.sizes.most;
        let grown = if queue.all.load(Ordering::SeqCst) < most {
            self.start(number).and_then(|hear| hear.recv().unwrap_or_else(|_| Err(ended())))
        } else {
            Err(io::Error::other("it has as many as it may have"))
        };
        match grown {
            Ok(()) => self.pokers.poke(number),
            Err(error) if self.device.is_connected() && !queue.warned.swap(true, Ordering::SeqCst) => {
                tracing::warn!(processor = number, most, %error, "no further entry: requests may wait in the kernel");
            }
            Err(_) => {}
        }
    }
}

fn ended() -> io::Error {
    io::ErrorKind::ConnectionAborted.into()
}

impl Prepared {
    /// Ends the threads: there is nothing to register with.
    pub(crate) fn abandon(self) {
        self.rings.end();
    }

    /// Registers all entries. If one fails, all end, and `/dev/fuse` has the requests.
    pub(crate) fn register(mut self) -> Result<Arc<Rings>, Refused> {
        self.rings.gate.set(Phase::Registering);
        let mut result = Ok(());
        for hear in &self.registered {
            result = result.and(hear.recv().unwrap_or_else(|_| Err(ended())));
        }
        if let Err(error) = result {
            // The kernel gives the connection back when a registration fails in its hands, and not when it did not get that far.
            let refused = self.give_back.register_too_short();
            self.rings.end();
            return Err(match refused {
                Err(refused) if refused.raw_os_error() == Some(libc::EINVAL) => Refused::GivenBack(error),
                _ => Refused::Stuck(error),
            });
        }
        Ok(self.rings)
    }
}

/// The thread of one entry.
struct Worker {
    rings: Arc<Rings>,
    queue: usize,
    slot: Arc<Slot>,
    entry: Entry,
    is_warm: bool,
    pinned: bool,
    /// Requests that came while it was not.
    tries: u32,
}

impl Worker {
    fn run(mut self, say: &SyncSender<io::Result<()>>) {
        self.rings.server.thread_starts();
        if self.rings.gate.wait(Phase::Registering) == Phase::Ended {
            let _ = say.send(Err(ended()));
            return;
        }
        self.pinned = pin_this_thread(self.queue);
        let registered = self.entry.register();
        if let (Ok(()), Some(queue)) = (&registered, self.rings.queues.get(self.queue)) {
            queue.all.fetch_add(1, Ordering::SeqCst);
            queue.free.fetch_add(1, Ordering::SeqCst);
        }
        let failed = registered.is_err();
        let _ = say.send(registered);
        if failed || self.rings.gate.wait(Phase::Serving) == Phase::Ended {
            return;
        }
        // A request may have come with the registration.
        while let Ok(fetched) = self.entry.wait() {
            let Some((error, length)) = self.carry_out(&fetched) else { break };
            if let Some(queue) = self.rings.queues.get(self.queue) {
                queue.free.fetch_add(1, Ordering::SeqCst);
            }
            if !self.is_warm && fetched.payload > KEPT {
                self.slot.give_back_from(length);
            }
            self.entry.answer(&fetched, error, length);
        }
    }

    /// The answer's error number and length; none when the connection ended.
    fn carry_out(&mut self, fetched: &Fetched) -> Option<(i32, usize)> {
        let header = &fetched.header;
        if header.opcode == opcode::STATFS && self.rings.pokers.asked(header.pid) {
            // It need not count: the entry is free again at once.
            self.take();
            return Some((-libc::EINTR, 0));
        }
        if self.take() {
            self.rings.grow(self.queue);
        }
        self.pin_again();
        self.slot.begin(fetched.payload > 0);
        let channel: Arc<dyn Channel> = Arc::<Slot>::clone(&self.slot);
        let payload = self.slot.request(fetched.payload);
        self.rings.server.serve(header, Body::split(&fetched.operation, payload), channel);
        if is_one_way(header.opcode) {
            return Some((0, 0));
        }
        self.slot.wait_for_answer()
    }

    /// Counts the entry as taken; whether it was the last free one.
    fn take(&self) -> bool {
        let Some(queue) = self.rings.queues.get(self.queue) else { return false };
        queue.free.fetch_sub(1, Ordering::SeqCst) <= 1
    }

    /// The processor may have come, or come back, since: who asks from it shows that it is there. If it is not allowed, it is tried ever
    /// more seldom.
    fn pin_again(&mut self) {
        // SAFETY: asks which processor this thread runs on.
        let is_there = usize::try_from(unsafe { libc::sched_getcpu() }) == Ok(self.queue);
        if is_there && self.pinned {
            return;
        }
        self.tries = self.tries.wrapping_add(1);
        self.pinned = self.tries.is_power_of_two() && pin_this_thread(self.queue);
        if self.pinned {
            self.tries = 0;
        }
    }
}

#[cfg(test)]
mod tests;
