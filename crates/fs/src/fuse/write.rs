//! Writes that come through the daemon: at once where they can, on a slow thread where the file has to move or to be synced.

use std::sync::Arc;

use fuser::ReplyWrite;

use super::Fuse;
use super::answer::{errno, wrote};
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
            Err(error) if error.is_full() => 0,
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
