//! Devices that serve requests in virtual time. A device is driven by its own next moment: submit requests, ask when
//! something will happen, advance to that time, collect what completed.

use umbrella_units::{Lba, Nanos};

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

/// A request that is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// Which one.
    pub id: RequestId,
    /// When it was done.
    pub at: Nanos,
}

/// Something that serves requests in virtual time.
pub trait Device {
    /// How many more requests it takes now; a submitter never exceeds it.
    fn room(&self) -> usize;

    /// Hands a request over at `now`, which never goes back.
    fn submit(&mut self, now: Nanos, request: Request);

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
