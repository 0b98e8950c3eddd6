//! What the world tells a write-back policy, and what it answers. The live file system and the lab speak the same
//! events, so that a recorded run can be decided again, bit for bit.

use umbrella_units::{BlockNo, FileId, Nanos, PageIndex, PageKey};

/// Something that happened to a page or a file. An event about a page that is not in the index changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A clean page was written: it is dirty now. For a page that is dirty already the same as [`Event::Rewrite`].
    Dirty {
        /// Which page.
        page: PageKey,
        /// Where it lies on disk, or is expected to.
        block: BlockNo,
        /// Whether the page cache counts it as recently used already (`PG_active`).
        active: bool,
    },
    /// A dirty page was written again.
    Rewrite {
        /// Which page.
        page: PageKey,
    },
    /// A dirty page was read.
    Touch {
        /// Which page.
        page: PageKey,
    },
    /// The page cache counts the page as recently used from now on.
    Activate {
        /// Which page.
        page: PageKey,
    },
    /// The page cache no longer counts the page as recently used.
    Deactivate {
        /// Which page.
        page: PageKey,
    },
    /// The page was written, or will be, without the policy: the periodic write-back, an fsync, reclaim.
    Clean {
        /// Which page.
        page: PageKey,
    },
    /// The file ends before page `from`: later pages need not be written.
    Truncate {
        /// Which file.
        file: FileId,
        /// The first page that is gone.
        from: PageIndex,
    },
    /// The file is gone, and its dirty pages with it.
    Delete {
        /// Which file.
        file: FileId,
    },
    /// The page lies elsewhere than was said (delayed allocation, copy on write).
    Remap {
        /// Which page.
        page: PageKey,
        /// Where it lies now.
        block: BlockNo,
    },
    /// When the page will be written next. Only for policies that look into the future
    /// ([`super::PolicyInfo::offline`]); follows the [`Event::Dirty`] or [`Event::Rewrite`] that it belongs to.
    Foresee {
        /// Which page.
        page: PageKey,
        /// The time of its next write; [`Nanos::NEVER`] when there is none.
        next_write: Nanos,
    },
}

/// A page that was chosen: write it to this block. It is in the index no longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirtyPage {
    /// Which page.
    pub page: PageKey,
    /// Where it lies on disk.
    pub block: BlockNo,
}
