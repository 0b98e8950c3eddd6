//! The files that have dirty pages, and which pages.
//!
//! A policy that chooses among files gets them in order, and the pages of each as runs in index order (a file with one
//! run costs nothing more). For the others a linked list of each file's pages is enough to find them when it is
//! truncated or deleted.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included};

use umbrella_units::{FileId, PageIndex};

use super::runs::{Run, RunSet};
use super::slab::{Ends, Links, push};
use super::table::{Hash, SlotTable, hash};

/// The order in which a policy wants files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileOrder {
    /// In the order in which they were first dirtied.
    FirstDirtied,
    /// By their number, the blocks of the device itself after all files.
    Number,
}

/// A file with dirty pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirtyFile {
    /// Which file.
    pub file: FileId,
    /// Whether the policy set it back ([`super::DirtyIndex::mark_file`]).
    pub marked: bool,
}

/// The dirty pages of a file.
#[derive(Debug)]
enum FilePages {
    /// In the order in which they came; no index is above `highest`.
    Listed { ends: Ends, highest: u64 },
    /// One run.
    Run { start: u64, len: u64 },
    /// Several.
    Runs(Box<RunSet>),
}

#[derive(Debug)]
struct FileEntry {
    id: FileId,
    pages: u32,
    marked: bool,
    /// The key of the file in the order of files.
    order: u64,
    members: FilePages,
}

/// How the pages of a file that lie behind a given one are found.
#[derive(Debug, Clone, Copy)]
pub(super) enum Tail {
    /// Look these indexes up, not all of which are dirty.
    Probe { from: u64, to: u64 },
    /// Walk the list from this slot.
    Walk(u32),
    /// This run first, then ask again.
    Run(Run),
    /// There are none.
    Empty,
}

/// All files with dirty pages.
#[derive(Debug)]
pub(super) struct Files {
    slots: Vec<FileEntry>,
    free: Vec<u32>,
    table: SlotTable,
    links: Links,
    order: Option<FileOrder>,
    ordered: BTreeMap<(bool, u64), u32>,
    /// How many places in the order were given away.
    places: u64,
    len: usize,
}

fn file_hash(id: FileId) -> Hash {
    hash(3, id.0)
}

/// A file's place in the order of numbers. Metadata is no file: an old Linux keeps it with the block device, on the
/// list of another superblock. So the device, number 0, comes after all others.
fn number_place(id: FileId) -> u64 {
    id.0.wrapping_sub(FileId::DEVICE.0 + 1)
}

impl Files {
    pub(super) fn new(order: Option<FileOrder>) -> Files {
        Files {
            slots: Vec::new(),
            free: Vec::new(),
            table: SlotTable::default(),
            links: Links::default(),
            order,
            ordered: BTreeMap::new(),
            places: 0,
            len: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn find(&self, id: FileId) -> Option<u32> {
        self.table.find(file_hash(id), |slot| self.slots[slot as usize].id == id)
    }

    pub(super) fn id(&self, file: u32) -> FileId {
        self.slots[file as usize].id
    }

    /// How many dirty pages the file has.
    pub(super) fn pages_in(&self, file: u32) -> u64 {
        u64::from(self.slots[file as usize].pages)
    }

    /// The slot of the file, made when it is new.
    pub(super) fn find_or_add(&mut self, id: FileId) -> u32 {
        if let Some(file) = self.find(id) {
            return file;
        }
        self.places += 1;
        let (order, members) = match self.order {
            None => (0, FilePages::Listed { ends: Ends::EMPTY, highest: 0 }),
            Some(FileOrder::FirstDirtied) => (self.places, FilePages::Run { start: 0, len: 0 }),
            Some(FileOrder::Number) => (number_place(id), FilePages::Run { start: 0, len: 0 }),
        };
        let file = FileEntry { id, pages: 0, marked: false, order, members };
        let slot = if let Some(slot) = self.free.pop() {
            self.slots[slot as usize] = file;
            slot
        } else {
            push(&mut self.slots, file);
            (self.slots.len() - 1) as u32
        };
        let files = &self.slots;
        self.table.insert(file_hash(id), slot, files.len(), |slot| file_hash(files[slot as usize].id));
        if self.order.is_some() {
            self.ordered.insert((false, order), slot);
        }
        self.len += 1;
        slot
    }

    pub(super) fn add_page(&mut self, file: u32, slot: u32, index: u64) {
        let file = &mut self.slots[file as usize];
        file.pages += 1;
        match &mut file.members {
            FilePages::Listed { ends, highest } => {
                self.links.append(ends, slot);
                *highest = index.max(*highest);
            }
            FilePages::Run { start, len } if *len == 0 => (*start, *len) = (index, 1),
            FilePages::Run { start, len } if index == *start + *len => *len += 1,
            FilePages::Run { start, len } if index + 1 == *start => (*start, *len) = (index, *len + 1),
            &mut FilePages::Run { start, len } => {
                let mut runs = RunSet::new(0);
                runs.insert_run(Run { start, len });
                runs.insert(index);
                file.members = FilePages::Runs(Box::new(runs));
            }
            FilePages::Runs(runs) => {
                runs.insert(index);
            }
        }
    }

    /// Takes a page out of its file; the file goes with its last page.
    pub(super) fn remove_page(&mut self, file: u32, slot: u32, index: u64) {
        let entry = &mut self.slots[file as usize];
        if let FilePages::Listed { ends, .. } = &mut entry.members {
            self.links.remove(ends, slot);
            self.lose_pages(file, 1);
        } else {
            self.remove_run(file, Run { start: index, len: 1 });
        }
    }

    /// Takes adjacent pages out of a file that keeps runs.
    pub(super) fn remove_run(&mut self, file: u32, run: Run) {
        let members = &mut self.slots[file as usize].members;
        match members {
            FilePages::Listed { .. } => return,
            FilePages::Run { start, len } if run.start == *start => {
                (*start, *len) = (run.end(), *len - run.len);
            }
            FilePages::Run { start, len } if run.end() == *start + *len => *len -= run.len,
            &mut FilePages::Run { start, len } => {
                let mut runs = RunSet::new(0);
                runs.insert_run(Run { start, len });
                runs.remove(run.start, run.len);
                *members = FilePages::Runs(Box::new(runs));
            }
            FilePages::Runs(runs) => {
                runs.remove(run.start, run.len);
            }
        }
        self.lose_pages(file, run.len as u32);
    }

    fn lose_pages(&mut self, slot: u32, pages: u32) {
        let file = &mut self.slots[slot as usize];
        file.pages -= pages;
        if file.pages > 0 {
            return;
        }
        let (id, key) = (file.id, (file.marked, file.order));
        file.members = FilePages::Run { start: 0, len: 0 };
        self.table.remove(file_hash(id), slot);
        self.ordered.remove(&key);
        self.free.push(slot);
        self.len -= 1;
    }

    /// How to find the pages of a file from `from` on. Afterwards, when they are gone, say so with [`Files::cut`].
    pub(super) fn tail(&self, file: u32, from: PageIndex) -> Tail {
        let file = &self.slots[file as usize];
        match &file.members {
            FilePages::Listed { highest, .. } if from.0 > *highest => Tail::Empty,
            FilePages::Listed { highest, .. } if *highest - from.0 < u64::from(file.pages) => {
                Tail::Probe { from: from.0, to: *highest }
            }
            FilePages::Listed { ends, .. } => Tail::Walk(ends.first),
            FilePages::Run { start, len } => {
                let run = Run { start: from.0.max(*start), len: (*start + *len).saturating_sub(from.0.max(*start)) };
                if run.len == 0 { Tail::Empty } else { Tail::Run(run) }
            }
            FilePages::Runs(runs) => runs.at_or_after(from.0).map_or(Tail::Empty, |run| {
                let start = from.0.max(run.start);
                Tail::Run(Run { start, len: run.end() - start })
            }),
        }
    }

    /// The pages of the file from `from` on are gone: a listed file remembers that.
    pub(super) fn cut(&mut self, id: FileId, from: PageIndex) {
        let Some(file) = self.find(id) else { return };
        if let FilePages::Listed { highest, .. } = &mut self.slots[file as usize].members {
            *highest = (*highest).min(from.0.saturating_sub(1));
        }
    }

    /// The page after `slot` in its file's list.
    pub(super) fn next_listed(&self, slot: u32) -> Option<u32> {
        Some(self.links.next(slot)).filter(|&slot| slot != super::table::NONE)
    }

    /// The first file in the policy's order: those not marked before those marked.
    pub(super) fn first(&self) -> Option<DirtyFile> {
        let (&(marked, _), &slot) = self.ordered.first_key_value()?;
        Some(DirtyFile { file: self.id(slot), marked })
    }

    /// The first file behind the place of `id` among those that are marked or not marked as the first one is.
    pub(super) fn first_behind(&self, id: FileId) -> Option<DirtyFile> {
        let first = self.first()?;
        let behind = (Excluded((first.marked, number_place(id))), Included((first.marked, u64::MAX)));
        let next =
            self.ordered.range(behind).next().map(|(&(marked, _), &slot)| DirtyFile { file: self.id(slot), marked });
        next.or(Some(first))
    }

    pub(super) fn mark(&mut self, id: FileId) {
        self.reorder(id, true, false);
    }

    pub(super) fn send_back(&mut self, id: FileId) {
        let Some(slot) = self.find(id) else { return };
        self.reorder(id, self.slots[slot as usize].marked, self.order == Some(FileOrder::FirstDirtied));
    }

    fn reorder(&mut self, id: FileId, marked: bool, last: bool) {
        let Some(slot) = self.find(id) else { return };
        let file = &mut self.slots[slot as usize];
        self.ordered.remove(&(file.marked, file.order));
        file.marked = marked;
        if last {
            self.places += 1;
            file.order = self.places;
        }
        self.ordered.insert((marked, file.order), slot);
    }

    /// Bytes held. For the order of files a node's share is reckoned: 24 bytes an entry, two thirds full.
    pub(super) fn bytes(&self) -> usize {
        let runs = |file: &FileEntry| match &file.members {
            FilePages::Runs(runs) => size_of::<RunSet>() + runs.bytes(),
            _ => 0,
        };
        self.slots.capacity() * size_of::<FileEntry>()
            + self.slots.iter().map(runs).sum::<usize>()
            + self.free.capacity() * size_of::<u32>()
            + self.table.bytes()
            + self.links.bytes()
            + self.ordered.len() * 36
    }
}
