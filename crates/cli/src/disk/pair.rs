//! The two halves of a hybrid disk: what they keep, continuing without what is damaged, and ending the pair: what only
//! its flash has goes to the disk.

use std::time::Duration;

use anyhow::{Context, bail};
use umbrella_block::file::Access;
use umbrella_block::hybrid::{DamagedPair, Hybrid, HybridError, Losses, finish_detach};
use umbrella_units::ByteSize;

use super::open::{self, OpenDevice};
use super::protocol::{AtDetach, Progress};
use super::remembered;
use crate::config::disk::{CacheSpec, DeviceSpec, DiskSpec};

/// Interval between two reports of how far a drain is.
const TELL_EVERY: Duration = Duration::from_millis(200);
/// Whether a hybrid disk outlives its daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Persistence {
    /// Both halves do.
    All,
    /// Both are in memory: it is made anew at each start.
    Nothing,
}

/// What the halves keep; fails if only one of them is in memory: what the other one keeps would belong to nothing.
pub(crate) fn keeps(disk: &DeviceSpec, cache: &CacheSpec) -> anyhow::Result<Persistence> {
    match (disk.path(), cache.flash.path()) {
        (Some(_), Some(_)) => Ok(Persistence::All),
        (None, None) => Ok(Persistence::Nothing),
        (disk, _) => {
            let (forgets, keeps) = if disk.is_none() { ("disk", "flash") } else { ("flash", "disk") };
            bail!(
                "the {forgets} is in memory and lost when the daemon ends, but the {keeps} is not: give the {forgets} a \
                path, or keep both in memory"
            )
        }
    }
}

/// Skips the damaged part of a pair whose losses are known.
pub(super) fn salvage(spec: &DiskSpec, cache: &CacheSpec) -> anyhow::Result<()> {
    let (disk, flash) = halves(spec, cache, Access::ReadWrite)?;
    let pair = DamagedPair::open(disk.half(), flash.half())?;
    if pair.damage().is_some() {
        pair.salvage().context("continuing without the damaged data")?;
    }
    Ok(())
}

pub(super) fn halves(spec: &DiskSpec, cache: &CacheSpec, access: Access) -> anyhow::Result<(OpenDevice, OpenDevice)> {
    let disk = OpenDevice::open(&spec.disk, access).context("the disk")?;
    let flash = OpenDevice::open(&cache.flash, access).context("the flash")?;
    Ok((disk, flash))
}

/// Ends a hybrid disk whose disk is to be used alone, and remembers no more that it has a flash.
pub(super) fn detach_pair(hybrid: Hybrid, spec: &DiskSpec, flash_is: AtDetach) -> anyhow::Result<()> {
    let needs_flash = match flash_is {
        AtDetach::Dissolve => {
            hybrid.dissolve().context("separating the flash from the disk")?;
            false
        }
        AtDetach::Empty | AtDetach::Keep => {
            !hybrid.detach().context("writing the data on the flash to the disk")?.is_empty()
        }
    };
    if !needs_flash {
        remembered::remove(&spec.disk);
    }
    Ok(())
}

/// Brings to the disk what is on the flash of a hybrid disk that no daemon serves, and ends the pair if that is wanted.
/// Returns how much was on flash only, what of it is lost, and what is perhaps.
pub(crate) fn detach_unserved(
    spec: &DiskSpec,
    flash_is: AtDetach,
    report: &mut dyn FnMut(&Progress) -> bool,
) -> anyhow::Result<(ByteSize, Losses, Losses)> {
    let Some(cache) = &spec.cache else {
        bail!("{} is not served, and has no flash: there is nothing to detach", spec.name)
    };
    if keeps(&spec.disk, cache)? == Persistence::Nothing {
        bail!("{} is not served, and a disk in memory ends with its daemon: there is nothing to detach", spec.name);
    }
    let (disk, flash) = halves(spec, cache, Access::ReadWrite)?;
    let spindle = disk.motor(&spec.disk).unwrap_or_else(|_| open::no_motor());
    let opened = Hybrid::open(disk.half(), flash.half(), spindle, cache.settings.options, None);
    match opened {
        Ok(hybrid) => {
            let drained = drain(&hybrid, report)?;
            let lost = Losses { at_risk: hybrid.lost(), unknown_records: 0 };
            let perhaps_lost = hybrid.perhaps_lost().clone();
            detach_pair(hybrid, spec, flash_is)?;
            Ok((drained, lost, perhaps_lost))
        }
        // It was being dissolved when the power went.
        Err(HybridError::Detached { .. }) => {
            finish_detach(&disk.half(), &flash.half())?;
            remembered::remove(&spec.disk);
            Ok((ByteSize(0), Losses::default(), Losses::default()))
        }
        Err(error) => Err(error.into()),
    }
}

/// Brings all that is on flash to the disk. Returns how much that was; fails when no client wants progress any more.
pub(crate) fn drain(hybrid: &Hybrid, report: &mut dyn FnMut(&Progress) -> bool) -> anyhow::Result<ByteSize> {
    let total = hybrid.stats().cached;
    let mut reported = true;
    // It has to be awake for its mark, too.
    hybrid.keep_awake();
    let drained = std::thread::scope(|scope| {
        let work = scope.spawn(|| hybrid.drain());
        while !work.is_finished() {
            std::thread::sleep(TELL_EVERY);
            let stats = hybrid.stats();
            let left = if stats.draining { stats.drain_left } else { stats.cached };
            reported =
                reported && report(&Progress { done: ByteSize(total.0.saturating_sub(left.0)), total, ending: false });
            if !reported {
                hybrid.stop_drain();
            }
        }
        work.join().unwrap_or(Err(HybridError::Closed))
    });
    if drained.is_err() {
        hybrid.allow_sleep();
    }
    match drained {
        Err(HybridError::Stopped) => {
            bail!("the client has gone: data that is not on the disk yet stays on flash")
        }
        // The drain has to write to the flash, too.
        drained if hybrid.stats().refuses_writes.is_some() => drained.context(
            "cannot empty the flash (`umbrella disk detach --keep-cache` detaches the disk, and flushed data stays on \
            the flash)",
        )?,
        drained => drained.context("writing the data on the flash to the disk")?,
    }
    Ok(total)
}
