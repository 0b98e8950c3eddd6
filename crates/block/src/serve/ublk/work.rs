//! Who carries requests out. Calls of a device block, so each that is under way has a thread.

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;
use umbrella_units::SECTOR_BYTES;

use super::kernel::Bell;
use super::params::MOST_BYTES;
use super::wire::{Flags, IoRequest, RequestKind, RequestTag};
use crate::device::{BlockDevice, Durability, Zeroes};
use crate::error::BlockError;
use crate::file::AlignedBuffer;
use crate::serve::errno::errno;
use crate::serve::traffic::TrafficCounters;

/// What lies between the queue and the threads.
#[derive(Debug)]
pub(super) struct Desk {
    incoming: Mutex<Incoming>,
    arrived: Condvar,
    /// Results, until the queue takes them.
    done: Mutex<Vec<(RequestTag, i32)>>,
    bell: Bell,
}

#[derive(Debug, Default)]
struct Incoming {
    requests: VecDeque<(RequestTag, IoRequest)>,
    closed: bool,
}

impl Desk {
    /// One that wakes the queue by this bell.
    pub(super) fn new(bell: Bell) -> Desk {
        Desk { incoming: Mutex::default(), arrived: Condvar::new(), done: Mutex::default(), bell }
    }

    /// Hands a request to the threads.
    pub(super) fn give(&self, tag: RequestTag, request: IoRequest) {
        self.incoming.lock().requests.push_back((tag, request));
        self.arrived.notify_one();
    }

    /// There will be no requests any more; the threads end when they have done what there is.
    pub(super) fn close(&self) {
        self.incoming.lock().closed = true;
        self.arrived.notify_all();
    }

    /// Hands a result to the queue.
    pub(super) fn answer(&self, tag: RequestTag, result: i32) {
        let mut done = self.done.lock();
        // Else the bell has been rung, and the queue has not come yet.
        let first = done.is_empty();
        done.push((tag, result));
        drop(done);
        if first {
            self.bell.ring();
        }
    }

    /// The results since the last time.
    pub(super) fn results(&self) -> Vec<(RequestTag, i32)> {
        std::mem::take(&mut *self.done.lock())
    }

    fn next(&self) -> Option<(RequestTag, IoRequest)> {
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

/// Where the data of requests is.
pub(super) trait Data: Send + Sync {
    /// Fills the buffer with what the request writes.
    fn fetch(&self, tag: RequestTag, buffer: &mut [u8]) -> std::io::Result<()>;

    /// Gives the request what it reads.
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

/// Who carries requests out.
pub(super) struct Worker<D> {
    pub(super) device: Arc<dyn BlockDevice>,
    pub(super) data: D,
    pub(super) counters: Arc<TrafficCounters>,
}

impl<D: Data> Worker<D> {
    /// Carries requests out until there are no more.
    pub(super) fn run(&self, desk: &Desk) {
        // Needs a right that not everybody has; without it, all works but under a shortage of memory.
        let _ = rustix::process::configure_io_flusher_behavior(true);
        let mut buffer = AlignedBuffer::default();
        while let Some((tag, request)) = desk.next() {
            desk.answer(tag, self.carry_out(tag, &request, &mut buffer));
        }
    }

    /// Carries one out. Returns the result for the driver: bytes, or an error's number below zero.
    pub(super) fn carry_out(&self, tag: RequestTag, request: &IoRequest, buffer: &mut AlignedBuffer) -> i32 {
        // A panic costs an answer, and not a thread and a tag.
        let performed = catch_unwind(AssertUnwindSafe(|| self.perform(tag, request, buffer)));
        match performed.unwrap_or(Err(RequestError(Errno::IO.raw_os_error()))) {
            Ok(bytes) => bytes as i32,
            Err(RequestError(code)) => -code,
        }
    }

    /// As [`Worker::carry_out`], with an error as such.
    pub(super) fn perform(
        &self,
        tag: RequestTag,
        request: &IoRequest,
        buffer: &mut AlignedBuffer,
    ) -> Result<usize, RequestError> {
        let range = request.range;
        let durability = if request.flags.contains(Flags::FUA) { Durability::Through } else { Durability::Cached };
        match request.operation {
            RequestKind::Read => {
                let room = room(buffer, request)?;
                self.device.read(range.start, room)?;
                self.data.deliver(tag, room)?;
                self.counters.read(room.len());
                Ok(room.len())
            }
            RequestKind::Write => {
                let room = room(buffer, request)?;
                self.data.fetch(tag, room)?;
                self.device.write(range.start, room, durability)?;
                self.counters.write(range);
                Ok(room.len())
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

/// As much of the buffer as the request has data.
fn room<'b>(buffer: &'b mut AlignedBuffer, request: &IoRequest) -> Result<&'b mut [u8], RequestError> {
    let bytes = request.range.sectors * SECTOR_BYTES;
    if bytes > u64::from(MOST_BYTES) {
        return Err(RequestError(Errno::INVAL.raw_os_error()));
    }
    Ok(buffer.room(bytes as usize))
}

/// Why a request could not be carried out: the error's number.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RequestError(pub(super) i32);

impl From<BlockError> for RequestError {
    fn from(error: BlockError) -> RequestError {
        RequestError(errno(&error))
    }
}

impl From<std::io::Error> for RequestError {
    /// The data of a request could not be copied: the device is being taken away by force.
    fn from(error: std::io::Error) -> RequestError {
        tracing::warn!(%error, "cannot copy the data of a request");
        RequestError(Errno::IO.raw_os_error())
    }
}
