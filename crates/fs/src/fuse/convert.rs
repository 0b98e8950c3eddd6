//! Words of the pool in words of FUSE.

use linux_raw_sys::general::fsxattr;
use umbrella_fuse::{Attributes, BackingFile, Context, FileHandle, FileType, FsXattr, InodeNumber, OpenFlags};
use umbrella_policy::placement::spec::FileKind;
use umbrella_units::Timestamp;

use crate::ground::creds::{Asker, Caller};
use crate::io::{NewTime, OpenRequest, Opened};
use crate::node::{DataPath, HandleId, NodeId};
use crate::tree::Attr;

pub(super) fn node(id: umbrella_fuse::NodeId) -> NodeId {
    NodeId(id.0)
}

pub(super) fn handle(id: FileHandle) -> HandleId {
    HandleId(id.0)
}

/// A file that was opened, as its reads and writes are to travel.
pub(super) fn opened(done: &Opened) -> umbrella_fuse::Opened {
    let handle = FileHandle(done.handle.0);
    let mut flags = OpenFlags::empty();
    if !done.wants_flush {
        flags |= OpenFlags::NOFLUSH;
    }
    let token = done.token.as_ref().filter(|_| done.data == DataPath::Passthrough);
    match token.and_then(|token| token.downcast_ref::<BackingFile>()) {
        Some(backing) => umbrella_fuse::Opened::passthrough(handle, flags, backing),
        None if done.keeps_pages => umbrella_fuse::Opened::new(handle, flags | OpenFlags::KEEP_CACHE),
        None => umbrella_fuse::Opened::new(handle, flags),
    }
}

/// The kernel keeps a listing for the next reader only if there is one reader at a time. Otherwise a reader that begins
/// anew would continue, after its first entries, in the listing that an older reader has put together meanwhile.
pub(super) fn listing_flags(alone: bool) -> OpenFlags {
    let kept = OpenFlags::KEEP_CACHE;
    if alone { kept | OpenFlags::CACHE_DIR } else { kept }
}

pub(super) fn open_request(flags: i32, drop_set_id: bool) -> OpenRequest {
    let access = flags & libc::O_ACCMODE;
    OpenRequest {
        read: access != libc::O_WRONLY,
        write: access != libc::O_RDONLY,
        append: flags & libc::O_APPEND != 0,
        truncate: flags & libc::O_TRUNC != 0,
        exclusive: flags & libc::O_EXCL != 0,
        // O_SYNC has this bit, and one more.
        durable: flags & libc::O_DSYNC != 0,
        drop_set_id,
    }
}

/// The caller that makes something. The kernel gives it in ids of the mount that was used, mapped or not.
pub(super) fn caller(context: &Context<'_>, umask: u32) -> Caller {
    Caller { uid: context.uid, gid: context.gid, umask: umask & 0o777 }
}

/// What the kernel says instead of an id where mounts may be mapped (`FUSE_INVALID_UIDGID`), in all requests that make
/// nothing.
const NO_ID: u32 = u32::MAX;

/// The caller that changes something. Where the kernel does not give it, its process does. A process that is gone has
/// no rights.
pub(super) fn changer(context: &Context<'_>) -> Caller {
    if context.uid != NO_ID {
        return caller(context, 0);
    }
    let status = std::fs::read_to_string(format!("/proc/{}/status", context.pid)).unwrap_or_default();
    let file_system_id =
        |key| status.lines().find_map(|line| line.strip_prefix(key)?.split_whitespace().nth(3)?.parse().ok());
    Caller { uid: file_system_id("Uid:").unwrap_or(NO_ID), gid: file_system_id("Gid:").unwrap_or(NO_ID), umask: 0 }
}

pub(super) fn asker(context: &Context<'_>) -> Asker {
    Asker { caller: changer(context), thread: context.pid }
}

pub(super) fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::File => FileType::RegularFile,
        FileKind::Directory => FileType::Directory,
        FileKind::Symlink => FileType::Symlink,
        FileKind::Fifo => FileType::Fifo,
        FileKind::Socket => FileType::Socket,
        FileKind::CharDevice => FileType::CharacterDevice,
        FileKind::BlockDevice => FileType::BlockDevice,
    }
}

pub(super) fn attributes(attr: &Attr) -> Attributes {
    let meta = &attr.meta;
    Attributes {
        permissions: meta.perm,
        nlink: meta.nlink,
        uid: meta.uid,
        gid: meta.gid,
        device: meta.rdev,
        size: meta.size,
        blocks: meta.blocks,
        block_size: meta.blksize,
        atime: timestamp(meta.atime),
        mtime: timestamp(meta.mtime),
        ctime: timestamp(meta.ctime),
        ..Attributes::new(InodeNumber(attr.ino.0), file_type(meta.kind), 0)
    }
}

pub(super) fn timestamp(time: Timestamp) -> umbrella_fuse::Timestamp {
    umbrella_fuse::Timestamp { seconds: time.secs, nanoseconds: time.nanos }
}

pub(super) fn new_time(time: umbrella_fuse::NewTime) -> NewTime {
    match time {
        umbrella_fuse::NewTime::Now => NewTime::Now,
        umbrella_fuse::NewTime::At(at) => NewTime::At(Timestamp { secs: at.seconds, nanos: at.nanoseconds }),
    }
}

pub(super) fn fs_xattr(value: &FsXattr) -> fsxattr {
    fsxattr {
        fsx_xflags: value.xflags,
        fsx_extsize: value.extent_size,
        fsx_nextents: 0,
        fsx_projid: value.project,
        fsx_cowextsize: value.cow_extent_size,
        fsx_pad: [0; 8],
    }
}

pub(super) fn fs_xattr_shown(value: &fsxattr) -> FsXattr {
    FsXattr {
        xflags: value.fsx_xflags,
        extent_size: value.fsx_extsize,
        extents: value.fsx_nextents,
        project: value.fsx_projid,
        cow_extent_size: value.fsx_cowextsize,
        ..FsXattr::default()
    }
}
