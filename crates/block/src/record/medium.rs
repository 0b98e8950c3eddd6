//! The possible contents of each sector of a device at a moment of a recording.
//!
//! For every run of sectors in question, all versions that it may hold are kept: the settled one, and changes that have
//! begun. A change adds itself when it begins. When it is known to be durable, every version that had ended before it
//! began is dropped. A version that was under way at the same time may have landed before or after it. When one version
//! is left, it is settled, and the run is no longer in question.

use std::collections::BTreeMap;
use std::sync::Arc;

use thiserror::Error;
use umbrella_units::{Lba, SECTOR_BYTES, SectorRange};

use super::overlay::Overlay;
use super::{Action, Change, ChangeNo, CrashPoint, DeviceNo, Event, Outcome, Recording};
use crate::device::{BlockDevice, is_zero};
use crate::error::BlockError;

/// What sectors hold that were discarded. A device may do either, and need not do it before a flush.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Discarded {
    /// What they held before.
    Kept,
    /// Zeroes, durably after the next flush.
    #[default]
    Zeroed,
    /// Either, until they are written again.
    Either,
}

/// A version of a sector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Version {
    /// What was certain before.
    Settled,
    /// What a change wrote.
    Of(ChangeNo),
}

/// A run of sectors that may hold the same versions; two at least.
#[derive(Debug, Clone)]
pub(super) struct Cell {
    pub(super) end: Lba,
    pub(super) versions: Vec<Version>,
    /// Which of them is on the medium if nothing landed that could be missing: the last that became durable.
    pub(super) ground: Version,
}

/// A device that does not hold what it may.
#[derive(Debug, Error)]
pub enum CheckError {
    /// It could not be read.
    #[error(transparent)]
    Read(#[from] BlockError),
    /// It holds something else.
    #[error("{cut}: {} holds none of the versions that it may: {}", SectorRange { start: *sector, sectors: 1 }, allowed.join(", "))]
    Unexpected {
        /// The moment.
        cut: CrashPoint,
        /// The first such sector.
        sector: Lba,
        /// What it may hold.
        allowed: Vec<String>,
    },
}

/// What one device may hold after the events so far.
#[derive(Debug)]
pub struct Medium {
    device: DeviceNo,
    discarded: Discarded,
    settled: Overlay,
    cells: BTreeMap<Lba, Cell>,
    /// Changes that have ended well and that no flush has covered yet.
    unflushed: Vec<ChangeNo>,
    cut: CrashPoint,
}

impl Medium {
    /// At the start of a recording, when the device held what `initial` holds.
    pub fn new(device: DeviceNo, initial: Arc<dyn BlockDevice>, discarded: Discarded) -> Medium {
        Medium {
            device,
            discarded,
            settled: Overlay::new(initial),
            cells: BTreeMap::new(),
            unflushed: Vec::new(),
            cut: CrashPoint(0),
        }
    }

    /// After how many events.
    pub fn cut(&self) -> CrashPoint {
        self.cut
    }

    /// Goes on to a later moment. Returns whether the device may hold something else than before.
    pub fn advance(&mut self, recording: &Recording, to: CrashPoint) -> Result<bool, BlockError> {
        let mut changed = false;
        while self.cut < to
            && let Some(event) = recording.event(self.cut)
        {
            changed |= self.apply(recording, event)?;
            self.cut.0 += 1;
        }
        Ok(changed)
    }

    /// Whether a device holds, everywhere in `range`, what it may.
    pub fn check(&self, recording: &Recording, device: &dyn BlockDevice, range: SectorRange) -> Result<(), CheckError> {
        const AT_ONCE: u64 = 2048;
        let mut buffers = [(); 2].map(|()| vec![0_u8; (AT_ONCE.min(range.sectors) * SECTOR_BYTES) as usize]);
        let mut at = range.start;
        while at < range.end() {
            let part = SectorRange { start: at, sectors: AT_ONCE.min(range.end().0 - at.0) };
            let [found, settled] = buffers.each_mut().map(|buffer| &mut buffer[..part.bytes().0 as usize]);
            device.read(at, found)?;
            self.settled.read(at, settled)?;
            let sectors = found.chunks(SECTOR_BYTES as usize).zip(settled.chunks(SECTOR_BYTES as usize));
            for (index, (found, settled)) in sectors.enumerate() {
                self.check_sector(recording, Lba(at.0 + index as u64), found, settled)?;
            }
            at = part.end();
        }
        Ok(())
    }

    fn check_sector(&self, recording: &Recording, at: Lba, found: &[u8], settled: &[u8]) -> Result<(), CheckError> {
        let cell = self.cells.range(..=at).next_back().filter(|(_, cell)| at < cell.end);
        let versions = cell.map_or(&[Version::Settled][..], |(_, cell)| &cell.versions);
        let sector = SectorRange { start: at, sectors: 1 };
        let allowed = versions.iter().any(|version| match version {
            Version::Settled => found == settled,
            Version::Of(number) => recording
                .change(*number)
                .is_some_and(|change| contents(change, sector).map_or_else(|| is_zero(found), |data| data == found)),
        });
        if allowed {
            return Ok(());
        }
        let allowed = versions.iter().map(|version| match version {
            Version::Settled => "what was there before".to_owned(),
            Version::Of(number) => format!("change {}", number.0),
        });
        Err(CheckError::Unexpected { cut: self.cut, sector: at, allowed: allowed.collect() })
    }

    pub(super) fn settled(&self) -> &Overlay {
        &self.settled
    }

    pub(super) fn cells(&self) -> &BTreeMap<Lba, Cell> {
        &self.cells
    }

    fn apply(&mut self, recording: &Recording, event: Event) -> Result<bool, BlockError> {
        let (Event::Begun(number) | Event::Ended(number)) = event;
        let Some(change) = recording.change(number).filter(|change| change.device == self.device) else {
            return Ok(false);
        };
        match (event, change.ended) {
            (Event::Begun(_), _) => Ok(self.begin(number, change)),
            (Event::Ended(_), Some((_, Outcome::Done))) => self.end(recording, number, change),
            (Event::Ended(_), _) => Ok(false),
        }
    }

    fn begin(&mut self, number: ChangeNo, change: &Change) -> bool {
        let range = change.action.range();
        let kept = matches!(change.action, Action::Discard { .. }) && self.discarded == Discarded::Kept;
        if range.sectors == 0 || kept {
            return false;
        }
        self.split(range.start);
        self.split(range.end());
        let mut at = range.start;
        while at < range.end() {
            let next = self.cells.range(at..range.end()).next().map_or(range.end(), |(start, _)| *start);
            if at < next {
                let ground = Version::Settled;
                self.cells.insert(at, Cell { end: next, versions: vec![ground], ground });
            }
            let Some(cell) = self.cells.get_mut(&at) else { break };
            cell.versions.push(Version::Of(number));
            at = cell.end;
        }
        true
    }

    /// Makes a cell's border where `at` is inside one.
    fn split(&mut self, at: Lba) {
        if let Some((_, cell)) = self.cells.range_mut(..at).next_back()
            && at < cell.end
        {
            let behind = cell.clone();
            cell.end = at;
            self.cells.insert(at, behind);
        }
    }

    fn end(&mut self, recording: &Recording, number: ChangeNo, change: &Change) -> Result<bool, BlockError> {
        if change.action == Action::Flush {
            let (covered, uncovered) = std::mem::take(&mut self.unflushed)
                .into_iter()
                .partition(|earlier| recording.change(*earlier).is_some_and(|earlier| earlier.before(change)));
            self.unflushed = uncovered;
            let covered: Vec<ChangeNo> = covered;
            return covered
                .into_iter()
                .try_fold(false, |changed, earlier| Ok(changed | self.durable(recording, earlier)?));
        }
        if change.action.is_write_through() {
            return self.durable(recording, number);
        }
        if !matches!(change.action, Action::Discard { .. }) || self.discarded == Discarded::Zeroed {
            self.unflushed.push(number);
        }
        Ok(false)
    }

    /// Takes away what lies below a durable change. Where that is not a version any more, something durable lies above
    /// it.
    fn durable(&mut self, recording: &Recording, number: ChangeNo) -> Result<bool, BlockError> {
        let Some(change) = recording.change(number) else { return Ok(false) };
        let range = change.action.range();
        let is_below = |version: &Version| match version {
            Version::Settled => true,
            Version::Of(other) => recording.change(*other).is_some_and(|other| other.before(change)),
        };
        let mut alone = Vec::new();
        let mut changed = false;
        for (&start, cell) in self.cells.range_mut(range.start..range.end()) {
            if !cell.versions.contains(&Version::Of(number)) {
                continue;
            }
            let before = cell.versions.len();
            cell.versions.retain(|version| !is_below(version));
            cell.ground = Version::Of(number);
            changed |= cell.versions.len() < before;
            if cell.versions.len() == 1 {
                alone.push(SectorRange::between(start, cell.end));
            }
        }
        for range in alone {
            self.cells.remove(&range.start);
            apply_to(&self.settled, change, range)?;
        }
        Ok(changed)
    }
}

/// What a change writes to a part of its range; nothing for zeroes.
fn contents(change: &Change, part: SectorRange) -> Option<&[u8]> {
    let Action::Write { at, data, .. } = &change.action else { return None };
    let from = part.start.0.checked_sub(at.0)? * SECTOR_BYTES;
    data.get(from as usize..(from + part.bytes().0) as usize)
}

/// Does what a change does, in a part of its range.
pub(super) fn apply_to(device: &Overlay, change: &Change, part: SectorRange) -> Result<(), BlockError> {
    match contents(change, part) {
        Some(data) => device.put(part.start, data),
        None => device.clear(part),
    }
}
