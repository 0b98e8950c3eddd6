//! A disk as a block device of this machine.

mod by_loop;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::bail;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use umbrella_block::BlockDevice;
use umbrella_block::file::Access;
use umbrella_block::serve::Traffic;
#[cfg(feature = "ublk")]
use umbrella_block::serve::ublk::Ublk;

use self::by_loop::ByLoop;
use super::users::users_of;
use crate::config::disk::Front;
use crate::text::visible_path;

/// How long other programs may keep a device open to inspect it.
const INSPECTION_TIMEOUT: Duration = Duration::from_secs(1);

/// An attached disk, by its front.
pub(crate) enum Attached {
    Loop(ByLoop),
    #[cfg(feature = "ublk")]
    Ublk(Box<Ublk>),
}

impl Attached {
    /// Attaches a disk. `folder` is where a front that needs one mounts a file.
    pub(crate) fn new(
        disk: Arc<dyn BlockDevice>,
        front: Front,
        folder: &Path,
        access: Access,
    ) -> anyhow::Result<Attached> {
        front.needs_to_be_built()?;
        match front {
            #[cfg(feature = "ublk")]
            Front::Ublk => Ok(Attached::Ublk(Box::new(Ublk::attach(&disk, access)?))),
            _ => Ok(Attached::Loop(ByLoop::new(disk, folder, access)?)),
        }
    }

    pub(crate) fn front(&self) -> Front {
        match self {
            Attached::Loop(_) => Front::Loop,
            #[cfg(feature = "ublk")]
            Attached::Ublk(_) => Front::Ublk,
        }
    }

    /// As `/dev/loop0`.
    pub(crate) fn device(&self) -> &Path {
        match self {
            Attached::Loop(by_loop) => by_loop.device(),
            #[cfg(feature = "ublk")]
            Attached::Ublk(ublk) => ublk.path(),
        }
    }

    /// As people read it.
    pub(crate) fn shown(&self) -> String {
        self.device().display().to_string()
    }

    /// What was asked of it so far.
    pub(crate) fn traffic(&self) -> Traffic {
        match self {
            Attached::Loop(by_loop) => by_loop.traffic(),
            #[cfg(feature = "ublk")]
            Attached::Ublk(ublk) => ublk.traffic(),
        }
    }

    /// Why it is not known that the disk has become larger, if so.
    pub(crate) fn fixed(&self) -> Option<String> {
        let fixed = self.front() == Front::Ublk;
        fixed.then(|| format!("{} keeps its size while it is attached; detach it first", self.shown()))
    }

    /// Tells it, unless it is [`fixed`](Attached::fixed), that the disk has become larger.
    pub(crate) fn resize(&self) -> anyhow::Result<()> {
        match self {
            Attached::Loop(by_loop) => by_loop.resize(),
            #[cfg(feature = "ublk")]
            Attached::Ublk(_) => Ok(()),
        }
    }

    /// Fails if the device is in use, and names the users. Programs that inspect a new device get time to close it.
    pub(crate) fn refuse_in_use(&self) -> anyhow::Result<()> {
        let shown = visible_path(self.device());
        let claim = rustix::fs::open(self.device(), OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC, Mode::empty());
        if claim.is_err_and(|error| error == Errno::BUSY) {
            let users = users_of(self.device()).unwrap_or_else(|| "used by another device or as swap".to_owned());
            bail!("{shown} is in use: {users}; unmount or close it first");
        }
        let deadline = Instant::now() + INSPECTION_TIMEOUT;
        while let Some(users) = users_of(self.device()) {
            if Instant::now() > deadline {
                bail!("{shown} is in use: {users}; unmount or close it first");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Detaches it. Fails, and changes nothing, while the device is in use.
    pub(crate) fn detach(&mut self) -> anyhow::Result<()> {
        self.refuse_in_use()?;
        match self {
            Attached::Loop(by_loop) => by_loop.detach(),
            #[cfg(feature = "ublk")]
            Attached::Ublk(ublk) => Ok(ublk.detach()?),
        }
    }
}
