//! Files behind loop devices. The kernel does not know that both are the same data: who uses the one must not use the other.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::bail;
use rustix::fs::{FlockOperation, Mode, OFlags, major, minor};
use rustix::io::Errno;
use umbrella_block::file::{Access, Cache, FileDevice, OpenError, OpenOptions};

use super::users::users_of;
use crate::config::disk::DeviceSpec;
use crate::text::visible_path;

/// Fails if the data of a device is a loop device as well, or is that of a file behind a loop device which somebody serves.
pub(crate) fn refuse_looped(spec: &DeviceSpec, access: Access) -> anyhow::Result<()> {
    let Some(path) = spec.path().and_then(|path| path.canonicalize().ok()) else { return Ok(()) };
    if let Some(told) = served_behind(&path, access) {
        bail!("{told}");
    }
    if let Some(device) = loops_on(&path, access).next() {
        let (file, shown) = (visible_path(&path), visible_path(&device));
        if is_claimed(&device) {
            bail!("{file} is in use as {shown}; unmount that first");
        }
        bail!("{file} is {shown} as well; take that away first (`losetup -d {shown}`)");
    }
    Ok(())
}

/// How the data of a device is in use, under whichever of its names; nothing if nobody writes it.
pub(crate) fn in_use(spec: &DeviceSpec) -> Option<String> {
    let path = spec.path()?.canonicalize().ok()?;
    if let Some(told) = served_behind(&path, Access::ReadOnly) {
        return Some(told);
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
    // Without that list, there are no loop devices.
    std::fs::read_dir("/sys/block").into_iter().flatten().flatten().filter_map(move |entry| {
        let about = entry.path();
        let is_on = backing(&about).is_some_and(|file| is_same(&file, path));
        let is_harmless = access == Access::ReadOnly && is_read_only(&about);
        (is_on && !is_harmless).then(|| Path::new("/dev").join(entry.file_name()))
    })
}

/// Whether somebody has a block device for himself: mounted, or served.
fn is_claimed(device: &Path) -> bool {
    let claim = rustix::fs::open(device, OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC, Mode::empty());
    claim.is_err_and(|error| error == Errno::BUSY)
}

/// That a device is a loop device, or a part of one, on a file that is served, if it is.
fn served_behind(device: &Path, access: Access) -> Option<String> {
    let file = behind(device)?;
    if !std::fs::metadata(&file).is_ok_and(|data| data.is_file()) {
        return None;
    }
    let opened = File::open(&file).ok()?;
    // Who serves a file holds a lock on it.
    let lock = match access {
        Access::ReadOnly => FlockOperation::NonBlockingLockShared,
        Access::ReadWrite => FlockOperation::NonBlockingLockExclusive,
    };
    let is_locked = rustix::fs::flock(&opened, lock).is_err_and(|error| error == Errno::AGAIN);
    is_locked
        .then(|| format!("{} is the file {}, which is served or in use", visible_path(device), visible_path(&file)))
}

/// The file behind a loop device or a partition of one.
fn behind(device: &Path) -> Option<PathBuf> {
    let data = std::fs::metadata(device).ok().filter(|data| data.file_type().is_block_device())?;
    let number = data.rdev();
    let about = Path::new("/sys/dev/block").join(format!("{}:{}", major(number), minor(number))).canonicalize().ok()?;
    backing(&about).or_else(|| backing(about.parent()?))
}

/// What the kernel says of a block device: the file behind it.
fn backing(about: &Path) -> Option<PathBuf> {
    let line = std::fs::read(about.join("loop/backing_file")).ok()?;
    Some(PathBuf::from(OsStr::from_bytes(line.strip_suffix(b"\n")?)))
}

/// Whether two paths are one file, also by another name (a hard link) or through another mount.
fn is_same(one: &Path, other: &Path) -> bool {
    let identity = |path: &Path| std::fs::metadata(path).ok().map(|data| (data.dev(), data.ino()));
    one == other || identity(one).is_some_and(|identity_of_one| identity(other) == Some(identity_of_one))
}

fn is_read_only(about: &Path) -> bool {
    std::fs::read(about.join("ro")).is_ok_and(|text| text.starts_with(b"1"))
}
