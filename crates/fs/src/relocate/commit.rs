//! Steps 3 to 9.

use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, RenameFlags, linkat, renameat_with, unlinkat};

use super::error::Doing;
use super::{BranchUuid, Copied, Fingerprint, Place, RelocateError, StepHook, attrs};

/// One name of a file that moves.
#[derive(Debug, Clone, Copy)]
pub struct MovedName<'a> {
    /// Where it is.
    pub source: Place<'a>,
    /// Where it goes; the directory exists.
    pub target: Place<'a>,
    /// Its path in the pool.
    pub path: &'a [u8],
}

/// A file that moves, with all its names.
#[derive(Clone, Copy)]
pub struct Move<'a> {
    /// Old branch.
    pub from: BranchUuid,
    /// New branch.
    pub to: BranchUuid,
    /// Every name; at least one.
    pub names: &'a [MovedName<'a>],
    /// The copy, in the new branch's [`super::TEMP_DIR`].
    pub temp: Place<'a>,
    /// The [`super::INTENTS_DIR`] of either branch.
    pub intents: BorrowedFd<'a>,
    /// What [`super::copy`] returned.
    pub copied: &'a Copied,
    /// For tests; `None` otherwise.
    pub hook: Option<StepHook<'a>>,
}

/// Step 3: fails with [`RelocateError::Changed`] if the source is no longer what was copied.
pub fn verify_unchanged(source: Place<'_>, copied: &Copied) -> Result<(), RelocateError> {
    match Fingerprint::at(source) {
        Ok(now) if now == copied.source => Ok(()),
        Ok(_) | Err(rustix::io::Errno::NOENT) => Err(RelocateError::Changed),
        Err(errno) => Err(errno).doing("look at the source"),
    }
}

/// Steps 4 to 9: puts a copy in the place of its source. Verifies once more before the source is removed.
///
/// The times of the parent directories stay as they were. On an error the copy is gone and the file as it was, except
/// for [`RelocateError::InDoubt`].
pub fn commit(m: &Move<'_>) -> Result<(), RelocateError> {
    let Some((first, others)) = m.names.split_first() else { return Err(RelocateError::Changed) };
    renameat_with(m.temp.dir, m.temp.name, first.target.dir, first.target.name, RenameFlags::NOREPLACE).doing("rename")?;
    for other in others {
        linkat(first.target.dir, first.target.name, other.target.dir, other.target.name, AtFlags::empty()).doing("link")?;
    }
    attrs::sync_dir(first.target.dir).doing("flush")?;
    for name in m.names {
        unlinkat(name.source.dir, name.source.name, AtFlags::empty()).doing("unlink")?;
    }
    Ok(())
}
