//! TLS between a client and the connection that serves it.
//!
//! After STARTTLS the connection continues over one end of a pair of sockets. A thread of its own carries bytes between
//! the other end and the client's socket, and encrypts and decrypts on the way, so that nothing else here knows of TLS:
//!
//! - It reads from one side only when all that the other has to take is gone: neither side fills memory.
//! - The end of one side is passed on to the other after what was still under way.
//! - A client that does not receive data is disconnected after the limit for pauses.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection};
use thiserror::Error;

use super::socket::Socket;

/// The names that other NBD servers and clients have for these files, too.
const AUTHORITY: &str = "ca-cert.pem";
const CERTIFICATE: &str = "server-cert.pem";
const KEY: &str = "server-key.pem";

/// What is carried at once.
const PIECE: usize = 64 << 10;

/// Why TLS cannot be offered.
#[derive(Debug, Error)]
pub enum TlsError {
    /// A file is missing or holds something else.
    #[error("{}: {reason} (TLS needs {CERTIFICATE} and {KEY}, and {AUTHORITY} to check clients, all PEM)", path.display())]
    File {
        /// Which one.
        path: PathBuf,
        /// The cause.
        reason: String,
    },
    /// The certificate and the key cannot be used.
    #[error("{}: {reason}", folder.display())]
    Unusable {
        /// Where they are.
        folder: PathBuf,
        /// Why not.
        reason: String,
    },
}

/// How a server encrypts.
#[derive(Clone)]
pub struct Tls {
    config: Arc<ServerConfig>,
    required: bool,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("required", &self.required).finish_non_exhaustive()
    }
}

impl Tls {
    /// With the certificate and key in `folder`. With `check_clients` only clients are served whose certificate the
    /// authority there has signed. Clients that do not encrypt are refused.
    pub fn load(folder: &Path, check_clients: bool) -> Result<Tls, TlsError> {
        let chain = certificates(&folder.join(CERTIFICATE))?;
        let path = folder.join(KEY);
        let key = PrivateKeyDer::from_pem_file(&path).map_err(|error| unreadable(&path, &error))?;
        let unusable = |reason: String| TlsError::Unusable { folder: folder.to_owned(), reason };
        let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable(error.to_string()))?;
        let config = if check_clients {
            let mut authorities = RootCertStore::empty();
            for certificate in certificates(&folder.join(AUTHORITY))? {
                authorities.add(certificate).map_err(|error| unusable(format!("{AUTHORITY}: {error}")))?;
            }
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(authorities), provider);
            config.with_client_cert_verifier(verifier.build().map_err(|error| unusable(error.to_string()))?)
        } else {
            config.with_no_client_auth()
        };
        let config = config.with_single_cert(chain, key).map_err(|error| unusable(error.to_string()))?;
        Ok(Tls { config: Arc::new(config), required: true })
    }

    /// Clients that do not encrypt are served, too.
    #[must_use]
    pub fn optional(self) -> Tls {
        Tls { required: false, ..self }
    }

    /// Whether clients have to encrypt.
    pub(super) fn is_required(&self) -> bool {
        self.required
    }

    /// Encrypts what `serve` sends and receives on the socket that it is given, until it returns. The client may pause
    /// for `pause`.
    pub(super) fn within<T: Send>(
        &self,
        client: &Socket,
        pause: Duration,
        serve: impl FnOnce(&Socket) -> T + Send,
    ) -> io::Result<T> {
        let session = ServerConnection::new(Arc::clone(&self.config)).map_err(io::Error::other)?;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        let (ours, theirs) = (Socket::new(ours), Socket::new(theirs));
        let pump = Pump { session, client, inner: theirs, pause, to_inner: Vec::new(), ended: Sides::default() };
        std::thread::scope(|scope| {
            let carry = move || {
                if let Err(error) = pump.run() {
                    tracing::warn!(%error, "a TLS connection failed");
                }
            };
            std::thread::Builder::new().name("nbd-tls".to_owned()).spawn_scoped(scope, carry)?;
            let served = serve(&ours);
            ours.close();
            Ok(served)
        })
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let certificates = read.map_err(|error| unreadable(path, &error))?;
    if certificates.is_empty() {
        return Err(TlsError::File { path: path.to_owned(), reason: "it holds no certificate".to_owned() });
    }
    Ok(certificates)
}

fn unreadable(path: &Path, error: &pem::Error) -> TlsError {
    let reason = match error {
        pem::Error::Io(error) => error.to_string(),
        pem::Error::NoItemsFound => "it holds none".to_owned(),
        other => other.to_string(),
    };
    TlsError::File { path: path.to_owned(), reason }
}

/// Which sides have said that nothing more comes from them.
#[derive(Debug, Clone, Copy, Default)]
struct Sides {
    client: bool,
    inner: bool,
}

/// Carries bytes between a client and the connection inside.
struct Pump<'c> {
    session: ServerConnection,
    client: &'c Socket,
    inner: Socket,
    pause: Duration,
    /// Decrypted, and not yet taken by the connection.
    to_inner: Vec<u8>,
    ended: Sides,
}

impl Pump<'_> {
    /// Until the connection inside has ended and what it sent is with the client, or the client is gone.
    fn run(mut self) -> io::Result<()> {
        let mut buffer = vec![0; PIECE];
        self.session.set_buffer_limit(None); // One piece at a time goes in.
        loop {
            let sending = self.session.wants_write();
            if self.ended.inner && !sending {
                return Ok(());
            }
            let (client, inner) = self.wait(sending)?;
            if client.intersects(PollFlags::OUT) {
                self.session.write_tls(&mut NonBlocking(self.client)).or_else(later)?;
            }
            if inner.intersects(PollFlags::OUT) {
                let sent = self.inner.send_now(&self.to_inner).or_else(|error| later(error.into()))?;
                self.to_inner.drain(..sent);
            }
            if client.intersects(READABLE) && self.reads_client() {
                self.decrypt()?;
            }
            if inner.intersects(READABLE) && !sending && !self.ended.inner {
                self.encrypt(&mut buffer)?;
            }
            if self.ended.client && self.to_inner.is_empty() {
                self.inner.stop_sending();
            }
        }
    }

    fn reads_client(&self) -> bool {
        self.to_inner.is_empty() && !self.ended.client
    }

    /// Waits, and returns the events on both sides.
    fn wait(&self, sending: bool) -> io::Result<(PollFlags, PollFlags)> {
        let when = |wanted: bool, flags: PollFlags| if wanted { flags } else { PollFlags::empty() };
        let handshaking = self.session.is_handshaking();
        let reads_inner = !sending && !handshaking && !self.ended.inner;
        let client = when(self.reads_client(), PollFlags::IN) | when(sending, PollFlags::OUT);
        let inner = when(reads_inner, PollFlags::IN) | when(!self.to_inner.is_empty(), PollFlags::OUT);
        let mut sides = [PollFd::new(self.client, client), PollFd::new(&self.inner, inner)];
        // A side that is gone ends every poll at once: include a side only if something is expected from it.
        let first = usize::from(client.is_empty());
        let end = if handshaking || !inner.is_empty() { 2 } else { 1 };
        let watched = sides.get_mut(first..end).unwrap_or_default();
        // A side with nothing to send may be silent: the connection inside knows for how long.
        let limit = Timespec::try_from(self.pause).ok().filter(|_| sending);
        match poll(watched, limit.as_ref()) {
            Err(Errno::INTR) => return Ok((PollFlags::empty(), PollFlags::empty())),
            polled => {
                if polled? == 0 {
                    return Err(ErrorKind::TimedOut.into());
                }
            }
        }
        let [client, inner] = sides.map(|side| side.revents());
        let gone = PollFlags::HUP | PollFlags::ERR;
        // The connection was ended before there was anything to encrypt for; or nothing is taken any more.
        if inner.intersects(gone) && (handshaking || !self.to_inner.is_empty()) {
            return Err(ErrorKind::ConnectionAborted.into());
        }
        if client.intersects(gone) && (self.ended.client || sending) {
            return Err(ErrorKind::ConnectionReset.into());
        }
        Ok((client, inner))
    }

    /// Takes what has come from the client.
    fn decrypt(&mut self) -> io::Result<()> {
        match self.session.read_tls(&mut NonBlocking(self.client)) {
            Ok(0) => self.ended.client = true,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
        let state = self.session.process_new_packets().map_err(|error| {
            // Tells the client why, if it listens.
            let _ = self.session.write_tls(&mut NonBlocking(self.client));
            io::Error::other(error)
        })?;
        self.ended.client |= state.peer_has_closed();
        let decrypted = state.plaintext_bytes_to_read();
        self.to_inner.resize(decrypted, 0);
        self.session.reader().read_exact(&mut self.to_inner)
    }

    /// Takes what the connection inside sends.
    fn encrypt(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        match self.inner.receive_now(buffer) {
            Ok(0) | Err(Errno::CONNRESET) => {
                self.ended.inner = true;
                self.session.send_close_notify();
                Ok(())
            }
            Ok(got) => self.session.writer().write_all(buffer.get(..got).unwrap_or_default()),
            Err(error) => later(error.into()).map(|_| ()),
        }
    }
}

/// Also the end of a side can be read.
const READABLE: PollFlags = PollFlags::IN.union(PollFlags::HUP).union(PollFlags::ERR);

/// Nothing was carried now, which is no failure.
fn later(error: io::Error) -> io::Result<usize> {
    if error.kind() == ErrorKind::WouldBlock { Ok(0) } else { Err(error) }
}

/// A socket on which nothing waits.
struct NonBlocking<'s>(&'s Socket);

impl Read for NonBlocking<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(self.0.receive_now(buffer)?)
    }
}

impl Write for NonBlocking<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(self.0.send_now(bytes)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
