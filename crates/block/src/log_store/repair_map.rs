//! Rebuilding pages of the map that turn out to be damaged while the store is used.
//!
//! 1. A checkpoint is made, and no other until this is done: all that it describes stays on the disk, for nothing
//!    becomes free meanwhile.
//! 2. Without the lock, the damaged pages are rebuilt as that checkpoint has them (`rebuild`). None can have changed
//!    since, because a page has to be in memory to be changed.
//! 3. If pages that are in memory are damaged on the disk they are written anew, and it begins again: else their blocks
//!    would be counted among those that are lost.
//! 4. Those that are rebuilt without a doubt are put into the map, and the next checkpoint writes them. Of others the
//!    doubtful blocks are skipped, and lost, if the store may do so ([`OpenMode::Salvage`](super::Access)), or is only
//!    looked at; else the page stays unusable.
//!
//! A page that cannot be read is rebuilt in the same way, but only once. If that leaves a block in doubt, none is
//! skipped: the disk may read it later.
//!
//! Threads that need such a page wait, and the log reports progress every ten seconds. All others continue, as long as
//! there is room.

use parking_lot::MutexGuard;
use umbrella_policy::log_layout::MapPage;

use super::core::AfterCheckpoint;
use super::engine::{StoreShared, StoreState};
use super::error::LogStoreError;
use super::rebuild::{Rebuilt, describe_page, rebuild};
use super::recover::as_noted;
use crate::error::{BlockError, Operation};

/// How often pages that are in memory are written anew before others are rebuilt.
const MOST_ROUNDS: u32 = 3;

impl StoreState {
    /// Whether a checkpoint can be made.
    fn is_written(&self) -> bool {
        !self.read_only && self.poisoned.is_none()
    }
}

impl StoreShared {
    /// Rebuilds the damaged pages of the map, this one among them. Releases the lock meanwhile.
    pub(super) fn repair_map(
        &self,
        state: &mut MutexGuard<'_, StoreState>,
        page: MapPage,
        error: LogStoreError,
    ) -> Result<(), BlockError> {
        if state.unread.contains(&page) && matches!(error, LogStoreError::Device(_)) {
            return Err(error.on(&self.named.name));
        }
        if state.repairing_map {
            while state.repairing_map {
                self.room.wait(state);
            }
            return Ok(());
        }
        state.repairing_map = true;
        let store = &self.named.name;
        tracing::warn!(store, page = page.0, %error, "a page of the map is damaged: it is being rebuilt from the log");
        let done = self.rebuild_absent(state).and_then(|(rebuilt, no_checkpoint)| {
            let taken = self.install_rebuilt(state, rebuilt);
            drop(no_checkpoint);
            taken
        });
        state.repairing_map = false;
        self.room.notify_all();
        self.keeper.notify_one();
        if let Err(why) = done {
            tracing::error!(store, page = page.0, error = %why, "cannot rebuild a damaged page of the map");
            return Err(error.on(store));
        }
        tracing::info!(store, page = page.0, "finished rebuilding the map");
        match state.core.unusable.get(&page) {
            Some(error) => Err(error.clone().on(store)),
            // It could not be read, or can be now.
            None if state.core.map.is_absent(page) => Err(error.on(store)),
            None => Ok(()),
        }
    }

    /// Rebuilds the pages that are damaged on the disk and not in memory. No checkpoint is made as long as the guard is
    /// kept.
    ///
    /// A page that is in memory is the right one. It is written anew first: as long as the disk has it damaged, nobody
    /// can tell its blocks from those of the lost pages.
    fn rebuild_absent(
        &self,
        state: &mut MutexGuard<'_, StoreState>,
    ) -> Result<(Rebuilt, MutexGuard<'_, ()>), LogStoreError> {
        let mut rounds = 0;
        let was_closing = state.closing;
        loop {
            let (mut rebuilt, no_checkpoint) = MutexGuard::unlocked(state, || self.rebuild_as_noted(was_closing))?;
            rounds += 1;
            let present: Vec<MapPage> =
                rebuilt.pages.keys().copied().filter(|page| !state.core.map.is_absent(*page)).collect();
            for page in &present {
                state.core.map.mark_dirty(*page);
            }
            if present.is_empty() || !state.is_written() {
                rebuilt.retain(|page| state.core.map.is_absent(page));
                return Ok((rebuilt, no_checkpoint));
            }
            if rounds == MOST_ROUNDS {
                let damaged = rebuilt.pages.into_iter().find(|(page, _)| present.contains(page));
                return Err(damaged.map_or_else(|| self.closed_error(), |(_, page)| page.error));
            }
        }
    }

    /// Rebuilds all pages that are damaged on the disk as a checkpoint has them that is made now, if one can be. Ends
    /// when the store is being closed, unless it was before: what the end itself needs is rebuilt.
    fn rebuild_as_noted(&self, was_closing: bool) -> Result<(Rebuilt, MutexGuard<'_, ()>), LogStoreError> {
        let is_written = self.state.lock().is_written();
        if is_written && !self.checkpoint(AfterCheckpoint::GoesOn)? {
            return Err(LogStoreError::NoRoom { device: self.named.name.clone() });
        }
        let no_checkpoint = self.checkpointing.lock();
        let noted = self.state.lock().noted;
        let core = as_noted(&self.named, self.options, noted)?;
        let continues = || was_closing || !self.state.lock().closing;
        let rebuilt = rebuild(&self.named, &core, &continues).ok_or_else(|| self.closed_error())?;
        Ok((rebuilt, no_checkpoint))
    }

    fn closed_error(&self) -> LogStoreError {
        LogStoreError::Closing { device: self.named.name.clone() }
    }

    /// Installs rebuilt pages in the map, where they are absent.
    fn install_rebuilt(&self, state: &mut StoreState, rebuilt: Rebuilt) -> Result<(), LogStoreError> {
        let skips_lost = (state.skips_lost || state.read_only) && !rebuilt.may_be_read_later();
        if skips_lost {
            if let Err(defect) = rebuilt.skip_doubtful(&mut state.core.layout, &self.named.name) {
                self.poison(state, Operation::Write, &defect);
                return Err(defect.into());
            }
            state.core.map.count_lost(rebuilt.lost_with(&state.core.map));
        }
        for (number, page) in rebuilt.pages {
            let (store, doubtful) = (&self.named.name, page.doubtful());
            if doubtful > 0 && !skips_lost {
                tracing::error!(store, page = number.0, doubtful, error = %page.error, "a page of the map is damaged");
                if page.is_unread() {
                    state.unread.insert(number);
                } else {
                    state.core.unusable.insert(number, page.error);
                }
                continue;
            }
            state.core.map.install(number, &page.entries);
            state.core.map.mark_dirty(number);
            let reported = describe_page(number, doubtful);
            tracing::warn!(store, "{reported}");
            state.counts.repaired.push(reported);
        }
        Ok(())
    }
}
