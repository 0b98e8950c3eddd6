//! Numbers of things in a store, and what a segment is used for.

/// A number of blocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Blocks(pub u64);

/// A block's position in its segment, or behind the header of its chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u32);

/// A map page: page `n` has logical blocks 512 n to 512 n + 511.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MapPageNo(pub u64);

/// What a segment is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SegmentState {
    /// For nothing.
    Free,
    /// A stream is written to it.
    Open,
    /// It is written.
    Full,
    /// Its live blocks were copied, but an earlier checkpoint may need it.
    Cleaned,
    /// It belongs to a checkpoint area.
    System,
    /// A stream continues there.
    Next,
}

/// Counts checkpoints. Chunks carry that of the last checkpoint before them, as their epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CheckpointNo(pub u64);

/// Counts chunks.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sequence(pub u64);

impl CheckpointNo {
    /// The number of the next checkpoint.
    pub(in crate::log_store) fn next(self) -> CheckpointNo {
        CheckpointNo(self.0.saturating_add(1))
    }
}

impl Sequence {
    /// The number of the next chunk.
    pub(in crate::log_store) fn next(self) -> Sequence {
        Sequence(self.0.saturating_add(1))
    }

    /// The number of the previous chunk; before the first, 0, which no chunk has.
    pub(in crate::log_store) fn before(self) -> Sequence {
        Sequence(self.0.saturating_sub(1))
    }
}
