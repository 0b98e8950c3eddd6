//! Contents that travel through the daemon.

use fuser::{Errno, ReplyData, ReplyLseek, ReplyWrite};
use rustix::fs::SeekFrom;

use super::Fuse;
use super::answer::errno;
use super::scratch::with_buffer;
use crate::handle::HandleId;

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
        with_buffer(size, |buffer| match self.pool.read(handle, buffer, offset) {
            Ok(got) => reply.data(buffer.get(..got).unwrap_or_default()),
            Err(error) => reply.error(errno(error)),
        });
    }

    pub(super) fn do_seek(&self, handle: HandleId, offset: i64, whence: i32, reply: ReplyLseek) {
        let Ok(at) = u64::try_from(offset) else { return reply.error(Errno::ENXIO) };
        let to = match whence {
            libc::SEEK_DATA => SeekFrom::Data(at),
            libc::SEEK_HOLE => SeekFrom::Hole(at),
            _ => return reply.error(Errno::EINVAL),
        };
        match self.pool.seek(handle, to) {
            Ok(found) => reply.offset(found as i64),
            Err(error) => reply.error(errno(error)),
        }
    }

    pub(super) fn do_write(&self, write: Write, data: &[u8], reply: ReplyWrite) {
        let Write { handle, offset, drop_bits, flags } = write;
        let written = self.pool.write(handle, data, offset, drop_bits);
        // O_SYNC has this bit, and one more.
        if flags & libc::O_DSYNC != 0 {
            let data_only = flags & libc::O_SYNC != libc::O_SYNC;
            return match written.and_then(|written| self.pool.fsync(handle, data_only).map(|()| written)) {
                Ok(written) => reply.written(written as u32),
                Err(error) => reply.error(errno(error)),
            };
        }
        match written {
            // It is answered when its branch has room for more dirty pages.
            Ok(written) => self.pool.when_room(handle, written, move || reply.written(written as u32)),
            Err(error) => reply.error(errno(error)),
        }
    }
}
