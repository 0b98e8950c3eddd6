//! Contents that travel through the daemon: at once where they can; on a slow thread where the file has to move, is on its way to another
//! branch, or is to be synced.

use std::sync::Arc;

use fuser::{Errno, ReplyData, ReplyLseek, ReplyWrite};
use rustix::fs::SeekFrom;

use super::Fuse;
use super::answer::{errno, wrote};
use super::scratch::with_buffer;
use crate::error::{OpError, OpResult, Wait};
use crate::handle::HandleId;
use crate::pool::Pool;

/// What a write asks, besides its data.
#[derive(Debug, Clone, Copy)]
pub(super) struct Write {
    pub(super) handle: HandleId,
    pub(super) offset: u64,
    /// Set-user-id and set-group-id go.
    pub(super) drop_bits: bool,
    /// Flags of the open file.
    pub(super) flags: i32,
}

impl Fuse {
    pub(super) fn do_read(&self, handle: HandleId, offset: u64, size: usize, reply: ReplyData) {
        let read = move |pool: &Pool, wait: Wait, reply: ReplyData| {
            with_buffer(size, |buffer| match pool.read(handle, buffer, offset, wait) {
                Err(OpError::WouldBlock) => Some(reply),
                Ok(got) => {
                    reply.data(buffer.get(..got).unwrap_or_default());
                    None
                }
                Err(error) => {
                    reply.error(errno(error));
                    None
                }
            })
        };
        if let Some(reply) = read(&self.pool, Wait::No, reply) {
            let pool = Arc::clone(&self.pool);
            self.later(move || drop(read(&pool, Wait::Yes, reply)));
        }
    }

    pub(super) fn do_seek(&self, handle: HandleId, offset: i64, whence: i32, reply: ReplyLseek) {
        let Ok(at) = u64::try_from(offset) else { return reply.error(Errno::ENXIO) };
        let to = match whence {
            libc::SEEK_DATA => SeekFrom::Data(at),
            libc::SEEK_HOLE => SeekFrom::Hole(at),
            _ => return reply.error(Errno::EINVAL),
        };
        let answer = |found: OpResult<u64>, reply: ReplyLseek| match found {
            Ok(found) => reply.offset(found as i64),
            Err(error) => reply.error(errno(error)),
        };
        match self.pool.seek(handle, to, Wait::No) {
            Err(OpError::WouldBlock) => {
                let pool = Arc::clone(&self.pool);
                self.later(move || answer(pool.seek(handle, to, Wait::Yes), reply));
            }
            found => answer(found, reply),
        }
    }

    pub(super) fn do_write(&self, write: Write, data: &[u8], reply: ReplyWrite) {
        let Write { handle, offset, drop_bits, flags } = write;
        // O_SYNC has this bit, and one more.
        if flags & libc::O_DSYNC != 0 {
            let (pool, data) = (Arc::clone(&self.pool), data.to_vec());
            let data_only = flags & libc::O_SYNC != libc::O_SYNC;
            return self.later(move || {
                let written = pool.write_moving(handle, &data, offset, drop_bits);
                match written.and_then(|written| pool.fsync(handle, data_only).map(|()| written)) {
                    Ok(written) => reply.written(written as u32),
                    Err(error) => reply.error(errno(error)),
                }
            });
        }
        let before = match self.pool.write(handle, data, offset, drop_bits) {
            Ok(written) if written == data.len() => return wrote(&self.pool, handle, written, reply),
            Ok(written) => written,
            Err(OpError::WouldBlock) => 0,
            Err(error) => return reply.error(errno(error)),
        };
        let rest = data.get(before..).unwrap_or_default().to_vec();
        let pool = Arc::clone(&self.pool);
        self.later(move || match pool.write_moving(handle, &rest, offset + before as u64, drop_bits) {
            Ok(written) => wrote(&pool, handle, before + written, reply),
            Err(_) if before > 0 => wrote(&pool, handle, before, reply),
            Err(error) => reply.error(errno(error)),
        });
    }
}
