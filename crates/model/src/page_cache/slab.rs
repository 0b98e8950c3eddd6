//! The pages of a page cache: one slab of 48-byte records. Their positions chain them in three ways: in a hash table
//! (to find a page), in an LRU list, and in a list of their file.
//!
//! Neighbouring pages of a file are in neighbouring buckets, so that sequential access stays in the processor's
//! cache.

use umbrella_units::{FileId, Nanos, PageIndex, PageKey};

/// The position of a record in the slab.
pub(super) type Id = u32;

/// No record.
pub(super) const NONE: Id = u32::MAX;

/// The ends of the LRU lists: records that are no pages. Front: used last; back: the next to go.
pub(super) const INACTIVE: Id = 0;
pub(super) const ACTIVE: Id = 1;

/// The flags of a page.
pub(super) mod flag {
    /// It is on the active list (`PG_active`).
    pub(in super::super) const ACTIVE: u8 = 1;
    /// It is dirty, or on its way to disk, or both: reclaim can not take it. Always follows from the two below.
    pub(in super::super) const BUSY: u8 = 2;
    /// It was used since it came to its list (`PG_referenced`).
    pub(in super::super) const REFERENCED: u8 = 4;
    /// It must be written (`PG_dirty`).
    pub(in super::super) const DIRTY: u8 = 8;
    /// It is being written (`PG_writeback`).
    pub(in super::super) const WRITE_BACK: u8 = 16;
    /// Reclaim wanted it when it was busy (`PG_reclaim`).
    pub(in super::super) const RECLAIM: u8 = 32;
    /// It is dirty, and has been queued to be written.
    pub(in super::super) const QUEUED: u8 = 64;
}

/// One page. The fields that a hit reads come first, so that they are most often in one line of the processor's cache.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct Record {
    pub(super) key: PageKey,
    pub(super) flags: u8,
    /// The file's place in the file table.
    pub(super) file: u32,
    /// The next record of the hash bucket, or of the free records.
    chain: Id,
    /// LRU list: towards the front.
    prev: Id,
    /// LRU list: towards the back.
    next: Id,
    /// The file's list: towards the one that was put there last; of that one, the first that was.
    file_prev: Id,
    pub(super) file_next: Id,
    /// When it became dirty, in [`Slab::tick`]s.
    dirtied: u32,
}

const END: PageKey = PageKey { file: FileId(u64::MAX), index: PageIndex(u64::MAX) };

/// See the module.
#[derive(Debug, Clone)]
pub(super) struct Slab {
    records: Vec<Record>,
    /// At least two for each page, so that most pages are found at once.
    buckets: Vec<Id>,
    free: Id,
    len: usize,
    /// The most pages there will be.
    most: usize,
}

/// Pages that are in neighbouring buckets.
const NEIGHBOURS: u64 = 512;

impl Slab {
    pub(super) fn new(most: usize) -> Slab {
        let end = |id| Record {
            key: END,
            file: NONE,
            chain: NONE,
            prev: id,
            next: id,
            file_prev: NONE,
            file_next: NONE,
            dirtied: 0,
            flags: 0,
        };
        Slab { records: vec![end(INACTIVE), end(ACTIVE)], buckets: vec![NONE; 1024], free: NONE, len: 0, most }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Bytes that the slab takes.
    pub(super) fn bytes(&self) -> usize {
        self.records.capacity() * size_of::<Record>() + self.buckets.capacity() * size_of::<Id>()
    }

    pub(super) fn at(&self, id: Id) -> &Record {
        &self.records[id as usize]
    }

    pub(super) fn at_mut(&mut self, id: Id) -> &mut Record {
        &mut self.records[id as usize]
    }

    fn bucket(&self, key: PageKey) -> usize {
        const K: u64 = 0x9E37_79B9_7F4A_7C15;
        let group = (key.index.0 / NEIGHBOURS).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        let mixed = (key.file.0.wrapping_mul(K) ^ group).wrapping_mul(K);
        let base = (mixed ^ (mixed >> 32)).wrapping_add(key.index.0 % NEIGHBOURS);
        base as usize & (self.buckets.len() - 1)
    }

    /// Where the page is.
    pub(super) fn find(&self, key: PageKey) -> Option<Id> {
        let mut id = self.buckets[self.bucket(key)];
        while id != NONE {
            let record = &self.records[id as usize];
            if record.key == key {
                return Some(id);
            }
            id = record.chain;
        }
        None
    }

    /// Adds a page that is not there yet, on no list.
    pub(super) fn insert(&mut self, key: PageKey, file: u32, flags: u8) -> Id {
        if self.len * 2 >= self.buckets.len() {
            self.grow();
        }
        let bucket = self.bucket(key);
        let record = Record {
            key,
            file,
            chain: self.buckets[bucket],
            prev: NONE,
            next: NONE,
            file_prev: NONE,
            file_next: NONE,
            dirtied: 0,
            flags,
        };
        let id = if self.free == NONE {
            let len = self.records.len();
            if len == self.records.capacity() {
                self.records.reserve_exact((self.most + 2).saturating_sub(len).clamp(1, len));
            }
            self.records.push(record);
            len as Id
        } else {
            let id = self.free;
            self.free = self.at(id).chain;
            *self.at_mut(id) = record;
            id
        };
        self.buckets[bucket] = id;
        self.len += 1;
        id
    }

    /// Takes away a page that is on no list any more.
    pub(super) fn remove(&mut self, id: Id) {
        let bucket = self.bucket(self.at(id).key);
        let chain = self.at(id).chain;
        if self.buckets[bucket] == id {
            self.buckets[bucket] = chain;
        } else {
            let mut before = self.buckets[bucket];
            while self.at(before).chain != id {
                before = self.at(before).chain;
            }
            self.at_mut(before).chain = chain;
        }
        let free = self.free;
        let record = self.at_mut(id);
        record.key = END;
        record.chain = free;
        self.free = id;
        self.len -= 1;
    }

    fn grow(&mut self) {
        let old = std::mem::take(&mut self.buckets);
        self.buckets = vec![NONE; old.len() * 2];
        for head in old {
            let mut id = head;
            while id != NONE {
                let next = self.at(id).chain;
                let bucket = self.bucket(self.at(id).key);
                self.at_mut(id).chain = self.buckets[bucket];
                self.buckets[bucket] = id;
                id = next;
            }
        }
    }

    /// Puts a page that is on no LRU list to the front of one.
    pub(super) fn push_front(&mut self, list: Id, id: Id) {
        let next = self.at(list).next;
        self.link(list, id, next);
    }

    /// Puts a page that is on no LRU list to the back of one: it goes next.
    pub(super) fn push_back(&mut self, list: Id, id: Id) {
        let prev = self.at(list).prev;
        self.link(prev, id, list);
    }

    fn link(&mut self, prev: Id, id: Id, next: Id) {
        self.at_mut(prev).next = id;
        self.at_mut(next).prev = id;
        let record = self.at_mut(id);
        record.prev = prev;
        record.next = next;
    }

    /// Takes a page from its LRU list.
    pub(super) fn unlink(&mut self, id: Id) {
        let Record { prev, next, .. } = *self.at(id);
        self.at_mut(prev).next = next;
        self.at_mut(next).prev = prev;
    }

    /// The back of an LRU list.
    pub(super) fn back(&self, list: Id) -> Option<Id> {
        let id = self.at(list).prev;
        (id != list).then_some(id)
    }

    /// From the back of an LRU list to its front.
    pub(super) fn backwards(&self, list: Id) -> impl Iterator<Item = &Record> {
        let mut id = self.at(list).prev;
        std::iter::from_fn(move || {
            let record = (id != list).then(|| self.at(id))?;
            id = record.prev;
            Some(record)
        })
    }

    /// Puts a page that is on no file list before `head`; it is the head now.
    pub(super) fn file_push(&mut self, head: &mut Id, id: Id) {
        let last = if *head == NONE { id } else { std::mem::replace(&mut self.at_mut(*head).file_prev, id) };
        let record = self.at_mut(id);
        record.file_prev = last;
        record.file_next = *head;
        *head = id;
    }

    /// Takes a page from the file list with this head.
    pub(super) fn file_unlink(&mut self, head: &mut Id, id: Id) {
        let Record { file_prev, file_next, .. } = *self.at(id);
        if *head == id {
            *head = file_next;
        } else {
            self.at_mut(file_prev).file_next = file_next;
        }
        let after = if file_next == NONE { *head } else { file_next };
        if after != NONE {
            self.at_mut(after).file_prev = file_prev;
        }
    }

    /// The page that was put first into the file list with this head, of those that are in it.
    pub(super) fn file_last(&self, head: Id) -> Option<Id> {
        (head != NONE).then(|| self.at(head).file_prev)
    }

    /// The page becomes dirty now.
    pub(super) fn set_dirtied(&mut self, id: Id, now: Nanos) {
        self.at_mut(id).dirtied = Slab::tick(now);
    }

    /// Whether the page has been dirty for so long; exact to 17 ms.
    pub(super) fn is_dirty_for(&self, id: Id, time: Nanos, now: Nanos) -> bool {
        Slab::tick(now).wrapping_sub(self.at(id).dirtied) >= Slab::tick(time)
    }

    /// Time in units that let 32 bits count two years.
    fn tick(time: Nanos) -> u32 {
        (time.0 >> 24) as u32
    }

    /// The pages of the file list with this head.
    pub(super) fn file_pages(&self, head: Id) -> impl Iterator<Item = (Id, &Record)> {
        let mut id = head;
        std::iter::from_fn(move || {
            if id == NONE {
                return None;
            }
            let at = id;
            let record = self.at(at);
            id = record.file_next;
            Some((at, record))
        })
    }
}
