//! Making a directory's copy like the others: owner, mode, attributes and ACLs.
//!
//! Of copies that differ, the one that changed last is right (`pool::equal`), and every step here changes the copy. Cut short, half of what is
//! old would look like the newest, and a right that was taken away would come back. So the copy is marked meanwhile:
//!
//! 1. the mark, an attribute that is the branch's own: what has it is no model for others;
//! 2. what the new mode does not allow is taken away (for file systems that cannot keep a mark);
//! 3. owner; 4. attributes and ACLs; 5. mode, which an ACL may have changed;
//! 6. the mark goes, if nothing failed.
//!
//! Nothing is synced: all of it is one inode, whose changes the file system keeps in order.

use std::ffi::OsString;
use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, CWD, Gid, Mode, Uid, XattrFlags, chmodat, chownat, removexattr, setxattr};
use rustix::io::Errno;

use super::attrs;
use super::dirs::{apply_xattrs, is_of_the_directory, note};
use super::error::Doing;
use super::fingerprint::look_fd;
use super::{Loss, RelocateError};
use crate::control::protocol::Abilities;

/// The mark. Some file systems take names of the second kind only.
const BEHIND: [&str; 2] = ["trusted.umbrella.behind", "user.umbrella.behind"];

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
}

/// Extended attributes by name, ACLs among them.
pub type Attributes = Vec<(OsString, Vec<u8>)>;

/// The attributes of a directory's copy that all copies should have, and whether the copy is marked as no model.
pub fn dir_attributes(dir: BorrowedFd<'_>) -> Result<(Attributes, bool), Errno> {
    let mut all = attrs::xattrs(dir)?;
    let behind = all.iter().any(|(name, _)| BEHIND.iter().any(|mark| name == mark));
    all.retain(is_of_the_directory);
    all.sort();
    Ok((all, behind))
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
    if lost.is_empty() {
        unmark(dir)?;
    }
    Ok(lost)
}

fn mark(dir: BorrowedFd<'_>) -> Result<(), RelocateError> {
    let path = attrs::proc_path(dir);
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
    let path = attrs::proc_path(dir);
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
    chmodat(CWD, attrs::proc_path(dir).as_c_str(), Mode::from_raw_mode(perm), AtFlags::empty())
}

fn set_owner(dir: BorrowedFd<'_>, wanted: &DirFace) -> Result<(), Errno> {
    let (uid, gid) = (Uid::from_raw(wanted.uid), Gid::from_raw(wanted.gid));
    chownat(dir, c"", Some(uid), Some(gid), AtFlags::EMPTY_PATH)
}
