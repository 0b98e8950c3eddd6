//! A FUSE file with the disk in it, and a loop device over that.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use umbrella_block::BlockDevice;
use umbrella_block::file::Access;
use umbrella_block::serve::Traffic;
use umbrella_block::serve::loop_device::{AttachOptions, LoopDevice, LoopError};
use umbrella_block::serve::loop_file::LoopFile;

use crate::mounts;
use crate::text::visible_path;

/// The kernel's scheduler for what rotates: it sends neighbours one after the other.
const SCHEDULER: &str = "mq-deadline";

/// A disk attached by a loop device. Fields are dropped in this order.
pub(crate) struct ByLoop {
    device: LoopDevice,
    file: LoopFile,
    folder: PathBuf,
}

impl ByLoop {
    /// Attaches a disk, by way of a file in `folder`. A mount that a dead daemon left there is taken away.
    pub(super) fn new(disk: Arc<dyn BlockDevice>, folder: &Path, access: Access) -> anyhow::Result<ByLoop> {
        let shown = visible_path(folder);
        if mounts::is_dead(folder) {
            mounts::detach(folder, true).with_context(|| format!("detaching the dead mount at {shown}"))?;
        }
        DirBuilder::new().recursive(true).mode(0o700).create(folder).with_context(|| shown)?;
        let attached = ByLoop::at(disk, folder.to_owned(), access);
        if attached.is_err() {
            // The folder is only a place to mount at.
            let _ = std::fs::remove_dir(folder);
        }
        attached
    }

    fn at(disk: Arc<dyn BlockDevice>, folder: PathBuf, access: Access) -> anyhow::Result<ByLoop> {
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
                tracing::warn!("the kernel has no scheduler {SCHEDULER}: the loop device works without one");
                LoopDevice::attach(&file.path(), &AttachOptions { scheduler: None, ..options })?
            }
            device => device?,
        };
        Ok(ByLoop { device, file, folder })
    }

    pub(super) fn device(&self) -> &Path {
        self.device.path()
    }

    pub(super) fn traffic(&self) -> Traffic {
        self.file.traffic()
    }

    pub(super) fn resize(&self) -> anyhow::Result<()> {
        self.file.refresh()?;
        Ok(self.device.resize()?)
    }

    pub(super) fn detach(&mut self) -> anyhow::Result<()> {
        self.device.detach()?;
        self.file.unmount()?;
        // The folder is only a place to mount at.
        let _ = std::fs::remove_dir(&self.folder);
        Ok(())
    }
}
