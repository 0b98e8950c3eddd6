//! Which threads use the attributes that come with a listing.
//!
//! Reading the attributes with a listing costs an inode each, and a listing for names alone uses none. Asking for them
//! one by one costs a round trip each. The kernel asks for all entries with attributes, whichever program lists them.
//! So a thread gets the attributes of small directories, which most are; of larger ones it gets the names only.
//!
//! A thread gets all attributes once it has shown that it uses them, in one of two ways:
//!
//! - It has asked for an entry of a directory that it listed without them.
//! - It has asked for what programs want to know of a directory before they list it: `ls -l` reads labels, `rm -r` and
//!   `du` the kind of file system.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::node::NodeId;

/// Most entries of a directory whose listing comes with attributes for every thread.
pub(super) const SMALL_DIRECTORY: usize = 32;

const SLOTS: usize = 64;
/// Process ids are smaller (`PID_MAX_LIMIT`).
const PID_BITS: u32 = 22;
/// Stands in the place of a directory: no node has it.
const USES_ATTRIBUTES: u64 = u64::MAX >> PID_BITS;

/// Threads that listed something lately: of each slot the last one, with the directory, or that it uses attributes.
#[derive(Debug)]
pub(super) struct AttributeUse([AtomicU64; SLOTS]);

impl AttributeUse {
    pub(super) fn new() -> AttributeUse {
        AttributeUse([const { AtomicU64::new(0) }; SLOTS])
    }

    /// Whether the listing of `entries` entries that a thread begins is to have attributes.
    pub(super) fn begin_listing(&self, thread: u32, dir: NodeId, entries: usize) -> bool {
        if self.is_expected(thread) {
            return true;
        }
        if let Some(slot) = self.slot(thread) {
            slot.store(state(thread, dir.0), Ordering::Relaxed);
        }
        entries <= SMALL_DIRECTORY
    }

    /// Whether a thread uses attributes, as far as is known.
    pub(super) fn is_expected(&self, thread: u32) -> bool {
        self.slot(thread).is_none_or(|slot| slot.load(Ordering::Relaxed) == state(thread, USES_ATTRIBUTES))
    }

    /// A thread asks for what only programs that use attributes ask for.
    pub(super) fn expect(&self, thread: u32) {
        if let Some(slot) = self.slot(thread) {
            slot.store(state(thread, USES_ATTRIBUTES), Ordering::Relaxed);
        }
    }

    /// A thread looks up an entry of a directory.
    pub(super) fn looked_up(&self, thread: u32, dir: NodeId) {
        if let Some(slot) = self.slot(thread)
            && slot.load(Ordering::Relaxed) == state(thread, dir.0)
        {
            self.expect(thread);
        }
    }

    /// None for the kernel's own requests.
    fn slot(&self, thread: u32) -> Option<&AtomicU64> {
        self.0.get(thread as usize % SLOTS).filter(|_| thread != 0)
    }
}

/// Two directories may look alike: a thread is then taken for one that uses attributes, no more.
fn state(thread: u32, dir: u64) -> u64 {
    u64::from(thread) << (64 - PID_BITS) | dir & USES_ATTRIBUTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_for_what_it_listed_gets_all_attributes_from_then_on() {
        let threads = AttributeUse::new();
        let (one, other) = (NodeId(2), NodeId(3));
        let begin = |thread, dir| threads.begin_listing(thread, dir, SMALL_DIRECTORY + 1);
        assert!(!begin(100, one));
        assert!(threads.begin_listing(102, one, SMALL_DIRECTORY), "a small directory");
        threads.looked_up(101, one);
        threads.looked_up(100, other);
        assert!(!begin(100, one), "another thread, or another directory");
        threads.looked_up(100, one);
        assert!(begin(100, other) && threads.is_expected(100));
        assert!(!begin(101, one) && !threads.is_expected(101));
        begin(100 + SLOTS as u32, one);
        assert!(!begin(100, one), "its slot is another's now");
        assert!(begin(0, one), "the kernel's own");
    }

    #[test]
    fn who_will_use_attributes_gets_them_with_the_first_listing() {
        let threads = AttributeUse::new();
        threads.expect(100);
        assert!(threads.begin_listing(100, NodeId(2), SMALL_DIRECTORY + 1) && threads.is_expected(100));
    }
}
