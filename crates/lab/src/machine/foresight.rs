//! The future, for offline policies: until when each page's content is worth writing. That is until the page is written
//! again or cut off, or deleted with its file.
//!
//! A first run of the same input logs the ends of every page's contents. The run of the offline policy looks up its
//! pages there, the n-th write of a page with the n-th end. The clients of a closed loop are a little faster or slower
//! in the second run, so times there are estimates; the order of one page's writes is exact.

use rustc_hash::FxHashMap;
use umbrella_units::{ByteSize, Nanos, PageKey};

/// When pages were written or removed, in one run.
#[derive(Debug, Clone, Default)]
pub struct WriteLog {
    writes: FxHashMap<PageKey, Vec<Nanos>>,
    bytes: u64,
}

impl WriteLog {
    /// The most memory that a log takes, with what reading along takes.
    pub(super) const MOST: ByteSize = ByteSize(8 << 30);

    /// About what a page takes at most, and each of its writes.
    const PAGE: u64 = 144;
    const WRITE: u64 = 16;

    /// The page was written or removed. False if there is no room to remember it.
    #[must_use]
    pub(super) fn record(&mut self, page: PageKey, now: Nanos) -> bool {
        if self.bytes + Self::PAGE + Self::WRITE > Self::MOST.0 {
            return false;
        }
        let writes = self.writes.entry(page).or_default();
        self.bytes += Self::WRITE + if writes.is_empty() { Self::PAGE } else { 0 };
        writes.push(now);
        true
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

    /// The page is written or removed now: when will what it holds then have ended?
    pub(super) fn next_end(&mut self, page: PageKey, now: Nanos) -> Nanos {
        let seen = self.seen.entry(page).or_insert(0);
        *seen += 1;
        self.log.writes.get(&page).and_then(|writes| writes.get(*seen)).map_or(Nanos::NEVER, |next| (*next).max(now))
    }
}

#[cfg(test)]
mod tests {
    use umbrella_units::BlockNo;

    use super::*;

    #[test]
    fn what_is_too_much_to_remember_is_reported() {
        let page = PageKey::device(BlockNo(1));
        let mut log = WriteLog { bytes: WriteLog::MOST.0 - 2 * WriteLog::PAGE, ..WriteLog::default() };
        assert!(log.record(page, Nanos(1)));
        assert!(!log.record(page, Nanos(2)));
        let mut seen = Foresight::new(std::sync::Arc::new(log));
        assert_eq!(seen.next_end(page, Nanos(0)), Nanos::NEVER);
    }
}
