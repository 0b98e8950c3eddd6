//! What the file system of a branch can keep: tried in its hidden folder, never assumed, except where nothing can be
//! written.
//!
//! Whatever is tried is read back, because some file systems accept what they do not keep.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, RenameFlags, SeekFrom, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::{Errno, Result};

use super::identity::random_name;
use super::status::Abilities;

/// An owner that no account has.
const TEST_ID: u32 = 12345;
const MIB: u64 = 1 << 20;

/// What was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProbedAbilities {
    pub(super) abilities: Abilities,
    /// Everything could be tried: a branch without room cannot say what it keeps.
    pub(super) whole: bool,
}

/// Assumed abilities where nothing is known. Callers that rely on them find out, and what cannot be kept is refused
/// then.
pub(super) const ASSUMED: Abilities = Abilities { passthrough: false, ..Abilities::ALL };

/// Tries everything in `tmp`, and cleans up. What cannot be tried now is as it was `known` before.
pub(super) fn probe(tmp: BorrowedFd<'_>, known: Abilities) -> ProbedAbilities {
    let trial = match TrialFolder::begin(tmp) {
        Ok(trial) => trial,
        Err(errno) if is_no_answer(errno) => return ProbedAbilities { abilities: known, whole: false },
        Err(_) => return ProbedAbilities { abilities: Abilities::default(), whole: true },
    };
    let mut whole = true;
    let mut tried = |kept: Result<bool>, known: bool| match kept {
        Ok(kept) => kept,
        Err(errno) if is_no_answer(errno) => {
            whole = false;
            known
        }
        Err(_) => false,
    };
    let abilities = Abilities {
        xattr: tried(trial.xattr(), known.xattr),
        acl: tried(trial.acl(), known.acl),
        holes: tried(trial.holes(), known.holes),
        hard_links: tried(trial.hard_links(), known.hard_links),
        symlinks: tried(trial.symlinks(), known.symlinks),
        ownership: tried(trial.ownership(), known.ownership),
        special_files: tried(trial.special_files(), known.special_files),
        nanoseconds: tried(trial.nanoseconds(), known.nanoseconds),
        tmpfile: tried(trial.tmpfile().map(|_| true), known.tmpfile),
        passthrough: false,
        rename_flags: tried(trial.rename_flags(), known.rename_flags),
    };
    ProbedAbilities { abilities, whole }
}

/// Errors that say nothing of what the file system can keep.
fn is_no_answer(errno: Errno) -> bool {
    matches!(errno, Errno::NOSPC | Errno::DQUOT | Errno::IO | Errno::ROFS | Errno::NOMEM | Errno::MFILE | Errno::NFILE)
}

/// What file systems of this type surely have, for branches on which nothing can be tried.
pub(super) fn of_type(fs_type: &str) -> Abilities {
    let full = Abilities { tmpfile: false, rename_flags: false, ..ASSUMED };
    match fs_type {
        "xfs" | "btrfs" | "f2fs" => full,
        // ext4 with 128-byte inodes keeps seconds only.
        "ext4" => Abilities { nanoseconds: false, ..full },
        "tmpfs" => Abilities { acl: false, xattr: false, ..full },
        "squashfs" | "erofs" => Abilities { acl: false, holes: false, nanoseconds: false, ..full },
        _ => Abilities::default(),
    }
}

/// A folder to try things in; removed with what is in it.
struct TrialFolder<'a> {
    tmp: BorrowedFd<'a>,
    name: String,
    dir: OwnedFd,
}

/// Everything a trial may leave behind.
const NAMES: [&str; 14] = [
    "xattr", "acl", "holes", "first", "second", "target", "symlink", "owned", "fifo", "times", "this", "that",
    "linked", "data",
];

impl<'a> TrialFolder<'a> {
    fn begin(tmp: BorrowedFd<'a>) -> Result<TrialFolder<'a>> {
        let name = format!("trial-{}", random_name());
        rustix::fs::mkdirat(tmp, &name, Mode::RWXU)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::openat(tmp, &name, flags, Mode::empty()) {
            Ok(dir) => Ok(TrialFolder { tmp, name, dir }),
            Err(error) => {
                let _ = rustix::fs::unlinkat(tmp, &name, AtFlags::REMOVEDIR);
                Err(error)
            }
        }
    }

    fn file(&self, name: &str) -> Result<OwnedFd> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(&self.dir, name, flags, Mode::RUSR | Mode::WUSR)
    }

    fn keeps_attribute(file: &OwnedFd, name: &str, value: &[u8]) -> Result<bool> {
        rustix::fs::fsetxattr(file, name, value, XattrFlags::empty())?;
        let mut kept = [0u8; 64];
        let length = rustix::fs::fgetxattr(file, name, &mut kept[..])?;
        Ok(kept.get(..length) == Some(value))
    }

    fn xattr(&self) -> Result<bool> {
        Self::keeps_attribute(&self.file("xattr")?, "user.umbrella.trial", b"kept")
    }

    /// u::rw- u:12345:r-- g::--- m::r-- o::---
    fn acl(&self) -> Result<bool> {
        const UNDEFINED_ID: u32 = u32::MAX;
        let mut acl = 2u32.to_le_bytes().to_vec();
        for (tag, rights, who) in [
            (1u16, 6u16, UNDEFINED_ID),
            (2, 4, TEST_ID),
            (4, 0, UNDEFINED_ID),
            (16, 4, UNDEFINED_ID),
            (32, 0, UNDEFINED_ID),
        ] {
            acl.extend_from_slice(&tag.to_le_bytes());
            acl.extend_from_slice(&rights.to_le_bytes());
            acl.extend_from_slice(&who.to_le_bytes());
        }
        Self::keeps_attribute(&self.file("acl")?, "system.posix_acl_access", &acl)
    }

    /// A hole of a megabyte, then a block. The hole must not take room, and must not be called data.
    fn holes(&self) -> Result<bool> {
        let file = self.file("holes")?;
        rustix::fs::ftruncate(&file, 2 * MIB)?;
        rustix::io::pwrite(&file, &[1u8; 4096], MIB)?;
        let _ = rustix::fs::fsync(&file);
        let data = rustix::fs::seek(&file, SeekFrom::Data(0));
        let blocks = rustix::fs::fstat(&file)?.st_blocks;
        Ok(data == Ok(MIB) || (data.is_err() && u64::try_from(blocks).unwrap_or(u64::MAX) * 512 < MIB))
    }

    fn hard_links(&self) -> Result<bool> {
        let first = self.file("first")?;
        rustix::fs::linkat(&self.dir, "first", &self.dir, "second", AtFlags::empty())?;
        let second = rustix::fs::statat(&self.dir, "second", AtFlags::SYMLINK_NOFOLLOW)?;
        let first = rustix::fs::fstat(&first)?;
        Ok(first.st_ino == second.st_ino && second.st_nlink == 2)
    }

    fn symlinks(&self) -> Result<bool> {
        rustix::fs::symlinkat("no/where", &self.dir, "symlink")?;
        let target = rustix::fs::readlinkat(&self.dir, "symlink", Vec::new())?;
        Ok(target.as_bytes() == b"no/where")
    }

    fn ownership(&self) -> Result<bool> {
        let file = self.file("owned")?;
        let owner = (Uid::from_raw(TEST_ID), Gid::from_raw(TEST_ID));
        let mode = Mode::RUSR | Mode::WGRP | Mode::XOTH;
        rustix::fs::fchown(&file, Some(owner.0), Some(owner.1))?;
        rustix::fs::fchmod(&file, mode)?;
        let stat = rustix::fs::statat(&self.dir, "owned", AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(stat.st_uid == TEST_ID && stat.st_gid == TEST_ID && stat.st_mode & 0o7777 == mode.as_raw_mode())
    }

    fn special_files(&self) -> Result<bool> {
        rustix::fs::mknodat(&self.dir, "fifo", FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
        let stat = rustix::fs::statat(&self.dir, "fifo", AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(FileType::from_raw_mode(stat.st_mode) == FileType::Fifo)
    }

    fn nanoseconds(&self) -> Result<bool> {
        let file = self.file("times")?;
        let at = |tv_nsec| Timespec { tv_sec: 1_000_000_000, tv_nsec };
        let times = Timestamps { last_access: at(123_456_789), last_modification: at(987_654_321) };
        rustix::fs::futimens(&file, &times)?;
        let stat = rustix::fs::fstat(&file)?;
        Ok(stat.st_mtime == 1_000_000_000 && stat.st_mtime_nsec == 987_654_321 && stat.st_atime_nsec == 123_456_789)
    }

    fn tmpfile(&self) -> Result<OwnedFd> {
        let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
        rustix::fs::openat(&self.dir, ".", flags, Mode::RUSR | Mode::WUSR)
    }

    fn rename_flags(&self) -> Result<bool> {
        let this = rustix::fs::fstat(self.file("this")?)?.st_ino;
        let that = rustix::fs::fstat(self.file("that")?)?.st_ino;
        let rename = |flags| rustix::fs::renameat_with(&self.dir, "this", &self.dir, "that", flags);
        rename(RenameFlags::EXCHANGE)?;
        let ino = |name: &str| rustix::fs::statat(&self.dir, name, AtFlags::empty()).map(|stat| stat.st_ino);
        let exchanged = ino("this")? == that && ino("that")? == this;
        let refused = rename(RenameFlags::NOREPLACE) == Err(rustix::io::Errno::EXIST);
        Ok(exchanged && refused)
    }
}

impl Drop for TrialFolder<'_> {
    fn drop(&mut self) {
        for name in NAMES {
            let _ = rustix::fs::unlinkat(self.dir.as_fd(), name, AtFlags::empty());
        }
        let _ = rustix::fs::unlinkat(self.tmp, &self.name, AtFlags::REMOVEDIR);
    }
}
