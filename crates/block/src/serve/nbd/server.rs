//! A running server: where it listens, which clients it accepts, and how it stops.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::io::Errno;

use super::connection;
use super::errors::{Ended, ServeError};
use super::export::Exports;
use super::listen::{Address, Listener};
use super::shared::{Limits, ServerShared, Stats};
use super::socket::Socket;

/// How long to wait before accepting again when the system has no more files or memory.
const OUT_OF_FILES: Duration = Duration::from_millis(100);

/// A running server. Dropping it stops it, too, but reports no failed flush.
#[derive(Debug)]
pub struct Server {
    shared: Arc<ServerShared>,
    listeners: Vec<Arc<Listener>>,
    acceptors: Vec<JoinHandle<()>>,
}

impl Server {
    /// Offers the exports at all these addresses.
    pub fn start(exports: Exports, addresses: &[Address], limits: Limits) -> Result<Server, ServeError> {
        let shared = Arc::new(ServerShared::new(exports, limits));
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
    pub fn serve_client(&self, client: OwnedFd) {
        start_connection(client, &self.shared);
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

    /// Stops: no more clients, requests under way end and are answered, then every device is flushed. Reports the first
    /// flush that failed.
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
        self.shared.for_each_connection(Socket::stop_receiving);
        if !self.shared.wait_until_empty(Some(self.shared.limits.grace)) {
            self.shared.for_each_connection(Socket::close);
            self.shared.wait_until_empty(None);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

fn accept(listener: &Listener, shared: &Arc<ServerShared>) {
    while !shared.is_stopping() {
        match listener.accept() {
            Ok(client) => start_connection(client, shared),
            Err(Errno::INTR | Errno::CONNABORTED) => {}
            Err(_) if shared.is_stopping() => {}
            Err(error) => {
                tracing::warn!(address = %listener.address(), %error, "cannot accept a client");
                std::thread::sleep(OUT_OF_FILES);
            }
        }
    }
}

fn start_connection(client: OwnedFd, shared: &Arc<ServerShared>) {
    let Some(admitted) = shared.admit(Socket::new(client)) else {
        if let Some(suppressed) = shared.turned_away.admit_report() {
            tracing::warn!(limit = shared.limits.connections, suppressed, "turned a client away: too many connections");
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
                if let Some(suppressed) = admitted.shared.ended_badly.admit_report() {
                    tracing::warn!(connection = admitted.number, %ended, suppressed, "connection ended");
                }
            }
        }
    });
    if let Err(error) = served {
        tracing::warn!(%error, "turned a client away: cannot start a thread for it");
    }
}
