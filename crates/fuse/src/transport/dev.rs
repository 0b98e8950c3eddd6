//! Requests from `/dev/fuse`: threads that read, each with a buffer of its own.
//!
//! Before a thread begins with a request, it makes sure that another one waits for the next. So a handler that waits
//! for something keeps no other request waiting, up to a stated number of threads. Threads end when twice as many wait
//! as stay in any case.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use crate::abi::{self, opcode};
use crate::body::Body;
use crate::channel::Channel;
use crate::device::{Device, Incoming};
use crate::filesystem::Serve;
use crate::memory::{Pages, page_size};
use crate::operation::split_header;

/// Where a request is put, so that the data of a write begins at a page.
const BEFORE_DATA: usize = size_of::<abi::InHeader>() + size_of::<abi::WriteIn>();

/// How many threads read, and what.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Threads that stay.
    pub(crate) least: usize,
    /// Threads while handlers wait, at most.
    pub(crate) most: usize,
    /// The most bytes of a write.
    pub(crate) payload: usize,
    /// Requests that somebody waits for come another way. So a thread rests after the kernel forgot something: what it
    /// forgets meanwhile comes with one read, and no `unlink` wakes a thread of its own.
    pub(crate) gathers: bool,
}

/// How long it rests.
const REST: Duration = Duration::from_millis(1);

/// Reads and serves requests.
pub(crate) struct DeviceReaders {
    device: Arc<Device>,
    server: Arc<dyn Serve>,
    limits: Limits,
    /// As [`Limits::least`], which may change.
    least: AtomicUsize,
    state: Mutex<ReaderThreads>,
    changed: Condvar,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Default)]
struct ReaderThreads {
    /// All threads, and those of them that wait for a request.
    all: usize,
    waiting: usize,
    ended: bool,
    failed: Option<io::Error>,
}

/// How many threads stay that read `/dev/fuse`, of a session that may have ended.
#[derive(Clone)]
pub struct DeviceThreads(pub(crate) Weak<DeviceReaders>);

impl DeviceThreads {
    /// Sets the number of threads to keep, at least 2. Without effect over io_uring.
    pub fn keep(&self, threads: usize) {
        if let Some(readers) = self.0.upgrade() {
            readers.keep(threads.max(2));
        }
    }
}

impl DeviceReaders {
    pub(crate) fn new(device: Arc<Device>, server: Arc<dyn Serve>, limits: Limits) -> Arc<DeviceReaders> {
        let (state, changed, threads) = (Mutex::default(), Condvar::new(), Mutex::default());
        let least = AtomicUsize::new(limits.least);
        Arc::new(DeviceReaders { device, server, limits, least, state, changed, threads })
    }

    /// Keeps `least` threads from now on. Surplus threads end after their next request.
    fn keep(self: &Arc<DeviceReaders>, least: usize) {
        self.least.store(least, Ordering::Relaxed);
        let lacking = self.change(|state| {
            let runs = state.all > 0 && !state.ended;
            if runs { least.min(self.limits.most).saturating_sub(state.all) } else { 0 }
        });
        for _ in 0..lacking {
            // Started later, when it is needed, if it cannot be now.
            let _ = self.start();
        }
    }

    /// Serves until the connection ends and every handler has returned.
    pub(crate) fn run(self: &Arc<DeviceReaders>) -> io::Result<()> {
        self.start()?;
        for _ in 1..self.least.load(Ordering::Relaxed) {
            // Started later, when it is needed, if it cannot be now.
            let _ = self.start();
        }
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut ended = self.changed.wait_while(state, |state| state.all > 0).unwrap_or_else(PoisonError::into_inner);
        let failed = ended.failed.take();
        drop(ended);
        // They hold the file system until they are gone.
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            // A panic in it was logged when it happened.
            let _ = thread.join();
        }
        failed.map_or(Ok(()), Err)
    }

    fn start(self: &Arc<DeviceReaders>) -> io::Result<()> {
        let buffer = Pages::new(page_size() + self.limits.payload)?;
        self.change(|state| {
            state.all += 1;
            state.waiting += 1;
        });
        let readers = Arc::clone(self);
        let started = Builder::new().name("fuse-dev".to_owned()).spawn(move || readers.read_on(buffer));
        let started = started.inspect_err(|error| {
            tracing::warn!(%error, "cannot start another thread for requests");
            self.change(|state| {
                state.all -= 1;
                state.waiting -= 1;
            });
        })?;
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        threads.retain(|thread| !thread.is_finished());
        threads.push(started);
        Ok(())
    }

    fn change<R>(&self, change: impl FnOnce(&mut ReaderThreads) -> R) -> R {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut state);
        if state.all == 0 {
            self.changed.notify_all();
        }
        result
    }

    fn read_on(self: Arc<DeviceReaders>, mut buffer: Pages) {
        self.server.thread_starts();
        loop {
            let room = buffer.as_mut_slice().get_mut(page_size() - BEFORE_DATA..).unwrap_or_default();
            match self.device.read(room) {
                Ok(Incoming::Again) => {}
                Ok(Incoming::Request(length)) => {
                    self.before_handler();
                    let forgot = self.serve(room.get(..length).unwrap_or_default());
                    if !self.after_handler() {
                        return;
                    }
                    if forgot && self.limits.gathers {
                        std::thread::sleep(REST);
                    }
                }
                Ok(Incoming::Ended) => return self.end(None),
                Err(error) => return self.end(Some(error)),
            }
        }
    }

    /// Whether it was only told that the kernel forgot something.
    fn serve(&self, bytes: &[u8]) -> bool {
        let Ok((header, body)) = split_header(bytes) else { return false };
        let channel: Arc<dyn Channel> = Arc::<Device>::clone(&self.device);
        self.server.serve(&header, Body::joined(body), channel);
        matches!(header.opcode, opcode::FORGET | opcode::BATCH_FORGET)
    }

    fn before_handler(self: &Arc<DeviceReaders>) {
        let wants_another = self.change(|state| {
            state.waiting -= 1;
            state.waiting == 0 && !state.ended && state.all < self.limits.most
        });
        if wants_another {
            let _ = self.start();
        }
    }

    /// Whether this thread should continue.
    fn after_handler(&self) -> bool {
        self.change(|state| {
            if state.waiting >= 2 * self.least.load(Ordering::Relaxed) {
                state.all -= 1;
                return false;
            }
            state.waiting += 1;
            true
        })
    }

    fn end(&self, failed: Option<io::Error>) {
        self.change(|state| {
            state.all -= 1;
            state.waiting -= 1;
            state.ended = true;
            state.failed = state.failed.take().or(failed);
        });
    }
}
