//! `umbrella disk salvage`: what a damaged log store or hybrid disk still holds, as a plain image.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail};
use clap::Args;
use serde::Serialize;
use umbrella_block::BlockDevice;
use umbrella_block::file::Access;
use umbrella_block::hybrid;
use umbrella_block::log_store::{DoubtReason, Salvage, SalvageReport, Unrecovered};
use umbrella_units::{BLOCK_SECTORS, BlockNo, ByteSize, Lba, PAGE_BYTES, SECTOR_BYTES};

use super::progress::ProgressDisplay;
use super::source::SourceArgs;
use crate::config::disk::DiskSpec;
use crate::disk::looped::in_use;
use crate::disk::losses::unknown;
use crate::disk::open::{OpenDevice, needs_flash};
use crate::disk::{log, place};
use crate::output;
use crate::text::{count, visible_path};

/// Copy what a damaged log store or hybrid disk still holds to a plain image.
///
/// FILE gets the newest readable copy of each block, whatever is damaged. Blocks that may not have their newest data
/// are listed, and the command ends with 1 if there are any. IMAGE stays unchanged and must not be served meanwhile.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLES:
  umbrella disk salvage /srv/store.img --to /backup/store.raw
  umbrella disk salvage /dev/sdb --to store.raw --json | jq '.unrecovered[] | select(.why == \"lost\")'
  umbrella disk salvage /dev/sdb --flash /dev/nvme0n1p3 --to disk.raw
  umbrella disk attach --disk store.raw && fsck -f /dev/loop0")]
pub(super) struct SalvageArgs {
    /// The image or device of a log store, the disk of a hybrid disk, or a configuration.
    #[arg(value_name = "IMAGE|CONFIG")]
    image: PathBuf,
    /// The flash of a hybrid disk; a configuration names its own.
    #[arg(long, value_name = "DEVICE")]
    flash: Option<String>,
    /// The image to write, with holes where there is no data.
    #[arg(long, value_name = "FILE")]
    to: PathBuf,
    /// Replace FILE if it exists.
    #[arg(long)]
    force: bool,
    /// Print JSON.
    #[arg(long)]
    pub(super) json: bool,
}

/// What was recovered, as `--json` prints it.
#[derive(Debug, Serialize)]
struct Salvaged {
    /// Every block is what was written last.
    ok: bool,
    name: String,
    to: PathBuf,
    size: ByteSize,
    copied: ByteSize,
    /// Chunks at the end of the log whose contents are unknown.
    missing_chunks: u64,
    /// Damaged structures.
    damage: Vec<String>,
    unrecovered: Vec<SuspectExtent>,
}

/// Adjacent blocks of 4096 bytes that may not be what was written last.
#[derive(Debug, Serialize)]
struct SuspectExtent {
    first: u64,
    blocks: u64,
    why: &'static str,
    meaning: &'static str,
}

/// What there is to say when all places are guessed.
const NOTHING_PROVED: &str = "Umbrella cannot tell which copy of a block is the newest, or whether one is missing";
/// Lines of blocks that are shown; the rest is counted.
const MOST_SHOWN: usize = 100;
/// Blocks of a hybrid disk that are read at once.
const PIECE: u64 = 256;

impl SalvageArgs {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let spec = SourceArgs::of_path(self.image.clone(), self.flash.clone()).read_new()?;
        refuse_served(&spec)?;
        let Some(disk) = OpenDevice::open_data(&spec.disk, Access::ReadOnly)? else {
            bail!("{} is in memory: it left nothing to salvage", spec.name)
        };
        let flash = match &spec.cache {
            None => None,
            Some(cache) => OpenDevice::open_data(&cache.flash, Access::ReadOnly)?,
        };
        let mut of_pair = Vec::new();
        let device: Arc<dyn BlockDevice> = match &flash {
            None => {
                of_pair.extend(needs_flash(&spec.disk)?.map(|why| format!("{why}; {NOTHING_PROVED}")));
                Arc::clone(&disk.device)
            }
            Some(flash) => {
                let pair = hybrid::PairRemains::open(disk.half(), flash.half());
                let pair = pair.with_context(|| {
                    format!("{} and its flash cannot be used together; `umbrella disk check` shows why", disk.name)
                })?;
                of_pair.extend(pair.damaged_labels().iter().map(|label| format!("{label}; {NOTHING_PROVED}")));
                of_pair.extend(unknown(&pair.losses()).map(|lost| format!("{lost}; {NOTHING_PROVED}")));
                Arc::new(pair)
            }
        };
        let is_plain_pair = flash.is_some() && spec.log.is_none() && !log::is_on(&*device, &disk.name).unwrap_or(true);
        let mut view = ProgressDisplay::new("{bar:30} {percent} % read  {eta} left");
        let mut progress = |done: u64, of: u64| {
            view.show(done, of, || format!("{} % read", (done * 100).checked_div(of).unwrap_or(0)));
        };
        let salvaged = if is_plain_pair {
            let size = device.geometry().size();
            self.write(size, |image| Ok((copy_pair(&*device, image, &mut progress)?, of_pair)))
        } else {
            let mut salvage = Salvage::open(device, &disk.name)?;
            self.write(salvage.size(), |image| {
                let write = |block: BlockNo, data: &[u8]| image.write_all_at(data, block.0 * PAGE_BYTES);
                let report = salvage.copy(write, &mut progress)?;
                let mut damage: Vec<String> = salvage.damage().iter().map(ToString::to_string).chain(of_pair).collect();
                if !salvage.has_map() {
                    damage.push(format!("{}: without its map {NOTHING_PROVED}", disk.name));
                }
                Ok((report, damage))
            })
        }?;
        drop(view);
        if self.json {
            output::json(&salvaged)?;
        } else {
            output::print(&summary(&salvaged))?;
        }
        Ok(if salvaged.ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// Creates and fills the image. Removes it if that fails.
    fn write(
        &self,
        size: ByteSize,
        fill: impl FnOnce(&File) -> io::Result<(SalvageReport, Vec<String>)>,
    ) -> anyhow::Result<Salvaged> {
        let shown = visible_path(&self.to);
        let image = self.make()?;
        let filled = image.set_len(size.0).and_then(|()| fill(&image)).and_then(|done| image.sync_all().map(|()| done));
        let (report, damage) = match filled {
            Ok(filled) => filled,
            Err(error) => {
                std::fs::remove_file(&self.to).with_context(|| format!("removing the incomplete {shown}"))?;
                return Err(error).with_context(|| format!("writing {shown}"));
            }
        };
        let is_proved = !damage.iter().any(|damage| damage.ends_with(NOTHING_PROVED));
        Ok(Salvaged {
            ok: report.unrecovered.is_empty() && report.missing_chunks == 0 && is_proved,
            name: self.image.display().to_string(),
            to: self.to.clone(),
            size,
            copied: report.copied,
            missing_chunks: report.missing_chunks,
            damage,
            unrecovered: report.unrecovered.iter().map(SuspectExtent::of).collect(),
        })
    }

    fn make(&self) -> anyhow::Result<File> {
        let shown = visible_path(&self.to);
        if let Ok(there) = std::fs::metadata(&self.to) {
            if !there.is_file() {
                bail!("{shown} is not a regular file; name an image to write");
            }
            let is_source = |path: &Path| {
                std::fs::metadata(path).is_ok_and(|data| (data.dev(), data.ino()) == (there.dev(), there.ino()))
            };
            if is_source(&self.image) || self.flash.as_ref().is_some_and(|flash| is_source(Path::new(flash))) {
                bail!("{shown} is the image to read; name another file to write");
            }
        }
        let mut options = OpenOptions::new();
        options.write(true).mode(0o600);
        let options = if self.force { options.create(true).truncate(true) } else { options.create_new(true) };
        options.open(&self.to).map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => anyhow::anyhow!("{shown} exists already: add --force to replace it"),
            _ => anyhow::Error::new(error).context(format!("making {shown}")),
        })
    }
}

/// What is written meanwhile would look like damage.
fn refuse_served(spec: &DiskSpec) -> anyhow::Result<()> {
    if place::is_served(&spec.name) {
        bail!("{} is served: `umbrella disk detach {}` first", spec.name, spec.name);
    }
    let flash = spec.cache.as_ref().map(|cache| &cache.flash);
    if let Some(used) = std::iter::once(&spec.disk).chain(flash).find_map(in_use) {
        bail!("{used}: detach it first");
    }
    Ok(())
}

/// Copies what can be read of a hybrid disk.
fn copy_pair(pair: &dyn BlockDevice, image: &File, progress: &mut dyn FnMut(u64, u64)) -> io::Result<SalvageReport> {
    let bytes = pair.geometry().size().0;
    let blocks = bytes.div_ceil(PAGE_BYTES);
    let mut report = SalvageReport::default();
    let mut data = vec![0; (PIECE * PAGE_BYTES) as usize];
    for first in (0..blocks).step_by(PIECE as usize) {
        let end = blocks.min(first + PIECE);
        let length = |from: u64, to: u64| (bytes.min(to * PAGE_BYTES) - from * PAGE_BYTES) as usize;
        data.resize(length(first, end), 0);
        let whole = pair.read(Lba(first * BLOCK_SECTORS), &mut data).is_ok();
        for block in first..end {
            let own = ((block - first) * PAGE_BYTES) as usize;
            let Some(data) = data.get_mut(own..own + length(block, block + 1)) else { continue };
            if !whole && pair.read(Lba(block * BLOCK_SECTORS), data).is_err() {
                report.add(BlockNo(block), DoubtReason::Lost);
                // What is lost need not fill its block.
                for (sector, own) in (block * BLOCK_SECTORS..).zip(data.chunks_mut(SECTOR_BYTES as usize)) {
                    if pair.read(Lba(sector), own).is_err() {
                        own.fill(0);
                    }
                }
            }
            if data.iter().any(|byte| *byte != 0) {
                report.copied.0 += data.len() as u64;
                image.write_all_at(data, block * PAGE_BYTES)?;
            }
        }
        progress(end, blocks);
    }
    Ok(report)
}

impl SuspectExtent {
    fn of(run: &Unrecovered) -> SuspectExtent {
        let (why, meaning) = match run.why {
            DoubtReason::Lost => ("lost", "no readable copy; left empty"),
            DoubtReason::MaybeLost => ("maybe_lost", "nothing was found, and something may be lost; left empty"),
            DoubtReason::Old => ("old", "the newest copy is damaged; this is an older one"),
            DoubtReason::OldOrDiscarded => {
                ("old_or_discarded", "the newest copy that was found; it may be old, or discarded")
            }
            DoubtReason::Unverified => ("unverified", "the data found there; its checksum is lost"),
            DoubtReason::BehindEnd => ("behind_end", "written behind the end of the log, and perhaps never flushed"),
        };
        SuspectExtent { first: run.first.0, blocks: run.blocks, why, meaning }
    }

    fn to_line(&self) -> String {
        let end = self.first + self.blocks - 1;
        let blocks = if self.blocks == 1 { format!("block {end}") } else { format!("blocks {}-{end}", self.first) };
        format!("{blocks}: {} ({})", self.why.replace('_', " "), self.meaning)
    }
}

fn summary(salvaged: &Salvaged) -> String {
    let runs = &salvaged.unrecovered;
    let mut lines: Vec<String> = salvaged.damage.iter().map(|damage| format!("damaged: {damage}")).collect();
    lines.extend((salvaged.missing_chunks > 0).then(|| {
        let chunks = count(salvaged.missing_chunks, "chunk");
        format!(
            "damaged: the end of the log: the headers of {chunks} are lost, so the blocks in them are unknown; \
            the blocks written last may be old"
        )
    }));
    lines.extend(runs.iter().take(MOST_SHOWN).map(SuspectExtent::to_line));
    let more = runs.len().saturating_sub(MOST_SHOWN) as u64;
    lines.extend((more > 0).then(|| format!("and {more} more (--json has all)")));
    let blocks = runs.iter().map(|run| run.blocks).sum();
    let verdict = match blocks {
        _ if salvaged.ok => "every block has its newest data".to_owned(),
        0 => "the data written last may be missing".to_owned(),
        _ => format!("{} of 4 KiB may not have the newest data", count(blocks, "block")),
    };
    let (to, size, copied) = (visible_path(&salvaged.to), salvaged.size, salvaged.copied);
    lines.push(format!("{to}: {copied} of {size} copied from {}; {verdict}", salvaged.name));
    lines.push(String::new());
    lines.join("\n")
}
