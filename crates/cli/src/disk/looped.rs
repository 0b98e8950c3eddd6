//! Files behind loop devices. The kernel does not know that file and device are the same data: a user of one must not
//! use the other.
//!
//! A file behind a loop device may belong to any program, even to a daemon that hangs. So it is looked at only where no
//! call can hang, or by a process of its own. `LOOP_GET_STATUS64` would hang as well, because the kernel looks at the
//! file for it.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::bail;
use rustix::fs::{FlockOperation, Mode, OFlags, major, minor};
use rustix::io::Errno;
use umbrella_block::file::{Access, Cache, FileDevice, OpenError, OpenOptions};

use super::users::users_of;
use crate::config::disk::DeviceSpec;
use crate::mounts::{self, PathLocality};
use crate::probe::{self, ProbeReply, Question};
use crate::text::visible_path;

/// How long a file system may take to say whether a file is locked.
const LOCK_QUERY_TIMEOUT: Duration = Duration::from_secs(2);

/// Fails if the data of a device is a loop device as well, or belongs to the backing file of a loop device that a
/// daemon serves.
pub(crate) fn refuse_looped(spec: &DeviceSpec, access: Access) -> anyhow::Result<()> {
    let Some(path) = spec.path().and_then(|path| path.canonicalize().ok()) else { return Ok(()) };
    if let Some(reported) = served_backing_of(&path, access) {
        bail!("{reported}");
    }
    if let Some(device) = loops_on(&path, access).next() {
        let (file, shown) = (visible_path(&path), visible_path(&device));
        if is_claimed(&device) {
            bail!("{file} is in use as {shown}; unmount that first");
        }
        bail!("{file} is also attached as {shown}; detach that first (`losetup -d {shown}`)");
    }
    Ok(())
}

/// How the data of a device is in use, under whichever of its names; nothing if no program writes it.
pub(crate) fn in_use(spec: &DeviceSpec) -> Option<String> {
    let path = spec.path()?.canonicalize().ok()?;
    if let Some(reported) = served_backing_of(&path, Access::ReadOnly) {
        return Some(reported);
    }
    let shown = visible_path(&path);
    if let Some(device) = loops_on(&path, Access::ReadOnly).find(|device: &PathBuf| is_claimed(device)) {
        return Some(format!("{shown} is in use as {}", visible_path(&device)));
    }
    let opened = FileDevice::open(&path, OpenOptions { access: Access::ReadOnly, cache: Cache::Page });
    if let Err(error @ OpenError::InUse { .. }) = opened {
        return Some(error.to_string());
    }
    let is_device = std::fs::metadata(&path).is_ok_and(|data| data.file_type().is_block_device());
    (is_device && is_claimed(&path)).then(|| {
        let users = users_of(&path).map_or(String::new(), |users| format!(" ({users})"));
        format!("{shown} is in use{users}")
    })
}

/// The loop devices on a file that may not be used beside it.
fn loops_on(path: &Path, access: Access) -> impl Iterator<Item = PathBuf> {
    let identity = match mounts::found_at(path) {
        ProbeReply::Yes(found) => Some(found),
        ProbeReply::No(_) | ProbeReply::Silent => None,
    };
    // Without that list, there are no loop devices.
    std::fs::read_dir("/sys/block").into_iter().flatten().flatten().filter_map(move |entry| {
        let about = entry.path();
        let is_on = read_backing_file(&about).is_some_and(|file| mounts::is_same(path, identity, &file));
        let is_harmless = access == Access::ReadOnly && is_read_only(&about);
        (is_on && !is_harmless).then(|| Path::new("/dev").join(entry.file_name()))
    })
}

/// Whether a block device is opened exclusively: mounted or served.
fn is_claimed(device: &Path) -> bool {
    let claim = rustix::fs::open(device, OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC, Mode::empty());
    claim.is_err_and(|error| error == Errno::BUSY)
}

/// The message that a device is a loop device, or a partition of one, on a file that a daemon serves; else `None`.
fn served_backing_of(device: &Path, access: Access) -> Option<String> {
    let file = backing_file(device)?;
    is_locked(&file, access)
        .then(|| format!("{} is the file {}, which is served or in use", visible_path(device), visible_path(&file)))
}

/// Whether a server of the file holds a lock on it. Where the file system may hang, a process of its own checks.
fn is_locked(file: &Path, access: Access) -> bool {
    let (question, lock) = match access {
        Access::ReadOnly => (Question::LockShared, FlockOperation::NonBlockingLockShared),
        Access::ReadWrite => (Question::LockExclusive, FlockOperation::NonBlockingLockExclusive),
    };
    if let PathLocality::Away { path, .. } = mounts::locate(file) {
        return probe::query(question, &path, LOCK_QUERY_TIMEOUT) == ProbeReply::No(Errno::AGAIN);
    }
    if !std::fs::metadata(file).is_ok_and(|data| data.is_file()) {
        return false;
    }
    File::open(file).is_ok_and(|opened| rustix::fs::flock(&opened, lock).is_err_and(|error| error == Errno::AGAIN))
}

/// Fails if a path, or the backing file of a loop device, lies on a file system that does not answer.
pub(crate) fn refuse_unresponsive(path: &Path) -> anyhow::Result<()> {
    mounts::refuse_unresponsive(path)?;
    backing_file(path).map_or(Ok(()), |file| mounts::refuse_unresponsive(&file))
}

/// The backing file of a loop device or of its partition.
fn backing_file(device: &Path) -> Option<PathBuf> {
    let data = std::fs::metadata(device).ok().filter(|data| data.file_type().is_block_device())?;
    let number = data.rdev();
    let about = Path::new("/sys/dev/block").join(format!("{}:{}", major(number), minor(number))).canonicalize().ok()?;
    read_backing_file(&about).or_else(|| read_backing_file(about.parent()?))
}

/// The backing file that sysfs names for a block device.
fn read_backing_file(about: &Path) -> Option<PathBuf> {
    let line = std::fs::read(about.join("loop/backing_file")).ok()?;
    Some(PathBuf::from(OsStr::from_bytes(line.strip_suffix(b"\n")?)))
}

fn is_read_only(about: &Path) -> bool {
    std::fs::read(about.join("ro")).is_ok_and(|text| text.starts_with(b"1"))
}
