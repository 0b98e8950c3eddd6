//! What the pool sends the kernel without being asked.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use umbrella_fuse::{DeviceThreads, Notifier};

use crate::context::Kernel;
use crate::control::protocol::TransportStatus;
use crate::node::{NodeId, PassthroughToken};

/// See the module.
pub(crate) struct KernelNotifier {
    pub(crate) notifier: Notifier,
    pub(crate) gives_passthrough: bool,
    pub(crate) transport: TransportStatus,
    pub(crate) threads: DeviceThreads,
}

impl Kernel for KernelNotifier {
    fn drop_attributes(&self, node: NodeId) {
        let _ = self.notifier.inval_inode(umbrella_fuse::NodeId(node.0), -1, 0);
    }

    fn drop_contents(&self, node: NodeId) {
        let _ = self.notifier.inval_inode(umbrella_fuse::NodeId(node.0), 0, 0);
    }

    fn drop_names(&self) {
        if let Err(error) = self.notifier.inc_epoch() {
            tracing::debug!(%error, "this kernel keeps names until they time out");
        }
    }

    fn gives_passthrough(&self) -> bool {
        self.gives_passthrough
    }

    fn register(&self, file: BorrowedFd<'_>) -> std::io::Result<PassthroughToken> {
        Ok(Arc::new(self.notifier.open_backing(file)?))
    }

    fn is_mounted(&self) -> bool {
        self.notifier.is_mounted()
    }

    fn transport(&self) -> TransportStatus {
        self.transport.clone()
    }

    fn keep_threads(&self, threads: usize) {
        self.threads.keep(threads);
    }

    fn shortage(&self) -> Option<String> {
        self.notifier.shortage().map(str::to_owned)
    }
}
