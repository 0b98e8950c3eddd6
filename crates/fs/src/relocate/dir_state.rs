//! Making a directory's copy like the others: owner, mode, attributes and ACLs.
//!
//! Only for a change through the pool that not every copy has yet.
//!
//! Times do not show which copy is right: the time of change moves with every entry that is made or removed. So a
//! change of a directory leaves a note when a copy is away or cannot follow. The note goes to every copy that gets the
//! change. It says when the change was made, and which copies lack it ([`note_change`]). Those get it when they can
//! (`pool::equal`).
//!
//! An interruption of the steps below would leave a copy with half of its old attributes and the note of the new ones.
//! A right that was taken away would come back. So the copy is marked meanwhile:
//!
//! 1. The mark is set, an attribute that belongs to the branch. A marked copy is no model for others. The mark of a
//!    change of all copies holds the whole change ([`Intention`]), so that the next mount finishes it.
//! 2. What the new mode does not allow is taken away (for file systems that cannot keep a mark).
//! 3. The owner is set.
//! 4. The attributes and ACLs are set.
//! 5. The mode is set, which an ACL may have changed.
//! 6. The note of when it changed is written.
//! 7. The mark goes, if nothing failed.
//!
//! Nothing is synced: all of it is one inode, whose changes the file system keeps in order.

use std::ffi::{OsStr, OsString};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{AtFlags, CWD, Gid, Mode, Uid, XattrFlags, chmodat, chownat, getxattr, removexattr, setxattr};
use rustix::io::Errno;

use super::attrs;
use super::dir_xattrs::{apply_xattrs, is_of_the_directory, note};
use super::error::ErrorContext;
use super::fingerprint::snapshot_fd;
use super::{Loss, RelocateError};
use crate::branch::Abilities;
use crate::ground::fd_path::proc_path;
use crate::rights::Rights;

/// The mark. Some file systems take names of the second kind only.
const BEHIND: [&str; 2] = ["trusted.umbrella.behind", "user.umbrella.behind"];

/// The note. Users of the mount cannot set it; on the branch itself only root can.
const CHANGED: &str = "trusted.umbrella.changed";

/// When a directory's attributes were last changed while some branch was away, in nanoseconds since 1970; 0: never.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChangedAt(pub u64);

/// Whether an attribute is the pool's own, or a second name of what has another, and so none of users'.
pub fn is_reserved_xattr(name: &OsStr) -> bool {
    name.as_bytes().starts_with(b"trusted.umbrella.")
        || BEHIND.iter().any(|mark| name == *mark)
        || attrs::is_second_name_of_acl(name.as_bytes())
}

/// One copy of a directory: the identity of its branch, which no other disk ever has, and its inode there. Of the root
/// the inode does not matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CopyId {
    /// Identity of the branch.
    pub branch: u128,
    /// Inode on the branch.
    pub ino: u64,
}

impl CopyId {
    /// Of a directory that is not the root: a copy that a branch may have, and that the pool has not met. No inode has
    /// this number.
    pub(crate) const fn unmet(branch: u128) -> CopyId {
        CopyId { branch, ino: 0 }
    }
}

/// What is noted on a copy that changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChangeNote {
    /// When.
    pub at: ChangedAt,
    /// Copies that lack the change, and unmet ones that may lack it.
    pub lagging: Vec<CopyId>,
}

/// A change of all copies that is under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Intention {
    /// What they are to have.
    pub(crate) rights: Rights,
    /// The copies.
    pub(crate) copies: Vec<CopyId>,
}

/// Why a copy is no model for others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Mark {
    /// It was being made like the others.
    Behind,
    /// All copies were being changed.
    Changing(Intention),
}

/// What a directory is besides its entries and times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirAttributes {
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
    /// The attributes that all copies should have, by name.
    pub attributes: Attributes,
    /// It is marked as half changed: no model for others.
    pub(crate) mark: Option<Mark>,
    /// It has the mark of file systems without trusted attributes, which any user may set who may write to the
    /// directory.
    pub(crate) plain_mark: bool,
    /// The note of its last change.
    pub note: ChangeNote,
}

/// Extended attributes by name, ACLs among them.
pub type Attributes = Vec<(OsString, Vec<u8>)>;

/// The attributes of a directory's copy.
pub fn dir_attributes(dir: BorrowedFd<'_>) -> Result<FoundAttributes, Errno> {
    let mut all = attrs::xattrs(dir)?;
    let value = |name: &str| all.iter().find(|(known, _)| known == name).map(|(_, value)| value);
    let [trusted, plain] = BEHIND;
    let (mark, plain_mark) = (value(trusted).map(|value| Mark::read(value)), value(plain).is_some());
    let note = value(CHANGED).map_or_else(ChangeNote::default, |value| ChangeNote::read(value));
    all.retain(is_of_the_directory);
    all.sort();
    Ok(FoundAttributes { attributes: all, mark, plain_mark, note })
}

impl ChangeNote {
    /// The time, and then `branch:inode` of each copy that lacks the change.
    fn read(value: &[u8]) -> ChangeNote {
        let mut words = std::str::from_utf8(value).unwrap_or_default().split(' ');
        let at = ChangedAt(words.next().and_then(|at| at.parse().ok()).unwrap_or(0));
        let copy = |word: &str| {
            let (branch, ino) = word.split_once(':')?;
            Some(CopyId { branch: u128::from_str_radix(branch, 16).ok()?, ino: ino.parse().ok()? })
        };
        ChangeNote { at, lagging: words.filter_map(copy).collect() }
    }

    fn write(&self) -> String {
        let lagging = self.lagging.iter().map(|copy| format!(" {:x}:{}", copy.branch, copy.ino));
        std::iter::once(self.at.0.to_string()).chain(lagging).collect()
    }

    /// As it is on a directory's copy.
    pub fn of(dir: BorrowedFd<'_>) -> ChangeNote {
        let mut value = [0; 4096];
        let read = getxattr(proc_path(dir), CHANGED, &mut value).ok();
        read.and_then(|length| value.get(..length)).map_or_else(ChangeNote::default, ChangeNote::read)
    }
}

/// Notes on a directory's copy that it has changed. A file system that cannot keep it says so.
pub fn note_change(dir: BorrowedFd<'_>, note: &ChangeNote) -> Result<(), Errno> {
    setxattr(proc_path(dir), CHANGED, note.write().as_bytes(), XattrFlags::empty())
}

impl Mark {
    fn read(value: &[u8]) -> Mark {
        Intention::read(value).map_or(Mark::Behind, Mark::Changing)
    }
}

impl Intention {
    /// Little-endian: a byte of version; mode, owner and group; the number of copies and each of them; each ACL with
    /// its length, `u32::MAX` for none.
    pub(crate) fn write(&self) -> Vec<u8> {
        let mut bytes = vec![INTENTION];
        let Rights { perm, uid, gid, access, default } = &self.rights;
        for number in [*perm, *uid, *gid, u32::try_from(self.copies.len()).unwrap_or(u32::MAX)] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        for copy in &self.copies {
            bytes.extend_from_slice(&copy.branch.to_le_bytes());
            bytes.extend_from_slice(&copy.ino.to_le_bytes());
        }
        for acl in [access, default] {
            let length = acl.as_ref().map_or(u32::MAX, |acl| u32::try_from(acl.len()).unwrap_or(u32::MAX));
            bytes.extend_from_slice(&length.to_le_bytes());
            bytes.extend_from_slice(acl.as_deref().unwrap_or_default());
        }
        bytes
    }

    fn read(bytes: &[u8]) -> Option<Intention> {
        let (&version, mut rest) = bytes.split_first()?;
        if version != INTENTION {
            return None;
        }
        let (perm, uid, gid) = (number(&mut rest)?, number(&mut rest)?, number(&mut rest)?);
        let mut copies = Vec::new();
        for _ in 0..number(&mut rest)? {
            let (branch, after) = rest.split_first_chunk::<16>()?;
            let (ino, after) = after.split_first_chunk::<8>()?;
            copies.push(CopyId { branch: u128::from_le_bytes(*branch), ino: u64::from_le_bytes(*ino) });
            rest = after;
        }
        let mut acl = || match number(&mut rest)? {
            u32::MAX => Some(None),
            length => {
                let (acl, after) = rest.split_at_checked(usize::try_from(length).ok()?)?;
                rest = after;
                Some(Some(acl.to_vec()))
            }
        };
        let (access, default) = (acl()?, acl()?);
        Some(Intention { rights: Rights { perm: perm & 0o7777, uid, gid, access, default }, copies })
    }
}

/// Version of [`Intention`] on the disk.
const INTENTION: u8 = 2;

fn number(bytes: &mut &[u8]) -> Option<u32> {
    let (number, rest) = bytes.split_first_chunk::<4>()?;
    *bytes = rest;
    Some(u32::from_le_bytes(*number))
}

/// What of these attributes a branch keeps.
pub fn kept_of(attributes: &[(OsString, Vec<u8>)], abilities: &Abilities) -> Attributes {
    let kept = |name: &OsString| if attrs::is_acl(name) { abilities.acl } else { abilities.xattr };
    attributes.iter().filter(|(name, _)| kept(name)).cloned().collect()
}

/// Gives a directory's copy these attributes; returns what could not be done. Times stay. A copy that is marked keeps
/// its mark meanwhile.
pub fn apply_dir_attributes(
    dir: BorrowedFd<'_>,
    wanted: &DirAttributes,
    abilities: &Abilities,
) -> Result<Vec<Loss>, RelocateError> {
    let mut lost = Vec::new();
    match mark(dir, b"1", XattrFlags::CREATE) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(Errno::NOSPC | Errno::DQUOT) => return Err(RelocateError::NoSpace),
        Err(errno) => return Err(errno).doing("mark the copy of a directory"),
    }
    if abilities.ownership {
        let now = snapshot_fd(dir).doing("stat the copy of the directory")?.print;
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
        let now = snapshot_fd(dir).doing("stat the copy of the directory")?.print;
        if now.mode & 0o7777 != wanted.perm && set_mode(dir, wanted.perm).is_err() {
            note(&mut lost, Loss::Ownership);
        }
    }
    if wanted.changed != ChangedAt(0) {
        // Where it cannot be kept, the copy counts for less than those that keep it.
        let _kept = note_change(dir, &ChangeNote { at: wanted.changed, lagging: Vec::new() });
    }
    if lost.is_empty() {
        unmark(dir).doing("take the mark off the copy of a directory")?;
    }
    Ok(lost)
}

/// Marks a copy as being changed to what all copies are to be. Not everywhere can it be kept.
pub(crate) fn mark_changing(dir: BorrowedFd<'_>, intention: &Intention) -> Result<(), Errno> {
    setxattr(proc_path(dir), BEHIND[0], &intention.write(), XattrFlags::empty())
}

fn mark(dir: BorrowedFd<'_>, value: &[u8], flags: XattrFlags) -> Result<(), Errno> {
    let path = proc_path(dir);
    for name in BEHIND {
        match setxattr(&path, name, value, flags) {
            // It keeps no such thing.
            Err(Errno::NOTSUP | Errno::PERM | Errno::ACCESS | Errno::INVAL | Errno::NOSYS) => {}
            done => return done,
        }
    }
    Ok(())
}

/// Takes the mark off a copy, if it has one.
pub(crate) fn unmark(dir: BorrowedFd<'_>) -> Result<(), Errno> {
    let path = proc_path(dir);
    for name in BEHIND {
        match removexattr(&path, name) {
            Ok(()) | Err(Errno::NODATA | Errno::NOTSUP | Errno::PERM | Errno::ACCESS | Errno::INVAL | Errno::NOSYS) => {
            }
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

fn set_mode(dir: BorrowedFd<'_>, perm: u32) -> Result<(), Errno> {
    chmodat(CWD, proc_path(dir), Mode::from_raw_mode(perm), AtFlags::empty())
}

fn set_owner(dir: BorrowedFd<'_>, wanted: &DirAttributes) -> Result<(), Errno> {
    let (uid, gid) = (Uid::from_raw(wanted.uid), Gid::from_raw(wanted.gid));
    chownat(dir, c"", Some(uid), Some(gid), AtFlags::EMPTY_PATH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_noted_of_a_change_is_read_as_it_was_written() {
        let lagging = vec![CopyId { branch: u128::MAX, ino: u64::MAX }, CopyId { branch: 4, ino: 0 }];
        let note = ChangeNote { at: ChangedAt(17), lagging: lagging.clone() };
        assert_eq!(ChangeNote::read(note.write().as_bytes()), note);
        assert_eq!(ChangeNote::read(b"17"), ChangeNote { at: ChangedAt(17), lagging: Vec::new() });
        assert_eq!(
            ChangeNote::read(b"what 3:4 5 6:"),
            ChangeNote { at: ChangedAt(0), lagging: vec![CopyId { branch: 3, ino: 4 }] }
        );
        let rights = Rights { perm: 0o2750, uid: 1, gid: 2, access: Some(vec![2, 0, 0, 0]), default: None };
        let intention = Intention { rights, copies: lagging };
        let bytes = intention.write();
        assert_eq!(Mark::read(&bytes), Mark::Changing(intention));
        for cut in 0..bytes.len() {
            assert_eq!(Mark::read(&bytes[..cut]), Mark::Behind);
        }
        assert_eq!(Mark::read(b"1"), Mark::Behind);
    }
}
