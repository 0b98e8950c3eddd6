//! What has been received and not yet used.

use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::errors::Ended;
use super::socket::{ReceiveLimit, Socket};
use super::watch::Watch;

/// The most that is received beyond what is needed: many small requests at once, but little of a large one that would
/// be moved again.
const READ_AHEAD: usize = 64 << 10;

/// The largest message that is kept here: what is longer goes to where it is wanted.
pub(super) const LARGEST: usize = 1 << 20;

/// The slowest that a client may send a message, in bytes a second, on top of the time it may pause.
const SLOWEST: u64 = 64 << 10;

/// See the module.
#[derive(Debug)]
pub(super) struct Input {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    watch: Watch,
}

impl Input {
    pub(super) fn new() -> Input {
        Input { buffer: vec![0; READ_AHEAD + LARGEST], start: 0, end: 0, watch: Watch::default() }
    }

    /// What has been received.
    pub(super) fn buffered(&self) -> &[u8] {
        self.buffer.get(self.start..self.end).unwrap_or_default()
    }

    /// The first `N` bytes, if they are there.
    pub(super) fn peek<const N: usize>(&self) -> Option<&[u8; N]> {
        self.buffered().first_chunk()
    }

    /// Notes how many requests were answered since the last wait.
    pub(super) fn note(&mut self, answered: u32) {
        self.watch.note(answered);
    }

    /// Drops up to `bytes` bytes from the front.
    pub(super) fn consume(&mut self, bytes: usize) {
        self.start = (self.start + bytes).min(self.end);
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Receives what there is, at least one byte. [`Errno::AGAIN`] if nothing has come within the socket's limit.
    pub(super) fn receive(&mut self, socket: &Socket) -> Result<(), Ended> {
        self.make_room(READ_AHEAD);
        let to = (self.end + READ_AHEAD).min(self.buffer.len());
        let room = self.buffer.get_mut(self.end..to).ok_or(Errno::NOBUFS)?;
        match self.watch.receive(socket, room)? {
            0 => Err(Ended::Closed),
            got => {
                self.end += got;
                Ok(())
            }
        }
    }

    /// Receives until `len` bytes are there, at most [`LARGEST`], and returns them; the client may pause for `pause`.
    pub(super) fn complete(&mut self, len: usize, socket: &Socket, pause: Duration) -> Result<&[u8], Ended> {
        let have = self.buffered().len();
        if have < len {
            self.make_room(len - have);
            let to = self.end + (len - have);
            let room = self.buffer.get_mut(self.end..to).ok_or(Errno::NOBUFS)?;
            let got = if room.len() <= READ_AHEAD { self.watch.try_receive(socket, room)?.unwrap_or(0) } else { 0 };
            receive_all(socket, room.get_mut(got..).ok_or(Errno::NOBUFS)?, pause)?;
            self.end = to;
        }
        Ok(self.buffered().get(..len).ok_or(Errno::NOBUFS)?)
    }

    /// Moves the next bytes into `to` until it is full, first those received already.
    pub(super) fn fill(&mut self, to: &mut [u8], socket: &Socket, pause: Duration) -> Result<(), Ended> {
        let have = self.buffered().len().min(to.len());
        let (first, rest) = to.split_at_mut(have);
        first.copy_from_slice(self.buffered().get(..have).ok_or(Errno::NOBUFS)?);
        self.consume(have);
        receive_all(socket, rest, pause)
    }

    fn make_room(&mut self, bytes: usize) {
        if self.buffer.len() - self.end < bytes {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
    }
}

/// Fills the buffer. A client may pause, and be slow, but not for ever: it holds memory meanwhile.
fn receive_all(socket: &Socket, mut room: &mut [u8], pause: Duration) -> Result<(), Ended> {
    if room.is_empty() {
        return Ok(());
    }
    let begun = Instant::now();
    let allowed = pause + Duration::from_secs(room.len() as u64 / SLOWEST);
    while !room.is_empty() {
        match socket.receive(room, ReceiveLimit::Full) {
            Ok(0) => return Err(Ended::Closed),
            Ok(got) => room = room.get_mut(got..).ok_or(Errno::NOBUFS)?,
            Err(Errno::AGAIN) => return Err(Ended::Stalled(pause)),
            Err(error) => return Err(error.into()),
        }
        if !room.is_empty() && begun.elapsed() > allowed {
            return Err(Ended::Stalled(pause));
        }
    }
    Ok(())
}
