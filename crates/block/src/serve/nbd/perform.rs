//! Requests to calls of the device.

use umbrella_units::{Lba, SECTOR_BYTES, SectorRange};

use super::errors::error_code;
use super::negotiate::Session;
use super::wire::reply::{ErrorCode, Status};
use super::wire::request::{Command, Request};
use super::wire::{CommandFlags, MAX_TRANSFER};
use crate::device::{Allocation, BlockDevice, Durability, Zeroes};
use crate::error::BlockError;

/// The most extents in one answer.
const MAX_EXTENTS: usize = 1024;

/// What came of a request that is not a read.
#[derive(Debug)]
pub(super) enum RequestOutcome {
    Done,
    Extents(Vec<(u32, Status)>),
    Failed(ErrorCode),
}

impl Session<'_> {
    /// The sectors that a request means, if it may be carried out.
    pub(super) fn check(&self, request: &Request) -> Result<SectorRange, ErrorCode> {
        let export = self.export;
        let known = CommandFlags::FUA
            | match request.command {
                Command::Read if self.structured => CommandFlags::DF,
                Command::WriteZeroes => CommandFlags::NO_HOLE | CommandFlags::FAST_ZERO,
                Command::BlockStatus => CommandFlags::REQ_ONE,
                _ => CommandFlags::empty(),
            };
        let changes = matches!(request.command, Command::Write | Command::Trim | Command::WriteZeroes);
        if changes && export.is_read_only() {
            return Err(ErrorCode::Perm);
        }
        if !known.contains(request.flags) {
            return Err(ErrorCode::Invalid);
        }
        match request.command {
            Command::Unknown(_) | Command::Disconnect => return Err(ErrorCode::Invalid),
            Command::Cache if export.file().is_none() => return Err(ErrorCode::Invalid),
            Command::BlockStatus if !self.allocation || request.length == 0 => return Err(ErrorCode::Invalid),
            Command::Read if request.length > MAX_TRANSFER => {
                let whole = request.flags.contains(CommandFlags::DF);
                return Err(if whole { ErrorCode::Overflow } else { ErrorCode::Invalid });
            }
            Command::Flush if request.offset.0 != 0 || request.length != 0 => return Err(ErrorCode::Invalid),
            _ => {}
        }
        let geometry = export.device().geometry();
        let (first, bytes) = (request.offset.0, u64::from(request.length));
        if first.checked_add(bytes).is_none_or(|end| end > geometry.size().0) {
            let grows = matches!(request.command, Command::Write | Command::WriteZeroes);
            return Err(if grows { ErrorCode::NoSpace } else { ErrorCode::Invalid });
        }
        let block = u64::from(geometry.logical_block);
        if !first.is_multiple_of(block) || !bytes.is_multiple_of(block) {
            return Err(ErrorCode::Invalid);
        }
        Ok(SectorRange { start: Lba(first / SECTOR_BYTES), sectors: bytes / SECTOR_BYTES })
    }

    /// Carries out anything but a read.
    pub(super) fn perform(&self, request: &Request, range: SectorRange, payload: &[u8]) -> RequestOutcome {
        let device = self.export.device();
        let durability =
            if request.flags.contains(CommandFlags::FUA) { Durability::Through } else { Durability::Cached };
        if range.sectors == 0 && request.command != Command::Flush {
            return RequestOutcome::Done;
        }
        let done = match request.command {
            // Never less than the request says: what is missing would count as written.
            Command::Write if payload.len() as u64 != range.bytes().0 => return RequestOutcome::Failed(ErrorCode::Io),
            Command::Write => device.write(range.start, payload, durability),
            Command::Flush => device.flush(),
            Command::Trim => device.discard(range).and_then(|()| match durability {
                Durability::Through => device.flush(),
                Durability::Cached => Ok(()),
            }),
            Command::WriteZeroes => return self.zero(request, range, durability),
            Command::Cache => self.export.file().map_or(Ok(()), |file| file.prefetch(range)),
            Command::BlockStatus => return self.status(request, range),
            Command::Read | Command::Disconnect | Command::Unknown(_) => {
                return RequestOutcome::Failed(ErrorCode::Invalid);
            }
        };
        done.map_or_else(|error| RequestOutcome::Failed(self.failed(&error)), |()| RequestOutcome::Done)
    }

    /// Logs an error of the device, and returns the code for the client.
    pub(super) fn failed(&self, error: &BlockError) -> ErrorCode {
        if let Some(suppressed) = self.export.failures.admit_report() {
            tracing::warn!(export = self.export.name(), %error, suppressed, "a request failed");
        }
        error_code(error)
    }

    fn zero(&self, request: &Request, range: SectorRange, durability: Durability) -> RequestOutcome {
        let device = self.export.device();
        let zeroes = if request.flags.contains(CommandFlags::NO_HOLE) { Zeroes::Keep } else { Zeroes::Unmap };
        let zeroed = if request.flags.contains(CommandFlags::FAST_ZERO) {
            match self.export.file().map_or(Ok(false), |file| file.zero_quickly(range, zeroes)) {
                Ok(false) => return RequestOutcome::Failed(ErrorCode::NotSupported),
                Ok(true) if durability == Durability::Through => device.flush(),
                Ok(true) => Ok(()),
                Err(error) => Err(error),
            }
        } else {
            device.write_zeroes(range, zeroes, durability)
        };
        zeroed.map_or_else(|error| RequestOutcome::Failed(self.failed(&error)), |()| RequestOutcome::Done)
    }

    /// The extents of a range, from its beginning on, as many as one answer holds.
    fn status(&self, request: &Request, range: SectorRange) -> RequestOutcome {
        let most = if request.flags.contains(CommandFlags::REQ_ONE) { 1 } else { MAX_EXTENTS };
        match extents(self.export.device(), range, most) {
            Ok(extents) => RequestOutcome::Extents(extents),
            Err(error) => RequestOutcome::Failed(self.failed(&error)),
        }
    }
}

/// The extents of a range from its beginning on, no two alike in a row, `most` at most.
fn extents(device: &dyn BlockDevice, range: SectorRange, most: usize) -> Result<Vec<(u32, Status)>, BlockError> {
    let (mut found, mut rest): (Vec<(u32, Status)>, _) = (Vec::new(), range);
    while rest.sectors > 0 {
        let is_full = found.len() == most;
        let (extent, allocation) = device.first_extent(rest)?;
        let status = match allocation {
            Allocation::Data => Status::Data,
            Allocation::Hole => Status::Hole,
        };
        // Never more than was asked for, which is a u32.
        let bytes = extent.bytes().0 as u32;
        match found.last_mut() {
            Some((length, last)) if *last == status => *length += bytes,
            _ if is_full => break,
            _ => found.push((bytes, status)),
        }
        rest = SectorRange::between(extent.end(), rest.end());
    }
    Ok(found)
}
