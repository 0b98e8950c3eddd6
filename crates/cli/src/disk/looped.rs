//! Files behind loop devices. The kernel does not know that both are the same data: who uses the one must not use the other.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::bail;
use rustix::fs::{FlockOperation, Mode, OFlags, major, minor};
use rustix::io::Errno;
use umbrella_block::file::Access;

use crate::config::disk::DeviceSpec;
use crate::text::visible_path;

/// Fails if the data of a device is a loop device as well, or is that of a file behind a loop device which somebody serves.
pub(crate) fn refuse_looped(spec: &DeviceSpec, access: Access) -> anyhow::Result<()> {
    let Some(path) = spec.path().and_then(|path| path.canonicalize().ok()) else { return Ok(()) };
    refuse_served_behind(&path, access)?;
    // Without that list, there are no loop devices.
    for entry in std::fs::read_dir("/sys/block").into_iter().flatten().flatten() {
        let about = entry.path();
        if !backing(&about).is_some_and(|file| is_same(&file, &path))
            || access == Access::ReadOnly && is_read_only(&about)
        {
            continue;
        }
        let device = Path::new("/dev").join(entry.file_name());
        let (file, shown) = (visible_path(&path), visible_path(&device));
        let claim = rustix::fs::open(&device, OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC, Mode::empty());
        if claim.is_err_and(|error| error == Errno::BUSY) {
            bail!("{file} is in use as {shown}; unmount that first");
        }
        bail!("{file} is {shown} as well; take that away first (`losetup -d {shown}`)");
    }
    Ok(())
}

/// Fails if a device is a loop device, or a part of one, on a file that is served.
fn refuse_served_behind(device: &Path, access: Access) -> anyhow::Result<()> {
    let Some(file) = behind(device) else { return Ok(()) };
    if !std::fs::metadata(&file).is_ok_and(|data| data.is_file()) {
        return Ok(());
    }
    let Ok(opened) = File::open(&file) else { return Ok(()) };
    // Who serves a file holds a lock on it.
    let lock = match access {
        Access::ReadOnly => FlockOperation::NonBlockingLockShared,
        Access::ReadWrite => FlockOperation::NonBlockingLockExclusive,
    };
    if rustix::fs::flock(&opened, lock).is_err_and(|error| error == Errno::AGAIN) {
        bail!("{} is the file {}, which is served or in use", visible_path(device), visible_path(&file));
    }
    Ok(())
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
