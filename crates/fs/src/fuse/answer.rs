//! Results of the pool as answers to the kernel.

use std::time::Duration;

use umbrella_fuse::{Created, Entry, Errno, NodeId, Stat};

use crate::error::{OpError, OpResult};
use crate::fuse::Fuse;
use crate::fuse::convert::{attributes, opened};
use crate::io::Opened;
use crate::tree::Attr;

impl Fuse {
    /// A name that was looked up.
    pub(super) fn found(&self, result: OpResult<Attr>) -> OpResult<Entry> {
        let negative_ttl = self.ttl().min(self.most_negative_ttl);
        match result {
            Err(OpError::Sys(rustix::io::Errno::NOENT)) if !negative_ttl.is_zero() => Ok(Entry::negative(negative_ttl)),
            result => result.map(|attr| self.entry(&attr)),
        }
    }

    pub(super) fn entry(&self, attr: &Attr) -> Entry {
        Entry {
            node: NodeId(attr.node.0),
            generation: 0,
            entry_ttl: self.ttl(),
            attributes_ttl: self.attr_ttl(attr.cacheable),
            attributes: attributes(attr),
        }
    }

    /// How long the kernel may keep attributes.
    pub(super) fn attr_ttl(&self, cacheable: bool) -> Duration {
        if cacheable { self.ttl() } else { Duration::ZERO }
    }

    pub(super) fn stat(&self, attr: &Attr) -> Stat {
        Stat { attributes: attributes(attr), ttl: self.attr_ttl(attr.cacheable) }
    }

    pub(super) fn created(&self, result: OpResult<(Attr, Opened)>) -> OpResult<Created> {
        let (attr, done) = result?;
        let attributes_ttl = self.attr_ttl(attr.cacheable && done.cacheable);
        Ok(Created { entry: Entry { attributes_ttl, ..self.entry(&attr) }, opened: opened(&done) })
    }
}

/// Errors to errno: here and nowhere else.
impl From<OpError> for Errno {
    fn from(error: OpError) -> Errno {
        match error {
            OpError::Sys(rustix::io::Errno::TIMEDOUT | rustix::io::Errno::NOTCONN) | OpError::Offline => Errno::EIO,
            OpError::Sys(errno) => errno.into(),
            OpError::Stale => Errno::ESTALE,
            OpError::NoRoom => Errno::ENOSPC,
            OpError::Reserved => Errno::EPERM,
        }
    }
}
