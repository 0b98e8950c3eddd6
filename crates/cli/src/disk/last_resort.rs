//! Taking apart a hybrid disk that cannot be taken apart whole: its log is damaged, or its flash is lost. Only if the
//! user asks for it.

use anyhow::{Context, bail};
use umbrella_block::file::Access;
use umbrella_block::hybrid::{self, DamagedPair, HybridError, Losses, PairHalf};
use umbrella_units::ByteSize;

use super::open::OpenDevice;
use super::protocol::{DetachOutcome, Detached, Progress};
use super::remembered;
use crate::config::disk::{CacheSpec, DeviceSpec, DiskSpec};
use crate::output::reasons;

/// Brings the undamaged part of a damaged log to the disk; says what is lost.
pub(crate) fn salvage(spec: &DiskSpec, report: &mut dyn FnMut(&Progress) -> bool) -> anyhow::Result<Detached> {
    let cache = flash_of(spec)?;
    let (disk, flash) = (half(&spec.disk, Access::ReadWrite)?, half(&cache.flash, Access::ReadWrite)?);
    let name = spec.name.to_string();
    let salvage = match DamagedPair::open(disk.clone(), flash.clone()) {
        // It was being taken apart when the power went; what was lost was known then.
        Err(HybridError::Detached { .. }) if !hybrid::has_tag(&disk) => bail!(
            "{name} was taken apart already: {} is a plain disk, and the flash is free; `umbrella disk create` joins them again",
            disk.name
        ),
        Err(HybridError::Detached { .. }) => {
            hybrid::finish_detach(&disk, &flash)?;
            remembered::remove(&spec.disk);
            return Ok(Detached {
                name,
                outcome: DetachOutcome::Salvaged,
                drained: ByteSize(0),
                lost: None,
                perhaps_lost: Losses::default(),
            });
        }
        opened => opened?,
    };
    let (lost, total) = (salvage.losses(), salvage.cached());
    salvage
        .detach(|done| report(&Progress { done, total, ending: false }))
        .context("writing the intact data to the disk")?;
    remembered::remove(&spec.disk);
    Ok(Detached {
        name,
        outcome: DetachOutcome::Salvaged,
        drained: total,
        lost: Some(lost),
        perhaps_lost: Losses::default(),
    })
}

/// Makes the disk a plain one without what only the flash had; says what that was, if it can be known.
pub(crate) fn forget_flash(spec: &DiskSpec) -> anyhow::Result<Detached> {
    let cache = flash_of(spec)?;
    let disk = half(&spec.disk, Access::ReadWrite)?;
    let flash = half(&cache.flash, Access::ReadWrite).or_else(|_| half(&cache.flash, Access::ReadOnly));
    let pair = flash
        .as_ref()
        .map_err(reasons)
        .and_then(|flash| DamagedPair::open(disk.clone(), flash.clone()).map_err(|error| error.to_string()));
    let lost = match pair {
        Ok(salvage) => Some(Losses { at_risk: salvage.only_in_log(), ..salvage.losses() }),
        Err(error) => {
            tracing::warn!("cannot tell what only the flash had: {error}");
            None
        }
    };
    let is_free = match flash.map(|flash| hybrid::free_flash(&disk, &flash)) {
        Ok(Ok(is_free)) => is_free,
        // It is lost, or is of no pair.
        Ok(Err(HybridError::NoSuperblock { .. })) | Err(_) => false,
        Ok(Err(error)) => {
            tracing::warn!("the flash still says that it belongs to the disk: {error}");
            false
        }
    };
    match hybrid::forget_flash(&disk) {
        // A disk that was cut, or was forgotten before its flash was found, has no label any more.
        Err(HybridError::NoTag { .. }) if is_free || remembered::load(&spec.disk).is_some() => {}
        forgotten => forgotten?,
    }
    remembered::remove(&spec.disk);
    let name = spec.name.to_string();
    Ok(Detached {
        name,
        outcome: DetachOutcome::FlashForgotten,
        drained: ByteSize(0),
        lost,
        perhaps_lost: Losses::default(),
    })
}

fn flash_of(spec: &DiskSpec) -> anyhow::Result<&CacheSpec> {
    match &spec.cache {
        Some(cache) => Ok(cache),
        None => bail!("{} has no flash", spec.name),
    }
}

/// What holds the data of a device, without the time that it would take.
fn half(spec: &DeviceSpec, access: Access) -> anyhow::Result<PairHalf> {
    match OpenDevice::open_data(spec, access)? {
        Some(part) => Ok(part.half()),
        None => bail!("a disk in memory ends with its daemon"),
    }
}
