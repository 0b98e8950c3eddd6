//! A pool connected with the kernel.

use std::path::Path;
use std::sync::Arc;

use umbrella_fuse::{Config, MountOptions, MountSpec, Observer, Session, TransportInUse};

use crate::control::protocol::{TransportKind, TransportStatus};
use crate::fuse::Fuse;
use crate::fuse::notify::KernelNotifier;
use crate::pool::Pool;
use crate::spec::Transport;

/// A mount that no thread serves yet.
pub(crate) struct Mounted {
    session: Session<Fuse>,
}

/// How a pool is served.
pub(crate) struct ServeOptions {
    /// Threads that stay, with /dev/fuse.
    pub(crate) threads: usize,
    /// Sees every request.
    pub(crate) observer: Option<Arc<dyn Observer>>,
}

/// Requests from `/dev/fuse` that may wait at once: for a disk, or for a file on its way to another branch. Each takes
/// a thread, and a mebibyte while it writes. More than the kernel sends in the background.
const MOST_THREADS: usize = 1100;
/// The same for each processor's queue over io_uring, where threads and rings stay until the mount ends: 20 MiB a
/// processor after such a burst. Callers beyond these wait in the kernel until a request of their processor is
/// answered.
const MOST_ENTRIES: usize = 512;

/// Mounts a pool on its directory. `source` is what the table of mounts shows.
pub(crate) fn mount(pool: &Arc<Pool>, source: &Path, serving: ServeOptions) -> std::io::Result<Mounted> {
    let spec = MountSpec {
        source: source.to_string_lossy().into_owned(),
        subtype: "umbrella".to_owned(),
        options: MountOptions::DEFAULT_PERMISSIONS | MountOptions::ALLOW_OTHER,
    };
    let wanted = pool.context().spec.transport;
    let config = Config {
        transport: transport(wanted),
        threads: serving.threads,
        max_threads: MOST_THREADS,
        max_entries: MOST_ENTRIES,
        observer: serving.observer,
        ..Config::default()
    };
    let session = Session::mount(Fuse::new(Arc::clone(pool)), &pool.context().spec.mount, &spec, config)?;
    let transport = in_use(wanted, session.transport());
    pool.set_kernel(Box::new(KernelNotifier {
        notifier: session.notifier(),
        gives_passthrough: session.filesystem().gives_passthrough,
        transport,
        threads: session.device_threads(),
    }));
    Ok(Mounted { session })
}

/// What is tried.
fn transport(wanted: Transport) -> umbrella_fuse::Transport {
    match wanted {
        Transport::Auto | Transport::IoUring => umbrella_fuse::Transport::Auto,
        Transport::Dev => umbrella_fuse::Transport::Dev,
    }
}

/// What came of it, for people.
fn in_use(wanted: Transport, got: &TransportInUse) -> TransportStatus {
    let TransportInUse::Dev(reason) = got else {
        return TransportStatus { kind: TransportKind::IoUring, reason: None };
    };
    match wanted {
        Transport::Dev => return TransportStatus { kind: TransportKind::Dev, reason: None },
        Transport::IoUring => tracing::warn!(%reason, "no io_uring: requests come from /dev/fuse"),
        Transport::Auto => tracing::info!(%reason, "no io_uring: requests come from /dev/fuse"),
    }
    TransportStatus { kind: TransportKind::Dev, reason: Some(reason.clone()) }
}

impl Mounted {
    /// Takes the mount away; fails while it is in use.
    pub(crate) fn unmounter(&self) -> impl Fn() -> std::io::Result<()> + Send + Sync + 'static {
        let unmounter = self.session.unmounter();
        move || unmounter.unmount()
    }

    /// Serves the kernel until the mount is gone, then cleans up after it.
    pub(crate) fn serve(self) -> std::io::Result<()> {
        self.session.run()
    }
}
