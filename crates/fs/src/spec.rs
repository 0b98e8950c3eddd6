//! What a pool is made of, as the configuration says it: typed, resolved, free of file formats.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use umbrella_policy::placement::spec::{ANY, DEFAULT, RulesSpec, StagingMode};
use umbrella_policy::schedule::Schedule;
use umbrella_units::{Amount, ByteSize};
pub use umbrella_writeback::Status as FlusherStatus;
use umbrella_writeback::{FlusherError, Limits, Settings};

/// A whole pool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PoolSpec {
    /// Where the tree appears.
    pub mount: PathBuf,
    /// In the order of the configuration.
    pub branches: Vec<BranchSpec>,
    /// Rules and the default list.
    pub rules: RulesSpec,
    /// What a listing does when a branch fails.
    pub on_branch_error: OnBranchError,
    /// How a directory whose copies differ is shown.
    #[serde(default)]
    pub directories: DirectoryRule,
    /// How long the kernel may keep names and attributes. Zero for pools whose branches are changed behind the mount's
    /// back.
    pub cache_timeout: Duration,
    /// Schedule and limits of the enforcer.
    pub enforce: EnforceSpec,
    /// How often branches are checked for being alive. A branch that takes longer than `probe_timeout` to answer goes
    /// offline.
    pub probe_interval: Duration,
    /// See `probe_interval`.
    pub probe_timeout: Duration,
    /// Daemon threads; 0 means one a core, at least sixteen.
    pub threads: u16,
    /// How the kernel's requests reach the daemon.
    #[serde(default)]
    pub transport: Transport,
    /// Where new files wait; `None`: they go to their branch at once.
    #[serde(default)]
    pub staging: Option<StagingSpec>,
    /// How opens of files are counted, and what comes of it. `None`: as by default, where a rule asks.
    #[serde(default)]
    pub heat: Option<HeatSpec>,
    /// From the options of the mount, not from the configuration.
    #[serde(default)]
    pub access_times: AccessTimes,
}

/// More than there are processors. A request that waits for a disk keeps its thread, and a disk with only a few
/// requests at once cannot choose the nearest.
const LEAST_THREADS: usize = 16;

impl PoolSpec {
    /// Threads that stay for requests from `/dev/fuse`.
    pub(crate) fn threads_kept(&self) -> usize {
        match self.threads {
            0 => std::thread::available_parallelism().map_or(LEAST_THREADS, usize::from).max(LEAST_THREADS),
            threads => usize::from(threads),
        }
    }
}

/// What stays as long as the pool is mounted.
#[derive(Debug, Clone)]
pub(crate) struct FixedSpec {
    pub(crate) mount: PathBuf,
    pub(crate) transport: Transport,
    pub(crate) access_times: AccessTimes,
}

/// What stays as long as a branch is one of the pool.
#[derive(Debug, Clone)]
pub struct BranchPlace {
    /// As [`BranchSpec::name`].
    pub name: String,
    /// As [`BranchSpec::path`].
    pub path: PathBuf,
}

/// What stays as long as the staging area is open.
#[derive(Debug, Clone)]
pub(crate) struct AreaPlace {
    pub(crate) path: Option<PathBuf>,
    pub(crate) volatile: bool,
}

/// Which reads through the pool change access times, in place of what the branches' own mounts say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessTimes {
    /// `None`: as the branch's mount says.
    pub update: Option<AtimeUpdate>,
    /// Those of directories stay (`nodiratime`).
    pub not_of_directories: bool,
}

impl AccessTimes {
    /// Whether the branches' own mounts decide.
    pub(crate) fn are_the_branches(self) -> bool {
        self == AccessTimes::default()
    }
}

/// When a read changes an access time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AtimeUpdate {
    /// `noatime`
    Never,
    /// `relatime`: when the file was changed since, or after a day.
    Relative,
    /// `strictatime`
    Always,
}

/// Staging of new files in memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StagingSpec {
    /// Which files wait, where no rule says otherwise.
    pub mode: StagingMode,
    /// Where: for volatile staging an empty directory to mount a tmpfs on (`None`: one below the state directory),
    /// otherwise one on memory that keeps its contents.
    pub path: Option<PathBuf>,
    /// A power loss empties it.
    pub volatile: bool,
    /// How much may wait, of memory or of the path's file system. `None`: what memory allows.
    pub size: Option<Amount>,
    /// A file that grows beyond this leaves.
    pub max_file: ByteSize,
    /// A file leaves after this time; `None`: not for its age.
    pub max_age: Option<Duration>,
}

impl Default for StagingSpec {
    /// In volatile memory, while the rules need to know more of them: files of up to 1 MiB, for 30 seconds.
    fn default() -> StagingSpec {
        StagingSpec {
            mode: StagingMode::Auto,
            path: None,
            volatile: true,
            size: None,
            max_file: ByteSize(1 << 20),
            max_age: Some(Duration::from_secs(30)),
        }
    }
}

impl StagingSpec {
    /// Whether a pool can do without, if there can be no area: the configuration does not ask for it.
    pub(crate) fn is_optional(&self) -> bool {
        self.mode == StagingMode::Auto && self.path.is_none()
    }
}

/// How opens of files are counted, and what comes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeatSpec {
    /// After this time an open counts half.
    pub half_life: Duration,
    /// Bytes that may move in a day because of heat; `None`: no limit.
    pub max_move: Option<ByteSize>,
    /// Number of next files of a directory that come along with a warm one.
    pub neighbours: u32,
}

impl Default for HeatSpec {
    fn default() -> HeatSpec {
        HeatSpec { half_life: Duration::from_secs(7 * 24 * 3600), max_move: Some(ByteSize(50 << 30)), neighbours: 3 }
    }
}

/// One branch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is a key of the configuration")]
pub struct BranchSpec {
    /// Unique, as used in rules.
    pub name: String,
    /// Absolute path of the directory (usually a mount point).
    pub path: PathBuf,
    /// New files are not placed here when less than this is free.
    pub min_free: Amount,
    /// Below this much free space, files are not opened in passthrough for writing, so that they can still move when
    /// the branch fills up. `None`: a tenth of the branch, at least 1 GiB, never less than `min_free`.
    pub headroom: Option<Amount>,
    /// Nothing is written, moved or deleted here.
    pub read_only: bool,
    /// Whether new files come here. Those that are here are used and changed in any case.
    #[serde(default = "yes")]
    pub create: bool,
    /// Number of inodes in use from which the branch is full. The branch has its file system for itself.
    #[serde(default)]
    pub max_files: Option<u64>,
    /// An empty read-only directory is mounted over the path while the pool uses the branch.
    #[serde(default)]
    pub hide: bool,
    /// The pool starts without it when it is missing.
    pub optional: bool,
    /// The path must be a mount point; `None`: it must be one if it was one when the branch was first used.
    pub require_mount: Option<bool>,
    /// How long at least a file that came to this branch stays before a rule moves it again.
    pub min_stay: Duration,
    /// Whether reads and writes may go to the branch past the daemon.
    pub passthrough: bool,
    /// In which order dirty pages reach the disk; `None`: the kernel decides.
    #[serde(default)]
    pub write_back: Option<WriteBackSpec>,
}

pub(crate) fn yes() -> bool {
    true
}

impl BranchSpec {
    /// A branch of which nothing but name and place is said.
    #[must_use]
    pub fn new(name: impl Into<String>, path: impl Into<PathBuf>) -> BranchSpec {
        BranchSpec {
            name: name.into(),
            path: path.into(),
            min_free: Amount::Bytes(ByteSize(0)),
            headroom: None,
            read_only: false,
            create: true,
            max_files: None,
            hide: false,
            optional: false,
            require_mount: None,
            min_stay: Duration::ZERO,
            passthrough: true,
            write_back: None,
        }
    }
}

/// A branch's write-back policy and its limits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteBackSpec {
    /// The policy with its parameters: `zone_segment:alpha=50`.
    pub policy: String,
    /// Writers are held back so that no more than this is dirty; `None`: what the kernel leaves.
    pub limit: Option<ByteSize>,
    /// Write-back begins above this; `None`: half of the limit.
    pub background: Option<ByteSize>,
}

impl WriteBackSpec {
    /// The policy as it stands, automatic limits.
    pub fn of(policy: &str) -> WriteBackSpec {
        WriteBackSpec { policy: policy.to_owned(), limit: None, background: None }
    }

    /// Settings of its flusher. An unknown policy or parameter is an error that names the known ones.
    pub fn settings(&self) -> Result<Settings, FlusherError> {
        let limits = Limits { limit: self.limit, background: self.background };
        let settings = Settings { limits, ..Settings::parse(&self.policy)? };
        settings.check()?;
        Ok(settings)
    }
}

/// What becomes of one of a branch's thresholds when its write-back is changed while it runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThresholdChange {
    /// It stays as it was.
    #[default]
    Keep,
    /// It follows the kernel's thresholds, or the limit, as where none is configured.
    Auto,
    /// This size.
    At(ByteSize),
}

impl ThresholdChange {
    /// What holds then.
    fn of(self, before: Option<ByteSize>) -> Option<ByteSize> {
        match self {
            ThresholdChange::Keep => before,
            ThresholdChange::Auto => None,
            ThresholdChange::At(size) => Some(size),
        }
    }
}

/// How a branch's write-back is changed while it runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteBackChange {
    /// The policy with its parameters.
    pub policy: String,
    /// Of [`WriteBackSpec::limit`].
    pub limit: ThresholdChange,
    /// Of [`WriteBackSpec::background`].
    pub background: ThresholdChange,
}

impl WriteBackChange {
    /// What holds after it, where `before` held. A background threshold that is kept goes where it is not below the new
    /// limit.
    pub fn of(self, before: Option<&WriteBackSpec>) -> WriteBackSpec {
        let limit = self.limit.of(before.and_then(|before| before.limit));
        let background = self.background.of(before.and_then(|before| before.background));
        let is_kept = self.background == ThresholdChange::Keep;
        let background = background.filter(|&size| !is_kept || limit.is_none_or(|limit| size < limit));
        WriteBackSpec { policy: self.policy, limit, background }
    }
}

/// What a listing does when one of its branches fails (UmbrellaFS: OR and AND semantics).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnBranchError {
    /// Any error fails the listing.
    Fail,
    /// Errors are hidden while some branch answers.
    Skip,
}

/// How the kernel's requests reach the daemon.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// The daemon chooses.
    #[default]
    Auto,
    /// Over io_uring; from `/dev/fuse` where that cannot be had.
    IoUring,
    /// From `/dev/fuse`.
    Dev,
}

/// How a directory is shown whose copies differ in owner, mode or ACLs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DirectoryRule {
    /// What all copies allow: through the pool no user gets what any copy denies.
    #[default]
    Safe,
    /// The copy on the first branch that is online.
    First,
}

/// When and how the enforcer walks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EnforceSpec {
    /// Hours of the week in which it walks; without any, only on demand.
    #[serde(default)]
    pub window: Schedule,
    /// Most bytes that are moved in a second; `None`: no limit.
    pub bandwidth: Option<ByteSize>,
}

/// What the staging area is called among branches. No branch of the configuration may have this name.
pub const STAGING: &str = "(staging)";

/// Names stand in tables and messages: no longer than this many characters.
pub const LONGEST_NAME: usize = 64;

/// Whether a branch or group may be called so. Without `/`, since names are shown beside paths; and no word of the
/// rules' lists.
#[must_use]
pub fn is_branch_name(name: &str) -> bool {
    is_name(name) && !name.contains('/') && ![STAGING, DEFAULT, ANY].contains(&name)
}

/// Whether anything that people name may be called so: printable, not empty, with no blank at its ends.
#[must_use]
pub fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name.trim() == name
        && name.chars().count() <= LONGEST_NAME
        && !name.chars().any(char::is_control)
}

/// The path without symbolic links; the part that does not exist (or is a dead mount) is kept as it is.
#[must_use]
pub fn resolve(path: &Path) -> PathBuf {
    for known in path.ancestors() {
        if let (Ok(real), Ok(rest)) = (known.canonicalize(), path.strip_prefix(known)) {
            return if rest.as_os_str().is_empty() { real } else { real.join(rest) };
        }
    }
    path.to_owned()
}
