//! Notifications: messages to the kernel that answer no request.
//!
//! Most take locks of the kernel that a request may hold until it is answered. Call them from a thread that answers
//! nothing, or for a node that no request is about. [`Notifier::inc_epoch`] and [`Notifier::resend`] take none.

use std::ffi::OsStr;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use zerocopy::IntoBytes;

use crate::abi::{self, bit, notify_code};
use crate::backing::BackingFile;
use crate::device::Device;
use crate::types::{NodeId, PollHandle, RequestId};

/// Sends notifications to the kernel. ENOENT means that the kernel has no such thing in its cache.
#[derive(Debug, Clone)]
pub struct Notifier {
    device: Arc<Device>,
}

impl Notifier {
    pub(crate) fn new(device: Arc<Device>) -> Notifier {
        Notifier { device }
    }

    /// Whether the mount is still there.
    pub fn is_mounted(&self) -> bool {
        self.device.is_connected()
    }

    /// Why requests may wait in the kernel for others, if they may: a processor could get no further thread.
    pub fn shortage(&self) -> Option<&str> {
        self.device.shortage()
    }

    /// Registers a file to pass others through to ([`crate::Opened::passthrough`]). On an error open without it.
    pub fn open_backing(&self, file: BorrowedFd<'_>) -> io::Result<BackingFile> {
        BackingFile::register(&self.device, file)
    }

    /// Wakes the pollers of a file, which ask again.
    pub fn poll_wakeup(&self, wake: PollHandle) -> io::Result<()> {
        self.send(notify_code::POLL, &[abi::NotifyPollWakeupOut { kh: wake.0 }.as_bytes()])
    }

    /// Drops attributes, and `length` bytes of cached data from `offset` on (0: to the end; negative offset: none).
    pub fn inval_inode(&self, node: NodeId, offset: i64, length: i64) -> io::Result<()> {
        let body = abi::NotifyInvalInodeOut { ino: node.0, off: offset, len: length };
        self.send(notify_code::INVAL_INODE, &[body.as_bytes()])
    }

    /// Drops a name.
    pub fn inval_entry(&self, parent: NodeId, name: &OsStr) -> io::Result<()> {
        self.inval(parent, name, 0)
    }

    /// Expires a name: the kernel looks it up again before it uses it, and keeps what is mounted below it. Linux 6.2.
    pub fn expire_entry(&self, parent: NodeId, name: &OsStr) -> io::Result<()> {
        self.inval(parent, name, bit::EXPIRE_ONLY)
    }

    fn inval(&self, parent: NodeId, name: &OsStr, flags: u32) -> io::Result<()> {
        let body = abi::NotifyInvalEntryOut { parent: parent.0, namelen: name.len() as u32, flags };
        self.send(notify_code::INVAL_ENTRY, &[body.as_bytes(), name.as_bytes(), &[0]])
    }

    /// Says that a name of this node was removed: watchers of the directory get an event.
    pub fn delete(&self, parent: NodeId, child: NodeId, name: &OsStr) -> io::Result<()> {
        let namelen = name.len() as u32;
        let body = abi::NotifyDeleteOut { parent: parent.0, child: child.0, namelen, padding: 0 };
        self.send(notify_code::DELETE, &[body.as_bytes(), name.as_bytes(), &[0]])
    }

    /// Puts data into the kernel's cache of a file.
    pub fn store(&self, node: NodeId, offset: u64, data: &[u8]) -> io::Result<()> {
        let body = abi::NotifyStoreOut { nodeid: node.0, offset, size: data.len() as u32, padding: 0 };
        self.send(notify_code::STORE, &[body.as_bytes(), data])
    }

    /// Requests the data that the kernel has cached of a file. It arrives at [`crate::Filesystem::retrieved`], with
    /// this id.
    pub fn retrieve(&self, node: NodeId, offset: u64, size: u32) -> io::Result<RequestId> {
        self.device.retrieve(node.0, offset, size).map(RequestId)
    }

    /// Has unanswered requests from `/dev/fuse` sent again ([`crate::Context::resent`]). Linux 6.9.
    pub fn resend(&self) -> io::Result<()> {
        self.send(notify_code::RESEND, &[])
    }

    /// Expires every name. Linux 6.16.
    pub fn inc_epoch(&self) -> io::Result<()> {
        self.send(notify_code::INC_EPOCH, &[])
    }

    /// Asks the kernel to forget nodes that nobody uses. Linux 6.18.
    pub fn prune(&self, nodes: &[NodeId]) -> io::Result<()> {
        let ids: Vec<u64> = nodes.iter().map(|node| node.0).collect();
        let body = abi::NotifyPruneOut { count: ids.len() as u32, padding: 0, spare: 0 };
        self.send(notify_code::PRUNE, &[body.as_bytes(), ids.as_bytes()])
    }

    /// The number of the notification is where answers have their error.
    fn send(&self, code: i32, parts: &[&[u8]]) -> io::Result<()> {
        self.device.write(0, code, parts)
    }
}

#[cfg(test)]
mod tests;
