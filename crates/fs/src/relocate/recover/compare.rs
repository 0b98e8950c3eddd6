//! Whether a file is what it was when an intent was written.

use rustix::fs::FileType;

use crate::relocate::Fingerprint;

/// The same to all appearances but the inode number.
pub(super) fn is_like(now: &Fingerprint, then: &Fingerprint) -> bool {
    let identity = |print: &Fingerprint| (print.mode, print.uid, print.gid, print.size, print.mtime, print.rdev);
    now.file_type() != FileType::Directory && identity(now) == identity(then)
}

/// Whether it is that file, as it was or changed since. Where births are not known, another one may have its number.
pub(super) fn is_same_file(now: &Fingerprint, then: &Fingerprint) -> bool {
    let is_same_birth = now.btime.is_none() || then.btime.is_none() || now.btime == then.btime;
    now.ino == then.ino && now.file_type() == then.file_type() && is_same_birth
}

/// As [`is_same_file`], beyond doubt.
pub(super) fn is_surely_same_file(now: &Fingerprint, then: &Fingerprint) -> bool {
    is_same_file(now, then) && now.btime.is_some() && then.btime.is_some()
}

/// Whether a file is what it was, or an earlier state of it that a power loss brought back. Times may be on the disk
/// before the data is: then it is shorter, with the same times.
pub(super) fn is_not_newer(now: &Fingerprint, then: &Fingerprint) -> bool {
    let same_file = is_same_file(now, then);
    let data = now.mtime < then.mtime || (now.mtime == then.mtime && now.size <= then.size);
    // Losing a name counts as a change of the file, and that is what a move does to it.
    let rest = if now.nlink < then.nlink {
        (now.mode, now.uid, now.gid) == (then.mode, then.uid, then.gid)
    } else {
        now.ctime <= then.ctime
    };
    same_file && data && rest
}
