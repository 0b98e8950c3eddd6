//! Requests over io_uring (Linux 6.14).
//!
//! The kernel has a queue for each possible processor, and puts a request into that of the caller's. A queue has
//! entries: one takes a request, and is free again when that was answered. What the kernel does shapes what is done
//! here:
//!
//! - A request is delivered in the context of the thread that submitted its entry's last command. So each entry has a
//!   thread and a ring of its own: a handler that waits keeps nobody else's request.
//! - A new entry does not fetch what waits in its queue; one that becomes free by an answer does. So there is a spare
//!   before the handler that takes the last free entry is called, up to a stated number. After it registered, its
//!   thread sends a [`poke`]: a request to its own queue. Either the new entry takes it, and its answer fetches what
//!   waits, or another request took the entry before, and the handler of that makes the next spare. The thread must be
//!   on the queue's processor to do so.
//! - The entry that became free last is taken first: the thread that is warm. The others sleep.
//! - Once INIT's answer accepts io_uring the kernel holds every request back until each queue has an entry or a
//!   registration fails. So rings, buffers and threads are made before. Once each queue has an entry there is no way
//!   back.
//! - Entries are never given back before the connection ends.
//! - Forgets and interruptions come from `/dev/fuse`: they get through when all entries are taken.
//!
//! An idle entry holds some 30 KiB of the process (stack, ring), as much in the kernel, and what its buffer used.
//! Those beyond the first [`WARM`] of a queue give the memory of a large request back once that is done.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread::{Builder, JoinHandle};

use rustix::thread::sched_getcpu;

use super::poke;
use super::processors::pin_this_thread;
use super::slot::Slot;
use crate::body::Body;
use crate::channel::Channel;
use crate::device::Device;
use crate::filesystem::Serve;
use crate::memory::RingMemory;
use crate::operation::is_one_way;
use crate::sys::uring::{Fetched, QueueEntry};
use crate::types::RequestId;

/// Entries of a queue at the beginning: one that works, and the spare.
const AT_FIRST: usize = 2;
/// Entries of a queue that keep the memory of large requests.
const WARM: usize = 4;
/// More than this of a buffer is given back.
const KEPT: usize = 64 << 10;

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

/// All queues of a connection.
pub(crate) struct Rings {
    device: Arc<Device>,
    server: Arc<dyn Serve>,
    sizes: Sizes,
    memory: Option<RingMemory>,
    queues: Vec<Arc<Queue>>,
    gate: Gate,
    /// Keeps the file that pokes need.
    watch: OnceLock<OwnedFd>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    slots: Mutex<Vec<Arc<Slot>>>,
}

/// The entries of one processor. No cache line has two: each is written with every request, on its own processor.
#[derive(Default)]
#[repr(align(64))]
struct Queue {
    /// Registered entries, and those of them that have no request.
    all: AtomicUsize,
    free: AtomicUsize,
    /// Whose place in [`RingMemory`] is given away.
    made: AtomicUsize,
    growing: Mutex<()>,
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
    /// Nobody sees the mount: requests are for [`poke`].
    Detached,
    /// They are the file system's, and wait.
    Attached,
    Serving,
    Ended,
}

impl Gate {
    fn set(&self, phase: Phase) {
        *self.phase.lock().unwrap_or_else(PoisonError::into_inner) = phase;
        self.changed.notify_all();
    }

    fn phase(&self) -> Phase {
        *self.phase.lock().unwrap_or_else(PoisonError::into_inner)
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
    starting: Vec<(usize, Starting)>,
    /// Made before it is needed: by then there may be no descriptors.
    give_back: QueueEntry,
}

/// Says how an entry's thread got on: first that it has its ring, then that this is registered.
type Starting = Receiver<io::Result<()>>;

fn wait_until_started(starting: &Starting) -> io::Result<()> {
    starting.recv().unwrap_or_else(|_| Err(ended()))
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
        memory: Option<RingMemory>,
    ) -> io::Result<Prepared> {
        if let Some(memory) = &memory {
            memory.reserve(sizes.queues * sizes.most * Slot::stride(sizes.payload))?;
        }
        let rings = Arc::new(Rings {
            device: Arc::clone(device),
            server,
            sizes,
            memory,
            queues: (0..sizes.queues).map(|_| Arc::default()).collect(),
            gate: Gate::default(),
            watch: OnceLock::new(),
            threads: Mutex::default(),
            slots: Mutex::default(),
        });
        let starting = (0..sizes.queues).flat_map(|queue| [queue; AT_FIRST]);
        let starting = starting.map(|queue| Ok((queue, rings.start(queue)?))).collect::<io::Result<_>>();
        let prepared = starting.and_then(|starting| {
            let slot = Arc::new(Slot::new(1)?);
            let give_back = QueueEntry::new(&slot, device.as_fd().as_raw_fd(), 0)?;
            Ok(Prepared { rings: Arc::clone(&rings), starting, give_back })
        });
        prepared.inspect_err(|_| rings.end())
    }

    /// Starts one entry's thread and waits for its ring. The thread registers when the gate lets it, and reports.
    fn start(self: &Arc<Rings>, number: usize) -> io::Result<Starting> {
        let Some(queue) = self.queues.get(number) else { return Err(ended()) };
        let index = queue.made.load(Ordering::SeqCst);
        let slot = Arc::new(match &self.memory {
            Some(_) if index >= self.sizes.most => return Err(io::Error::other("its memory is used up")),
            Some(memory) => Slot::within(memory, number * self.sizes.most + index, self.sizes.payload)?,
            None => Slot::new(self.sizes.payload)?,
        });
        let (rings, its_slot) = (Arc::clone(self), Arc::clone(&slot));
        let (say, starting) = sync_channel(2);
        let thread = Builder::new().name(format!("fuse-ring-{number}")).spawn(move || {
            rings.run_entry(number, its_slot, index < WARM, &say);
        })?;
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        wait_until_started(&starting)?;
        queue.made.store(index + 1, Ordering::SeqCst);
        self.slots.lock().unwrap_or_else(PoisonError::into_inner).push(slot);
        Ok(starting)
    }

    /// The life of an entry's thread.
    fn run_entry(self: Arc<Rings>, queue: usize, slot: Arc<Slot>, is_warm: bool, say: &SyncSender<io::Result<()>>) {
        self.server.thread_starts();
        let entry = match QueueEntry::new(&slot, self.device.as_fd().as_raw_fd(), queue as u16) {
            Ok(entry) => entry,
            Err(error) => return drop(say.send(Err(error))),
        };
        let _ = say.send(Ok(()));
        let mut worker =
            Worker { rings: self, queue, slot, entry, is_warm, pinned: false, tries: 0, is_serving: false };
        if let Err(error) = worker.run(say)
            && worker.rings.device.is_connected()
        {
            tracing::warn!(processor = queue, %error, "a request thread ended: io_uring failed");
        }
    }

    /// Makes pokes possible, while the mount is at this descriptor only. From here on requests are the file system's.
    pub(crate) fn prepare_pokes(&self, mount: BorrowedFd<'_>) {
        self.gate.set(Phase::Detached);
        let poked = poke::keep_file(mount).and_then(|watch| {
            let _ = self.watch.set(watch);
            self.device.poke()
        });
        if let Err(error) = poked {
            self.device.warn_of_shortage(format!(
                "io_uring: cannot wake queues: {error}; while a request waits, others of its processor may wait too (set transport to dev)"
            ));
        }
        self.gate.set(Phase::Attached);
    }

    /// Lets requests be served.
    pub(crate) fn serve(&self) {
        self.gate.set(Phase::Serving);
    }

    /// The connection is over, or was never used: threads end, those in a handler when it returns.
    pub(crate) fn end(&self) {
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

    /// Adds an entry to the queue, if it has no free entry and may have one more.
    fn add_entry(self: &Arc<Rings>, number: usize) {
        let Some(queue) = self.queues.get(number) else { return };
        let _growing = queue.growing.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.free.load(Ordering::SeqCst) > 0 || self.gate.phase() == Phase::Ended {
            return;
        }
        let all = queue.all.load(Ordering::SeqCst);
        if all >= self.sizes.most {
            return self.warn(number, format!("all {all} request threads of this processor are busy"));
        }
        if let Err(error) = self.start(number).and_then(|starting| wait_until_started(&starting)) {
            self.warn(number, format!("cannot start another thread for requests after {all}: {}", with_remedy(&error)));
        }
    }

    fn warn(&self, processor: usize, why: impl std::fmt::Display) {
        if self.device.is_connected() {
            let what = "programs on it may wait until another request there is answered";
            self.device.warn_of_shortage(format!("processor {processor}: {why}; {what}"));
        }
    }
}

/// An error of making a ring or its thread, with what to do about it.
pub(crate) fn with_remedy(error: &io::Error) -> String {
    let remedy = match error.raw_os_error() {
        Some(libc::EPERM) => "a seccomp filter or kernel.io_uring_disabled forbids io_uring",
        Some(libc::ENOMEM) => "raise the limit of locked memory (LimitMEMLOCK= in a unit) or of memory",
        Some(libc::EMFILE) => "raise the limit of descriptors (LimitNOFILE= in a unit)",
        Some(libc::EAGAIN) => "raise the limit of threads (TasksMax= in a unit)",
        _ => return error.to_string(),
    };
    format!("{error} ({remedy})")
}

fn ended() -> io::Error {
    io::ErrorKind::ConnectionAborted.into()
}

impl Prepared {
    /// Ends the threads, because there is no connection to register with.
    pub(crate) fn abandon(self) {
        self.rings.end();
    }

    /// Registers all entries. If a queue gets none, all end, and `/dev/fuse` has the requests. If only a spare fails,
    /// the rings are in use and there is no way back: it is started again when it is needed.
    pub(crate) fn register(mut self) -> Result<Arc<Rings>, Refused> {
        self.rings.gate.set(Phase::Registering);
        let mut failed = None;
        for (queue, starting) in &self.starting {
            if let Err(error) = wait_until_started(starting) {
                failed = Some((*queue, error));
            }
        }
        let Some((queue, error)) = failed else { return Ok(self.rings) };
        if self.rings.queues.iter().all(|queue| queue.all.load(Ordering::SeqCst) > 0) {
            self.rings.warn(queue, format!("cannot start its second thread for requests: {}", with_remedy(&error)));
            return Ok(self.rings);
        }
        // The kernel gives the connection back when a registration fails in its hands, and not when it did not get that
        // far.
        let refused = self.give_back.register_too_short();
        self.rings.end();
        Err(match refused {
            Err(refused) if refused.raw_os_error() == Some(libc::EINVAL) => Refused::GivenBack(error),
            _ => Refused::Stuck(error),
        })
    }
}

/// The thread of one entry.
struct Worker {
    rings: Arc<Rings>,
    queue: usize,
    slot: Arc<Slot>,
    entry: QueueEntry,
    is_warm: bool,
    pinned: bool,
    /// Requests that came while it was not.
    tries: u32,
    /// The gate lets requests through.
    is_serving: bool,
}

impl Worker {
    fn run(&mut self, say: &SyncSender<io::Result<()>>) -> io::Result<()> {
        if self.rings.gate.wait(Phase::Registering) == Phase::Ended {
            return Ok(());
        }
        self.pinned = pin_this_thread(self.queue).is_ok();
        if let Err(error) = self.entry.register() {
            let _ = say.send(Err(error));
            return Ok(());
        }
        let Some(queue) = self.rings.queues.get(self.queue).cloned() else { return Ok(()) };
        queue.all.fetch_add(1, Ordering::SeqCst);
        queue.free.fetch_add(1, Ordering::SeqCst);
        self.is_serving = self.rings.gate.phase() == Phase::Serving;
        let _ = say.send(Ok(()));
        if self.rings.gate.wait(Phase::Detached) == Phase::Ended {
            return Ok(());
        }
        if self.is_serving {
            self.poke();
        }
        // A request may have come with the registration.
        loop {
            let fetched = self.entry.wait()?;
            let takes_last = queue.free.fetch_sub(1, Ordering::SeqCst) <= 1;
            let Some((error, length)) = self.serve_request(&fetched, takes_last) else { return Ok(()) };
            queue.free.fetch_add(1, Ordering::SeqCst);
            self.answer(&fetched, error, length)?;
        }
    }

    /// Lays out the answer. Where memory is given back the kernel gets it here, else with the next wait.
    fn answer(&mut self, fetched: &Fetched, error: i32, length: usize) -> io::Result<()> {
        self.entry.answer(fetched, error, length);
        let gives_back = !self.is_warm && fetched.payload.max(length) > KEPT;
        if gives_back && self.entry.submit()? {
            self.slot.payload().release_pages();
        }
        Ok(())
    }

    /// Serves a request. Returns the answer's error number and length; `None` when the connection ended.
    fn serve_request(&mut self, fetched: &Fetched, takes_last: bool) -> Option<(i32, usize)> {
        let header = &fetched.header;
        if Device::is_poke(header) {
            // The entry is free again at once.
            return Some((0, 0));
        }
        self.slot.begin(fetched.payload > 0);
        if !self.is_serving && self.rings.gate.phase() == Phase::Detached {
            poke::answer(header, |answer| {
                let parts = answer.as_ref().map(std::slice::from_ref).map_err(|error| *error);
                self.slot.send(RequestId(header.unique), parts);
            });
            return self.slot.wait_for_answer();
        }
        if !self.is_serving && self.rings.gate.wait(Phase::Serving) == Phase::Ended {
            return None;
        }
        self.is_serving = true;
        self.pin_again();
        if takes_last {
            self.rings.add_entry(self.queue);
        }
        let channel: Arc<dyn Channel> = Arc::<Slot>::clone(&self.slot);
        let payload = self.slot.request(fetched.payload);
        self.rings.server.serve(header, Body::split(&fetched.operation, payload), channel);
        if is_one_way(header.opcode) {
            return Some((0, 0));
        }
        self.slot.wait_for_answer()
    }

    /// Makes the queue check for waiting requests.
    fn poke(&self) {
        if sched_getcpu() != self.queue {
            let why = "the daemon may no longer run on it (AllowedCPUs= in a unit, cpuset.cpus)";
            return self.rings.warn(self.queue, why);
        }
        if let Err(error) = self.rings.device.poke() {
            self.rings.warn(self.queue, format!("cannot wake its queue: {error}"));
        }
    }

    /// Tries again to pin the thread. The processor may have come, or come back, since: a request from it shows that it
    /// is there. If pinning is not allowed, it is tried ever more seldom.
    fn pin_again(&mut self) {
        if self.pinned && sched_getcpu() == self.queue {
            return;
        }
        self.tries = self.tries.wrapping_add(1);
        self.pinned = self.tries.is_power_of_two() && pin_this_thread(self.queue).is_ok();
        if self.pinned {
            self.tries = 0;
        }
    }
}

#[cfg(test)]
mod tests;
