//! What `umbrella disk check` does with a log store: it reads the map and the log, and with `--data` all that is in
//! use.

use std::sync::Arc;

use serde::Serialize;
use umbrella_block::BlockDevice;
use umbrella_block::file::Access;
use umbrella_block::hybrid::DamagedPair;
use umbrella_block::log_store::{self, CheckReport, Depth, LogStore, Problem};
use umbrella_block::scrub::ScrubId;
use umbrella_units::{BLOCK_SECTORS, ByteSize, Lba, PAGE_BYTES, SECTOR_BYTES, SectorRange};

use super::progress::ProgressDisplay;
use crate::config::disk::{DiskSpec, LogSpec};
use crate::disk::log;
use crate::disk::open::OpenDevice;
use crate::text::count;

/// A store that was looked at, as `--json` prints it.
#[derive(Debug, Serialize)]
pub(super) struct StoreReport {
    pub(super) id: ScrubId,
    scheme: String,
    /// It was closed in order.
    clean: bool,
    /// Chunks found behind the last checkpoint.
    replayed: u64,
    /// Chunks found behind the end of the log, at least.
    abandoned: u64,
    size: ByteSize,
    live: ByteSize,
    segments: u32,
    /// Bytes whose checksums were compared.
    data_checked: ByteSize,
    /// All that is wrong; the first of it is among the errors and warnings.
    problems: u64,
}

/// Something that is wrong.
#[derive(Debug, Serialize)]
pub(super) struct StoreProblem {
    pub(super) message: String,
    /// The line that says it; nothing if the line of the one before says it too.
    #[serde(skip)]
    pub(super) line: Option<String>,
}

impl StoreProblem {
    fn new(message: String) -> StoreProblem {
        StoreProblem { line: Some(message.clone()), message }
    }
}

/// What was found.
#[derive(Debug)]
pub(super) struct StoreCheck {
    pub(super) report: StoreReport,
    pub(super) errors: Vec<StoreProblem>,
    /// What the next opening mends.
    pub(super) warnings: Vec<String>,
}

/// Opens the device below the log store of a disk, read-only. Also returns its name for messages.
fn open_backing(spec: &DiskSpec) -> anyhow::Result<Option<(Arc<dyn BlockDevice>, String)>> {
    let Some(disk) = OpenDevice::open_data(&spec.disk, Access::ReadOnly)? else { return Ok(None) };
    let device: Arc<dyn BlockDevice> = match &spec.cache {
        None => disk.device,
        Some(cache) => {
            let Some(flash) = OpenDevice::open_data(&cache.flash, Access::ReadOnly)? else { return Ok(None) };
            Arc::new(DamagedPair::open(disk.half(), flash.half())?)
        }
    };
    Ok(Some((device, disk.name)))
}

/// How many of these ranges of a store cannot be read.
pub(super) fn unreadable(spec: &DiskSpec, ranges: &[SectorRange]) -> anyhow::Result<u64> {
    let Some((device, name)) = open_backing(spec)? else { return Ok(0) };
    let options = spec.log.clone().unwrap_or_default().options();
    let store = LogStore::open(device, &name, options, log_store::OpenMode::ReadOnly)?;
    let block = |range: &SectorRange, at: u64| (range.end().0 - at).min(BLOCK_SECTORS);
    let mut buffer = [0; PAGE_BYTES as usize];
    let is_unreadable = |range: &&SectorRange| {
        (range.start.0..range.end().0).step_by(BLOCK_SECTORS as usize).any(|at| {
            let length = (block(range, at) * SECTOR_BYTES) as usize;
            buffer.get_mut(..length).is_none_or(|buffer| store.read(Lba(at), buffer).is_err())
        })
    };
    Ok(ranges.iter().filter(is_unreadable).count() as u64)
}

/// Checks the log store of a disk that is not served. `None` if there is none. The store of a hybrid disk lies on disk
/// and flash together.
pub(super) fn check_store(spec: &DiskSpec, depth: Depth) -> anyhow::Result<Option<StoreCheck>> {
    let Some((device, name)) = open_backing(spec)? else { return Ok(None) };
    if spec.log.is_none() && !log::is_on(&*device, &name)? {
        return Ok(None);
    }
    let mut view = ProgressDisplay::new("{bar:30} {percent} % of the log read  {eta} left");
    let report = log_store::check(device, &name, depth, &mut |done, steps| {
        view.show(done, steps, || format!("{} % of the log read", (done * 100).checked_div(steps).unwrap_or(0)));
    });
    drop(view);
    let report = report?;
    let mut looked = StoreCheck::of(&report);
    if let Some(log) = &spec.log {
        looked.warnings.extend(differences(log, &report));
    }
    if spec.log.is_none() && spec.cache.is_some() {
        let reported = "disk and flash hold a log store: add [log] to the configuration to use them";
        looked.errors.push(StoreProblem::new(reported.to_owned()));
    }
    Ok(Some(looked))
}

/// The settings of a store that differ between the configuration and the disk, a line each.
fn differences(log: &LogSpec, store: &CheckReport) -> Vec<String> {
    let scheme = log.scheme.to_string();
    let scheme = (log.scheme != LogSpec::default().scheme && scheme != store.scheme)
        .then(|| format!("log store: its scheme is {}, not {scheme}", store.scheme));
    let segment = log
        .segment
        .filter(|segment| *segment != store.segment)
        .map(|segment| format!("log store: its segments have {}, not {segment}", store.segment));
    let counts = |difference| {
        format!(
            "{difference}; the store's own value is used (scheme and segment size are fixed \
        when you create a store)"
        )
    };
    scheme.into_iter().chain(segment).map(counts).collect()
}

impl StoreCheck {
    fn of(found: &CheckReport) -> StoreCheck {
        let is_repaired = |problem: &&Problem| matches!(problem, Problem::SuperblockCopy(_) | Problem::Checkpoint(_));
        let (repaired, wrong): (Vec<&Problem>, Vec<&Problem>) = found.problems.iter().partition(is_repaired);
        let text = |problem: &Problem| format!("log store: {problem}");
        let lines = Problem::lines(&wrong).into_iter().flat_map(|(count, line)| {
            std::iter::once(Some(format!("log store: {line}"))).chain(std::iter::repeat_n(None, count - 1))
        });
        let more = found.problem_count.saturating_sub(found.problems.len() as u64);
        let more = (more > 0).then(|| format!("log store: {} more", count(more, "problem")));
        let report = StoreReport {
            id: ScrubId(found.store),
            scheme: found.scheme.clone(),
            clean: found.clean,
            replayed: found.replayed,
            abandoned: found.abandoned,
            size: found.size,
            live: found.live,
            segments: found.segments,
            data_checked: found.data_checked,
            problems: found.problem_count,
        };
        let loses = found.problems.iter().any(|problem| matches!(problem, Problem::Loss(_)));
        let abandoned = (found.abandoned > 0 && !loses).then(|| {
            let chunks = count(found.abandoned, "chunk");
            format!(
                "log store: {chunks} or more behind the end of the log are ignored. This is normal after a power cut \
                or a kill; otherwise the log is damaged there"
            )
        });
        let wrong = wrong.iter().zip(lines).map(|(problem, line)| StoreProblem { message: text(problem), line });
        let errors = wrong.chain(more.map(StoreProblem::new)).collect();
        StoreCheck { report, errors, warnings: repaired.into_iter().map(text).chain(abandoned).collect() }
    }
}

impl StoreReport {
    /// The store in one line.
    pub(super) fn to_line(&self) -> String {
        let end = if self.clean { "closed cleanly" } else { "not closed cleanly" };
        let replayed =
            if self.replayed > 0 { format!(", {} to replay", count(self.replayed, "chunk")) } else { String::new() };
        let data =
            if self.data_checked.0 > 0 { format!("; data compared: {}", self.data_checked) } else { String::new() };
        format!(
            "log store: {} of {} in use, {}, {end}{replayed}; scheme {}{data}",
            self.live,
            self.size,
            log::segments(self.segments),
            self.scheme
        )
    }
}
