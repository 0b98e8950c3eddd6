//! What can go wrong between a device and the ublk driver.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use super::wire::ControlCommand;

/// Why a device could not be offered by ublk, or not be taken back.
#[derive(Debug, Error)]
pub enum UblkError {
    /// The module is not loaded, or the kernel has none.
    #[error(
        "/dev/ublk-control is missing: load the driver with `modprobe ublk_drv` \
         (it needs Linux 6.5 or later: Debian 13, or Debian 12 with linux-image-6.12-amd64)"
    )]
    NoDriver,
    /// The driver lacks what is needed.
    #[error("the ublk driver of this kernel is too old: Linux 6.5 or later is needed")]
    TooOld,
    /// The kernel refuses io_uring, by which the driver is spoken to.
    #[error("the kernel refuses io_uring, which ublk needs: {source} (see `sysctl kernel.io_uring_disabled`)")]
    NoRing {
        /// Why.
        source: io::Error,
    },
    /// A device file cannot be opened.
    #[error("{}: {source}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The driver refused a command.
    #[error("the ublk driver does not {command}: {source}")]
    Refused {
        /// Which one.
        command: ControlCommand,
        /// Why.
        source: io::Error,
    },
    /// The driver gives no requests.
    #[error("cannot serve the queue of a ublk device: {source}")]
    Queue {
        /// Why not.
        source: io::Error,
    },
    /// The threads that carry requests out cannot be started.
    #[error("starting the threads of a ublk device: {source}")]
    Thread {
        /// Why not.
        source: io::Error,
    },
    /// It is mounted, or in use by another device.
    #[error("{}: in use (unmount its file system first)", device.display())]
    InUse {
        /// The device.
        device: PathBuf,
    },
}
