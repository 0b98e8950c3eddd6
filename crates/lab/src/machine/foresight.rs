//! The future, for offline policies: when each page is written next.
//!
//! A first run of the same input logs every write of a page; the run of the offline policy looks its pages up there, the
//! n-th write of a page after the n-th. The clients of a closed loop are a little faster or slower in the second run, so
//! times there are estimates; the order of one page's writes is exact.

use rustc_hash::FxHashMap;
use umbrella_units::{Nanos, PageKey};

/// When pages were written, in one run.
#[derive(Debug, Clone, Default)]
pub struct WriteLog {
    writes: FxHashMap<PageKey, Vec<Nanos>>,
}

impl WriteLog {
    /// The page was written.
    pub(super) fn record(&mut self, page: PageKey, now: Nanos) {
        self.writes.entry(page).or_default().push(now);
    }
}

/// A log, read along.
#[derive(Debug, Clone)]
pub struct Foresight {
    log: std::sync::Arc<WriteLog>,
    seen: FxHashMap<PageKey, usize>,
}

impl Foresight {
    /// Reads `log` from its beginning.
    pub fn new(log: std::sync::Arc<WriteLog>) -> Foresight {
        Foresight { log, seen: FxHashMap::default() }
    }

    /// The page is written now: when will it be written next?
    pub(super) fn next_write(&mut self, page: PageKey, now: Nanos) -> Nanos {
        let seen = self.seen.entry(page).or_insert(0);
        *seen += 1;
        self.log.writes.get(&page).and_then(|writes| writes.get(*seen)).map_or(Nanos::NEVER, |next| (*next).max(now))
    }
}
