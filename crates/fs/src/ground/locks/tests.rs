//! Tests of the ranks.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;

fn refusal(attempt: impl FnOnce()) -> String {
    let refused = catch_unwind(AssertUnwindSafe(attempt)).expect_err("the order forbids it");
    refused.downcast_ref::<String>().cloned().unwrap_or_default()
}

#[test]
#[cfg(debug_assertions)]
fn a_lock_that_comes_earlier_in_the_order_is_refused_with_both_names() {
    let (names, state) = (RankedRwLock::<rank::TreeNames, _>::new(()), RankedMutex::<rank::DirCommit, _>::new(()));
    let held = state.lock();
    let refused = refusal(|| drop(names.read()));
    assert!(refused.contains("TreeNames") && refused.contains("DirCommit") && refused.contains(file!()), "{refused}");
    drop(held);
    let _names = names.read();
    let _state = state.lock();
}

#[test]
#[cfg(debug_assertions)]
fn locks_of_one_rank_are_taken_by_ascending_keys_and_none_twice() {
    let [first, second] = [1, 2].map(|key| RankedRwLock::<rank::FileIo, _>::keyed(key, ()));
    {
        let _first = first.read();
        let _second = second.read();
    }
    let _second = second.read();
    assert!(refusal(|| drop(first.read())).contains("key 1"));
    assert!(refusal(|| drop(second.read())).contains("key 2"), "a writer may wait between the two");
}

#[test]
#[cfg(debug_assertions)]
fn who_does_not_wait_may_ask_for_any_lock_and_what_it_gets_counts() {
    let (first, second) = (RankedMutex::<rank::DirCommit, _>::new(()), RankedMutex::<rank::DirTimes, _>::new(()));
    let later = second.lock();
    let earlier = first.try_lock();
    assert!(earlier.is_some() && first.try_lock().is_none());
    drop(later);
    assert!(refusal(|| drop(RankedMutex::<rank::DirListing, _>::new(()).lock())).contains("DirCommit"));
    drop(earlier);
    drop(RankedMutex::<rank::DirListing, _>::new(()).lock());
}

#[test]
#[cfg(debug_assertions)]
fn guards_may_go_in_any_order_and_each_thread_has_its_own() {
    let (first, second) = (RankedMutex::<rank::DirCommit, _>::new(()), RankedMutex::<rank::DirTimes, _>::new(()));
    let (one, two) = (first.lock(), second.lock());
    std::thread::scope(|scope| {
        scope.spawn(|| drop(RankedMutex::<rank::Branches, _>::new(()).lock()));
    });
    drop(one);
    drop(two);
    drop(first.lock());
}

#[test]
fn a_waiter_is_woken_and_its_lock_counts_as_held_throughout() {
    let (flag, changed) = (LeafMutex::<rank::Wakeup, _>::new(false), Condvar::new());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            *flag.lock() = true;
            changed.notify_all();
        });
        let mut guard = flag.lock();
        while !*guard {
            changed.wait(&mut guard);
        }
    });
}
