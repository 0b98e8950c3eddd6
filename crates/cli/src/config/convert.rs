//! From the shape of the file to a [`PoolSpec`]; every mistake is collected, so that one run shows them all.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use toml::Spanned;
use umbrella_fs::spec::{
    AccessTimes, BranchSpec, EnforceSpec, HeatSpec, OnBranchError, PoolSpec, StagingSpec, WriteBackSpec,
};
use umbrella_policy::placement::spec::{ANY, DEFAULT, RulesSpec};
use umbrella_units::{Amount, ByteSize};
use umbrella_writeback::FlusherError;

use super::branch_paths;
use super::complaints::Complaints;
use super::conversion::Conversion;
use super::evict;
use super::file::{BranchFile, EnforceFile, HeatFile, PoolFile, StagingFile};
use super::groups;
use super::problem::{ConfigErrors, Problem};
use super::rules;
use super::source::Source;
use super::values::all_names;
use super::{Config, Spans};

/// A branch has a number of 16 bits, and every one costs a look at each listing.
const MOST_BRANCHES: usize = 1024;
const DEFAULT_CACHE_TIMEOUT: Duration = Duration::from_secs(3600);
const MOST_THREADS: i64 = 256;
/// Each is looked up when a warm file is closed.
const MOST_NEIGHBOURS: u32 = 1000;
/// The write-back that is left to the kernel.
const KERNEL: &str = "kernel";

/// Turns the shape into a pool, which is mounted `at` a place other than the one in the file, if one is given.
pub(super) fn pool(file: &PoolFile, source: Source, at: Option<&Path>) -> Result<Config, ConfigErrors> {
    let mut conversion = Conversion {
        complaints: Complaints::new(source),
        branches: Vec::new(),
        says_min_free: Vec::new(),
        groups: Vec::new(),
        spans: Spans::default(),
    };
    let c = &mut conversion;
    let mount = c.complaints.absolute_path("mount", &file.mount);
    c.spans.mount = file.mount.span();
    if mount == Path::new("/") {
        c.fail(file.mount.span(), Problem::MountOnRoot);
    }
    let mount = at.map_or(mount, Path::to_owned);
    let mut branches = branches(c, file, &mount);
    groups::names(c, &file.group);
    let groups = groups::groups(c, &file.group);
    groups::keep_free(c, &file.group, &groups, &mut branches);
    let default = default_list(c, file);
    let evicts = evict::evicts(c, file, &groups);
    let rules = RulesSpec { rules: rules::rules(c, &file.rule), default, groups, evicts };
    let spec = PoolSpec {
        mount,
        branches,
        rules,
        on_branch_error: file.on_branch_error.unwrap_or(OnBranchError::Skip),
        directories: file.directories.unwrap_or_default(),
        cache_timeout: c.complaints.duration("cache_timeout", file.cache_timeout.as_ref(), DEFAULT_CACHE_TIMEOUT),
        enforce: enforce(c, &file.enforce),
        probe_interval: c.interval("probe_interval", file.probe_interval.as_ref()),
        probe_timeout: c.interval("probe_timeout", file.probe_timeout.as_ref()),
        threads: threads(c, file.threads.as_ref()),
        transport: file.transport.unwrap_or_default(),
        staging: Some(file.staging.as_ref().map_or_else(StagingSpec::default, |table| staging(c, table))),
        heat: file.heat.as_ref().map(|table| heat(c, table)),
        access_times: AccessTimes::default(),
    };
    if conversion.complaints.is_empty() {
        rules::compile(&mut conversion, &spec);
    }
    let Conversion { complaints, spans, .. } = conversion;
    complaints.end().map(|source| Config { spec, source, spans })
}

fn branches(c: &mut Conversion, file: &PoolFile, mount: &Path) -> Vec<BranchSpec> {
    if file.branch.is_empty() {
        c.fail(0..0, Problem::NoBranch);
    }
    let mut first_lines: HashMap<String, usize> = HashMap::new();
    let mut branches = Vec::with_capacity(file.branch.len().min(MOST_BRANCHES));
    for branch in &file.branch {
        let common = branch_spec(c, branch.get_ref());
        for place in branch_paths::places(c, branch.get_ref(), mount) {
            if branches.len() == MOST_BRANCHES {
                c.fail(branch.span(), Problem::TooManyBranches { limit: MOST_BRANCHES });
                return branches;
            }
            let line = c.line(&place.span);
            if let Some(&first_line) = first_lines.get(&place.name) {
                c.fail(place.span, Problem::DuplicateBranch { name: place.name.clone(), first_line });
            } else {
                first_lines.insert(place.name.clone(), line);
            }
            c.branches.push((place.name.clone(), line));
            c.says_min_free.push(branch.get_ref().min_free.is_some());
            c.spans.branches.push(branch.get_ref().path.span());
            branches.push(BranchSpec { name: place.name, path: place.path, ..common.clone() });
        }
    }
    branches
}

/// What the keys of a `[[branch]]` say of each branch that it makes.
fn branch_spec(c: &mut Conversion, branch: &BranchFile) -> BranchSpec {
    BranchSpec {
        min_free: c.amount("min_free", branch.min_free.as_ref()).unwrap_or(Amount::Bytes(ByteSize(0))),
        headroom: c.amount("headroom", branch.headroom.as_ref()),
        read_only: branch.read_only,
        create: branch.create.unwrap_or(true),
        max_files: branch.max_files.as_ref().and_then(|given| max_files(c, given)),
        hide: branch.hide,
        optional: branch.optional,
        require_mount: branch.require_mount,
        min_stay: c.complaints.duration("min_stay", branch.min_stay.as_ref(), Duration::ZERO),
        passthrough: branch.passthrough.unwrap_or(true),
        write_back: write_back(c, branch),
        ..BranchSpec::new("", "")
    }
}

fn max_files(c: &mut Conversion, given: &Spanned<i64>) -> Option<u64> {
    let number = u64::try_from(*given.get_ref()).ok().filter(|number| *number > 0);
    if number.is_none() {
        let valid = "1 or more (`create = false` keeps new files away)";
        c.fail(given.span(), Problem::OutOfRange { key: "max_files", given: given.get_ref().to_string(), valid });
    }
    number
}

/// `write_back = "kernel"` is what a branch has that says nothing.
fn write_back(c: &mut Conversion, branch: &BranchFile) -> Option<WriteBackSpec> {
    let limit = c.complaints.size(
        "write_back_limit",
        branch.write_back_limit.as_ref(),
        "1 MiB or more (leave it out for what the kernel allows)",
    );
    let background = c.complaints.size(
        "write_back_background",
        branch.write_back_background.as_ref(),
        "more than 0 bytes (leave it out for half of the limit)",
    );
    let policy = branch.write_back.as_ref().filter(|policy| policy.get_ref().trim() != KERNEL);
    let Some(policy) = policy else {
        let unused = branch.write_back_limit.as_ref().or(branch.write_back_background.as_ref());
        if let Some(unused) = unused {
            c.fail(unused.span(), Problem::LimitOfTheKernel);
        }
        return None;
    };
    let spec = WriteBackSpec { policy: policy.get_ref().trim().to_owned(), limit, background };
    if let Err(error) = spec.settings() {
        let reason = error.to_string();
        let (key, value) = match error {
            FlusherError::LimitTooLow { .. } => ("limit", branch.write_back_limit.as_ref()),
            FlusherError::BackgroundAboveLimit { .. } => ("background", branch.write_back_background.as_ref()),
            _ => ("", None),
        };
        match value {
            Some(value) => c.fail(value.span(), Problem::WriteBackLimit { key, reason }),
            None => c.fail(policy.span(), Problem::WriteBackPolicy { reason }),
        }
    }
    Some(spec)
}

/// The default list; empty when the file has none.
fn default_list(c: &mut Conversion, file: &PoolFile) -> Vec<String> {
    let Some(names) = &file.default else { return Vec::new() };
    c.spans.default = names.span();
    if let Some((span, _)) = all_names(names).into_iter().find(|(_, name)| *name == DEFAULT) {
        c.fail(span, Problem::DefaultInDefault);
        return Vec::new();
    }
    c.branch_list(names, &[ANY])
}

fn enforce(c: &mut Conversion, file: &EnforceFile) -> EnforceSpec {
    let window = c.windows("window", file.window.as_ref());
    let valid = "more than 0 bytes a second (leave it out for no limit)";
    let bandwidth = c.complaints.size("bandwidth", file.bandwidth.as_ref(), valid);
    EnforceSpec { window, bandwidth }
}

/// `[heat]`: bytes that move are of a day, which the value says.
fn heat(c: &mut Conversion, file: &HeatFile) -> HeatSpec {
    let default = HeatSpec::default();
    let half_life = file.half_life.as_ref().map_or(default.half_life, |value| c.interval("half_life", Some(value)));
    let max_move = match &file.max_move {
        None => default.max_move,
        Some(value) if value.get_ref().text() == "unlimited" => None,
        Some(value) => {
            let (key, given) = ("max_move", value.get_ref().text());
            let a_day = given.strip_suffix("/day").map(|size| size.trim().parse::<ByteSize>());
            match a_day {
                Some(Ok(size)) => Some(size),
                Some(Err(error)) => {
                    c.fail(value.span(), Problem::Size { key, error });
                    None
                }
                None => {
                    let examples = "\"50GiB/day\" or \"unlimited\"";
                    c.fail(value.span(), Problem::BadValue { key, given, what: "a size a day", examples });
                    None
                }
            }
        }
    };
    let neighbours = match &file.neighbours {
        None => default.neighbours,
        Some(given) => {
            u32::try_from(*given.get_ref()).ok().filter(|count| *count <= MOST_NEIGHBOURS).unwrap_or_else(|| {
                let (key, valid) = ("neighbours", "0 (none) to 1000");
                c.fail(given.span(), Problem::OutOfRange { key, given: given.get_ref().to_string(), valid });
                default.neighbours
            })
        }
    };
    HeatSpec { half_life, max_move, neighbours }
}

/// `[staging]`: in memory that loses its contents unless it says otherwise.
fn staging(c: &mut Conversion, table: &Spanned<StagingFile>) -> StagingSpec {
    let (file, default) = (table.get_ref(), StagingSpec::default());
    let volatile = file.volatile.unwrap_or(true);
    if !volatile && file.path.is_none() {
        c.fail(table.span(), Problem::StagingWithoutPath);
    }
    let size = c.amount("size", file.size.as_ref());
    if let (Some(value), Some(Amount::Bytes(ByteSize(0)) | Amount::MilliPercent(0))) = (&file.size, size) {
        let valid = "more than 0 (leave it out to follow the free memory)";
        c.fail(value.span(), Problem::OutOfRange { key: "size", given: value.get_ref().text(), valid });
    }
    let max_file = c
        .complaints
        .size("max_file", file.max_file.as_ref(), "more than 0 bytes (mode = \"never\" keeps new files out of memory)")
        .unwrap_or(default.max_file);
    if let (Some(value), Some(Amount::Bytes(size))) = (&file.size, size)
        && size.0 > 0
        && size < max_file
    {
        let valid = "at least max_file, and better a hundred times as much";
        c.fail(value.span(), Problem::OutOfRange { key: "size", given: value.get_ref().text(), valid });
    }
    let max_age = match &file.max_age {
        None => default.max_age.filter(|_| volatile),
        Some(value) if value.get_ref().text() == "unlimited" => {
            if volatile {
                let (key, given) = ("max_age", value.get_ref().text());
                let valid = "a time such as \"30 s\": what waits in volatile memory is lost with the power";
                c.fail(value.span(), Problem::OutOfRange { key, given, valid });
            }
            None
        }
        value => Some(c.interval("max_age", value.as_ref())),
    };
    c.spans.staging = file.path.as_ref().map_or_else(|| table.span(), Spanned::span);
    StagingSpec {
        mode: file.mode.unwrap_or_default(),
        path: file.path.as_ref().map(|path| c.complaints.absolute_path("path", path)),
        volatile,
        size,
        max_file,
        max_age,
    }
}

fn threads(c: &mut Conversion, given: Option<&Spanned<i64>>) -> u16 {
    let Some(given) = given else { return 0 };
    let number = *given.get_ref();
    if (0..=MOST_THREADS).contains(&number) {
        return number as u16;
    }
    let problem = Problem::OutOfRange { key: "threads", given: number.to_string(), valid: "0 (one a core) to 256" };
    c.fail(given.span(), problem);
    0
}
