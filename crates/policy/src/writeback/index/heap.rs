//! A binary heap of slots whose keys live elsewhere and change: each slot's place in the heap is kept, so that a
//! changed key is put right in O(log n). Eight bytes a slot.

use super::table::NONE;

/// The heap; the comparison comes with each call, because the keys are its owner's.
#[derive(Debug, Default)]
pub(super) struct Heap {
    heap: Vec<u32>,
    places: Vec<u32>,
}

impl Heap {
    /// The slot that goes first.
    pub(super) fn first(&self) -> Option<u32> {
        self.heap.first().copied()
    }

    /// Whether the slot is in the heap.
    pub(super) fn holds(&self, slot: u32) -> bool {
        self.places.get(slot as usize).is_some_and(|&place| place != NONE)
    }

    /// Adds a slot.
    pub(super) fn insert(&mut self, slot: u32, goes_first: impl Fn(u32, u32) -> bool) {
        let at = slot as usize;
        if self.places.len() <= at {
            let room = at + 1 - self.places.len();
            if self.places.capacity() < at + 1 {
                self.places.reserve_exact(room + self.places.len() / 16 + 64);
            }
            self.places.resize(at + 1, NONE);
        }
        if self.heap.len() == self.heap.capacity() {
            self.heap.reserve_exact(self.heap.len() / 16 + 64);
        }
        self.heap.push(slot);
        self.places[at] = (self.heap.len() - 1) as u32;
        self.rise(self.heap.len() - 1, &goes_first);
    }

    /// Takes a slot out.
    pub(super) fn remove(&mut self, slot: u32, goes_first: impl Fn(u32, u32) -> bool) {
        let place = std::mem::replace(&mut self.places[slot as usize], NONE) as usize;
        let Some(last) = self.heap.pop() else { return };
        if last != slot {
            self.heap[place] = last;
            self.places[last as usize] = place as u32;
            self.settle(place, &goes_first);
        }
    }

    /// Puts a slot right after its key has changed.
    pub(super) fn changed(&mut self, slot: u32, goes_first: impl Fn(u32, u32) -> bool) {
        self.settle(self.places[slot as usize] as usize, &goes_first);
    }

    fn settle(&mut self, place: usize, goes_first: &impl Fn(u32, u32) -> bool) {
        if self.rise(place, goes_first) == place {
            self.sink(place, goes_first);
        }
    }

    fn rise(&mut self, mut place: usize, goes_first: &impl Fn(u32, u32) -> bool) -> usize {
        while place > 0 {
            let parent = (place - 1) / 2;
            if !goes_first(self.heap[place], self.heap[parent]) {
                break;
            }
            self.swap(place, parent);
            place = parent;
        }
        place
    }

    fn sink(&mut self, mut place: usize, goes_first: &impl Fn(u32, u32) -> bool) {
        loop {
            let (left, right) = (2 * place + 1, 2 * place + 2);
            if left >= self.heap.len() {
                return;
            }
            let right_first = right < self.heap.len() && goes_first(self.heap[right], self.heap[left]);
            let child = if right_first { right } else { left };
            if !goes_first(self.heap[child], self.heap[place]) {
                return;
            }
            self.swap(place, child);
            place = child;
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        self.places[self.heap[a] as usize] = a as u32;
        self.places[self.heap[b] as usize] = b as u32;
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> usize {
        (self.heap.capacity() + self.places.capacity()) * size_of::<u32>()
    }
}
