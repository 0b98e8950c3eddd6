//! What can go wrong. Operations of the tree return [`OpError`], which `fuse` alone turns into an errno; setting a pool
//! up and long work return [`enum@Error`], which is shown to people.

use std::path::PathBuf;

use rustix::io::Errno;
use thiserror::Error;

use crate::branch::BranchError;
use crate::branch::not_mounted::NotMounted;
use crate::ground::advice::advised;
use crate::ground::shortage::Shortage;
use crate::relocate::RelocateError;

/// Why one operation on the tree failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum OpError {
    /// The branch's file system said so.
    #[error("{0}")]
    Sys(#[from] Errno),
    /// The node or handle is not known (any more).
    #[error("stale node")]
    Stale,
    /// The file's branch is offline.
    #[error("the branch is offline")]
    Offline,
    /// No branch that the rules allow has room.
    #[error("no branch that the rules allow has room")]
    NoRoom,
    /// The name belongs to Umbrella itself.
    #[error("the name is reserved for Umbrella's own files")]
    Reserved,
}

impl OpError {
    /// Whether the branch had no room (or no quota) left.
    pub(crate) fn is_full(self) -> bool {
        matches!(self, OpError::Sys(Errno::NOSPC | Errno::DQUOT))
    }

    /// Whether a descriptor was lacking: to the daemon, to the machine, or to what serves the branch. Which of them
    /// cannot be told from the error, so it never speaks against a branch; probes, which need no descriptor, tell a
    /// branch that lacks them.
    pub(crate) fn lacks_descriptor(self) -> bool {
        matches!(self, OpError::Sys(Errno::MFILE | Errno::NFILE))
    }

    /// Whether it is the daemon that lacks something, which says nothing of the branch.
    pub(crate) fn is_own_shortage(self) -> bool {
        self.lacks_descriptor() || self == OpError::Sys(Errno::NOMEM)
    }

    /// Whether the name does not exist.
    pub(crate) fn is_missing(self) -> bool {
        matches!(self, OpError::Sys(Errno::NOENT))
    }

    /// The kind of a path that leads here.
    fn on_path(self) -> &'static str {
        match self {
            OpError::Sys(Errno::NOENT) => " is not in the pool",
            OpError::Sys(Errno::NOTDIR) => " is not a directory",
            _ => "",
        }
    }
}

/// Result of an operation on the tree.
pub type OpResult<T> = Result<T, OpError>;

/// Names that lie on two branches, so that one of the two has to go before a branch is empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameConflict {
    /// How many.
    pub names: u64,
    /// One of them, on the branch that is to be emptied.
    pub here: PathBuf,
    /// The same on another branch.
    pub there: PathBuf,
    /// Their branches are hidden while the pool is mounted.
    pub hidden: bool,
}

impl NameConflict {
    /// `1 name is`, `2 names are`
    fn counted(&self) -> String {
        if self.names == 1 { "1 name is".to_owned() } else { format!("{} names are", self.names) }
    }

    /// Where they are, and that they cannot be seen there.
    fn places(&self) -> String {
        let hidden = if self.hidden { "; the branches are hidden: unmount the pool first" } else { "" };
        format!("\"{}\", \"{}\"{hidden}", self.here.display(), self.there.display())
    }
}

/// Why files are left, as far as it is known; a colon first.
fn left_shown(counts: [(u64, &str); 3], twice: Option<&NameConflict>, clash: Option<&NameConflict>) -> String {
    let counted = counts.into_iter().filter(|(files, _)| *files > 0).map(|(files, why)| format!("{files} {why}"));
    let files = twice
        .map(|it| format!("{} on another branch too (delete or rename one of the two: {})", it.counted(), it.places()));
    let kinds = clash.map(|it| {
        let (names, places) = (it.counted(), it.places());
        format!("{names} a directory on one branch and a file on another (rename one of the two: {places})")
    });
    let reasons: Vec<_> = counted.chain(files).chain(kinds).collect();
    if reasons.is_empty() { String::new() } else { format!(": {}", reasons.join(", ")) }
}

fn no_group(name: &str, is_branch: bool, known: &[String]) -> String {
    let what = if is_branch { format!("{name:?} is a branch") } else { format!("no group is called {name:?}") };
    if known.is_empty() {
        format!("{what}; the pool has no groups")
    } else {
        let groups = if is_branch { "groups" } else { "there are" };
        format!("{what}; {groups}: {}", known.join(", "))
    }
}

/// As what a branch is taken in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddedAs {
    /// As one more.
    New,
    /// In the place of another.
    InPlace,
}

/// Why the pool as a whole, or long work on it, failed. What to do about it in commands, the program says: see
/// [`crate::set_advice`].
#[derive(Debug, Error)]
pub enum Error {
    /// A branch that is not optional cannot be used.
    #[error("branch {name:?}: {reason}")]
    BranchMissing {
        /// Name of the branch.
        name: String,
        /// Why.
        reason: String,
    },
    /// A branch could not be opened, and that is not its fault.
    #[error("branch {name:?}: {reason}")]
    BranchUnopened {
        /// Name of the branch.
        name: String,
        /// Why, and what to do.
        reason: String,
    },
    /// A thread of the daemon's own.
    #[error("cannot start the thread {name:?}: {source} ({})", Shortage::Threads)]
    NoThread {
        /// Name of the thread.
        name: String,
        /// Why.
        source: std::io::Error,
    },
    /// The staging area cannot be used.
    #[error("staging at \"{}\": {reason}", path.display())]
    Staging {
        /// Where.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A reload needs a staging area, and there can be none.
    #[error("nothing is reloaded: {0}")]
    NoStagingArea(#[source] Box<Error>),
    /// Not everything could be made durable.
    #[error("not everything is on disk: {0}")]
    Sync(#[source] OpError),
    /// Branches went offline with changes that may not be on their disks.
    #[error(
        "{} {} went offline before {} last changes were on disk",
        if branches.len() == 1 { "branch" } else { "branches" },
        branches.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", "),
        if branches.len() == 1 { "its" } else { "their" }
    )]
    Unsynced {
        /// Which.
        branches: Vec<String>,
    },
    /// Files would be in memory only after an unmount.
    #[error("no branch takes {files} staged files, which would stay in memory only: {why}")]
    StagedLeft {
        /// How many.
        files: u64,
        /// Why one of them stays.
        why: String,
    },
    /// Branches hold up files that would be in memory only after an unmount.
    #[error(
        "staged files ({files}) are not on their branches: {} {} not answered for {} s",
        branches.join(", "), if branches.len() == 1 { "has" } else { "have" }, waited.as_secs()
    )]
    BranchesHang {
        /// How many.
        files: u64,
        /// Which.
        branches: Vec<String>,
        /// How long they had at least.
        waited: std::time::Duration,
    },
    /// A configuration says what only a mount takes up.
    #[error(
        "nothing is reloaded: {} cannot change while the pool is mounted (unmount and mount it, or put {} back)",
        keys.join(", "), if keys.len() == 1 { "it" } else { "them" }
    )]
    FixedKeys {
        /// The keys.
        keys: Vec<String>,
    },
    /// A branch that is to be read-only is being written.
    #[error(
        "nothing is reloaded: branch {name:?} cannot become read-only while files on it are open for writing ({files}); close them and try again"
    )]
    BranchWritten {
        /// Name of the branch.
        name: String,
        /// How many.
        files: usize,
    },
    /// A branch cannot be taken in.
    #[error("branch {name:?}: {reason}")]
    BranchUnusable {
        /// Name of the branch.
        name: String,
        /// Why.
        reason: String,
    },
    /// The disk that was meant is not there.
    #[error("branch {name:?}: {reason}; mount the disk first")]
    BranchNotMounted {
        /// Name of the branch.
        name: String,
        /// What is missing.
        reason: NotMounted,
        /// As what it was to be taken in.
        comes: AddedAs,
    },
    /// A branch was to be emptied and is not empty.
    #[error(
        "branch {name:?} is not empty yet (for example {example}){}",
        left_shown(
            [(*.busy, "busy"), (*.no_room, "without room elsewhere"), (*.failed, "failed")],
            .twice.as_deref(),
            .clash.as_deref()
        )
    )]
    NotDrained {
        /// Name of the branch.
        name: String,
        /// One of the files.
        example: String,
        /// Files that were open.
        busy: u64,
        /// Files without room elsewhere.
        no_room: u64,
        /// Files that could not be moved.
        failed: u64,
        /// Files whose name another branch has too, as a file.
        twice: Option<Box<NameConflict>>,
        /// Names that are a directory on one branch and something else on the other.
        clash: Option<Box<NameConflict>>,
    },
    /// Nothing can be moved from a branch that is not there.
    #[error("branch {name:?} is offline ({reason}): no file can be moved from it")]
    DrainOffline {
        /// Name of the branch.
        name: String,
        /// Why it is offline.
        reason: String,
    },
    /// It cannot be seen whether the branch is empty.
    #[error("branch {name:?} cannot be read to its end ({source}), so it may still hold files")]
    DrainUnread {
        /// Name of the branch.
        name: String,
        /// Why.
        source: OpError,
    },
    /// It was stopped.
    #[error("the drain of branch {name:?} was ended by another command; files that have moved stay where they are")]
    DrainStopped {
        /// Name of the branch.
        name: String,
    },
    /// The pool is being unmounted.
    #[error(
        "branch {name:?} is not empty yet: the pool is being unmounted; nothing new is placed there after the next mount either"
    )]
    DrainEnded {
        /// Name of the branch.
        name: String,
    },
    /// It would not be known after the next mount.
    #[error("branch {name:?}: its drain cannot be saved: {source}")]
    DrainUnkept {
        /// Name of the branch.
        name: String,
        /// Why.
        source: crate::branch::StateError,
    },
    /// A branch's write-back policy cannot be set.
    #[error("branch {name:?}: {reason}")]
    WriteBack {
        /// Name of the branch.
        name: String,
        /// Why.
        reason: String,
    },
    /// The kernel decides a branch's write-back.
    #[error("branch {name:?}: the kernel decides its write-back, so there is nothing to record")]
    NothingToRecord {
        /// Name of the branch.
        name: String,
    },
    /// One record of a branch's write-back at a time.
    #[error("branch {name:?}: a record is being written already")]
    RecordUnderWay {
        /// Name of the branch.
        name: String,
    },
    /// No such branch.
    #[error("no branch is called {name:?}; the branches are: {known}")]
    UnknownBranch {
        /// What was asked for.
        name: String,
        /// The known ones, joined.
        known: String,
    },
    /// A branch of that name is there already.
    #[error("a branch called {name:?} is already in the pool")]
    BranchExists {
        /// Name of the branch.
        name: String,
    },
    /// The configuration would not take the name.
    #[error(
        "{name:?} is not a valid name for a branch: use 1 to {limit} printable characters without \"/\" or outer \
        blanks, and not \"any\", \"default\" or a group's name",
        limit = crate::spec::LONGEST_NAME
    )]
    BranchName {
        /// The name.
        name: String,
    },
    /// No group has that name.
    #[error("{}", no_group(name, *is_branch, known))]
    UnknownGroup {
        /// The name.
        name: String,
        /// A branch has it.
        is_branch: bool,
        /// The names of those that there are.
        known: Vec<String>,
    },
    /// Fewer than two members can be evened out.
    #[error(
        "group {group:?} cannot be balanced: fewer than two of its members are online, writable and not being drained"
    )]
    NothingToBalance {
        /// Name of the group.
        group: String,
    },
    /// Moving files between them frees nothing.
    #[error(
        "group {group:?} cannot be balanced: {name:?} and {other:?} are on one file system (balance a group without one of them)"
    )]
    BalanceSameFileSystem {
        /// Name of the group.
        group: String,
        /// A member.
        name: String,
        /// Another.
        other: String,
    },
    /// The list of a group has a `!` pattern that leaves the branch out.
    #[error(
        "group {group:?} leaves {name:?} out (\"!...\" in its branches): give the branch another name, or change the group"
    )]
    LeftOutOfGroup {
        /// Name of the branch.
        name: String,
        /// Name of the group.
        group: String,
    },
    /// The configuration would not take the path.
    #[error("{path} is not a valid path for a branch: it must begin with \"/\" and have no \"..\"", path = path.display())]
    BranchPath {
        /// The path.
        path: PathBuf,
    },
    /// A branch inside another would show its files twice; one inside the mount, itself.
    #[error("one of {path} and {other} lies inside the other; every file would be there twice", path = path.display())]
    BranchOverlaps {
        /// The new branch's path.
        path: PathBuf,
        /// The other, for people.
        other: String,
    },
    /// The branch still holds files.
    #[error("branch {name:?} still holds files (for example {example})")]
    BranchNotEmpty {
        /// Name of the branch.
        name: String,
        /// One of the files.
        example: String,
    },
    /// The branch that is to be replaced still shows files.
    #[error("branch {name:?} is online and holds files (for example {example}), which would vanish from the tree")]
    ReplacesFiles {
        /// Name of the branch.
        name: String,
        /// One of the files.
        example: String,
    },
    /// What is to take a branch's place is the branch.
    #[error("branch {name:?}: {path:?} is still the old disk")]
    StillInPlace {
        /// Name of the branch.
        name: String,
        /// Where it is.
        path: PathBuf,
    },
    /// It cannot be seen whether the branch holds files.
    #[error("branch {name:?} cannot be listed ({source}), so it may hold files, which would vanish from the tree")]
    BranchUnreadable {
        /// Name of the branch.
        name: String,
        /// Why.
        source: OpError,
    },
    /// The rules do not fit the branches.
    #[error(transparent)]
    Rules(#[from] umbrella_policy::placement::RuleError),
    /// The mount point cannot be used.
    #[error("cannot mount on {path}: {}", Shortage::added_to(source), path = path.display())]
    Mount {
        /// Mount point.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The mount cannot be taken away.
    #[error("cannot unmount {path}: {}", without_code(source), path = path.display())]
    Unmount {
        /// Mount point.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The pool is mounted already.
    #[error("{path} is already mounted by process {pid}", path = path.display())]
    AlreadyMounted {
        /// Mount point.
        path: PathBuf,
        /// The other daemon.
        pid: u32,
    },
    /// The control socket cannot be made.
    #[error("control socket {path}: {source}", path = path.display())]
    Control {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A path that does not lead to anything in the pool, or to what cannot be read.
    #[error("{path}{}: {source}", source.on_path())]
    Path {
        /// Pool path, lossy.
        path: String,
        /// Why.
        source: OpError,
    },
    /// A path that leads to nothing while branches are offline.
    #[error(
        "{path} is not in the pool now: no online branch has its directory; offline branches may hold it: {offline}"
    )]
    PathOffline {
        /// Pool path, lossy.
        path: String,
        /// The branches that are offline, joined.
        offline: String,
    },
    /// A relocation failed.
    #[error(transparent)]
    Relocate(#[from] RelocateError),
    /// A configuration asks for what a branch cannot do.
    #[error("branch {name:?}: {source}")]
    BranchUnfit {
        /// Name of the branch.
        name: String,
        /// Why.
        source: Box<BranchError>,
    },
    /// Anything else from the system.
    #[error("{doing}: {source}")]
    Io {
        /// What was being done.
        doing: String,
        /// Why it failed.
        source: std::io::Error,
    },
}

impl Error {
    /// A branch that the pool needs does not come online.
    pub(crate) fn of_branch(name: &str, error: &BranchError) -> Error {
        let (name, reason) = (name.to_owned(), advised(error));
        match error.shortage() {
            None => Error::BranchMissing { name, reason },
            // It says so itself.
            Some(Shortage::Threads) => Error::BranchUnopened { name, reason },
            Some(shortage) => Error::BranchUnopened { name, reason: format!("{reason} ({shortage})") },
        }
    }
}

/// What the system says, without the number of the error.
fn without_code(error: &std::io::Error) -> String {
    error.to_string().split(" (os error").next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests;
