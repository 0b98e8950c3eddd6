//! The control socket of a daemon, for any kind of request. Owner-only: the folder is 0700 and the socket 0600, and the
//! peer's user id is checked as well.
//!
//! One request a connection, one JSON object a line: any number of [`Reply::Progress`], then one [`Reply::Done`] or
//! [`Reply::Error`]. Anything that a client sends after its request ([`STOP`]) ends long work, and the answer says how
//! far that came.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{fs, thread};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{RecvFlags, Shutdown, shutdown};
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

use crate::control::protocol::Reply;
use crate::ground::locks::{Condvar, LeafMutex, rank};

/// Longest request.
const LONGEST: u64 = 4 << 20;
/// Most bytes of messages that are gathered before they are sent.
const SEND_THRESHOLD: usize = 16 << 10;
/// How long a client may take to send its request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a client may take to read its answer. A client that does not read counts as gone.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// What a client sends to stop long work.
pub const STOP: &[u8] = b"stop\n";
/// How long the last answers may take.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// What carries out requests, each on a thread of its own.
pub trait Service: Send + Sync + 'static {
    /// What can be asked.
    type Request: DeserializeOwned;
    /// What is answered.
    type Answer: Serialize;
    /// How far long work is.
    type Progress: Serialize;

    /// Carries out a request; an error is in words for the client. `tell` says how far it is, and returns false when
    /// the client is gone or wants it to stop.
    fn carry_out(
        &self,
        request: Self::Request,
        tell: &mut dyn FnMut(&Self::Progress) -> bool,
    ) -> Result<Self::Answer, String>;

    /// Whether another one, or the answer, follows at once: they may be told together.
    fn is_followed(_: &Self::Progress) -> bool {
        false
    }
}

/// A socket that cannot be had.
#[derive(Debug, Error)]
pub enum BindError {
    /// A daemon answers there.
    #[error("process {pid} answers at {}", path.display())]
    Answered {
        /// The socket.
        path: PathBuf,
        /// The daemon; 0 when that cannot be known.
        pid: u32,
    },
    /// The system refused.
    #[error("control socket {}: {source}", path.display())]
    Io {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

/// How soon the next client is accepted after one could not be.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// A bound socket that no thread answers yet; dropped, it is gone.
#[derive(Debug)]
pub struct Listener {
    listener: Arc<UnixListener>,
    file: SocketFile,
}

/// A served socket. Dropping it removes the socket, and waits a limited time until clients have their answers.
#[derive(Debug)]
pub struct SocketServer {
    listener: Arc<UnixListener>,
    file: Option<SocketFile>,
    stop: Arc<AtomicBool>,
    clients: Arc<Clients>,
}

/// The socket as a file; dropped, it is removed, but no other that has taken its place.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    /// Device and inode.
    identity: (u64, u64),
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _locked = lock_folder(&self.path);
        if identity(&self.path).is_ok_and(|found| found == self.identity) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// How many clients wait for an answer.
#[derive(Debug, Default)]
struct Clients {
    number: LeafMutex<rank::ControlClients, usize>,
    answered: Condvar,
}

/// One of them.
struct Client(Arc<Clients>);

impl Client {
    fn new(clients: &Arc<Clients>) -> Client {
        *clients.number.lock() += 1;
        Client(Arc::clone(clients))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        *self.0.number.lock() -= 1;
        self.0.answered.notify_all();
    }
}

impl Listener {
    /// Binds the socket. One that a dead daemon left is replaced.
    ///
    /// The folder is locked meanwhile: of two that start at once, the second finds the first.
    pub fn bind(path: &Path) -> Result<Listener, BindError> {
        let failed = |source| BindError::Io { path: path.to_owned(), source };
        if let Some(folder) = path.parent()
            && !folder.exists()
        {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
        }
        let _locked = lock_folder(path).map_err(failed)?;
        remove_stale_socket(path)?;
        let listener = UnixListener::bind(path).map_err(failed)?;
        let file = SocketFile { path: path.to_owned(), identity: identity(path).map_err(failed)? };
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(failed)?;
        Ok(Listener { listener: Arc::new(listener), file })
    }

    /// Begins to answer, each client on its own thread.
    pub fn serve<S: Service>(self, service: S) -> SocketServer {
        self.serve_readers(service, ANSWER_TIMEOUT)
    }

    /// As [`Listener::serve`], for clients that read their answers within this time.
    fn serve_readers<S: Service>(self, service: S, unread: Duration) -> SocketServer {
        let stop = Arc::new(AtomicBool::new(false));
        let clients = Arc::new(Clients::default());
        let (stopped, counted) = (Arc::clone(&stop), Arc::clone(&clients));
        let listener = Arc::clone(&self.listener);
        let serving = SocketServer { listener: self.listener, file: Some(self.file), stop: stopped, clients: counted };
        let service = Arc::new(service);
        let accept = move || {
            for client in listener.incoming() {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(client) = client else {
                    // No descriptor is left; clients wait.
                    thread::sleep(ACCEPT_AGAIN);
                    continue;
                };
                let (service, waiting) = (Arc::clone(&service), Client::new(&clients));
                let spawned = thread::Builder::new().name("control".to_owned()).spawn(move || {
                    if let Err(error) = answer_client(&client, &*service, unread) {
                        tracing::debug!(%error, "control client");
                    }
                    drop(waiting);
                });
                if let Err(error) = spawned {
                    tracing::warn!(%error, "control client refused");
                }
            }
        };
        if let Err(error) = thread::Builder::new().name("control-accept".to_owned()).spawn(accept) {
            tracing::error!(%error, "no control socket");
        }
        serving
    }
}

impl Drop for SocketServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.file = None;
        // Wakes the thread that waits for clients.
        let _ = shutdown(&self.listener, Shutdown::Both);
        let mut number = self.clients.number.lock();
        self.clients.answered.wait_while_until(&mut number, |number| *number > 0, Instant::now() + SHUTDOWN_TIMEOUT);
    }
}

/// Keeps other daemons from placing or removing sockets beside this one, until the result is dropped.
fn lock_folder(socket: &Path) -> std::io::Result<OwnedFd> {
    let folder = socket.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = rustix::fs::open(folder, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::fs::flock(&folder, FlockOperation::LockExclusive)?;
    Ok(folder)
}

/// Removes the socket of a daemon that has ended. Fails on any other file.
fn remove_stale_socket(path: &Path) -> Result<(), BindError> {
    let failed = |source| BindError::Io { path: path.to_owned(), source };
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(failed(std::io::Error::new(ErrorKind::AlreadyExists, "exists and is not a socket")));
        }
        Ok(_) => {}
    }
    match UnixStream::connect(path) {
        Ok(daemon) => {
            let pid = socket_peercred(&daemon).map_or(0, |peer| peer.pid.as_raw_nonzero().get().unsigned_abs());
            Err(BindError::Answered { path: path.to_owned(), pid })
        }
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => fs::remove_file(path).map_err(failed),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed(error)),
    }
}

fn identity(path: &Path) -> std::io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()))
}

fn answer_client<S: Service>(client: &UnixStream, service: &S, unread: Duration) -> std::io::Result<()> {
    client.set_write_timeout(Some(unread))?;
    let peer = socket_peercred(client)?;
    if peer.uid != rustix::process::geteuid() && !peer.uid.is_root() {
        let message = "only root and the daemon's user may use the control socket (try with sudo)".to_owned();
        return send_reply::<S>(client, &Reply::Error { message });
    }
    client.set_read_timeout(Some(REQUEST_TIMEOUT))?;
    let mut line = Vec::new();
    BufReader::new(Read::take(client, LONGEST)).read_until(b'\n', &mut line)?;
    // One that gave up while the daemon was stopped or busy does not expect that it is done later.
    if has_hung_up(client) {
        return Ok(());
    }
    // A client that went away ends its work. One that did not take a whole line cannot be told another.
    let mut hears = true;
    let mut unsaid = Vec::new();
    let mut tell = |progress: &S::Progress| {
        hears = hears && add_line::<S>(&mut unsaid, &Reply::Progress(progress)).is_ok();
        if S::is_followed(progress) && unsaid.len() < SEND_THRESHOLD {
            return hears;
        }
        hears = hears && send(client, &unsaid).is_ok();
        unsaid.clear();
        hears && !wants_stop(client)
    };
    let reply = match serde_json::from_slice::<S::Request>(&line) {
        Ok(request) => match service.carry_out(request, &mut tell) {
            Ok(answer) => Reply::Done { answer },
            Err(message) => Reply::Error { message },
        },
        Err(error) => Reply::Error { message: format!("not a request: {error}") },
    };
    if !hears {
        return Ok(());
    }
    add_line::<S>(&mut unsaid, &reply)?;
    send(client, &unsaid)
}

/// Whether the client is gone. One that has only said all it has to say is not.
fn has_hung_up(client: &UnixStream) -> bool {
    let mut asked = [PollFd::new(client, PollFlags::empty())];
    poll(&mut asked, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok()
        && asked.iter().any(|client| client.revents().contains(PollFlags::HUP))
}

/// Whether the client has said more than its request.
fn wants_stop(client: &UnixStream) -> bool {
    let said = rustix::net::recv(client, &mut [0_u8; 1][..], RecvFlags::PEEK | RecvFlags::DONTWAIT);
    said.is_ok_and(|(_, count)| count > 0)
}

fn send_reply<S: Service>(client: &UnixStream, reply: &Reply<S::Answer, &S::Progress>) -> std::io::Result<()> {
    let mut text = Vec::new();
    add_line::<S>(&mut text, reply)?;
    send(client, &text)
}

fn send(mut client: &UnixStream, text: &[u8]) -> std::io::Result<()> {
    client.write_all(text)
}

fn add_line<S: Service>(text: &mut Vec<u8>, reply: &Reply<S::Answer, &S::Progress>) -> std::io::Result<()> {
    serde_json::to_writer(&mut *text, reply)?;
    text.push(b'\n');
    Ok(())
}

#[cfg(test)]
mod tests;
