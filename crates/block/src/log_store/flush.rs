//! Writing chunks, and making them durable.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::MutexGuard;
use umbrella_units::{BLOCK_SECTORS, Lba};

use super::core::Blocked;
use super::engine::{MOST_WAITING, StoreShared, StoreState};
use super::format::Sequence;
use crate::device::Durability;
use crate::error::{BlockError, Operation};

/// How long after a flush the log says that it had ended, if nothing was written since that says so.
pub(super) const MARK_AFTER: Duration = Duration::from_secs(1);

impl StoreShared {
    /// A thread that writes complete chunks, in their order, until the store is closed.
    pub(super) fn run_writer(&self) {
        let mut state = self.state.lock();
        while !(state.closing && state.core.chunks.waiting.is_empty()) {
            if state.poisoned.is_some() || !self.write_one(&mut state) {
                if state.closing {
                    return;
                }
                self.writer.wait(&mut state);
            }
        }
    }

    /// Writes the next complete chunk; whether there was one.
    fn write_one(&self, state: &mut MutexGuard<'_, StoreState>) -> bool {
        let Some(chunk) = state.core.chunks.waiting.pop_front() else { return false };
        state.core.chunks.writing.push(Arc::clone(&chunk));
        let block = self.device_block(chunk.start);
        let done = MutexGuard::unlocked(state, || {
            self.moved(block, chunk.bytes.len());
            self.named.device.write(Lba(block.0 * BLOCK_SECTORS), &chunk.bytes, Durability::Cached)
        });
        match done {
            Ok(()) => {
                state.core.written(&chunk);
                if let Ok(chunk) = Arc::try_unwrap(chunk)
                    && state.core.chunks.spare.len() < MOST_WAITING
                {
                    state.core.chunks.spare.push(chunk.bytes);
                }
            }
            // The chunk stays where it can be read.
            Err(error) => self.poison(state, Operation::Write, &error),
        }
        self.written.notify_all();
        true
    }

    /// Waits until a chunk has been written, or a flush has ended.
    pub(super) fn wait_written(&self, state: &mut MutexGuard<'_, StoreState>) {
        if state.has_writers() {
            self.writer.notify_all();
            self.written.wait(state);
        } else if state.poisoned.is_none() && !self.write_one(state) {
            self.written.wait_until(state, Instant::now() + std::time::Duration::from_millis(10));
        }
    }

    /// Returns when so few chunks wait to be written that another may be begun.
    pub(super) fn wait_for_writers(&self, state: &mut MutexGuard<'_, StoreState>) -> Result<(), BlockError> {
        self.refuse_if_poisoned(state)?;
        while state.core.chunks.waiting.len() >= MOST_WAITING {
            self.wait_written(state);
            self.refuse_if_poisoned(state)?;
        }
        Ok(())
    }

    /// There may be a chunk to write.
    pub(super) fn wake_writers(&self, state: &mut MutexGuard<'_, StoreState>) {
        if !state.core.chunks.waiting.is_empty() {
            if state.threads {
                self.writer.notify_one();
            } else {
                while state.poisoned.is_none() && self.write_one(state) {}
            }
        }
    }

    /// Makes durable all that users wrote.
    pub(super) fn flush_all(&self) -> Result<(), BlockError> {
        self.flush_user(&mut self.state.lock())
    }

    /// The same, under the lock.
    pub(super) fn flush_user(&self, state: &mut MutexGuard<'_, StoreState>) -> Result<(), BlockError> {
        self.seal_all(state, true)?;
        let goal = state.core.next_sequence.before();
        self.flush_until(state, goal)?;
        state.answered = state.answered.max(goal);
        state.answered_at = Instant::now();
        Ok(())
    }

    /// Has the log say that what users flushed is durable, when nothing more is written to say so. Whether there was
    /// anything to say.
    pub(super) fn mark_flushed(&self, state: &mut MutexGuard<'_, StoreState>) -> Result<bool, BlockError> {
        if state.answered_at.elapsed() < MARK_AFTER || state.answered <= state.core.marked {
            return Ok(false);
        }
        let before = state.core.next_sequence;
        match state.core.mark() {
            Ok(()) | Err(Blocked::Full) => {}
            Err(stop) => return Err(self.defect(state, stop)),
        }
        self.wake_writers(state);
        // Where there was no room for it nothing is gained by trying at once again.
        Ok(state.core.next_sequence != before)
    }

    /// Completes the chunks that have something of users, or all.
    pub(super) fn seal_all(
        &self,
        state: &mut MutexGuard<'_, StoreState>,
        only_of_user: bool,
    ) -> Result<(), BlockError> {
        loop {
            self.refuse_if_poisoned(state)?;
            match state.core.seal_all(only_of_user) {
                Ok(()) => break,
                // A thread that makes room must not wait for room.
                Err(Blocked::Full) if !only_of_user => break,
                Err(stop) => self.unblock(state, stop)?,
            }
            if !state.core.has_unsealed_of_user() && only_of_user {
                break;
            }
        }
        self.wake_writers(state);
        Ok(())
    }

    /// Returns when all chunks up to `goal` are durable. One flush of the device serves all waiting callers.
    pub(super) fn flush_until(&self, state: &mut MutexGuard<'_, StoreState>, goal: Sequence) -> Result<(), BlockError> {
        while state.flushed_until < goal {
            self.refuse_if_poisoned(state)?;
            if state.core.written_until() < goal {
                self.wait_written(state);
            } else if state.flushing {
                self.written.wait(state);
            } else {
                state.flushing = true;
                let until = state.core.written_until();
                let done = MutexGuard::unlocked(state, || self.named.flush());
                state.flushing = false;
                match done {
                    Ok(()) => {
                        state.flushed_until = state.flushed_until.max(until);
                        state.core.flushed = state.flushed_until;
                    }
                    Err(error) => self.poison(state, Operation::Flush, &error),
                }
                self.written.notify_all();
            }
        }
        Ok(())
    }
}
