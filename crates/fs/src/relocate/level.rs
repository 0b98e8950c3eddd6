//! Making a directory's copy like the others: owner, mode, attributes and ACLs.
//!
//! Times tell nothing of who is right: the time of change moves with every entry that is made or removed. So whoever changes a directory while a branch is
//! away notes when, on every copy that gets the change ([`note_change`]): of copies that differ, the one with the latest note is right (`pool::equal`).
//!
//! Cut short, what is done here would leave half of what is old with the note of what is new, and a right that was taken away would come back. So the copy
//! is marked meanwhile:
//!
//! 1. the mark, an attribute that is the branch's own: what has it is no model for others;
//! 2. what the new mode does not allow is taken away (for file systems that cannot keep a mark);
//! 3. owner; 4. attributes and ACLs; 5. mode, which an ACL may have changed;
//! 6. the note of when it changed; 7. the mark goes, if nothing failed.
//!
//! Nothing is synced: all of it is one inode, whose changes the file system keeps in order.

use std::ffi::{OsStr, OsString};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{AtFlags, CWD, Gid, Mode, Uid, XattrFlags, chmodat, chownat, getxattr, removexattr, setxattr};
use rustix::io::Errno;

use super::attrs;
use super::dirs::{apply_xattrs, is_of_the_directory, note};
use super::error::Doing;
use super::fingerprint::look_fd;
use super::{Loss, RelocateError};
use crate::control::protocol::Abilities;
use crate::fd_path::proc_path;

/// The mark. Some file systems take names of the second kind only.
const BEHIND: [&str; 2] = ["trusted.umbrella.behind", "user.umbrella.behind"];

/// The note. Users of the mount cannot set it, nor anybody but root on the branch itself.
const CHANGED: &str = "trusted.umbrella.changed";

/// When a directory's attributes were last changed while some branch was away, in nanoseconds since 1970; 0: never.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChangedAt(pub u64);

/// Whether an attribute is the pool's own, and none of users'.
pub fn is_reserved_xattr(name: &OsStr) -> bool {
    name.as_bytes().starts_with(b"trusted.umbrella.") || BEHIND.iter().any(|mark| name == *mark)
}

/// What a directory is besides its entries and times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirFace {
    /// Permission bits, 07777.
    pub perm: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Extended attributes; `None` leaves them as they are.
    pub attributes: Option<Attributes>,
    /// The note of its last change.
    pub changed: ChangedAt,
}

/// The attributes of a directory's copy as they were found.
#[derive(Debug, Clone)]
pub struct FoundAttributes {
    /// Those that all copies should have, by name.
    pub attributes: Attributes,
    /// It is marked as half changed: no model for others.
    pub behind: bool,
    /// The note of its last change.
    pub changed: ChangedAt,
}

/// Extended attributes by name, ACLs among them.
pub type Attributes = Vec<(OsString, Vec<u8>)>;

/// The attributes of a directory's copy.
pub fn dir_attributes(dir: BorrowedFd<'_>) -> Result<FoundAttributes, Errno> {
    let mut all = attrs::xattrs(dir)?;
    let behind = all.iter().any(|(name, _)| BEHIND.iter().any(|mark| name == mark));
    let changed =
        all.iter().find(|(name, _)| name == CHANGED).map_or(ChangedAt(0), |(_, value)| ChangedAt::read(value));
    all.retain(is_of_the_directory);
    all.sort();
    Ok(FoundAttributes { attributes: all, behind, changed })
}

impl ChangedAt {
    fn read(value: &[u8]) -> ChangedAt {
        ChangedAt(std::str::from_utf8(value).ok().and_then(|text| text.parse().ok()).unwrap_or(0))
    }

    /// As it is noted on a directory's copy.
    pub fn of(dir: BorrowedFd<'_>) -> ChangedAt {
        let mut value = [0; 20];
        let read = getxattr(proc_path(dir), CHANGED, &mut value).ok();
        read.and_then(|length| value.get(..length)).map_or(ChangedAt(0), ChangedAt::read)
    }
}

/// Notes on a directory's copy that it has changed. A file system that cannot keep it says so.
pub fn note_change(dir: BorrowedFd<'_>, at: ChangedAt) -> Result<(), Errno> {
    setxattr(proc_path(dir), CHANGED, at.0.to_string().as_bytes(), XattrFlags::empty())
}

/// What of these attributes a branch keeps.
pub fn kept_of(attributes: &[(OsString, Vec<u8>)], abilities: &Abilities) -> Attributes {
    let kept = |name: &OsString| if attrs::is_acl(name) { abilities.acl } else { abilities.xattr };
    attributes.iter().filter(|(name, _)| kept(name)).cloned().collect()
}

/// Gives a directory's copy this face; returns what could not be done. Times stay.
pub fn level_dir(dir: BorrowedFd<'_>, wanted: &DirFace, abilities: &Abilities) -> Result<Vec<Loss>, RelocateError> {
    let mut lost = Vec::new();
    mark(dir)?;
    if abilities.ownership {
        let now = look_fd(dir).doing("look at the copy of the directory")?.print;
        let closed = now.mode & 0o7777 & wanted.perm;
        if now.mode & 0o7777 != closed && set_mode(dir, closed).is_err() {
            note(&mut lost, Loss::Ownership);
        }
        if (now.uid, now.gid) != (wanted.uid, wanted.gid) && set_owner(dir, wanted).is_err() {
            note(&mut lost, Loss::Ownership);
        }
    }
    if let Some(attributes) = &wanted.attributes {
        let attributes = kept_of(attributes, abilities);
        apply_xattrs(dir, &attributes, abilities, &mut lost)?;
    }
    if abilities.ownership {
        let now = look_fd(dir).doing("look at the copy of the directory")?.print;
        if now.mode & 0o7777 != wanted.perm && set_mode(dir, wanted.perm).is_err() {
            note(&mut lost, Loss::Ownership);
        }
    }
    if wanted.changed != ChangedAt(0) {
        // Where it cannot be kept, the copy counts for less than those that keep it.
        let _kept = note_change(dir, wanted.changed);
    }
    if lost.is_empty() {
        unmark(dir)?;
    }
    Ok(lost)
}

fn mark(dir: BorrowedFd<'_>) -> Result<(), RelocateError> {
    let path = proc_path(dir);
    for name in BEHIND {
        match setxattr(&path, name, b"1", XattrFlags::empty()) {
            Ok(()) => return Ok(()),
            // It keeps no such thing.
            Err(Errno::NOTSUP | Errno::PERM | Errno::ACCESS | Errno::INVAL | Errno::NOSYS) => {}
            Err(Errno::NOSPC | Errno::DQUOT) => return Err(RelocateError::NoSpace),
            Err(errno) => return Err(errno).doing("mark the copy of a directory"),
        }
    }
    Ok(())
}

fn unmark(dir: BorrowedFd<'_>) -> Result<(), RelocateError> {
    let path = proc_path(dir);
    for name in BEHIND {
        match removexattr(&path, name) {
            Ok(()) | Err(Errno::NODATA | Errno::NOTSUP | Errno::PERM | Errno::ACCESS | Errno::INVAL | Errno::NOSYS) => {
            }
            Err(errno) => return Err(errno).doing("take the mark off the copy of a directory"),
        }
    }
    Ok(())
}

fn set_mode(dir: BorrowedFd<'_>, perm: u32) -> Result<(), Errno> {
    chmodat(CWD, proc_path(dir), Mode::from_raw_mode(perm), AtFlags::empty())
}

fn set_owner(dir: BorrowedFd<'_>, wanted: &DirFace) -> Result<(), Errno> {
    let (uid, gid) = (Uid::from_raw(wanted.uid), Gid::from_raw(wanted.gid));
    chownat(dir, c"", Some(uid), Some(gid), AtFlags::EMPTY_PATH)
}
