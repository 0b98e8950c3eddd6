//! Folders and settings of a whole run; the folders vanish with it.

use std::env;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use tempfile::TempDir;
use umbrella_units::ByteSize;

use crate::host;

const GIB: u64 = 1 << 30;
/// Memory that images may take besides what the rest needs: they are sparse.
const MEMORY_FOR_IMAGES: u64 = 8 * GIB;

/// Where and how everything runs.
pub(crate) struct Place {
    base: TempDir,
    images: TempDir,
    /// Speed in multiples of a real disk's.
    pub(crate) speed: f64,
    /// What the file systems are made for.
    pub(crate) disk_size: ByteSize,
    /// After this time a measurement is given up.
    pub(crate) limit: Duration,
    /// How requests reach the pools, as in their configuration.
    pub(crate) transport: String,
}

impl Place {
    pub(crate) fn new(
        images: Option<&Path>,
        speed: f64,
        disk_size: ByteSize,
        limit: Duration,
        transport: &str,
    ) -> Result<Self> {
        let folder = |parent: &Path| host::temporary_folder(parent, "umbrella-live-");
        let base = folder(&env::temp_dir())?;
        let images = folder(&host::image_folder(images, MEMORY_FOR_IMAGES))?;
        Ok(Self { base, images, speed, disk_size, limit, transport: transport.to_owned() })
    }

    /// Folder for mount points, configurations and logs.
    pub(crate) fn base(&self) -> &Path {
        self.base.path()
    }

    /// Folder for disk images.
    pub(crate) fn images(&self) -> &Path {
        self.images.path()
    }

    /// The time that a real disk would have taken.
    pub(crate) fn of_disk(&self, real: Duration) -> Duration {
        real.mul_f64(self.speed)
    }

    /// The time that takes here what takes the disk `of_disk`.
    pub(crate) fn real(&self, of_disk: Duration) -> Duration {
        of_disk.div_f64(self.speed)
    }
}
