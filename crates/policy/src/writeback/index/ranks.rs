//! Pages in the order of a rank that the policy gives them: 16 bytes a page.

use super::files::Files;
use super::heap::Heap;
use super::slab::{Slab, push};

/// Highest rank first; on a tie the lower block, then the lower page index, then the lower file.
#[derive(Debug, Default)]
pub(super) struct Ranks {
    heap: Heap,
    ranks: Vec<u64>,
}

impl Ranks {
    fn goes_first<'a>(ranks: &'a [u64], pages: &'a Slab, files: &'a Files) -> impl Fn(u32, u32) -> bool + 'a {
        let key = |slot: u32| {
            let entry = pages.get(slot);
            (std::cmp::Reverse(ranks[slot as usize]), entry.block(), entry.index, files.id(entry.file))
        };
        move |a, b| key(a) < key(b)
    }

    /// Adds a page with the lowest rank.
    pub(super) fn insert(&mut self, slot: u32, pages: &Slab, files: &Files) {
        while self.ranks.len() <= slot as usize {
            push(&mut self.ranks, 0);
        }
        self.ranks[slot as usize] = 0;
        self.heap.insert(slot, Self::goes_first(&self.ranks, pages, files));
    }

    pub(super) fn remove(&mut self, slot: u32, pages: &Slab, files: &Files) {
        self.heap.remove(slot, Self::goes_first(&self.ranks, pages, files));
    }

    pub(super) fn changed(&mut self, slot: u32, pages: &Slab, files: &Files) {
        self.heap.changed(slot, Self::goes_first(&self.ranks, pages, files));
    }

    pub(super) fn set(&mut self, slot: u32, rank: u64, pages: &Slab, files: &Files) {
        self.ranks[slot as usize] = rank;
        self.changed(slot, pages, files);
    }

    pub(super) fn highest(&self) -> Option<u32> {
        self.heap.first()
    }

    pub(super) fn bytes(&self) -> usize {
        self.heap.bytes() + self.ranks.capacity() * size_of::<u64>()
    }
}
