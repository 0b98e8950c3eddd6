//! What the commands have for log stores: the options of a new one, and how one is shown.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::bail;
use clap::{Args, ValueEnum};
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;
use umbrella_block::log_store;
use umbrella_block::log_store::format::Superblock;
use umbrella_policy::flash_cache::Percent;
use umbrella_units::{ByteSize, PAGE_BYTES, ParseSizeError, WrongSize};

use crate::config::disk::{
    DeviceSpec, DiskSpec, LogSpec, SchemeSpec, VALID_SEGMENT, VALID_SPARE, is_segment, parse_spare,
};
use crate::disk::log::segments;
use crate::disk::protocol::{LogStatus, LogTables};
use crate::text::{visible, visible_path};

/// The largest file that there can be.
const MOST_IMAGE: ByteSize = ByteSize((1 << 63) - PAGE_BYTES);

/// What to create.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum NewDiskKind {
    /// A log store: random writes become sequential ones (docs/log-store.md).
    Log,
}

/// Options of a new log store.
#[derive(Debug, Args)]
pub(super) struct NewLogArgs {
    /// What to create, if not what the configuration says.
    #[arg(long, value_enum)]
    kind: Option<NewDiskKind>,
    /// Where a log store places blocks (`umbrella disk schemes` lists them).
    #[arg(long, value_name = "SCHEME")]
    scheme: Option<SchemeSpec>,
    /// The size of a log store's segments, which it cleans as a whole: 64KiB to 256MiB [default: by its size].
    #[arg(long, value_name = "SIZE", value_parser = segment)]
    segment: Option<ByteSize>,
    /// The share of a log store that stays free, so that cleaning is cheap: 1% to 90% [default: 10%].
    #[arg(long, value_name = "SHARE", value_parser = spare)]
    spare: Option<Percent>,
    /// The size of the image, if it does not exist.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    size: Option<ByteSize>,
}

fn segment(text: &str) -> Result<ByteSize, String> {
    text.parse().ok().filter(|size| is_segment(*size)).ok_or_else(|| format!("write {VALID_SEGMENT}"))
}

fn spare(text: &str) -> Result<Percent, String> {
    parse_spare(text).ok_or_else(|| format!("write {VALID_SPARE}"))
}

fn size(text: &str) -> Result<ByteSize, String> {
    match text.parse::<ByteSize>() {
        Ok(size) if size > MOST_IMAGE => Err(too_large()),
        Ok(size) if size.0 > 0 && size.0.is_multiple_of(PAGE_BYTES) => Ok(size),
        Err(ParseSizeError { wrong: WrongSize::TooLarge, .. }) => Err(too_large()),
        _ => Err("write a multiple of 4096 bytes, such as 40GiB".to_owned()),
    }
}

fn too_large() -> String {
    format!("too large: an image has at most 8 EiB less 4 KiB, and with a log store {}", log_store::MOST_BYTES)
}

/// Fails if something of another size is there already.
fn refuse_other_size(path: &Path, asked: ByteSize) -> anyhow::Result<()> {
    let Ok(data) = std::fs::metadata(path) else { return Ok(()) };
    let shown = visible_path(path);
    // A folder is refused where the disk is made.
    if data.is_dir() {
        return Ok(());
    }
    if !data.is_file() {
        bail!("--size is for an image that does not exist yet, but {shown} exists; leave --size out");
    }
    let is = ByteSize(data.len());
    // An empty one is as a making that was cut short leaves it.
    if is != asked && is.0 > 0 {
        bail!(
            "--size is for an image that does not exist yet, but {shown} has {is}; leave --size out, or `truncate` \
            the image first"
        );
    }
    Ok(())
}

impl NewLogArgs {
    /// Whether the options ask for a log store.
    pub(super) fn is_requested(&self) -> bool {
        self.kind == Some(NewDiskKind::Log)
    }

    /// The disk, with what these options say.
    pub(super) fn apply(&self, spec: &mut DiskSpec) -> anyhow::Result<()> {
        if let Some(asked) = self.size {
            if let Some(path) = spec.disk.path() {
                refuse_other_size(path, asked)?;
            }
            match &mut spec.disk {
                DeviceSpec::File { size, .. } | DeviceSpec::Emulated { size, .. } => *size = Some(asked),
                DeviceSpec::Memory { size } => *size = asked,
            }
        }
        if self.is_requested() && spec.log.is_none() {
            spec.log = Some(LogSpec::default());
        }
        let Some(log) = &mut spec.log else {
            let given = [
                self.scheme.as_ref().map(|_| "--scheme"),
                self.segment.map(|_| "--segment"),
                self.spare.map(|_| "--spare"),
            ];
            return match given.into_iter().flatten().next() {
                Some(option) => {
                    bail!("{option} is for a log store (add --kind log, or [log] in the configuration)")
                }
                None => Ok(()),
            };
        };
        if let Some(scheme) = &self.scheme {
            log.scheme = scheme.clone();
        }
        log.segment = self.segment.or(log.segment);
        log.spare = self.spare.unwrap_or(log.spare);
        Ok(())
    }
}

/// A new store, as `--json` prints it.
#[derive(Debug, Serialize)]
pub(super) struct NewStore {
    id: String,
    scheme: String,
    segment: ByteSize,
    segments: u32,
}

impl NewStore {
    pub(super) fn of(superblock: &Superblock) -> NewStore {
        NewStore {
            id: superblock.store.to_string(),
            scheme: superblock.scheme.as_str().to_owned(),
            segment: ByteSize(u64::from(superblock.shape.segment_blocks()) * PAGE_BYTES),
            segments: superblock.shape.segments(),
        }
    }

    /// The store in one line.
    pub(super) fn to_line(&self) -> String {
        format!("{} of {}, scheme {}", segments(self.segments), self.segment, self.scheme)
    }
}

/// The state of a store, in lines of `status`.
pub(super) fn status(log: &LogStatus, size: ByteSize) -> String {
    let percent = (u128::from(log.live.0) * 100).checked_div(u128::from(size.0)).unwrap_or(0);
    let emptied = match log.emptied_segments {
        0 => String::new(),
        more => format!(", {more} more after the next checkpoint"),
    };
    format!(
        "  log    {percent} % in use: {} of {size}; {} of {} free{emptied}\n         {} cleaned, {:.2} bytes written for each that was asked for; scheme {}\n",
        log.live,
        log.free_segments,
        segments(log.segments),
        segments(u32::try_from(log.segments_cleaned).unwrap_or(u32::MAX)),
        log.write_amplification,
        visible(&log.scheme)
    )
}

/// What `stats` shows below its figures: the regions of the disk, and how full the segments were that were cleaned.
pub(super) fn tables(log: &LogTables) -> String {
    let mut text = String::new();
    let mut regions = Table::new();
    regions.load_preset(presets::NOTHING).set_header(["REGION", "SEGMENTS", "FREE", "GUESTS", "LIVE"]);
    let last = log.regions.len().saturating_sub(1);
    for (number, region) in log.regions.iter().enumerate() {
        let place = match number {
            _ if last == 0 => "all",
            0 => "0 (edges)",
            _ if number == last => "middle",
            _ => "",
        };
        let name = if place == "middle" { format!("{number} (middle)") } else { place.to_owned() };
        let name = if name.is_empty() { number.to_string() } else { name };
        let [segments, free, guests] = [region.segments, region.free, region.guests].map(|number| number.to_string());
        regions.add_row([name, segments, free, guests, region.live.to_string()]);
    }
    let mut victims = Table::new();
    victims.load_preset(presets::NOTHING).set_header(["CLEANED WITH", "SEGMENTS"]);
    for (tenth, number) in log.victims.iter().enumerate() {
        let live =
            if tenth == 10 { "all live".to_owned() } else { format!("{}-{} % live", tenth * 10, tenth * 10 + 9) };
        victims.add_row([live, number.to_string()]);
    }
    for table in [&mut regions, &mut victims] {
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        let _ = writeln!(text, "\n{}", table.trim_fmt());
    }
    text
}
