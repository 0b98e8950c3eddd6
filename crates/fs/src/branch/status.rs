//! The reported state of a branch: whether it can be used, what it can keep, how full it is.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use umbrella_units::{ByteSize, Timestamp};

use super::errors::BranchErrors;

/// One branch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
pub struct BranchStatus {
    /// Name.
    pub name: String,
    /// Path.
    pub path: PathBuf,
    /// Online, or why not.
    #[serde(flatten)]
    pub state: BranchState,
    /// File system type as the kernel names it (`ext4`, `xfs`, `fuse.sshfs`...).
    pub fs_type: String,
    /// Size in bytes.
    pub total: ByteSize,
    /// Free bytes for unprivileged users.
    pub free: ByteSize,
    /// Kept free, in bytes.
    pub min_free: ByteSize,
    /// Nothing is written there.
    pub read_only: bool,
    /// Nothing new is placed there.
    pub draining: bool,
    /// New files come here.
    #[serde(default = "crate::spec::yes")]
    pub create: bool,
    /// Number of inodes in use from which it counts as full.
    #[serde(default)]
    pub max_files: Option<u64>,
    /// It is to be hidden while the pool is mounted.
    #[serde(default)]
    pub hide: bool,
    /// It is: an empty directory is mounted over its path.
    #[serde(default)]
    pub covered: bool,
    /// Its inodes in use; `None` where its file system does not count them.
    #[serde(default)]
    pub files_used: Option<u64>,
    /// What the file system can keep.
    pub abilities: Abilities,
    /// Files that moved here since the mount.
    pub files_moved_in: u64,
    /// Files that moved away since the mount.
    pub files_moved_out: u64,
    /// Its ordered write-back; `None`: the kernel decides.
    #[serde(default)]
    pub write_back: Option<umbrella_writeback::Status>,
    /// Its disk reports errors.
    #[serde(default)]
    pub failing: bool,
    /// How many.
    #[serde(default)]
    pub errors: BranchErrors,
}

/// Whether a branch can be used.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum BranchState {
    /// In use.
    Online,
    /// Not in use.
    Offline {
        /// Why, for people.
        reason: String,
        /// Since when.
        #[serde(with = "umbrella_units::seconds")]
        since: Timestamp,
    },
}

/// What the file system of a branch can keep; found by trying when the branch comes online.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "a list of independent abilities")]
pub struct Abilities {
    /// Extended attributes in the user namespace.
    pub xattr: bool,
    /// POSIX ACLs.
    pub acl: bool,
    /// Holes in files.
    pub holes: bool,
    /// Hard links.
    pub hard_links: bool,
    /// Symbolic links.
    pub symlinks: bool,
    /// Owner and mode of files.
    pub ownership: bool,
    /// Device nodes, pipes and sockets.
    pub special_files: bool,
    /// Times in nanoseconds.
    pub nanoseconds: bool,
    /// `O_TMPFILE`.
    pub tmpfile: bool,
    /// FUSE passthrough works on it.
    pub passthrough: bool,
    /// `renameat2` with `RENAME_EXCHANGE` and `RENAME_NOREPLACE`.
    pub rename_flags: bool,
}

impl Abilities {
    /// Everything.
    pub const ALL: Abilities = Abilities {
        xattr: true,
        acl: true,
        holes: true,
        hard_links: true,
        symlinks: true,
        ownership: true,
        special_files: true,
        nanoseconds: true,
        tmpfile: true,
        passthrough: true,
        rename_flags: true,
    };
}
