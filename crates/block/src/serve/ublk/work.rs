//! The workers, which execute requests. A call of a device blocks, so each call under way has a thread.

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;
use umbrella_units::SECTOR_BYTES;

use super::kernel::Notifier;
use super::params::MOST_BYTES;
use super::wire::{Flags, IoRequest, RequestKind, RequestTag};
use crate::device::{BlockDevice, Durability, Zeroes};
use crate::error::BlockError;
use crate::file::AlignedBuffer;
use crate::serve::errno::errno;
use crate::serve::traffic::TrafficCounters;

/// Requests for the workers, and their results for the queue's thread.
#[derive(Debug)]
pub(super) struct WorkQueue {
    incoming: Mutex<Incoming>,
    arrived: Condvar,
    /// Results that the queue's thread has not taken yet.
    done: Mutex<Vec<(RequestTag, i32)>>,
    notifier: Notifier,
}

#[derive(Debug, Default)]
struct Incoming {
    requests: VecDeque<(RequestTag, IoRequest)>,
    closed: bool,
}

impl WorkQueue {
    /// An empty queue. `notifier` wakes the queue's thread when there are results.
    pub(super) fn new(notifier: Notifier) -> WorkQueue {
        WorkQueue { incoming: Mutex::default(), arrived: Condvar::new(), done: Mutex::default(), notifier }
    }

    /// Hands a request to the workers.
    pub(super) fn submit(&self, tag: RequestTag, request: IoRequest) {
        self.incoming.lock().requests.push_back((tag, request));
        self.arrived.notify_one();
    }

    /// Accepts no more requests. The workers end when they have executed the remaining ones.
    pub(super) fn close(&self) {
        self.incoming.lock().closed = true;
        self.arrived.notify_all();
    }

    /// Hands a result to the queue's thread.
    pub(super) fn complete(&self, tag: RequestTag, result: i32) {
        let mut done = self.done.lock();
        // Earlier results have notified the queue's thread already.
        let first = done.is_empty();
        done.push((tag, result));
        drop(done);
        if first {
            self.notifier.notify();
        }
    }

    /// Takes the results that came since the last call.
    pub(super) fn take_results(&self) -> Vec<(RequestTag, i32)> {
        std::mem::take(&mut *self.done.lock())
    }

    /// Waits for a request. `None` when the queue is closed and empty.
    fn wait_for_request(&self) -> Option<(RequestTag, IoRequest)> {
        let mut incoming = self.incoming.lock();
        loop {
            if let Some(next) = incoming.requests.pop_front() {
                return Some(next);
            }
            if incoming.closed {
                return None;
            }
            self.arrived.wait(&mut incoming);
        }
    }
}

/// Copies the data of requests between the driver and a buffer.
pub(super) trait Data: Send + Sync {
    /// Copies the data of a write request into the buffer.
    fn fetch(&self, tag: RequestTag, buffer: &mut [u8]) -> std::io::Result<()>;

    /// Copies the bytes to a read request.
    fn deliver(&self, tag: RequestTag, bytes: &[u8]) -> std::io::Result<()>;
}

/// The device's file: each request's data lies at an offset of its own.
impl Data for File {
    fn fetch(&self, tag: RequestTag, buffer: &mut [u8]) -> std::io::Result<()> {
        self.read_exact_at(buffer, tag.data_offset())
    }

    fn deliver(&self, tag: RequestTag, bytes: &[u8]) -> std::io::Result<()> {
        self.write_all_at(bytes, tag.data_offset())
    }
}

/// Executes requests on a device.
pub(super) struct Worker<D> {
    pub(super) device: Arc<dyn BlockDevice>,
    pub(super) data: D,
    pub(super) counters: Arc<TrafficCounters>,
}

impl<D: Data> Worker<D> {
    /// Executes requests until the queue is closed and empty.
    pub(super) fn run(&self, work_queue: &WorkQueue) {
        // Needs a right that not every user has. Without it, all works except under a shortage of memory.
        let _ = rustix::process::configure_io_flusher_behavior(true);
        let mut buffer = AlignedBuffer::default();
        while let Some((tag, request)) = work_queue.wait_for_request() {
            work_queue.complete(tag, self.execute(tag, &request, &mut buffer));
        }
    }

    /// Executes a request. Returns the result for the driver: a count of bytes, or a negated errno.
    pub(super) fn execute(&self, tag: RequestTag, request: &IoRequest, buffer: &mut AlignedBuffer) -> i32 {
        // A panic fails this request, and leaves the thread and the tag in use.
        let executed = catch_unwind(AssertUnwindSafe(|| self.try_execute(tag, request, buffer)));
        match executed.unwrap_or(Err(RequestError(Errno::IO.raw_os_error()))) {
            Ok(bytes) => bytes as i32,
            Err(RequestError(code)) => -code,
        }
    }

    /// As [`Worker::execute`], but returns the error as a value.
    pub(super) fn try_execute(
        &self,
        tag: RequestTag,
        request: &IoRequest,
        buffer: &mut AlignedBuffer,
    ) -> Result<usize, RequestError> {
        let range = request.range;
        let durability = if request.flags.contains(Flags::FUA) { Durability::Through } else { Durability::Cached };
        match request.operation {
            RequestKind::Read => {
                let data = data_buffer(buffer, request)?;
                self.device.read(range.start, data)?;
                self.data.deliver(tag, data)?;
                self.counters.read(data.len());
                Ok(data.len())
            }
            RequestKind::Write => {
                let data = data_buffer(buffer, request)?;
                self.data.fetch(tag, data)?;
                self.device.write(range.start, data, durability)?;
                self.counters.write(range);
                Ok(data.len())
            }
            RequestKind::Flush => {
                self.device.flush()?;
                self.counters.flush();
                Ok(0)
            }
            RequestKind::Discard => {
                self.device.discard(range)?;
                self.counters.other();
                Ok(0)
            }
            RequestKind::WriteZeroes => {
                let zeroes = if request.flags.contains(Flags::KEEP) { Zeroes::Keep } else { Zeroes::Unmap };
                self.device.write_zeroes(range, zeroes, durability)?;
                self.counters.other();
                Ok(0)
            }
            RequestKind::Unknown(_) => Err(RequestError(Errno::OPNOTSUPP.raw_os_error())),
        }
    }
}

/// The part of the buffer that holds the request's data.
fn data_buffer<'b>(buffer: &'b mut AlignedBuffer, request: &IoRequest) -> Result<&'b mut [u8], RequestError> {
    let bytes = request.range.sectors * SECTOR_BYTES;
    if bytes > u64::from(MOST_BYTES) {
        return Err(RequestError(Errno::INVAL.raw_os_error()));
    }
    Ok(buffer.room(bytes as usize))
}

/// The errno of a failed request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RequestError(pub(super) i32);

impl From<BlockError> for RequestError {
    fn from(error: BlockError) -> RequestError {
        RequestError(errno(&error))
    }
}

impl From<std::io::Error> for RequestError {
    /// The data of a request could not be copied: the device is removed by force.
    fn from(error: std::io::Error) -> RequestError {
        tracing::warn!(%error, "cannot copy the data of a request");
        RequestError(Errno::IO.raw_os_error())
    }
}
