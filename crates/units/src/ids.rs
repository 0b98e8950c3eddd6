//! Numbers that name things: branches, and inodes as users see them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A branch of the pool: its position in the configuration, never reused while the pool is mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BranchId(pub u16);

impl BranchId {
    /// The branch's place in a slice that holds one item a branch.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl fmt::Display for BranchId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// The inode number that users see: stable for the life of the file, also when it moves between branches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Ino(pub u64);

impl fmt::Display for Ino {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
