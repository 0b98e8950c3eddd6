//! Other users of a disk: what is on it or on its partitions, and the devices that are made of them.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor};

use crate::disk::users_of;
use crate::text::visible;

/// The users of a device's disk, as text. A regular file is used as a disk by no program.
pub(super) fn users(device: &Path) -> Vec<String> {
    let Ok(found) = fs::metadata(device) else { return Vec::new() };
    if !found.file_type().is_block_device() {
        return Vec::new();
    }
    let number = found.rdev();
    let Ok(entry) = fs::canonicalize(format!("/sys/dev/block/{}:{}", major(number), minor(number))) else {
        return users_of(device).into_iter().collect();
    };
    let whole = if entry.join("partition").exists() { entry.parent().unwrap_or(&entry) } else { &entry };
    let parts = entries(whole).into_iter().filter(|entry| entry.join("partition").exists());
    let mut users: Vec<String> = Vec::new();
    for part in [whole.to_owned()].into_iter().chain(parts) {
        let Some(name) = part.file_name() else { continue };
        let by = entries(&part.join("holders")).into_iter().filter_map(|holder| {
            holder.file_name().map(|holder| format!("part of {}", visible(&holder.to_string_lossy())))
        });
        let by: Vec<String> = users_of(&Path::new("/dev").join(name)).into_iter().chain(by).collect();
        users.extend(by.iter().map(|user| {
            if part == entry { user.clone() } else { format!("{}: {user}", visible(&name.to_string_lossy())) }
        }));
    }
    users
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    entries.sort();
    entries
}
