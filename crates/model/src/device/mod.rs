//! Devices that serve requests in virtual time. A device is driven by its own next moment: submit requests, ask when
//! something will happen, advance to that time, collect what completed.

pub mod disk;
mod part;
pub mod profiles;
pub mod raid5;
pub mod ssd;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use thiserror::Error;
use umbrella_units::{Lba, Nanos};

pub use part::LinearDevice;
pub use profiles::{Options, Profile, UnknownProfile, profile};

/// What a request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Op {
    /// Brings sectors in.
    Read,
    /// Takes sectors out.
    Write,
    /// Makes what was written before it durable; its range means nothing.
    Flush,
    /// Forgets sectors.
    Discard,
}

/// A request's name; the submitter's own number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// One request to a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Whose it is; comes back with its completion.
    pub id: RequestId,
    /// What it does.
    pub op: Op,
    /// The first sector.
    pub lba: Lba,
    /// How many sectors.
    pub sectors: u32,
}

impl Request {
    /// Its first sector and the one behind its last, as far as the device has them: nothing beyond `capacity` is
    /// transferred.
    #[inline]
    pub fn clamped(&self, capacity: Lba) -> (u64, u64) {
        let start = self.lba.0.min(capacity.0);
        (start, start.saturating_add(u64::from(self.sectors)).min(capacity.0))
    }
}

/// A request that a device cannot take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum SubmitError {
    /// It has no place for another one now.
    #[error("the device has no room for another request; wait for a completion")]
    Full,
    /// Part of it lies beyond the end.
    #[error("sectors {first} to {last} exceed a device of {capacity} sectors", first = lba.0,
        last = lba.0.saturating_add(u64::from(*sectors)).saturating_sub(1), capacity = capacity.0)]
    BeyondEnd {
        /// Its first sector.
        lba: Lba,
        /// How many sectors.
        sectors: u32,
        /// How many sectors the device has.
        capacity: Lba,
    },
}

/// A request that is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// Which one.
    pub id: RequestId,
    /// When it was done.
    pub at: Nanos,
}

/// A device that serves requests in virtual time.
///
/// No input makes it panic: sectors beyond its end are not transferred, and requests beyond its room wait. A `now` that
/// goes back counts as the latest time that it was given. Each request completes exactly once.
pub trait Device {
    /// How many more requests it takes now; a submitter never exceeds it.
    fn room(&self) -> usize;

    /// Hands a request over at `now`, which never goes back.
    fn submit(&mut self, now: Nanos, request: Request);

    /// The same for requests from outside: takes it only if there is room and all its sectors exist.
    fn try_submit(&mut self, now: Nanos, request: Request) -> Result<(), SubmitError> {
        let (Request { lba, sectors, .. }, capacity) = (request, self.capacity());
        let ranged = matches!(request.op, Op::Read | Op::Write | Op::Discard);
        if ranged && lba.0.checked_add(u64::from(sectors)).is_none_or(|end| end > capacity.0) {
            return Err(SubmitError::BeyondEnd { lba, sectors, capacity });
        }
        if self.room() == 0 {
            return Err(SubmitError::Full);
        }
        self.submit(now, request);
        Ok(())
    }

    /// When it next has something to say; `None` while idle.
    fn next_event(&self) -> Option<Nanos>;

    /// Works up to and including `now`; adds what completed to `done`, in order of completion.
    fn advance(&mut self, now: Nanos, done: &mut Vec<Completion>);

    /// How many sectors it has.
    fn capacity(&self) -> Lba;

    /// What it did so far.
    fn stats(&self) -> DeviceStats;
}

/// What a device did, summed over its life.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct DeviceStats {
    /// Requests that read.
    pub reads: u64,
    /// Requests that wrote.
    pub writes: u64,
    /// Sectors read.
    pub sectors_read: u64,
    /// Sectors written.
    pub sectors_written: u64,
    /// Time in which it served anything, in nanoseconds.
    pub busy: Nanos,
    /// Cylinders that the heads travelled (rotating disks).
    pub seek_cylinders: u64,
    /// Positioning operations that moved the heads (rotating disks).
    pub seeks: u64,
    /// Erase operations (flash).
    pub erases: u64,
    /// Writes that began in another boundary window than the write before them (flash; 1 MB windows).
    pub boundary_crossings: u64,
    /// Pages that garbage collection copied (flash).
    pub pages_copied: u64,
}
