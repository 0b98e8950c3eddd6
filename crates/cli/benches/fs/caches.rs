//! What the kernel remembers of files.

use std::fs;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::host::check;

/// How long the kernel and the daemon get to digest dropped caches (FUSE forgets inodes in the background).
const SETTLE: Duration = Duration::from_millis(300);

/// What the kernel forgets.
#[derive(Clone, Copy)]
pub(crate) enum Caches {
    /// Names and inodes.
    Metadata,
    /// Names, inodes and data.
    All,
}

/// Makes the kernel forget what it knows of files, except what is not written back yet.
pub(crate) fn drop_caches(what: Caches) -> Result<()> {
    let level = match what {
        Caches::Metadata => "2",
        Caches::All => "3",
    };
    fs::write("/proc/sys/vm/drop_caches", level).context("cannot drop caches")?;
    thread::sleep(SETTLE);
    check()
}
