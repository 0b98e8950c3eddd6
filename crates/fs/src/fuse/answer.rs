//! Results of the pool as replies to the kernel.

use std::time::Duration;

use fuser::{
    Errno, FileHandle, Generation, INodeNo, OpenFlags, ReplyAttr, ReplyCreate, ReplyEmpty, ReplyEntry, ReplyOpen,
    ReplyXattr,
};

use super::Fuse;
use super::convert::{backing_id, file_attr, open_flags, open_request};
use crate::error::{OpError, OpResult};
use crate::node::NodeId;
use crate::pool::{Attr, Opened};

impl Fuse {
    pub(super) fn entry(&self, result: OpResult<Attr>, reply: ReplyEntry) {
        match result {
            Ok(attr) => self.give_entry(&attr, reply),
            Err(OpError::Sys(rustix::io::Errno::NOENT)) if !self.negative_ttl.is_zero() => {
                reply.negative(&self.negative_ttl);
            }
            Err(error) => reply.error(errno(error)),
        }
    }

    fn give_entry(&self, attr: &Attr, reply: ReplyEntry) {
        let kept = self.attr_ttl(attr.cacheable);
        reply.entry_for(INodeNo(attr.node.0), &self.ttl, &kept, &file_attr(attr), Generation(0));
    }

    /// How long the kernel may keep attributes.
    pub(super) fn attr_ttl(&self, cacheable: bool) -> Duration {
        if cacheable { self.ttl } else { Duration::ZERO }
    }

    pub(super) fn made(&self, result: OpResult<Attr>, reply: ReplyEntry) {
        match result {
            Ok(attr) => self.give_entry(&attr, reply),
            Err(error) => reply.error(errno(error)),
        }
    }

    pub(super) fn created(&self, result: OpResult<(Attr, Opened)>, reply: ReplyCreate) {
        let (attr, opened) = match result {
            Ok(created) => created,
            Err(error) => return reply.error(errno(error)),
        };
        let (node, handle) = (INodeNo(attr.node.0), FileHandle(opened.handle.0));
        let shown = file_attr(&attr);
        let kept = self.attr_ttl(attr.cacheable && opened.cacheable);
        match backing_id(&opened) {
            Some(id) => reply.created_passthrough_for(
                node,
                &self.ttl,
                &kept,
                &shown,
                Generation(0),
                handle,
                open_flags(&opened),
                id,
            ),
            None => reply.created_for(node, &self.ttl, &kept, &shown, Generation(0), handle, open_flags(&opened)),
        }
    }

    pub(super) fn attributes(&self, result: OpResult<Attr>, reply: ReplyAttr) {
        match result {
            Ok(attr) => reply.attr(&self.attr_ttl(attr.cacheable), &file_attr(&attr)),
            Err(error) => reply.error(errno(error)),
        }
    }

    pub(super) fn do_open(&self, ino: INodeNo, drop_set_id: bool, flags: OpenFlags, reply: ReplyOpen) {
        match self.pool.open(NodeId(ino.0), open_request(flags.0, drop_set_id)) {
            Err(error) => reply.error(errno(error)),
            Ok(opened) => match backing_id(&opened) {
                Some(id) => reply.opened_passthrough(FileHandle(opened.handle.0), open_flags(&opened), id),
                None => reply.opened(FileHandle(opened.handle.0), open_flags(&opened)),
            },
        }
    }
}

/// Errors to errno: here and nowhere else.
pub(super) fn errno(error: OpError) -> Errno {
    let raw = match error {
        OpError::Sys(rustix::io::Errno::TIMEDOUT | rustix::io::Errno::NOTCONN) | OpError::Offline => libc::EIO,
        OpError::Sys(errno) => errno.raw_os_error(),
        OpError::Stale => libc::ESTALE,
        OpError::NoRoom => libc::ENOSPC,
        OpError::Reserved => libc::EPERM,
    };
    Errno::from_i32(raw)
}

pub(super) fn done(result: OpResult<()>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(error)),
    }
}

pub(super) fn give(result: OpResult<Vec<u8>>, size: u32, reply: ReplyXattr) {
    match result {
        Ok(value) if size == 0 => reply.size(value.len() as u32),
        Ok(value) if value.len() > size as usize => reply.error(Errno::ERANGE),
        Ok(value) => reply.data(&value),
        Err(error) => reply.error(errno(error)),
    }
}
