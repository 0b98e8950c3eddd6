//! Whether a reply with old attributes of a node may still be on its way to the kernel when the node changes.
//!
//! For some changes the kernel learns only that its cached attributes are stale. A lookup from before the change may be
//! answered after it, and the kernel would cache stale attributes. But it ignores a reply to a request from before its
//! attributes were dropped. So a change drops them if another thread has looked since the last change: that reply may
//! be on its way. Replies to the thread that asks for the change have arrived, else it would not ask.
//!
//! A look is noted before it is made: for a node ([`Looks::note`]), or for a name whose node is not known yet
//! ([`Lookups::begin`]; the node notes it before that ends).

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// Which threads looked: none, one by its number, or several. One without a number counts as several.
const NONE: u32 = 0;
const SEVERAL: u32 = u32::MAX;
/// Larger than any thread's number (`PID_MAX_LIMIT`).
const OWN: u32 = 1 << 30;

thread_local! {
    /// The thread that this thread works for; itself by default.
    static ASKER: Cell<u32> = {
        static LAST: AtomicU32 = AtomicU32::new(OWN);
        Cell::new(LAST.fetch_add(1, Ordering::Relaxed))
    };
}

/// This thread carries out requests of that one from now on; 0: of one whose number is not known.
pub(crate) fn work_for(thread: u32) {
    ASKER.set(if thread == 0 { SEVERAL } else { thread });
}

/// The threads that looked at a node since its last change.
#[derive(Debug, Default)]
pub(crate) struct Looks(AtomicU32);

impl Looks {
    /// Notes a look by the thread that this thread works for.
    pub(crate) fn note(&self) {
        let asker = ASKER.get();
        let also = |before| match before {
            NONE => Some(asker),
            one if one == asker || one == SEVERAL => None,
            _ => Some(SEVERAL),
        };
        // An error says that it is known.
        let _known = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, also);
    }

    /// After a change: whether the reply to a look that did not see it may be on its way. The next one is asked for
    /// looks from here on.
    pub(crate) fn may_race_with_reply(&self) -> bool {
        if self.0.load(Ordering::SeqCst) == NONE {
            return false;
        }
        let looked = self.0.swap(NONE, Ordering::SeqCst);
        looked == SEVERAL || looked != ASKER.get()
    }
}

/// Lookups of names under way.
#[derive(Debug, Default)]
pub(crate) struct Lookups(AtomicUsize);

/// A lookup, until this is dropped.
pub(crate) struct UnderWay<'a>(&'a Lookups);

impl Lookups {
    pub(crate) fn begin(&self) -> UnderWay<'_> {
        self.0.fetch_add(1, Ordering::SeqCst);
        UnderWay(self)
    }

    pub(crate) fn any(&self) -> bool {
        self.0.load(Ordering::SeqCst) > 0
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_knows_whether_another_thread_looked_before_it() {
        let looks = Looks::default();
        let elsewhere = || std::thread::scope(|scope| scope.spawn(|| looks.note()).join().unwrap());
        assert!(!looks.may_race_with_reply(), "nobody looked");
        looks.note();
        assert!(!looks.may_race_with_reply(), "the reply of this thread has arrived");
        elsewhere();
        assert!(looks.may_race_with_reply() && !looks.may_race_with_reply(), "once for each look");
        for look_again in [true, false] {
            if look_again {
                looks.note();
            }
            elsewhere();
            if !look_again {
                looks.note();
            }
            assert!(looks.may_race_with_reply(), "one of two has arrived");
        }
    }

    #[test]
    fn it_is_the_thread_of_the_program_that_counts() {
        let looks = Looks::default();
        let look_for = |thread| {
            let look = || {
                work_for(thread);
                looks.note();
            };
            std::thread::scope(|scope| scope.spawn(look).join().unwrap());
        };
        work_for(100);
        look_for(100);
        assert!(!looks.may_race_with_reply(), "it has the reply, whoever served it");
        looks.note();
        work_for(101);
        assert!(looks.may_race_with_reply(), "served by one thread, for two");
        for unknown in [0, 101] {
            look_for(0);
            work_for(unknown);
            assert!(looks.may_race_with_reply(), "that may be anybody");
        }
    }
}
