//! The states that a power cut can leave behind, over all devices of a recording.
//!
//! Settled sectors are the same in all of them. Sectors in question ([`Medium`]) take every content that some of the
//! changes in question can leave, in some order, each landing whole or in part. A logical block is new or old, nothing
//! between. The states at one moment are:
//!
//! 1. With up to [`Bounds::whole`] changes in question: every subset of them in every order that makes a difference.
//!    With more: none, each alone, the first n for every n, and all but one.
//! 2. For each subset, one of its changes cut at each border between two blocks, its first or its last part landing. If
//!    there are more than [`Bounds::torn`] such states, the seed draws that many.
//! 3. [`Bounds::sampled`] more, drawn by the seed: any subset in any order, each change whole, cut, or with any of its
//!    blocks landing.
//!
//! No state is made twice at one moment.

use std::fmt;
use std::sync::Arc;

use rustc_hash::FxHashSet;
use umbrella_units::{Lba, SECTOR_BYTES, SectorRange, SplitMix64};

use super::medium::{Discarded, Medium, Version, apply_to};
use super::overlay::Overlay;
use super::{ChangeNo, CrashPoint, DeviceNo, Recording};
use crate::device::BlockDevice;
use crate::error::BlockError;

/// How many states to make at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Up to this many changes in question, all their subsets and orders are made; at most 7 (13,700 states).
    pub whole: usize,
    /// The most states with one change cut in two.
    pub torn: usize,
    /// Number of further states that the seed draws.
    pub sampled: usize,
    /// Seed of the draws.
    pub seed: u64,
    /// The contents of discarded sectors after a flush.
    pub discarded: Discarded,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds { whole: 5, torn: 500, sampled: 100, seed: 1, discarded: Discarded::Zeroed }
    }
}

/// What [`CrashStates::advance`] came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A moment whose states are those of the one before.
    Same,
    /// A moment with other states.
    Changed,
    /// The recording is over.
    End,
}

/// Walks a recording, event by event, and makes the states that a power cut could leave at each.
#[derive(Debug)]
pub struct CrashStates {
    recording: Recording,
    media: Vec<Medium>,
    cut: CrashPoint,
    bounds: Bounds,
}

impl CrashStates {
    /// Stands before the first event. `devices` are those whose states are made, in the order in which
    /// [`CrashState::devices`] gives them, and what each held when the recording began; that must not change any more.
    pub fn new(
        recording: Recording,
        devices: impl IntoIterator<Item = (DeviceNo, Arc<dyn BlockDevice>)>,
        bounds: Bounds,
    ) -> CrashStates {
        let media = devices.into_iter().map(|(number, initial)| Medium::new(number, initial, bounds.discarded));
        CrashStates { recording, media: media.collect(), cut: CrashPoint(0), bounds }
    }

    /// After how many events it stands.
    pub fn cut(&self) -> CrashPoint {
        self.cut
    }

    /// Goes on by one event.
    pub fn advance(&mut self) -> Result<Step, BlockError> {
        if self.cut == self.recording.now() {
            return Ok(Step::End);
        }
        self.cut.0 += 1;
        let mut step = Step::Same;
        for medium in &mut self.media {
            if medium.advance(&self.recording, self.cut)? {
                step = Step::Changed;
            }
        }
        Ok(step)
    }

    /// The states at this moment.
    pub fn states(&self) -> States<'_> {
        let question = Question::new(&self.recording, &self.media);
        let random = SplitMix64::stream(self.bounds.seed, self.cut.0 as u64);
        let mut drawing = Drawing { question, seen: FxHashSet::default(), contents_found: Vec::new(), random };
        drawing.whole(self.bounds.whole.min(7));
        drawing.torn(self.bounds.torn);
        drawing.sampled(self.bounds.sampled);
        let Drawing { question, contents_found, .. } = drawing;
        States { walk: self, cells: question.cells, contents_found: contents_found.into_iter() }
    }
}

/// What is left on the devices.
#[derive(Debug)]
pub struct CrashState {
    /// When the power was cut.
    pub cut: CrashPoint,
    /// What each device holds.
    pub devices: Vec<Overlay>,
    /// What the sectors in question hold; by device, in order of address.
    landed: Vec<(usize, SectorRange, Version)>,
}

impl fmt::Display for CrashState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.cut)?;
        for (device, range, version) in &self.landed {
            match version {
                Version::Settled => write!(f, "; device {device}, {range}: as before")?,
                Version::Of(number) => write!(f, "; device {device}, {range}: change {}", number.0)?,
            }
        }
        Ok(())
    }
}

/// The states at one moment, made one by one.
#[derive(Debug)]
pub struct States<'a> {
    walk: &'a CrashStates,
    cells: Vec<UncertainCell>,
    contents_found: std::vec::IntoIter<CellContents>,
}

impl Iterator for States<'_> {
    type Item = Result<CrashState, BlockError>;

    fn next(&mut self) -> Option<Self::Item> {
        let contents = self.contents_found.next()?;
        Some(self.make(&contents))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.contents_found.size_hint()
    }
}

impl ExactSizeIterator for States<'_> {}

impl States<'_> {
    fn make(&self, contents: &CellContents) -> Result<CrashState, BlockError> {
        let devices: Vec<Overlay> = self.walk.media.iter().map(|medium| medium.settled().fork()).collect();
        let mut landed = Vec::new();
        for (cell, runs) in self.cells.iter().zip(contents) {
            let mut start = cell.range.start;
            for run in runs {
                let range = SectorRange::between(start, run.end);
                start = run.end;
                landed.push((cell.medium, range, run.version));
                if let Version::Of(number) = run.version
                    && let Some(change) = self.walk.recording.change(number)
                    && let Some(device) = devices.get(cell.medium)
                {
                    apply_to(device, change, range)?;
                }
            }
        }
        Ok(CrashState { cut: self.walk.cut, devices, landed })
    }
}

/// For each cell, what its sectors hold. Neighbouring runs differ, so that two equal states compare as equal.
type CellContents = Vec<Vec<VersionRun>>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct VersionRun {
    end: Lba,
    version: Version,
}

#[derive(Debug)]
struct UncertainCell {
    medium: usize,
    range: SectorRange,
    versions: Vec<Version>,
    ground: Version,
}

/// A change that may or may not have landed.
#[derive(Debug)]
struct UnsettledChange {
    number: ChangeNo,
    range: SectorRange,
    /// Sectors of a logical block: what is never torn.
    block_sectors: u64,
    /// Where it might be seen.
    cells: Vec<usize>,
}

impl UnsettledChange {
    fn blocks(&self) -> u64 {
        self.range.sectors.div_ceil(self.block_sectors)
    }

    /// Some of its blocks, counted from its start.
    fn part(&self, blocks: std::ops::Range<u64>) -> SectorRange {
        let at = |block: u64| Lba(self.range.start.0 + (block * self.block_sectors).min(self.range.sectors));
        SectorRange::between(at(blocks.start), at(blocks.end))
    }
}

/// A part of a loose change that lands.
#[derive(Debug, Clone, Copy)]
struct PartialWrite {
    loose: usize,
    range: SectorRange,
}

/// All that is in question at one moment.
#[derive(Debug)]
struct Question {
    cells: Vec<UncertainCell>,
    loose: Vec<UnsettledChange>,
}

impl Question {
    fn new(recording: &Recording, media: &[Medium]) -> Question {
        let mut cells = Vec::new();
        let mut loose: Vec<UnsettledChange> = Vec::new();
        for (number, medium) in media.iter().enumerate() {
            for (&start, cell) in medium.cells() {
                let range = SectorRange::between(start, cell.end);
                cells.push(UncertainCell {
                    medium: number,
                    range,
                    versions: cell.versions.clone(),
                    ground: cell.ground,
                });
            }
        }
        for (index, cell) in cells.iter().enumerate() {
            for version in &cell.versions {
                let Version::Of(number) = *version else { continue };
                if let Some(known) = loose.iter_mut().find(|loose| loose.number == number) {
                    known.cells.push(index);
                } else if let (Some(change), Some(medium)) = (recording.change(number), media.get(cell.medium)) {
                    let block_sectors = u64::from(medium.settled().geometry().logical_block) / SECTOR_BYTES;
                    loose.push(UnsettledChange {
                        number,
                        range: change.action.range(),
                        block_sectors: block_sectors.max(1),
                        cells: vec![index],
                    });
                }
            }
        }
        loose.sort_by_key(|loose| loose.number);
        Question { cells, loose }
    }

    /// What is seen after the writes, one over the other.
    fn contents_after(&self, writes: &[PartialWrite]) -> CellContents {
        let ground = |cell: &UncertainCell| vec![VersionRun { end: cell.range.end(), version: cell.ground }];
        let mut contents: CellContents = self.cells.iter().map(ground).collect();
        for write in writes {
            let Some(loose) = self.loose.get(write.loose) else { continue };
            for &index in &loose.cells {
                if let (Some(cell), Some(runs)) = (self.cells.get(index), contents.get_mut(index)) {
                    let part = write.range.intersection(cell.range);
                    if part.sectors > 0 {
                        *runs = replace_part(cell.range.start, runs, part, Version::Of(loose.number));
                    }
                }
            }
        }
        contents
    }

    fn whole(&self, loose: usize) -> Option<PartialWrite> {
        self.loose.get(loose).map(|change| PartialWrite { loose, range: change.range })
    }

    fn whole_writes(&self, which: impl IntoIterator<Item = usize>) -> Vec<PartialWrite> {
        which.into_iter().filter_map(|loose| self.whole(loose)).collect()
    }

    fn share_a_cell(&self, one: usize, other: usize) -> bool {
        match (self.loose.get(one), self.loose.get(other)) {
            (Some(one), Some(other)) => one.cells.iter().any(|cell| other.cells.contains(cell)),
            _ => false,
        }
    }
}

/// The runs with `part` of them replaced; those that then are alike and touch become one.
fn replace_part(start: Lba, runs: &[VersionRun], part: SectorRange, version: Version) -> Vec<VersionRun> {
    let mut result: Vec<VersionRun> = Vec::with_capacity(runs.len() + 2);
    let mut push = |from: Lba, run: VersionRun| {
        if from >= run.end {
            return;
        }
        match result.last_mut() {
            Some(last) if last.version == run.version => last.end = run.end,
            _ => result.push(run),
        }
    };
    let mut from = start;
    for run in runs {
        push(from, VersionRun { end: run.end.min(part.start), version: run.version });
        if SectorRange::between(from, run.end).overlaps(part) {
            push(from.max(part.start), VersionRun { end: run.end.min(part.end()), version });
        }
        push(from.max(part.end()), *run);
        from = run.end;
    }
    result
}

/// Contents being collected.
struct Drawing {
    question: Question,
    seen: FxHashSet<CellContents>,
    contents_found: Vec<CellContents>,
    random: SplitMix64,
}

impl Drawing {
    /// Keeps what follows from the writes. Returns whether it is new.
    fn add(&mut self, writes: &[PartialWrite]) -> bool {
        let contents = self.question.contents_after(writes);
        let new = self.seen.insert(contents.clone());
        if new {
            self.contents_found.push(contents);
        }
        new
    }

    fn whole(&mut self, limit: usize) {
        let loose = self.question.loose.len();
        if loose <= limit {
            return self.orders(&mut Vec::with_capacity(loose));
        }
        for first in 0..=loose {
            self.add(&self.question.whole_writes(0..first));
        }
        for one in 0..loose {
            self.add(&self.question.whole_writes([one]));
            self.add(&self.question.whole_writes((0..loose).filter(|other| *other != one)));
        }
    }

    /// All that begins with `chosen`. Neighbours that do not meet come in one order only.
    fn orders(&mut self, chosen: &mut Vec<usize>) {
        self.add(&self.question.whole_writes(chosen.iter().copied()));
        for next in 0..self.question.loose.len() {
            let needless = |last: &usize| *last > next && !self.question.share_a_cell(*last, next);
            if chosen.contains(&next) || chosen.last().is_some_and(needless) {
                continue;
            }
            chosen.push(next);
            self.orders(chosen);
            chosen.pop();
        }
    }

    fn torn(&mut self, limit: usize) {
        let loose = self.question.loose.len();
        let borders: u64 = self.question.loose.iter().map(|change| change.blocks().saturating_sub(1)).sum();
        if borders == 0 {
            return;
        }
        let subsets = 1u64.checked_shl(loose.saturating_sub(1) as u32).unwrap_or(u64::MAX);
        if borders.saturating_mul(2).saturating_mul(subsets) <= limit as u64 {
            for one in 0..loose {
                let blocks = self.question.loose.get(one).map_or(0, UnsettledChange::blocks);
                for subset in (0..1u64 << loose).filter(|subset| subset >> one & 1 == 1) {
                    for border in 1..blocks {
                        self.cut_one(one, |other| subset >> other & 1 == 1, 0..border);
                        self.cut_one(one, |other| subset >> other & 1 == 1, border..blocks);
                    }
                }
            }
            return;
        }
        let tearable: Vec<usize> =
            (0..loose).filter(|one| self.question.loose.get(*one).is_some_and(|change| change.blocks() > 1)).collect();
        self.draw(limit, |drawing| {
            let Some(&one) = tearable.get(drawing.random.below(tearable.len() as u64) as usize) else { return false };
            let blocks = drawing.question.loose.get(one).map_or(0, UnsettledChange::blocks);
            let part = cut_at_random(&mut drawing.random, blocks);
            let landed: Vec<bool> = (0..loose).map(|_| drawing.random.random_bool()).collect();
            drawing.cut_one(one, |other| landed.get(other).copied().unwrap_or(false), part)
        });
    }

    /// The changes that landed in the order in which they began, of one of them only some blocks.
    fn cut_one(&mut self, one: usize, landed: impl Fn(usize) -> bool, blocks: std::ops::Range<u64>) -> bool {
        let which = (0..self.question.loose.len()).filter(|other| *other == one || landed(*other));
        let mut writes = self.question.whole_writes(which);
        for write in writes.iter_mut().filter(|write| write.loose == one) {
            if let Some(change) = self.question.loose.get(one) {
                write.range = change.part(blocks.clone());
            }
        }
        self.add(&writes)
    }

    fn sampled(&mut self, limit: usize) {
        self.draw(limit, |drawing| {
            let writes = drawing.question.random(&mut drawing.random);
            drawing.add(&writes)
        });
    }

    /// Draws until there are `limit` new states, or it seems that there are no more.
    fn draw(&mut self, limit: usize, mut one: impl FnMut(&mut Drawing) -> bool) {
        const MOST_REPEATS: usize = 200;
        let (mut made, mut repeats) = (0, 0);
        while made < limit && repeats < MOST_REPEATS && !self.question.loose.is_empty() {
            if one(self) {
                (made, repeats) = (made + 1, 0);
            } else {
                repeats += 1;
            }
        }
    }
}

impl Question {
    /// Any subset in any order; each whole, cut in two, or with any of its blocks.
    fn random(&self, random: &mut SplitMix64) -> Vec<PartialWrite> {
        let mut order: Vec<usize> = (0..self.loose.len()).collect();
        random.shuffle(&mut order);
        let of_eight = 1 + random.below(7);
        let mut writes = Vec::new();
        for loose in order {
            let Some(change) = self.loose.get(loose).filter(|_| random.below(8) < of_eight) else { continue };
            let blocks = change.blocks();
            match random.below(3) {
                0 if blocks > 1 => {
                    let range = change.part(cut_at_random(random, blocks));
                    writes.push(PartialWrite { loose, range });
                }
                1 if blocks > 1 => {
                    let some = (0..blocks).filter(|_| random.random_bool()).map(|block| change.part(block..block + 1));
                    writes.extend(some.map(|range| PartialWrite { loose, range }));
                }
                _ => writes.push(PartialWrite { loose, range: change.range }),
            }
        }
        writes
    }
}

/// The first or the last blocks, not all.
fn cut_at_random(random: &mut SplitMix64, blocks: u64) -> std::ops::Range<u64> {
    let border = 1 + random.below(blocks.saturating_sub(1));
    if random.random_bool() { 0..border } else { border..blocks }
}
