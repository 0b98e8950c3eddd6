//! `umbrella disk create`: makes what a disk needs before it can be offered.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, anyhow, bail};
use clap::Args;
use serde::Serialize;
use umbrella_block::file::Access;
use umbrella_block::hybrid::{self, DamagedPair, HybridError, PairHalf};
use umbrella_units::{ByteSize, PAGE_BYTES};

use super::check::too_small;
use super::log::{NewLogArgs, NewStore};
use super::progress::ProgressDisplay;
use super::source::SourceArgs;
use crate::config::disk::{CacheSpec, DeviceSpec, DiskSpec};
use crate::disk::looped::refuse_looped;
use crate::disk::offered::create_store;
use crate::disk::open::{self, NewImage, OpenDevice};
use crate::disk::pair::keeps;
use crate::disk::{log, place, remembered};
use crate::output::{self, reasons};
use crate::text::visible_path;

/// Create missing files, join disk and flash to a hybrid disk, or create a log store.
///
/// A hybrid disk keeps the data on its disk, except the last 8 KiB, and overwrites its flash. A log store overwrites
/// the whole disk. Refuses a disk or flash that holds data, unless you give --force.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLES:
  umbrella disk create /etc/umbrella/media.disk.toml
  umbrella disk create --disk /dev/sdb --flash /dev/nvme0n1p3
  umbrella disk create --disk file:path=/srv/image.raw,size=4GiB
  umbrella disk create --kind log /dev/sdb
  umbrella disk create --kind log /srv/store.img --size 40GiB --scheme r_lfs:regions=2 --spare 15%")]
pub(super) struct CreateArgs {
    #[command(flatten)]
    source: SourceArgs,
    #[command(flatten)]
    log: NewLogArgs,
    /// Overwrite a disk or flash that holds data.
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
    /// The log store; nothing without.
    store: Option<NewStore>,
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
        let mut spec = if self.log.is_requested() {
            self.source.read_new()?
        } else {
            self.source.read().map_err(|error| self.with_hint(error))?
        };
        self.log.apply(&mut spec)?;
        if place::is_served(&spec.name) {
            place::client_of(&spec)?;
            bail!("{} is served; detach it first (`umbrella disk detach {}`)", spec.name, spec.name);
        }
        let created = create(&spec, self.force)?;
        for part in std::iter::once(&spec.disk).chain(spec.cache.as_ref().map(|cache| &cache.flash)) {
            if let Some(warning) = open::may_fill_up(part) {
                report!("warning: {warning}");
            }
        }
        if self.json {
            output::json(&created)?;
        } else {
            output::print(&summary(&created))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Adds a hint for a user who named a missing file, and no options: they probably forgot the options.
    fn with_hint(&self, error: anyhow::Error) -> anyhow::Error {
        let Some(missing) = self.source.missing_image() else { return error };
        let missing = visible_path(missing);
        anyhow!("{}; `umbrella disk create --kind log {missing} --size SIZE` makes a log store there", reasons(&error))
    }
}

fn create(spec: &DiskSpec, force: bool) -> anyhow::Result<Created> {
    if let Some(problem) = spec.cache.as_ref().and_then(|cache| too_small(&cache.flash)) {
        bail!("{problem}");
    }
    let mut made = Vec::new();
    let created = make_and_join(spec, force, &mut made);
    if created.is_err() {
        made.iter().try_for_each(NewImage::undo)?;
    }
    created
}

fn make_and_join(spec: &DiskSpec, force: bool, made: &mut Vec<NewImage>) -> anyhow::Result<Created> {
    if let Some(folder) = spec.disk.path().filter(|path| path.is_dir()) {
        bail!("{} is a directory; name a file in it, or a block device", visible_path(folder));
    }
    // Of a hybrid disk a store has nearly all.
    if let (Some(log), Some(size), Some(path)) = (&spec.log, open::size_to_be(&spec.disk), spec.disk.path()) {
        log.create_options(force).fits(&visible_path(path), size)?;
    }
    for device in std::iter::once(&spec.disk).chain(spec.cache.as_ref().map(|cache| &cache.flash)) {
        refuse_looped(device, Access::ReadWrite)?;
        made.extend(open::make(device)?);
    }
    if made.iter().any(|made| Some(made.path()) == spec.disk.path().map(PathBuf::as_path)) {
        // What was there before is gone.
        remembered::remove(&spec.disk);
    }
    let (pair, size) = match &spec.cache {
        Some(cache) => join(spec, cache, force)?,
        None => (None, OpenDevice::open_data(&spec.disk, Access::ReadOnly)?.map(|disk| disk.device.geometry().size())),
    };
    let (store, size) = match &spec.log {
        Some(log) => {
            let mut view = ProgressDisplay::new("{bar:30} {percent} % of the log store written  {eta} left");
            let superblock = create_store(spec, log, force, &mut |done, total| {
                view.show(done, total, || {
                    format!("{} % of the log store written", (done * 100).checked_div(total).unwrap_or(0))
                });
            })?;
            drop(view);
            (Some(NewStore::of(&superblock)), Some(ByteSize(superblock.shape.advertised().0 * PAGE_BYTES)))
        }
        None => (None, size),
    };
    if spec.cache.is_none() && store.is_some() {
        // What it was half of is written over.
        remembered::remove(&spec.disk);
    }
    let made = made.iter().map(|made| made.path().display().to_string()).collect();
    Ok(Created { name: spec.name.to_string(), size: size.unwrap_or_default(), pair, store, made })
}

fn join(spec: &DiskSpec, cache: &CacheSpec, force: bool) -> anyhow::Result<(Option<Pair>, Option<ByteSize>)> {
    let half = |device: &DeviceSpec, what: &'static str| match OpenDevice::open_data(device, Access::ReadWrite)
        .context(what)?
    {
        Some(part) => Ok(part.half()),
        None => {
            bail!(
                "{what} is in memory and would be lost; give it a path (a hybrid disk in memory is made at each \
                    start)"
            )
        }
    };
    keeps(&spec.disk, cache)?;
    let newest_elsewhere = open::needs_flash(&spec.disk)?;
    let (disk, flash) = (half(&spec.disk, "the disk")?, half(&cache.flash, "the flash")?);
    if !(force && spec.log.is_some()) {
        log::refuse_without_room(&disk)?;
    }
    // Power may have gone in the middle of a detachment; to finish it loses nothing.
    match hybrid::finish_detach(&disk, &flash) {
        Ok(())
        | Err(
            HybridError::NoSuperblock { .. }
            | HybridError::FlashLost { .. }
            | HybridError::Occupied { .. }
            | HybridError::ForeignFlash { .. },
        ) => {}
        Err(error) => return Err(error.into()),
    }
    if !force {
        hybrid::refuse_occupied(&disk, &flash)?;
    }
    if let Some(why) = newest_elsewhere {
        refuse_newest_elsewhere(&why, &disk, &flash)?;
    }
    let created = hybrid::create(&disk, &flash)?;
    let pair = Pair { disk: created.disk.to_string(), flash: created.flash.to_string() };
    Ok((Some(pair), Some(created.size)))
}

/// Refuses to make a new pair of a disk whose newest data is on a flash, even by force. The disk would be served as it
/// was, without any word of what is missing.
fn refuse_newest_elsewhere(why: &str, disk: &PairHalf, flash: &PairHalf) -> anyhow::Result<()> {
    let pair = DamagedPair::open(disk.clone(), flash.clone());
    if pair.is_ok_and(|pair| pair.only_in_log().is_empty() && pair.losses().is_empty()) {
        return Ok(());
    }
    bail!(
        "{why}. `umbrella disk detach CONFIG` brings the newest data to the disk; if the flash is lost, `umbrella \
        disk detach CONFIG --forget-flash` gives it up. Then create the new pair"
    )
}

fn summary(created: &Created) -> String {
    let mut lines: Vec<String> = created.made.iter().map(|file| format!("made {file}")).collect();
    let kind = match (&created.store, &created.pair) {
        (Some(_), Some(_)) => "log store on a hybrid disk",
        (Some(_), None) => "log store",
        (None, Some(_)) => "hybrid disk",
        (None, None) => "disk",
    };
    let details = created.store.as_ref().map_or(String::new(), |store| format!(" ({})", store.to_line()));
    lines.push(format!("{}: {kind} of {}{details}", created.name, created.size));
    lines.push(String::new());
    lines.join("\n")
}
