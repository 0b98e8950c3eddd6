//! Why a branch does not come online.

use std::path::PathBuf;

use rustix::io::Errno;
use thiserror::Error;

use super::beneath;
use super::not_mounted::NotMounted;
use super::state::StateError;
use crate::ground::shortage::Shortage;

/// What a first mount without the disk leaves behind.
const HIDES: &str = "; nothing was mounted here when the pool first used this branch: if that was a mistake, files \
    written since then lie hidden below the mount point";

/// Why a branch does not come online. The text is for people and is shown in the status.
#[derive(Debug, Error)]
pub enum BranchError {
    /// The path is gone or cannot be opened.
    #[error("{path:?} cannot be opened: {}", source.to_string().split(" (os error").next().unwrap_or_default())]
    Open {
        /// Path of the branch.
        path: PathBuf,
        /// Why.
        source: Errno,
    },
    /// The directory is there, but the file system that should be mounted on it is not.
    #[error("{path:?} is not mounted (the directory is there but is not the branch): mount it")]
    NotMounted {
        /// Path of the branch.
        path: PathBuf,
    },
    /// A directory that the pool has never used, and /etc/fstab has a disk for it that is not mounted.
    #[error("{reason}; mount it first, or set require_mount = false to use the directory itself")]
    NotMountedYet {
        /// What is missing.
        reason: NotMounted,
    },
    /// How many files it has is not known.
    #[error("{path:?} cannot have max_files: {why} (remove the key, or give the branch a file system of its own)")]
    Uncountable {
        /// Path of the branch.
        path: PathBuf,
        /// Why they cannot be counted.
        why: &'static str,
    },
    /// A plain directory that carries no marker any more.
    #[error("{path:?} is not the branch: .umbrella/branch.json is gone (mount the file system that holds it)")]
    NoMarker {
        /// Path of the branch.
        path: PathBuf,
        /// Name of the branch.
        name: String,
    },
    /// Something is mounted there, but it is not what was there before.
    #[error(
        "{path:?} holds another file system than before ({found}{hint}{whose})",
        hint = if *hides { HIDES } else { "" },
        whose = theirs.as_deref().map_or_else(String::new, of_another)
    )]
    Another {
        /// Path of the branch.
        path: PathBuf,
        /// Name of the branch.
        name: String,
        /// What is there.
        found: String,
        /// Something is mounted now where the pool used a plain directory.
        hides: bool,
        /// The branch of this pool that it is.
        theirs: Option<String>,
    },
    /// While the branch was online, something else came to be at its path.
    #[error("another directory is now at {path:?} (unmount what covers the branch, or mount its disk again)")]
    Replaced {
        /// Path of the branch.
        path: PathBuf,
    },
    /// It was removed from the pool or replaced meanwhile.
    #[error("{path:?} is no longer a branch of this pool")]
    Retired {
        /// Path of the branch.
        path: PathBuf,
    },
    /// The configuration still names the place of a disk that was replaced.
    #[error(
        "{path:?} is not the branch: {name:?} was replaced by the disk at {by:?} (set its path to that in the configuration)"
    )]
    ReplacedElsewhere {
        /// Path of the branch.
        path: PathBuf,
        /// Name of the branch.
        name: String,
        /// Where the disk is that took its place.
        by: PathBuf,
    },
    /// Another branch of the pool has the same identity: a cloned disk, or the same directory twice.
    #[error(
        "{path:?} has the same identity as branch {other:?} (a copied disk, or the same directory twice; remove {path:?}/.umbrella from the copy)"
    )]
    Twin {
        /// Path of the branch.
        path: PathBuf,
        /// The branch that has it.
        other: String,
    },
    /// A pool hides it: only an empty directory could be seen.
    #[error("{path:?} is hidden by the pool at {pool:?}")]
    Covered {
        /// Path of the branch.
        path: PathBuf,
        /// Its mount point.
        pool: PathBuf,
    },
    /// Another daemon uses the branch.
    #[error("{path:?} is in use by a mounted pool")]
    InUse {
        /// Path of the branch.
        path: PathBuf,
    },
    /// The hidden folder is not ours.
    #[error(
        "{path:?}/.umbrella {problem} (recovery after a crash trusts it, so only the daemon may write there: inspect it, then move it away)"
    )]
    Hidden {
        /// Path of the branch.
        path: PathBuf,
        /// What is wrong.
        problem: HiddenProblem,
    },
    /// The marker is damaged.
    #[error("{path:?}/.umbrella/branch.json cannot be read: {detail} (restore it)")]
    Marker {
        /// Path of the branch.
        path: PathBuf,
        /// What the reader said.
        detail: String,
    },
    /// Some call failed on the way.
    #[error("{path:?}: {step}: {source}")]
    Io {
        /// Path of the branch.
        path: PathBuf,
        /// What was tried.
        step: &'static str,
        /// Why it failed.
        source: Errno,
    },
    /// The kernel is too old.
    #[error("{}", beneath::MISSING)]
    NoOpenat2,
    /// The pool's memory failed.
    #[error(transparent)]
    State(#[from] StateError),
    /// The daemon lacks threads: nothing is known of the branch.
    #[error("{path:?} was not checked: the daemon cannot start a thread ({})", Shortage::Threads)]
    NoThread {
        /// Path of the branch.
        path: PathBuf,
    },
    /// No answer in time.
    #[error("{path:?} does not answer (waited {waited_ms} ms)")]
    Hung {
        /// Path of the branch.
        path: PathBuf,
        /// How long.
        waited_ms: u64,
    },
}

impl BranchError {
    /// What the daemon lacks, if that is why: it says nothing of the branch.
    pub(crate) fn shortage(&self) -> Option<Shortage> {
        match self {
            BranchError::Open { source, .. } | BranchError::Io { source, .. } => Shortage::of(*source),
            BranchError::State(StateError::Io { source, .. }) => Shortage::of(Errno::from_io_error(source)?),
            BranchError::NoThread { .. } => Some(Shortage::Threads),
            _ => None,
        }
    }
}

/// See [`BranchError::Hidden`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum HiddenProblem {
    /// A symbolic link, or not a directory.
    #[error("is a symbolic link or not a directory")]
    NotADirectory,
    /// Another program's.
    #[error("belongs to user {owner}, not to the daemon's")]
    Owner {
        /// Whose.
        owner: u32,
    },
}

/// Says that the disk at a branch's place is another branch's.
fn of_another(branch: &str) -> String {
    format!(
        ": it is the disk of branch {branch:?}; correct the mount points, or the paths in the configuration; nothing else is needed"
    )
}
