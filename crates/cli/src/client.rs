//! Speaks to a daemon, a pool's or a disk's: one request a connection, any number of progress lines, one final answer.
//!
//! Replies are not trusted: lines have a greatest length, anything that is no reply ends the conversation, and short
//! questions have a deadline. Long work has none: while nothing comes, the client asks the daemon from time to time
//! whether it is alive.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::marker::PhantomData;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use serde::Serialize;
use serde::de::DeserializeOwned;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};
use thiserror::Error;
use umbrella_fs::control::STOP;
use umbrella_fs::control::protocol::{Answer, Progress, Reply, Request};

use crate::text::{visible, visible_path};

/// No honest line is longer: a status of a thousand branches and rules takes a megabyte.
const LONGEST_LINE: u64 = 16 << 20;
/// How long a short question may take.
const TIMEOUT: Duration = Duration::from_secs(30);
/// After this time without a reply, the client prints that it waits.
const LONG: Duration = Duration::from_secs(10);

/// A conversation that failed.
#[derive(Debug, Error)]
pub(crate) enum ClientError {
    /// No daemon listens.
    #[error("no daemon answers at {} ({start})", visible_path(socket))]
    NotRunning {
        /// The socket.
        socket: PathBuf,
        /// What to do.
        start: &'static str,
    },
    /// The socket belongs to another user.
    #[error("{}: permission denied: run as root or as the owner of {owned}", visible_path(socket))]
    NotAllowed {
        /// The socket.
        socket: PathBuf,
        /// What is owned.
        owned: &'static str,
    },
    /// The daemon did not answer in time.
    #[error("{}", unanswered(*waited, *daemon, force))]
    NoAnswer {
        /// How long the program waited.
        waited: Duration,
        /// The daemon's process id, if it is known.
        daemon: Option<u32>,
        /// What to do.
        force: &'static str,
    },
    /// The daemon hung up before it answered.
    #[error("the daemon closed the connection without an answer (see its log)")]
    HungUp,
    /// The answer cannot be parsed.
    #[error(
        "cannot read the daemon's answer ({reason}); restart the daemon if its version differs from this program's"
    )]
    Garbled {
        /// Why.
        reason: String,
    },
    /// The answer belongs to another kind of request.
    #[error(
        "the daemon's answer does not match the request; restart the daemon if its version differs from this program's"
    )]
    Unexpected,
    /// The daemon refuses or failed.
    #[error("{}", visible(message))]
    Refused {
        /// In its words.
        message: String,
    },
    /// The connection failed.
    #[error("cannot talk to the daemon at {}: {source}", visible_path(socket))]
    Io {
        /// The socket.
        socket: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

/// How long the client waits for the answer.
#[derive(Debug, Clone, Copy)]
enum Limit {
    /// Until this time.
    Deadline(Instant),
    /// Until nothing has arrived for this time.
    Idle(Duration),
    /// As long as the daemon answers a ping.
    WhileAlive,
}

impl Limit {
    fn deadline(self) -> Option<Instant> {
        match self {
            Limit::Deadline(until) => Some(until),
            Limit::Idle(longest) => Some(Instant::now() + longest),
            Limit::WhileAlive => None,
        }
    }
}

/// Whether a process listens at a socket. A full backlog counts as listening.
pub(crate) fn is_listening(socket: &Path) -> bool {
    connect(socket).map_or_else(|error| error.kind() == ErrorKind::WouldBlock, |_| true)
}

/// Whether the socket exists, but no process listens at it any more.
pub(crate) fn is_refused(socket: &Path) -> bool {
    connect(socket).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

/// Connects. Returns an error, and does not wait, when the backlog of a daemon that hangs is full.
pub(crate) fn connect(socket: &Path) -> std::io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let connecting = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&connecting, &SocketAddrUnix::new(socket)?)?;
    let stream = UnixStream::from(connecting);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

fn is_timeout(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// The process id of the daemon.
fn peer_pid(stream: &UnixStream) -> Option<u32> {
    let pid = socket_peercred(stream).ok()?.pid.as_raw_nonzero().get();
    u32::try_from(pid).ok()
}

/// The message about a daemon that does not answer: how long the program waited, and what to do.
fn unanswered(waited: Duration, daemon: Option<u32>, force: &str) -> String {
    let waited = waited.as_secs();
    let Some(pid) = daemon else {
        return format!("the daemon did not answer within {waited} s (see its log; {force})");
    };
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let is_stopped = state.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['T', 't']));
    if is_stopped {
        format!(
            "the daemon (process {pid}) is stopped, and did not answer within {waited} s (`kill -CONT {pid}` resumes \
            it)"
        )
    } else {
        format!("the daemon (process {pid}) did not answer within {waited} s (see its log; {force})")
    }
}

/// The requests and answers of one kind of daemon.
pub(crate) trait Protocol {
    type Request: Serialize;
    type Answer: DeserializeOwned;
    type Progress: DeserializeOwned;
    /// What a user must own to send requests, for messages.
    const OWNED: &'static str;
    /// How to start a daemon, for messages.
    const START: &'static str;
    /// How to end a daemon that hangs, for messages.
    const FORCE: &'static str;

    /// A request that every live daemon answers at once.
    fn ping() -> Self::Request;
}

/// The protocol of pools.
#[derive(Debug, Clone)]
pub(crate) struct PoolProtocol;

impl Protocol for PoolProtocol {
    type Request = Request;
    type Answer = Answer;
    type Progress = Progress;
    const OWNED: &'static str = "the mount";
    const START: &'static str = "start the pool with `umbrella mount CONFIG`";
    const FORCE: &'static str = "`umbrella unmount --force` detaches a pool that hangs";

    fn ping() -> Request {
        Request::Status
    }
}

/// A client of a pool's daemon.
pub(crate) type Client = ClientOf<PoolProtocol>;

/// A client of one daemon.
#[derive(Debug, Clone)]
pub(crate) struct ClientOf<L> {
    socket: PathBuf,
    timeout: Duration,
    protocol: PhantomData<L>,
}

impl<L: Protocol> ClientOf<L> {
    /// A client of the daemon at this socket.
    pub(crate) fn new(socket: &Path) -> ClientOf<L> {
        ClientOf { socket: socket.to_owned(), timeout: TIMEOUT, protocol: PhantomData }
    }

    /// Sets how long a short request may wait for its answer.
    pub(crate) fn with_timeout(self, timeout: Duration) -> ClientOf<L> {
        ClientOf { timeout, ..self }
    }

    /// Sends a short request and returns the answer.
    pub(crate) fn call(&self, request: &L::Request) -> Result<L::Answer, ClientError> {
        self.exchange(request, Limit::Deadline(Instant::now() + self.timeout), &mut |_| {})
    }

    /// Sends a long request, and reports its progress. Fails when the daemon stays silent and does not answer a ping
    /// either.
    pub(crate) fn call_with_progress(
        &self,
        request: &L::Request,
        on_progress: &mut dyn FnMut(L::Progress),
    ) -> Result<L::Answer, ClientError> {
        self.exchange(request, Limit::WhileAlive, on_progress)
    }

    /// As [`ClientOf::call_with_progress`], for a request that the first Ctrl-C or SIGTERM stops: the daemon then
    /// answers how far it came. The second signal ends the program. Also returns the signal that arrived.
    pub(crate) fn call_until_stopped(
        &self,
        request: &L::Request,
        on_progress: &mut dyn FnMut(L::Progress),
    ) -> (Result<L::Answer, ClientError>, Option<i32>) {
        let begin = || {
            let stream = self.send(request)?;
            let asked = stream.try_clone().and_then(StopSignals::install).map_err(|error| self.io_error(error))?;
            Ok::<_, ClientError>((stream, asked))
        };
        match begin() {
            Ok((stream, asked)) => (self.receive(stream, Limit::WhileAlive, on_progress), asked.uninstall()),
            Err(error) => (Err(error), None),
        }
    }

    /// As [`ClientOf::call_with_progress`], for a daemon that reports at regular times. Fails when nothing arrives
    /// within the timeout.
    pub(crate) fn call_with_heartbeat(
        &self,
        request: &L::Request,
        on_progress: &mut dyn FnMut(L::Progress),
    ) -> Result<L::Answer, ClientError> {
        self.exchange(request, Limit::Idle(self.timeout), on_progress)
    }

    fn exchange(
        &self,
        request: &L::Request,
        limit: Limit,
        on_progress: &mut dyn FnMut(L::Progress),
    ) -> Result<L::Answer, ClientError> {
        self.receive(self.send(request)?, limit, on_progress)
    }

    /// Connects, and sends the request.
    fn send(&self, request: &L::Request) -> Result<UnixStream, ClientError> {
        let mut stream = connect(&self.socket).map_err(|error| self.connect_error(error))?;
        let mut line =
            serde_json::to_vec(request).map_err(|error| ClientError::Garbled { reason: error.to_string() })?;
        line.push(b'\n');
        stream.set_write_timeout(Some(self.timeout)).map_err(|error| self.io_error(error))?;
        stream.write_all(&line).map_err(|error| self.io_error(error))?;
        Ok(stream)
    }

    fn receive(
        &self,
        stream: UnixStream,
        limit: Limit,
        on_progress: &mut dyn FnMut(L::Progress),
    ) -> Result<L::Answer, ClientError> {
        let mut replies = BufReader::new(stream);
        let mut line = Vec::new();
        loop {
            line.clear();
            self.read_line(&mut replies, &mut line, limit.deadline())?;
            if line.is_empty() {
                return Err(ClientError::HungUp);
            }
            if line.len() as u64 > LONGEST_LINE {
                return Err(ClientError::Garbled { reason: format!("a line of more than {LONGEST_LINE} bytes") });
            }
            match parse_reply::<L>(&line)? {
                Reply::Progress(progress) => on_progress(progress),
                Reply::Done { answer } => return Ok(answer),
                Reply::Error { message } => return Err(ClientError::Refused { message }),
            }
        }
    }

    /// Whether the daemon answers a ping on a second connection.
    fn is_alive(&self) -> bool {
        !matches!(self.call(&L::ping()), Err(ClientError::NoAnswer { .. }))
    }

    /// Reads a line, or its beginning if the connection ends. Of a line that is too long it reads one byte more than
    /// is allowed. Reports a long wait once.
    fn read_line(
        &self,
        replies: &mut BufReader<UnixStream>,
        line: &mut Vec<u8>,
        deadline: Option<Instant>,
    ) -> Result<(), ClientError> {
        let mut reported = false;
        loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(self.no_answer(peer_pid(replies.get_ref())));
            }
            let longest = if reported { left.unwrap_or(self.timeout) } else { LONG.min(left.unwrap_or(self.timeout)) };
            replies.get_ref().set_read_timeout(Some(longest)).map_err(|error| self.io_error(error))?;
            let mut limited = replies.by_ref().take(LONGEST_LINE + 1 - line.len() as u64);
            match limited.read_until(b'\n', line) {
                Ok(_) => return Ok(()),
                Err(error) if reported && left.is_none() && is_timeout(&error) => {
                    if !self.is_alive() {
                        return Err(self.no_answer(peer_pid(replies.get_ref())));
                    }
                }
                // How much time is left is looked at above.
                Err(error) if reported && is_timeout(&error) => {}
                Err(error) if is_timeout(&error) && left.is_some_and(|left| left <= LONG) => reported = true,
                Err(error) if is_timeout(&error) => {
                    reported = true;
                    report!(
                        "the daemon at {} has not answered for {} s: it is still working, or it hangs ({})",
                        visible_path(&self.socket),
                        longest.as_secs(),
                        L::FORCE
                    );
                }
                Err(error) => return Err(self.io_error(error)),
            }
        }
    }

    fn no_answer(&self, daemon: Option<u32>) -> ClientError {
        ClientError::NoAnswer { waited: self.timeout, daemon, force: L::FORCE }
    }

    fn connect_error(&self, error: std::io::Error) -> ClientError {
        use std::io::ErrorKind::{ConnectionRefused, NotFound, PermissionDenied, WouldBlock};
        let socket = self.socket.clone();
        match error.kind() {
            NotFound | ConnectionRefused => ClientError::NotRunning { socket, start: L::START },
            PermissionDenied => ClientError::NotAllowed { socket, owned: L::OWNED },
            // Too many clients wait for it already.
            WouldBlock => self.no_answer(None),
            _ => ClientError::Io { socket, source: error },
        }
    }

    fn io_error(&self, error: std::io::Error) -> ClientError {
        use std::io::ErrorKind::{BrokenPipe, ConnectionReset, TimedOut, WouldBlock};
        match error.kind() {
            WouldBlock | TimedOut => self.no_answer(None),
            BrokenPipe | ConnectionReset => ClientError::HungUp,
            _ => ClientError::Io { socket: self.socket.clone(), source: error },
        }
    }
}

/// Forwards the first SIGINT or SIGTERM to the daemon as a request to stop, until it is dropped.
struct StopSignals {
    signals: Handle,
    thread: Option<JoinHandle<()>>,
    /// The first signal that arrived; 0 for none.
    first: Arc<AtomicI32>,
}

impl StopSignals {
    fn install(mut daemon: UnixStream) -> std::io::Result<StopSignals> {
        let mut signals = Signals::new([SIGINT, SIGTERM])?;
        let handle = signals.handle();
        let first = Arc::<AtomicI32>::default();
        let noted = Arc::clone(&first);
        let forward = move || {
            let mut is_asked = false;
            for signal in signals.forever() {
                let _earlier = noted.compare_exchange(0, signal, Ordering::Relaxed, Ordering::Relaxed);
                if is_asked || daemon.write_all(STOP).is_err() {
                    let _it_ends_here = signal_hook::low_level::emulate_default_handler(signal);
                }
                is_asked = true;
                report!(
                    "stopping: the file that is being copied stays where it is (a second signal ends this program \
                    at once)"
                );
            }
        };
        let thread = std::thread::Builder::new().name("signals".to_owned()).spawn(forward)?;
        Ok(StopSignals { signals: handle, thread: Some(thread), first })
    }

    /// Stops forwarding. Returns the first signal that arrived.
    fn uninstall(self) -> Option<i32> {
        let first = Arc::clone(&self.first);
        drop(self);
        Some(first.load(Ordering::Relaxed)).filter(|signal| *signal != 0)
    }
}

impl Drop for StopSignals {
    fn drop(&mut self) {
        self.signals.close();
        let _panicked = self.thread.take().map(JoinHandle::join);
    }
}

fn parse_reply<L: Protocol>(line: &[u8]) -> Result<Reply<L::Answer, L::Progress>, ClientError> {
    serde_json::from_slice(line).map_err(|error| ClientError::Garbled { reason: visible(&error.to_string()) })
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    /// Lets a daemon of one conversation say `reply`; gives the client's outcome, its progress and what the daemon
    /// heard.
    fn exchange(reply: &'static [u8]) -> (Result<Answer, ClientError>, Vec<u64>, Request) {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("s");
        let listener = UnixListener::bind(&socket).unwrap();
        let daemon = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut heard = String::new();
            BufReader::new(&stream).read_line(&mut heard).unwrap();
            let _ = (&stream).write_all(reply);
            serde_json::from_str(&heard).unwrap()
        });
        let mut seen = Vec::new();
        let answer =
            Client::new(&socket).call_with_progress(&Request::Status, &mut |progress| seen.push(progress.files_seen));
        (answer, seen, daemon.join().unwrap())
    }

    fn progress(files_seen: u64) -> Progress {
        Progress { files_seen, ..Progress::default() }
    }

    #[test]
    fn progress_comes_before_the_answer() {
        let mut said = Vec::new();
        for reply in [Reply::Progress(progress(1)), Reply::Progress(progress(2)), Reply::Done { answer: Answer::Ok }] {
            said.extend(serde_json::to_vec(&reply).unwrap());
            said.push(b'\n');
        }
        let (answer, seen, heard) = exchange(said.leak());
        assert_eq!(answer.unwrap(), Answer::Ok);
        assert_eq!(seen, [1, 2]);
        assert_eq!(heard, Request::Status);
    }

    #[test]
    fn a_refusal_is_told_in_the_daemons_words_without_its_escapes() {
        let (answer, ..) = exchange(b"{\"reply\":\"error\",\"message\":\"no \\u001b[31mway\"}\n");
        assert_eq!(answer.unwrap_err().to_string(), r"no \u{1b}[31mway");
    }

    #[test]
    fn hostile_answers_end_in_errors() {
        for said in [
            &b"\n"[..],
            b"{}\n",
            b"\xff\xfe\n",
            b"[[[[[[[[",
            b"{\"reply\":\"done\",\"answer\":{\"answer\":\"what\"}}\n",
        ] {
            let (answer, ..) = exchange(said);
            assert!(matches!(answer, Err(ClientError::Garbled { .. })), "{said:?}: {answer:?}");
        }
        let (answer, ..) = exchange(b"");
        assert!(matches!(answer, Err(ClientError::HungUp)), "{answer:?}");
    }

    #[test]
    fn a_line_without_end_is_cut_off() {
        let (answer, ..) = exchange(vec![b'['; LONGEST_LINE as usize + 2].leak());
        assert!(answer.unwrap_err().to_string().contains("a line of more than"));
    }

    #[test]
    fn a_silent_daemon_is_given_up() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("s");
        let _listener = UnixListener::bind(&socket).unwrap();
        let client = Client::new(&socket).with_timeout(Duration::from_millis(50));
        assert!(matches!(client.call(&Request::Status), Err(ClientError::NoAnswer { .. })));
    }

    /// A daemon that takes every connection, says nothing of its work, and answers anything else `times` times.
    fn daemon_that_answers(times: usize) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("s");
        let listener = UnixListener::bind(&socket).unwrap();
        std::thread::spawn(move || {
            let work = listener.accept().unwrap().0;
            for stream in listener.incoming().take(times) {
                stream.unwrap().write_all(b"{\"reply\":\"done\",\"answer\":{\"answer\":\"ok\"}}\n").unwrap();
            }
            // Not collected: the iterator promises more than any vector holds.
            let mut silent = Vec::new();
            while let Ok((stream, _)) = listener.accept() {
                silent.push(stream);
            }
            drop(work);
        });
        (dir, socket)
    }

    #[test]
    fn long_work_is_waited_for_while_the_daemon_lives_and_no_longer() {
        let (_dir, socket) = daemon_that_answers(3);
        let client = Client::new(&socket).with_timeout(Duration::from_millis(100));
        let answer = client.call_with_progress(&Request::Sync, &mut |_| {});
        assert!(matches!(answer, Err(ClientError::NoAnswer { .. })), "{answer:?}");
    }

    #[test]
    fn a_missing_or_dead_socket_says_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("s");
        let missing = Client::new(&socket).call(&Request::Status).unwrap_err().to_string();
        drop(UnixListener::bind(&socket).unwrap());
        let dead = Client::new(&socket).call(&Request::Status).unwrap_err().to_string();
        assert_eq!(missing, dead);
        assert!(missing.contains("umbrella mount CONFIG"), "{missing}");
    }
}
