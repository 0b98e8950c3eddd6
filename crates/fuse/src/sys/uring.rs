//! An io_uring of one entry of a queue: one command at a time, which registers the entry or answers and fetches.
//!
//! The rings are mapped, and the structs laid out, as `linux/io_uring.h` and io_uring(7) describe them.

use std::io;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io_uring::{
    IORING_OFF_SQES, IoringEnterFlags, IoringOp, IoringSetupFlags, io_uring_enter, io_uring_params, io_uring_setup,
};
use zerocopy::{FromBytes, IntoBytes};

use crate::abi::{self, Submission, uring};
use crate::memory::Pages;
use crate::transport::slot::Slot;

/// Submissions have 128 bytes. One thread uses the ring, and the kernel writes to the buffers only while it waits.
const SETUP: IoringSetupFlags =
    IoringSetupFlags::SQE128.union(IoringSetupFlags::SINGLE_ISSUER).union(IoringSetupFlags::DEFER_TASKRUN);
/// Commands at once: the kernel wants a power of two.
const ENTRIES: u32 = 1;

const _: () = assert!(size_of::<Submission>() == 128);

/// A ring and its mappings.
struct Ring {
    file: OwnedFd,
    /// Heads, tails, indices and completions.
    rings: Pages,
    submissions: Pages,
    at: io_uring_params,
}

impl Ring {
    fn new() -> io::Result<Ring> {
        let mut at = io_uring_params::default();
        at.flags = SETUP;
        // SAFETY: the ring has no command yet.
        let file = unsafe { io_uring_setup(ENTRIES, &mut at) }?;
        // One mapping has both rings (Linux 5.4): the longer one counts. A completion has 16 bytes.
        let of_submissions = at.sq_off.array as usize + at.sq_entries as usize * 4;
        let of_completions = at.cq_off.cqes as usize + at.cq_entries as usize * 16;
        let rings = Pages::of_file(file.as_fd(), 0, of_submissions.max(of_completions))?;
        let length = at.sq_entries as usize * size_of::<Submission>();
        let submissions = Pages::of_file(file.as_fd(), IORING_OFF_SQES, length)?;
        let ring = Ring { file, rings, submissions, at };
        // A seccomp filter may forbid this call alone: better known before the kernel holds requests back.
        tolerate_interruption(ring.enter(0, 0))?;
        Ok(ring)
    }

    /// A number that the kernel reads and writes too.
    fn shared(&self, offset: u32) -> &AtomicU32 {
        // SAFETY: offsets are the kernel's, aligned and within the mapping, which lives as long as the ring.
        unsafe { AtomicU32::from_ptr(self.rings.start().as_ptr().add(offset as usize).cast()) }
    }

    /// Puts a command into the ring.
    fn push(&self, submission: &Submission) {
        let tail = self.shared(self.at.sq_off.tail);
        let now = tail.load(Ordering::Relaxed);
        let index = now & self.shared(self.at.sq_off.ring_mask).load(Ordering::Relaxed);
        let places: NonNull<Submission> = self.submissions.start().cast();
        // SAFETY: the index is below the number of entries, and the kernel took the last command before its completion
        // came.
        unsafe { places.as_ptr().add(index as usize).write(*submission) };
        self.shared(self.at.sq_off.array + index * 4).store(index, Ordering::Relaxed);
        tail.store(now.wrapping_add(1), Ordering::Release);
    }

    /// Hands `commands` commands over and waits for `completions` completions.
    fn enter(&self, commands: u32, completions: u32) -> io::Result<()> {
        let flags = if completions > 0 { IoringEnterFlags::GETEVENTS } else { IoringEnterFlags::empty() };
        // SAFETY: works on the ring's own memory and on what its commands name.
        unsafe { io_uring_enter(&self.file, commands, completions, flags) }?;
        Ok(())
    }

    /// Commands that the kernel has not taken yet.
    fn waiting(&self) -> u32 {
        let tail = self.shared(self.at.sq_off.tail).load(Ordering::Relaxed);
        tail.wrapping_sub(self.shared(self.at.sq_off.head).load(Ordering::Acquire))
    }

    /// The result of the next completion, which stays.
    fn peek(&self) -> Option<i32> {
        let head = self.shared(self.at.cq_off.head).load(Ordering::Relaxed);
        if head == self.shared(self.at.cq_off.tail).load(Ordering::Acquire) {
            return None;
        }
        let index = head & self.shared(self.at.cq_off.ring_mask).load(Ordering::Relaxed);
        // The result is behind the eight bytes of user data.
        Some(self.shared(self.at.cq_off.cqes + index * 16 + 8).load(Ordering::Relaxed) as i32)
    }

    /// Takes the next completion away.
    fn advance(&self) {
        self.shared(self.at.cq_off.head).fetch_add(1, Ordering::Release);
    }
}

/// A request that an entry took.
pub(crate) struct Fetched {
    pub(crate) header: abi::InHeader,
    /// The place of the operation's struct.
    pub(crate) operation: [u8; uring::HEADER_ROOM],
    /// Bytes of the request in the payload.
    pub(crate) payload: usize,
    pub(crate) commit_id: u64,
}

/// An entry of a queue, with its ring. The thread that made it uses it, and no other.
pub(crate) struct QueueEntry {
    // Dropped first. The kernel closes a ring later, on its own, so the device holds the entry until then, but it
    // writes to the slot's memory only while `wait` waits.
    ring: Ring,
    slot: Arc<Slot>,
    device: RawFd,
    queue: u16,
}

impl QueueEntry {
    /// The device must stay open for as long as the entry is there.
    pub(crate) fn new(slot: &Arc<Slot>, device: RawFd, queue: u16) -> io::Result<QueueEntry> {
        Ok(QueueEntry { ring: Ring::new()?, slot: Arc::clone(slot), device, queue })
    }

    /// Adds the entry to its queue. By its return it is free, or has a request already.
    pub(crate) fn register(&mut self) -> io::Result<()> {
        self.register_with(self.slot.payload().len())
    }

    /// A registration that the kernel must refuse: it hands the connection back to `/dev/fuse`.
    pub(crate) fn register_too_short(&mut self) -> io::Result<()> {
        self.register_with(1)
    }

    fn register_with(&mut self, payload: usize) -> io::Result<()> {
        let place = |pages: &Pages, length| libc::iovec { iov_base: pages.start().as_ptr().cast(), iov_len: length };
        let headers = self.slot.headers();
        let places = [place(headers, headers.len()), place(self.slot.payload(), payload)];
        let mut submission = self.command(uring::REGISTER, 0);
        (submission.addr, submission.len) = (places.as_ptr() as u64, places.len() as u32);
        self.ring.push(&submission);
        // The places are read within this call.
        self.submit()?;
        // A refusal comes at once. Anything else is a request, for `wait`.
        match self.ring.peek() {
            Some(result) if result < 0 => Err(io::Error::from_raw_os_error(-result)),
            _ => Ok(()),
        }
    }

    fn command(&self, operation: u32, commit_id: u64) -> Submission {
        let mut submission = Submission::default();
        (submission.opcode, submission.fd, submission.cmd_op) = (IoringOp::UringCmd as u8, self.device, operation);
        submission.command = abi::UringCmdReq { commit_id, qid: self.queue, ..abi::UringCmdReq::default() };
        submission
    }

    /// Sends an answer, if there is one, without waiting. True: the entry is free, its buffers unused until a wait.
    pub(crate) fn submit(&mut self) -> io::Result<bool> {
        while self.ring.waiting() > 0 {
            tolerate_interruption(self.ring.enter(self.ring.waiting(), 0))?;
        }
        Ok(self.ring.peek().is_none())
    }

    /// Waits for a request, and sends the answer before it if there is one.
    pub(crate) fn wait(&mut self) -> io::Result<Fetched> {
        let result = loop {
            if let Some(result) = self.ring.peek() {
                break result;
            }
            tolerate_interruption(self.ring.enter(self.ring.waiting(), 1))?;
        };
        self.ring.advance();
        if result < 0 {
            return Err(io::Error::from_raw_os_error(-result));
        }
        let headers = self.slot.read_headers();
        let header =
            abi::InHeader::read_from_prefix(&headers.in_out).map_or_else(|_| abi::InHeader::default(), |(it, _)| it);
        let abi::UringEntInOut { commit_id, payload_sz, .. } = headers.ring_ent_in_out;
        Ok(Fetched { header, operation: headers.op_in, payload: payload_sz as usize, commit_id })
    }

    /// Lays out the answer, whose payload has this length. [`QueueEntry::submit`] or [`QueueEntry::wait`] sends it.
    pub(crate) fn answer(&mut self, fetched: &Fetched, error: i32, length: usize) {
        let mut headers = abi::UringReqHeader::default();
        let whole = size_of::<abi::OutHeader>() + length;
        let header = abi::OutHeader { len: whole as u32, error, unique: fetched.header.unique };
        // It has room for more.
        let _ = header.write_to_prefix(&mut headers.in_out);
        headers.ring_ent_in_out.commit_id = fetched.commit_id;
        headers.ring_ent_in_out.payload_sz = length as u32;
        self.slot.write_headers(&headers);
        self.ring.push(&self.command(uring::COMMIT_AND_FETCH, fetched.commit_id));
    }
}

fn tolerate_interruption(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => Ok(()),
        result => result,
    }
}
