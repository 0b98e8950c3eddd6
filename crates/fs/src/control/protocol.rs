//! What is said over the control socket. One JSON object a line: the client sends one [`Request`]; the daemon answers
//! with any number of [`Reply::Progress`] lines and then exactly one [`Reply::Done`] or [`Reply::Error`].

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use umbrella_policy::heat::Opens;
use umbrella_policy::placement::spec::{FileKind, StagingMode};
use umbrella_units::ByteSize;

pub use super::balance::{BalanceSummary, MemberShare};
pub use super::change::ConfigChange;
pub use super::directories::{CopyRights, DirectoryEvent, EqualiseOutcome, EqualiseSummary};
pub use super::evict::{EvictState, EvictStatus, EvictStay, EvictStays};
pub use crate::branch::{Abilities, BranchState, BranchStatus};
use crate::spec::{BranchSpec, PoolSpec, WriteBackChange};

/// A question or command.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub enum Request {
    /// Answered with [`Answer::Status`].
    Status,
    /// Answered with [`Answer::Explain`]. The path is inside the pool and begins with `/`.
    Explain {
        /// Bytes of the path, lossless also when it is not UTF-8.
        path: Vec<u8>,
    },
    /// Where a file would belong that does not exist. Answered with [`Answer::Explain`].
    WhatIf {
        /// The file.
        file: HypotheticalFile,
    },
    /// Walk the tree and move what is in the wrong place. Answered with [`Answer::Enforce`].
    Enforce {
        /// Only say what would move.
        dry_run: bool,
        /// Limit for this run; `None`: the configuration's.
        bandwidth: Option<ByteSize>,
    },
    /// Even out the members of a group. Answered with [`Answer::Balanced`].
    Balance {
        /// Its name.
        group: String,
        /// How far apart the used shares of the members may be, in thousandths of a percent.
        within: u32,
        /// Only say what would move.
        dry_run: bool,
        /// Limit for this run; `None`: the configuration's.
        bandwidth: Option<ByteSize>,
    },
    /// Make the copies of directories equal in owner, mode and ACLs. Answered with [`Answer::Equalised`].
    Equalise {
        /// Bytes of a directory's path inside the pool; all below it too.
        path: Vec<u8>,
        /// The branch whose copies are right; `None`: what is shown.
        like: Option<String>,
        /// Only say what differs.
        dry_run: bool,
    },
    /// Answered with [`Answer::Branches`].
    BranchList,
    /// Take a branch in. Answered with [`Answer::Ok`].
    BranchAdd {
        /// The branch.
        branch: BranchSpec,
        /// It goes to the end of the default list, too.
        #[serde(default)]
        to_default: bool,
        /// It becomes a member of this group, too.
        #[serde(default)]
        to_group: Option<String>,
    },
    /// Forget a branch (its files vanish from the tree, and stay on the branch). Answered with [`Answer::Ok`].
    BranchRemove {
        /// Name.
        name: String,
        /// Also when it still holds files.
        force: bool,
    },
    /// Take in what is now in a branch's place as a new branch of its name. Answered with [`Answer::Ok`].
    BranchReplace {
        /// Name.
        name: String,
        /// Another place, absolute; `None`: where it was.
        path: Option<PathBuf>,
        /// Also when the old one is online and holds files.
        force: bool,
    },
    /// Move every file elsewhere and place nothing new there, after the next mount neither. Answered with
    /// [`Answer::Enforce`].
    BranchDrain {
        /// Name.
        name: String,
    },
    /// Place new files on a branch again that was being drained. Answered with [`Answer::Ok`].
    BranchDrainStop {
        /// Name.
        name: String,
    },
    /// Count the errors of a branch's disk anew: it is failing no more. Answered with [`Answer::Ok`].
    BranchClearErrors {
        /// Name.
        name: String,
    },
    /// Make everything durable: staged files go to their branches, and every branch is synced. Answered with
    /// [`Answer::Synced`].
    Sync,
    /// Answered with [`Answer::WriteBack`].
    WriteBackShow {
        /// Only this one.
        branch: Option<String>,
    },
    /// Set a branch's write-back policy until the pool is unmounted. Answered with [`Answer::Ok`].
    WriteBackSet {
        /// Name.
        branch: String,
        /// How; `None`: the kernel decides.
        write_back: Option<WriteBackChange>,
    },
    /// Record what a branch's policy sees and decides. Answered with [`Answer::Ok`].
    WriteBackRecord {
        /// Name.
        branch: String,
        /// A new file on the daemon's side, absolute; `None` ends the record.
        file: Option<PathBuf>,
        /// Its size at most.
        most: ByteSize,
    },
    /// Use this configuration from now on. Answered with [`Answer::Reloaded`].
    RulesReload {
        /// The configuration.
        spec: Box<PoolSpec>,
        /// Only say what would change.
        #[serde(default)]
        dry_run: bool,
    },
    /// Staged files go to their branches; finish or drop the relocation under way, then unmount. Answered with
    /// [`Answer::Ok`].
    Unmount {
        /// Also when staged files find no branch to go to: they stay in memory, for the next mount.
        #[serde(default)]
        keep_staged: bool,
    },
}

/// One line from a daemon; the types are those of a pool's, if no others are named.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
pub enum Reply<A = Answer, P = Progress> {
    /// Long work goes on.
    Progress(P),
    /// It is done.
    Done {
        /// The answer.
        answer: A,
    },
    /// It failed; nothing follows.
    Error {
        /// What went wrong, lower case, with what to do next.
        message: String,
    },
}

/// Why a walk is made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// `umbrella enforce`.
    #[default]
    Asked,
    /// The hours of the configuration.
    Schedule,
    /// The last mount did not end in order.
    Recovery,
    /// A branch is emptied.
    Drain,
    /// Names changed, and rules look at names.
    Renamed,
    /// `umbrella balance`.
    Balance,
}

/// A walk that is under way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WalkStatus {
    /// Why.
    pub purpose: Purpose,
    /// It moves nothing.
    pub dry_run: bool,
    /// The branch that is emptied.
    pub branch: Option<String>,
    /// How far it is; `event` is empty.
    pub progress: Progress,
}

/// How far a walk is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Files looked at.
    pub files_seen: u64,
    /// Inodes met so far: files, and directories on each branch that has them.
    pub inodes_seen: u64,
    /// Inodes in use on all branches; `None` when that is not known, for a branch shares its file system, or that
    /// counts none.
    pub inodes_total: Option<u64>,
    /// Files moved so far.
    pub files_moved: u64,
    /// Bytes moved so far.
    pub bytes_moved: ByteSize,
    /// Bytes that are to move, where that is known before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_total: Option<ByteSize>,
    /// What is being looked at, for people.
    pub current: String,
    /// A line for people about one file (moved, would move, failed); empty for a plain tick.
    pub event: Option<MoveEvent>,
    /// A directory whose copies differ; only [`Request::Equalise`] tells of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<DirectoryEvent>,
    /// Another line follows at once, so that this one need not be sent alone.
    #[serde(skip)]
    pub is_followed: bool,
}

/// What happened, or would happen, to one file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MoveEvent {
    /// Path in the pool, lossy.
    pub path: String,
    /// Its bytes, where it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_bytes: Option<Vec<u8>>,
    /// From branch.
    pub from: String,
    /// To branch; empty where none is in question.
    pub to: String,
    /// Size.
    pub size: ByteSize,
    /// Name of the rule, or `default`.
    pub rule: String,
    /// `moved`, `would_move`, `busy`, `failed`.
    pub outcome: MoveOutcome,
    /// Why it is busy or failed.
    pub detail: Option<String>,
}

/// What [`MoveEvent::path_bytes`] says of a path.
pub(crate) fn bytes_unless_text(path: &[u8]) -> Option<Vec<u8>> {
    std::str::from_utf8(path).is_err().then(|| path.to_owned())
}

/// See [`MoveEvent`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MoveOutcome {
    /// It is on its branch now.
    Moved,
    /// It would move (dry run).
    WouldMove,
    /// Open, or changed while it was copied; it stays for now.
    Busy,
    /// It could not be moved; it is where it was.
    Failed,
    /// The branches where it belongs have no room; it stays where it is.
    NoRoom,
}

/// A final answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Answer {
    /// Nothing to report.
    Ok,
    /// See [`Request::Status`].
    Status(Box<Status>),
    /// See [`Request::Explain`].
    Explain(Box<Explanation>),
    /// See [`Request::BranchList`].
    Branches {
        /// In the pool's order.
        branches: Vec<BranchStatus>,
    },
    /// See [`Request::WriteBackShow`].
    WriteBack {
        /// In the pool's order.
        branches: Vec<WriteBackStatus>,
    },
    /// The configuration is in force, or would be.
    Reloaded {
        /// What is other than before.
        changes: Vec<ConfigChange>,
        /// What else the configuration says that only the next mount takes up.
        not_in_force: Vec<String>,
    },
    /// See [`Request::Sync`].
    Synced {
        /// Branches that were not synced because they are offline. What was written to them is on their disks.
        offline: Vec<String>,
    },
    /// What a walk did.
    Enforce(EnforceSummary),
    /// See [`Request::Equalise`].
    Equalised(EqualiseSummary),
    /// What a balance did.
    Balanced(BalanceSummary),
}

/// Totals of a walk.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct EnforceSummary {
    /// Files looked at.
    pub files_seen: u64,
    /// Files moved, or that would move.
    pub files_moved: u64,
    /// Their bytes.
    pub bytes_moved: ByteSize,
    /// Files that were busy.
    pub files_busy: u64,
    /// Files that could not be moved.
    pub files_failed: u64,
    /// Files in the wrong place because their right branches have no room.
    pub files_no_room: u64,
    /// It was stopped: the client disconnected, its hours were over, or the pool was unmounted.
    #[serde(default)]
    pub stopped: bool,
    /// Files that it had found in the wrong place then, and did not move.
    #[serde(default)]
    pub files_left: u64,
}

impl fmt::Display for EnforceSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} files looked at, {} ({}) moved", self.files_seen, self.files_moved, self.bytes_moved)?;
        for (number, what) in
            [(self.files_busy, "busy"), (self.files_failed, "failed"), (self.files_no_room, "without room")]
        {
            if number > 0 {
                write!(f, ", {number} {what}")?;
            }
        }
        if self.stopped { f.write_str(", stopped before the end") } else { Ok(()) }
    }
}

/// The whole pool at a glance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Mount point.
    pub mount: PathBuf,
    /// The file that describes it, absolute; empty where that is not known.
    #[serde(default)]
    pub config: PathBuf,
    /// Version of the daemon.
    pub version: String,
    /// Process id of the daemon.
    pub pid: u32,
    /// Time since the mount.
    #[serde(with = "umbrella_units::seconds")]
    pub uptime: Duration,
    /// The tree is away (`umbrella unmount --lazy`); the daemon ends with the last file that is open.
    #[serde(default)]
    pub detached: bool,
    /// The mount is gone, and no process uses it any more: the daemon finishes what is under way, and ends.
    #[serde(default)]
    pub ending: bool,
    /// Branches in order.
    pub branches: Vec<BranchStatus>,
    /// Rules in order, the name table's entries each as one, and the default last.
    pub rules: Vec<RuleStatus>,
    /// Handles open now, and those whose close is not finished.
    pub open_files: u64,
    /// Of those, in passthrough.
    pub open_passthrough: u64,
    /// Inodes the kernel remembers.
    pub inodes: u64,
    /// Counters by metric name (see the table of metrics).
    pub metrics: BTreeMap<String, u64>,
    /// Things a person should look at: duplicates found, relocations that failed.
    pub warnings: Vec<String>,
    /// Whether the kernel gives passthrough.
    pub passthrough: bool,
    /// How the kernel's requests reach the daemon.
    #[serde(default)]
    pub transport: Option<TransportStatus>,
    /// Where new files wait, if they do.
    #[serde(default)]
    pub staging: Option<StagingStatus>,
    /// Walks of the enforcer, drains too.
    #[serde(default)]
    pub walks: Vec<WalkStatus>,
    /// Fill levels, in the order of the configuration.
    #[serde(default)]
    pub evicts: Vec<EvictStatus>,
    /// How warm files are, where opens are counted.
    #[serde(default)]
    pub heat: Option<HeatStatus>,
}

/// The heat of files, and what moved because of it since the mount.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeatStatus {
    /// Files whose opens are counted.
    pub files: u64,
    /// Files among them that are as warm as a rule requires; `None`: no rule wants warm files.
    pub warm: Option<u64>,
    /// Files that a rule fetched because they are warm.
    pub files_promoted: u64,
    /// Their bytes.
    pub bytes_promoted: ByteSize,
    /// Files that a fill level sent away because they were the coldest.
    pub files_evicted: u64,
    /// Their bytes.
    pub bytes_evicted: ByteSize,
}

/// How the kernel's requests reach the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransportStatus {
    /// Which way.
    pub kind: TransportKind,
    /// Why not over io_uring, if that was wanted.
    pub reason: Option<String>,
}

/// The ways of the kernel's requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TransportKind {
    /// Over io_uring.
    IoUring,
    /// From `/dev/fuse`.
    Dev,
}

/// The staging area.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StagingStatus {
    /// Where it is.
    pub path: PathBuf,
    /// A power loss empties it.
    pub volatile: bool,
    /// Which new files wait, as configured.
    #[serde(default)]
    pub mode: StagingMode,
    /// Whether new files come; otherwise it is what an earlier configuration left.
    pub accepts: bool,
    /// Files that wait.
    pub files: u64,
    /// Their bytes, in whole pages.
    pub used: ByteSize,
    /// Bytes that may wait now.
    pub limit: ByteSize,
    /// Larger files leave.
    pub max_file: ByteSize,
    /// Older files leave.
    #[serde(with = "umbrella_units::seconds")]
    pub max_age: Option<Duration>,
    /// Files that were created here since the mount.
    pub files_staged: u64,
    /// Files that left for their branch since the mount.
    pub files_left: u64,
    /// Files that were deleted here since the mount.
    pub files_deleted: u64,
}

/// The write-back of one branch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WriteBackStatus {
    /// Name.
    pub branch: String,
    /// `None`: the kernel decides.
    pub write_back: Option<umbrella_writeback::Status>,
}

/// One rule and how often it decided.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RuleStatus {
    /// Name; for an entry of the name table, its pattern.
    pub name: String,
    /// Its list, as it was written.
    pub to: Vec<String>,
    /// The branches that the list reaches, also through groups and words.
    #[serde(default)]
    pub branches: Vec<String>,
    /// How often it decided since the mount.
    pub hits: u64,
    /// Why it is inactive just now (the first of its list is offline), if it is.
    pub inactive: Option<String>,
}

/// Why a file is, or would be, where it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// Path in the pool, lossy.
    pub path: String,
    /// Its bytes, where it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_bytes: Option<Vec<u8>>,
    /// Whether it exists now.
    pub exists: bool,
    /// Branch that holds it now; all of them for a directory.
    pub on: Vec<String>,
    /// Branch it belongs on; `None`: no branch of its rule has room.
    pub belongs: Option<String>,
    /// The rule that decides (`default` when none matches).
    pub rule: String,
    /// Rule by rule, in order: what it asked and why it did not, or did, decide.
    pub steps: Vec<ExplainStep>,
    /// Facts the decision used, as shown to people: size, owner, mode, ages...
    pub facts: Vec<(String, String)>,
    /// One sentence: what happens next (moves at the next enforce; stays because of `min_stay`; and so on).
    pub outcome: String,
    /// Other branches that hold a file of the same name (out-of-band); the newest is used.
    pub duplicates: Vec<String>,
    /// Of a path that does not exist: branches that are offline, and may hold it.
    #[serde(default)]
    pub may_be_on: Vec<String>,
}

/// One rule as seen by `explain`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExplainStep {
    /// Rule or pattern.
    pub rule: String,
    /// Whether it matched.
    pub matched: bool,
    /// Why or why not.
    pub reason: String,
    /// Each condition of a rule that joins some by `any`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<ExplainPart>,
}

/// One condition of a rule, or what joins the deeper ones that follow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExplainPart {
    /// How deep it stands, from 0.
    pub depth: usize,
    /// Whether it holds; `None`: unknown.
    pub holds: Option<bool>,
    /// What was asked, and what the file has; or `any of`, `all of`.
    pub text: String,
}

/// A file that does not exist; root's, just made, when it says nothing else.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HypotheticalFile {
    /// Its path in the pool, beginning with `/`.
    pub path: Vec<u8>,
    /// Its type.
    pub kind: FileKind,
    /// Its size; `None`: it is new, and has none yet.
    pub size: Option<ByteSize>,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Its permission bits; `None`: 0644.
    pub mode: Option<u32>,
    /// Its hard links; `None`: one.
    pub links: Option<u32>,
    /// Time since its last access; `None`: as `mtime`.
    pub atime: Option<Duration>,
    /// Time since the last change of its data; `None`: just now.
    pub mtime: Option<Duration>,
    /// Time since the last change of its inode; `None`: as `mtime`.
    pub ctime: Option<Duration>,
    /// Time since its birth; `None`: as `mtime`.
    pub btime: Option<Duration>,
    /// How warm it is; `None`: cold.
    #[serde(default)]
    pub heat: Option<Opens>,
    /// Its extended attributes.
    pub xattrs: BTreeMap<String, String>,
}

impl Default for HypotheticalFile {
    fn default() -> HypotheticalFile {
        HypotheticalFile {
            path: b"/".to_vec(),
            kind: FileKind::File,
            size: None,
            uid: 0,
            gid: 0,
            mode: None,
            links: None,
            atime: None,
            mtime: None,
            ctime: None,
            btime: None,
            heat: None,
            xattrs: BTreeMap::new(),
        }
    }
}
