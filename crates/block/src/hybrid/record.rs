//! A record of the log that is still needed.

use umbrella_policy::flash_cache::LogSector;

use super::format::{Epoch, RecordNo};

/// A record of the log.
#[derive(Debug, Clone, Copy)]
pub(super) struct Record {
    pub(super) begin: LogSector,
    pub(super) end: LogSector,
    pub(super) sequence: RecordNo,
    pub(super) epoch: Epoch,
}
