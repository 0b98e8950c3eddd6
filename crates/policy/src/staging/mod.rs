//! Staging of new files in memory (Temporary-ramfs): which new files have no place on disk yet, and when they get one.
//!
//! Source: MRAM, section 3.1. A new file lives in memory without inode and blocks. It leaves for its real file system
//! when it passes the threshold, or when memory is short, least recently used first. It is then "transformed": inode
//! first, then all blocks at once. A file that is deleted before never touches the disk. There is no limit to all files
//! together. Two reasons: most files that die young are small, and a file whose size is known gets adjacent blocks. The
//! paper's memory is non-volatile. Where memory is volatile, a file leaves at a certain age too ([`Config::max_age`]).
//!
//! This decides only. Its driver knows how much memory there is, and carries out what a file that leaves needs.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use umbrella_units::{ByteSize, FileId, Nanos, PAGE_BYTES, Pages};

/// How staging works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// A file that is larger leaves.
    pub threshold: ByteSize,
    /// A file leaves when it has been staged for this time; [`Nanos::NEVER`] where memory keeps its contents.
    pub max_age: Nanos,
}

impl Default for Config {
    /// 1 MiB (MRAM, section 3.1.3), of any age.
    fn default() -> Config {
        Config { threshold: ByteSize(1 << 20), max_age: Nanos::NEVER }
    }
}

/// What becomes of a file that was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Staged {
    /// It stays in memory.
    Kept,
    /// It passed the threshold: [`Staging::remove`] it.
    Transform,
    /// It is not staged.
    Elsewhere,
}

/// A file that left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StagedFile {
    /// Its directory.
    pub dir: FileId,
    /// Its size.
    pub size: ByteSize,
}

/// A file and its neighbours in order of use.
#[derive(Debug, Clone, Copy)]
struct Record {
    file: FileId,
    staged: StagedFile,
    /// When it is to leave.
    due: Nanos,
    /// It leaves when it is larger, whatever others may be.
    threshold: ByteSize,
    /// The one used before it, or the next free record.
    older: u32,
    /// The one used after it.
    newer: u32,
}

/// The record that is no file: its `newer` is the file used longest ago, its `older` the one used last.
const ENDS: u32 = 0;

/// See the module.
#[derive(Debug, Clone)]
pub struct Staging {
    config: Config,
    records: Vec<Record>,
    places: FxHashMap<FileId, u32>,
    free: u32,
    pages: Pages,
    /// Files by when they are to leave.
    due: BTreeSet<(Nanos, FileId)>,
}

/// When a file that could not leave is tried again.
pub const RETRY: Nanos = Nanos::from_secs(10);

fn pages_of(size: ByteSize) -> Pages {
    Pages(size.0.div_ceil(PAGE_BYTES))
}

impl Staging {
    /// With no files.
    pub fn new(config: Config) -> Staging {
        let none = StagedFile { dir: FileId(0), size: ByteSize(0) };
        let (due, threshold) = (Nanos::NEVER, config.threshold);
        let ends = Record { file: FileId(0), staged: none, due, threshold, older: ENDS, newer: ENDS };
        let (places, due) = (FxHashMap::default(), BTreeSet::new());
        Staging { config, records: vec![ends], places, free: ENDS, pages: Pages(0), due }
    }

    /// What it was built with.
    pub fn config(&self) -> Config {
        self.config
    }

    /// Applies another configuration. Files that wait leave no later than at the new age from now.
    pub fn configure(&mut self, now: Nanos, config: Config) {
        self.config = config;
        let latest = now + config.max_age;
        let files: Vec<u32> = self.places.values().copied().collect();
        for place in files {
            let due = self.at(place).due;
            self.make_due(place, due.min(latest));
        }
    }

    /// A new, empty file is staged. Nothing happens if it is already.
    pub fn create(&mut self, now: Nanos, file: FileId, dir: FileId) {
        if self.places.contains_key(&file) {
            return;
        }
        let staged = StagedFile { dir, size: ByteSize(0) };
        let threshold = self.config.threshold;
        let record = Record { file, staged, due: Nanos::NEVER, threshold, older: ENDS, newer: ENDS };
        let place = if self.free == ENDS {
            self.records.push(record);
            (self.records.len() - 1) as u32
        } else {
            let place = self.free;
            self.free = self.at(place).older;
            *self.at(place) = record;
            place
        };
        self.places.insert(file, place);
        self.link(place);
        self.make_due(place, now + self.config.max_age);
    }

    /// The file leaves already when it is larger than this.
    pub fn bound(&mut self, file: FileId, threshold: ByteSize) {
        if let Some(&place) = self.places.get(&file) {
            let record = self.at(place);
            record.threshold = record.threshold.min(threshold);
        }
    }

    /// The size beyond which the file leaves; `None` if it is not staged.
    pub fn threshold_of(&self, file: FileId) -> Option<ByteSize> {
        self.places.get(&file).and_then(|&place| self.records.get(place as usize)).map(|record| record.threshold)
    }

    fn make_due(&mut self, place: u32, due: Nanos) {
        let record = self.at(place);
        let (file, before) = (record.file, std::mem::replace(&mut record.due, due));
        self.due.remove(&(before, file));
        if due != Nanos::NEVER {
            self.due.insert((due, file));
        }
    }

    /// Whether the file is staged.
    pub fn holds(&self, file: FileId) -> bool {
        self.places.contains_key(&file)
    }

    /// The file was written or cut, and has this size now. Holes count as if they were written.
    pub fn write(&mut self, file: FileId, size: ByteSize) -> Staged {
        let Some(&place) = self.places.get(&file) else { return Staged::Elsewhere };
        self.used(place);
        let record = self.at(place);
        let threshold = record.threshold;
        let before = std::mem::replace(&mut record.staged.size, size);
        self.pages.0 = self.pages.0 - pages_of(before).0 + pages_of(size).0;
        if size > threshold { Staged::Transform } else { Staged::Kept }
    }

    /// The file was written up to the byte `end`: as [`Staging::write`], and never makes it smaller.
    pub fn extend(&mut self, file: FileId, end: ByteSize) -> Staged {
        let size = self.places.get(&file).and_then(|&place| self.records.get(place as usize)).map(|it| it.staged.size);
        self.write(file, size.map_or(end, |size| size.max(end)))
    }

    /// The file was read.
    pub fn touch(&mut self, file: FileId) {
        if let Some(&place) = self.places.get(&file) {
            self.used(place);
        }
    }

    /// The files that must leave so that `pages` pages are no longer staged, the least recently used first. All, if
    /// they have fewer. They stay until [`Staging::remove`].
    pub fn pressure(&self, pages: Pages) -> Vec<FileId> {
        self.pressure_among(pages, |_| true)
    }

    /// As [`Staging::pressure`], but only of files for which `may` holds.
    pub fn pressure_among(&self, pages: Pages, may: impl Fn(FileId) -> bool) -> Vec<FileId> {
        let mut files = Vec::new();
        let mut found = Pages(0);
        let mut place = self.records[ENDS as usize].newer;
        while place != ENDS && found < pages {
            let record = &self.records[place as usize];
            if may(record.file) {
                files.push(record.file);
                found.0 += pages_of(record.staged.size).0;
            }
            place = record.newer;
        }
        files
    }

    /// Pages of a file; none if it is not staged.
    pub fn pages_of(&self, file: FileId) -> Pages {
        let record = self.places.get(&file).and_then(|&place| self.records.get(place as usize));
        record.map_or(Pages(0), |record| pages_of(record.staged.size))
    }

    /// Which files are to leave by now because of their age, the oldest first. They stay until [`Staging::remove`].
    pub fn expired(&self, now: Nanos) -> Vec<FileId> {
        self.due.iter().take_while(|(due, _)| *due <= now).map(|&(_, file)| file).collect()
    }

    /// Sets the time at which the file leaves at the latest.
    pub fn schedule_destage(&mut self, file: FileId, due: Nanos) {
        if let Some(&place) = self.places.get(&file)
            && due < self.at(place).due
        {
            self.make_due(place, due);
        }
    }

    /// Lets the file leave at once, regardless of its age.
    pub fn schedule_destage_now(&mut self, file: FileId) {
        if let Some(&place) = self.places.get(&file) {
            self.make_due(place, Nanos(0));
        }
    }

    /// The file could not leave: it is tried again after [`RETRY`], and when memory is short after the others.
    pub fn postpone(&mut self, now: Nanos, file: FileId) {
        let Some(&place) = self.places.get(&file) else { return };
        self.used(place);
        if self.at(place).due <= now {
            self.make_due(place, now + RETRY);
        }
    }

    /// Removes a file that goes to its file system; `None` if it was not staged.
    pub fn remove(&mut self, file: FileId) -> Option<StagedFile> {
        let place = self.places.remove(&file)?;
        self.unlink(place);
        self.make_due(place, Nanos::NEVER);
        let staged = self.at(place).staged;
        self.at(place).older = self.free;
        self.free = place;
        self.pages.0 -= pages_of(staged.size).0;
        Some(staged)
    }

    /// The file is deleted; true if it was staged, and so never touches the disk.
    pub fn delete(&mut self, file: FileId) -> bool {
        self.remove(file).is_some()
    }

    /// Pages of all staged files.
    pub fn pages(&self) -> Pages {
        self.pages
    }

    /// How many files are staged.
    pub fn files(&self) -> u64 {
        self.places.len() as u64
    }

    fn at(&mut self, place: u32) -> &mut Record {
        &mut self.records[place as usize]
    }

    fn used(&mut self, place: u32) {
        self.unlink(place);
        self.link(place);
    }

    /// Makes a file that is in no order the one used last.
    fn link(&mut self, place: u32) {
        let last = self.at(ENDS).older;
        self.at(last).newer = place;
        self.at(ENDS).older = place;
        let record = self.at(place);
        record.older = last;
        record.newer = ENDS;
    }

    fn unlink(&mut self, place: u32) {
        let Record { older, newer, .. } = *self.at(place);
        self.at(older).newer = newer;
        self.at(newer).older = older;
    }
}
