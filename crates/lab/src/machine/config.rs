//! What a machine is made of, apart from its disk and its policy.

use umbrella_model::page_cache::PageCacheConfig;
use umbrella_units::Nanos;

/// When and where the pages of files get their blocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Allocation {
    /// When they become dirty, as in ext2.
    #[default]
    AtOnce,
    /// When they are written back, each run together, as in ext4.
    Delayed,
    /// Each time they are written back, at the head of a log in the second half of the disk, as in NILFS; metadata too.
    /// What was there before the run lies as ext2 would have it.
    Log,
}

/// Processor time for bookkeeping, beside [`Config::cpu_per_step`] and [`Config::cpu_per_page`]; zero: none. Sources of
/// the values that the papers' machines have: docs/models.md.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bookkeeping {
    /// A directory entry that is scanned when a name is made, removed, or looked for and not found (ext2's linear
    /// directories).
    pub entry: Nanos,
    /// A page that enters a policy's zones, and leaves them again.
    pub zone_page: Nanos,
    /// A zone that is looked at for each target (TESA, III-B; WASL, 3.2.2).
    pub zone: Nanos,
}

/// The constants of a [`super::Computer`].
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The page cache: memory, thresholds, expiry.
    pub cache: PageCacheConfig,
    /// The largest read-ahead, in pages (Linux: 128 KiB).
    pub read_ahead: u32,
    /// What a step costs the processor, apart from its pages: a system call and the work around it.
    pub cpu_per_step: Nanos,
    /// What a page costs the processor: copying 4 KiB and finding its place.
    pub cpu_per_page: Nanos,
    /// Whether new files are staged in memory first.
    pub staging: bool,
    /// When and where pages get their blocks.
    pub allocation: Allocation,
    /// What bookkeeping costs the processor.
    pub bookkeeping: Bookkeeping,
    /// How often all dirty data is written, as by ext3's journal in ordered mode.
    pub ordered_commits: Option<Nanos>,
    /// Whether windows of blocks grow, as in ext3.
    pub growing_windows: bool,
}

impl Default for Config {
    /// Processor times are those of the papers' machines (1.6 to 3 GHz): 3 us a system call, 2 us a page (about 2
    /// GB/s). Assumed; they matter only where the disk does not.
    fn default() -> Config {
        Config {
            cache: PageCacheConfig::default(),
            read_ahead: 32,
            cpu_per_step: Nanos::from_micros(3),
            cpu_per_page: Nanos::from_micros(2),
            staging: false,
            allocation: Allocation::AtOnce,
            bookkeeping: Bookkeeping::default(),
            ordered_commits: None,
            growing_windows: false,
        }
    }
}
