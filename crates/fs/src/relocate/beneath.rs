//! Looking names up below a branch's root and nowhere else, in the presence of hostile links and of paths of any length.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;

use super::Place;
use super::fingerprint::{Seen, look_maybe};

/// Longest path given to the kernel at once, with room for the final zero.
const CHUNK: usize = 4000;
const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A name whose directory was found below a root.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) dir: OwnedFd,
    name: Vec<u8>,
}

impl Found {
    pub(super) fn place(&self) -> Place<'_> {
        Place { dir: self.dir.as_fd(), name: OsStr::from_bytes(&self.name) }
    }

    pub(super) fn look(&self) -> Result<Option<Seen>, Errno> {
        look_maybe(self.place())
    }
}

/// Splits a relative path into its parent (may be empty) and its name.
pub(super) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&b| b == b'/') {
        Some(slash) => (path.get(..slash).unwrap_or_default(), path.get(slash + 1..).unwrap_or_default()),
        None => (&[], path),
    }
}

/// The name of a relative path; `None` when its directory does not exist.
pub(super) fn find(root: BorrowedFd<'_>, path: &[u8]) -> Result<Option<Found>, Errno> {
    let (parent, name) = split(path);
    match open_dir(root, parent) {
        Ok(dir) => Ok(Some(Found { dir, name: name.to_vec() })),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Opens a directory (`O_PATH`) by a relative path; the root itself by an empty one.
///
/// A symbolic link or a way out is `ELOOP` or `EXDEV`.
pub(super) fn open_dir(root: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd, Errno> {
    let mut dir = openat(root, c".", DIRECTORY, Mode::empty())?;
    let mut rest = path;
    while !rest.is_empty() {
        let (chunk, after) = first_chunk(rest);
        dir = step(dir.as_fd(), chunk)?;
        rest = after;
    }
    Ok(dir)
}

fn first_chunk(path: &[u8]) -> (&[u8], &[u8]) {
    if path.len() <= CHUNK {
        return (path, &[]);
    }
    let head = path.get(..CHUNK).unwrap_or(path);
    // A component is at most 255 bytes long, so there is a slash.
    let slash = head.iter().rposition(|&b| b == b'/').unwrap_or(CHUNK);
    (path.get(..slash).unwrap_or_default(), path.get(slash + 1..).unwrap_or_default())
}

fn step(dir: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    for _ in 0..16 {
        // Without O_NOFOLLOW, so that a link at the end is ELOOP like any other.
        match openat2(dir, path, DIRECTORY.difference(OFlags::NOFOLLOW), Mode::empty(), resolve) {
            // A rename elsewhere got in the way.
            Err(Errno::AGAIN) => {}
            Err(Errno::NOSYS) => return step_by_step(dir, path),
            opened => return opened,
        }
    }
    step_by_step(dir, path)
}

/// For kernels before 5.6: no component is followed, and none is `..`.
fn step_by_step(dir: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd, Errno> {
    let mut dir = openat(dir, c".", DIRECTORY, Mode::empty())?;
    for name in path.split(|&b| b == b'/') {
        if name == b".." {
            return Err(Errno::XDEV);
        }
        dir = openat(&dir, name, DIRECTORY, Mode::empty())?;
    }
    Ok(dir)
}
