//! Which ranges read as zeroes: what the log has as zeroes, and what neither the log nor the disk's file has as data.
//! Wakes no disk.

use umbrella_policy::flash_cache::Source;
use umbrella_units::SectorRange;

use super::engine::Hybrid;
use crate::device::{Allocation, BlockDevice};
use crate::error::BlockError;

impl Hybrid {
    /// As [`BlockDevice::first_extent`].
    ///
    /// The log is looked at first: what is brought from it to the disk meanwhile counts as data by then.
    pub(super) fn extent(&self, range: SectorRange) -> Result<(SectorRange, Allocation), BlockError> {
        self.geometry().check_range(range)?;
        let (piece, lost) = {
            let state = self.shared.state.lock();
            (state.log.map().pieces(range).next(), state.lost.first_in(range))
        };
        // A read of lost sectors must return the error.
        let range = match lost {
            Some(lost) if lost.start == range.start => return Ok((lost, Allocation::Data)),
            Some(lost) => SectorRange::between(range.start, lost.start),
            None => range,
        };
        let Some(piece) = piece.filter(|piece| piece.range.start < range.end()) else {
            return self.shared.disk.device.first_extent(range);
        };
        if piece.range.start > range.start {
            return self.shared.disk.device.first_extent(SectorRange::between(range.start, piece.range.start));
        }
        let allocation = match piece.source {
            Source::Log(_) => Allocation::Data,
            Source::Zeroes(_) => Allocation::Hole,
        };
        Ok((piece.range.intersection(range), allocation))
    }
}
