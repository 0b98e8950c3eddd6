//! What tests see of a run: which data goes where.

use umbrella_policy::flash_cache::{DiskWrite, FlushChunk, Log, LogSector};
use umbrella_units::SectorRange;

/// Sees where the data of every write goes, in the order in which the devices take it.
pub(super) trait Probe {
    /// A write goes to the log; its data lies at `at`.
    fn logged(&mut self, _range: SectorRange, _at: LogSector) {}

    /// A write goes to the disk.
    fn direct(&mut self, _range: SectorRange) {}

    /// A write of a flush begins.
    fn drains(&mut self, _chunk: &FlushChunk, _write: &DiskWrite) {}

    /// A flush has ended, and the log has forgotten what was flushed.
    fn released(&mut self, _log: &Log) {}
}

/// Nobody looks.
impl Probe for () {}
