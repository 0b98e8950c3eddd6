//! Waiting for a client that asks for one thing at a time.
//!
//! Such a client sees nothing but the time between question and answer, and most of that is spent waking the other
//! side. So its connection looks for the next request for a moment before it goes to sleep. A client with several
//! requests under way gains nothing from that: it is better served by answers that gather while the server sleeps.

use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::errors::Ended;
use super::socket::{ReceiveLimit, Socket};

/// Number of consecutive requests that came alone after which the client counts as of that kind.
const ALONE: u32 = 16;
/// The most of them that are needed, after many unsuccessful looks.
const MOST: u32 = 4096;
/// How long the next request is looked for: several times what a waking client takes to ask again.
const POLL_TIME: Duration = Duration::from_micros(30);

/// How requests have come so far.
#[derive(Debug)]
pub(super) struct Watch {
    /// Requests in a row that came alone.
    alone: u32,
    /// How many make it worth to look.
    needed: u32,
}

impl Default for Watch {
    fn default() -> Watch {
        Watch { alone: 0, needed: ALONE }
    }
}

impl Watch {
    /// Notes how many requests were answered since the last wait.
    pub(super) fn note(&mut self, answered: u32) {
        self.alone = if answered == 1 { self.alone.saturating_add(1) } else { 0 };
    }

    /// Receives; 0 at the end, [`Errno::AGAIN`] if nothing has come within the socket's limit.
    pub(super) fn receive(&mut self, socket: &Socket, room: &mut [u8]) -> Result<usize, Ended> {
        match self.try_receive(socket, room)? {
            Some(got) => Ok(got),
            None => Ok(socket.receive(room, ReceiveLimit::Some)?),
        }
    }

    /// Looks for a moment, if the client is of that kind.
    pub(super) fn try_receive(&mut self, socket: &Socket, room: &mut [u8]) -> Result<Option<usize>, Ended> {
        if self.alone < self.needed {
            return Ok(None);
        }
        let begun = Instant::now();
        loop {
            match socket.receive_now(room) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                received => {
                    self.needed = ALONE;
                    return Ok(Some(received?));
                }
            }
            if begun.elapsed() > POLL_TIME {
                // It does something else. What it costs to look is spent again only after it has asked for a while.
                self.alone = 0;
                self.needed = (self.needed * 2).min(MOST);
                return Ok(None);
            }
            std::hint::spin_loop();
        }
    }
}
