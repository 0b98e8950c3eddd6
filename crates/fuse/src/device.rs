//! `/dev/fuse`: requests are read from it, answers and notifications are written to it.

use std::cell::RefCell;
use std::fs::OpenOptions;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno as Sys;
use zerocopy::IntoBytes;

use crate::abi::{self, notify_code, opcode};
use crate::channel::Channel;
use crate::memory::Pages;
use crate::transport::poke;
use crate::types::{Errno, RequestId};

/// More parts than any answer has.
const MOST_PARTS: usize = 6;

thread_local! {
    /// What [`Channel::fill`] lends.
    static SCRATCH: RefCell<Option<Pages>> = const { RefCell::new(None) };
}

/// Ids of retrievals have this bit: no request has.
const RETRIEVE: u64 = 1 << 62;
/// Ids of pokes have this one too.
const POKE: u64 = 1 << 61;

/// One connection with the kernel.
#[derive(Debug)]
pub(crate) struct Device {
    file: OwnedFd,
    /// Retrievals so far, by anyone: the kernel tells them apart by their ids.
    retrievals: AtomicU64,
    /// Why requests may wait in the kernel.
    shortage: OnceLock<String>,
}

/// What a read brought.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Incoming {
    /// A request, with its number of bytes.
    Request(usize),
    /// Nothing this time.
    Again,
    /// The connection is over.
    Ended,
}

impl Device {
    /// A new connection, which no mount has yet.
    pub(crate) fn open() -> io::Result<Device> {
        let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_CLOEXEC).open("/dev/fuse")?;
        Ok(Device::from_fd(file.into()))
    }

    pub(crate) fn from_fd(file: OwnedFd) -> Device {
        Device { file, retrievals: AtomicU64::new(0), shortage: OnceLock::new() }
    }

    /// Waits for a request.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> io::Result<Incoming> {
        match rustix::io::read(&self.file, buffer) {
            Ok(length @ 1..) => Ok(Incoming::Request(length)),
            // ENOENT: it was interrupted before it could be handed over.
            Err(Sys::INTR | Sys::AGAIN | Sys::NOENT) => Ok(Incoming::Again),
            // ECONNABORTED: the connection ended while the request was on its way.
            Ok(0) | Err(Sys::NODEV | Sys::CONNABORTED) => Ok(Incoming::Ended),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes header and parts as one message.
    pub(crate) fn write(&self, unique: u64, error: i32, parts: &[&[u8]]) -> io::Result<()> {
        let length = size_of::<abi::OutHeader>() + parts.iter().map(|part| part.len()).sum::<usize>();
        let header = abi::OutHeader { len: length as u32, error, unique };
        let mut slices = [IoSlice::new(&[]); MOST_PARTS + 1];
        let mut used = 1;
        slices[0] = IoSlice::new(header.as_bytes());
        for part in parts.iter().filter(|part| !part.is_empty()) {
            let Some(slice) = slices.get_mut(used) else { return Err(io::ErrorKind::InvalidInput.into()) };
            *slice = IoSlice::new(part);
            used += 1;
        }
        let written = rustix::io::writev(&self.file, slices.get(..used).unwrap_or_default())?;
        if written == length { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }

    /// Requests the data that the kernel has cached of a node. It arrives as a NOTIFY_REPLY with the returned id.
    pub(crate) fn retrieve(&self, node: u64, offset: u64, size: u32) -> io::Result<u64> {
        self.send_retrieve(RETRIEVE, node, offset, size)
    }

    /// Has the kernel put a request into the queue of the processor that this thread runs on ([`poke`]).
    pub(crate) fn poke(&self) -> io::Result<()> {
        self.send_retrieve(RETRIEVE | POKE, poke::NODE.0, 0, 0).map(drop)
    }

    fn send_retrieve(&self, kind: u64, nodeid: u64, offset: u64, size: u32) -> io::Result<u64> {
        // Even: the lowest bit has a meaning of its own.
        let notify_unique = kind | (((self.retrievals.fetch_add(1, Ordering::Relaxed) + 1) * 2) & (POKE - 1));
        let body = abi::NotifyRetrieveOut { notify_unique, nodeid, offset, size, padding: 0 };
        // The number of a notification is where answers have their error.
        self.write(0, notify_code::RETRIEVE, &[body.as_bytes()])?;
        Ok(notify_unique)
    }

    /// Whether a request is what [`Device::poke`] asked for.
    pub(crate) fn is_poke(header: &abi::InHeader) -> bool {
        header.opcode == opcode::NOTIFY_REPLY && header.unique & POKE != 0
    }

    /// Says, once, that requests may wait in the kernel.
    pub(crate) fn warn_of_shortage(&self, shortage: String) {
        if self.shortage.set(shortage).is_ok() {
            tracing::warn!("{}", self.shortage().unwrap_or_default());
        }
    }

    pub(crate) fn shortage(&self) -> Option<&str> {
        self.shortage.get().map(String::as_str)
    }

    /// Whether the mount is still there.
    pub(crate) fn is_connected(&self) -> bool {
        let mut polled = [PollFd::new(&self.file, PollFlags::IN)];
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        match rustix::event::poll(&mut polled, Some(&now)) {
            Ok(_) => polled.iter().all(|polled| !polled.revents().contains(PollFlags::ERR)),
            Err(_) => true,
        }
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Channel for Device {
    fn send(&self, id: RequestId, answer: Result<&[&[u8]], Errno>) {
        let sent = match answer {
            Ok(parts) => self.write(id.0, 0, parts),
            Err(error) => self.write(id.0, -error.raw(), &[]),
        };
        let Err(error) = sent else { return };
        // Nobody waits any more: interrupted, or the mount is gone.
        let nobody = [libc::ENOENT, libc::ENODEV, libc::ENOTCONN, libc::ECONNABORTED];
        if !error.raw_os_error().is_some_and(|number| nobody.contains(&number)) {
            tracing::warn!(id = id.0, %error, "the kernel refused a reply");
            let _ = self.write(id.0, -Errno::EIO.raw(), &[]);
        }
    }

    fn fill(&self, id: RequestId, size: usize, write: &mut dyn FnMut(&mut [u8]) -> Result<usize, Errno>) {
        // Taken out: what `write` does may come here again.
        let kept = SCRATCH.take().filter(|kept| kept.len() >= size);
        let Some(mut buffer) = kept.or_else(|| Pages::new(size).ok()) else {
            return self.send(id, Err(Errno::ENOMEM));
        };
        let room = buffer.as_mut_slice().get_mut(..size).unwrap_or_default();
        match write(room) {
            Ok(filled) => self.send(id, Ok(&[room.get(..filled).unwrap_or_default()])),
            Err(error) => self.send(id, Err(error)),
        }
        SCRATCH.set(Some(buffer));
    }
}
