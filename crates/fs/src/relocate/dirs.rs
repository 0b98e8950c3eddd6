//! Directories that look the same on every branch.
//!
//! Steps to make one:
//!
//! 1. mkdir with mode 0700, in `tmp/` or in place.
//! 2. Set owner, attributes, ACLs, mode and times.
//! 3. From `tmp/` only: rename it to its name, which replaces nothing.
//! 4. Durably only: fsync the new directory, then the one that has its name. A move leaves step 4 to where no caller
//!    waits for it.
//!
//! A crash before step 3 leaves a directory in `tmp/`, which recovery removes. A directory that was made in place is
//! finished by a repetition.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, mkdirat, openat, renameat_with, unlinkat};
use rustix::io::Errno;

use crate::branch::Abilities;
use crate::relocate::commit::ParentTimes;
use crate::relocate::dir_state::{ChangeNote, ChangedAt, DirAttributes, apply_dir_attributes, note_change};
use crate::relocate::dir_xattrs::{apply_xattrs, is_of_the_directory, note};
use crate::relocate::error::ErrorContext;
use crate::relocate::fingerprint::snapshot_fd;
use crate::relocate::{EntryAt, Loss, RelocateError, attrs};

/// Makes `to_parent/name` look like the directory `from` (owner, mode, attributes, ACLs, times); says whether it is
/// new.
///
/// Safe to repeat: an existing directory only gets the attributes. Not durable when this returns. What the branch
/// cannot keep of a directory is left out; [`sync_dir_attrs`] tells what. The times of `to_parent` stay.
pub fn clone_dir(
    from: BorrowedFd<'_>,
    to_parent: BorrowedFd<'_>,
    name: &OsStr,
    abilities: &Abilities,
) -> Result<bool, RelocateError> {
    make(from, None, to_parent, name, abilities).map(|(_, created)| created)
}

/// [`clone_dir`], durable when this returns: needed before a file's only copy is put there.
pub fn clone_dir_durably(
    from: BorrowedFd<'_>,
    to_parent: BorrowedFd<'_>,
    name: &OsStr,
    abilities: &Abilities,
) -> Result<bool, RelocateError> {
    let (dir, created) = make(from, None, to_parent, name, abilities)?;
    attrs::sync_dir(dir.as_fd()).doing("flush the new directory")?;
    attrs::sync_dir(to_parent).doing("flush the new directory's parent")?;
    Ok(created)
}

/// [`clone_dir`] by way of `temp`, so that no crash leaves a directory that looks unlike `from` under the
/// name. Where that is not possible (another file system is mounted below the branch), made in place.
/// With `attributes` it gets those, and only the times of `from`.
pub fn clone_dir_whole(
    from: BorrowedFd<'_>,
    attributes: Option<&DirAttributes>,
    temp: EntryAt<'_>,
    to: EntryAt<'_>,
    abilities: &Abilities,
) -> Result<(), RelocateError> {
    make(from, attributes, temp.dir, temp.name, abilities)?;
    if renameat_with(temp.dir, temp.name, to.dir, to.name, RenameFlags::NOREPLACE).is_ok() {
        return Ok(());
    }
    let _leftover = unlinkat(temp.dir, temp.name, AtFlags::REMOVEDIR);
    make(from, attributes, to.dir, to.name, abilities).map(drop)
}

fn make(
    from: BorrowedFd<'_>,
    attributes: Option<&DirAttributes>,
    to_parent: BorrowedFd<'_>,
    name: &OsStr,
    abilities: &Abilities,
) -> Result<(OwnedFd, bool), RelocateError> {
    let times = ParentTimes::of([to_parent]);
    let created = match mkdirat(to_parent, name, Mode::RWXU) {
        Ok(()) => true,
        Err(Errno::EXIST) => false,
        Err(errno) => return Err(errno).doing("make a directory"),
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = match openat(to_parent, name, flags, Mode::empty()) {
        Err(Errno::NOTDIR | Errno::LOOP) => return Err(RelocateError::NotDirectory),
        dir => dir.doing("open the directory")?,
    };
    if created {
        times.restore();
    }
    if let Some(attributes) = attributes {
        apply_dir_attributes(dir.as_fd(), attributes, abilities)?;
        let times = snapshot_fd(from).doing("stat the directory")?;
        // What the branch cannot keep of them, others do.
        let _kept = attrs::set_times(dir.as_fd(), &times);
    } else {
        sync_dir_attrs(from, dir.as_fd(), abilities)?;
    }
    let note = ChangeNote::of(from);
    if note.at != ChangedAt(0) {
        // Where it cannot be kept, the copy counts for less than those that keep it.
        let _kept = note_change(dir.as_fd(), &note);
    }
    Ok((dir, created))
}

/// Gives the directory `to` the owner, mode, attributes, ACLs and times of `from`; returns what its branch cannot keep.
pub fn sync_dir_attrs(
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    abilities: &Abilities,
) -> Result<Vec<Loss>, RelocateError> {
    let wanted = snapshot_fd(from).doing("stat the directory")?;
    let mut lost = Vec::new();
    if !abilities.ownership || attrs::set_owner(to, &wanted).is_err() {
        lost.push(Loss::Ownership);
    }
    sync_xattrs(from, to, abilities, &mut lost)?;
    let now = snapshot_fd(to).doing("stat the copy of the directory")?;
    if now.print.mode != wanted.print.mode && (!abilities.ownership || attrs::set_mode(to, &wanted).is_err()) {
        note(&mut lost, Loss::Ownership);
    }
    if (now.print.mtime, now.atime) != (wanted.print.mtime, wanted.atime) && attrs::set_times(to, &wanted).is_err() {
        note(&mut lost, Loss::Times);
    }
    Ok(lost)
}

fn sync_xattrs(
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    abilities: &Abilities,
    lost: &mut Vec<Loss>,
) -> Result<(), RelocateError> {
    let mut wanted = attrs::xattrs(from).doing("read extended attributes")?;
    wanted.retain(is_of_the_directory);
    apply_xattrs(to, &wanted, abilities, lost)
}
