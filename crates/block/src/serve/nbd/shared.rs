//! The common state of a server's connections: limits, counters, and the open connections.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use serde::Serialize;
use umbrella_units::ByteSize;

use super::budget::Budget;
use super::export::Exports;
use super::rate_limit::RateLimit;
use super::socket::Socket;
use super::wire::request::{Command, Request};

/// What clients may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Connections at once; one more is closed at once.
    pub connections: usize,
    /// Memory that transfers of more than 256 KiB hold together; each needs 32 MiB at most. Half of it is divided among
    /// the connections, at least 1 MiB for each; the rest, at least 32 MiB, is for connections that need more. A
    /// connection needs up to 1.4 MiB besides, and 256 KiB for each call at once that its device is worth.
    pub memory: ByteSize,
    /// How long a negotiation may take.
    pub handshake: Duration,
    /// How long a client may pause in the middle of a message, or not take its answers.
    pub pause: Duration,
    /// How long a stop waits for clients to take their answers.
    pub grace: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 64,
            memory: ByteSize(256 << 20),
            handshake: Duration::from_secs(10),
            pause: Duration::from_secs(30),
            grace: Duration::from_secs(10),
        }
    }
}

/// What a server has done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Stats {
    /// Connections now.
    pub connections: u64,
    /// Connections since the start.
    pub accepted: u64,
    /// Connections closed because there were too many.
    pub turned_away: u64,
    /// Reads carried out.
    pub reads: u64,
    /// Bytes of them.
    pub read_bytes: u64,
    /// Writes carried out.
    pub writes: u64,
    /// Bytes of them.
    pub written_bytes: u64,
    /// Flushes carried out.
    pub flushes: u64,
    /// Other requests carried out.
    pub others: u64,
}

#[derive(Debug, Default)]
pub(super) struct ServerCounters {
    pub(super) accepted: AtomicU64,
    pub(super) turned_away: AtomicU64,
    pub(super) reads: AtomicU64,
    pub(super) read_bytes: AtomicU64,
    pub(super) writes: AtomicU64,
    pub(super) written_bytes: AtomicU64,
    pub(super) flushes: AtomicU64,
    pub(super) others: AtomicU64,
}

/// What all connections have in common.
#[derive(Debug)]
pub(super) struct ServerShared {
    pub(super) exports: Exports,
    pub(super) limits: Limits,
    pub(super) budget: Budget,
    pub(super) stopping: AtomicBool,
    pub(super) connections: Mutex<BTreeMap<u64, Arc<Socket>>>,
    pub(super) gone: Condvar,
    pub(super) counters: ServerCounters,
    /// Lines about connections that ended badly, and about clients turned away.
    pub(super) ended_badly: RateLimit,
    pub(super) turned_away: RateLimit,
}

impl ServerShared {
    pub(super) fn new(exports: Exports, limits: Limits) -> ServerShared {
        ServerShared {
            exports,
            limits,
            budget: Budget::new(limits.memory, limits.connections),
            stopping: AtomicBool::new(false),
            connections: Mutex::default(),
            gone: Condvar::new(),
            counters: ServerCounters::default(),
            ended_badly: RateLimit::default(),
            turned_away: RateLimit::default(),
        }
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    pub(super) fn count(&self, request: &Request) {
        let counters = &self.counters;
        let (count, bytes) = match request.command {
            Command::Read => (&counters.reads, Some(&counters.read_bytes)),
            Command::Write => (&counters.writes, Some(&counters.written_bytes)),
            Command::Flush => (&counters.flushes, None),
            _ => (&counters.others, None),
        };
        count.fetch_add(1, Ordering::Relaxed);
        if let Some(bytes) = bytes {
            bytes.fetch_add(u64::from(request.length), Ordering::Relaxed);
        }
    }

    /// Takes a connection in; `None` if there are too many or the server stops.
    pub(super) fn admit(self: &Arc<ServerShared>, socket: Socket) -> Option<Admitted> {
        let mut connections = self.connections.lock();
        if connections.len() >= self.limits.connections || self.is_stopping() {
            self.counters.turned_away.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let number = self.counters.accepted.fetch_add(1, Ordering::Relaxed);
        let socket = Arc::new(socket);
        connections.insert(number, Arc::clone(&socket));
        Some(Admitted { number, socket, shared: Arc::clone(self) })
    }

    pub(super) fn for_each_connection(&self, call: impl Fn(&Socket)) {
        self.connections.lock().values().for_each(|socket| call(socket));
    }

    /// Waits until no connection is left; false if that took too long.
    pub(super) fn wait_until_empty(&self, limit: Option<Duration>) -> bool {
        let mut connections = self.connections.lock();
        match limit {
            None => self.gone.wait_while(&mut connections, |connections| !connections.is_empty()),
            Some(limit) => {
                return !self
                    .gone
                    .wait_while_for(&mut connections, |connections| !connections.is_empty(), limit)
                    .timed_out();
            }
        }
        true
    }
}

/// A place among the connections; free again when dropped.
pub(super) struct Admitted {
    pub(super) number: u64,
    pub(super) socket: Arc<Socket>,
    pub(super) shared: Arc<ServerShared>,
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.shared.connections.lock().remove(&self.number);
        self.shared.gone.notify_all();
    }
}
