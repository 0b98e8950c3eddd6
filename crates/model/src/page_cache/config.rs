//! What a page cache is built with: its size, and the constants of the kernel that it stands for.
//!
//! Sources: Linux 2.6.12 `mm/page-writeback.c` (`dirty_background_ratio`, `vm_dirty_ratio`,
//! `dirty_writeback_centisecs`, `dirty_expire_centisecs`, `MAX_WRITEBACK_PAGES`) and `mm/vmscan.c` (how the two lists
//! are scanned). Later values: UmbrellaFS, chapter IV (5 % and 10 %), Linux 2.6.30 and after (10 % and 20 %).

use serde::{Deserialize, Serialize};
use umbrella_units::Nanos;

/// What is dirty for too long.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExpireBy {
    /// A file, with all its pages, as the kernel sees it.
    #[default]
    Files,
    /// Each page by itself: for a block device whose files are unknown.
    Pages,
}

/// The constants of a [`super::PageCache`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PageCacheConfig {
    /// The memory for file pages, in pages. At most `u32::MAX - 16`; what is beyond that is not used.
    pub pages: u64,
    /// Dirty pages above this share of memory are written in the background; in percent.
    pub background_percent: u32,
    /// Writers wait while dirty pages, and those on their way to disk, are above this share of memory; in percent.
    pub foreground_percent: u32,
    /// How often the periodic write-back looks for files that are dirty for too long.
    pub wake_every: Nanos,
    /// How long a file may be dirty before the periodic write-back writes it; `None` for non-volatile memory (MRAM,
    /// chapter 3): never.
    pub expire_after: Option<Nanos>,
    /// What the time of expiry is counted for.
    pub expire_by: ExpireBy,
    /// Number of pages in a unit of the background write-back. It is smaller in a memory so small that the unit were
    /// more than a quarter of the background threshold ([`PageCacheConfig::batch_pages`]).
    pub batch: u64,
}

impl Default for PageCacheConfig {
    /// Linux 2.6.12 with 512 MiB, the machine of MRAM.
    fn default() -> PageCacheConfig {
        PageCacheConfig {
            pages: 512 << 8,
            background_percent: 10,
            foreground_percent: 40,
            wake_every: Nanos::from_secs(5),
            expire_after: Some(Nanos::from_secs(30)),
            expire_by: ExpireBy::Files,
            batch: 1024,
        }
    }
}

impl PageCacheConfig {
    /// The background threshold, in pages. As in the kernel, it is half the foreground threshold if it is not below
    /// that one. At 100 % there is no background threshold.
    pub fn background_pages(&self) -> u64 {
        if self.background_percent >= 100 {
            return self.pages;
        }
        let percent = if self.background_percent >= self.foreground_percent {
            self.foreground_percent / 2
        } else {
            self.background_percent
        };
        share(self.pages, percent)
    }

    /// The unit of background write-back, in pages.
    pub fn batch_pages(&self) -> u64 {
        self.batch.min(self.background_pages() / 4).max(1)
    }

    /// The foreground threshold, in pages.
    pub fn foreground_pages(&self) -> u64 {
        share(self.pages, self.foreground_percent)
    }
}

fn share(pages: u64, percent: u32) -> u64 {
    (u128::from(pages) * u128::from(percent.min(100)) / 100) as u64
}
