//! Reading and setting what a file is besides its data. Every object is held by a descriptor, so that no name is looked
//! up twice and no symbolic link is followed. One that is `O_PATH` is reached through `/proc/thread-self/fd`; others
//! directly, which costs less.

use std::ffi::{OsStr, OsString};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use linux_raw_sys::general::{FS_XFLAG_PREALLOC, fsxattr};
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, IFlags, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, Uid, XattrFlags, chmodat,
    chownat, fchmod, fgetxattr, flistxattr, fremovexattr, fsetxattr, fstatfs, fstatvfs, fsync, getxattr, listxattr,
    openat, removexattr, setxattr, utimensat,
};
use rustix::io::Errno;

pub(super) use crate::ground::dir_sync::{open_to_sync, sync_dir};
use crate::ground::fd_path::proc_path;
use crate::ground::inode_flags;
use crate::relocate::error::ErrorContext;
use crate::relocate::fingerprint::{FileSnapshot, Fingerprint, snapshot_fd};
use crate::relocate::{EntryAt, Loss, RelocateError};

/// Attributes that describe the file system more than the file: copied where the target takes them, not missed where
/// not.
const OF_THE_FILE_SYSTEM: [&str; 9] = [
    "security.selinux",
    "security.evm",
    "system.nfs4_",
    "system.cifs_",
    "system.smb3_",
    "system.ntfs_",
    "btrfs.",
    "ceph.",
    "glusterfs.",
];
const ACL_ACCESS: &str = "system.posix_acl_access";
const ACL_DEFAULT: &str = "system.posix_acl_default";

/// Flags (`lsattr`) that a copy keeps.
const KEPT_FLAGS: IFlags = IFlags::NODUMP.union(IFlags::NOATIME).union(IFlags::SYNC).union(IFlags::DIRSYNC);

/// Flags that describe the file system more than the file: not missed where they are unknown.
const FLAGS_OF_THE_FILE_SYSTEM: IFlags = IFlags::NOCOW.union(IFlags::COMPRESSED);

/// The extended attributes of a file, ACLs among them.
pub(super) type Xattrs = Vec<(OsString, Vec<u8>)>;

/// Opens the object of a name with `O_PATH`, whatever its kind.
pub(super) fn open_path(place: EntryAt<'_>) -> Result<OwnedFd, Errno> {
    openat(place.dir, place.name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

pub(super) fn is_acl(name: &OsStr) -> bool {
    name == ACL_ACCESS || name == ACL_DEFAULT
}

pub(super) fn of_the_file_system(name: &OsStr) -> bool {
    OF_THE_FILE_SYSTEM.iter().any(|prefix| name.as_bytes().starts_with(prefix.as_bytes()))
}

/// Whether it is a second name of an ACL: xfs shows root each ACL by one, too. Elsewhere the value would be a plain
/// attribute that goes stale, and back on xfs it would become the ACL again.
pub(super) fn is_second_name_of_acl(name: &[u8]) -> bool {
    name == b"trusted.SGI_ACL_FILE" || name == b"trusted.SGI_ACL_DEFAULT"
}

/// What must be set after the data, since a write drops it.
fn is_late(name: &OsStr) -> bool {
    name.as_bytes().starts_with(b"security.")
}

/// All extended attributes, except the alternative names of ACLs; none where the file system has none.
pub(super) fn xattrs(fd: BorrowedFd<'_>) -> Result<Xattrs, Errno> {
    let list = |buf: &mut [u8]| {
        reached(fd, |via| match via {
            FileRef::Descriptor(fd) => flistxattr(fd, &mut *buf),
            FileRef::Path(path) => listxattr(path, &mut *buf),
        })
    };
    let names = match growing(list) {
        Err(Errno::NOTSUP | Errno::NOSYS) => return Ok(Vec::new()),
        names => names?,
    };
    let mut found = Vec::new();
    for name in names.split(|&b| b == 0).filter(|name| !name.is_empty() && !is_second_name_of_acl(name)) {
        let get = |buf: &mut [u8]| get_xattr(fd, name, buf);
        match growing(get) {
            Ok(value) => found.push((OsString::from_vec(name.to_vec()), value)),
            // Removed meanwhile (then the change time tells), or a name that is listed but not for reading.
            Err(Errno::NODATA | Errno::NOTSUP) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(found)
}

fn get_xattr(fd: BorrowedFd<'_>, name: &[u8], buf: &mut [u8]) -> Result<usize, Errno> {
    reached(fd, |via| match via {
        FileRef::Descriptor(fd) => fgetxattr(fd, name, &mut *buf),
        FileRef::Path(path) => getxattr(path, name, &mut *buf),
    })
}

/// How an object is reached.
#[derive(Clone, Copy)]
enum FileRef<'a> {
    Descriptor(BorrowedFd<'a>),
    Path(&'a str),
}

/// Makes a call on a descriptor, or, where that is `O_PATH`, on its path.
fn reached<T>(fd: BorrowedFd<'_>, mut call: impl FnMut(FileRef<'_>) -> Result<T, Errno>) -> Result<T, Errno> {
    match call(FileRef::Descriptor(fd)) {
        Err(Errno::BADF) => call(FileRef::Path(&proc_path(fd))),
        done => done,
    }
}

fn growing(read: impl Fn(&mut [u8]) -> Result<usize, Errno>) -> Result<Vec<u8>, Errno> {
    let mut buf = vec![0; 512];
    loop {
        match read(&mut buf) {
            Ok(len) => {
                buf.truncate(len);
                return Ok(buf);
            }
            Err(Errno::RANGE) if buf.len() < 1 << 20 => buf.resize(buf.len() * 4, 0),
            Err(errno) => return Err(errno),
        }
    }
}

/// Which of a file's attributes are set: those a write leaves alone, or those it drops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AttributePass {
    BeforeData,
    AfterData,
}

/// Sets the attributes of one turn; adds to `left_behind` what only the source's file system has a use for.
pub(super) fn set_xattrs(
    fd: BorrowedFd<'_>,
    xattrs: &Xattrs,
    when: AttributePass,
    left_behind: &mut Vec<OsString>,
) -> Result<(), RelocateError> {
    let mut lost = Vec::new();
    for (name, value) in xattrs.iter().filter(|(name, _)| is_late(name) == (when == AttributePass::AfterData)) {
        let set = reached(fd, |via| match via {
            FileRef::Descriptor(fd) => fsetxattr(fd, name.as_os_str(), value, XattrFlags::empty()),
            FileRef::Path(path) => setxattr(path, name.as_os_str(), value, XattrFlags::empty()),
        });
        match set {
            Ok(()) => {}
            Err(_) if of_the_file_system(name) => left_behind.push(name.clone()),
            Err(Errno::NOTSUP | Errno::PERM | Errno::INVAL | Errno::TOOBIG | Errno::RANGE | Errno::NOSYS) => {
                lost.push(if is_acl(name) { Loss::Acl } else { Loss::Xattr(name.clone()) });
            }
            // Ext4 says "no space" also when an attribute is larger than it can ever keep.
            Err(Errno::NOSPC) if has_room(fd, value.len()) => lost.push(Loss::Xattr(name.clone())),
            Err(errno) => return Err(errno).doing("set an extended attribute"),
        }
    }
    if lost.is_empty() { Ok(()) } else { Err(RelocateError::WouldLose { what: lost }) }
}

/// What is made in a directory with a default ACL has an ACL at once: one that the original lacks goes. Not for
/// directories, which inherit the default ACL, too.
pub(super) fn drop_inherited_acl(fd: BorrowedFd<'_>, wanted: &Xattrs) -> Result<(), RelocateError> {
    if wanted.iter().any(|(name, _)| name == ACL_ACCESS) {
        return Ok(());
    }
    // `listxattr` does not name the inherited ACL of a file without a name on tmpfs. A removal is a change even where
    // there is nothing to remove.
    if matches!(get_xattr(fd, ACL_ACCESS.as_bytes(), &mut []), Err(Errno::NODATA | Errno::NOTSUP | Errno::NOSYS)) {
        return Ok(());
    }
    let removed = reached(fd, |via| match via {
        FileRef::Descriptor(fd) => fremovexattr(fd, ACL_ACCESS),
        FileRef::Path(path) => removexattr(path, ACL_ACCESS),
    });
    match removed {
        Ok(()) | Err(Errno::NODATA | Errno::NOTSUP | Errno::NOSYS | Errno::INVAL | Errno::PERM | Errno::ACCESS) => {
            Ok(())
        }
        Err(errno) => Err(errno).doing("remove an inherited ACL"),
    }
}

fn has_room(fd: BorrowedFd<'_>, bytes: usize) -> bool {
    fstatvfs(fd).is_ok_and(|stat| stat.f_bavail.saturating_mul(stat.f_frsize) > bytes as u64 + (1 << 20))
}

/// Attributes that a target without the ability would drop.
pub(super) fn lost_xattrs(xattrs: &Xattrs, xattr_ability: bool, acl_ability: bool) -> Vec<Loss> {
    let mut lost = Vec::new();
    for (name, _) in xattrs {
        if is_acl(name) {
            if !acl_ability && !lost.contains(&Loss::Acl) {
                lost.push(Loss::Acl);
            }
        } else if !xattr_ability && !of_the_file_system(name) {
            lost.push(Loss::Xattr(name.clone()));
        }
    }
    lost
}

/// Sets the owner where it is another one; returns what the object was before.
pub(super) fn set_owner(fd: BorrowedFd<'_>, like: &FileSnapshot) -> Result<Fingerprint, Errno> {
    let now = snapshot_fd(fd)?.print;
    if (now.uid, now.gid) != (like.print.uid, like.print.gid) {
        let (uid, gid) = (Uid::from_raw(like.print.uid), Gid::from_raw(like.print.gid));
        chownat(fd, c"", Some(uid), Some(gid), AtFlags::EMPTY_PATH)?;
    }
    Ok(now)
}

/// Sets the permissions, setuid bits among them; a symbolic link has none.
pub(super) fn set_mode(fd: BorrowedFd<'_>, like: &FileSnapshot) -> Result<(), Errno> {
    if like.print.file_type() == FileType::Symlink {
        return Ok(());
    }
    let mode = Mode::from_raw_mode(like.print.mode);
    reached(fd, |via| match via {
        FileRef::Descriptor(fd) => fchmod(fd, mode),
        FileRef::Path(path) => chmodat(CWD, path, mode, AtFlags::empty()),
    })
}

pub(super) fn set_times(fd: BorrowedFd<'_>, like: &FileSnapshot) -> Result<(), Errno> {
    change_times(fd, &like.times())
}

/// The modification time stays as it is.
pub(super) fn set_access_time(fd: BorrowedFd<'_>, like: &FileSnapshot) -> Result<(), Errno> {
    change_times(fd, &Timestamps { last_modification: AS_IT_IS, ..like.times() })
}

/// The access time stays as it is.
pub(super) fn set_modification_time(fd: BorrowedFd<'_>, like: &FileSnapshot) -> Result<(), Errno> {
    change_times(fd, &Timestamps { last_access: AS_IT_IS, ..like.times() })
}

const AS_IT_IS: Timespec = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };

fn change_times(fd: BorrowedFd<'_>, times: &Timestamps) -> Result<(), Errno> {
    match utimensat(fd, c"", times, AtFlags::EMPTY_PATH) {
        // Kernels before 5.8.
        Err(Errno::INVAL) => utimensat(CWD, proc_path(fd), times, AtFlags::empty()),
        done => done,
    }
}

/// Takes over the flags of a file (`source`), and its project; needs real descriptors. What only the source's file
/// system has a use for is copied where the target takes it.
pub(super) fn copy_flags(source: IFlags, from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> Result<(), RelocateError> {
    let wanted = source & (KEPT_FLAGS | FLAGS_OF_THE_FILE_SYSTEM);
    copy_project(from, to);
    if wanted.is_empty() {
        return Ok(());
    }
    let target = inode_flags::flags(to).unwrap_or(IFlags::empty());
    if target.contains(wanted) || inode_flags::set_flags(to, target | wanted).is_ok() {
        return Ok(());
    }
    let mut lost = Vec::new();
    for flag in wanted.iter() {
        let now = inode_flags::flags(to).unwrap_or(target);
        if !now.contains(flag) && inode_flags::set_flags(to, now | flag).is_err() && KEPT_FLAGS.contains(flag) {
            lost.push(Loss::Flag(flag.bits()));
        }
    }
    if lost.is_empty() { Ok(()) } else { Err(RelocateError::WouldLose { what: lost }) }
}

/// A project counts on one file system: another one takes its number over if it has projects.
fn copy_project(from: BorrowedFd<'_>, to: BorrowedFd<'_>) {
    let Ok(source) = inode_flags::fs_xattr(from) else { return };
    if source.fsx_projid == 0 {
        return;
    }
    if let Ok(target) = inode_flags::fs_xattr(to) {
        let _where_there_are_projects =
            inode_flags::set_fs_xattr(to, &fsxattr { fsx_projid: source.fsx_projid, ..target });
    }
}

/// Makes a regular file's contents durable.
pub(super) fn sync_file(place: EntryAt<'_>) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    fsync(openat(place.dir, place.name, flags, Mode::empty())?)
}

/// Whether a file's system reserves room behind what is written, and keeps it.
pub(super) fn preallocates(file: BorrowedFd<'_>) -> bool {
    const XFS_SUPER_MAGIC: u64 = 0x5846_5342;
    fstatfs(file).is_ok_and(|fs| u64::try_from(fs.f_type).is_ok_and(|kind| kind == XFS_SUPER_MAGIC))
}

/// Whether a part of a file is preallocated, where the file system reports that.
pub(super) fn was_reserved(file: BorrowedFd<'_>) -> bool {
    inode_flags::fs_xattr(file).is_ok_and(|found| found.fsx_xflags & FS_XFLAG_PREALLOC != 0)
}
