//! Who uses the attributes that come with a listing.
//!
//! Reading them costs an inode each, and a listing for names alone uses none; asking for them one by one costs a round trip each. The
//! kernel asks for a directory's first entries with attributes whoever lists it. So a thread gets those of a few entries, which is all of
//! most directories; and once it has asked for an entry of a directory that it listed so, it gets them all from then on.

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
        let Some(slot) = self.slot(thread) else { return usize::MAX };
        if slot.load(Ordering::Relaxed) == state(thread, USES_THEM) {
            return usize::MAX;
        }
        slot.store(state(thread, dir.0), Ordering::Relaxed);
        FEW
    }

    /// A thread asks for an entry of a directory.
    pub(super) fn asked(&self, thread: u32, dir: NodeId) {
        if let Some(slot) = self.slot(thread)
            && slot.load(Ordering::Relaxed) == state(thread, dir.0)
        {
            slot.store(state(thread, USES_THEM), Ordering::Relaxed);
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
        assert_eq!(readers.begin(100, other), usize::MAX);
        assert_eq!(readers.begin(101, one), FEW);
        readers.begin(100 + SLOTS as u32, one);
        assert_eq!(readers.begin(100, one), FEW, "its slot is another's now");
        assert_eq!(readers.begin(0, one), usize::MAX, "the kernel's own");
    }
}
