//! Who uses the attributes that come with a listing.
//!
//! Reading them costs an inode each, and a listing for names alone uses none; asking for them one by one costs a round trip each. The
//! kernel asks for all entries with attributes whoever lists them. So a thread gets those of a few entries, which is all of most
//! directories, and of the others the names. It gets all of them once it has shown that it uses them: it has asked for an entry of a
//! directory that it listed so, or for the attributes that `ls -l` wants of a directory before it lists it.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::node::NodeId;

/// So many entries come with attributes for everybody.
pub(super) const FEW: usize = 32;

const SLOTS: usize = 64;
/// Process ids are smaller (`PID_MAX_LIMIT`).
const PID_BITS: u32 = 22;
/// Stands in the place of a directory: no node has it.
const USES_THEM: u64 = u64::MAX >> PID_BITS;

/// Threads that listed something lately: of each slot the last one, with the directory, or that it uses attributes.
#[derive(Debug)]
pub(super) struct Readers([AtomicU64; SLOTS]);

impl Readers {
    pub(super) fn new() -> Readers {
        Readers([const { AtomicU64::new(0) }; SLOTS])
    }

    /// How many entries of a listing that a thread begins are to have attributes.
    pub(super) fn begin(&self, thread: u32, dir: NodeId) -> usize {
        if self.uses_them(thread) {
            return usize::MAX;
        }
        if let Some(slot) = self.slot(thread) {
            slot.store(state(thread, dir.0), Ordering::Relaxed);
        }
        FEW
    }

    /// The same of one that goes on.
    pub(super) fn go_on(&self, thread: u32) -> usize {
        if self.uses_them(thread) { usize::MAX } else { 0 }
    }

    fn uses_them(&self, thread: u32) -> bool {
        self.slot(thread).is_none_or(|slot| slot.load(Ordering::Relaxed) == state(thread, USES_THEM))
    }

    /// A thread asks for what programs ask for that show attributes.
    pub(super) fn shows_attributes(&self, thread: u32) {
        if let Some(slot) = self.slot(thread) {
            slot.store(state(thread, USES_THEM), Ordering::Relaxed);
        }
    }

    /// A thread asks for an entry of a directory.
    pub(super) fn asked(&self, thread: u32, dir: NodeId) {
        if let Some(slot) = self.slot(thread)
            && slot.load(Ordering::Relaxed) == state(thread, dir.0)
        {
            self.shows_attributes(thread);
        }
    }

    /// None for the kernel's own requests.
    fn slot(&self, thread: u32) -> Option<&AtomicU64> {
        self.0.get(thread as usize % SLOTS).filter(|_| thread != 0)
    }
}

/// Two directories may look alike: a thread is then taken for one that uses attributes, no more.
fn state(thread: u32, dir: u64) -> u64 {
    u64::from(thread) << (64 - PID_BITS) | dir & USES_THEM
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_for_what_it_listed_gets_all_attributes_from_then_on() {
        let readers = Readers::new();
        let (one, other) = (NodeId(2), NodeId(3));
        assert_eq!(readers.begin(100, one), FEW);
        readers.asked(101, one);
        readers.asked(100, other);
        assert_eq!(readers.begin(100, one), FEW, "another thread, or another directory");
        readers.asked(100, one);
        assert_eq!((readers.begin(100, other), readers.go_on(100)), (usize::MAX, usize::MAX));
        assert_eq!((readers.begin(101, one), readers.go_on(101)), (FEW, 0));
        readers.begin(100 + SLOTS as u32, one);
        assert_eq!(readers.begin(100, one), FEW, "its slot is another's now");
        assert_eq!(readers.begin(0, one), usize::MAX, "the kernel's own");
    }

    #[test]
    fn who_asks_for_what_ls_shows_gets_all_attributes_of_the_first_listing() {
        let readers = Readers::new();
        readers.shows_attributes(100);
        assert_eq!((readers.begin(100, NodeId(2)), readers.go_on(100)), (usize::MAX, usize::MAX));
    }
}
