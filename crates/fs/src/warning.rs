//! What a person should look at while the pool goes on: in the log, and in its status.

use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;
use umbrella_units::{ByteSize, format_duration};

use crate::spec::DirectoryRule;

/// What the warning of a full list begins with.
pub const NO_ROOM: &str = "no room: ";

/// What is wrong. What to do about it in commands, the program says: see [`crate::set_advice`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Warning {
    /// A file is on no branch of its list: a rename, a link, or a change of the rules or the file did that.
    #[error(
        "{path} is on branch {on:?}, which {list} does not name. No branch of the list can take it: each is full, offline or takes no new files"
    )]
    Misplaced {
        /// The mount point.
        mount: PathBuf,
        /// Of the file, in the pool; it begins with `/`.
        path: String,
        /// The branch that has it.
        on: String,
        /// Its list, for people.
        list: String,
    },
    /// No branch of a list could take a file.
    #[error("{NO_ROOM}no branch of {list} had room for {path}{}", shortage(most_free.as_ref(), draining))]
    ListFull {
        /// The list, for people.
        list: String,
        /// The file's path in the pool.
        path: String,
        /// The branch of the list that has most free space, where that is too little.
        most_free: Option<(String, ByteSize)>,
        /// Branches of the list that are being drained.
        draining: Vec<String>,
        /// The list is that of the default.
        is_default: bool,
        /// A group of it, which a new disk could join.
        group: Option<String>,
        /// What could stand at its end, so that other branches take files; nothing where it names all of them.
        more: Option<&'static str>,
    },
    /// Files have moved, and their old branch does not know that for good.
    #[error(
        "files have moved to branch {to:?}, but their space on the old branch is not free yet: {why}; the next mount frees it"
    )]
    BatchUnfinished {
        /// Where they are now.
        to: String,
        /// What failed.
        why: String,
    },
    /// A file was to move and could not.
    #[error("{path} could not be moved to branch {to:?}: {why}; it stays where it is")]
    NotMoved {
        /// Path in the pool.
        path: String,
        /// Where it was to go.
        to: String,
        /// What failed.
        why: String,
    },
    /// One name, a directory here and a file there.
    #[error("{path} is a directory on one branch and a file on another ({}); the directory is shown", branches.join(", "))]
    KindsDiffer {
        /// Path in the pool.
        path: String,
        /// The branches that have it.
        branches: Vec<String>,
    },
    /// One name, several files.
    #[error(
        "{path} is on several branches ({}); the pool uses the newest, on {shown:?}, and leaves the others alone",
        branches.join(", ")
    )]
    Duplicate {
        /// Path in the pool.
        path: String,
        /// The branches that have it, the newest first.
        branches: Vec<String>,
        /// The branch whose file is shown.
        shown: String,
    },
    /// Directories whose copies differ.
    #[error(
        "{} (seen since the mount{}). The pool shows {} and changes no disk",
        directories_shown(*directories),
        example.as_ref().map_or_else(String::new, |text| format!("; example: {text}")),
        match rule {
            DirectoryRule::Safe => "what all copies allow",
            DirectoryRule::First => "the copy on the first branch",
        }
    )]
    DirectoriesDiffer {
        /// The mount point.
        mount: PathBuf,
        /// How many.
        directories: usize,
        /// One of them with its copies, for people.
        example: Option<String>,
        /// What the pool shows of them.
        rule: DirectoryRule,
    },
    /// A branch of an earlier mount that the configuration does not name.
    #[error("branch {name:?} was in this pool and is not in the configuration: its files are not shown")]
    Forgotten {
        /// Name of the branch.
        name: String,
    },
    /// Nothing is mounted at its path, and nothing says that this is meant.
    #[error(
        "branch {name:?}: {} is a plain directory, not a mount point. Its new files go to the file system of {}: mount the \
        branch's disk, or set require_mount = false if this is intended",
        path.display(),
        path.parent().unwrap_or(path).display()
    )]
    NoMountPoint {
        /// Name of the branch.
        name: String,
        /// Its path.
        path: PathBuf,
    },
    /// Its drain was not ended.
    #[error("branch {name:?} is being drained: it gets no new files")]
    Draining {
        /// Name of the branch.
        name: String,
    },
    /// What would identify the disk at the next mount is gone.
    #[error(
        "branch {name:?}: its folder .umbrella was deleted: no file can move there, and the next mount will not recognise the disk"
    )]
    HiddenFolderGone {
        /// Name of the branch.
        name: String,
    },
    /// A branch has had errors of its disk.
    #[error(
        "branch {name:?} is failing: {counted} (the last: {last}); check the disk below {} with `dmesg` and `smartctl`",
        path.display()
    )]
    Failing {
        /// Name of the branch.
        name: String,
        /// Its path.
        path: PathBuf,
        /// How many errors of which kind, for people.
        counted: String,
        /// The last of them.
        last: String,
    },
    /// Errors of disks may go unseen.
    #[error("disk errors may be missing from the status ({why}); the daemon needs the capability CAP_SYSLOG")]
    DiskErrorsUnwatched {
        /// What failed.
        why: String,
    },
    /// The log of inode numbers of a branch cannot be read.
    #[error("branch {name:?}: {why}; files that moved there may show new inode numbers")]
    InodesUnread {
        /// Name of the branch.
        name: String,
        /// What failed.
        why: String,
    },
    /// A policy of write-back could not begin.
    #[error("{why}; the kernel decides when it is written back")]
    KernelWritesBack {
        /// The branch and what failed.
        why: String,
    },
    /// A change of write-back could not be made.
    #[error("{why}; its write-back does not change")]
    WriteBackUnchanged {
        /// The branch and what failed.
        why: String,
    },
    /// A branch is so full that its fill level does not wait for its hours.
    #[error("{of:?} has less than min_free free: files leave it now, outside of the hours of its `evict`")]
    EvictsOutOfHours {
        /// The branch or group.
        of: String,
    },
    /// Moves that are waiting when the daemon is killed will not be looked for by the next mount.
    #[error("if the daemon is killed, files that wait for their move then wait for the next walk of all files: {why}")]
    MovesUnnoted {
        /// What failed.
        why: String,
    },
    /// What waits in memory is not known.
    #[error("the staging area cannot be listed: {why}; trying again")]
    StagingUnlisted {
        /// What failed.
        why: String,
    },
    /// Files cannot leave memory.
    #[error("{} cannot leave the staging area: {why}; {} there, and the daemon tries again", match others {
        0 => file.clone(),
        1 => format!("{file} and another file"),
        others => format!("{file} and {others} other files"),
    }, if *others == 0 { "it stays" } else { "they stay" })]
    StagedFilesStuck {
        /// Path of one in the pool.
        file: String,
        /// How many more there are.
        others: usize,
        /// Why that one cannot.
        why: String,
    },
    /// A branch holds up files that leave memory.
    #[error(
        "branch {name:?} does not answer: for {} it has not taken a file from the staging area; {} for it in memory",
        format_duration(*waited),
        if *files == 1 { "1 file waits".to_owned() } else { format!("{files} files wait") }
    )]
    StagedFilesHeldUp {
        /// Name of the branch.
        name: String,
        /// How long, in whole seconds.
        waited: Duration,
        /// How many.
        files: u64,
    },
    /// The daemon may soon be without descriptors.
    #[error(
        "the file limit is low: about {used} of {limit} descriptors are in use. Raise the daemon's hard limit \
        (LimitNOFILE= in a unit, `ulimit -Hn` in a shell) and mount again"
    )]
    FewDescriptors {
        /// In use.
        used: u64,
        /// At most.
        limit: u64,
    },
    /// Something that was half done at a crash needs a person's eye.
    #[error("{0}")]
    Recovery(String),
    /// Something that a first look at the branches found.
    #[error("{0}")]
    FirstLook(String),
}

fn shortage(most_free: Option<&(String, ByteSize)>, draining: &[String]) -> String {
    let most_free = most_free.map_or_else(String::new, |(name, free)| format!("; most free is {name}, {free}"));
    match draining {
        [] => most_free,
        names => format!("{most_free}; being drained: {}", names.join(", ")),
    }
}

fn directories_shown(count: usize) -> String {
    match count {
        1 => "1 directory has different owners, modes or ACLs on its branches".to_owned(),
        _ => format!("{count} directories have different owners, modes or ACLs on their branches"),
    }
}

/// What a warning is about. The newest of a subject wins; the status shows them in this order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WarningSubject {
    /// Moves to a branch that are not finished on the old one.
    Batch(String),
    DiskErrors,
    /// A name that several branches have.
    Name(String),
    /// The fill level of a branch or group.
    Evict(String),
    FirstLook,
    /// A branch that is remembered and not configured.
    Forgotten(String),
    /// The list of a rule or of the default.
    List(String),
    /// The hidden folder of a branch.
    HiddenFolder(String),
    /// The inode numbers of a branch.
    Inodes(String),
    /// All files outside of their lists: one line for all, until a walk of the enforcer finds none.
    Misplaced,
    /// The move of a file.
    Move(String),
    /// What recovery said.
    Recovery(String),
    Staging,
    /// The write-back of a branch.
    WriteBack(String),
}
