//! The best candidates of one walk: as many as free what is needed, and no more.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use umbrella_units::ByteSize;

/// Files that may leave, best first, while they are met in any order. Holds the best that together free `need`, and
/// never more than `most` of them.
#[derive(Debug)]
pub struct Selection<T> {
    need: ByteSize,
    most: usize,
    frees: u64,
    /// How many were taken so far: of equals the first comes first.
    taken: u64,
    /// The worst on top.
    heap: BinaryHeap<Candidate<T>>,
}

/// A file that may leave.
#[derive(Debug)]
struct Candidate<T> {
    /// The lowest leaves first.
    key: i128,
    number: u64,
    frees: ByteSize,
    item: T,
}

impl<T> Selection<T> {
    /// For this many bytes, and this many files at most.
    pub fn new(need: ByteSize, most: usize) -> Selection<T> {
        Selection { need, most: most.max(1), frees: 0, taken: 0, heap: BinaryHeap::new() }
    }

    /// Whether a file with this key would be taken. Asked before what is costly to find out.
    pub fn takes(&self, key: i128) -> bool {
        let is_full = self.frees >= self.need.0 || self.heap.len() >= self.most;
        !is_full || self.heap.peek().is_some_and(|worst| key < worst.key)
    }

    /// Takes a file that frees `frees` bytes, unless enough better ones are known; files that are not needed any more
    /// go.
    pub fn offer(&mut self, key: i128, frees: ByteSize, item: T) {
        if !self.takes(key) {
            return;
        }
        self.heap.push(Candidate { key, number: self.taken, frees, item });
        self.taken += 1;
        self.frees = self.frees.saturating_add(frees.0);
        while let Some(worst) = self.heap.peek() {
            let rest = self.frees.saturating_sub(worst.frees.0);
            if rest < self.need.0 && self.heap.len() <= self.most {
                break;
            }
            self.frees = rest;
            self.heap.pop();
        }
    }

    /// Bytes that all of them free.
    pub fn frees(&self) -> ByteSize {
        ByteSize(self.frees)
    }

    /// The files, the best first.
    pub fn into_sorted(self) -> impl Iterator<Item = T> {
        self.heap.into_sorted_vec().into_iter().map(|candidate| candidate.item)
    }
}

impl<T> Ord for Candidate<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.key, self.number).cmp(&(other.key, other.number))
    }
}

impl<T> PartialOrd for Candidate<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Candidate<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<T> Eq for Candidate<T> {}
