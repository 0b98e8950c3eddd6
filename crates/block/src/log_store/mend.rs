//! Rebuilding pages of the map that turn out to be damaged while the store is used.
//!
//! 1. A checkpoint is made, and no other until this is done: all that it describes stays on the disk, for nothing becomes free meanwhile.
//! 2. Without the lock, the damaged pages are rebuilt as that checkpoint has them (`rebuild`). Nobody can have changed one since: who wants to change a page needs it in memory.
//! 3. Those that are rebuilt without a doubt are put into the map, and the next checkpoint writes them. Of others the doubtful blocks are lost if the store may give them up
//!    ([`Access::Salvage`](super::Access)), or is only looked at; else the page stays unusable.
//!
//! Who needs such a page waits; all others go on, as long as there is room.

use parking_lot::MutexGuard;
use umbrella_policy::log_layout::MapPage;

use super::checkpoint::End;
use super::engine::{Shared, State};
use super::error::LogStoreError;
use super::rebuild::{Rebuilt, rebuild};
use super::recover::as_noted;
use crate::error::BlockError;

impl Shared {
    /// Rebuilds what is damaged of the map, this page among it. The lock is let go of meanwhile.
    pub(super) fn mend(
        &self,
        state: &mut MutexGuard<'_, State>,
        page: MapPage,
        error: LogStoreError,
    ) -> Result<(), BlockError> {
        if state.mending {
            while state.mending {
                self.room.wait(state);
            }
            return Ok(());
        }
        state.mending = true;
        let is_written = !state.read_only && state.poisoned.is_none();
        let found = MutexGuard::unlocked(state, || {
            if is_written && !self.checkpoint(End::GoesOn)? {
                return Err(LogStoreError::NoRoom { device: self.named.name.clone() });
            }
            let no_checkpoint = self.checkpointing.lock();
            let core = as_noted(&self.named, self.options)?;
            Ok((rebuild(&self.named, &core), no_checkpoint))
        });
        let done = found.map(|(rebuilt, no_checkpoint)| {
            self.take_rebuilt(state, rebuilt);
            drop(no_checkpoint);
        });
        state.mending = false;
        self.room.notify_all();
        self.keeper.notify_one();
        done.map_err(|_| error.clone().on(&self.named.name))?;
        if state.core.map.is_absent(page) {
            let error = state.core.unusable.entry(page).or_insert(error).clone();
            return Err(error.on(&self.named.name));
        }
        Ok(())
    }

    fn take_rebuilt(&self, state: &mut State, rebuilt: Rebuilt) {
        let gives_up = state.gives_up || state.read_only;
        // Of pages that are in memory nothing is given up.
        if gives_up && rebuilt.pages.keys().all(|page| state.core.map.is_absent(*page)) {
            rebuilt.give_up(&mut state.core.layout);
            let others = state.core.map.lost().saturating_sub(rebuilt.hidden);
            state.core.map.count_lost(others + rebuilt.doubtful);
        }
        for (number, page) in rebuilt.pages {
            // Who had it in memory has the right one.
            if !state.core.map.is_absent(number) {
                state.core.map.mark_dirty(number);
                continue;
            }
            let (store, doubtful) = (&self.named.name, page.doubtful());
            if doubtful > 0 && !gives_up {
                tracing::error!(store, page = number.0, doubtful, error = %page.error, "a page of the map is damaged");
                state.core.unusable.insert(number, page.error);
                continue;
            }
            state.core.map.install(number, &page.entries);
            state.core.map.mark_dirty(number);
            let told = told(number, doubtful);
            tracing::warn!(store, "{told}");
            state.tally.mended.push(told);
        }
    }
}

/// What became of a page of the map, for people.
pub(super) fn told(MapPage(number): MapPage, doubtful: u64) -> String {
    let lost = if doubtful > 0 {
        format!("; {doubtful} of its blocks are lost until they are written again")
    } else {
        String::new()
    };
    format!("page {number} of the map was damaged, and was rebuilt from the log{lost}")
}
