//! The two ways to the driver that need unsafe code: commands over io_uring, and the requests that it shows in memory.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;

use io_uring::cqueue;
use io_uring::squeue::{Entry, Entry128};
use io_uring::types::Fd;
use io_uring::{IoUring, opcode};
use rustix::event::{EventfdFlags, eventfd};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::wire::{self, ABORTED, ControlCommand, IoRequest, PAYLOAD_BYTES, QueueCommand, REQUEST_BYTES, RequestTag};

/// Commands to the driver, one at a time.
pub(super) struct Control {
    ring: IoUring<Entry128, cqueue::Entry>,
    file: File,
    /// How many were sent.
    sent: u64,
}

impl Control {
    /// Sends commands to the driver's control device.
    pub(super) fn new(file: File) -> io::Result<Control> {
        Ok(Control { ring: IoUring::builder().build(2)?, file, sent: 0 })
    }

    /// Executes a command and waits for its end. The driver may change the payload.
    pub(super) fn call(
        &mut self,
        command: ControlCommand,
        device: u32,
        data: u64,
        payload: Option<&mut [u8; PAYLOAD_BYTES]>,
    ) -> io::Result<()> {
        self.sent += 1;
        // Not on the stack: should waiting fail, the kernel may use it for longer than this call lasts.
        let held = Box::into_raw(Box::new(payload.as_deref().copied().unwrap_or([0; PAYLOAD_BYTES])));
        let bytes = if payload.is_some() { PAYLOAD_BYTES } else { 0 };
        let address = if payload.is_some() { held.expose_provenance() as u64 } else { 0 };
        let carried = wire::command(device, address, bytes, data);
        let entry = opcode::UringCmd80::new(Fd(self.file.as_raw_fd()), command.opcode()).cmd(carried);
        let entry = entry.build().user_data(self.sent);
        // SAFETY: the entry points at `held` alone, which is freed only after the command has been completed.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.map_err(|_| io::Error::from(io::ErrorKind::WouldBlock))?;
        let result = self.completion(self.sent)?;
        // SAFETY: it came from `Box::into_raw` above, and the kernel is done with it.
        let held = unsafe { Box::from_raw(held) };
        if let Some(payload) = payload {
            *payload = *held;
        }
        if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(()) }
    }

    fn completion(&mut self, number: u64) -> io::Result<i32> {
        loop {
            wait(&self.ring)?;
            if let Some(entry) = self.ring.completion().find(|entry| entry.user_data() == number) {
                return Ok(entry.result());
            }
        }
    }
}

/// An event of a queue's ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RingEvent {
    /// A request arrived.
    Request(RequestTag),
    /// No more requests come for a tag: because the device ends (`None`), or because of an error (its negated errno).
    Ended(Option<i32>),
    /// The [`Notifier`] has woken the thread.
    Notified,
}

/// Marks the notifier's entry in the ring; tags are smaller.
const NOTIFIED: u64 = u64::MAX;

/// The queue of a device. Only the thread that sends the first command may use it.
pub(super) struct Queue {
    ring: IoUring,
    requests: Requests,
    file: OwnedFd,
    notifier: Notifier,
}

impl Queue {
    /// The queue of the device whose file this is.
    pub(super) fn new(file: OwnedFd, depth: u16, notifier: Notifier) -> io::Result<Queue> {
        let ring = IoUring::new(u32::from(depth) + 1)?;
        Ok(Queue { ring, requests: Requests::map(&file, depth)?, file, notifier })
    }

    /// Adds a command to the ring. The next wait submits it.
    pub(super) fn send(&mut self, command: QueueCommand, tag: RequestTag, result: i32) -> io::Result<()> {
        let entry = opcode::UringCmd16::new(Fd(self.file.as_raw_fd()), command.opcode());
        let entry = entry.cmd(wire::queue_command(tag, result)).build().user_data(u64::from(tag.0));
        self.push(&entry)
    }

    /// Lets the notifier wake the thread, once. The next wait submits this.
    pub(super) fn arm_notifier(&mut self) -> io::Result<()> {
        let entry = opcode::PollAdd::new(Fd(self.notifier.0.as_raw_fd()), libc::POLLIN as u32);
        self.push(&entry.build().user_data(NOTIFIED))
    }

    fn push(&mut self, entry: &Entry) -> io::Result<()> {
        // SAFETY: neither command points at memory: data goes by the device's file. Both files are closed after the
        // ring.
        let pushed = unsafe { self.ring.submission().push(entry) };
        // It has a place for each tag and the notifier.
        pushed.map_err(|_| io::Error::from(io::ErrorKind::WouldBlock))
    }

    /// Submits the commands in the ring, without waiting.
    pub(super) fn submit(&self) -> io::Result<()> {
        self.ring.submit().map(drop)
    }

    /// Submits the commands in the ring, and waits for an event.
    pub(super) fn wait(&self) -> io::Result<()> {
        wait(&self.ring)
    }

    /// Appends the events that have arrived.
    pub(super) fn events(&mut self, to: &mut Vec<RingEvent>) {
        to.extend(self.ring.completion().map(|entry| match (entry.user_data(), entry.result()) {
            (NOTIFIED, _) => RingEvent::Notified,
            (tag, 0) => RingEvent::Request(RequestTag(tag as u16)),
            (_, ABORTED) => RingEvent::Ended(None),
            (_, failed) => RingEvent::Ended(Some(failed)),
        }));
    }

    /// The request of a tag. Valid from [`RingEvent::Request`] until its result is sent.
    pub(super) fn request(&self, tag: RequestTag) -> Option<IoRequest> {
        self.requests.read(tag)
    }

    /// Resets the notifier after [`RingEvent::Notified`].
    pub(super) fn clear_notification(&self) {
        let _ = rustix::io::read(&self.notifier.0, &mut [0; 8]);
    }
}

/// Waits for a completion. Signals do not end the wait.
fn wait<S, C>(ring: &IoUring<S, C>) -> io::Result<()>
where
    S: io_uring::squeue::EntryMarker,
    C: cqueue::EntryMarker,
{
    loop {
        match ring.submit_and_wait(1) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            waited => return waited.map(drop),
        }
    }
}

/// Wakes the queue's thread.
#[derive(Debug)]
pub(super) struct Notifier(OwnedFd);

impl Notifier {
    pub(super) fn new() -> io::Result<Notifier> {
        Ok(Notifier(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Another handle on the same notifier.
    pub(super) fn try_clone(&self) -> io::Result<Notifier> {
        Ok(Notifier(self.0.try_clone()?))
    }

    pub(super) fn notify(&self) {
        // Fails only at 2^64 - 2 notifications that were not read.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }
}

/// The requests in the memory that the driver shares: one for each tag.
struct Requests {
    start: NonNull<u8>,
    bytes: usize,
    depth: u16,
}

// SAFETY: the memory is mapped until the value is dropped, whichever thread has it, and is only read.
unsafe impl Send for Requests {}

impl Requests {
    fn map(file: &OwnedFd, depth: u16) -> io::Result<Requests> {
        // The driver takes whole pages, and the exact number of them.
        let bytes = (usize::from(depth) * REQUEST_BYTES).next_multiple_of(rustix::param::page_size());
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let start = unsafe { mmap(std::ptr::null_mut(), bytes, ProtFlags::READ, MapFlags::SHARED, file, 0) }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Requests { start, bytes, depth })
    }

    fn read(&self, tag: RequestTag) -> Option<IoRequest> {
        if tag.0 >= self.depth {
            return None;
        }
        // SAFETY: the mapping has a request for each tag below the depth, at a multiple of its size; volatile, as the
        // driver writes it.
        let bytes = unsafe {
            self.start.add(usize::from(tag.0) * REQUEST_BYTES).cast::<[u8; REQUEST_BYTES]>().as_ptr().read_volatile()
        };
        Some(IoRequest::decode(&bytes))
    }
}

impl Drop for Requests {
    fn drop(&mut self) {
        // SAFETY: it is this value's own mapping, and nothing refers to it.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
