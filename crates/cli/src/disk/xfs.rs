//! The UUID of an XFS file system, read with its ioctl.

use std::fs::File;

use rustix::ioctl::{Getter, ioctl, opcode};

/// `struct xfs_fsop_geom_v1`; see `xfs_fs.h`.
#[repr(C)]
struct Geometry {
    before: [u8; 64],
    uuid: [u8; 16],
    behind: [u8; 32],
}

const XFS_IOC_FSGEOMETRY_V1: rustix::ioctl::Opcode = opcode::read::<Geometry>(b'X', 100);

/// The UUID of the XFS file system that a file lies on; nothing if it lies on another one.
pub(super) fn xfs_uuid(file: &File) -> Option<uuid::Uuid> {
    // SAFETY: the kernel fills in the structure, all of which is bytes.
    let geometry = unsafe { ioctl(file, Getter::<XFS_IOC_FSGEOMETRY_V1, Geometry>::new()) };
    geometry.ok().map(|geometry| uuid::Uuid::from_bytes(geometry.uuid))
}
