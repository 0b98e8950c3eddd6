//! Changes of names and attributes: at once where they can; on a slow thread where a file has to come to another branch first, or is on its
//! way there.

use std::ffi::OsStr;
use std::sync::Arc;
use std::time::Duration;

use fuser::{ReplyAttr, ReplyEmpty};
use rustix::fs::XattrFlags;

use super::Fuse;
use super::answer::{done, errno};
use super::convert::file_attr;
use crate::error::{OpError, OpResult, Wait};
use crate::node::NodeId;
use crate::pool::{Attr, Change, Replace};

fn changed(result: OpResult<Attr>, ttl: Duration, reply: ReplyAttr) {
    match result {
        Ok(attr) => reply.attr(&ttl, &file_attr(&attr)),
        Err(error) => reply.error(errno(error)),
    }
}

impl Fuse {
    pub(super) fn do_setattr(&self, node: NodeId, change: Change, reply: ReplyAttr) {
        let ttl = self.ttl;
        match self.pool.setattr(node, &change, Wait::No) {
            Err(OpError::WouldBlock) => {
                let pool = Arc::clone(&self.pool);
                self.later(move || changed(pool.setattr(node, &change, Wait::Yes), ttl, reply));
            }
            result => changed(result, ttl, reply),
        }
    }

    pub(super) fn do_rename(
        &self,
        (parent, name): (NodeId, &OsStr),
        (to, to_name): (NodeId, &OsStr),
        replace: Replace,
        reply: ReplyEmpty,
    ) {
        match self.pool.rename(parent, name, to, to_name, replace, Wait::No) {
            Err(OpError::WouldBlock) => {
                let (pool, name, to_name) = (Arc::clone(&self.pool), name.to_owned(), to_name.to_owned());
                self.later(move || done(pool.rename(parent, &name, to, &to_name, replace, Wait::Yes), reply));
            }
            result => done(result, reply),
        }
    }

    pub(super) fn do_setxattr(&self, node: NodeId, name: &OsStr, value: &[u8], flags: XattrFlags, reply: ReplyEmpty) {
        match self.pool.setxattr(node, name, value, flags, Wait::No) {
            Err(OpError::WouldBlock) => {
                let (pool, name, value) = (Arc::clone(&self.pool), name.to_owned(), value.to_vec());
                self.later(move || done(pool.setxattr(node, &name, &value, flags, Wait::Yes), reply));
            }
            result => done(result, reply),
        }
    }
}
