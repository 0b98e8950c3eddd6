//! An emulated disk: any profile of the model, with its timing in real time, its motor and its power, before a device
//! that holds the data.
//!
//! A call goes to the disk's thread (`worker`), which hands it to the model and answers when the model has done it.
//! Meanwhile the caller moves the data to or from the backing device. So calls are answered in the order and at the
//! time of a disk with a command queue, and the data is where the backing device keeps it.
//!
//! Power cuts are the task of the [`fault`](crate::fault) injector: writes that the model still buffers are already in
//! the backing device, and stay there.
//!
//! Virtual time follows the wall clock at the pace of a [`TimeScale`]. The thread sleeps until the model's next event.
//! When it oversleeps, the model's own times stay exact, and only the answer is late.

mod clock;
mod worker;

#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::{self, JoinHandle};

use umbrella_model::device::profiles::Spec;
use umbrella_model::device::{Device, DeviceStats, Op, Options, Profile};
use umbrella_model::power::{Energy, PowerSpec, PowerState, PowerStats};
use umbrella_units::{ByteSize, Lba, Nanos, SECTOR_BYTES, SectorRange};

use crate::device::{BlockDevice, Durability, Geometry, Zeroes};
use crate::error::{BlockError, Operation};
use crate::spindle::{Power, Spindle};
use clock::Clock;
pub use clock::{BadTimeScale, TimeScale};
use worker::{DiskWorker, PendingRequest, WorkerMessage};

/// Calls worth making to a disk with platters at once; it chooses among them.
const QUEUE_DEPTH: u32 = 32;

/// The longest request to the model, in sectors: 1 GiB. Longer ones are several.
const LONGEST: u64 = (1 << 30) / SECTOR_BYTES;

/// What a disk has done, in its virtual time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Meter {
    /// The virtual time.
    pub now: Nanos,
    /// What the disk does.
    pub state: PowerState,
    /// What its mechanics did.
    pub device: DeviceStats,
    /// How long it was in which state, and how often its motor was switched.
    pub power: PowerStats,
    /// What it takes from its supply in each state.
    pub spec: PowerSpec,
    /// Requests that are done.
    pub served: u64,
    /// From each of them being made to its being done, summed.
    pub waited: Nanos,
}

impl Meter {
    /// What the disk took from its supply.
    pub fn energy(&self) -> Energy {
        self.power.energy(&self.spec)
    }
}

/// A disk that takes its time.
pub struct EmulatedDisk {
    name: Arc<str>,
    geometry: Geometry,
    /// Whether a write completes before it is on the medium.
    write_cache: bool,
    clock: Clock,
    backing: Arc<dyn BlockDevice>,
    orders: Sender<WorkerMessage>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for EmulatedDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmulatedDisk")
            .field("name", &self.name)
            .field("geometry", &self.geometry)
            .finish_non_exhaustive()
    }
}

impl EmulatedDisk {
    /// A disk of this profile, spinning, whose data is in `backing`. It is as large as the smaller of the two.
    pub fn new(
        profile: &Profile,
        options: &Options,
        scale: TimeScale,
        backing: Arc<dyn BlockDevice>,
    ) -> Result<EmulatedDisk, BlockError> {
        let name: Arc<str> = format!("emulated {}", profile.name).into();
        let below = backing.geometry();
        let smaller = options.capacity.map_or(below.size(), |asked| ByteSize(asked.0.min(below.size().0)));
        let whole_blocks = smaller.0 / u64::from(below.logical_block) * u64::from(below.logical_block);
        let device = profile.powered(&Options { capacity: Some(ByteSize(whole_blocks)), ..*options });
        let block_sectors = u64::from(below.logical_block) / SECTOR_BYTES;
        let geometry = Geometry {
            capacity: Lba(device.capacity().0.min(whole_blocks / SECTOR_BYTES) / block_sectors * block_sectors),
            rotational: profile.rotates(),
            queue_depth: if profile.rotates() { QUEUE_DEPTH } else { device.room().clamp(1, 256) as u32 },
            ..below
        };
        let clock = Clock::start(scale);
        let (orders, taken) = channel();
        let thread = thread::Builder::new()
            .name("emulated-disk".to_owned())
            .spawn(move || DiskWorker::new(device).run(clock, &taken))
            .map_err(|error| BlockError::io(&name, Operation::Open, None, error))?;
        let write_cache = match &profile.spec {
            Spec::Disk(spec) | Spec::Raid5 { member: spec, .. } => options.write_cache.unwrap_or(spec.write_cache),
            Spec::Ssd(_) => false,
        };
        Ok(EmulatedDisk { name, geometry, write_cache, clock, backing, orders, thread: Some(thread) })
    }

    /// What it has done so far.
    pub fn meter(&self) -> Result<Meter, BlockError> {
        self.call_worker(Operation::Power, |at, answer| WorkerMessage::Meter { at, answer })
    }

    fn order<T>(
        &self,
        operation: Operation,
        order: impl FnOnce(Nanos, SyncSender<T>) -> WorkerMessage,
    ) -> Result<Receiver<T>, BlockError> {
        let (answer, answered) = sync_channel(1);
        let sent = self.orders.send(order(self.clock.now(), answer));
        sent.map(|()| answered).map_err(|_| self.ended(operation))
    }

    fn call_worker<T>(
        &self,
        operation: Operation,
        order: impl FnOnce(Nanos, SyncSender<T>) -> WorkerMessage,
    ) -> Result<T, BlockError> {
        self.order(operation, order)?.recv().map_err(|_| self.ended(operation))
    }

    /// The thread is gone, which only a defect of the model can have done.
    fn ended(&self, operation: Operation) -> BlockError {
        BlockError::io(&self.name, operation, None, io::Error::other("the disk's thread has ended"))
    }

    /// Takes the model's time for a request, and does the work meanwhile.
    fn time(
        &self,
        (operation, op): (Operation, Op),
        range: SectorRange,
        work: impl FnOnce() -> Result<(), BlockError>,
    ) -> Result<(), BlockError> {
        let request = |start: u64| {
            let (lba, sectors) = (Lba(start), (range.end().0 - start).min(LONGEST) as u32);
            self.order(operation, |at, answer| WorkerMessage::Serve(PendingRequest { at, op, lba, sectors, answer }))
        };
        let first = request(range.start.0)?;
        work()?;
        first.recv().map_err(|_| self.ended(operation))?;
        let mut start = range.start.0.saturating_add(LONGEST);
        while start < range.end().0 {
            request(start)?.recv().map_err(|_| self.ended(operation))?;
            start = start.saturating_add(LONGEST);
        }
        Ok(())
    }

    /// Flushes the device's cache if the write has to be durable.
    fn flush_through(&self, durability: Durability) -> Result<(), BlockError> {
        if durability == Durability::Cached || !self.write_cache {
            return Ok(());
        }
        self.time((Operation::Write, Op::Flush), NOTHING, || Ok(()))
    }
}

/// The range of a request without one.
const NOTHING: SectorRange = SectorRange { start: Lba(0), sectors: 0 };

impl BlockDevice for EmulatedDisk {
    // Questions about the disk's file take no time of the disk.
    crate::forward!(backing: has_extents, first_extent);

    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn read(&self, at: Lba, buffer: &mut [u8]) -> Result<(), BlockError> {
        let range = self.geometry.check(at, buffer.len())?;
        self.time((Operation::Read, Op::Read), range, || self.backing.read(at, buffer))
    }

    fn write(&self, at: Lba, data: &[u8], durability: Durability) -> Result<(), BlockError> {
        let range = self.geometry.check(at, data.len())?;
        self.time((Operation::Write, Op::Write), range, || self.backing.write(at, data, durability))?;
        self.flush_through(durability)
    }

    fn flush(&self) -> Result<(), BlockError> {
        self.time((Operation::Flush, Op::Flush), NOTHING, || self.backing.flush())
    }

    fn discard(&self, range: SectorRange) -> Result<(), BlockError> {
        self.geometry.check_range(range)?;
        self.time((Operation::Discard, Op::Discard), range, || self.backing.discard(range))
    }

    /// Flash forgets the range if it may; a disk with platters always writes.
    fn write_zeroes(&self, range: SectorRange, zeroes: Zeroes, durability: Durability) -> Result<(), BlockError> {
        self.geometry.check_range(range)?;
        let op = if zeroes == Zeroes::Unmap && !self.geometry.rotational { Op::Discard } else { Op::Write };
        self.time((Operation::Write, op), range, || self.backing.write_zeroes(range, zeroes, durability))?;
        self.flush_through(durability)
    }
}

impl Spindle for EmulatedDisk {
    /// Returns when the platters stand still, or when something came in between that needs them.
    fn standby(&self) -> Result<(), BlockError> {
        if !self.geometry.rotational {
            let error = io::Error::new(io::ErrorKind::Unsupported, "it has no motor to switch off");
            return Err(BlockError::io(&self.name, Operation::Power, None, error));
        }
        self.call_worker(Operation::Power, |at, answer| WorkerMessage::Standby { at, answer })
    }

    fn wake(&self) -> Result<(), BlockError> {
        self.call_worker(Operation::Power, |at, answer| WorkerMessage::Wake { at, answer })
    }

    fn power(&self) -> Result<Power, BlockError> {
        Ok(match self.meter()?.state {
            PowerState::Active | PowerState::Idle => Power::Spinning,
            PowerState::Standby => Power::Standby,
            PowerState::SpinningDown | PowerState::SpinningUp => Power::Changing,
        })
    }
}

impl Drop for EmulatedDisk {
    fn drop(&mut self) {
        // No caller can be waiting any more. A thread that has ended already needs no order.
        let _ = self.orders.send(WorkerMessage::Stop);
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!(disk = %self.name, "the thread of an emulated disk panicked");
        }
        if let Err(error) = self.backing.flush() {
            tracing::warn!(disk = %self.name, %error, "cannot flush an emulated disk: its data may not be durable");
        }
    }
}
