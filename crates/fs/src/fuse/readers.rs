//! Who uses the attributes that come with a listing.
//!
//! Reading them costs an inode each, and a listing for names alone uses none; asking for them one by one costs a round trip each. The
//! kernel asks for all entries with attributes whoever lists them. So a thread gets those of small directories, which most are, and of
//! others the names. It gets all of them once it has shown that it uses them: it has asked for an entry of a directory that it listed
//! so, or for what `ls -l` (labels), `rm -r` and `du` (the kind of file system) want to know of a directory before they list it.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::node::NodeId;

/// Directories of so many entries come with attributes for everybody.
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

    /// Whether a listing of so many entries that a thread begins is to have attributes.
    pub(super) fn begin(&self, thread: u32, dir: NodeId, entries: usize) -> bool {
        if self.use_them(thread) {
            return true;
        }
        if let Some(slot) = self.slot(thread) {
            slot.store(state(thread, dir.0), Ordering::Relaxed);
        }
        entries <= FEW
    }

    /// Whether a thread uses attributes, as far as is known.
    pub(super) fn use_them(&self, thread: u32) -> bool {
        self.slot(thread).is_none_or(|slot| slot.load(Ordering::Relaxed) == state(thread, USES_THEM))
    }

    /// A thread asks for what programs ask for that use attributes.
    pub(super) fn will_use_them(&self, thread: u32) {
        if let Some(slot) = self.slot(thread) {
            slot.store(state(thread, USES_THEM), Ordering::Relaxed);
        }
    }

    /// A thread asks for an entry of a directory.
    pub(super) fn asked(&self, thread: u32, dir: NodeId) {
        if let Some(slot) = self.slot(thread)
            && slot.load(Ordering::Relaxed) == state(thread, dir.0)
        {
            self.will_use_them(thread);
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
        let begin = |thread, dir| readers.begin(thread, dir, FEW + 1);
        assert!(!begin(100, one));
        assert!(readers.begin(102, one, FEW), "a small directory");
        readers.asked(101, one);
        readers.asked(100, other);
        assert!(!begin(100, one), "another thread, or another directory");
        readers.asked(100, one);
        assert!(begin(100, other) && readers.use_them(100));
        assert!(!begin(101, one) && !readers.use_them(101));
        begin(100 + SLOTS as u32, one);
        assert!(!begin(100, one), "its slot is another's now");
        assert!(begin(0, one), "the kernel's own");
    }

    #[test]
    fn who_will_use_attributes_gets_them_with_the_first_listing() {
        let readers = Readers::new();
        readers.will_use_them(100);
        assert!(readers.begin(100, NodeId(2), FEW + 1) && readers.use_them(100));
    }
}
