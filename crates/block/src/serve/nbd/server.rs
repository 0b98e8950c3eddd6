//! A running server: who is connected, how much they may use, and how it stops.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;
use serde::Serialize;
use umbrella_units::ByteSize;

use super::budget::Budget;
use super::connection;
use super::errors::{Ended, ServeError};
use super::export::Exports;
use super::listen::{Address, Listener};
use super::seldom::Seldom;
use super::socket::Socket;
use super::wire::request::{Command, Request};

/// How long to wait before accepting again when the system has no more files or memory.
const OUT_OF_FILES: Duration = Duration::from_millis(100);

/// What clients may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Connections at once; one more is closed at once.
    pub connections: usize,
    /// Memory that transfers of more than 256 KiB hold together; each needs 32 MiB at most. Half of it is divided among the connections, at
    /// least 1 MiB for each; the rest, at least 32 MiB, is for those who need more. A connection needs up to 1.4 MiB besides, and 256 KiB for
    /// each call at once that its device is worth.
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
struct Counters {
    accepted: AtomicU64,
    turned_away: AtomicU64,
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    written_bytes: AtomicU64,
    flushes: AtomicU64,
    others: AtomicU64,
}

/// What all connections have in common.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) exports: Exports,
    pub(super) limits: Limits,
    pub(super) budget: Budget,
    stopping: AtomicBool,
    connections: Mutex<BTreeMap<u64, Arc<Socket>>>,
    gone: Condvar,
    counters: Counters,
    /// Lines about connections that ended badly, and about clients turned away.
    ended_badly: Seldom,
    turned_away: Seldom,
}

impl Shared {
    pub(super) fn new(exports: Exports, limits: Limits) -> Shared {
        Shared {
            exports,
            limits,
            budget: Budget::new(limits.memory, limits.connections),
            stopping: AtomicBool::new(false),
            connections: Mutex::default(),
            gone: Condvar::new(),
            counters: Counters::default(),
            ended_badly: Seldom::default(),
            turned_away: Seldom::default(),
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

    /// Takes a connection in; nothing if there are too many or the server stops.
    fn admit(self: &Arc<Shared>, socket: Socket) -> Option<Admitted> {
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

    fn each_connection(&self, call: impl Fn(&Socket)) {
        self.connections.lock().values().for_each(|socket| call(socket));
    }

    /// Waits until nobody is connected; false if that took too long.
    fn wait_until_empty(&self, limit: Option<Duration>) -> bool {
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
struct Admitted {
    number: u64,
    socket: Arc<Socket>,
    shared: Arc<Shared>,
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.shared.connections.lock().remove(&self.number);
        self.shared.gone.notify_all();
    }
}

/// A running server. Dropping it stops it, too, but tells nobody of a failed flush.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    listeners: Vec<Arc<Listener>>,
    acceptors: Vec<JoinHandle<()>>,
}

impl Server {
    /// Offers the exports at all these addresses.
    pub fn start(exports: Exports, addresses: &[Address], limits: Limits) -> Result<Server, ServeError> {
        let shared = Arc::new(Shared::new(exports, limits));
        let mut server = Server { shared, listeners: Vec::new(), acceptors: Vec::new() };
        for address in addresses {
            server.listeners.push(Arc::new(Listener::open(address)?));
        }
        for listener in &server.listeners {
            let (mine, shared) = (Arc::clone(listener), Arc::clone(&server.shared));
            let failed = |source| ServeError::Listen { address: listener.address().to_string(), source };
            let thread = std::thread::Builder::new().name("nbd-accept".to_owned());
            server.acceptors.push(thread.spawn(move || accept(&mine, &shared)).map_err(failed)?);
        }
        Ok(server)
    }

    /// Where it listens, with the ports that the system chose.
    pub fn addresses(&self) -> impl Iterator<Item = &Address> {
        self.listeners.iter().map(|listener| listener.address())
    }

    /// Serves a client on a socket that is connected already.
    pub fn take_in(&self, client: OwnedFd) {
        greet(client, &self.shared);
    }

    /// What it has done so far.
    pub fn stats(&self) -> Stats {
        let counters = &self.shared.counters;
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            connections: self.shared.connections.lock().len() as u64,
            accepted: get(&counters.accepted),
            turned_away: get(&counters.turned_away),
            reads: get(&counters.reads),
            read_bytes: get(&counters.read_bytes),
            writes: get(&counters.writes),
            written_bytes: get(&counters.written_bytes),
            flushes: get(&counters.flushes),
            others: get(&counters.others),
        }
    }

    /// Stops: no more clients, requests under way end and are answered, then every device is flushed. Tells of the first flush that failed.
    pub fn stop(mut self) -> Result<(), ServeError> {
        self.end();
        let flush = |export: &super::Export| match export.device().flush() {
            Err(source) if !export.is_read_only() => Err(ServeError::Flush { name: export.name().to_owned(), source }),
            _ => Ok(()),
        };
        // All of them, also behind one that fails.
        let flushed: Vec<_> = self.shared.exports.iter().map(flush).collect();
        flushed.into_iter().collect()
    }

    fn end(&mut self) {
        self.shared.stopping.store(true, Ordering::Relaxed);
        self.listeners.iter().for_each(|listener| listener.close());
        for acceptor in self.acceptors.drain(..) {
            let _ = acceptor.join();
        }
        self.shared.each_connection(Socket::stop_receiving);
        if !self.shared.wait_until_empty(Some(self.shared.limits.grace)) {
            self.shared.each_connection(Socket::close);
            self.shared.wait_until_empty(None);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

fn accept(listener: &Listener, shared: &Arc<Shared>) {
    while !shared.is_stopping() {
        match listener.accept() {
            Ok(client) => greet(client, shared),
            Err(Errno::INTR | Errno::CONNABORTED) => {}
            Err(_) if shared.is_stopping() => {}
            Err(error) => {
                tracing::warn!(address = %listener.address(), %error, "cannot accept a client");
                std::thread::sleep(OUT_OF_FILES);
            }
        }
    }
}

fn greet(client: OwnedFd, shared: &Arc<Shared>) {
    let Some(admitted) = shared.admit(Socket::new(client)) else {
        if let Some(untold) = shared.turned_away.tell() {
            tracing::warn!(limit = shared.limits.connections, untold, "turned a client away: too many connections");
        }
        return;
    };
    let thread = std::thread::Builder::new().name("nbd".to_owned());
    let served = thread.spawn(move || {
        let ended = connection::serve(&admitted.socket, &admitted.shared);
        admitted.socket.close();
        match ended {
            Ended::Closed | Ended::Stopped => tracing::debug!(connection = admitted.number, %ended, "connection ended"),
            ended => {
                if let Some(untold) = admitted.shared.ended_badly.tell() {
                    tracing::warn!(connection = admitted.number, %ended, untold, "connection ended");
                }
            }
        }
    });
    if let Err(error) = served {
        tracing::warn!(%error, "turned a client away: no thread for it");
    }
}
