//! The daemon's end of the control socket. Owner-only: the folder is 0700 and the socket 0600, and the peer's user id is looked at
//! as well.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::protocol::{Answer, Progress, Reply, Request};
use crate::error::Error;
use crate::pool::{Pool, Walk};

/// Longest request.
const LONGEST: u64 = 4 << 20;
/// How long a client may take to say what it wants.
const PATIENCE: Duration = Duration::from_secs(10);

/// Takes the mount away.
pub(crate) type Unmount = Box<dyn Fn() -> std::io::Result<()> + Send + Sync>;

/// A bound socket that nobody answers yet.
pub(crate) struct Listener {
    listener: UnixListener,
    path: PathBuf,
}

/// A socket that is answered; dropped, it is gone.
pub(crate) struct Serving {
    path: PathBuf,
    stop: Arc<AtomicBool>,
}

impl Listener {
    /// Binds the socket. One that a dead daemon left is replaced; one that answers means the pool is mounted already.
    pub(crate) fn bind(path: &Path, mount: &Path) -> Result<Listener, Error> {
        let failed = |source| Error::Control { path: path.to_owned(), source };
        if let Some(folder) = path.parent()
            && !folder.exists()
        {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
        }
        if UnixStream::connect(path).is_ok() {
            let pid = peer_of(path).unwrap_or(0);
            return Err(Error::AlreadyMounted { path: mount.to_owned(), pid });
        }
        match fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        let listener = UnixListener::bind(path).map_err(failed)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(failed)?;
        Ok(Listener { listener, path: path.to_owned() })
    }

    /// Answers from now on, each client on a thread of its own.
    pub(crate) fn serve(self, pool: Arc<Pool>, unmount: Unmount) -> Serving {
        let stop = Arc::new(AtomicBool::new(false));
        let serving = Serving { path: self.path, stop: Arc::clone(&stop) };
        let unmount: Arc<Unmount> = Arc::new(unmount);
        let listener = self.listener;
        let accept = move || {
            for client in listener.incoming() {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(client) = client else { continue };
                let (pool, unmount) = (Arc::clone(&pool), Arc::clone(&unmount));
                let spawned = thread::Builder::new().name("control".to_owned()).spawn(move || {
                    if let Err(error) = answer_client(&client, &pool, &unmount) {
                        tracing::debug!(%error, "control client");
                    }
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

impl Drop for Serving {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Wakes the thread that waits for clients.
        let _ = UnixStream::connect(&self.path);
        let _ = fs::remove_file(&self.path);
    }
}

fn peer_of(path: &Path) -> Option<u32> {
    let mut stream = UnixStream::connect(path).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
    writeln!(stream, "{{\"request\":\"status\"}}").ok()?;
    let mut line = String::new();
    BufReader::new(stream.take(LONGEST)).read_line(&mut line).ok()?;
    match serde_json::from_str(&line).ok()? {
        Reply::Done { answer: Answer::Status(status) } => Some(status.pid),
        _ => None,
    }
}

fn answer_client(client: &UnixStream, pool: &Arc<Pool>, unmount: &Unmount) -> std::io::Result<()> {
    let peer = rustix::net::sockopt::socket_peercred(client)?;
    if peer.uid != rustix::process::geteuid() && !peer.uid.is_root() {
        return say(client, &Reply::Error { message: "only root and the daemon's own user may ask".to_owned() });
    }
    client.set_read_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new(Read::take(client, LONGEST)).read_line(&mut line)?;
    let reply = match serde_json::from_str::<Request>(&line) {
        Ok(request) => match carry_out(request, client, pool, unmount) {
            Ok(answer) => Reply::Done { answer },
            Err(error) => Reply::Error { message: error.to_string() },
        },
        Err(error) => Reply::Error { message: format!("not a request: {error}") },
    };
    say(client, &reply)
}

fn say(mut client: &UnixStream, reply: &Reply) -> std::io::Result<()> {
    let mut text = serde_json::to_vec(reply)?;
    text.push(b'\n');
    client.write_all(&text)
}

fn carry_out(request: Request, client: &UnixStream, pool: &Arc<Pool>, unmount: &Unmount) -> Result<Answer, Error> {
    // A client that went away ends its walk.
    let mut tell = |progress: &Progress| say(client, &Reply::Progress(progress.clone())).is_ok();
    Ok(match request {
        Request::Status => Answer::Status(Box::new(pool.status())),
        Request::Explain { path } => Answer::Explain(Box::new(pool.explain(&path)?)),
        Request::Enforce { dry_run, bandwidth } => {
            let bandwidth = bandwidth.or(pool.spec().enforce.bandwidth);
            Answer::Enforce(pool.enforce(Walk { dry_run, bandwidth, only: None }, &mut tell)?)
        }
        Request::BranchList => Answer::Branches { branches: pool.branch_statuses() },
        Request::BranchAdd { branch } => {
            pool.add_branch(branch)?;
            Answer::Ok
        }
        Request::BranchRemove { name, force } => {
            pool.remove_branch(&name, force)?;
            Answer::Ok
        }
        Request::BranchDrain { name } => Answer::Enforce(pool.drain(&name, &mut tell)?),
        Request::RulesReload { rules } => {
            pool.reload_rules(&rules)?;
            Answer::Ok
        }
        Request::Unmount => {
            unmount().map_err(|source| Error::Unmount { path: pool.spec().mount.clone(), source })?;
            Answer::Ok
        }
    })
}
