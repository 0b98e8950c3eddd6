//! Where a file system would look first for room for a new file.
//!
//! ext4 (`ext4_inode_to_goal_block`): in the block group of the inode, or in the flex group of several that it belongs
//! to. The figures are in the superblock, which is read from the device. An inode number of xfs is the address of the
//! inode on disk, with its place inside the block below. For others the order of inode numbers is all that there is.

use std::fs::File;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;

use umbrella_units::{BlockNo, Extent, FileId, PAGE_BYTES};

/// Where ext4 keeps its superblock, in bytes.
const SUPERBLOCK_AT: u64 = 1024;
const EXT4_MAGIC: u16 = 0xef53;
const XFS_MAGIC: i64 = 0x5846_5342;
/// Addresses are kept below this, whatever an inode number says.
const MOST: u64 = 1 << 44;

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Geometry {
    /// Groups, or groups of groups, in blocks of 4 KiB.
    Ext4 { inodes: u64, blocks: u64 },
    /// Eight inodes in a block.
    Xfs,
    /// Not known.
    Unknown,
}

impl Geometry {
    /// The geometry of the file system that `root` lies on.
    pub(crate) fn of(root: BorrowedFd<'_>) -> Geometry {
        let Ok(kind) = rustix::fs::fstatfs(root).map(|stat| stat.f_type) else { return Geometry::Unknown };
        if kind == i64::from(EXT4_MAGIC) {
            return read_superblock(root).and_then(|bytes| Geometry::parse(&bytes)).unwrap_or(Geometry::Unknown);
        }
        if kind == XFS_MAGIC { Geometry::Xfs } else { Geometry::Unknown }
    }

    /// Reads what a superblock of ext2, ext3 or ext4 says.
    fn parse(bytes: &[u8; 1024]) -> Option<Geometry> {
        let word = |at: usize| {
            let word = bytes.get(at..at + 4).and_then(|word| word.try_into().ok()).map(u32::from_le_bytes);
            word.map(u64::from)
        };
        let magic = u16::from_le_bytes([*bytes.get(56)?, *bytes.get(57)?]);
        let (block_log, per_group, inodes) = (word(24)?, word(32)?, word(40)?);
        let flex_log = u32::from(*bytes.get(372)?);
        if magic != EXT4_MAGIC || block_log > 6 || per_group == 0 || inodes == 0 || flex_log > 16 {
            return None;
        }
        let groups = 1_u64 << flex_log;
        let bytes = per_group.checked_mul(1024 << block_log)?.checked_mul(groups)?;
        Some(Geometry::Ext4 { inodes: inodes * groups, blocks: (bytes / PAGE_BYTES).max(1) })
    }

    /// The part of the disk where new blocks of the file probably come to lie.
    pub(crate) fn region_of(self, file: FileId) -> Extent {
        match self {
            Geometry::Ext4 { inodes, blocks } => {
                let group = file.0.saturating_sub(1) / inodes;
                Extent { start: BlockNo(group.saturating_mul(blocks) % MOST), blocks }
            }
            Geometry::Xfs => Extent { start: BlockNo((file.0 / 8) % MOST), blocks: 1 },
            Geometry::Unknown => Extent { start: BlockNo(file.0.saturating_mul(16) % MOST), blocks: 1 },
        }
    }
}

fn read_superblock(root: BorrowedFd<'_>) -> Option<[u8; 1024]> {
    let dev = rustix::fs::fstat(root).ok()?.st_dev;
    let (major, minor) = (rustix::fs::major(dev), rustix::fs::minor(dev));
    let about = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/uevent")).ok()?;
    let name = about.lines().find_map(|line| line.strip_prefix("DEVNAME="))?;
    let device = File::open(format!("/dev/{name}")).ok()?;
    let mut bytes = [0; 1024];
    device.read_exact_at(&mut bytes, SUPERBLOCK_AT).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn superblock(inodes: u32, per_group: u32, block_log: u32, flex_log: u8) -> [u8; 1024] {
        let mut bytes = [0; 1024];
        bytes[24..28].copy_from_slice(&block_log.to_le_bytes());
        bytes[32..36].copy_from_slice(&per_group.to_le_bytes());
        bytes[40..44].copy_from_slice(&inodes.to_le_bytes());
        bytes[56..58].copy_from_slice(&EXT4_MAGIC.to_le_bytes());
        bytes[372] = flex_log;
        bytes
    }

    #[test]
    fn a_new_file_is_expected_in_its_inodes_flex_group() {
        let geometry = Geometry::parse(&superblock(8192, 32768, 2, 4)).expect("a superblock");
        assert_eq!(geometry.region_of(FileId(8192 * 16)).start, BlockNo(0));
        let next = geometry.region_of(FileId(8192 * 16 + 1));
        assert_eq!(next, Extent { start: BlockNo(32768 * 16), blocks: 32768 * 16 });
    }

    #[test]
    fn what_is_no_superblock_says_nothing() {
        assert_eq!(Geometry::parse(&[0; 1024]), None);
        assert_eq!(Geometry::parse(&[0xff; 1024]), None);
        for (inodes, per_group, block_log, flex_log) in [(0, 1, 0, 0), (1, 0, 0, 0), (1, 1, 7, 0), (1, 1, 0, 17)] {
            assert_eq!(Geometry::parse(&superblock(inodes, per_group, block_log, flex_log)), None);
        }
        let most = Geometry::parse(&superblock(u32::MAX, u32::MAX, 6, 16));
        assert!(most.is_none_or(|geometry| geometry.region_of(FileId(u64::MAX)).start.0 < MOST));
    }
}
