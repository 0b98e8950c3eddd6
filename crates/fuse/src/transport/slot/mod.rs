//! The memory of one entry, and the answer that its thread waits for.
//!
//! Request and answer share the payload. What of a request lies there (names, data) may be looked at until its answer
//! is committed, so an answer to such a request is kept beside it until then. Requests without (READ, GETATTR) are
//! answered into the payload itself.

use std::io;
use std::sync::{Condvar, Mutex, PoisonError};

use zerocopy::FromBytes;

use crate::abi;
use crate::channel::Channel;
use crate::memory::{Pages, RingMemory, page_size};
use crate::types::{Errno, RequestId};

const HEADERS: usize = size_of::<abi::UringReqHeader>();

/// See the module.
pub(crate) struct Slot {
    /// Header of the request and of the answer: an [`abi::UringReqHeader`].
    headers: Pages,
    payload: Pages,
    state: Mutex<SlotState>,
    answered: Condvar,
}

#[derive(Default)]
struct SlotState {
    /// The payload holds a part of the request.
    in_use: bool,
    /// Error number and length of the answer.
    answer: Option<(i32, usize)>,
    /// The entry's thread waits for the answer.
    waited_for: bool,
    /// The answer, where the payload is in use.
    beside: Vec<u8>,
    ended: bool,
}

impl Slot {
    pub(crate) fn new(payload: usize) -> io::Result<Slot> {
        Ok(Slot::of(Pages::new(HEADERS)?, Pages::new(payload)?))
    }

    /// The entry of this number among all, in memory that its caller gave.
    pub(crate) fn within(memory: &RingMemory, number: usize, payload: usize) -> io::Result<Slot> {
        let start = number * Slot::stride(payload);
        Ok(Slot::of(memory.map(start, HEADERS)?, memory.map(start + page_size(), payload)?))
    }

    /// Bytes of such memory for each entry: a page for the headers, and the payload.
    pub(crate) fn stride(payload: usize) -> usize {
        page_size() + payload.next_multiple_of(page_size())
    }

    fn of(headers: Pages, payload: Pages) -> Slot {
        Slot { headers, payload, state: Mutex::default(), answered: Condvar::new() }
    }

    pub(crate) fn headers(&self) -> &Pages {
        &self.headers
    }

    pub(crate) fn payload(&self) -> &Pages {
        &self.payload
    }

    /// What the kernel wrote before the payload.
    pub(crate) fn read_headers(&self) -> abi::UringReqHeader {
        // SAFETY: the page is larger than the struct, and the kernel writes to it only while the entry is free.
        let bytes = unsafe { std::slice::from_raw_parts(self.headers.start().as_ptr(), HEADERS) };
        abi::UringReqHeader::read_from_bytes(bytes).unwrap_or_default()
    }

    /// What the kernel is to read with the answer.
    pub(crate) fn write_headers(&self, headers: &abi::UringReqHeader) {
        // SAFETY: the page is larger than the struct, and belongs to the entry's thread, which calls this.
        unsafe { self.headers.start().cast::<abi::UringReqHeader>().write(*headers) };
    }

    /// The part of the request in the payload. Good until the answer is waited for.
    pub(crate) fn request(&self, length: usize) -> &[u8] {
        let length = length.min(self.payload.len());
        // SAFETY: the mapping is at least so long. With a length of 0 nothing is looked at. Otherwise the payload is in
        // use, and nobody writes to it before `wait_for_answer`. The entry's thread calls that after the handler gave
        // the slice back.
        unsafe { std::slice::from_raw_parts(self.payload.start().as_ptr(), length) }
    }

    /// A request was taken.
    pub(crate) fn begin(&self, in_use: bool) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.in_use = in_use;
        (state.answer, state.waited_for) = (None, false);
    }

    /// Waits for the answer and puts it into the payload; none when the connection ended.
    pub(crate) fn wait_for_answer(&self) -> Option<(i32, usize)> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.waited_for = true;
        let waits = |state: &mut SlotState| state.answer.is_none() && !state.ended;
        let mut state = self.answered.wait_while(state, waits).unwrap_or_else(PoisonError::into_inner);
        let (error, length) = state.answer.take()?;
        if state.in_use && length > 0 {
            // SAFETY: the handler has returned and so nobody looks at the payload; `copy_answer` kept the length within
            // it.
            unsafe { self.payload_mut(length) }.copy_from_slice(state.beside.get(..length)?);
        }
        Some((error, length))
    }

    /// Nobody waits any more.
    pub(crate) fn end(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).ended = true;
        self.answered.notify_all();
    }

    /// # Safety
    /// Nobody else may look at the payload, and `length` must be within it.
    #[allow(clippy::mut_from_ref, reason = "the payload belongs to whoever answers; see the callers")]
    unsafe fn payload_mut(&self, length: usize) -> &mut [u8] {
        // SAFETY: the caller's word.
        unsafe { std::slice::from_raw_parts_mut(self.payload.start().as_ptr(), length) }
    }

    fn finish(&self, state: &mut SlotState, answer: Result<usize, Errno>) {
        state.answer = Some(answer.map_or_else(|error| (-error.raw(), 0), |length| (0, length)));
        // A notification is a system call, also when nobody waits.
        if state.waited_for {
            self.answered.notify_one();
        }
    }

    /// Copies an answer to where it may be; its length.
    fn copy_answer(&self, state: &mut SlotState, parts: &[&[u8]]) -> Result<usize, Errno> {
        let length = parts.iter().map(|part| part.len()).sum();
        if length > self.payload.len() {
            return Err(Errno::EIO);
        }
        if state.in_use {
            state.beside.clear();
            for part in parts {
                state.beside.extend_from_slice(part);
            }
            return Ok(length);
        }
        // SAFETY: the request is not in the payload, the length was checked, and one reply exists, which is here.
        let mut to = unsafe { self.payload_mut(length) };
        for part in parts {
            let (piece, rest) = std::mem::take(&mut to).split_at_mut(part.len());
            piece.copy_from_slice(part);
            to = rest;
        }
        Ok(length)
    }
}

impl Channel for Slot {
    fn send(&self, _id: RequestId, answer: Result<&[&[u8]], Errno>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.ended {
            return;
        }
        let answer = answer.and_then(|parts| self.copy_answer(&mut state, parts));
        self.finish(&mut state, answer);
    }

    fn fill(&self, id: RequestId, size: usize, write: &mut dyn FnMut(&mut [u8]) -> Result<usize, Errno>) {
        let in_use = self.state.lock().unwrap_or_else(PoisonError::into_inner).in_use;
        let size = size.min(self.payload.len());
        if in_use {
            let mut buffer = vec![0; size];
            let filled = write(&mut buffer);
            let parts = [buffer.get(..filled.unwrap_or(0)).unwrap_or_default()];
            return self.send(id, filled.map(|_| &parts[..]));
        }
        // SAFETY: the request is not in the payload, the size was limited, and one reply exists, which is here.
        let filled = write(unsafe { self.payload_mut(size) });
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.finish(&mut state, filled);
    }
}

#[cfg(test)]
mod tests;
