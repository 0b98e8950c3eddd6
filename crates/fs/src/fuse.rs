//! The kernel's side: FUSE requests to operations of the pool and back. The only place that knows FUSE, and the only map from
//! errors to errno. Holds no state of its own beyond how long the kernel may keep what it is told, and who uses it.

mod answer;
mod convert;
mod data;
mod list;
mod readers;
mod scratch;
mod session;
mod tell;

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, Filesystem, INodeNo, InitFlags, KernelConfig, LockOwner,
    OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty,
    ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyStatx, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use rustix::fs::{FallocateFlags, XattrFlags};

use answer::{done, errno, give};
use convert::{caller, decode_rdev, file_attr, listing_flags, new_time, open_request, system_time};
pub(crate) use session::mount;

use readers::Readers;

use crate::handle::HandleId;
use crate::node::NodeId;
use crate::pool::{Change, Pool, Replace, without_trusted};

/// Protocol minor with FUSE_NOTIFY_INC_EPOCH: all names can be dropped at once.
const MINOR_WITH_EPOCH: u32 = 44;
/// Reads ahead and asynchronous ones that the kernel sends before it holds back the others: those that wait for a file on its way to another
/// branch must not use that up.
const MOST_IN_BACKGROUND: u16 = 1024;
/// How long absent names are kept where the kernel cannot be told that a branch came back.
const BLIND_NEGATIVE_TTL: Duration = Duration::from_secs(1);

/// See the module.
pub(crate) struct Fuse {
    pool: Arc<Pool>,
    ttl: Duration,
    negative_ttl: Duration,
    readers: Readers,
}

impl Fuse {
    pub(crate) fn new(pool: Arc<Pool>) -> Fuse {
        let ttl = pool.spec().cache_timeout;
        Fuse { pool, ttl, negative_ttl: ttl, readers: Readers::new() }
    }
}

impl Filesystem for Fuse {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        let offered = config.capabilities();
        // No ATOMIC_O_TRUNC: with it a program that runs is cut to nothing before the kernel says ETXTBSY.
        let wanted = InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_READDIRPLUS_AUTO
            | InitFlags::FUSE_CACHE_SYMLINKS
            | InitFlags::FUSE_POSIX_ACL
            | InitFlags::FUSE_DONT_MASK
            | InitFlags::FUSE_HANDLE_KILLPRIV_V2
            | InitFlags::FUSE_ASYNC_DIO
            | InitFlags::FUSE_SETXATTR_EXT
            | InitFlags::FUSE_BIG_WRITES;
        let _ = config.add_capabilities(wanted & offered);
        let passthrough = offered.contains(InitFlags::FUSE_PASSTHROUGH)
            && config.set_max_stack_depth(1).is_ok()
            && config.add_capabilities(InitFlags::FUSE_PASSTHROUGH).is_ok();
        self.pool.set_passthrough(passthrough);
        let _ = config.set_max_background(MOST_IN_BACKGROUND);
        if config.kernel_abi().1 < MINOR_WITH_EPOCH {
            self.negative_ttl = self.ttl.min(BLIND_NEGATIVE_TTL);
        }
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.readers.asked(request.pid(), NodeId(parent.0));
        self.entry(self.pool.lookup(NodeId(parent.0), name), reply);
    }

    fn forget(&self, _request: &Request, ino: INodeNo, count: u64) {
        self.pool.forget(NodeId(ino.0), count);
    }

    fn getattr(&self, _request: &Request, ino: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        self.attributes(self.pool.getattr(NodeId(ino.0)), reply);
    }

    fn statx(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: Option<FileHandle>,
        _flags: u32,
        _mask: u32,
        reply: ReplyStatx,
    ) {
        match self.pool.getattr(NodeId(ino.0)) {
            Ok(attr) => {
                reply.statx(&self.attr_ttl(attr.cacheable), &file_attr(&attr), attr.meta.btime.map(system_time));
            }
            Err(error) => reply.error(errno(error)),
        }
    }

    fn setattr(
        &self,
        request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        ctime: Option<SystemTime>,
        handle: Option<FileHandle>,
        crtime: Option<SystemTime>,
        chgtime: Option<SystemTime>,
        bkuptime: Option<SystemTime>,
        flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        self.setattr_killpriv(
            request, ino, false, mode, uid, gid, size, atime, mtime, ctime, handle, crtime, chgtime, bkuptime, flags,
            reply,
        );
    }

    fn setattr_killpriv(
        &self,
        request: &Request,
        ino: INodeNo,
        kill_suidgid: bool,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let times = [atime, mtime].map(|time| time.is_some());
        let asks_for_nothing = mode.or(uid).or(gid).is_none() && size.is_none() && times == [false, false];
        let change = Change {
            perm: mode.map(|mode| mode & 0o7777),
            uid,
            gid,
            size,
            atime: atime.map(new_time),
            mtime: mtime.map(new_time),
            handle: handle.map(|handle| HandleId(handle.0)),
            drop_set_id: kill_suidgid,
            nothing_by: (asks_for_nothing && !kill_suidgid).then(|| caller(request, 0)),
        };
        self.attributes(self.pool.setattr(NodeId(ino.0), &change), reply);
    }

    fn readlink(&self, _request: &Request, ino: INodeNo, reply: ReplyData) {
        match self.pool.readlink(NodeId(ino.0)) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let made = self.pool.mknod(NodeId(parent.0), name, mode, decode_rdev(rdev), caller(request, umask));
        self.made(made, reply);
    }

    fn mkdir(&self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        self.made(self.pool.mkdir(NodeId(parent.0), name, mode & 0o7777, caller(request, umask)), reply);
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let made = self.pool.symlink(NodeId(parent.0), name, target.as_os_str(), caller(request, 0));
        self.made(made, reply);
    }

    fn link(&self, _request: &Request, ino: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.made(self.pool.link(NodeId(ino.0), NodeId(parent.0), name), reply);
    }

    fn unlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        done(self.pool.unlink(NodeId(parent.0), name), reply);
    }

    fn rmdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        done(self.pool.rmdir(NodeId(parent.0), name), reply);
    }

    fn rename(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        to: INodeNo,
        to_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let replace = match flags {
            RenameFlags::RENAME_NOREPLACE => Replace::No,
            RenameFlags::RENAME_EXCHANGE => Replace::Exchange,
            flags if flags.is_empty() => Replace::Yes,
            _ => return reply.error(Errno::EINVAL),
        };
        done(self.pool.rename(NodeId(parent.0), name, NodeId(to.0), to_name, replace), reply);
    }

    fn open(&self, _request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        self.do_open(ino, false, flags, reply);
    }

    fn open_killpriv(&self, _request: &Request, ino: INodeNo, kill_suidgid: bool, flags: OpenFlags, reply: ReplyOpen) {
        self.do_open(ino, kill_suidgid, flags, reply);
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let created =
            self.pool.create(NodeId(parent.0), name, mode & 0o7777, caller(request, umask), open_request(flags, false));
        self.created(created, reply);
    }

    fn tmpfile(&self, request: &Request, parent: INodeNo, mode: u32, umask: u32, flags: i32, reply: ReplyCreate) {
        let made = self.pool.create_unnamed(
            NodeId(parent.0),
            mode & 0o7777,
            caller(request, umask),
            open_request(flags, false),
        );
        self.created(made, reply);
    }

    fn read(
        &self,
        _request: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.do_read(HandleId(handle.0), offset, size as usize, reply);
    }

    fn write(
        &self,
        _request: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let drop_bits = write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        self.do_write(data::Write { handle: HandleId(handle.0), offset, drop_bits, flags: flags.0 }, data, reply);
    }

    /// Asked of files on branches that may hang only.
    fn flush(&self, _request: &Request, _ino: INodeNo, handle: FileHandle, _owner: LockOwner, reply: ReplyEmpty) {
        done(self.pool.flush(HandleId(handle.0)), reply);
    }

    fn release(
        &self,
        _request: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        done(self.pool.release(HandleId(handle.0)), reply);
    }

    fn fsync(&self, _request: &Request, _ino: INodeNo, handle: FileHandle, data_only: bool, reply: ReplyEmpty) {
        done(self.pool.fsync(HandleId(handle.0), data_only), reply);
    }

    fn opendir(&self, _request: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let alone = self.pool.begin_listing(NodeId(ino.0));
        reply.opened(FileHandle(0), listing_flags(alone && !self.ttl.is_zero()));
    }

    fn releasedir(&self, _request: &Request, ino: INodeNo, _handle: FileHandle, _flags: OpenFlags, reply: ReplyEmpty) {
        self.pool.end_listing(NodeId(ino.0));
        reply.ok();
    }

    fn readdir(&self, _request: &Request, ino: INodeNo, _handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        match self.list(ino, offset, &mut reply) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn readdirplus(
        &self,
        request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        match self.list_plus(request.pid(), ino, offset, &mut reply) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn fsyncdir(&self, _request: &Request, ino: INodeNo, _handle: FileHandle, data_only: bool, reply: ReplyEmpty) {
        done(self.pool.fsync_dir(NodeId(ino.0), data_only), reply);
    }

    fn syncfs(&self, _request: &Request, _ino: INodeNo, reply: ReplyEmpty) {
        done(self.pool.sync_all(), reply);
    }

    fn statfs(&self, _request: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        const UNIT: u64 = 4096;
        let space = self.pool.space();
        let (total, free, for_root) = (space.total / UNIT, space.free / UNIT, space.free_for_root / UNIT);
        reply.statfs(total, for_root, free, space.files_total, space.files_free, UNIT as u32, 255, UNIT as u32);
    }

    fn setxattr(
        &self,
        _request: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let flags = XattrFlags::from_bits_truncate(flags as u32);
        done(self.pool.setxattr(NodeId(ino.0), name, value, flags), reply);
    }

    fn setxattr_killpriv(
        &self,
        request: &Request,
        ino: INodeNo,
        kill_sgid: bool,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        position: u32,
        reply: ReplyEmpty,
    ) {
        // An ACL set by somebody who is not in the file's group takes set-group-id away.
        if kill_sgid && let Err(error) = self.pool.drop_set_gid(NodeId(ino.0)) {
            return reply.error(errno(error));
        }
        self.setxattr(request, ino, name, value, flags, position, reply);
    }

    fn getxattr(&self, _request: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        give(self.pool.getxattr(NodeId(ino.0), name), size, reply);
    }

    fn listxattr(&self, request: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let names = self.pool.listxattr(NodeId(ino.0));
        give(if request.uid() == 0 { names } else { names.map(without_trusted) }, size, reply);
    }

    fn removexattr(&self, _request: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        done(self.pool.removexattr(NodeId(ino.0), name), reply);
    }

    fn fallocate(
        &self,
        request: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let drop_bits = request.uid() != 0;
        let mode = FallocateFlags::from_bits_retain(mode as u32);
        done(self.pool.fallocate(HandleId(handle.0), mode, offset, length, drop_bits), reply);
    }

    fn lseek(
        &self,
        _request: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        self.do_seek(HandleId(handle.0), offset, whence, reply);
    }

    fn ioctl(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        _flags: fuser::IoctlFlags,
        _command: u32,
        _data: &[u8],
        _size: u32,
        reply: fuser::ReplyIoctl,
    ) {
        reply.error(Errno::ENOTTY);
    }

    fn copy_file_range(
        &self,
        request: &Request,
        _ino_in: INodeNo,
        from: FileHandle,
        offset: u64,
        _ino_out: INodeNo,
        to: FileHandle,
        at: u64,
        length: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let drop_bits = request.uid() != 0;
        let length = length.min(1 << 30) as usize;
        match self.pool.copy_range(HandleId(from.0), offset, HandleId(to.0), at, length, drop_bits) {
            Ok(copied) => reply.written(copied as u32),
            Err(error) => reply.error(errno(error)),
        }
    }
}
