//! What a store counts.

/// More than any store counts; so nothing that is counted on from there can overflow.
pub(super) const MOST: u64 = 1 << 51;

/// Counts since the opening that no checkpoint keeps.
#[derive(Debug, Clone, Default)]
pub(super) struct StoreCounts {
    pub(super) reads: u64,
    pub(super) writes: u64,
    pub(super) checkpoints: u64,
    pub(super) map_reads: u64,
    pub(super) slowed: u64,
    pub(super) slowed_time: std::time::Duration,
    /// Segments that were cleaned, by the tenths of them that were live.
    pub(super) victims: [u64; 11],
    pub(super) replayed: u64,
    pub(super) damaged_reads: u64,
    pub(super) repaired: Vec<String>,
}
