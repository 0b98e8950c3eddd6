//! Names below a branch's root, for recovery, which has only paths.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::branch::beneath::{open_beneath, split};
use crate::relocate::fingerprint::{FileSnapshot, snapshot_if_present};
use crate::relocate::{EntryAt, HIDDEN_DIR};

/// A name whose directory was found below a root.
#[derive(Debug)]
pub(super) struct ResolvedName {
    pub(super) dir: OwnedFd,
    name: Vec<u8>,
}

impl ResolvedName {
    pub(super) fn place(&self) -> EntryAt<'_> {
        EntryAt { dir: self.dir.as_fd(), name: OsStr::from_bytes(&self.name) }
    }

    pub(super) fn inspect(&self) -> Result<Option<FileSnapshot>, Errno> {
        snapshot_if_present(self.place())
    }
}

/// The name of a relative path; `None` when its directory does not exist.
pub(super) fn find(root: BorrowedFd<'_>, path: &[u8]) -> Result<Option<ResolvedName>, Errno> {
    let (parent, name) = split(path);
    match open_dir(root, parent) {
        Ok(dir) => Ok(Some(ResolvedName { dir, name: name.to_vec() })),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Opens a directory (`O_PATH`) by a relative path; the root itself by an empty one.
///
/// A symbolic link or a way out is `ELOOP` or `EXDEV`.
pub(super) fn open_dir(root: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd, Errno> {
    open_beneath(root, path, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())
}

/// Whether it can be the name of one entry.
pub(super) fn is_component(name: &[u8]) -> bool {
    !name.is_empty()
        && name.len() <= 255
        && name != b"."
        && name != b".."
        && !name.contains(&0)
        && !name.contains(&b'/')
}

/// Whether it is a path of names, and none of the hidden directory's.
pub(super) fn is_pool_path(path: &[u8]) -> bool {
    path.split(|&b| b == b'/').all(is_component) && path.split(|&b| b == b'/').next() != Some(HIDDEN_DIR.as_bytes())
}
