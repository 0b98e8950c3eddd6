//! Locks with a rank. A thread that holds a lock waits only for locks of a higher rank, so no two threads can wait for
//! each other. Debug builds check that at each lock and panic with both places; in release builds a lock here is the
//! plain one.
//!
//! - The ranks and their order: [`rank`].
//! - Several locks of one rank are taken in the order of their keys, which are the node ids. A lock without a key is
//!   alone in its rank.
//! - A `try_` without a time limit does not wait, so it may ask for any lock. What it holds counts for the locks after
//!   it.
//! - The feature `model-check` makes the locks those of the model checker. It then decides at each of them which thread
//!   goes on. A [`LeafMutex`] stays a plain lock: threads outside the checker use it, and no other lock is taken under
//!   it.

pub(crate) mod rank;

#[cfg(debug_assertions)]
mod order;
#[cfg(not(debug_assertions))]
#[path = "unchecked.rs"]
mod order;

#[cfg(test)]
mod tests;

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::time::{Duration, Instant};

use parking_lot::WaitTimeoutResult;
use parking_lot::lock_api;

use order::{Held, Key};
use rank::Ranked;

#[cfg(not(feature = "model-check"))]
use parking_lot as raw;
#[cfg(feature = "model-check")]
use shuttle_parking_lot as raw;

/// A mutex with a rank.
pub(crate) type RankedMutex<R, T> = Mutex<raw::RawMutex, R, T>;
/// A mutex with a rank, under which at most others of its kind are taken. A [`Condvar`] waits under one.
pub(crate) type LeafMutex<R, T> = Mutex<parking_lot::RawMutex, R, T>;
pub(crate) type RankedMutexGuard<'a, T> = MutexGuard<'a, raw::RawMutex, T>;
pub(crate) type LeafMutexGuard<'a, T> = MutexGuard<'a, parking_lot::RawMutex, T>;

/// See [`RankedMutex`] and [`LeafMutex`].
pub(crate) struct Mutex<L, R, T> {
    lock: lock_api::Mutex<L, T>,
    key: Key,
    rank: PhantomData<R>,
}

pub(crate) struct MutexGuard<'a, L: lock_api::RawMutex, T> {
    guard: lock_api::MutexGuard<'a, L, T>,
    // After the guard, so that it goes after it.
    _held: Held,
}

impl<L: lock_api::RawMutex, R: Ranked, T> Mutex<L, R, T> {
    pub(crate) const fn new(value: T) -> Self {
        Self::keyed(0, value)
    }

    /// One of several of its rank.
    pub(crate) const fn keyed(key: u64, value: T) -> Self {
        Self { lock: lock_api::Mutex::new(value), key: Key::new(key), rank: PhantomData }
    }

    #[inline]
    #[track_caller]
    pub(crate) fn lock(&self) -> MutexGuard<'_, L, T> {
        let held = Held::after_wait(R::RANK, self.key);
        MutexGuard { guard: self.lock.lock(), _held: held }
    }

    #[inline]
    #[track_caller]
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, L, T>> {
        let guard = self.lock.try_lock()?;
        Some(MutexGuard { guard, _held: Held::at_once(R::RANK, self.key) })
    }
}

impl<R: Ranked, T> RankedMutex<R, T> {
    #[track_caller]
    pub(crate) fn try_lock_for(&self, timeout: Duration) -> Option<RankedMutexGuard<'_, T>> {
        let held = Held::after_wait(R::RANK, self.key);
        #[cfg(not(feature = "model-check"))]
        let guard = self.lock.try_lock_for(timeout)?;
        #[cfg(feature = "model-check")]
        let (guard, _without_time) = (self.lock.lock(), timeout);
        Some(MutexGuard { guard, _held: held })
    }
}

impl<L: lock_api::RawMutex, R: Ranked, T: Default> Default for Mutex<L, R, T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<L: lock_api::RawMutex, R, T: std::fmt::Debug> std::fmt::Debug for Mutex<L, R, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.lock.fmt(f)
    }
}

impl<L: lock_api::RawMutex, T> Deref for MutexGuard<'_, L, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<L: lock_api::RawMutex, T> DerefMut for MutexGuard<'_, L, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

/// A readers-writer lock with a rank. Readers count like writers: two shared locks of one thread deadlock with a writer
/// between them.
pub(crate) struct RankedRwLock<R, T> {
    lock: raw::RwLock<T>,
    key: Key,
    rank: PhantomData<R>,
}

pub(crate) struct ReadGuard<'a, T> {
    guard: raw::RwLockReadGuard<'a, T>,
    _held: Held,
}

pub(crate) struct WriteGuard<'a, T> {
    guard: raw::RwLockWriteGuard<'a, T>,
    _held: Held,
}

impl<R: Ranked, T> RankedRwLock<R, T> {
    pub(crate) const fn new(value: T) -> Self {
        Self::keyed(0, value)
    }

    /// One of several of its rank.
    pub(crate) const fn keyed(key: u64, value: T) -> Self {
        Self { lock: raw::RwLock::new(value), key: Key::new(key), rank: PhantomData }
    }

    #[inline]
    #[track_caller]
    pub(crate) fn read(&self) -> ReadGuard<'_, T> {
        let held = Held::after_wait(R::RANK, self.key);
        ReadGuard { guard: self.lock.read(), _held: held }
    }

    #[inline]
    #[track_caller]
    pub(crate) fn write(&self) -> WriteGuard<'_, T> {
        let held = Held::after_wait(R::RANK, self.key);
        WriteGuard { guard: self.lock.write(), _held: held }
    }

    #[track_caller]
    pub(crate) fn try_read(&self) -> Option<ReadGuard<'_, T>> {
        let guard = self.lock.try_read()?;
        Some(ReadGuard { guard, _held: Held::at_once(R::RANK, self.key) })
    }

    #[track_caller]
    pub(crate) fn try_write(&self) -> Option<WriteGuard<'_, T>> {
        let guard = self.lock.try_write()?;
        Some(WriteGuard { guard, _held: Held::at_once(R::RANK, self.key) })
    }

    #[track_caller]
    pub(crate) fn try_write_for(&self, timeout: Duration) -> Option<WriteGuard<'_, T>> {
        let held = Held::after_wait(R::RANK, self.key);
        #[cfg(not(feature = "model-check"))]
        let guard = self.lock.try_write_for(timeout)?;
        #[cfg(feature = "model-check")]
        let (guard, _without_time) = (self.lock.write(), timeout);
        Some(WriteGuard { guard, _held: held })
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.lock.get_mut()
    }
}

impl<R: Ranked, T: Default> Default for RankedRwLock<R, T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<R, T: std::fmt::Debug> std::fmt::Debug for RankedRwLock<R, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.lock.fmt(f)
    }
}

impl<T> Deref for ReadGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> Deref for WriteGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for WriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

/// The model checker may let another thread go on here. Otherwise nothing.
#[inline]
pub(crate) fn scheduling_point() {
    #[cfg(feature = "model-check")]
    shuttle::sync::atomic::AtomicBool::new(false).load(std::sync::atomic::Ordering::SeqCst);
}

/// A condition variable of a [`LeafMutex`]. Other locks of the thread stay held while it waits.
#[derive(Debug, Default)]
pub(crate) struct Condvar(parking_lot::Condvar);

impl Condvar {
    pub(crate) const fn new() -> Self {
        Self(parking_lot::Condvar::new())
    }

    pub(crate) fn wait<T>(&self, guard: &mut LeafMutexGuard<'_, T>) {
        self.0.wait(&mut guard.guard);
    }

    pub(crate) fn wait_for<T>(&self, guard: &mut LeafMutexGuard<'_, T>, timeout: Duration) -> WaitTimeoutResult {
        self.0.wait_for(&mut guard.guard, timeout)
    }

    pub(crate) fn wait_until<T>(&self, guard: &mut LeafMutexGuard<'_, T>, deadline: Instant) -> WaitTimeoutResult {
        self.0.wait_until(&mut guard.guard, deadline)
    }

    pub(crate) fn wait_while_until<T>(
        &self,
        guard: &mut LeafMutexGuard<'_, T>,
        condition: impl FnMut(&mut T) -> bool,
        deadline: Instant,
    ) -> WaitTimeoutResult {
        self.0.wait_while_until(&mut guard.guard, condition, deadline)
    }

    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }
}
