//! The disk image that every system gets: a sparse image of 16 GiB. For each measurement ext4 is made anew on it, with
//! fixed ids, so that the allocator and the directory hashes do the same each time. The file behind it stays, so that
//! its blocks exist after the warm-up.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::mount::{MsFlags, mount};

use crate::host;

const SIZE: u64 = 16 << 30;
const UUID: &str = "a5a5a5a5-0000-4000-8000-000000000001";
const TIMEOUT: Duration = Duration::from_secs(10);

/// A mounted image; unmounted and detached on drop.
pub(crate) struct Disk {
    root: PathBuf,
    loop_device: PathBuf,
}

impl Disk {
    /// Formats the image and mounts it at `root`.
    pub(crate) fn new(image: &Path, root: &Path) -> Result<Self> {
        host::make_ext4(image, SIZE, UUID)?;
        let loop_device = attach(image)?;
        fs::create_dir_all(root).context("cannot make the mount point of the image")?;
        let mounted = mount(Some(&loop_device), root, Some("ext4"), MsFlags::empty(), Some("noinit_itable"));
        // The device detaches by itself when the last user, the mount, is gone.
        let detached = host::run(Command::new("losetup").arg("--detach").arg(&loop_device));
        mounted.context("cannot mount the image")?;
        let disk = Self { root: root.to_owned(), loop_device };
        detached?;
        Ok(disk)
    }

    /// Where it is mounted.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    fn is_attached(&self) -> bool {
        let name = self.loop_device.file_name().unwrap_or_default();
        Path::new("/sys/block").join(name).join("loop/backing_file").exists()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        host::unmount(&self.root);
        let begin = Instant::now();
        while self.is_attached() && begin.elapsed() < TIMEOUT {
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Without the page cache of the file system that holds the image, where it can be bypassed.
fn attach(image: &Path) -> Result<PathBuf> {
    let direct = host::run(Command::new("losetup").args(["--find", "--show", "--direct-io=on"]).arg(image));
    let output = match direct {
        Ok(output) => output,
        Err(_) => host::run(Command::new("losetup").args(["--find", "--show"]).arg(image))?,
    };
    let name = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    ensure!(name.starts_with("/dev/"), "losetup gave no device");
    Ok(PathBuf::from(name))
}
