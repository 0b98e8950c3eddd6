//! A write cache that forgets when the power is cut.
//!
//! Every version of a sector that was written since it was last on the medium is kept, as a cut may leave any of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use smallvec::SmallVec;
use umbrella_units::{Lba, SECTOR_BYTES, SectorRange, SplitMix64};

use super::plan::Unflushed;
use crate::device::{BlockDevice, Durability, Zeroes};
use crate::error::BlockError;

/// The most that is written to the medium in one call.
const LONGEST_RUN: u64 = 2048;

/// What a write writes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Body<'a> {
    Data(&'a [u8]),
    Zeroes(Zeroes),
}

impl<'a> Body<'a> {
    /// What of a write to `range` is for `part`.
    pub(super) fn part(self, range: SectorRange, part: SectorRange) -> Body<'a> {
        match self {
            Body::Zeroes(zeroes) => Body::Zeroes(zeroes),
            Body::Data(data) => {
                let from = ((part.start.0 - range.start.0) * SECTOR_BYTES) as usize;
                Body::Data(&data[from..from + part.bytes().0 as usize])
            }
        }
    }

    /// Writes it.
    pub(super) fn write_to(
        self,
        device: &impl BlockDevice,
        range: SectorRange,
        durability: Durability,
    ) -> Result<(), BlockError> {
        match self {
            Body::Data(data) => device.write(range.start, data, durability),
            Body::Zeroes(zeroes) => device.write_zeroes(range, zeroes, durability),
        }
    }
}

/// What a write left in one sector.
#[derive(Debug, Clone)]
struct SectorVersion {
    write: u64,
    contents: SectorContents,
}

#[derive(Debug, Clone)]
enum SectorContents {
    /// The bytes of the whole write, and where in them the sector begins.
    Data(Arc<[u8]>, usize),
    Zeroes(Zeroes),
}

impl SectorContents {
    fn data(&self) -> Option<&[u8]> {
        match self {
            SectorContents::Data(bytes, from) => bytes.get(*from..*from + SECTOR_BYTES as usize),
            SectorContents::Zeroes(_) => None,
        }
    }
}

/// Writes that are not on the medium.
#[derive(Debug, Default)]
pub(super) struct VolatileWrites {
    /// By sector, oldest first.
    versions: BTreeMap<u64, SmallVec<[SectorVersion; 1]>>,
    writes: u64,
}

impl VolatileWrites {
    /// Stores a write in the cache.
    pub(super) fn store_write(&mut self, range: SectorRange, body: Body<'_>) {
        self.writes += 1;
        let write = self.writes;
        let bytes: Arc<[u8]> = match body {
            Body::Data(data) => Arc::from(data),
            Body::Zeroes(_) => Arc::default(),
        };
        for index in 0..range.sectors {
            let contents = match body {
                Body::Data(_) => SectorContents::Data(Arc::clone(&bytes), (index * SECTOR_BYTES) as usize),
                Body::Zeroes(zeroes) => SectorContents::Zeroes(zeroes),
            };
            self.versions.entry(range.start.0 + index).or_default().push(SectorVersion { write, contents });
        }
    }

    /// Forgets what is below something that went to the medium directly.
    pub(super) fn forget(&mut self, range: SectorRange) {
        for sector in range.start.0..range.end().0 {
            self.versions.remove(&sector);
        }
    }

    /// Puts what it holds over what the medium gave.
    pub(super) fn show(&self, range: SectorRange, buffer: &mut [u8]) {
        for (sector, versions) in self.versions.range(range.start.0..range.end().0) {
            let from = ((sector - range.start.0) * SECTOR_BYTES) as usize;
            let target = &mut buffer[from..from + SECTOR_BYTES as usize];
            match versions.last().map(|version| version.contents.data()) {
                Some(Some(data)) => target.copy_from_slice(data),
                Some(None) => target.fill(0),
                None => {}
            }
        }
    }

    /// Writes the newest version of everything to the medium and forgets it.
    pub(super) fn write_back(&mut self, medium: &impl BlockDevice) -> Result<(), BlockError> {
        let newest = self.versions.iter().filter_map(|(sector, versions)| Some((*sector, versions.last()?)));
        write_all(medium, newest)?;
        self.versions.clear();
        Ok(())
    }

    /// The power is cut: leaves on the medium what is to land, and forgets everything. Blocks of `block_sectors`
    /// sectors stay whole.
    pub(super) fn lose(
        &mut self,
        medium: &impl BlockDevice,
        unflushed: Unflushed,
        block_sectors: u64,
        random: &mut SplitMix64,
    ) -> Result<(), BlockError> {
        match unflushed {
            Unflushed::Kept => return self.write_back(medium),
            Unflushed::Dropped => {}
            Unflushed::Torn => {
                let landed = self.torn(block_sectors, random);
                let left = self.versions.iter().filter_map(|(sector, versions)| {
                    let seen = |version: &&SectorVersion| landed.contains(&(version.write, sector / block_sectors));
                    Some((*sector, versions.iter().rev().find(seen)?))
                });
                write_all(medium, left)?;
            }
        }
        self.versions.clear();
        Ok(())
    }

    /// The blocks of each write that land.
    fn torn(&self, block_sectors: u64, random: &mut SplitMix64) -> BTreeSet<(u64, u64)> {
        let blocks: BTreeSet<(u64, u64)> = self
            .versions
            .iter()
            .flat_map(|(sector, versions)| versions.iter().map(move |version| (version.write, sector / block_sectors)))
            .collect();
        let mut landed = BTreeSet::new();
        let mut fate = (0, 0);
        for block in blocks {
            if fate.0 != block.0 {
                fate = (block.0, random.below(3));
            }
            let lands = match fate.1 {
                0 => false,
                1 => true,
                _ => random.random_bool(),
            };
            if lands {
                landed.insert(block);
            }
        }
        landed
    }
}

/// Writes sectors, neighbours of one kind in one call.
fn write_all<'a>(
    medium: &impl BlockDevice,
    sectors: impl Iterator<Item = (u64, &'a SectorVersion)>,
) -> Result<(), BlockError> {
    let mut data: Vec<u8> = Vec::new();
    let mut run: Option<(SectorRange, Option<Zeroes>)> = None;
    let write = |run: Option<(SectorRange, Option<Zeroes>)>, data: &mut Vec<u8>| {
        let Some((range, kind)) = run else { return Ok(()) };
        let written = kind.map_or(Body::Data(data), Body::Zeroes).write_to(medium, range, Durability::Cached);
        data.clear();
        written
    };
    for (sector, version) in sectors {
        let kind = match version.contents {
            SectorContents::Data(..) => None,
            SectorContents::Zeroes(zeroes) => Some(zeroes),
        };
        match &mut run {
            Some((range, same)) if range.end().0 == sector && *same == kind && range.sectors < LONGEST_RUN => {
                range.sectors += 1;
            }
            _ => {
                write(run.take(), &mut data)?;
                run = Some((SectorRange { start: Lba(sector), sectors: 1 }, kind));
            }
        }
        data.extend_from_slice(version.contents.data().unwrap_or_default());
    }
    write(run, &mut data)
}
