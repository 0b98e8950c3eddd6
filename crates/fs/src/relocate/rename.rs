//! Renames that touch more than one branch.

use std::os::fd::BorrowedFd;

use super::{BranchUuid, Place, RelocateError, StepHook};

/// One branch of a directory that is renamed.
#[derive(Debug, Clone, Copy)]
pub struct DirSite<'a> {
    /// The branch.
    pub branch: BranchUuid,
    /// Old name on it.
    pub from: Place<'a>,
    /// New name on it; the parent exists.
    pub to: Place<'a>,
}

/// A directory that is renamed on every branch that has it.
#[derive(Clone, Copy)]
pub struct DirRename<'a> {
    /// The branches that have the old name.
    pub sites: &'a [DirSite<'a>],
    /// Old path in the pool.
    pub from_path: &'a [u8],
    /// New path in the pool.
    pub to_path: &'a [u8],
    /// An empty directory of the new name may be replaced.
    pub replaced: bool,
    /// The [`super::INTENTS_DIR`] of any of the branches.
    pub intents: BorrowedFd<'a>,
    /// For tests; `None` otherwise.
    pub hook: Option<StepHook<'a>>,
}

/// A file that is renamed over a file on another branch.
#[derive(Clone, Copy)]
pub struct Supersede<'a> {
    /// Branch of the file that is renamed.
    pub winner: BranchUuid,
    /// Its old name.
    pub from: Place<'a>,
    /// Its new name, on the same branch.
    pub to: Place<'a>,
    /// Branch of the file that is replaced.
    pub loser: BranchUuid,
    /// That file.
    pub replaced: Place<'a>,
    /// Old path in the pool.
    pub from_path: &'a [u8],
    /// New path in the pool.
    pub to_path: &'a [u8],
    /// The [`super::INTENTS_DIR`] of either branch.
    pub intents: BorrowedFd<'a>,
    /// For tests; `None` otherwise.
    pub hook: Option<StepHook<'a>>,
}

/// Renames a directory on all its branches as one operation.
pub fn rename_dir(r: &DirRename<'_>) -> Result<(), RelocateError> {
    let _ = r;
    Ok(())
}

/// Renames a file and removes the one it replaces on another branch, as one operation.
pub fn supersede(s: &Supersede<'_>) -> Result<(), RelocateError> {
    let _ = s;
    Ok(())
}
