//! Attaches a file to a free loop device and detaches it, without `losetup`.
//!
//! The device is held open for as long as it is attached, and has the order to detach itself when no process has it
//! open any more. So a program that dies takes its loop device with it, unless a mount still uses it.

mod kernel;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use rustix::io::Errno;
use thiserror::Error;

use crate::file::Access;

/// How often another free device is tried when another program was faster.
const TRIES: u32 = 32;
/// How long others, such as udev, may have a detached device open for a look.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);
/// The least that the kernel accepts as `nr_requests`, and the number that the loop driver has if it does not say.
const LEAST_REQUESTS: u32 = 4;
const DRIVER_REQUESTS: u32 = 128;

/// Why a file could not be attached, or a loop device not be detached.
#[derive(Debug, Error)]
pub enum LoopError {
    /// The file cannot be opened.
    #[error("{}: {source}", path.display())]
    Open {
        /// The file or device.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// There is no loop driver, or no right to use it.
    #[error("no free loop device: {source} (is the module \"loop\" loaded?)")]
    NoneFree {
        /// Why not.
        source: io::Error,
    },
    /// The kernel refused to attach the file.
    #[error("{}: cannot attach {}: {source}", device.display(), file.display())]
    Attach {
        /// The loop device.
        device: PathBuf,
        /// The file.
        file: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The file does not take direct I/O.
    #[error("{}: the kernel refuses direct I/O to {}", device.display(), file.display())]
    NoDirectIo {
        /// The loop device.
        device: PathBuf,
        /// The file.
        file: PathBuf,
    },
    /// A setting in sysfs was refused.
    #[error("{}: cannot set {setting} to {value:?}: {source}", device.display())]
    Setting {
        /// The loop device.
        device: PathBuf,
        /// Its name in sysfs.
        setting: &'static str,
        /// What it was to become.
        value: String,
        /// Why not.
        source: io::Error,
    },
    /// It is mounted, or open elsewhere.
    #[error("{}: in use (unmount its file system first)", device.display())]
    InUse {
        /// The loop device.
        device: PathBuf,
    },
    /// The kernel refused to take its new size.
    #[error("{}: cannot take its new size: {source}", device.display())]
    Resize {
        /// The loop device.
        device: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The kernel refused to detach it.
    #[error("{}: cannot detach: {source}", device.display())]
    Detach {
        /// The loop device.
        device: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

/// How to attach a file. Direct I/O always: what is below has its own idea of a cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttachOptions {
    /// Whether it may be written.
    pub access: Access,
    /// The least that it reads and writes, in bytes: 512 to 4096, a power of two.
    pub sector_size: u32,
    /// The kernel's request scheduler, as `mq-deadline`; the system's choice if not given.
    pub scheduler: Option<String>,
    /// Whether the kernel is to think that distance costs time; its own guess if not given.
    pub rotational: Option<bool>,
    /// Requests under way at most, as a disk's own queue has places; what the driver can if not given. What exceeds it
    /// waits with the scheduler, which can still join and sort it.
    pub queue_depth: Option<u32>,
}

impl Default for AttachOptions {
    fn default() -> AttachOptions {
        AttachOptions {
            access: Access::ReadWrite,
            sector_size: 512,
            scheduler: None,
            rotational: None,
            queue_depth: None,
        }
    }
}

/// An attached loop device. Dropping it detaches it once no process uses it.
#[derive(Debug)]
pub struct LoopDevice {
    held: Option<File>,
    path: PathBuf,
}

impl LoopDevice {
    /// Attaches a file to a free loop device.
    pub fn attach(file: &Path, options: &AttachOptions) -> Result<LoopDevice, LoopError> {
        let backing = open(file, options.access, OFlags::empty())?;
        let (held, path) = configure(&backing, file, options)?;
        let device = LoopDevice { held: Some(held), path };
        if device.sysfs("loop/dio").is_ok_and(|dio| dio.trim() != "1") {
            return Err(LoopError::NoDirectIo { device: device.path.clone(), file: file.to_owned() });
        }
        device.limit_queue(options.queue_depth)?;
        if let Some(scheduler) = &options.scheduler {
            device.set("queue/scheduler", scheduler)?;
        }
        if let Some(rotational) = options.rotational {
            device.set("queue/rotational", if rotational { "1" } else { "0" })?;
        }
        Ok(device)
    }

    /// Its path, as `/dev/loop0`.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Takes the size that its file has now; what is mounted stays mounted.
    pub fn resize(&self) -> Result<(), LoopError> {
        let Some(held) = &self.held else { return Ok(()) };
        kernel::set_capacity(held)
            .map_err(|error| LoopError::Resize { device: self.path.clone(), source: error.into() })
    }

    /// Detaches it; fails, and leaves it attached, while it is mounted.
    ///
    /// Steps: 1. claim it alone, which fails while it is mounted. 2. tell it to detach at the last close. 3. close. 4.
    /// wait for other processes that opened the device briefly.
    pub fn detach(&mut self) -> Result<(), LoopError> {
        if self.held.is_none() {
            return Ok(());
        }
        let claim = open(&self.path, Access::ReadOnly, OFlags::EXCL).map_err(|error| match error {
            LoopError::Open { path, source } if source.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => {
                LoopError::InUse { device: path }
            }
            error => error,
        })?;
        // The next user may be another one.
        let _ = self.limit_queue(None);
        kernel::clear(&claim).map_err(|error| LoopError::Detach { device: self.path.clone(), source: error.into() })?;
        drop(claim);
        self.held = None;
        let attached = self.sysfs_path("loop/backing_file");
        let begun = Instant::now();
        while attached.exists() {
            if begun.elapsed() > RELEASE_TIMEOUT {
                return Err(LoopError::InUse { device: self.path.clone() });
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Sets how many requests the driver may have at once; without `depth`, to the most it can. A reused device keeps
    /// the former value otherwise. The kernel takes `nr_requests` for that only while there is no scheduler. With one,
    /// it is the number of requests that wait.
    fn limit_queue(&self, depth: Option<u32>) -> Result<(), LoopError> {
        let most = self.sysfs("mq/0/nr_tags").ok().and_then(|most| most.trim().parse().ok()).unwrap_or(DRIVER_REQUESTS);
        let depth = depth.map_or(most, |depth| depth.clamp(LEAST_REQUESTS, most));
        let schedulers = self.sysfs("queue/scheduler").unwrap_or_default();
        let chosen = schedulers.split_once('[').and_then(|(_, rest)| rest.split(']').next());
        self.set("queue/scheduler", "none")?;
        // After a change of the scheduler the kernel shows another number than it uses, and ignores a write of the
        // shown number. So a different number goes first.
        let other = if depth > LEAST_REQUESTS { depth - 1 } else { most };
        self.set("queue/nr_requests", &other.to_string())?;
        self.set("queue/nr_requests", &depth.to_string())?;
        chosen.map_or(Ok(()), |chosen| self.set("queue/scheduler", chosen))
    }

    fn sysfs_path(&self, setting: &str) -> PathBuf {
        let name = self.path.file_name().unwrap_or_default();
        Path::new("/sys/block").join(name).join(setting)
    }

    fn sysfs(&self, setting: &str) -> io::Result<String> {
        std::fs::read_to_string(self.sysfs_path(setting))
    }

    fn set(&self, setting: &'static str, value: &str) -> Result<(), LoopError> {
        std::fs::write(self.sysfs_path(setting), value).map_err(|source| LoopError::Setting {
            device: self.path.clone(),
            setting,
            value: value.to_owned(),
            source,
        })
    }
}

/// Finds a free device and attaches the file; tries another one if another program was faster.
fn configure(backing: &File, file: &Path, options: &AttachOptions) -> Result<(File, PathBuf), LoopError> {
    let none_free = |source: io::Error| LoopError::NoneFree { source };
    let control = File::options().read(true).write(true).open("/dev/loop-control").map_err(none_free)?;
    let mut tries = 0;
    loop {
        let number = kernel::free(&control).map_err(|error| none_free(error.into()))?;
        let path = PathBuf::from(format!("/dev/loop{number}"));
        let device = open(&path, options.access, OFlags::empty())?;
        tries += 1;
        match kernel::configure(&device, backing, file, options) {
            Ok(()) => return Ok((device, path)),
            Err(Errno::BUSY) if tries < TRIES => {}
            Err(error) => {
                return Err(LoopError::Attach { device: path, file: file.to_owned(), source: error.into() });
            }
        }
    }
}

fn open(path: &Path, access: Access, flags: OFlags) -> Result<File, LoopError> {
    OpenOptions::new()
        .read(true)
        .write(access == Access::ReadWrite)
        .custom_flags(flags.bits().cast_signed())
        .open(path)
        .map_err(|source| LoopError::Open { path: path.to_owned(), source })
}
