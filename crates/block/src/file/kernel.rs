//! The ioctls of block devices that have no safe wrapper.

use std::os::fd::AsFd;

use linux_raw_sys::ioctl::{BLKDISCARD, BLKGETSIZE64, BLKZEROOUT};
use rustix::io::Result;
use rustix::ioctl::{Getter, Setter, ioctl};
use umbrella_units::{ByteSize, SectorRange};

/// The size of a block device.
pub(super) fn size(device: impl AsFd) -> Result<ByteSize> {
    // SAFETY: BLKGETSIZE64 writes one u64.
    let size = unsafe { ioctl(device, Getter::<BLKGETSIZE64, u64>::new())? };
    Ok(ByteSize(size))
}

/// Gives the space of a range back.
pub(super) fn discard(device: impl AsFd, range: SectorRange) -> Result<()> {
    // SAFETY: BLKDISCARD reads two u64: the first byte and how many.
    unsafe { ioctl(device, Setter::<BLKDISCARD, [u64; 2]>::new(span(range))) }
}

/// Makes a range read as zeroes, without giving its space back.
pub(super) fn zero(device: impl AsFd, range: SectorRange) -> Result<()> {
    // SAFETY: BLKZEROOUT reads two u64: the first byte and how many.
    unsafe { ioctl(device, Setter::<BLKZEROOUT, [u64; 2]>::new(span(range))) }
}

fn span(range: SectorRange) -> [u64; 2] {
    [super::offset(range.start), range.bytes().0]
}
