//! Taking apart a hybrid disk that cannot be taken apart whole: its log is damaged, or its flash is lost. Only when told so.

use anyhow::{Context, bail};
use umbrella_block::file::Access;
use umbrella_block::hybrid::{self, DamagedPair, Half, HybridError, Losses};
use umbrella_units::ByteSize;

use super::open::Part;
use super::protocol::{Detached, Outcome, Progress};
use super::remembered;
use crate::config::disk::{CacheSpec, DeviceSpec, DiskSpec};
use crate::output::reasons;

/// Brings to the disk what is whole of a damaged log; says what is lost.
pub(crate) fn salvage(spec: &DiskSpec, tell: &mut dyn FnMut(&Progress) -> bool) -> anyhow::Result<Detached> {
    let cache = flash_of(spec)?;
    let (disk, flash) = (half(&spec.disk, Access::ReadWrite)?, half(&cache.flash, Access::ReadWrite)?);
    let name = spec.name.to_string();
    let salvage = match DamagedPair::open(disk.clone(), flash.clone()) {
        // It was being taken apart when the power went; what was lost was known then.
        Err(HybridError::Detached { .. }) => {
            hybrid::finish_detach(&disk, &flash)?;
            remembered::forget(&spec.disk);
            return Ok(Detached {
                name,
                outcome: Outcome::Salvaged,
                drained: ByteSize(0),
                lost: None,
                perhaps_lost: Losses::default(),
            });
        }
        opened => opened?,
    };
    let (lost, total) = (salvage.losses(), salvage.cached());
    salvage
        .detach(|done| tell(&Progress { done, total, ending: false }))
        .context("bringing to the disk what is whole")?;
    remembered::forget(&spec.disk);
    Ok(Detached { name, outcome: Outcome::Salvaged, drained: total, lost: Some(lost), perhaps_lost: Losses::default() })
}

/// Makes the disk a plain one without what only the flash had; says what that was, if it can be known.
pub(crate) fn forget_flash(spec: &DiskSpec) -> anyhow::Result<Detached> {
    let cache = flash_of(spec)?;
    let disk = half(&spec.disk, Access::ReadWrite)?;
    let lost = match half(&cache.flash, Access::ReadOnly).and_then(|flash| Ok(DamagedPair::open(disk.clone(), flash)?))
    {
        Ok(salvage) => Some(Losses { at_risk: salvage.only_in_log(), ..salvage.losses() }),
        Err(error) => {
            tracing::warn!("what only the flash had cannot be known: {}", reasons(&error));
            None
        }
    };
    match hybrid::forget_flash(&disk) {
        // A disk that was cut has no label any more.
        Err(HybridError::NoTag { .. }) if remembered::recall(&spec.disk).is_some() => {}
        forgotten => forgotten?,
    }
    remembered::forget(&spec.disk);
    let name = spec.name.to_string();
    Ok(Detached { name, outcome: Outcome::FlashForgotten, drained: ByteSize(0), lost, perhaps_lost: Losses::default() })
}

fn flash_of(spec: &DiskSpec) -> anyhow::Result<&CacheSpec> {
    match &spec.cache {
        Some(cache) => Ok(cache),
        None => bail!("{} has no flash", spec.name),
    }
}

/// What holds the data of a device, without the time that it would take.
fn half(spec: &DeviceSpec, access: Access) -> anyhow::Result<Half> {
    match Part::open_data(spec, access)? {
        Some(part) => Ok(part.half()),
        None => bail!("what is in memory does not outlive its daemon"),
    }
}
