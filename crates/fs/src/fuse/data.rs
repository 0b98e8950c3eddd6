//! Contents that travel through the daemon, and flags of files.

use rustix::fs::SeekFrom;
use umbrella_fuse::{Data, Errno, FileIoctl, IoctlAnswer, LSeek, Offset, Read, Reply, Write, WriteFlags, Written};

use super::Fuse;
use super::convert::{fs_xattr, fs_xattr_shown, handle};
use crate::error::OpResult;
use crate::node::NodeId;

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

    pub(super) fn file_ioctl(&self, node: NodeId, asked: FileIoctl) -> OpResult<IoctlAnswer> {
        Ok(match asked {
            FileIoctl::GetFlags => IoctlAnswer::flags(self.pool.flags(node)?),
            FileIoctl::GetFsXattr => IoctlAnswer::fs_xattr(&fs_xattr_shown(&self.pool.fs_xattr(node)?)),
            FileIoctl::SetFlags(flags) => self.pool.set_flags(node, flags).map(|()| IoctlAnswer::default())?,
            FileIoctl::SetFsXattr(value) => {
                self.pool.set_fs_xattr(node, fs_xattr(&value)).map(|()| IoctlAnswer::default())?
            }
        })
    }
}
