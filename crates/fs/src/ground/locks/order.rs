//! Which locks this thread holds, and whether it may wait for one more.

use std::cell::RefCell;
use std::panic::Location;

use super::rank::Rank;

/// Whose locks they are: the model checker runs all its threads on one.
#[cfg(feature = "model-check")]
type Thread = Option<shuttle::scheduler::TaskId>;
#[cfg(not(feature = "model-check"))]
#[derive(Clone, Copy, PartialEq, Eq)]
struct Thread;

#[cfg(feature = "model-check")]
fn this_thread() -> Thread {
    shuttle::current::try_get_current_task()
}

#[cfg(not(feature = "model-check"))]
fn this_thread() -> Thread {
    Thread
}

thread_local! {
    static HELD: RefCell<Vec<Lock>> = const { RefCell::new(Vec::new()) };
}

/// A lock that is held, and where it was taken.
#[derive(Clone, Copy)]
struct Lock {
    thread: Thread,
    rank: Rank,
    key: u64,
    at: &'static Location<'static>,
}

/// What orders locks of one rank.
#[derive(Clone, Copy)]
pub(super) struct Key(u64);

impl Key {
    pub(super) const fn new(key: u64) -> Key {
        Key(key)
    }
}

/// While it lives, the lock counts as held.
pub(super) struct Held {
    thread: Thread,
    rank: Rank,
    key: u64,
    /// Guards stay on their thread.
    _here: std::marker::PhantomData<*const ()>,
}

impl Held {
    /// For a lock that is waited for: panics if the order forbids it.
    #[track_caller]
    pub(super) fn after_wait(rank: Rank, key: Key) -> Held {
        let last = HELD.try_with(|held| {
            let held = held.borrow();
            held.iter().filter(|lock| lock.thread == this_thread()).max_by_key(|lock| (lock.rank, lock.key)).copied()
        });
        if let Ok(Some(last)) = last
            && (rank, key.0) <= (last.rank, last.key)
            && !std::thread::panicking()
        {
            panic!(
                "lock order: {rank:?} (key {}) is waited for while {:?} (key {}) is held since {}; the order is in ground/locks/rank.rs",
                key.0, last.rank, last.key, last.at
            );
        }
        Held::at_once(rank, key)
    }

    /// For a lock that was free.
    #[track_caller]
    pub(super) fn at_once(rank: Rank, key: Key) -> Held {
        let lock = Lock { thread: this_thread(), rank, key: key.0, at: Location::caller() };
        // A thread that is at its end has no such list any more, and takes one lock at a time.
        let _listed = HELD.try_with(|held| held.borrow_mut().push(lock));
        Held { thread: lock.thread, rank, key: key.0, _here: std::marker::PhantomData }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let _listed = HELD.try_with(|held| {
            let mut held = held.borrow_mut();
            if let Some(at) =
                held.iter().rposition(|lock| (lock.thread, lock.rank, lock.key) == (self.thread, self.rank, self.key))
            {
                held.remove(at);
            }
        });
    }
}
