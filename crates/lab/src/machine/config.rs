//! What a machine is made of, apart from its disk and its policy.

use umbrella_model::page_cache;
use umbrella_units::Nanos;

/// The constants of a [`super::Machine`].
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The page cache: memory, thresholds, expiry.
    pub cache: page_cache::Config,
    /// The largest read-ahead, in pages (Linux: 128 KiB).
    pub read_ahead: u32,
    /// What a step costs the processor, apart from its pages: a system call and the work around it.
    pub cpu_per_step: Nanos,
    /// What a page costs the processor: copying 4 KiB and finding its place.
    pub cpu_per_page: Nanos,
    /// Whether new files are staged in memory first.
    pub staging: bool,
    /// Whether blocks are allocated when pages are written back instead of when they become dirty.
    pub delayed_allocation: bool,
}

impl Default for Config {
    /// Processor times are those of the papers' machines (1.6 to 3 GHz): 3 us a system call, 2 us a page (about 2 GB/s).
    /// Assumed; they matter only where the disk does not.
    fn default() -> Config {
        Config {
            cache: page_cache::Config::default(),
            read_ahead: 32,
            cpu_per_step: Nanos::from_micros(3),
            cpu_per_page: Nanos::from_micros(2),
            staging: false,
            delayed_allocation: false,
        }
    }
}
