//! The ioctls of `chattr`, `lsattr` and project quotas. Linux translates them for FUSE since 5.14.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `FS_IOC_GETFLAGS`
pub(crate) const GET_FLAGS: u32 = 0x8008_6601;
/// `FS_IOC_SETFLAGS`
pub(crate) const SET_FLAGS: u32 = 0x4008_6602;
/// `FS_IOC_FSGETXATTR`
pub(crate) const GET_EXTENDED: u32 = 0x801c_581f;
/// `FS_IOC_FSSETXATTR`
pub(crate) const SET_EXTENDED: u32 = 0x401c_5820;

/// `struct fsxattr` of `linux/fs.h`: more flags, and the project.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct FsXattr {
    /// `FS_XFLAG_*`
    pub xflags: u32,
    /// Hint: bytes to allocate at once.
    pub extent_size: u32,
    /// Number of extents; for reading.
    pub extents: u32,
    /// Whose quota counts.
    pub project: u32,
    /// Hint: bytes to copy at once.
    pub cow_extent_size: u32,
    /// Zeros.
    pub padding: [u8; 8],
}

/// A request for file flags. The answers are [`IoctlAnswer::flags`](crate::IoctlAnswer::flags),
/// [`IoctlAnswer::fs_xattr`](crate::IoctlAnswer::fs_xattr), and an empty one for the two that set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileIoctl {
    /// `lsattr`: `FS_*_FL`.
    GetFlags,
    /// `chattr`: `FS_*_FL`.
    SetFlags(u32),
    /// The extended form.
    GetFsXattr,
    /// The extended form.
    SetFsXattr(FsXattr),
}

impl FileIoctl {
    pub(crate) fn parse(command: u32, input: &[u8]) -> Option<FileIoctl> {
        match command {
            GET_FLAGS => Some(FileIoctl::GetFlags),
            SET_FLAGS => u32::read_from_prefix(input).ok().map(|(flags, _)| FileIoctl::SetFlags(flags)),
            GET_EXTENDED => Some(FileIoctl::GetFsXattr),
            SET_EXTENDED => FsXattr::read_from_prefix(input).ok().map(|(value, _)| FileIoctl::SetFsXattr(value)),
            _ => None,
        }
    }
}
