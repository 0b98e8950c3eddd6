//! Which disks are halves of hybrid disks, remembered beside their own labels.
//!
//! A disk's label lies at its end. A disk that was cut has lost it, and on a disk that grew it lies where no program
//! looks. Such a disk would pass for a plain one while its newest data is on flash. So the state directory has a file
//! for each disk whose flash may hold any: `@disks/ID`, written when the pair is opened and removed when the disk is
//! whole alone. Its name is what stays with the disk wherever it is plugged in: the serial number of a device, or the
//! inode of a file.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxFlags, major, minor, statx};
use serde::{Deserialize, Serialize};
use umbrella_units::ByteSize;

use super::xfs::xfs_uuid;
use crate::config::disk::{DeviceSpec, DiskSpec};
use crate::mounts::{self, PathLocality};
use crate::probe::ProbeReply;
use crate::state_file;

/// The memory of one disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Remembered {
    /// Where it was.
    pub(crate) disk: PathBuf,
    /// How large it was.
    pub(crate) size: ByteSize,
    /// Its flash, as it was named.
    pub(crate) flash: String,
}

/// Records that the flash of a disk may hold the disk's newest data.
pub(crate) fn save(spec: &DiskSpec, size: ByteSize) {
    let (Some(path), Some(cache)) = (spec.disk.path(), &spec.cache) else { return };
    let Some(file) = file_of(path) else { return };
    let disk = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let remembered = Remembered { disk, size, flash: cache.flash.identity() };
    if state_file::read(&file).as_ref() == Some(&remembered) {
        return;
    }
    if let Err(error) = state_file::write(&file, &remembered) {
        tracing::warn!(
            "{}: {error}; if the disk is cut or grows, it will look like a disk without flash",
            crate::text::visible_path(&file)
        );
    }
}

/// The record of a disk; `None` if no flash holds newer data of it.
pub(crate) fn load(spec: &DeviceSpec) -> Option<Remembered> {
    state_file::read(&file_of(spec.path()?)?)
}

/// Removes the record, because the disk is complete without flash. Returns whether there was one.
pub(crate) fn remove(spec: &DeviceSpec) -> bool {
    spec.path().and_then(|path| file_of(path)).is_some_and(|file| fs::remove_file(file).is_ok())
}

fn file_of(path: &Path) -> Option<PathBuf> {
    let id = id_of(path)?;
    let safe = |c: char| if c.is_ascii_alphanumeric() || "-_".contains(c) { c } else { '_' };
    Some(state_file::path("@disks", &id.chars().map(safe).take(200).collect::<String>()))
}

/// What stays with the disk at that path; nothing if it has nothing like that.
fn id_of(path: &Path) -> Option<String> {
    if let PathLocality::Away { mounted, at, .. } = mounts::locate(path) {
        // Only what a process of its own can tell.
        let ProbeReply::Yes(found) = mounts::found_at(path) else { return None };
        return found.is_file.then(|| format!("away-{}-{}-{:x}", mounted.source, at.display(), found.inode));
    }
    let data = fs::metadata(path).ok()?;
    if data.file_type().is_block_device() {
        let folder = PathBuf::from(format!("/sys/dev/block/{}:{}", major(data.rdev()), minor(data.rdev())));
        return id_of_device(&folder.canonicalize().ok()?);
    }
    // An inode number is used again; with the time of its birth it is one file's alone.
    let born = statx(CWD, path, AtFlags::empty(), StatxFlags::BTIME).ok()?;
    let system = file_system_of(path)?;
    Some(format!("file-{system}-{}-{}-{}", data.ino(), born.stx_btime.tv_sec, born.stx_btime.tv_nsec))
}

/// What stays with the file system of a file. The number that XFS gives is that of its device, which another one may
/// have next time.
fn file_system_of(path: &Path) -> Option<String> {
    if let Some(uuid) = xfs_uuid(&fs::File::open(path).ok()?) {
        return Some(format!("{:x}", uuid.as_u128()));
    }
    Some(format!("{:x}", rustix::fs::statvfs(path).ok()?.f_fsid))
}

/// The id of a device, from its folder in sysfs: its own id, or for a partition the disk's id and the partition's
/// start.
fn id_of_device(folder: &Path) -> Option<String> {
    let text = |name: &str| {
        let text = fs::read_to_string(folder.join(name)).ok()?;
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    };
    if folder.join("partition").exists() {
        let disk = id_of_device(folder.parent()?)?;
        return Some(format!("{disk}-at-{}", text("start")?));
    }
    if let Some(file) = text("loop/backing_file") {
        return id_of(Path::new(&file));
    }
    let own = ["dm/uuid", "md/uuid", "wwid", "device/wwid", "serial", "device/serial"];
    own.into_iter().find_map(text).map(|own| format!("device-{own}"))
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn a_file_is_the_same_after_it_was_cut_or_renamed_and_another_one_in_its_place_is_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let (one, other) = (folder.path().join("one"), folder.path().join("other"));
        fs::write(&one, [1; 8192]).expect("it can be written");
        let id = id_of(&one).expect("a file has one");
        File::options().write(true).open(&one).and_then(|file| file.set_len(4096)).expect("it can be cut");
        assert_eq!(id_of(&one), Some(id.clone()));
        fs::rename(&one, &other).expect("it can be renamed");
        assert_eq!(id_of(&other), Some(id.clone()));
        fs::write(&one, [1; 8192]).expect("it can be written");
        assert_ne!(id_of(&one), Some(id));
        assert_eq!(id_of(&folder.path().join("missing")), None);
    }

    #[test]
    fn a_partition_is_known_by_its_disk_and_its_start() {
        let sys = tempfile::tempdir().expect("a folder");
        let part = sys.path().join("sda1");
        fs::create_dir_all(&part).and_then(|()| fs::create_dir(sys.path().join("device"))).expect("folders");
        fs::write(sys.path().join("device/wwid"), "naa.5000\n").expect("it can be written");
        assert_eq!(id_of_device(sys.path()).as_deref(), Some("device-naa.5000"));
        fs::write(part.join("partition"), "1\n").and_then(|()| fs::write(part.join("start"), "2048\n")).expect("files");
        assert_eq!(id_of_device(&part).as_deref(), Some("device-naa.5000-at-2048"));
    }
}
