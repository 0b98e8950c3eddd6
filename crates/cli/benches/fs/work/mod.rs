//! The workloads, the same code for every system, and the place they run in.

pub(crate) mod clients;
pub(crate) mod computing;
pub(crate) mod data;
pub(crate) mod files;
pub(crate) mod heat;
pub(crate) mod many;
pub(crate) mod oscillation;
pub(crate) mod paper;
pub(crate) mod postmark;
pub(crate) mod rules;
pub(crate) mod small;
pub(crate) mod tree;

use std::env;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::Result;
use tempfile::TempDir;

use crate::args::Args;
use crate::host;

const GIB: u64 = 1 << 30;
/// The data rows fill 2 GiB of the image, and as much page cache again, twice where data is cached in two places.
const MEMORY_FOR_IMAGE: u64 = 12 * GIB;

/// One value for each row of a group.
pub(crate) type Samples = Vec<(&'static str, f64)>;

/// Folders and settings of a run; the folders vanish with it.
pub(crate) struct Lab {
    base: TempDir,
    /// Holds the image.
    _image_dir: TempDir,
    pub(crate) image: PathBuf,
    pub(crate) image_in_memory: bool,
    pub(crate) quick: bool,
    pub(crate) limit: Duration,
    pub(crate) mergerfs_options: Option<String>,
    pub(crate) mirror: Option<String>,
    tarball: OnceLock<PathBuf>,
}

impl Lab {
    pub(crate) fn new(args: &Args) -> Result<Self> {
        let parent = host::image_folder(args.image_dir.as_deref(), MEMORY_FOR_IMAGE);
        let folder = |parent: &Path| host::temporary_folder(parent, "umbrella-bench-");
        let image_dir = folder(&parent)?;
        Ok(Self {
            base: folder(&env::temp_dir())?,
            image: image_dir.path().join("disk.ext4"),
            _image_dir: image_dir,
            image_in_memory: parent == Path::new(host::MEMORY),
            quick: args.quick,
            limit: Duration::from_secs(args.limit),
            mergerfs_options: args.mergerfs.clone(),
            mirror: args.mirror.clone(),
            tarball: OnceLock::new(),
        })
    }

    /// Folder for mount points, configuration and logs.
    pub(crate) fn base(&self) -> &Path {
        self.base.path()
    }

    /// How much of the full work is done: all of it, or a tenth.
    pub(crate) fn scaled(&self, full: usize) -> usize {
        if self.quick { full / 10 } else { full }
    }
}
