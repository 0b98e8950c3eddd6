//! Where a server listens.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen, shutdown,
    socket_with, sockopt,
};

use super::errors::ServeError;

/// How many clients the kernel holds for us before we have accepted them.
const BACKLOG: i32 = 128;

/// How long a client may be silent before a probe checks whether it is still there.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// Where to listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A Unix socket, for its owner alone (mode 0600).
    Unix(PathBuf),
    /// TCP; port 0 means any free one.
    Tcp(SocketAddr),
}

impl Default for Address {
    /// The port that is registered for NBD, for this machine alone.
    fn default() -> Address {
        Address::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, 10809)))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "{}", path.display()),
            Address::Tcp(address) => write!(f, "{address}"),
        }
    }
}

/// A socket that listens.
#[derive(Debug)]
pub(super) struct Listener {
    socket: OwnedFd,
    address: Address,
    /// Device and inode of the Unix socket's file, to remove no other.
    file: Option<(u64, u64)>,
}

impl Listener {
    pub(super) fn open(address: &Address) -> Result<Listener, ServeError> {
        match address {
            Address::Unix(path) => Listener::unix(path),
            Address::Tcp(tcp) => {
                let failed = |source| ServeError::Listen { address: address.to_string(), source };
                let listener = TcpListener::bind(tcp).map_err(failed)?;
                let bound = listener.local_addr().map_err(failed)?;
                Ok(Listener { socket: OwnedFd::from(listener), address: Address::Tcp(bound), file: None })
            }
        }
    }

    /// Where it listens, with the port that the system chose.
    pub(super) fn address(&self) -> &Address {
        &self.address
    }

    /// Waits for a client.
    pub(super) fn accept(&self) -> rustix::io::Result<OwnedFd> {
        let client = accept_with(&self.socket, SocketFlags::CLOEXEC)?;
        if matches!(self.address, Address::Tcp(_)) {
            // An answer is not held back for the next one; we gather them ourselves.
            let _ = sockopt::set_tcp_nodelay(&client, true);
            // A machine that is gone without a word is noticed within minutes.
            let _ = sockopt::set_socket_keepalive(&client, true);
            let _ = sockopt::set_tcp_keepidle(&client, KEEP_ALIVE);
            let _ = sockopt::set_tcp_keepintvl(&client, KEEP_ALIVE);
        }
        Ok(client)
    }

    /// Wakes the thread that waits for a client, and lets no more in.
    pub(super) fn close(&self) {
        let _ = shutdown(self.socket.as_fd(), Shutdown::Both);
        if let (Address::Unix(path), Some(file)) = (&self.address, self.file) {
            let _locked = lock_folder(path);
            if identity(path) == Some(file) {
                let _ = std::fs::remove_file(path);
            }
        }
    }

    /// Steps: 1. lock the folder, so that two servers do not clear the way at once. 2. remove a socket that no server
    /// listens on. 3. bind with mode 0600 from the first moment on. 4. listen.
    fn unix(path: &Path) -> Result<Listener, ServeError> {
        let failed = |source: Errno| ServeError::Listen { address: path.display().to_string(), source: source.into() };
        let name = SocketAddrUnix::new(path).map_err(failed)?;
        let _locked = lock_folder(path).map_err(failed)?;
        remove_stale_socket(path, &name)?;
        let socket = new_socket().map_err(failed)?;
        // Linux gives the file the mode of the socket.
        rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR).map_err(failed)?;
        bind(&socket, &name).map_err(failed)?;
        listen(&socket, BACKLOG).map_err(failed)?;
        Ok(Listener { socket, address: Address::Unix(path.to_owned()), file: identity(path) })
    }
}

/// Keeps other servers from placing or removing sockets beside this one, until the result is dropped.
fn lock_folder(socket: &Path) -> rustix::io::Result<OwnedFd> {
    let folder = socket.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = rustix::fs::open(folder, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::fs::flock(&folder, FlockOperation::LockExclusive)?;
    Ok(folder)
}

fn new_socket() -> rustix::io::Result<OwnedFd> {
    socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
}

/// Removes the socket of a server that has ended. Fails on any other file.
fn remove_stale_socket(path: &Path, name: &SocketAddrUnix) -> Result<(), ServeError> {
    let failed = |source: io::Error| ServeError::Listen { address: path.display().to_string(), source };
    match rustix::fs::lstat(path) {
        Err(Errno::NOENT) => return Ok(()),
        Err(error) => return Err(failed(error.into())),
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) != FileType::Socket => {
            return Err(ServeError::NotASocket { path: path.to_owned() });
        }
        Ok(_) => {}
    }
    match new_socket().and_then(|probe| connect(&probe, name)) {
        Err(Errno::CONNREFUSED) => std::fs::remove_file(path).map_err(failed),
        Err(Errno::NOENT) => Ok(()),
        Ok(()) | Err(Errno::AGAIN) => Err(ServeError::InUse { path: path.to_owned() }),
        Err(error) => Err(failed(error.into())),
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    rustix::fs::lstat(path).ok().map(|stat| (stat.st_dev, stat.st_ino))
}
