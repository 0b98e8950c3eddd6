//! How large a checkpoint is.

use umbrella_units::ByteSize;

use super::BLOCK_BYTES;
use super::shape::Shape;

/// Bytes of an entry of the map index.
pub(super) const MAP_BYTES: usize = 8;
/// Bytes of an entry of the segment table.
pub(super) const SEGMENT_BYTES: usize = 24;

/// Bytes of the payload, without the zeroes behind it.
pub(in crate::log_store) fn payload_bytes(shape: &Shape) -> ByteSize {
    ByteSize(map_bytes(shape) + u64::from(shape.segments()) * SEGMENT_BYTES as u64)
}

pub(super) fn map_bytes(shape: &Shape) -> u64 {
    shape.map_pages().0 * MAP_BYTES as u64
}

/// Bytes of a checkpoint, whole blocks: its header and its payload.
pub fn area_bytes(shape: &Shape) -> ByteSize {
    ByteSize((1 + payload_bytes(shape).0.div_ceil(BLOCK_BYTES as u64)) * BLOCK_BYTES as u64)
}

/// Segments that a checkpoint needs; more than there are if these are too small.
pub fn area_segments(shape: &Shape) -> u64 {
    area_bytes(shape).0.div_ceil(u64::from(shape.segment_blocks()) * BLOCK_BYTES as u64)
}
