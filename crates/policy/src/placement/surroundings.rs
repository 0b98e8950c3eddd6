//! What the choice inside a group asks of the world, one answer at a time and only when it is needed: a list of single
//! branches asks nothing.

use umbrella_units::{BranchId, ByteSize};

/// What a branch holds below a directory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirUsage {
    /// Bytes that its files occupy.
    pub bytes: ByteSize,
    /// Its files. One that was just begun has no bytes yet, and counts.
    pub files: u64,
}

/// Answers from the real world, or from a model of it. Paths are those of [`FileFacts`](super::FileFacts).
pub trait Surroundings {
    /// Whether a branch has a directory.
    fn has_directory(&self, branch: BranchId, dir: &[u8]) -> bool;

    /// What a branch holds below a directory, at all depths.
    fn usage_below(&self, dir: &[u8], branch: BranchId) -> DirUsage;

    /// The member of a group that got its last file. Groups count as in [`Rules::groups`](super::Rules::groups).
    fn last_used(&self, group: usize) -> Option<BranchId>;

    /// A random number.
    fn random_number(&self) -> u64;
}

/// An empty world without chance, for rules without groups.
#[derive(Debug, Clone, Copy, Default)]
pub struct Empty;

impl Surroundings for Empty {
    fn has_directory(&self, _: BranchId, _: &[u8]) -> bool {
        false
    }

    fn usage_below(&self, _: &[u8], _: BranchId) -> DirUsage {
        DirUsage::default()
    }

    fn last_used(&self, _: usize) -> Option<BranchId> {
        None
    }

    fn random_number(&self) -> u64 {
        0
    }
}
