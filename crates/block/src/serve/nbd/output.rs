//! Answers on their way: small ones wait for each other, large ones leave with them.

use rustix::io::Errno;

use super::errors::Ended;
use super::socket::Socket;

/// What waits here at most; a read of this size fits with its front.
const CAPACITY: usize = PIECE + (64 << 10);
/// The largest read whose data are read straight into the output.
pub(super) const PIECE: usize = 256 << 10;
/// Answers that are this large together leave at once, so that the client works while we do.
const SEND_THRESHOLD: usize = 64 << 10;

/// See the module.
#[derive(Debug)]
pub(super) struct Output<'c> {
    socket: &'c Socket,
    buffer: Vec<u8>,
    filled: usize,
}

impl<'c> Output<'c> {
    pub(super) fn new(socket: &'c Socket) -> Output<'c> {
        Output { socket, buffer: vec![0; CAPACITY], filled: 0 }
    }

    /// Room for `bytes` bytes, at most [`CAPACITY`]; they count once they are [`kept`](Output::keep).
    pub(super) fn room(&mut self, bytes: usize) -> Result<&mut [u8], Ended> {
        if self.buffer.len() - self.filled < bytes {
            self.flush()?;
        }
        Ok(self.buffer.get_mut(self.filled..self.filled + bytes).ok_or(Errno::NOBUFS)?)
    }

    /// Makes the first `bytes` bytes of the room part of the output.
    pub(super) fn keep(&mut self, bytes: usize) -> Result<(), Ended> {
        self.filled = (self.filled + bytes).min(self.buffer.len());
        if self.filled >= SEND_THRESHOLD { self.flush() } else { Ok(()) }
    }

    /// Adds a short answer.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<(), Ended> {
        if bytes.len() > self.buffer.len() {
            return self.send(bytes);
        }
        self.room(bytes.len())?.copy_from_slice(bytes);
        self.keep(bytes.len())
    }

    /// Sends what waits, and these data behind it, without copying them.
    pub(super) fn send(&mut self, data: &[u8]) -> Result<(), Ended> {
        let waiting = self.buffer.get(..self.filled).unwrap_or_default();
        self.filled = 0;
        self.socket.send_two(waiting, data).map_err(|error| self.broken(error))
    }

    /// Sends what waits.
    pub(super) fn flush(&mut self) -> Result<(), Ended> {
        let waiting = self.buffer.get(..self.filled).unwrap_or_default();
        self.filled = 0;
        self.socket.send(waiting).map_err(|error| self.broken(error))
    }

    /// Part of an answer may have left: nothing that follows would be understood.
    fn broken(&self, error: Errno) -> Ended {
        self.socket.close();
        error.into()
    }
}
