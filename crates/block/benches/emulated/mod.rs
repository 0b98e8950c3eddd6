//! What the benchmarks on emulated disks share: their options, and disks in their own time.

use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use umbrella_block::emulated::{EmulatedDisk, TimeScale};
use umbrella_block::memory::Memory;
use umbrella_model::device::{Options, profile};
use umbrella_units::ByteSize;

/// Sectors of a page.
pub(crate) const PAGE: u64 = 4096 / umbrella_units::SECTOR_BYTES;

/// How much is done.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Amount {
    /// Number of rounds; the median of all is printed.
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// One round with a tenth of the work.
    #[arg(long)]
    quick: bool,
    /// What `cargo bench` adds.
    #[arg(long, hide = true)]
    bench: bool,
}

impl Amount {
    pub(crate) fn rounds(self) -> u32 {
        if self.quick { 1 } else { self.rounds }
    }

    pub(crate) fn of(self, count: u64) -> u64 {
        if self.quick { count / 10 } else { count }
    }
}

/// Real seconds for one of the model's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Factor(pub(crate) f64);

impl FromStr for Factor {
    type Err = Box<dyn std::error::Error + Send + Sync>;

    fn from_str(text: &str) -> Result<Factor, Self::Err> {
        let factor = text.parse()?;
        TimeScale::new(factor)?;
        Ok(Factor(factor))
    }
}

impl Factor {
    /// A new disk of that profile.
    pub(crate) fn disk(self, name: &str, size: ByteSize) -> Arc<EmulatedDisk> {
        let profile = profile(name).unwrap_or_else(|error| panic!("{error}"));
        let scale = TimeScale::new(self.0).unwrap_or_else(|error| panic!("{error}"));
        let disk = EmulatedDisk::new(&profile, &Options::default(), scale, Arc::new(Memory::new(size)));
        Arc::new(disk.expect("it can be made"))
    }

    /// Virtual seconds that something takes.
    pub(crate) fn seconds(self, work: impl FnOnce()) -> f64 {
        let begun = Instant::now();
        work();
        self.virtual_seconds(begun.elapsed())
    }

    pub(crate) fn virtual_seconds(self, time: Duration) -> f64 {
        time.as_secs_f64() / self.0
    }
}

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Whether a part is to be run: all are when none was asked for.
pub(crate) fn wants<P: Copy + PartialEq>(asked: &[P], part: P) -> bool {
    asked.is_empty() || asked.contains(&part)
}
