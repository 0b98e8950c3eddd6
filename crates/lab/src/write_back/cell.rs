//! One run: everything that it depends on.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use umbrella_model::allocator::Aging;
use umbrella_model::device::Device;
use umbrella_model::device::profiles::{self, Options, Spec};
use umbrella_model::page_cache::PageCacheConfig;
use umbrella_model::scheduler;
use umbrella_policy::writeback::{PolicyInfo, WriteBack, WriteBackError, find_policy};
use umbrella_units::{BlockNo, ByteSize, Nanos, PAGE_BYTES, format_duration};

use super::disk::{Partition, disks_of};
use super::replay::{Replay, ReplayOptions, areas};
use super::{Fit, ReplaySpeed, WriteBackCell};
use crate::drive::DriveProfile;
use crate::experiment::{LabError, Machine, Watch, modelled_time};
use crate::machine::{Allocation, Bookkeeping, Computer, Config, Foresight, Layout, RunError, WriteLog};
use crate::result::{Outcome, Setting};
use crate::trace::{self, Columns, OpenOptions, Order, Strictness, Summary, TraceError};
use crate::workload::{Scale, Seed, Workload, build_workload};

/// What is run.
#[derive(Debug, Clone)]
pub enum WriteBackInput {
    /// A workload by its spec.
    Workload {
        /// Such as `postmark:files=20000`.
        spec: String,
    },
    /// A recorded trace.
    Trace {
        /// The file.
        path: PathBuf,
        /// How it is read.
        open: OpenOptions,
        /// How it is replayed.
        replay: ReplayOptions,
        /// What is in it, found out before the first run.
        summary: Arc<Summary>,
        /// Its requests, if they are in memory: then the file is a name only.
        columns: Option<Arc<Columns>>,
    },
}

impl WriteBackInput {
    /// A trace, looked through once.
    pub fn trace(path: PathBuf, open: OpenOptions, replay: ReplayOptions) -> Result<WriteBackInput, LabError> {
        let summary = scan_trace(&path, &open).map_err(|source| LabError::Trace { path: path.clone(), source })?;
        if let Some(device) = replay.device.filter(|device| *device as usize >= summary.devices.len()) {
            return Err(LabError::NoSuchDevice { path, device, devices: summary.devices.len() });
        }
        Ok(WriteBackInput::Trace { path, open, replay, summary: Arc::new(summary), columns: None })
    }

    /// A trace that is in memory.
    pub fn columns(name: PathBuf, columns: Arc<Columns>, replay: ReplayOptions) -> Result<WriteBackInput, LabError> {
        let summary = columns.summary();
        if let Some(device) = replay.device.filter(|device| *device as usize >= summary.devices.len()) {
            return Err(LabError::NoSuchDevice { path: name, device, devices: summary.devices.len() });
        }
        let (open, summary) = (OpenOptions::default(), Arc::new(summary));
        Ok(WriteBackInput::Trace { path: name, open, replay, summary, columns: Some(columns) })
    }

    /// What it is called in results.
    pub fn name(&self) -> String {
        match self {
            WriteBackInput::Workload { spec } => spec.clone(),
            WriteBackInput::Trace { path, .. } => {
                path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
            }
        }
    }
}

fn scan_trace(path: &std::path::Path, open: &OpenOptions) -> Result<Summary, TraceError> {
    let mut reader = trace::open(path, open)?;
    let mut summary = Summary::default();
    for record in &mut reader {
        summary.add(&record?);
    }
    summary.finish(&reader);
    Ok(summary)
}

/// The machine that a cell runs on.
#[derive(Debug, Clone, PartialEq)]
pub struct MachineSpec {
    /// The policy's spec.
    pub policy: String,
    /// The seed of everything random.
    pub seed: u64,
    /// Shrinks sizes and memory together; for workloads.
    pub scale: f64,
    /// What a sweep set.
    pub swept: BTreeMap<String, String>,
    /// The disk's profile.
    pub disk: String,
    /// The request scheduler.
    pub scheduler: String,
    /// Requests that the scheduler holds.
    pub queue_length: usize,
    /// Commands that the disk takes at once; the profile's own when `None`.
    pub queue_depth: Option<u32>,
    /// Whether the disk's write cache is on; the profile's own when `None`.
    pub write_cache: Option<bool>,
    /// Memory for file pages.
    pub memory: ByteSize,
    /// Background threshold in percent of memory.
    pub background_percent: u32,
    /// Foreground threshold in percent of memory.
    pub foreground_percent: u32,
    /// How long a page may be dirty; `None` for non-volatile memory.
    pub expire_after: Option<Nanos>,
    /// Whether new files are staged in memory.
    pub staging: bool,
    /// When and where pages get their blocks; for workloads.
    pub allocation: Allocation,
    /// The share of the file system that old files take before the run, in percent; for workloads.
    pub aged_percent: u32,
    /// The largest read-ahead in pages.
    pub read_ahead: u32,
    /// By what throttled writers write; `None`: they ask the policy.
    pub throttled_policy: Option<String>,
    /// What bookkeeping costs the processor.
    pub bookkeeping: Bookkeeping,
    /// Whether all dirty data is written every five seconds, as by ext3's journal in ordered mode; for workloads.
    pub ordered_commits: bool,
    /// Whether windows of blocks grow, as in ext3; for workloads.
    pub growing_windows: bool,
    /// The part of the disk that the file system has; all of it when `None`. For workloads.
    pub partition: Option<Partition>,
    /// The drive of a profile in a file, which [`MachineSpec::disk`] then names.
    pub drive: Option<Arc<DriveProfile>>,
}

/// The journal's time between two commits (ext3's default, `commit=5`).
const COMMIT_EVERY: Nanos = Nanos::from_secs(5);

impl Default for MachineSpec {
    /// Linux's defaults over a modern 7200 rpm disk.
    fn default() -> Self {
        let cache = PageCacheConfig::default();
        MachineSpec {
            policy: "file".to_owned(),
            seed: 1,
            scale: 1.0,
            swept: BTreeMap::new(),
            disk: "modern".to_owned(),
            scheduler: "elevator".to_owned(),
            queue_length: 128,
            queue_depth: None,
            write_cache: None,
            memory: ByteSize(512 << 20),
            background_percent: cache.background_percent,
            foreground_percent: cache.foreground_percent,
            expire_after: cache.expire_after,
            staging: false,
            allocation: Allocation::AtOnce,
            aged_percent: 0,
            read_ahead: 32,
            throttled_policy: None,
            bookkeeping: Bookkeeping::default(),
            ordered_commits: false,
            growing_windows: false,
            partition: None,
            drive: None,
        }
    }
}

impl MachineSpec {
    /// Chooses a disk: a profile by its name, or the file of a profile, whose name has a `/` or ends in `.toml`.
    pub fn set_disk(&mut self, disk: &str) -> Result<(), LabError> {
        let is_file = disk.contains('/') || Path::new(disk).extension().is_some_and(|extension| extension == "toml");
        let open =
            || DriveProfile::open(Path::new(disk)).map_err(|source| LabError::Drive { path: disk.into(), source });
        self.drive = if is_file { Some(Arc::new(open()?)) } else { None };
        disk.clone_into(&mut self.disk);
        Ok(())
    }

    /// How its disk is built.
    fn disk_spec(&self) -> Result<Spec, LabError> {
        Ok(match &self.drive {
            Some(drive) => Spec::Disk(drive.spec()),
            None => profiles::profile(&self.disk)?.spec,
        })
    }
}

/// A replay may last so long on the modelled machine, whose clock counts nanoseconds.
const LONGEST_REPLAY: Nanos = Nanos::from_secs(100 * 365 * 86_400);

fn check_length(replay: &ReplayOptions, summary: &Summary) -> Result<(), LabError> {
    let ReplaySpeed::Times(speed) = replay.speed else { return Ok(()) };
    let least = summary.length.0 as f64 / LONGEST_REPLAY.0 as f64;
    if speed >= least {
        return Ok(());
    }
    let expected = format!("the replay would last more than a hundred years: give {least:.3} or more, or max");
    Err(LabError::BadValue { name: "speed".to_owned(), value: speed.to_string(), expected })
}

/// Below this, the few pages that policies are asked for at a time decide more than their quality does.
const LEAST_TELLING: f64 = 0.1;

/// The most blocks of a disk that is aged (512 GiB): aging takes time and memory for each block.
const MOST_AGED: u64 = 128 << 20;

/// A step may need this many pages at once for the blocks that it changes besides its own.
const LEAST_MEMORY: ByteSize = ByteSize(64 * PAGE_BYTES);

/// What the registry says of a spec's policy.
pub(super) fn policy_info(spec: &str) -> Result<&'static PolicyInfo, WriteBackError> {
    find_policy(spec.split(':').next().unwrap_or_default().trim())
}

impl Machine for MachineSpec {
    type Input = WriteBackInput;
    type Outcome = Outcome;

    fn identity(cell: &WriteBackCell) -> String {
        let input = match &*cell.input {
            WriteBackInput::Workload { spec } => spec.clone(),
            WriteBackInput::Trace { path, open, replay, .. } => format!("{} {open:?} {replay:?}", path.display()),
        };
        // What a sweep set is in the other fields; where it set nothing, the run is the same.
        format!("{input} on {:?}", MachineSpec { swept: BTreeMap::new(), ..cell.machine.clone() })
    }

    fn label(cell: &WriteBackCell) -> String {
        let swept: Vec<String> = cell.machine.swept.iter().map(|(name, value)| format!("{name}={value}")).collect();
        format!("{} {}", cell.machine.policy, swept.join(" "))
    }

    fn simulated(outcome: &Outcome) -> String {
        modelled_time(outcome.time_s)
    }

    fn check(cell: &WriteBackCell) -> Result<(), LabError> {
        let of = &cell.machine;
        WriteBack::parse(&of.policy)?;
        if let Some(policy) = &of.throttled_policy
            && WriteBack::parse(policy)?.info().offline
        {
            let expected = "give a policy that does not need to know the future".to_owned();
            return Err(LabError::BadValue { name: "throttled-policy".to_owned(), value: policy.clone(), expected });
        }
        let disk = of.disk_spec()?;
        scheduler::scheduler(&of.scheduler)?;
        cell.check_machine(&disk)?;
        match &*cell.input {
            WriteBackInput::Workload { spec } => drop(build_workload(spec, Seed(of.seed), Scale::new(of.scale)?)?),
            WriteBackInput::Trace { replay, summary, .. } => {
                let capacity = cell.disk(&disk).capacity().block();
                check_length(replay, summary)?;
                let (_, end) = areas(summary, replay.device, None);
                if replay.fit == Fit::Refuse && end > capacity {
                    return Err(cell.beyond_end(ByteSize(end.0.saturating_mul(PAGE_BYTES)), capacity));
                }
            }
        }
        Ok(())
    }

    /// A run that was ended early has an outcome that says so; one that was ended before it began, one without figures.
    fn run(cell: &WriteBackCell, watch: &mut Watch<'_>) -> Result<Option<Outcome>, LabError> {
        match cell.run_through(watch) {
            Err(LabError::Run { source: RunError::Stopped, .. }) => {
                Ok(Some(Outcome { setting: cell.setting(), interrupted: true, ..Outcome::default() }))
            }
            result => result.map(Some),
        }
    }
}

impl WriteBackCell {
    /// What should be known of its input, besides errors.
    pub fn warnings(&self) -> Vec<String> {
        let WriteBackInput::Workload { spec } = &*self.input else { return Vec::new() };
        let built =
            Scale::new(self.machine.scale).and_then(|scale| build_workload(spec, Seed(self.machine.seed), scale));
        let mut warnings = built.map_or_else(|_| Vec::new(), |workload| workload.warnings().to_vec());
        if self.machine.scale < LEAST_TELLING {
            warnings.push(format!(
                "at scale {} policies choose {} pages at a time instead of {}, too few to order. Results from scale {LEAST_TELLING} on tell more of the full size",
                self.machine.scale,
                self.batch(),
                PageCacheConfig::default().batch
            ));
        }
        warnings
    }

    /// The number of pages that a policy chooses at a time, shrunk as the workload is.
    fn batch(&self) -> u64 {
        (PageCacheConfig::default().batch as f64 * self.share()).ceil() as u64
    }

    /// What a sweep can set as well as an option.
    fn check_machine(&self, disk: &Spec) -> Result<(), LabError> {
        let bad = |name: &str, value: String, expected: String| {
            Err(LabError::BadValue { name: name.to_owned(), value, expected })
        };
        let of = &self.machine;
        let depth = match &*self.input {
            WriteBackInput::Trace { replay, .. } => u64::from(replay.depth),
            WriteBackInput::Workload { .. } => 1,
        };
        let numbers = [
            ("depth", depth, 1..=65_536),
            ("background", u64::from(of.background_percent), 1..=100),
            ("foreground", u64::from(of.foreground_percent), 1..=100),
            ("queue-length", of.queue_length as u64, 1..=65_536),
            ("queue-depth", u64::from(of.queue_depth.unwrap_or(1)), 1..=32),
            ("read-ahead", u64::from(of.read_ahead), 0..=65_536),
            ("aged", u64::from(of.aged_percent), 0..=u64::from(Aging::MOST_PERCENT)),
        ];
        for (name, value, allowed) in numbers {
            if !allowed.contains(&value) {
                let expected = format!("give a whole number from {} to {}", allowed.start(), allowed.end());
                return bad(name, value.to_string(), expected);
            }
        }
        let is_trace = matches!(*self.input, WriteBackInput::Trace { .. });
        for (name, is_set) in [
            ("ordered-commits", of.ordered_commits),
            ("growing-windows", of.growing_windows),
            ("partition", of.partition.is_some()),
        ] {
            if is_set && is_trace {
                return bad(name, String::new(), "a trace has no file system".to_owned());
            }
        }
        if let Some(partition) = of.partition
            && disk.build(&Options::default()).capacity().block().0 < partition.size.0 / PAGE_BYTES
        {
            return bad("partition", partition.to_string(), "the disk is smaller".to_owned());
        }
        if of.aged_percent > 0 && is_trace {
            return bad("aged", of.aged_percent.to_string(), "a trace has no file system that could age".to_owned());
        }
        if of.aged_percent > 0 && self.disk(disk).capacity().block().0 > MOST_AGED {
            let most = ByteSize(MOST_AGED * PAGE_BYTES);
            let expected = format!(
                "the disk is too large to be aged in memory: choose a disk of at most {most} ({})",
                disks_of(|size| size <= most)
            );
            return bad("aged", of.aged_percent.to_string(), expected);
        }
        if is_trace && self.machine.scale.to_bits() != 1.0f64.to_bits() {
            let expected = "only workloads shrink; cut a trace before".to_owned();
            return bad("scale", self.machine.scale.to_string(), expected);
        }
        if Scale::new(self.machine.scale).is_ok() && self.memory() < LEAST_MEMORY {
            let shrunk =
                if self.machine.scale < 1.0 { format!(" at scale {}", self.machine.scale) } else { String::new() };
            let expected = format!("too little{shrunk}: at least {LEAST_MEMORY} must be left");
            return bad("memory", of.memory.to_string(), expected);
        }
        Ok(())
    }

    fn run_through(&self, watch: &mut Watch<'_>) -> Result<Outcome, LabError> {
        if !policy_info(&self.machine.policy)?.offline {
            return self.run_once(None, watch);
        }
        // A policy that looks into the future needs a run of the same input that shows it.
        let (_, log) = self.run_logged(watch)?;
        self.run_once(Some(Foresight::new(Arc::new(log))), watch)
    }

    fn run_once(&self, foresight: Option<Foresight>, watch: &mut Watch<'_>) -> Result<Outcome, LabError> {
        let mut machine = self.build(&self.machine.policy, watch)?;
        if let Some(foresight) = foresight {
            machine = machine.with_foresight(foresight);
        }
        self.with_workload(|workload| machine.run(self.setting(), workload, watch))
    }

    fn run_logged(&self, watch: &mut Watch<'_>) -> Result<(Outcome, WriteLog), LabError> {
        let machine = self.build("cscan", watch)?;
        self.with_workload(|workload| machine.run_logged(self.setting(), workload, watch))
    }

    fn with_workload<T>(&self, run: impl FnOnce(&mut dyn Workload) -> Result<T, RunError>) -> Result<T, LabError> {
        match &*self.input {
            WriteBackInput::Workload { spec } => {
                let mut workload = build_workload(spec, Seed(self.machine.seed), Scale::new(self.machine.scale)?)?;
                run(&mut *workload).map_err(|source| self.failed(source))
            }
            WriteBackInput::Trace { path, open, replay, summary, columns } => {
                let wrong = |source| LabError::Trace { path: path.clone(), source };
                let capacity = self.disk(&self.machine.disk_spec()?).capacity().block();
                if let Some(columns) = columns {
                    let mut replay = Replay::new(columns.records().map(Ok), *replay, summary, capacity);
                    return run(&mut replay).map_err(|source| self.failed(source));
                }
                let reader = trace::open(path, open).map_err(wrong)?;
                let mut replay = Replay::new(reader, *replay, summary, capacity);
                let outcome = run(&mut replay);
                match replay.take_error() {
                    Some(source) => Err(wrong(source)),
                    None if replay.is_another() => Err(LabError::TraceChanged { path: path.clone() }),
                    None => outcome.map_err(|source| self.failed(source)),
                }
            }
        }
    }

    fn disk(&self, disk: &Spec) -> Box<dyn Device> {
        let MachineSpec { queue_depth, write_cache, partition, .. } = self.machine;
        let options = Options { queue_depth, write_cache, capacity: None, buffer_share: Some(self.share()) };
        let disk = disk.build(&options);
        match partition {
            Some(partition) => Box::new(partition.of(disk)),
            None => disk,
        }
    }

    /// What share of its size the machine has, beside a workload that is shrunk.
    fn share(&self) -> f64 {
        if matches!(*self.input, WriteBackInput::Workload { .. }) { self.machine.scale } else { 1.0 }
    }

    /// Memory, shrunk as the workload is.
    fn memory(&self) -> ByteSize {
        ByteSize((self.machine.memory.0 as f64 * self.share()) as u64 / PAGE_BYTES * PAGE_BYTES)
    }

    fn build(&self, policy: &str, watch: &mut Watch<'_>) -> Result<Computer, LabError> {
        let of = &self.machine;
        let config = Config {
            cache: PageCacheConfig {
                pages: self.memory().0 / PAGE_BYTES,
                background_percent: of.background_percent,
                foreground_percent: of.foreground_percent,
                expire_after: of.expire_after,
                batch: self.batch(),
                ..PageCacheConfig::default()
            },
            read_ahead: of.read_ahead,
            staging: of.staging,
            allocation: of.allocation,
            bookkeeping: of.bookkeeping,
            ordered_commits: of.ordered_commits.then_some(COMMIT_EVERY),
            growing_windows: of.growing_windows,
            ..Config::default()
        };
        let layout = match *self.input {
            WriteBackInput::Workload { .. } => {
                Layout::FileSystem { seed: self.machine.seed, aged_percent: of.aged_percent }
            }
            WriteBackInput::Trace { .. } => Layout::Device,
        };
        let disk = self.disk(&of.disk_spec()?);
        let schedule = scheduler::scheduler(&of.scheduler)?;
        let policy = WriteBack::parse(policy)?;
        let schedule = |disk| schedule.build(disk, of.queue_length);
        let machine = Computer::watched(config, layout, policy, disk, schedule, &mut || watch(None))
            .map_err(|source| self.failed(source))?;
        Ok(match &of.throttled_policy {
            Some(policy) => machine.with_throttled_writers(WriteBack::parse(policy)?),
            None => machine,
        })
    }

    fn setting(&self) -> Setting {
        Setting {
            policy: self.machine.policy.clone(),
            input: self.input.name(),
            disk: self.machine.disk.clone(),
            scheduler: self.machine.scheduler.clone(),
            memory: self.memory(),
            staging: self.machine.staging,
            seed: self.machine.seed,
            scale: self.machine.scale,
            trace: match &*self.input {
                WriteBackInput::Trace { path, .. } => Some(path.to_string_lossy().into_owned()),
                WriteBackInput::Workload { .. } => None,
            },
            options: self.options(),
            swept: self.machine.swept.clone(),
        }
    }

    /// What differs from the defaults, as options of the command line.
    fn options(&self) -> BTreeMap<String, String> {
        let (of, default) = (&self.machine, MachineSpec::default());
        let mut options = BTreeMap::new();
        let mut say = |differs: bool, name: &str, value: String| {
            if differs {
                options.insert(name.to_owned(), value);
            }
        };
        say(of.queue_length != default.queue_length, "queue-length", of.queue_length.to_string());
        say(of.read_ahead != default.read_ahead, "read-ahead", of.read_ahead.to_string());
        say(of.background_percent != default.background_percent, "background", of.background_percent.to_string());
        say(of.foreground_percent != default.foreground_percent, "foreground", of.foreground_percent.to_string());
        say(of.allocation == Allocation::Delayed, "delayed-allocation", String::new());
        say(of.allocation == Allocation::Log, "log-structured", String::new());
        say(of.throttled_policy.is_some(), "throttled-policy", of.throttled_policy.clone().unwrap_or_default());
        say(of.aged_percent != default.aged_percent, "aged", of.aged_percent.to_string());
        let costs = [
            ("entry-cost", of.bookkeeping.entry),
            ("zone-page-cost", of.bookkeeping.zone_page),
            ("zone-cost", of.bookkeeping.zone),
        ];
        for (name, cost) in costs {
            say(cost > Nanos(0), name, cost.0.to_string());
        }
        say(of.ordered_commits, "ordered-commits", String::new());
        say(of.growing_windows, "growing-windows", String::new());
        say(of.partition.is_some(), "partition", of.partition.map_or_else(String::new, |part| part.to_string()));
        let expire = of.expire_after.map_or_else(|| "never".to_owned(), |after| format!("{}ms", after.0 / 1_000_000));
        say(of.expire_after != default.expire_after, "expire", expire);
        say(of.queue_depth.is_some(), "queue-depth", of.queue_depth.unwrap_or_default().to_string());
        say(of.write_cache.is_some(), "write-cache", of.write_cache.unwrap_or_default().to_string());
        if let WriteBackInput::Trace { open, replay, .. } = &*self.input {
            let (default, read) = (ReplayOptions::default(), OpenOptions::default());
            say(
                open.format.is_some(),
                "format",
                open.format.map_or_else(String::new, |format| format.name().to_owned()),
            );
            say(open.event != read.event, "event", open.event.name().to_owned());
            say(open.strictness == Strictness::Strict, "strict", String::new());
            say(open.strictness == Strictness::Lenient, "lenient", String::new());
            if let Order::Time { window } = open.order {
                say(open.order != read.order, "window", window.to_string());
            }
            let gap = format_duration(std::time::Duration::from_nanos(open.max_gap.0));
            say(open.max_gap != read.max_gap, "max-gap", gap);
            say(replay.depth != default.depth, "depth", replay.depth.to_string());
            say(replay.fit != default.fit, "fit", "wrap".to_owned());
            say(replay.device.is_some(), "device", replay.device.unwrap_or_default().to_string());
            let speed = match replay.speed {
                ReplaySpeed::Times(speed) => speed.to_string(),
                ReplaySpeed::Max => "max".to_owned(),
            };
            say(replay.speed != default.speed, "speed", speed);
        }
        options
    }

    fn beyond_end(&self, end: ByteSize, capacity: BlockNo) -> LabError {
        LabError::BeyondEnd {
            input: self.input.name(),
            end,
            disk: self.machine.disk.clone(),
            capacity: ByteSize(capacity.0 * PAGE_BYTES),
            larger: disks_of(|size| size >= end),
        }
    }

    fn failed(&self, source: RunError) -> LabError {
        LabError::Run { policy: self.machine.policy.clone(), input: self.input.name(), source }
    }
}
