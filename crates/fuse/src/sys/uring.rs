//! An io_uring of one entry of a queue: one command at a time, which registers the entry or answers and fetches.
//!
//! The rings are mapped, and the structs laid out, as `linux/io_uring.h` and io_uring(7) describe them.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::abi::{self, uring};
use crate::memory::Pages;
use crate::transport::slot::Slot;

/// `IORING_SETUP_SQE128`
pub(crate) const SUBMISSIONS_OF_128_BYTES: u32 = 1 << 10;
/// `IORING_SETUP_SINGLE_ISSUER`: one thread makes the ring and uses it.
pub(crate) const ONE_THREAD: u32 = 1 << 12;
/// `IORING_SETUP_DEFER_TASKRUN`: a request is written to the buffers only while this thread waits for one.
pub(crate) const DELIVER_IN_WAIT: u32 = 1 << 13;
/// `IORING_OFF_SQES`
pub(crate) const SUBMISSIONS: u64 = 0x1000_0000;
/// `IORING_ENTER_GETEVENTS`
pub(crate) const WAIT: u32 = 1;
/// `IORING_OP_URING_CMD`
pub(crate) const COMMAND: u8 = 46;
/// Commands at once: the kernel wants a power of two.
const ENTRIES: u32 = 1;

/// `io_sqring_offsets`
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
struct SubmissionOffsets {
    head: u32,
    tail: u32,
    ring_mask: u32,
    ring_entries: u32,
    flags: u32,
    dropped: u32,
    array: u32,
    reserved: u32,
    user_addr: u64,
}

/// `io_cqring_offsets`
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
struct CompletionOffsets {
    head: u32,
    tail: u32,
    ring_mask: u32,
    ring_entries: u32,
    overflow: u32,
    cqes: u32,
    flags: u32,
    reserved: u32,
    user_addr: u64,
}

/// `io_uring_params`
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
struct Params {
    sq_entries: u32,
    cq_entries: u32,
    flags: u32,
    sq_thread_cpu: u32,
    sq_thread_idle: u32,
    features: u32,
    wq_fd: u32,
    reserved: [u32; 3],
    submissions: SubmissionOffsets,
    completions: CompletionOffsets,
}

/// `io_uring_sqe` of 128 bytes, for commands.
#[repr(C)]
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
struct Submission {
    opcode: u8,
    flags: u8,
    ioprio: u16,
    fd: i32,
    cmd_op: u32,
    padding: u32,
    addr: u64,
    len: u32,
    rw_flags: u32,
    user_data: u64,
    buf_index: u16,
    personality: u16,
    splice_fd_in: i32,
    command: abi::UringCmdReq,
    rest: [u8; 56],
}

const _: () = assert!(size_of::<Submission>() == 128 && size_of::<Params>() == 120);

/// A ring and its mappings.
struct Ring {
    file: OwnedFd,
    /// Heads, tails, indices and completions.
    rings: Pages,
    submissions: Pages,
    at: Params,
}

impl Ring {
    fn new() -> io::Result<Ring> {
        let mut at = Params::new_zeroed();
        at.flags = SUBMISSIONS_OF_128_BYTES | ONE_THREAD | DELIVER_IN_WAIT;
        // SAFETY: the kernel reads and fills a struct of this kind; the descriptor that it returns belongs to nobody yet.
        let file = unsafe {
            let number = libc::syscall(libc::SYS_io_uring_setup, ENTRIES, &raw mut at);
            if number < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(number as RawFd)
        };
        // One mapping has both rings (Linux 5.4): the longer one counts. A completion has 16 bytes.
        let of_submissions = at.submissions.array as usize + at.sq_entries as usize * 4;
        let of_completions = at.completions.cqes as usize + at.cq_entries as usize * 16;
        let rings = Pages::of_file(file.as_fd(), 0, of_submissions.max(of_completions))?;
        let submissions = Pages::of_file(file.as_fd(), SUBMISSIONS, at.sq_entries as usize * size_of::<Submission>())?;
        let ring = Ring { file, rings, submissions, at };
        // A filter of system calls may forbid this one alone: better known now than when the kernel holds requests back for the rings.
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
        let tail = self.shared(self.at.submissions.tail);
        let now = tail.load(Ordering::Relaxed);
        let index = now & self.shared(self.at.submissions.ring_mask).load(Ordering::Relaxed);
        let places: NonNull<Submission> = self.submissions.start().cast();
        // SAFETY: the index is below the number of entries, and the kernel took the last command before its completion came.
        unsafe { places.as_ptr().add(index as usize).write(*submission) };
        self.shared(self.at.submissions.array + index * 4).store(index, Ordering::Relaxed);
        tail.store(now.wrapping_add(1), Ordering::Release);
    }

    /// Hands commands over and waits for so many completions.
    fn enter(&self, commands: u32, completions: u32) -> io::Result<()> {
        let flags = if completions > 0 { WAIT } else { 0 };
        let none = std::ptr::null::<libc::c_void>();
        let file = self.file.as_raw_fd();
        // SAFETY: works on the ring's own memory and on what its commands name.
        let done = unsafe { libc::syscall(libc::SYS_io_uring_enter, file, commands, completions, flags, none, 0) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Commands that the kernel has not taken yet.
    fn waiting(&self) -> u32 {
        let tail = self.shared(self.at.submissions.tail).load(Ordering::Relaxed);
        tail.wrapping_sub(self.shared(self.at.submissions.head).load(Ordering::Acquire))
    }

    /// The result of the next completion, which stays.
    fn peek(&self) -> Option<i32> {
        let head = self.shared(self.at.completions.head).load(Ordering::Relaxed);
        if head == self.shared(self.at.completions.tail).load(Ordering::Acquire) {
            return None;
        }
        let index = head & self.shared(self.at.completions.ring_mask).load(Ordering::Relaxed);
        // The result stands behind the eight bytes of user data.
        Some(self.shared(self.at.completions.cqes + index * 16 + 8).load(Ordering::Relaxed) as i32)
    }

    /// Takes the next completion away.
    fn advance(&self) {
        self.shared(self.at.completions.head).fetch_add(1, Ordering::Release);
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
pub(crate) struct Entry {
    // Dropped first. The kernel closes a ring later, on its own, so the device holds the entry until then, but it writes to the
    // slot's memory only while `wait` waits.
    ring: Ring,
    slot: Arc<Slot>,
    device: RawFd,
    queue: u16,
}

impl Entry {
    /// The device must stay open for as long as the entry is there.
    pub(crate) fn new(slot: &Arc<Slot>, device: RawFd, queue: u16) -> io::Result<Entry> {
        Ok(Entry { ring: Ring::new()?, slot: Arc::clone(slot), device, queue })
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
        let mut submission = Submission::new_zeroed();
        (submission.opcode, submission.fd, submission.cmd_op) = (COMMAND, self.device, operation);
        submission.command = abi::UringCmdReq { commit_id, qid: self.queue, ..abi::UringCmdReq::default() };
        submission
    }

    /// Sends the answer, if there is one, and does not wait. Whether the entry is free: its buffers are unused until [`Entry::wait`].
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

    /// Lays out the answer, whose payload has this length. [`Entry::submit`] or [`Entry::wait`] sends it.
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
