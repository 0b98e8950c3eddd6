//! What kind of file system a directory is on, whether it is a mount point, and whether calls to it may hang.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags, StatxAttributes, StatxFlags};

/// Facts about the file system below a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FsKind {
    /// As the kernel names it: `ext4`, `fuse.sshfs`...
    pub fs_type: String,
    /// Calls may wait for another machine or a daemon, and hang.
    pub guarded: bool,
    /// The directory is the root of a mount.
    pub is_mount: bool,
}

/// Looks at an open directory.
pub fn fs_kind(dir: BorrowedFd<'_>) -> rustix::io::Result<FsKind> {
    let stat = rustix::fs::statx(dir, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?;
    let known_id = stat.stx_mask & StatxFlags::MNT_ID.bits() != 0;
    let listed = if known_id { type_of_mount(stat.stx_mnt_id) } else { None };
    let fs_type = match listed {
        Some(name) => name,
        None => type_of_magic(rustix::fs::fstatfs(dir)?.f_type as u64).to_owned(),
    };
    let is_mount = if stat.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT) {
        stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)
    } else {
        differs_from_parent(dir, known_id.then_some(stat.stx_mnt_id))?
    };
    Ok(FsKind { guarded: is_guarded(&fs_type), fs_type, is_mount })
}

/// Before Linux 5.8: a mount point has another mount id, or at least another device, than its parent.
fn differs_from_parent(dir: BorrowedFd<'_>, mount: Option<u64>) -> rustix::io::Result<bool> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let parent = rustix::fs::openat(dir, "..", flags, Mode::empty())?;
    if let Some(mount) = mount {
        let above = rustix::fs::statx(parent.as_fd(), "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?;
        return Ok(above.stx_mnt_id != mount);
    }
    let (here, above) = (rustix::fs::fstat(dir)?, rustix::fs::fstat(&parent)?);
    Ok(here.st_dev != above.st_dev || here.st_ino == above.st_ino)
}

/// Whether a file system of this type can hang its callers.
pub fn is_guarded(fs_type: &str) -> bool {
    const NETWORK: [&str; 20] = [
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "smbfs",
        "9p",
        "ceph",
        "glusterfs",
        "afs",
        "autofs",
        "coda",
        "ncpfs",
        "orangefs",
        "pvfs2",
        "lustre",
        "gfs2",
        "ocfs2",
        "beegfs",
        "sshfs",
        "davfs",
    ];
    fs_type == "fuse" || fs_type == "fuseblk" || fs_type.starts_with("fuse.") || NETWORK.contains(&fs_type)
}

/// Whether a file has the same inode number at the next mount. Other file systems assign numbers at each lookup.
pub fn has_lasting_inodes(fs_type: &str) -> bool {
    const MADE_UP: [&str; 9] =
        ["vfat", "msdos", "exfat", "davfs", "fuse.sshfs", "fuse.rclone", "fuse.s3fs", "fuse.curlftpfs", "fuse.davfs2"];
    !MADE_UP.contains(&fs_type)
}

fn type_of_mount(id: u64) -> Option<String> {
    let table = std::fs::read("/proc/self/mountinfo").ok()?;
    find_mount(&table, id).map(|(kind, _)| kind)
}

/// A mount in the tree. The kernel gives both numbers of one that is gone to the next; together they mean one mount for
/// as long as its file system is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MountId {
    number: u64,
    device: (u32, u32),
}

/// The mount whose root this directory is. The file system there is not asked.
pub fn mount_id(path: &Path) -> Option<MountId> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    mount_id_of(rustix::fs::open(path, flags, Mode::empty()).ok()?.as_fd())
}

/// As [`mount_id`], of what is open.
pub(crate) fn mount_id_of(fd: BorrowedFd<'_>) -> Option<MountId> {
    let flags = AtFlags::STATX_DONT_SYNC | AtFlags::EMPTY_PATH;
    let stat = rustix::fs::statx(fd, c"", flags, StatxFlags::MNT_ID).ok()?;
    let known = stat.stx_mask & StatxFlags::MNT_ID.bits() != 0;
    known.then_some(MountId { number: stat.stx_mnt_id, device: (stat.stx_dev_major, stat.stx_dev_minor) })
}

/// Whether the mount is still in the tree. Where it cannot be known it is.
pub fn is_attached(mount: MountId) -> bool {
    let device = format!("{}:{}", mount.device.0, mount.device.1);
    let is_it = |line: &str| line.split(' ').nth(2) == Some(&device);
    std::fs::read("/proc/self/mountinfo").map_or(true, |table| {
        let table = String::from_utf8_lossy(&table);
        line_of(&table, mount.number).is_some_and(is_it)
    })
}

/// The type and the source of the mount whose root this directory is; `None` where it is no mount's root.
pub fn mounted_at(dir: BorrowedFd<'_>) -> Option<(String, String)> {
    if fs_kind(dir).ok()?.is_mount { mount_of(dir) } else { None }
}

/// The type and the source of the mount that this directory is on. The file system there is not asked.
pub fn mount_of(dir: BorrowedFd<'_>) -> Option<(String, String)> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let stat = rustix::fs::statx(dir, "", flags, StatxFlags::MNT_ID).ok()?;
    find_mount(&std::fs::read("/proc/self/mountinfo").ok()?, stat.stx_mnt_id)
}

/// The type and the source of mount `id` in the text of `/proc/self/mountinfo`.
fn find_mount(table: &[u8], id: u64) -> Option<(String, String)> {
    let table = String::from_utf8_lossy(table);
    let (_, after) = line_of(&table, id)?.split_once(" - ")?;
    let mut words = after.split(' ');
    Some((words.next()?.to_owned(), words.next()?.to_owned()))
}

/// The line of mount `id`.
fn line_of(table: &str, id: u64) -> Option<&str> {
    table.lines().rev().find(|line| line.split(' ').next().and_then(|word| word.parse().ok()) == Some(id))
}

fn type_of_magic(magic: u64) -> &'static str {
    match magic & 0xffff_ffff {
        0xef53 => "ext4",
        0x5846_5342 => "xfs",
        0x9123_683e => "btrfs",
        0x0102_1994 => "tmpfs",
        0x6573_5546 => "fuse",
        0x6969 => "nfs",
        0xff53_4d42 => "cifs",
        0xfe53_4d42 => "smb3",
        0x517b => "smbfs",
        0x0102_1997 => "9p",
        0x00c3_6400 => "ceph",
        0x0187 => "autofs",
        0x5346_414f => "afs",
        0x4d44 => "vfat",
        0x2011_bab0 => "exfat",
        0x2fc1_2fc1 => "zfs",
        0xf2f5_2010 => "f2fs",
        0x794c_7630 => "overlay",
        0x9660 => "iso9660",
        0x7371_7368 => "squashfs",
        _ => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] = b"22 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n\
        40 22 0:35 / /mnt/far rw,nosuid shared:3 - fuse.sshfs me@far: rw,user_id=0\n";

    #[test]
    fn the_type_of_a_mount_is_read_from_the_mount_table() {
        assert_eq!(find_mount(TABLE, 22).map(|(kind, _)| kind).as_deref(), Some("ext4"));
        assert_eq!(find_mount(TABLE, 40).map(|(kind, _)| kind).as_deref(), Some("fuse.sshfs"));
        assert_eq!(find_mount(TABLE, 4), None);
    }

    #[test]
    fn daemons_and_networks_are_guarded_and_disks_are_not() {
        for name in ["fuse", "fuse.sshfs", "fuseblk", "nfs4", "cifs", "9p", "ceph", "autofs"] {
            assert!(is_guarded(name), "{name}");
        }
        for name in ["ext4", "xfs", "btrfs", "tmpfs", "fusectl", "overlay"] {
            assert!(!is_guarded(name), "{name}");
        }
    }
}
