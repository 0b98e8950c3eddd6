//! The files that have pages in memory, and the order in which they became dirty.

use rustc_hash::FxHashMap;
use umbrella_units::{FileId, Nanos};

use super::slab::{Id, NONE};

/// One file with pages in memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct File {
    pub(super) id: FileId,
    /// The first of its pages that are not dirty, some of them on their way to disk.
    pub(super) clean: Id,
    /// The first of its dirty pages.
    pub(super) dirty: Id,
    pub(super) pages: u32,
    pub(super) dirty_pages: u32,
    pub(super) write_back_pages: u32,
    /// Since when it is dirty.
    pub(super) since: Nanos,
    /// The list of dirty files: the one before.
    prev: u32,
    /// The list of dirty files, or of free places: the one after.
    next: u32,
}

/// The place of the record that is no file but holds the ends of the list of dirty files.
const ENDS: u32 = 0;

/// See the module.
#[derive(Debug, Clone)]
pub(super) struct Files {
    records: Vec<File>,
    places: FxHashMap<FileId, u32>,
    free: u32,
}

impl Files {
    pub(super) fn new() -> Files {
        let ends = File {
            id: FileId(u64::MAX),
            clean: NONE,
            dirty: NONE,
            pages: 0,
            dirty_pages: 0,
            write_back_pages: 0,
            since: Nanos(0),
            prev: ENDS,
            next: ENDS,
        };
        Files { records: vec![ends], places: FxHashMap::default(), free: NONE }
    }

    /// Bytes that the files take.
    pub(super) fn bytes(&self) -> usize {
        self.records.capacity() * size_of::<File>() + self.places.capacity() * (size_of::<(FileId, u32)>() + 1)
    }

    pub(super) fn at(&self, place: u32) -> &File {
        &self.records[place as usize]
    }

    pub(super) fn at_mut(&mut self, place: u32) -> &mut File {
        &mut self.records[place as usize]
    }

    pub(super) fn find(&self, id: FileId) -> Option<u32> {
        self.places.get(&id).copied()
    }

    /// The file's place; a new one when it had none.
    pub(super) fn place(&mut self, id: FileId) -> u32 {
        if let Some(&place) = self.places.get(&id) {
            return place;
        }
        let file = File { id, ..self.blank() };
        let place = if self.free == NONE {
            self.records.push(file);
            (self.records.len() - 1) as u32
        } else {
            let place = self.free;
            self.free = self.at(place).next;
            *self.at_mut(place) = file;
            place
        };
        self.places.insert(id, place);
        place
    }

    fn blank(&self) -> File {
        File { prev: NONE, next: NONE, pages: 0, dirty_pages: 0, write_back_pages: 0, ..self.records[ENDS as usize] }
    }

    /// Forgets a file that has no pages any more.
    pub(super) fn forget(&mut self, place: u32) {
        let id = self.at(place).id;
        self.places.remove(&id);
        let free = self.free;
        self.at_mut(place).next = free;
        self.free = place;
    }

    /// A clean file became dirty.
    pub(super) fn became_dirty(&mut self, place: u32, now: Nanos) {
        let last = self.at(ENDS).prev;
        self.at_mut(last).next = place;
        self.at_mut(ENDS).prev = place;
        let file = self.at_mut(place);
        file.prev = last;
        file.next = ENDS;
        file.since = now;
    }

    /// A dirty file became clean.
    pub(super) fn became_clean(&mut self, place: u32) {
        let File { prev, next, .. } = *self.at(place);
        self.at_mut(prev).next = next;
        self.at_mut(next).prev = prev;
    }

    /// The file that is dirty for longest.
    pub(super) fn dirtied_first(&self) -> Option<u32> {
        let first = self.at(ENDS).next;
        (first != ENDS).then_some(first)
    }

    /// Dirty files, the one that is dirty for longest first.
    pub(super) fn dirty(&self) -> impl Iterator<Item = &File> {
        self.dirty_places().map(|place| self.at(place))
    }

    /// Their places.
    pub(super) fn dirty_places(&self) -> impl Iterator<Item = u32> {
        let mut next = self.at(ENDS).next;
        std::iter::from_fn(move || {
            let place = (next != ENDS).then_some(next)?;
            next = self.at(place).next;
            Some(place)
        })
    }
}
