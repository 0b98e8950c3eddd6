//! Words of the pool in words of FUSE.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{BackingId, FileAttr, FileType, FopenFlags, INodeNo, Request, TimeOrNow};
use umbrella_policy::placement::spec::FileKind;
use umbrella_units::Timestamp;

use crate::creds::Caller;
use crate::handle::DataPath;
use crate::pool::{Attr, NewTime, OpenRequest, Opened};

pub(super) fn backing_id(opened: &Opened) -> Option<&BackingId> {
    if opened.data == DataPath::Passthrough { opened.token.as_ref()?.downcast_ref() } else { None }
}

pub(super) fn open_flags(opened: &Opened) -> FopenFlags {
    let mut flags = FopenFlags::empty();
    if opened.data == DataPath::Mediated {
        flags |= FopenFlags::FOPEN_KEEP_CACHE;
    }
    if !opened.wants_flush {
        flags |= FopenFlags::FOPEN_NOFLUSH;
    }
    flags
}

/// A listing is kept by the kernel for the next reader, if there is one reader at a time: one that began anew goes on, after its first entries, in
/// what an older one has put together meanwhile.
pub(super) fn listing_flags(alone: bool) -> FopenFlags {
    let kept = FopenFlags::FOPEN_KEEP_CACHE;
    if alone { kept | FopenFlags::FOPEN_CACHE_DIR } else { kept }
}

pub(super) fn open_request(flags: i32, drop_set_id: bool) -> OpenRequest {
    let access = flags & libc::O_ACCMODE;
    OpenRequest {
        read: access != libc::O_WRONLY,
        write: access != libc::O_RDONLY,
        truncate: flags & libc::O_TRUNC != 0,
        exclusive: flags & libc::O_EXCL != 0,
        drop_set_id,
    }
}

pub(super) fn caller(request: &Request, umask: u32) -> Caller {
    Caller { uid: request.uid(), gid: request.gid(), umask: umask & 0o777 }
}

pub(super) fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::File => FileType::RegularFile,
        FileKind::Directory => FileType::Directory,
        FileKind::Symlink => FileType::Symlink,
        FileKind::Fifo => FileType::NamedPipe,
        FileKind::Socket => FileType::Socket,
        FileKind::CharDevice => FileType::CharDevice,
        FileKind::BlockDevice => FileType::BlockDevice,
    }
}

pub(super) fn file_attr(attr: &Attr) -> FileAttr {
    let meta = &attr.meta;
    FileAttr {
        ino: INodeNo(attr.ino.0),
        size: meta.size,
        blocks: meta.blocks,
        atime: system_time(meta.atime),
        mtime: system_time(meta.mtime),
        ctime: system_time(meta.ctime),
        crtime: UNIX_EPOCH,
        kind: file_type(meta.kind),
        perm: meta.perm as u16,
        nlink: meta.nlink,
        uid: meta.uid,
        gid: meta.gid,
        rdev: encode_rdev(meta.rdev),
        blksize: meta.blksize,
        flags: 0,
    }
}

pub(super) fn dot_attr(ino: INodeNo) -> FileAttr {
    FileAttr {
        ino,
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: FileType::Directory,
        perm: 0,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

pub(super) fn system_time(time: Timestamp) -> SystemTime {
    let whole = if time.secs >= 0 {
        UNIX_EPOCH.checked_add(Duration::from_secs(time.secs as u64))
    } else {
        UNIX_EPOCH.checked_sub(Duration::from_secs(time.secs.unsigned_abs()))
    };
    whole.and_then(|whole| whole.checked_add(Duration::from_nanos(u64::from(time.nanos)))).unwrap_or(UNIX_EPOCH)
}

pub(super) fn new_time(time: TimeOrNow) -> NewTime {
    let at = match time {
        TimeOrNow::Now => return NewTime::Now,
        TimeOrNow::SpecificTime(at) => at,
    };
    NewTime::At(match at.duration_since(UNIX_EPOCH) {
        Ok(after) => Timestamp { secs: after.as_secs() as i64, nanos: after.subsec_nanos() },
        Err(before) => {
            let before = before.duration();
            let nanos = before.subsec_nanos();
            let secs = -(before.as_secs() as i64);
            if nanos == 0 {
                Timestamp { secs, nanos }
            } else {
                Timestamp { secs: secs - 1, nanos: 1_000_000_000 - nanos }
            }
        }
    })
}

/// The kernel's 32-bit encoding of device numbers (`new_encode_dev`).
pub(super) fn encode_rdev(rdev: u64) -> u32 {
    let (major, minor) = (rustix::fs::major(rdev), rustix::fs::minor(rdev));
    (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12)
}

pub(super) fn decode_rdev(rdev: u32) -> u64 {
    let major = (rdev & 0xf_ff00) >> 8;
    let minor = (rdev & 0xff) | ((rdev >> 12) & 0xf_ff00);
    rustix::fs::makedev(major, minor)
}

/// Name of a pool in the table of mounts.
pub(crate) fn fs_name(path: &Path) -> String {
    String::from_utf8_lossy(path.as_os_str().as_bytes()).into_owned()
}
