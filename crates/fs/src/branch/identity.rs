//! The identity of a branch: `.umbrella/branch.json` on the branch itself.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::closer::Closer;
use super::{BranchFd, HIDDEN_DIR, Hidden, HiddenProblem};
use crate::ground::dir_sync::sync_dir;

/// Name of the marker in the hidden folder.
pub(super) const MARKER: &str = "branch.json";
const VERSION: u32 = 1;
/// A marker is some 200 bytes; more than this is not one.
const MOST: usize = 64 * 1024;

/// What the marker says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Marker {
    version: u32,
    #[serde(with = "uuid::serde::simple")]
    pub(super) uuid: Uuid,
    pub(super) slot: u16,
    #[serde(with = "uuid::serde::simple")]
    pub(super) pool: Uuid,
}

/// The identity in the marker of the directory at a path, for programs other than the daemon.
pub fn identity_at(path: &std::path::Path) -> Option<Uuid> {
    marker_at(path).map(|marker| marker.uuid)
}

/// The pool that the directory at a path is a branch of, as its marker tells.
pub(crate) fn pool_at(path: &std::path::Path) -> Option<Uuid> {
    marker_at(path).map(|marker| marker.pool)
}

fn marker_at(path: &std::path::Path) -> Option<Marker> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(path, flags, Mode::empty()).ok()?;
    let hidden = rustix::fs::openat(root, HIDDEN_DIR, flags | OFlags::NOFOLLOW, Mode::empty()).ok()?;
    Marker::read(hidden.as_fd()).ok()?
}

/// Why there is no marker to go by.
#[derive(Debug)]
pub(super) enum MarkerError {
    /// A call failed.
    Io(Errno),
    /// It is there and makes no sense.
    Damaged(String),
}

impl From<Errno> for MarkerError {
    fn from(error: Errno) -> Self {
        MarkerError::Io(error)
    }
}

/// Why there is no hidden folder.
#[derive(Debug, Clone, Copy)]
pub(super) enum HiddenError {
    /// A call failed.
    Io(Errno),
    /// Something is there that is not ours.
    Wrong(HiddenProblem),
}

impl From<Errno> for HiddenError {
    fn from(error: Errno) -> Self {
        HiddenError::Io(error)
    }
}

impl Marker {
    pub(super) fn new(uuid: Uuid, slot: u16, pool: Uuid) -> Marker {
        Marker { version: VERSION, uuid, slot, pool }
    }

    /// Reads bytes of a marker.
    pub(super) fn decode(text: &[u8]) -> Result<Marker, String> {
        let marker: Marker = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        match marker.version {
            VERSION => Ok(marker),
            other => Err(format!("version {other} is from a newer program")),
        }
    }

    /// The marker in a hidden folder; `None` when there is none.
    pub(super) fn read(hidden: BorrowedFd<'_>) -> Result<Option<Marker>, MarkerError> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(hidden, MARKER, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            other => other?,
        };
        let mut text = vec![0; MOST];
        let mut filled = 0;
        while let Some(room) = text.get_mut(filled..).filter(|room| !room.is_empty()) {
            match rustix::io::read(&file, room) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        text.truncate(filled);
        Marker::decode(&text).map(Some).map_err(MarkerError::Damaged)
    }

    /// Puts the marker in place: write, fsync, rename, fsync of the folder.
    pub(super) fn write(&self, hidden: &Hidden) -> rustix::io::Result<()> {
        let text = serde_json::to_vec_pretty(self).map_err(|_| Errno::INVAL)?;
        let name = format!("marker-{}", random_name());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&hidden.tmp, &name, flags, Mode::RUSR | Mode::WUSR)?;
        let write = || {
            write_all(file.as_fd(), &text)?;
            rustix::fs::fsync(&file)?;
            rustix::fs::renameat(&hidden.tmp, &name, &hidden.dir, MARKER)?;
            sync_dir(hidden.dir.as_fd())
        };
        write().inspect_err(|_| {
            let _ = rustix::fs::unlinkat(&hidden.tmp, &name, AtFlags::empty());
        })
    }
}

/// Thirty-two characters that no program can have guessed.
pub(super) fn random_name() -> String {
    Uuid::new_v4().simple().to_string()
}

/// Writes all of it.
pub(super) fn write_all(file: BorrowedFd<'_>, mut bytes: &[u8]) -> rustix::io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(file, bytes) {
            Ok(0) => return Err(Errno::IO),
            Ok(count) => bytes = bytes.get(count..).ok_or(Errno::IO)?,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The marker, to be read past the page cache where the file system can.
pub(super) fn open_marker(hidden: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat(hidden, MARKER, flags | OFlags::DIRECT, Mode::empty()) {
        Err(Errno::INVAL) => rustix::fs::openat(hidden, MARKER, flags, Mode::empty()),
        opened => opened,
    }
}

/// The hidden folder as it is, without making one: for branches that are not written. `None` when there is none.
pub(super) fn find_hidden(root: BorrowedFd<'_>) -> Result<Option<OwnedFd>, HiddenError> {
    match open_dir(root, HIDDEN_DIR) {
        Ok(dir) => check_owner(root, &dir, false).map(|()| Some(dir)),
        Err(Errno::NOENT) => Ok(None),
        Err(Errno::NOTDIR | Errno::LOOP) => Err(HiddenError::Wrong(HiddenProblem::NotADirectory)),
        Err(error) => Err(error.into()),
    }
}

/// The hidden folder, made if need be.
pub(super) fn make_hidden(root: BorrowedFd<'_>, closer: Option<&Closer>) -> Result<Hidden, HiddenError> {
    let (dir, made) = make_dir(root, HIDDEN_DIR)?;
    if !made {
        check_owner(root, &dir, true)?;
    }
    let mode = Mode::from_raw_mode(rustix::fs::fstat(&dir)?.st_mode & 0o7777);
    if mode != Mode::RWXU {
        // File systems without modes refuse, or ignore it; the owner was checked.
        let _ = rustix::fs::fchmod(&dir, Mode::RWXU);
    }
    let (tmp, _) = make_dir(dir.as_fd(), "tmp")?;
    let (intents, _) = make_dir(dir.as_fd(), "intents")?;
    if made {
        sync_dir(root)?;
    }
    let [dir, tmp, intents] = [dir, tmp, intents].map(|fd| BranchFd::new(fd, closer));
    Ok(Hidden { dir, tmp, intents: intents.into() })
}

fn open_dir(at: BorrowedFd<'_>, name: &str) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(at, name, flags, Mode::empty())
}

/// Opens a directory, made if need be; tells whether it was made.
fn make_dir(at: BorrowedFd<'_>, name: &str) -> Result<(OwnedFd, bool), HiddenError> {
    let made = match rustix::fs::mkdirat(at, name, Mode::RWXU) {
        Ok(()) => true,
        Err(Errno::EXIST) => false,
        Err(error) => return Err(error.into()),
    };
    match open_dir(at, name) {
        Ok(dir) => Ok((dir, made)),
        Err(Errno::NOTDIR | Errno::LOOP) => Err(HiddenError::Wrong(HiddenProblem::NotADirectory)),
        Err(error) => Err(error.into()),
    }
}

/// The folder must be ours. On a file system that gives every file to one user (sshfs, vfat...) it must be that user's,
/// which a folder made for the purpose shows.
fn check_owner(root: BorrowedFd<'_>, dir: &OwnedFd, may_write: bool) -> Result<(), HiddenError> {
    let owner = rustix::fs::fstat(dir)?.st_uid;
    if owner == rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    let wrong = HiddenError::Wrong(HiddenProblem::Owner { owner });
    if !may_write {
        return Err(wrong);
    }
    let name = format!("{HIDDEN_DIR}-{}", random_name());
    rustix::fs::mkdirat(root, &name, Mode::RWXU)?;
    let made = open_dir(root, &name).and_then(|dir| rustix::fs::fstat(&dir));
    let _ = rustix::fs::unlinkat(root, &name, AtFlags::REMOVEDIR);
    if made?.st_uid == owner { Ok(()) } else { Err(wrong) }
}
