//! Merged listings of directories.
//!
//! Entries are ordered by inode number as users see it, so a move to another branch changes nothing. The number is the
//! cookie too, with a hash of the name for hard links. So a listing can continue at the same place after it was made
//! anew, whatever was added or removed meanwhile, and nothing is kept for a reader. The order is also that of the inode
//! tables: reading the attributes of a cold directory goes over the disk once instead of jumping.

use std::ffi::{OsStr, OsString};
use std::hash::Hasher;
use std::os::unix::ffi::OsStrExt;

use umbrella_policy::placement::spec::FileKind;
use umbrella_units::Ino;

use crate::ground::at::DirAt;

/// One name.
pub struct DirEntry {
    /// Where a reader goes on after this entry.
    pub cookie: u64,
    /// The name.
    pub name: OsString,
    /// Type; a file whose type the branch does not say is looked up.
    pub kind: FileKind,
    /// Inode number.
    pub ino: Ino,
    /// Which copy of the directory has it (index into `Listing::copies`); `None`: more than one has.
    pub(crate) copy: Option<usize>,
}

/// A directory's entries, all branches together.
pub struct Listing {
    pub(crate) entries: Vec<DirEntry>,
    pub(crate) copies: Vec<DirAt>,
    /// Of the pool, when it was made.
    pub(crate) topology: u64,
}

impl Listing {
    /// Entries after a cookie.
    pub fn after(&self, cookie: u64) -> &[DirEntry] {
        let from = self.entries.partition_point(|entry| entry.cookie <= cookie);
        &self.entries[from..]
    }

    /// Whether the reader at this cookie has had everything.
    pub(crate) fn is_exhausted(&self, cookie: u64) -> bool {
        self.after(cookie).is_empty()
    }
}

/// Cookies 1 and 2 are `.` and `..`; the kernel wants them below `i64::MAX`.
const FIRST_COOKIE: u64 = 3;
/// Low bits of a cookie: they tell hard links, and equal numbers on two branches, apart.
const NAME_BITS: u32 = 22;

/// Where a reader goes on after an entry.
pub(crate) fn cookie_of(ino: Ino, name: &OsStr) -> u64 {
    let mut hasher = rustc_hash::FxHasher::default();
    hasher.write(name.as_bytes());
    // The finishing mix spreads what FxHash leaves in the low bits.
    let hash = hasher.finish().wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - NAME_BITS);
    let by_inode = (ino.0 & ((1 << (62 - NAME_BITS)) - 1)) << NAME_BITS;
    (by_inode | hash).max(FIRST_COOKIE)
}
