//! The description of a device for the driver (`struct ublk_params`).

use umbrella_units::SECTOR_BYTES;

use super::wire::{PAYLOAD_BYTES, put};
use crate::device::Geometry;
use crate::file::Access;

/// The most bytes in one read or write.
pub(super) const MOST_BYTES: u32 = 1 << 20;
/// The most bytes that are discarded or zeroed at once: what is written in a few seconds where nothing can be unmapped.
const MOST_ZEROES: u32 = 128 << 20;
/// Requests under way at most where the device names no limit of its own: what the driver has as its default.
const DEFAULT_DEPTH: u16 = 128;
/// The fewest that leave the scheduler something to do while one is under way.
const LEAST_DEPTH: u32 = 2;
/// The most requests under way that each have a thread.
const MOST_THREADS: u32 = 32;

/// Which parameters there are: `UBLK_PARAM_TYPE_BASIC | UBLK_PARAM_TYPE_DISCARD`.
const TYPES: u32 = 1 << 0 | 1 << 1;
const READ_ONLY: u32 = 1 << 0;
const ROTATIONAL: u32 = 1 << 1;
const VOLATILE_CACHE: u32 = 1 << 2;
const FUA: u32 = 1 << 3;

/// Requests under way at most. A disk that rotates has a queue as deep as its own: what it does not take yet is joined
/// with its neighbours by the kernel's scheduler meanwhile.
pub(super) fn queue_depth(geometry: &Geometry) -> u16 {
    if geometry.rotational {
        geometry.queue_depth.clamp(LEAST_DEPTH, u32::from(DEFAULT_DEPTH)) as u16
    } else {
        DEFAULT_DEPTH
    }
}

/// How many workers call the device. There are none if more than one call at a time does not pay; then the queue's
/// thread calls it. Handing a request over and back wakes a thread twice, which costs more than a call that answers at
/// once.
pub(super) fn workers(geometry: &Geometry) -> u32 {
    if geometry.queue_depth > 1 { geometry.queue_depth.min(MOST_THREADS) } else { 0 }
}

/// The parameters of a device.
pub(super) fn encode(geometry: &Geometry, access: Access) -> [u8; PAYLOAD_BYTES] {
    let sectors = |bytes: u32| (u64::from(bytes) / SECTOR_BYTES) as u32;
    let mut attributes = VOLATILE_CACHE | FUA;
    if access == Access::ReadOnly {
        attributes |= READ_ONLY;
    }
    if geometry.rotational {
        attributes |= ROTATIONAL;
    }
    let (logical, physical) = (shift(geometry.logical_block), shift(geometry.physical_block));
    let mut out = [0; PAYLOAD_BYTES];
    put(&mut out, 0, (PAYLOAD_BYTES as u32).to_ne_bytes());
    put(&mut out, 4, TYPES.to_ne_bytes());
    put(&mut out, 8, attributes.to_ne_bytes());
    // Block sizes, the best size and the least that is good, as powers of two.
    put(&mut out, 12, [logical, physical, physical, physical]);
    put(&mut out, 16, sectors(MOST_BYTES).to_ne_bytes());
    put(&mut out, 24, geometry.capacity.0.to_ne_bytes());
    put(&mut out, 44, geometry.physical_block.to_ne_bytes());
    put(&mut out, 48, sectors(MOST_ZEROES).to_ne_bytes());
    put(&mut out, 52, sectors(MOST_ZEROES).to_ne_bytes());
    // One range in a discard.
    put(&mut out, 56, 1u16.to_ne_bytes());
    out
}

fn shift(block: u32) -> u8 {
    block.trailing_zeros() as u8
}
