//! A block device as /dev/ublkbN, Linux' own interface for block devices in programs. Data is copied once, and neither
//! FUSE nor a loop device lies between.
//!
//! Needs Linux 6.5 (`UBLK_F_USER_COPY`) with the module `ublk_drv`, io_uring and root.
//!
//! **Start**
//!
//! 1. Numbers that killed daemons left behind are freed.
//! 2. ADD_DEV makes /dev/ublkcN, which only the driver's daemon uses. SET_PARAMS describes the device to the driver.
//! 3. The queue's thread asks for a request with every tag, and the workers, if there are any, wait for them.
//! 4. START_DEV makes /dev/ublkbN. The kernel looks for partitions, so requests come before this returns.
//!
//! **A request**: the driver completes a tag's command, and the queue's thread hands the request to a worker. The
//! worker copies the data from or to the request by reading or writing /dev/ublkcN, calls the device, and notifies the
//! queue's thread. The queue's thread returns the result to the driver and asks for the tag's next request with the
//! same command. Many calls can be under way at once. The kernel never holds memory of this process. A device that
//! answers at once has no workers: the queue's thread calls it.
//!
//! **Stop**
//!
//! 1. /dev/ublkbN is opened exclusively, which fails while it is mounted or in use by another device.
//! 2. STOP_DEV: the kernel writes its cached data, waits for the requests under way, removes /dev/ublkbN, and ends
//!    every tag's command.
//! 3. The queue's thread ends when all commands have ended, and the workers end when nothing is left to do.
//! 4. The files are closed, and DEL_DEV frees the number; /dev/ublkcN is gone.
//!
//! **A daemon that is killed**: io_uring cancels its commands. Recovery is not enabled, so the driver then fails the
//! requests under way, refuses new ones and removes /dev/ublkbN. The file /dev/ublkcN stays, without a device, and the
//! next start removes it (step 1).

mod error;
mod kernel;
mod left_over;
mod params;
mod queue;
#[cfg(test)]
mod tests;
mod wire;
mod work;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::{Builder, JoinHandle};

use rustix::fs::OFlags;
use rustix::io::Errno;

pub use error::UblkError;
use kernel::{Control, Notifier, Queue};
use queue::Executor;
pub use wire::ControlCommand;
use wire::{DeviceInfo, Features, PAYLOAD_BYTES};
use work::{WorkQueue, Worker};

use super::traffic::{Traffic, TrafficCounters};
use crate::device::{BlockDevice, Geometry};
use crate::file::Access;

/// The kernel's scheduler for what rotates: it sends neighbours one after the other.
const SCHEDULER: &str = "mq-deadline";

/// A device offered as /dev/ublkbN. Dropping it removes the device, even while it is in use.
pub struct Ublk {
    driver: Registration,
    path: PathBuf,
    counters: Arc<TrafficCounters>,
    threads: Vec<JoinHandle<()>>,
}

impl Ublk {
    /// Offers the device under the next free number.
    pub fn attach(device: &Arc<dyn BlockDevice>, access: Access) -> Result<Ublk, UblkError> {
        let mut control = control()?;
        left_over::forget(&mut control);
        let geometry = device.geometry();
        let (mut driver, depth) = Registration::add(control, &geometry)?;
        driver.call(ControlCommand::SetParams, 0, Some(&mut params::encode(&geometry, access)))?;
        let mut ublk = Ublk {
            path: PathBuf::from(format!("/dev/ublkb{}", driver.number)),
            driver,
            counters: Arc::default(),
            threads: Vec::new(),
        };
        ublk.serve(device, depth)?;
        ublk.driver.call(ControlCommand::Start, std::process::id().into(), None)?;
        if geometry.rotational {
            ublk.schedule();
        }
        Ok(ublk)
    }

    /// As `/dev/ublkb0`.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What was carried out so far.
    pub fn traffic(&self) -> Traffic {
        self.counters.so_far()
    }

    /// Takes it away; fails, and leaves it as it is, while it is mounted or in use by another device.
    pub fn detach(&mut self) -> Result<(), UblkError> {
        if self.driver.is_gone {
            return Ok(());
        }
        let claim = open(&self.path, OFlags::EXCL, Access::ReadOnly).map_err(|error| match error {
            UblkError::Open { path, source } if source.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => {
                UblkError::InUse { device: path }
            }
            error => error,
        });
        let claim = match claim {
            // The driver has taken it away already.
            Err(UblkError::Open { source, .. }) if source.kind() == io::ErrorKind::NotFound => None,
            claim => Some(claim?),
        };
        self.driver.call(ControlCommand::Stop, 0, None)?;
        self.join();
        drop(claim);
        self.driver.delete()
    }

    /// Starts the threads (step 3).
    fn serve(&mut self, device: &Arc<dyn BlockDevice>, depth: u16) -> Result<(), UblkError> {
        let failed = |source| UblkError::Thread { source };
        let file = open(Path::new(&format!("/dev/ublkc{}", self.driver.number)), OFlags::empty(), Access::ReadWrite)?;
        let worker = |counters: &Arc<TrafficCounters>| -> Result<Worker<File>, UblkError> {
            let data = file.try_clone().map_err(failed)?;
            Ok(Worker { device: Arc::clone(device), data, counters: Arc::clone(counters) })
        };
        let notifier = Notifier::new().map_err(failed)?;
        let work_queue = CloseOnDrop(Arc::new(WorkQueue::new(notifier.try_clone().map_err(failed)?)));
        let workers = params::workers(&device.geometry());
        for _ in 0..workers {
            let (worker, work_queue) = (worker(&self.counters)?, Arc::clone(&work_queue.0));
            let thread = Builder::new().name("ublk-worker".to_owned()).spawn(move || worker.run(&work_queue));
            self.threads.push(thread.map_err(failed)?);
        }
        let executor = if workers == 0 {
            Executor::Inline(worker(&self.counters)?)
        } else {
            Executor::Workers(Arc::clone(&work_queue.0))
        };
        let (ready, begun) = channel();
        let serve = move || {
            // However this thread ends, the workers end too.
            let _work_queue = work_queue;
            match Queue::new(file.into(), depth, notifier) {
                Ok(mut queue) => queue::serve(&mut queue, depth, &executor, &ready),
                Err(error) => {
                    let _ = ready.send(Err(error));
                }
            }
        };
        let thread = Builder::new().name("ublk-queue".to_owned()).spawn(serve);
        self.threads.push(thread.map_err(failed)?);
        let begun = begun.recv().unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()));
        begun.map_err(|source| UblkError::Queue { source })
    }

    /// Gives it the scheduler that suits a disk; the kernel may be made without.
    fn schedule(&self) {
        let name = self.path.file_name().unwrap_or_default();
        let setting = Path::new("/sys/block").join(name).join("queue/scheduler");
        if let Err(error) = std::fs::write(setting, SCHEDULER) {
            tracing::warn!("{}: cannot set the scheduler {SCHEDULER}: {error}", self.path.display());
        }
    }

    fn join(&mut self) {
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Drop for Ublk {
    fn drop(&mut self) {
        if self.driver.is_gone {
            return;
        }
        if let Err(error) = self.driver.call(ControlCommand::Stop, 0, None) {
            // The threads would wait for ever: they, and the device, end with the process.
            tracing::warn!(%error, "cannot stop a ublk device: it stays until this process ends");
            return;
        }
        self.join();
        if let Err(error) = self.driver.delete() {
            tracing::warn!(%error, "cannot delete a ublk device: its number stays in use");
        }
    }
}

/// Closes the work queue when dropped.
struct CloseOnDrop(Arc<WorkQueue>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// A device as the driver knows it. Its number is given up when it is dropped.
struct Registration {
    control: Control,
    number: u32,
    is_gone: bool,
}

impl Registration {
    /// Makes a device, which no program sees yet. Returns how many requests it has under way at most.
    fn add(mut control: Control, geometry: &Geometry) -> Result<(Registration, u16), UblkError> {
        let wanted = DeviceInfo {
            device: u32::MAX,
            queue_depth: params::queue_depth(geometry),
            dead: true,
            most_bytes: params::MOST_BYTES,
            features: Features::IOCTL_ENCODE | Features::USER_COPY,
            owner: Some(std::process::id()),
        };
        let mut bytes = wanted.encode();
        control.call(ControlCommand::Add, wanted.device, 0, Some(&mut bytes)).map_err(|source| {
            // What the driver of Linux before 6.4 says to numbers that it does not know.
            let old = source.raw_os_error() == Some(Errno::OPNOTSUPP.raw_os_error());
            if old { UblkError::TooOld } else { UblkError::Refused { command: ControlCommand::Add, source } }
        })?;
        let given = DeviceInfo::decode(&bytes);
        let made = Registration { control, number: given.device, is_gone: false };
        if !given.features.contains(wanted.features) || given.most_bytes != wanted.most_bytes {
            return Err(UblkError::TooOld);
        }
        Ok((made, given.queue_depth))
    }

    fn call(
        &mut self,
        command: ControlCommand,
        data: u64,
        payload: Option<&mut [u8; PAYLOAD_BYTES]>,
    ) -> Result<(), UblkError> {
        let called = self.control.call(command, self.number, data, payload);
        called.map_err(|source| UblkError::Refused { command, source })
    }

    /// Deletes the device. A program that still has it open keeps the number in use. Where the driver permits it, no
    /// request waits for that.
    fn delete(&mut self) -> Result<(), UblkError> {
        if !self.is_gone {
            self.is_gone = true;
            self.call(ControlCommand::DeleteLater, 0, None).or_else(|_| self.call(ControlCommand::Delete, 0, None))?;
        }
        Ok(())
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Err(error) = self.delete() {
            tracing::warn!(%error, "cannot delete a ublk device: its number stays in use");
        }
    }
}

/// The way to the driver.
fn control() -> Result<Control, UblkError> {
    let file = OpenOptions::new().read(true).write(true).open("/dev/ublk-control");
    let file = file.map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => UblkError::NoDriver,
        _ => UblkError::Open { path: "/dev/ublk-control".into(), source },
    })?;
    Control::new(file).map_err(|source| UblkError::NoRing { source })
}

fn open(path: &Path, flags: OFlags, access: Access) -> Result<File, UblkError> {
    OpenOptions::new()
        .read(true)
        .write(access == Access::ReadWrite)
        .custom_flags(flags.bits().cast_signed())
        .open(path)
        .map_err(|source| UblkError::Open { path: path.to_owned(), source })
}
