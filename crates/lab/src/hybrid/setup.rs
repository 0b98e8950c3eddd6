//! What a hybrid disk is made of, and how it decides.

use serde::Serialize;
use umbrella_model::device::profiles::{self, Options, Profile};
use umbrella_policy::flash_cache::{self, Algorithm, FlushTrigger, Percent};
use umbrella_units::{ByteSize, Lba};

use crate::experiment::LabError;

/// How much flash there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cache {
    /// A log of that size; of none, all writes need the disk.
    Finite(ByteSize),
    /// A log that is never full, and never flushed.
    Infinite,
}

impl Cache {
    /// The log's size.
    pub(super) fn log_size(self) -> ByteSize {
        match self {
            Cache::Finite(size) => size,
            // More than is written in any trace; positions in it still fit.
            Cache::Infinite => ByteSize(1 << 60),
        }
    }
}

/// A hybrid disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HybridSetup {
    /// The disk's profile.
    pub disk: String,
    /// Whether the disk's own write buffer is on; as in the profile when `None`.
    pub write_cache: Option<bool>,
    /// The flash's profile.
    pub flash: String,
    /// How much of it is used.
    pub cache: Cache,
    /// When the log is flushed.
    pub when: FlushTrigger,
    /// The high mark, for those that have one.
    pub high: Percent,
    /// How it is flushed.
    pub algorithm: Algorithm,
    /// Memory for all buffers of a flush together.
    pub memory: ByteSize,
    /// When the disk may sleep, such as `fixed:timeout=10m`.
    pub spin_down: String,
}

impl Default for HybridSetup {
    /// The paper's: 64 MB of a CompactFlash card before a disk for notebooks, 16 MB of memory, the adaptive spin-down.
    fn default() -> HybridSetup {
        HybridSetup {
            disk: "travelstar_e7k100".to_owned(),
            write_cache: None,
            flash: "sandisk_ultra2".to_owned(),
            cache: Cache::Finite(ByteSize(64 << 20)),
            when: FlushTrigger::Each,
            high: FlushTrigger::HIGH,
            algorithm: Algorithm::Alg1,
            memory: ByteSize(16 << 20),
            spin_down: "adaptive".to_owned(),
        }
    }
}

impl HybridSetup {
    /// The options of the log. Settings that are missing here are those of the live engine's default.
    pub(super) fn options(&self) -> flash_cache::Options {
        let HybridSetup { when, high, algorithm, memory, .. } = *self;
        flash_cache::Options { when, high, algorithm, memory, ..flash_cache::Options::default() }
    }

    /// The disk's and the flash's.
    pub(super) fn profiles(&self) -> Result<(Profile, Profile), LabError> {
        Ok((profiles::profile(&self.disk)?, profiles::profile(&self.flash)?))
    }

    /// Sectors of the modelled disk.
    pub fn capacity(&self) -> Result<Lba, LabError> {
        Ok(profiles::profile(&self.disk)?.build(&Options::default()).capacity())
    }
}
