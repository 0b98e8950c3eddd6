//! The kernel's side: FUSE requests to operations of the pool and back. The only place that knows FUSE, and the only
//! map from errors to errno. Holds no state of its own except how long the kernel may keep answers, and which threads
//! use attributes.

mod answer;
mod attribute_use;
mod convert;
mod data;
mod list;
mod notify;
mod session;
mod trace;

use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{FallocateFlags, XattrFlags};
use umbrella_fuse::{
    Agreement, Context, Copied, CopyFileRange, Create, Created, Data, Entry, Errno, FAllocate, FSync, FileHandle,
    Filesystem, Flush, Forget, GetAttr, GetStatx, GetXattr, InitFlags, Ioctl, IoctlAnswer, LSeek, Link, ListXattr,
    Listing, Lookup, MkDir, MkNod, Offer, Offset, Open, Opened, Read, ReadLink, Release, RemoveXattr, Rename,
    RenameFlags, Reply, RmDir, SetAttr, SetXattr, Space, Stat, StatFs, Statx, SymLink, SyncFs, Unlink, Write, Written,
    Xattr,
};

use attribute_use::AttributeUse;
use convert::{
    asker, attributes, caller, changer, handle, listing_flags, new_time, node, open_request, opened, timestamp,
};

use crate::error::OpError;
use crate::io::{AttributeChange, has_trusted, without_trusted};
use crate::names::{OldName, Replace};
use crate::node::looks::work_for;
use crate::pool::Pool;

pub(crate) use session::{ServeOptions, mount};
pub(crate) use trace::RequestTrace;

/// Protocol minor with FUSE_NOTIFY_INC_EPOCH: all names can be dropped at once.
const MINOR_WITH_EPOCH: u32 = 44;
/// Number of read-aheads and asynchronous reads that the kernel sends before it holds back others. Requests that wait
/// for a file on its way to another branch must not use that up.
const MOST_IN_BACKGROUND: u16 = 1024;
/// How long absent names are kept where the kernel cannot be told that a branch came back.
const BLIND_NEGATIVE_TTL: Duration = Duration::from_secs(1);
/// What `ls -l` asks of each file.
const SELINUX_LABEL: &str = "security.selinux";
/// The most that one request copies from file to file: it keeps its thread for as long.
const MOST_COPIED: u64 = 1 << 30;

/// See the module.
pub(crate) struct Fuse {
    pool: Arc<Pool>,
    /// Whether the kernel does, which is known from INIT on.
    gives_passthrough: bool,
    /// The longest time for which absent names are kept.
    most_negative_ttl: Duration,
    attribute_use: AttributeUse,
    /// The answer for a file without an SELinux label.
    no_label: Errno,
}

impl Fuse {
    pub(crate) fn new(pool: Arc<Pool>) -> Fuse {
        Fuse {
            pool,
            gives_passthrough: false,
            most_negative_ttl: Duration::MAX,
            attribute_use: AttributeUse::new(),
            no_label: no_label(),
        }
    }

    /// How long the kernel may keep an answer.
    fn ttl(&self) -> Duration {
        self.pool.context().settings().cache_timeout
    }
}

/// Without SELinux no program makes or reads labels. With this answer a program asks once, and not for each file. With
/// SELinux the kernel wants to know that there is no label.
fn no_label() -> Errno {
    let known = std::fs::read_to_string("/proc/filesystems");
    if known.is_ok_and(|known| !known.contains("selinuxfs")) { Errno::EOPNOTSUPP } else { Errno::ENODATA }
}

impl Filesystem for Fuse {
    fn init(&mut self, offer: &Offer, agreement: &mut Agreement) -> std::io::Result<()> {
        // No ATOMIC_O_TRUNC: with it a program that runs is cut to nothing before the kernel says ETXTBSY. No
        // READDIRPLUS_AUTO: of a large directory it would ask for the names alone, and then for the attributes one by
        // one, as `ls -l` lists first and looks later.
        agreement.flags |= InitFlags::DO_READDIRPLUS
            | InitFlags::CACHE_SYMLINKS
            | InitFlags::POSIX_ACL
            | InitFlags::DONT_MASK
            | InitFlags::HANDLE_KILLPRIV_V2
            | InitFlags::SETXATTR_EXT
            | InitFlags::ALLOW_IDMAP
            | InitFlags::PASSTHROUGH;
        agreement.max_stack_depth = 1;
        agreement.max_background = MOST_IN_BACKGROUND;
        agreement.congestion_threshold = MOST_IN_BACKGROUND / 4 * 3;
        self.gives_passthrough = offer.flags.contains(InitFlags::PASSTHROUGH);
        if offer.minor < MINOR_WITH_EPOCH {
            self.most_negative_ttl = BLIND_NEGATIVE_TTL;
        }
        Ok(())
    }

    fn lookup(&self, context: &Context<'_>, request: Lookup<'_>, reply: Reply<Entry>) {
        work_for(context.pid);
        let parent = node(request.parent);
        self.attribute_use.looked_up(context.pid, parent);
        reply.send(self.found(self.pool.lookup(parent, request.name)));
    }

    fn forget(&self, request: &Forget) {
        self.pool.forget(node(request.node), request.lookups);
    }

    fn getattr(&self, context: &Context<'_>, request: GetAttr, reply: Reply<Stat>) {
        work_for(context.pid);
        reply.send(self.pool.getattr(node(request.node)).map(|attr| self.stat(&attr)));
    }

    fn statx(&self, context: &Context<'_>, request: GetStatx, reply: Reply<Statx>) {
        work_for(context.pid);
        reply.send(self.pool.getattr(node(request.node)).map(|attr| {
            let ttl = self.attr_ttl(attr.cacheable);
            Statx { attributes: attributes(&attr), ttl, birth: attr.meta.btime.map(timestamp) }
        }));
    }

    fn setattr(&self, context: &Context<'_>, request: SetAttr, reply: Reply<Stat>) {
        let SetAttr { mode, uid, gid, size, atime, mtime, .. } = request;
        let asks_for_nothing = mode.or(uid).or(gid).is_none() && size.is_none() && atime.is_none() && mtime.is_none();
        let change = AttributeChange {
            perm: mode.map(|mode| mode & 0o7777),
            uid,
            gid,
            size,
            atime: atime.map(new_time),
            mtime: mtime.map(new_time),
            handle: request.handle.map(handle),
            drop_set_id: request.kill_suidgid,
            nothing_by: (asks_for_nothing && !request.kill_suidgid).then(|| asker(context)),
        };
        reply.send(self.pool.setattr(node(request.node), &change).map(|attr| self.stat(&attr)));
    }

    fn readlink(&self, _: &Context<'_>, request: ReadLink, reply: Reply<Data>) {
        match self.pool.readlink(node(request.node)) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(error.into()),
        }
    }

    fn mknod(&self, context: &Context<'_>, request: MkNod<'_>, reply: Reply<Entry>) {
        work_for(context.pid);
        let MkNod { parent, name, mode, umask, device, .. } = request;
        let made = self.pool.mknod(node(parent), name, mode, device, caller(context, umask));
        reply.send(made.map(|attr| self.entry(&attr)));
    }

    fn mkdir(&self, context: &Context<'_>, request: MkDir<'_>, reply: Reply<Entry>) {
        work_for(context.pid);
        let MkDir { parent, name, mode, umask, .. } = request;
        let made = self.pool.mkdir(node(parent), name, mode & 0o7777, caller(context, umask));
        reply.send(made.map(|attr| self.entry(&attr)));
    }

    fn symlink(&self, context: &Context<'_>, request: SymLink<'_>, reply: Reply<Entry>) {
        work_for(context.pid);
        let made = self.pool.symlink(node(request.parent), request.name, request.target, caller(context, 0));
        reply.send(made.map(|attr| self.entry(&attr)));
    }

    fn link(&self, context: &Context<'_>, request: Link<'_>, reply: Reply<Entry>) {
        work_for(context.pid);
        let made = self.pool.link(node(request.node), node(request.new_parent), request.new_name);
        reply.send(made.map(|attr| self.entry(&attr)));
    }

    fn unlink(&self, context: &Context<'_>, request: Unlink<'_>, reply: Reply<()>) {
        work_for(context.pid);
        reply.send(self.pool.unlink(node(request.parent), request.name));
    }

    fn rmdir(&self, context: &Context<'_>, request: RmDir<'_>, reply: Reply<()>) {
        work_for(context.pid);
        reply.send(self.pool.rmdir(node(request.parent), request.name));
    }

    fn rename(&self, context: &Context<'_>, request: Rename<'_>, reply: Reply<()>) {
        work_for(context.pid);
        let Rename { parent, name, new_parent, new_name, flags } = request;
        let whiteout = flags.contains(RenameFlags::WHITEOUT);
        let behind = if whiteout { OldName::Whiteout } else { OldName::Nothing };
        let replace = match flags - RenameFlags::WHITEOUT {
            RenameFlags::NOREPLACE => Replace::No,
            RenameFlags::EXCHANGE if !whiteout => Replace::Exchange,
            flags if flags.is_empty() => Replace::Yes,
            _ => return reply.error(Errno::EINVAL),
        };
        let (from, to) = ((node(parent), name), (node(new_parent), new_name));
        reply.send(self.pool.rename_leaving(from, to, replace, behind));
    }

    fn open(&self, _: &Context<'_>, request: Open, reply: Reply<Opened>) {
        let how = open_request(request.flags, request.kill_suidgid);
        reply.send(self.pool.open(node(request.node), how).map(|done| opened(&done)));
    }

    fn create(&self, context: &Context<'_>, request: Create<'_>, reply: Reply<Created>) {
        work_for(context.pid);
        let Create { parent, name, mode, umask, flags, .. } = request;
        let (caller, how) = (caller(context, umask), open_request(flags, false));
        reply.send(self.created(self.pool.create(node(parent), name, mode & 0o7777, caller, how)));
    }

    fn tmpfile(&self, context: &Context<'_>, request: Create<'_>, reply: Reply<Created>) {
        work_for(context.pid);
        let Create { parent, mode, umask, flags, .. } = request;
        let (caller, how) = (caller(context, umask), open_request(flags, false));
        reply.send(self.created(self.pool.create_unnamed(node(parent), mode & 0o7777, caller, how)));
    }

    fn read(&self, _: &Context<'_>, request: Read, reply: Reply<Data>) {
        self.do_read(&request, reply);
    }

    fn write(&self, _: &Context<'_>, request: Write<'_>, reply: Reply<Written>) {
        self.do_write(&request, reply);
    }

    /// Asked of files on branches that may hang only.
    fn flush(&self, _: &Context<'_>, request: Flush, reply: Reply<()>) {
        reply.send(self.pool.flush(handle(request.handle)));
    }

    fn release(&self, _: &Context<'_>, request: Release, reply: Reply<()>) {
        reply.send(self.pool.release(handle(request.handle)));
    }

    fn fsync(&self, _: &Context<'_>, request: FSync, reply: Reply<()>) {
        reply.send(self.pool.fsync(handle(request.handle), request.data_only));
    }

    fn opendir(&self, _: &Context<'_>, request: Open, reply: Reply<Opened>) {
        let (newest, alone) = self.pool.begin_listing(node(request.node));
        reply.ok(Opened::new(FileHandle(newest), listing_flags(alone && !self.ttl().is_zero())));
    }

    fn releasedir(&self, _: &Context<'_>, request: Release, reply: Reply<()>) {
        self.pool.end_listing(node(request.node));
        reply.ok(());
    }

    fn readdir(&self, _: &Context<'_>, request: Read, reply: Reply<Listing>) {
        reply.send(self.list(&request));
    }

    fn readdirplus(&self, context: &Context<'_>, request: Read, reply: Reply<Listing>) {
        work_for(context.pid);
        reply.send(self.list_plus(context.pid, &request));
    }

    fn fsyncdir(&self, _: &Context<'_>, request: FSync, reply: Reply<()>) {
        reply.send(self.pool.fsync_dir(node(request.node), request.data_only));
    }

    fn syncfs(&self, _: &Context<'_>, _: SyncFs, reply: Reply<()>) {
        reply.send(self.pool.sync_all());
    }

    fn statfs(&self, context: &Context<'_>, _: StatFs, reply: Reply<Space>) {
        const UNIT: u64 = 4096;
        self.attribute_use.expect(context.pid);
        let space = self.pool.space();
        reply.ok(Space {
            block_size: UNIT as u32,
            blocks: space.total / UNIT,
            blocks_free: space.free_for_root / UNIT,
            blocks_available: space.free / UNIT,
            files: space.files_total,
            files_free: space.files_free,
            longest_name: 255,
        });
    }

    fn setxattr(&self, context: &Context<'_>, request: SetXattr<'_>, reply: Reply<()>) {
        work_for(context.pid);
        let of = node(request.node);
        // An ACL set by a user outside the file's group clears set-group-id.
        let dropped = if request.kill_sgid { self.pool.drop_set_gid(of) } else { Ok(()) };
        let flags = XattrFlags::from_bits_truncate(request.flags);
        reply.send(dropped.and_then(|()| self.pool.setxattr(of, request.name, request.value, flags)));
    }

    fn getxattr(&self, context: &Context<'_>, request: GetXattr<'_>, reply: Reply<Xattr>) {
        let is_label = request.name == SELINUX_LABEL;
        if is_label {
            self.attribute_use.expect(context.pid);
        }
        match self.pool.getxattr(node(request.node), request.name) {
            Ok(value) => reply.value(request.size, &value),
            Err(OpError::Sys(rustix::io::Errno::NODATA)) if is_label => reply.error(self.no_label),
            Err(error) => reply.error(error.into()),
        }
    }

    fn listxattr(&self, context: &Context<'_>, request: ListXattr, reply: Reply<Xattr>) {
        self.attribute_use.expect(context.pid);
        match self.pool.listxattr(node(request.node)) {
            Ok(names) if !has_trusted(&names) || changer(context).uid == 0 => reply.value(request.size, &names),
            Ok(names) => reply.value(request.size, &without_trusted(names)),
            Err(error) => reply.error(error.into()),
        }
    }

    fn removexattr(&self, context: &Context<'_>, request: RemoveXattr<'_>, reply: Reply<()>) {
        work_for(context.pid);
        reply.send(self.pool.removexattr(node(request.node), request.name));
    }

    fn fallocate(&self, context: &Context<'_>, request: FAllocate, reply: Reply<()>) {
        work_for(context.pid);
        let FAllocate { offset, length, .. } = request;
        let mode = FallocateFlags::from_bits_retain(request.mode);
        reply.send(self.pool.fallocate(handle(request.handle), mode, offset, length, changer(context).uid != 0));
    }

    fn lseek(&self, _: &Context<'_>, request: LSeek, reply: Reply<Offset>) {
        self.do_seek(&request, reply);
    }

    /// Those of `lsattr` and `chattr`, for which the kernel has checked the caller.
    fn ioctl(&self, _: &Context<'_>, request: Ioctl<'_>, reply: Reply<IoctlAnswer>) {
        match request.file_ioctl() {
            Some(asked) => reply.send(self.file_ioctl(node(request.node), asked)),
            // Not ENOSYS: there are ioctls, and this file knows only those.
            None => reply.error(Errno::ENOTTY),
        }
    }

    fn copy_file_range(&self, context: &Context<'_>, request: CopyFileRange, reply: Reply<Copied>) {
        let from = (handle(request.handle), request.offset);
        let to = (handle(request.new_handle), request.new_offset);
        let length = request.length.min(MOST_COPIED) as usize;
        let copied = self.pool.copy_range(from, to, length, changer(context).uid != 0);
        reply.send(copied.map(|copied| Copied(copied as u64)));
    }
}
