//! Records every write and flush in order, and makes the states that a power cut can leave.
//!
//! A [`Recorder`] sits in front of a device and notes in a [`Journal`] when each change began and when it ended.
//! Several recorders may share a journal, which gives the changes of several devices one order: for instance a hybrid
//! disk's two halves, and the hybrid disk itself above them. From a [`Recording`] follow
//!
//! 1. the possible contents of each sector at any moment ([`Medium`]), and so what a device must and must not hold
//!    after a power cut;
//! 2. the states themselves, as devices to open ([`CrashStates`]).
//!
//! The rules are those of [`BlockDevice`]. A write is durable when it was made with [`Durability::Through`] and has
//! returned, or when a flush that began after it returned has returned. Any other write that has begun may be on the
//! medium, wholly, in part or not at all, independently of the writes before it.

mod medium;
mod overlay;
mod states;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use umbrella_units::{Lba, SECTOR_BYTES, SectorRange};

use crate::device::{BlockDevice, Durability, Zeroes};
use crate::error::BlockError;

pub use medium::{CheckError, Discarded, Medium};
pub use overlay::Overlay;
pub use states::{Bounds, CrashState, CrashStates, States, Step};

/// Which of the devices that share a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceNo(pub u16);

/// A moment, as the number of events that have happened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CrashPoint(pub usize);

impl fmt::Display for CrashPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "power cut after event {}", self.0)
    }
}

/// A change, by its place in the order in which they began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChangeNo(pub usize);

/// What was asked of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Data, from sector `at` on.
    Write {
        /// The first sector.
        at: Lba,
        /// Whole sectors.
        data: Arc<[u8]>,
        /// What must be true when it returns.
        durability: Durability,
    },
    /// Zeroes.
    Zeroes {
        /// Where.
        range: SectorRange,
        /// What must be true when it returns.
        durability: Durability,
    },
    /// Sectors whose contents are not needed any more.
    Discard {
        /// Where.
        range: SectorRange,
    },
    /// What was written before is to be durable.
    Flush,
}

impl Action {
    /// The sectors that it changes; none for a flush.
    pub fn range(&self) -> SectorRange {
        match self {
            Action::Write { at, data, .. } => SectorRange { start: *at, sectors: data.len() as u64 / SECTOR_BYTES },
            Action::Zeroes { range, .. } | Action::Discard { range } => *range,
            Action::Flush => SectorRange { start: Lba(0), sectors: 0 },
        }
    }

    /// Whether it is durable as soon as it has returned.
    pub fn is_write_through(&self) -> bool {
        matches!(
            self,
            Action::Write { durability: Durability::Through, .. }
                | Action::Zeroes { durability: Durability::Through, .. }
        )
    }
}

/// How a change ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Without an error.
    Done,
    /// With an error: it may have happened, in part, or not. A flush that failed makes nothing durable.
    Failed,
}

/// A change, and when it was under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The device.
    pub device: DeviceNo,
    /// What it is.
    pub action: Action,
    /// The moment just before it began.
    pub begun: CrashPoint,
    /// The moment just before it ended, and how it did; nothing while it is under way.
    pub ended: Option<(CrashPoint, Outcome)>,
}

impl Change {
    /// Whether it had ended when `other` began.
    pub fn before(&self, other: &Change) -> bool {
        self.ended.is_some_and(|(ended, _)| ended < other.begun)
    }
}

/// Something that happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A change began.
    Begun(ChangeNo),
    /// A change ended.
    Ended(ChangeNo),
}

/// What happened to some devices, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recording {
    changes: Vec<Change>,
    events: Vec<Event>,
}

impl Recording {
    /// The moment after all that happened so far.
    pub fn now(&self) -> CrashPoint {
        CrashPoint(self.events.len())
    }

    /// What happens at a moment; nothing at the end.
    pub fn event(&self, at: CrashPoint) -> Option<Event> {
        self.events.get(at.0).copied()
    }

    /// The change of that number, if there is one.
    pub fn change(&self, number: ChangeNo) -> Option<&Change> {
        self.changes.get(number.0)
    }

    /// All changes, in the order in which they began.
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// Notes that a change begins.
    pub fn begin(&mut self, device: DeviceNo, action: Action) -> ChangeNo {
        let number = ChangeNo(self.changes.len());
        self.changes.push(Change { device, action, begun: self.now(), ended: None });
        self.events.push(Event::Begun(number));
        number
    }

    /// Notes that a change ends. Only its first end counts.
    pub fn end(&mut self, number: ChangeNo, outcome: Outcome) {
        let now = self.now();
        if let Some(change) = self.changes.get_mut(number.0).filter(|change| change.ended.is_none()) {
            change.ended = Some((now, outcome));
            self.events.push(Event::Ended(number));
        }
    }
}

/// A recording under way, for any number of devices and threads.
#[derive(Debug, Default)]
pub struct Journal {
    recording: Mutex<Recording>,
}

impl Journal {
    /// An empty one, to be shared by recorders.
    pub fn new() -> Arc<Journal> {
        Arc::default()
    }

    /// The moment after all that happened so far.
    pub fn now(&self) -> CrashPoint {
        self.recording.lock().now()
    }

    /// What happened so far. The data is shared, not copied.
    pub fn recording(&self) -> Recording {
        self.recording.lock().clone()
    }
}

/// Passes everything on to a device, and notes every change.
#[derive(Debug)]
pub struct Recorder<D> {
    inner: D,
    device: DeviceNo,
    journal: Arc<Journal>,
}

impl<D: BlockDevice> Recorder<D> {
    /// Records what happens to `inner` as that of `device`.
    pub fn new(inner: D, device: DeviceNo, journal: Arc<Journal>) -> Recorder<D> {
        Recorder { inner, device, journal }
    }

    /// The device behind it.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    fn noted(&self, action: Action, call: impl FnOnce(&D) -> Result<(), BlockError>) -> Result<(), BlockError> {
        let number = self.journal.recording.lock().begin(self.device, action);
        let result = call(&self.inner);
        let outcome = if result.is_ok() { Outcome::Done } else { Outcome::Failed };
        self.journal.recording.lock().end(number, outcome);
        result
    }
}

impl<D: BlockDevice> BlockDevice for Recorder<D> {
    crate::forward!(inner: geometry, refresh, read);

    fn write(&self, at: Lba, data: &[u8], durability: Durability) -> Result<(), BlockError> {
        self.geometry().check(at, data.len())?;
        let action = Action::Write { at, data: Arc::from(data), durability };
        self.noted(action, |inner| inner.write(at, data, durability))
    }

    fn flush(&self) -> Result<(), BlockError> {
        self.noted(Action::Flush, BlockDevice::flush)
    }

    fn discard(&self, range: SectorRange) -> Result<(), BlockError> {
        self.geometry().check_range(range)?;
        self.noted(Action::Discard { range }, |inner| inner.discard(range))
    }

    fn write_zeroes(&self, range: SectorRange, zeroes: Zeroes, durability: Durability) -> Result<(), BlockError> {
        self.geometry().check_range(range)?;
        self.noted(Action::Zeroes { range, durability }, |inner| inner.write_zeroes(range, zeroes, durability))
    }
}
