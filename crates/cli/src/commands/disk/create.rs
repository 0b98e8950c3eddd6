//! `umbrella disk create`: makes what a disk needs before it can be offered.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use serde::Serialize;
use umbrella_block::file::Access;
use umbrella_block::hybrid::{self, HybridError};
use umbrella_units::ByteSize;

use super::check::too_small;
use super::source::SourceArgs;
use crate::config::disk::{CacheSpec, DeviceSpec, DiskSpec};
use crate::disk::open::{self, Part};
use crate::disk::place;
use crate::output;
use crate::text::visible_path;

/// Make the files that are missing, and join disk and flash to a hybrid disk.
///
/// What the disk holds stays, but for its last 8 KiB; the flash is overwritten. Stops when one of them holds something.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLES:
  umbrella disk create /etc/umbrella/media.disk.toml
  umbrella disk create --disk /dev/sdb --flash /dev/nvme0n1p3
  umbrella disk create --disk file:path=/srv/image.raw,size=4GiB")]
pub(super) struct CreateArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// Also when the disk or the flash holds something, which is then lost.
    #[arg(long)]
    force: bool,
    /// Print JSON.
    #[arg(long)]
    pub(super) json: bool,
}

/// What was made, as `--json` prints it.
#[derive(Debug, Serialize)]
struct Created {
    name: String,
    size: ByteSize,
    /// The two halves; nothing without flash.
    pair: Option<Pair>,
    /// Files that were made.
    made: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Pair {
    disk: String,
    flash: String,
}

impl CreateArgs {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let spec = self.source.read()?;
        if place::is_served(&spec.name) {
            place::client_of(&spec)?;
            bail!("{} is served; detach it first (`umbrella disk detach {}`)", spec.name, spec.name);
        }
        let created = create(&spec, self.force)?;
        if self.json {
            output::json(&created)?;
        } else {
            output::print(&summary(&created))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn create(spec: &DiskSpec, force: bool) -> anyhow::Result<Created> {
    if let Some(problem) = spec.cache.as_ref().and_then(|cache| too_small(&cache.flash)) {
        bail!("{problem}");
    }
    let mut made = Vec::new();
    let created = make_and_join(spec, force, &mut made);
    if created.is_err() {
        for file in &made {
            std::fs::remove_file(file).with_context(|| format!("removing {}", visible_path(file)))?;
        }
    }
    created
}

fn make_and_join(spec: &DiskSpec, force: bool, made: &mut Vec<PathBuf>) -> anyhow::Result<Created> {
    for device in std::iter::once(&spec.disk).chain(spec.cache.as_ref().map(|cache| &cache.flash)) {
        open::refuse_looped(device)?;
        if open::make(device)?
            && let Some(path) = device.path()
        {
            made.push(path.clone());
        }
    }
    let (pair, size) = match &spec.cache {
        Some(cache) => join(spec, cache, force)?,
        None => (None, Part::open_data(&spec.disk, Access::ReadOnly)?.map(|disk| disk.device.geometry().size())),
    };
    let made = made.iter().map(|path| path.display().to_string()).collect();
    Ok(Created { name: spec.name.to_string(), size: size.unwrap_or_default(), pair, made })
}

fn join(spec: &DiskSpec, cache: &CacheSpec, force: bool) -> anyhow::Result<(Option<Pair>, Option<ByteSize>)> {
    let half =
        |device: &DeviceSpec, what: &'static str| match Part::open_data(device, Access::ReadWrite).context(what)? {
            Some(part) => Ok(part.half()),
            None => bail!("{what}: in memory nothing lasts; give it a path"),
        };
    let (disk, flash) = (half(&spec.disk, "the disk")?, half(&cache.flash, "the flash")?);
    // Power may have gone in the middle of a detachment; to finish it loses nothing.
    match hybrid::finish_detach(&disk, &flash) {
        Ok(())
        | Err(HybridError::NoSuperblock { .. } | HybridError::Occupied { .. } | HybridError::ForeignFlash { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    if !force {
        hybrid::refuse_occupied(&disk, &flash)?;
    }
    let created = hybrid::create(&disk, &flash)?;
    let pair = Pair { disk: created.disk.to_string(), flash: created.flash.to_string() };
    Ok((Some(pair), Some(created.size)))
}

fn summary(created: &Created) -> String {
    let mut lines: Vec<String> = created.made.iter().map(|file| format!("made {file}")).collect();
    let kind = if created.pair.is_some() { "hybrid disk" } else { "disk" };
    lines.push(format!("{}: {kind} of {}", created.name, created.size));
    lines.push(String::new());
    lines.join("\n")
}
