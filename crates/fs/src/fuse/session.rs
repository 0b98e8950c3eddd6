//! A pool connected with the kernel.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use umbrella_fuse::{Config, MountOptions, MountSpec, Observer, Session, TransportInUse};

use super::Fuse;
use super::tell::Tell;
use crate::control::protocol::TransportStatus;
use crate::pool::Pool;
use crate::spec::Transport;

/// A mount that nobody serves yet.
pub(crate) struct Mounted {
    session: Session<Fuse>,
}

/// How a pool is served.
pub(crate) struct Serving {
    /// Threads that stay, with /dev/fuse.
    pub(crate) threads: usize,
    /// The program that keeps requests of io_uring from waiting; without it the daemon forks.
    pub(crate) poker: Option<Command>,
    /// Is told of every request.
    pub(crate) observer: Option<Arc<dyn Observer>>,
}

/// How many requests there may be while all of them wait: for a disk, or for a file on its way to another branch. Each takes a thread. Many at once cost memory only, a megabyte each when all of them write. More than the kernel has in the background.
const MOST_WAITING: usize = 1100;

/// Mounts a pool on its directory. `source` is what the table of mounts shows.
pub(crate) fn mount(pool: &Arc<Pool>, source: &Path, serving: Serving) -> std::io::Result<Mounted> {
    let spec = MountSpec {
        source: source.to_string_lossy().into_owned(),
        subtype: "umbrella".to_owned(),
        options: MountOptions::DEFAULT_PERMISSIONS | MountOptions::ALLOW_OTHER,
    };
    let wanted = pool.spec().transport;
    let config = Config {
        transport: transport(wanted),
        threads: serving.threads,
        max_threads: MOST_WAITING,
        max_entries: MOST_WAITING,
        poker: serving.poker,
        observer: serving.observer,
        ..Config::default()
    };
    let session = Session::mount(Fuse::new(Arc::clone(pool)), &pool.spec().mount, &spec, config)?;
    let transport = in_use(wanted, session.transport());
    pool.set_kernel(Box::new(Tell { notifier: session.notifier(), transport }));
    pool.announce_passthrough();
    Ok(Mounted { session })
}

/// What is tried. `auto` is /dev/fuse until pools over io_uring have proven themselves.
fn transport(wanted: Transport) -> umbrella_fuse::Transport {
    match wanted {
        Transport::IoUring => umbrella_fuse::Transport::Auto,
        Transport::Auto | Transport::Dev => umbrella_fuse::Transport::Dev,
    }
}

/// What came of it, for people.
fn in_use(wanted: Transport, got: &TransportInUse) -> TransportStatus {
    match (got, wanted) {
        (TransportInUse::IoUring, _) => TransportStatus::IoUring,
        (TransportInUse::Dev(reason), Transport::IoUring) => {
            tracing::warn!(%reason, "no io_uring: requests come from /dev/fuse");
            TransportStatus::Dev { reason: Some(reason.clone()) }
        }
        (TransportInUse::Dev(_), _) => TransportStatus::Dev { reason: None },
    }
}

impl Mounted {
    /// Takes the mount away; fails while it is in use.
    pub(crate) fn unmounter(&self) -> impl Fn() -> std::io::Result<()> + Send + Sync + 'static {
        let unmounter = self.session.unmounter();
        move || unmounter.unmount()
    }

    /// Serves the kernel until the mount is gone, and takes away what is left of it.
    pub(crate) fn serve(self) -> std::io::Result<()> {
        self.session.run()
    }
}
