//! `umbrella disk check`: is a disk's configuration right, is what it names there, and are the halves of a hybrid disk
//! whole?

use std::fs::Metadata;
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use umbrella_block::file::Access;
use umbrella_block::hybrid::{self, LEAST_FLASH, PairReport};
use umbrella_block::log_store::Depth;
use umbrella_units::ByteSize;

use super::check_store::{self, StoreCheck, StoreProblem, StoreReport};
use super::source::SourceArgs;
use super::status::unwritten;
use crate::advice::GO_ON;
use crate::config::ConfigErrors;
use crate::config::ErrorReport;
use crate::config::disk::{CacheSpec, DeviceSpec, DiskSpec, TlsSpec};
use crate::disk::log::has_a_store;
use crate::disk::looped::in_use;
use crate::disk::losses::{skipped, unknown};
use crate::disk::open::{self, OpenDevice};
use crate::disk::pair::keeps;
use crate::disk::place;
use crate::disk::scrub::Scrubs;
use crate::disk::serve::open_to_others;
use crate::output::{self, reasons};
use crate::text::{count, visible_path};

/// Check a disk: its configuration and devices, the log of a hybrid disk, and a log store.
///
/// Changes nothing. For a served disk, it checks the configuration and asks the daemon for problems. Ends with 1 when
/// something is wrong; warnings alone end with 0.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLES:
  umbrella disk check /etc/umbrella/media.disk.toml
  umbrella disk check --disk /dev/sdb --flash /dev/nvme0n1p3
  umbrella disk check /srv/store.img --data
  umbrella disk check media.disk.toml --json | jq '.errors[].message'")]
pub(super) struct DiskCheckArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// Also compare all data of a log store with its checksums; this reads everything in use.
    #[arg(long)]
    data: bool,
    /// Print JSON.
    #[arg(long)]
    pub(super) json: bool,
}

/// What was found, as `--json` prints it.
#[derive(Debug, Serialize)]
struct DiskCheckReport {
    /// Nothing is wrong; nothing if that cannot be said, since not all was looked at.
    ok: Option<bool>,
    errors: Vec<Message>,
    warnings: Vec<Message>,
    /// The disk, with all defaults; nothing when the configuration is wrong.
    disk: Option<DiskSpec>,
    /// The halves of a hybrid disk, if they belong together.
    pair: Option<PairReport>,
    /// The log store, if there is one that could be looked at.
    store: Option<StoreReport>,
    /// Why its data was not checked: the disk is in use.
    unread: Option<String>,
    /// A daemon serves the log store.
    #[serde(skip)]
    serves_store: bool,
}

impl DiskCheckReport {
    fn new() -> DiskCheckReport {
        DiskCheckReport {
            ok: None,
            errors: Vec::new(),
            warnings: Vec::new(),
            disk: None,
            pair: None,
            store: None,
            unread: None,
            serves_store: false,
        }
    }

    fn error(&mut self, message: String) {
        self.errors.push(Message::Device { message });
    }

    fn warn(&mut self, message: String) {
        self.warnings.push(Message::Device { message });
    }
}

/// A mistake at a place of a file, or about a device.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Message {
    Place(ErrorReport),
    Device { message: String },
    Store(StoreProblem),
}

impl Message {
    /// In a line; nothing if the line of the one before says it too.
    fn line(&self) -> Option<String> {
        match self {
            Message::Place(report) => Some(report.to_string()),
            Message::Device { message } => Some(message.clone()),
            Message::Store(wrong) => wrong.line.clone(),
        }
    }
}

impl DiskCheckArgs {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let report = match self.source.read() {
            Ok(disk) => check_disk(disk, if self.data { Depth::Data } else { Depth::Structure }),
            Err(error) => match error.downcast::<ConfigErrors>() {
                Ok(errors) if !self.json => {
                    report!("{errors}");
                    return Ok(ExitCode::FAILURE);
                }
                Ok(errors) => {
                    let errors = errors.reports().into_iter().map(Message::Place).collect();
                    DiskCheckReport { ok: Some(false), errors, ..DiskCheckReport::new() }
                }
                Err(error) => return Err(error),
            },
        };
        if self.json {
            output::json(&report)?;
        } else {
            output::print(&summary(&report))?;
        }
        Ok(if report.ok == Some(false) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}

/// Checks the devices of a disk, without opening the disk itself.
fn check_disk(disk: DiskSpec, depth: Depth) -> DiskCheckReport {
    let mut report = DiskCheckReport::new();
    let flash = disk.cache.as_ref().map(|cache| ("flash", &cache.flash));
    for (part, device) in std::iter::once(("disk", &disk.disk)).chain(flash) {
        let Some(path) = device.path() else { continue };
        match check_device(path, device) {
            Ok(None) => {}
            Ok(Some(warning)) => report.warnings.push(Message::Device { message: format!("{part}: {warning}") }),
            Err(error) => report.errors.push(Message::Device { message: format!("{part}: {error}") }),
        }
    }
    if let Some(Err(error)) = disk.cache.as_ref().map(|cache| keeps(&disk.disk, cache)) {
        report.error(error.to_string());
    }
    if let Some(problem) = disk.cache.as_ref().and_then(|cache| too_small(&cache.flash)) {
        report.errors.push(Message::Device { message: problem });
    }
    if disk.cache.is_none() && !place::is_served(&disk.name) {
        // What cannot be opened has been told.
        let alone = open::needs_flash(&disk.disk).ok().flatten();
        report.warnings.extend(alone.map(|message| Message::Device { message }));
    }
    if let Some(Err(error)) = disk.nbd.tls.as_ref().map(TlsSpec::load) {
        report.errors.push(Message::Device { message: error.to_string() });
    }
    let far = disk.nbd.open_to_others().map(|address| Message::Device { message: open_to_others(address) });
    report.warnings.extend(far);
    check_users(&disk, &mut report);
    let may_read = report.errors.is_empty() && report.unread.is_none();
    if let (Some(cache), true) = (&disk.cache, may_read) {
        let is_there = |device: &DeviceSpec| device.path().is_none_or(|path| !open::is_missing(path).unwrap_or(false));
        match (is_there(&disk.disk), is_there(&cache.flash)) {
            (true, true) => check_halves(&disk, cache, &mut report),
            (true, false) => check_for_flash(&disk, &mut report),
            (false, _) => {}
        }
    }
    if report.unread.is_none() {
        check_log_store(&disk, depth, &mut report);
        if depth == Depth::Structure {
            check_last_scrub(&disk, &mut report);
        }
    }
    report.ok = if report.errors.is_empty() { report.unread.is_none().then_some(true) } else { Some(false) };
    report.disk = Some(disk);
    report
}

/// Looks for users of the disk. If there are any, its contents are not checked, since data that is written meanwhile
/// would look like damage. A daemon is asked what it knows.
fn check_users(disk: &DiskSpec, report: &mut DiskCheckReport) {
    if place::is_served(&disk.name) {
        let status = match place::client_of(disk) {
            Ok((_, status)) => status,
            Err(error) => return report.error(reasons(&error)),
        };
        report.serves_store = status.kind == "log";
        let (name, pid) = (&disk.name, status.pid);
        if !status.at_risk.is_empty() {
            let ranges = count(status.at_risk.len() as u64, "range");
            report.error(format!("its daemon says that {ranges} are at risk (see `umbrella disk status {name}`)"));
        }
        for trouble in status.trouble {
            report.warn(format!("its daemon says: {trouble}"));
        }
        // What no daemon writes can be read beside its daemon.
        if status.read_only && status.flash.is_none() && disk.disk.path().is_some() {
            return report.warn(format!("{name} is served, read-only (process {pid})"));
        }
        report.unread = Some(format!("{name} is served (process {pid})"));
        return report.warn(format!(
            "{name} is served (process {pid}): its data was not checked (`umbrella disk detach {name}` first)"
        ));
    }
    let flash = disk.cache.as_ref().map(|cache| &cache.flash);
    let Some(used) = std::iter::once(&disk.disk).chain(flash).find_map(in_use) else { return };
    // A look at its beginning does no harm.
    report.serves_store = disk.log.is_some() || disk.disk.path().is_some_and(|path| has_a_store(path));
    report.warn(format!("{used}: its data was not checked"));
    report.unread = Some(used);
}

/// The flash is not there: whether the disk is waiting for it.
fn check_for_flash(disk: &DiskSpec, report: &mut DiskCheckReport) {
    let half = OpenDevice::open_data(&disk.disk, Access::ReadOnly).ok().flatten().map(|part| part.half());
    let message = match half.map(|half| hybrid::flash_of(&half)) {
        None | Some(Ok(None)) => return,
        Some(Ok(Some(flash))) => format!(
            "the disk belongs together with the flash {flash}, which is missing; connect it, or if it is lost, run \
            `umbrella disk detach --forget-flash` (docs/disk.md)"
        ),
        Some(Err(error)) => format!("the disk may belong together with a flash that is missing: {error}"),
    };
    report.errors.push(Message::Device { message });
}

/// Reads both halves of a hybrid disk that is not in use.
fn check_halves(disk: &DiskSpec, cache: &CacheSpec, report: &mut DiskCheckReport) {
    let open = |device| Ok(OpenDevice::open_data(device, Access::ReadOnly)?.map(|part| part.half()));
    let checked = open(&disk.disk).and_then(|disk| Ok(disk.zip(open(&cache.flash)?))).and_then(|halves| {
        let Some((disk, flash)) = halves else { return Ok(None) };
        Ok(Some(hybrid::check(&disk, &flash)?))
    });
    match checked {
        Ok(pair) => {
            let lost_before = || pair.as_ref().and_then(|pair| skipped(&pair.losses));
            let damage = pair.as_ref().and_then(|pair| pair.damage.as_ref());
            let damage = damage.map(|damage| format!("{damage}; {GO_ON}")).or_else(lost_before);
            let unknown = pair.as_ref().and_then(|pair| unknown(&pair.losses));
            let perhaps = pair.as_ref().filter(|pair| !pair.perhaps_lost.is_empty()).map(|_| PERHAPS_LOST.to_owned());
            report
                .errors
                .extend(damage.into_iter().chain(unknown).chain(perhaps).map(|message| Message::Device { message }));
            report.pair = pair;
        }
        Err(error) => report.error(reasons(&error)),
    }
}

/// Reads the log store of a disk that is not in use, if there is one.
fn check_log_store(disk: &DiskSpec, depth: Depth, report: &mut DiskCheckReport) {
    let is_there = disk.disk.path().is_some_and(|path| path.exists());
    if !report.errors.is_empty() || !is_there {
        return;
    }
    let halves_are_whole = report.pair.as_ref().is_some_and(|pair| pair.damage.is_none());
    if disk.cache.is_some() && !halves_are_whole {
        return;
    }
    match check_store::check_store(disk, depth) {
        Ok(None) => {}
        Ok(Some(StoreCheck { report: store, errors, warnings })) => {
            report.errors.extend(errors.into_iter().map(Message::Store));
            report.warnings.extend(warnings.into_iter().map(|message| Message::Device { message }));
            report.store = Some(store);
        }
        Err(error) => report.error(reasons(&error)),
    }
}

/// Reads again what the last scrub of a log store found damaged: what was written since is whole.
fn check_last_scrub(disk: &DiskSpec, report: &mut DiskCheckReport) {
    let Some(id) = report.store.as_ref().map(|store| store.id) else { return };
    let kept = Scrubs::of(disk.name.clone(), Some(id)).status().last;
    let Some(last) = kept.filter(|last| last.ranges() > 0) else { return };
    match check_store::unreadable(disk, &last.damaged) {
        Ok(still) if still == 0 && last.unnamed == 0 => {}
        Ok(still) => report.error(format!(
            "log store: the last scrub found {} damaged, and {} cannot be read now; --data lists the blocks",
            count(last.ranges(), "range"),
            count(still + last.unnamed, "range"),
        )),
        Err(error) => report.error(reasons(&error)),
    }
}

/// The message that a flash is too small, if it is: by its present size, or else by the configured one.
pub(super) fn too_small(flash: &DeviceSpec) -> Option<String> {
    let file = flash.path().and_then(|path| std::fs::metadata(path).ok());
    let size = match file {
        Some(file) if file.is_file() && file.len() > 0 => Some(ByteSize(file.len())),
        Some(file) if !file.is_file() => None,
        _ => flash.size(),
    };
    let size = size.filter(|size| *size < LEAST_FLASH)?;
    let [size, least] = size.told_apart(LEAST_FLASH);
    Some(format!("flash: {size} is too small; give it at least {least}"))
}

/// A warning about a device, or the error why it cannot be used.
fn check_device(path: &Path, device: &DeviceSpec) -> Result<Option<String>, String> {
    let shown = visible_path(path);
    let size = device.size();
    match std::fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound && !open::may_be_made(path) => {
            Err(format!("{shown} does not exist; check the name of the device"))
        }
        Err(error) if error.kind() == ErrorKind::NotFound && size.is_some() => {
            Ok(Some(format!("{shown} does not exist yet (`umbrella disk create` makes it)")))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err(format!("{shown} does not exist (name a disk or file, or give its size so that `create` can make it)"))
        }
        Err(error) => Err(format!("cannot read {shown}: {error}")),
        Ok(data) if data.is_file() && data.len() == 0 => match size {
            Some(_) => Ok(Some(format!("{shown} is empty (`umbrella disk create` makes it)"))),
            None => Err(format!("{shown} is empty; give its size so that `create` can make it")),
        },
        Ok(data) if !is_disk(&data) => Err(format!("{shown} is neither a regular file nor a block device")),
        Ok(data) => Ok(size.filter(|size| data.is_file() && data.len() != size.0).map(|size| {
            let [is, size] = ByteSize(data.len()).told_apart(size);
            format!("{shown} has {is}, not {size}; its actual size is used")
        })),
    }
}

/// What is between the certain and the promised mark.
const PERHAPS_LOST: &str = "part of the log is damaged near its end. If the last flush before the end was answered, \
    flushed data is lost. Attaching the disk continues with the rest";

/// Ranges at risk that are listed; the rest is counted.
const AT_RISK_SHOWN: usize = 20;

/// What is in the log.
fn log(pair: &PairReport) -> String {
    let torn = if pair.torn { "; the last one is incomplete and was never acknowledged" } else { "" };
    let lost = pair.losses.at_risk.iter().chain(&pair.perhaps_lost.at_risk).map(|range| range.bytes().0).sum();
    let lost = if lost == 0 { String::new() } else { format!("; {} lost", ByteSize(lost)) };
    format!(
        "log: {}, {} of {} in use{torn}; not on the disk yet: {}, in {}{lost}",
        count(pair.records, "record"),
        pair.log_used,
        pair.log_size,
        unwritten(pair.cached, pair.cached_zeroes),
        count(pair.only_in_log.len() as u64, "range")
    )
}

fn is_disk(data: &Metadata) -> bool {
    data.is_file() || data.file_type().is_block_device()
}

fn summary(report: &DiskCheckReport) -> String {
    let warnings = report.warnings.iter().filter_map(Message::line).map(|line| format!("warning: {line}"));
    let errors = report.errors.iter().filter_map(Message::line).map(|line| format!("error: {line}"));
    let mut lines: Vec<String> = errors.chain(warnings).collect();
    if let Some(pair) = &report.pair {
        lines.push(log(pair));
        for (losses, word) in [(&pair.losses, "at risk"), (&pair.perhaps_lost, "perhaps lost")] {
            let ranges = &losses.at_risk;
            lines.extend(ranges.iter().take(AT_RISK_SHOWN).map(|range| format!("{word}: {range}")));
            let more = ranges.len().saturating_sub(AT_RISK_SHOWN);
            lines.extend((more > 0).then(|| format!("{word}: {} more (--json has all)", count(more as u64, "range"))));
        }
        let unknown = pair.perhaps_lost.unknown_records;
        lines.extend((unknown > 0).then(|| format!("perhaps lost: {} of unknown sectors", count(unknown, "record"))));
    }
    lines.extend(report.store.as_ref().map(StoreReport::to_line));
    if let Some(disk) = &report.disk {
        let kind = match (report.store.is_some() || report.serves_store, &disk.cache) {
            (true, Some(_)) => "log store on a hybrid disk",
            (true, None) => "log store",
            (false, Some(_)) => "hybrid disk",
            (false, None) => disk.disk.kind(),
        };
        let errors = count(report.errors.len() as u64, "error");
        let warnings = count(report.warnings.len() as u64, "warning");
        let verdict = match report.ok {
            Some(true) => "ok",
            Some(false) => "not ok",
            None => "in use, not checked",
        };
        lines.push(format!("{}: {verdict} ({kind}, {errors}, {warnings})", disk.name));
    }
    lines.push(String::new());
    lines.join("\n")
}
