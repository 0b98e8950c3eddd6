//! A disk as a block device of this machine: a FUSE file with the disk in it, and a loop device over that.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use umbrella_block::BlockDevice;
use umbrella_block::file::Access;
use umbrella_block::serve::Traffic;
use umbrella_block::serve::loop_device::{AttachOptions, LoopDevice, LoopError};
use umbrella_block::serve::loop_file::LoopFile;

use super::users::users_of;
use crate::mounts;
use crate::text::visible_path;

/// The kernel's scheduler for what rotates: it sends neighbours one after the other.
const SCHEDULER: &str = "mq-deadline";

/// How long somebody may take to look at a device.
const A_LOOK: Duration = Duration::from_secs(1);

/// An attached disk. Fields are dropped in this order.
pub(crate) struct Attached {
    device: LoopDevice,
    file: LoopFile,
    folder: PathBuf,
}

impl Attached {
    /// Attaches a disk, by way of a file in `folder`. A mount that a dead daemon left there is taken away.
    pub(crate) fn new(disk: Arc<dyn BlockDevice>, folder: &Path, access: Access) -> anyhow::Result<Attached> {
        let shown = visible_path(folder);
        if mounts::is_dead(folder) {
            mounts::detach(folder, true).with_context(|| format!("taking away the dead mount at {shown}"))?;
        }
        DirBuilder::new().recursive(true).mode(0o700).create(folder).with_context(|| shown)?;
        let attached = Attached::at(disk, folder.to_owned(), access);
        if attached.is_err() {
            // The folder is only a place to mount at.
            let _ = std::fs::remove_dir(folder);
        }
        attached
    }

    fn at(disk: Arc<dyn BlockDevice>, folder: PathBuf, access: Access) -> anyhow::Result<Attached> {
        let geometry = disk.geometry();
        let file = LoopFile::mount(disk, &folder, access)?;
        let options = AttachOptions {
            access,
            sector_size: geometry.logical_block,
            scheduler: geometry.rotational.then(|| SCHEDULER.to_owned()),
            rotational: Some(geometry.rotational),
            // As a real one has: what the disk does not take yet is joined with its neighbours meanwhile.
            queue_depth: geometry.rotational.then_some(geometry.queue_depth),
        };
        let device = match LoopDevice::attach(&file.path(), &options) {
            // A kernel without it.
            Err(LoopError::Setting { setting: "queue/scheduler", .. }) => {
                tracing::warn!("there is no scheduler {SCHEDULER}: the loop device goes without");
                LoopDevice::attach(&file.path(), &AttachOptions { scheduler: None, ..options })?
            }
            device => device?,
        };
        Ok(Attached { device, file, folder })
    }

    /// As `/dev/loop0`.
    pub(crate) fn device(&self) -> &Path {
        self.device.path()
    }

    /// As people read it.
    pub(crate) fn shown(&self) -> String {
        self.device().display().to_string()
    }

    /// What was asked of it so far.
    pub(crate) fn traffic(&self) -> Traffic {
        self.file.traffic()
    }

    /// Tells it that the disk has become larger.
    pub(crate) fn resize(&self) -> anyhow::Result<()> {
        self.file.refresh()?;
        Ok(self.device.resize()?)
    }

    /// Fails if somebody uses it, and names whom. Who only takes a look at a new device is given time to go.
    pub(crate) fn refuse_in_use(&self) -> anyhow::Result<()> {
        let shown = visible_path(self.device());
        let claim = rustix::fs::open(self.device(), OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC, Mode::empty());
        if claim.is_err_and(|error| error == Errno::BUSY) {
            let users = users_of(self.device()).unwrap_or_else(|| "used by another device or as swap".to_owned());
            bail!("{shown} is in use: {users}; unmount or close it first");
        }
        let deadline = Instant::now() + A_LOOK;
        while let Some(users) = users_of(self.device()) {
            if Instant::now() > deadline {
                bail!("{shown} is in use: {users}; unmount or close it first");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Takes it away; fails, and leaves it as it is, while somebody uses it.
    pub(crate) fn detach(&mut self) -> anyhow::Result<()> {
        self.refuse_in_use()?;
        self.device.detach()?;
        self.file.unmount()?;
        // The folder is only a place to mount at.
        let _ = std::fs::remove_dir(&self.folder);
        Ok(())
    }
}
