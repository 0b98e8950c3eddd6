//! The changes that a page cache reports to its caller.

use umbrella_units::PageKey;

/// What a read or a write found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// The page was in memory.
    Hit,
    /// The page was not in memory. A write put it there; after a read, read it from disk and
    /// [`PageCache::fill`](super::PageCache::fill) it in.
    Miss,
    /// The page was not in memory, and no clean page could leave for it: nothing happened. Ask
    /// [`PageCache::make_room`](super::PageCache::make_room) what to write.
    Full,
}

/// An event of a page. All except [`Change::Dropped`] concern dirty pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// A clean page, or one on its way to disk, was written: it is dirty now.
    Dirtied {
        /// Which page.
        page: PageKey,
        /// Whether it is on the active list.
        active: bool,
    },
    /// A dirty page was written again.
    Rewritten {
        /// Which page.
        page: PageKey,
    },
    /// A dirty page was read.
    Touched {
        /// Which page.
        page: PageKey,
    },
    /// A dirty page went to the active list.
    Activated {
        /// Which page.
        page: PageKey,
    },
    /// A dirty page went to the inactive list.
    Deactivated {
        /// Which page.
        page: PageKey,
    },
    /// A clean page left memory.
    Dropped {
        /// Which page.
        page: PageKey,
    },
    /// A dirty page left memory and need not be written: its file was cut or deleted.
    Cleaned {
        /// Which page.
        page: PageKey,
    },
}

/// The outcome for a page that was due to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteStart {
    /// It is on its way to disk.
    Begun,
    /// It is still on its way from before.
    Later,
    /// It was written already since it was queued, or is gone.
    NotWanted,
}

/// What the thresholds ask for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Demand {
    /// Pages to write in the background now: whole batches until the dirty pages are not above the threshold; zero when
    /// they are not.
    pub background: u64,
    /// Whether writers wait.
    pub throttled: bool,
}

/// No room is available without writing. There is room once `pages` pages are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{pages} dirty pages must be written to make room, {on_their_way} more are being written")]
pub struct NeedsWriteBack {
    /// Dirty pages whose write-back must begin. Zero, and zero on their way: all memory is held
    /// ([`PageCache::set_held`](super::PageCache::set_held)), or more was asked for than there is.
    pub pages: u64,
    /// Pages whose write-back is under way and whose completion makes room as well.
    pub on_their_way: u64,
}

/// Pages by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Pages in memory.
    pub pages: u64,
    /// Pages on the active list.
    pub active: u64,
    /// Pages that are dirty and whose write-back has not begun, or that were written again since it began.
    pub dirty: u64,
    /// Pages on their way to disk.
    pub write_back: u64,
    /// Pages that are either, those that are both counted once.
    pub unwritten: u64,
}
