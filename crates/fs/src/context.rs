//! What all rooms of one mounted pool use: its configuration, its figures, what a person should look at, the kernel's
//! side, and its end.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::{ArcSwap, Guard};
use rustix::event::{EventfdFlags, eventfd};
use umbrella_policy::placement::spec::RulesSpec;

use crate::branch::StateDir;
use crate::branch::mounts::MountId;
use crate::control::protocol::TransportStatus;
use crate::error::Error;
use crate::ground::advice::advised;
use crate::ground::locks::{RankedMutex, rank};
use crate::metrics::{Metric, Metrics};
use crate::node::{NodeId, PassthroughToken};
use crate::spec::{FixedSpec, OnBranchError, PoolSpec};
use crate::warning::{Warning, WarningSubject};

/// Requests of the pool to the kernel's side of the mount. Never called with a lock held, except `register`,
/// `drop_attributes` and `drop_names`, which do not wait.
pub trait Kernel: Send + Sync {
    /// Forget the attributes and ACLs of one node. Waits for nothing.
    fn drop_attributes(&self, node: NodeId);
    /// Forget attributes and contents (for a directory: the listing) of one node.
    fn drop_contents(&self, node: NodeId);
    /// Forget every name in the tree. Waits for nothing.
    fn drop_names(&self);
    /// Whether files can be read and written past the daemon.
    fn gives_passthrough(&self) -> bool;
    /// Lets the kernel reach this file past the daemon for as long as the token lives.
    fn register(&self, file: BorrowedFd<'_>) -> std::io::Result<PassthroughToken>;
    /// Whether the mount is still in use: mounted, or detached with open files.
    fn is_mounted(&self) -> bool;
    /// How requests come.
    fn transport(&self) -> TransportStatus;
    /// Sets the number of threads that stay for requests from `/dev/fuse`.
    fn keep_threads(&self, threads: usize);
    /// Why requests may wait in the kernel, if they may, and what to do about it.
    fn shortage(&self) -> Option<String>;
}

/// See the module.
pub(crate) struct Context {
    /// What stays until the unmount.
    pub(crate) spec: FixedSpec,
    /// What a reload changes. Rules and branches are not here: `placement` and `branch` have them.
    settings: ArcSwap<PoolSpec>,
    pub(crate) state: Arc<StateDir>,
    pub(crate) metrics: Metrics,
    pub(crate) kernel: OnceLock<Box<dyn Kernel>>,
    /// The mount.
    pub(crate) mounted_as: OnceLock<MountId>,
    pub(crate) stopping: AtomicBool,
    /// Readable once the pool ends, for threads that wait for something else as well.
    ends: OwnedFd,
    /// Readable after a reload.
    reloads: OwnedFd,
    /// Things a person should look at, with what to do about them.
    warnings: RankedMutex<rank::ContextWarnings, BTreeMap<WarningSubject, String>>,
}

impl Context {
    pub(crate) fn open(spec: PoolSpec, state_dir: &Path) -> Result<Arc<Context>, Error> {
        let state = StateDir::open(state_dir, &spec.mount).map_err(|error| Error::Io {
            doing: format!("state directory {}", state_dir.display()),
            source: std::io::Error::other(error),
        })?;
        let event = || {
            eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
                .map_err(|error| Error::Io { doing: "begin".to_owned(), source: error.into() })
        };
        let fixed = FixedSpec { mount: spec.mount.clone(), transport: spec.transport, access_times: spec.access_times };
        let context = Context {
            spec: fixed,
            settings: ArcSwap::from_pointee(settings_of(spec)),
            state,
            metrics: Metrics::default(),
            kernel: OnceLock::new(),
            mounted_as: OnceLock::new(),
            stopping: AtomicBool::new(false),
            ends: event()?,
            reloads: event()?,
            warnings: RankedMutex::default(),
        };
        Ok(Arc::new(context))
    }

    /// What is in force now of what a reload changes. Cheap.
    pub(crate) fn settings(&self) -> Guard<Arc<PoolSpec>> {
        self.settings.load()
    }

    /// Applies other settings.
    pub(crate) fn configure(&self, spec: PoolSpec) {
        self.settings.store(Arc::new(settings_of(spec)));
        let _ = rustix::io::write(&self.reloads, &1_u64.to_ne_bytes());
    }

    /// Can be read from once the settings have changed, until [`Context::note_reload`].
    pub(crate) fn reloads(&self) -> BorrowedFd<'_> {
        self.reloads.as_fd()
    }

    /// Called by a thread that waits for reloads, before it reads the settings.
    pub(crate) fn note_reload(&self) {
        // Nothing to read: there was none.
        let _ = rustix::io::read(&self.reloads, &mut [0_u8; 8]);
    }

    /// Whether the kernel gives passthrough.
    pub(crate) fn gives_passthrough(&self) -> bool {
        self.kernel.get().is_some_and(|kernel| kernel.gives_passthrough())
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        // A counter that is full says the same.
        let _ = rustix::io::write(&self.ends, &1_u64.to_ne_bytes());
    }

    /// Can be read from once the pool ends.
    pub(crate) fn ends(&self) -> BorrowedFd<'_> {
        self.ends.as_fd()
    }

    /// Any error of a branch fails a listing.
    pub(crate) fn is_strict(&self) -> bool {
        self.settings().on_branch_error == OnBranchError::Fail
    }

    pub(crate) fn count(&self, metric: Metric) {
        self.metrics.add(metric, 1);
    }

    /// What the kernel keeps of a node's attributes may be old.
    pub(crate) fn forget_attributes(&self, node: NodeId) {
        if let Some(kernel) = self.kernel.get() {
            kernel.drop_attributes(node);
        }
    }

    /// Keeps a warning for the status. The newest of a subject replaces the one before, and their number is bounded.
    /// The log has all of them.
    pub(crate) fn warn(&self, subject: WarningSubject, warning: &Warning) {
        const MOST: usize = 1000;
        // Many files may be unable to move; their warnings must not crowd out those of other subjects.
        const MOST_OF_FILES: usize = 900;
        let text = advised(warning);
        let mut warnings = self.warnings.lock();
        if warnings.get(&subject) == Some(&text) {
            return;
        }
        tracing::warn!("{text}");
        let most = if matches!(subject, WarningSubject::Move(_)) { MOST_OF_FILES } else { MOST };
        if warnings.len() < most || warnings.contains_key(&subject) {
            warnings.insert(subject, text);
        }
    }

    pub(crate) fn clear_warning(&self, subject: &WarningSubject) {
        self.warnings.lock().remove(subject);
    }

    pub(crate) fn warnings(&self) -> Vec<String> {
        self.warnings.lock().values().cloned().collect()
    }
}

/// Without what others keep.
fn settings_of(spec: PoolSpec) -> PoolSpec {
    PoolSpec { branches: Vec::new(), rules: RulesSpec::default(), ..spec }
}
