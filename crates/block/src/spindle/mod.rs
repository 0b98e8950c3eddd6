//! How a disk is put to sleep and woken.
//!
//! A real disk is spoken to through SG_IO: ATA disks (also behind USB) by ATA PASS-THROUGH, others by SCSI commands;
//! [`open`] finds out which. What cannot sleep says so when it is opened. [`NoSpindle`] stands in for a motor where
//! there is none, and an [`EmulatedDisk`](crate::emulated::EmulatedDisk) has one of its own.

mod ata;
mod find;
mod scsi;
mod sense;
mod sg;
#[cfg(test)]
mod testing;

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;
use thiserror::Error;
use umbrella_policy::spin_down::Costs;

use crate::error::{BlockError, Operation};

/// What a disk's motor does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Power {
    /// It turns.
    Spinning,
    /// It stands still; the next access wakes it.
    Standby,
    /// It is on its way between the two.
    Changing,
}

/// A disk that can sleep. None of these calls wakes it but [`wake`](Spindle::wake).
pub trait Spindle: Send + Sync {
    /// Spins it down. What was written must have been flushed before.
    fn standby(&self) -> Result<(), BlockError>;

    /// Spins it up; returns when it can be used.
    fn wake(&self) -> Result<(), BlockError>;

    /// What it does now.
    fn power(&self) -> Result<Power, BlockError>;

    /// What sleeping costs, where waking it has shown that.
    fn costs(&self) -> Option<Costs> {
        None
    }
}

/// Why a device cannot be put to sleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Sleepless {
    /// A file, or something else that is no block device.
    #[error("it is not a block device")]
    NoBlockDevice,
    /// A loop device, a mapped one, an array, one of a virtual machine, NVMe.
    #[error("it is not a SCSI or ATA disk (put the disks below it to sleep)")]
    NoDisk,
    /// Flash.
    #[error("it has no platters")]
    NoPlatters,
}

/// A device whose motor cannot be spoken to.
#[derive(Debug, Clone, Error)]
pub enum SpindleError {
    /// It has none, or none that can be reached.
    #[error("{device} cannot be put to sleep: {reason}")]
    CannotSleep {
        /// Which one.
        device: Arc<str>,
        /// Why.
        reason: Sleepless,
    },
    /// It does not answer, or cannot be opened.
    #[error("{device}: {source}")]
    Io {
        /// Which one.
        device: Arc<str>,
        /// Why.
        source: Arc<io::Error>,
    },
}

/// The motor of a disk: a whole one such as `/dev/sda`, or that which a partition lies on. Wakes nothing.
pub fn open(path: &Path) -> Result<Box<dyn Spindle>, SpindleError> {
    let device: Arc<str> = path.display().to_string().into();
    let failed = |error: io::Error| SpindleError::Io { device: Arc::clone(&device), source: Arc::new(error) };
    let metadata = path.metadata().map_err(failed)?;
    if !metadata.file_type().is_block_device() {
        return Err(SpindleError::CannotSleep { device, reason: Sleepless::NoBlockDevice });
    }
    let found = find::whole_disk(Path::new("/sys"), metadata.rdev()).map_err(failed)?;
    let whole = found.map_err(|reason| SpindleError::CannotSleep { device: Arc::clone(&device), reason })?;
    // Without waiting for the medium.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(whole).map_err(failed)?;
    let transport = Box::new(sg::SgIo::new(file));
    match find::command_set(&*transport).map_err(|error| failed(error.into()))? {
        find::CommandSet::Ata => Ok(Box::new(ata::AtaDisk::new(device, transport))),
        find::CommandSet::Scsi => Ok(Box::new(scsi::ScsiDisk::new(device, transport))),
    }
}

/// A failed command as the error of a device.
fn refused(device: &Arc<str>) -> impl Fn(sg::CommandError) -> BlockError {
    |error| BlockError::io(device, Operation::Power, None, error.into())
}

/// A motor that does not exist: it reports the last state it was set to. For files and flash that stand in for a disk.
#[derive(Debug, Default)]
pub struct NoSpindle {
    asleep: AtomicBool,
}

impl Spindle for NoSpindle {
    fn standby(&self) -> Result<(), BlockError> {
        self.asleep.store(true, Ordering::SeqCst);
        Ok(())
    }

    fn wake(&self) -> Result<(), BlockError> {
        self.asleep.store(false, Ordering::SeqCst);
        Ok(())
    }

    fn power(&self) -> Result<Power, BlockError> {
        Ok(if self.asleep.load(Ordering::SeqCst) { Power::Standby } else { Power::Spinning })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(path: &Path) -> String {
        open(path).map(|_| ()).expect_err("it cannot sleep").to_string()
    }

    #[test]
    fn what_cannot_sleep_says_so_when_it_is_opened() {
        let file = tempfile::NamedTempFile::new().expect("a file can be made");
        let path = file.path().display();
        assert_eq!(reason(file.path()), format!("{path} cannot be put to sleep: it is not a block device"));
        assert_eq!(reason(Path::new("/dev/null")), "/dev/null cannot be put to sleep: it is not a block device");
        assert!(reason(Path::new("/nowhere")).starts_with("/nowhere: No such file"));
    }

    #[test]
    fn a_missing_motor_reports_the_state_that_was_set_last() {
        let spindle = NoSpindle::default();
        assert_eq!(spindle.power().expect("it answers"), Power::Spinning);
        spindle.standby().expect("it believes");
        assert_eq!(spindle.power().expect("it answers"), Power::Standby);
        spindle.wake().expect("it believes");
        assert_eq!(spindle.power().expect("it answers"), Power::Spinning);
    }
}
