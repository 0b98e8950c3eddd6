//! Contents that travel through the daemon.

use rustix::fs::SeekFrom;
use umbrella_fuse::{Data, Errno, LSeek, Offset, Read, Reply, Write, WriteFlags, Written};

use super::Fuse;
use super::convert::handle;

impl Fuse {
    pub(super) fn do_read(&self, request: &Read, reply: Reply<Data>) {
        reply.fill(request.size as usize, |buffer| {
            self.pool.read(handle(request.handle), buffer, request.offset).map_err(Errno::from)
        });
    }

    pub(super) fn do_seek(&self, request: &LSeek, reply: Reply<Offset>) {
        let Ok(at) = u64::try_from(request.offset) else { return reply.error(Errno::ENXIO) };
        let to = match request.whence {
            libc::SEEK_DATA => SeekFrom::Data(at),
            libc::SEEK_HOLE => SeekFrom::Hole(at),
            _ => return reply.error(Errno::EINVAL),
        };
        reply.send(self.pool.seek(handle(request.handle), to).map(Offset));
    }

    pub(super) fn do_write(&self, request: &Write<'_>, reply: Reply<Written>) {
        let handle = handle(request.handle);
        let drop_bits = request.write_flags.contains(WriteFlags::KILL_SUIDGID);
        let written = self.pool.write(handle, request.data, request.offset, drop_bits);
        // O_SYNC has this bit, and one more.
        if request.flags & libc::O_DSYNC != 0 {
            let data_only = request.flags & libc::O_SYNC != libc::O_SYNC;
            let synced = written.and_then(|written| self.pool.fsync(handle, data_only).map(|()| written));
            return reply.send(synced.map(|written| Written(written as u32)));
        }
        match written {
            // It is answered when its branch has room for more dirty pages.
            Ok(written) => self.pool.when_room(handle, written, move || reply.ok(Written(written as u32))),
            Err(error) => reply.error(error.into()),
        }
    }
}
