//! As `order`, where nothing is checked.

use super::rank::{self, Rank};
use super::{RankedMutex, RankedMutexGuard, RankedRwLock, ReadGuard, raw};

// A lock costs nothing here.
const _: () = assert!(size_of::<RankedMutex<rank::DirCommit, u64>>() == size_of::<raw::Mutex<u64>>());
const _: () = assert!(size_of::<RankedRwLock<rank::DirState, u64>>() == size_of::<raw::RwLock<u64>>());
const _: () = assert!(size_of::<RankedMutexGuard<'_, u64>>() == size_of::<raw::MutexGuard<'_, u64>>());
const _: () = assert!(size_of::<ReadGuard<'_, u64>>() == size_of::<raw::RwLockReadGuard<'_, u64>>());

/// What orders locks of one rank.
#[derive(Clone, Copy)]
pub(super) struct Key;

impl Key {
    pub(super) const fn new(_key: u64) -> Key {
        Key
    }
}

/// While it lives, the lock counts as held.
pub(super) struct Held;

impl Held {
    #[inline]
    pub(super) fn after_wait(_rank: Rank, _key: Key) -> Held {
        Held
    }

    #[inline]
    pub(super) fn at_once(_rank: Rank, _key: Key) -> Held {
        Held
    }
}
