//! Where ext2 keeps what it knows: block groups, each with its bitmaps and its part of the inode table.
//!
//! Source: the ext2 disk layout (Linux 2.6.12 `include/linux/ext2_fs.h`, `mke2fs` with sparse superblocks): 4 KiB
//! blocks, 32,768 of them in a group, 128-byte inodes, 32-byte group descriptors.

use umbrella_units::{BlockNo, PAGE_BYTES};

use super::{Inode, bitmap};

/// Blocks of a group: as many as a bitmap of one block has bits.
pub(super) const GROUP_BLOCKS: u64 = PAGE_BYTES * 8;
const GROUP_WORDS: usize = GROUP_BLOCKS as usize / 64;
const INODES_PER_BLOCK: u32 = PAGE_BYTES as u32 / 128;
const DESCRIPTORS_PER_BLOCK: u64 = PAGE_BYTES / 32;
/// Inodes that no file has: the first eleven, with `lost+found`.
const RESERVED_INODES: usize = 11;

/// One group, without its bitmaps.
#[derive(Debug, Clone)]
pub(super) struct BlockGroup {
    pub(super) free_blocks: u32,
    pub(super) free_inodes: u32,
    pub(super) directories: u32,
    /// Directories that came here without files (Orlov).
    pub(super) debt: u8,
    /// Blocks of superblock copy and group descriptors before the bitmaps.
    copies: u32,
}

/// All groups.
#[derive(Debug, Clone)]
pub(super) struct BlockGroups {
    pub(super) groups: Vec<BlockGroup>,
    pub(super) inodes_per_group: u32,
    pub(super) free_blocks: u64,
    pub(super) free_inodes: u64,
    pub(super) directories: u64,
    /// Blocks of the file system; a last group too small for its own metadata is left out.
    pub(super) blocks: u64,
    /// Blocks that hold no files: what is not free on an empty file system.
    pub(super) metadata_blocks: u64,
    /// Bitmaps of groups in which a block was taken. A large disk has 65,000 groups, but a run uses few of them.
    block_bits: Vec<Option<Box<[u64]>>>,
    /// The bitmaps of all other groups: without and with a copy of the superblock.
    fresh: [Box<[u64]>; 2],
    inode_bits: Vec<u64>,
}

/// The bitmap of an empty group of `size` blocks that begins with so much metadata.
fn fresh_bits(metadata: u64, size: u64) -> Box<[u64]> {
    let mut bits = vec![0; GROUP_WORDS].into_boxed_slice();
    (0..metadata).chain(size..GROUP_BLOCKS).for_each(|at| bitmap::set(&mut bits, at as usize));
    bits
}

fn has_copy(group: u64) -> bool {
    let power_of = |base: u64| {
        let mut power = base;
        while power < group {
            power *= base;
        }
        power == group
    };
    group <= 1 || power_of(3) || power_of(5) || power_of(7)
}

impl BlockGroups {
    /// `None` if not even one group fits.
    pub(super) fn new(blocks: u64, inode_bytes: u64) -> Option<BlockGroups> {
        // As mke2fs: whole blocks of the inode table, and a bitmap that fits one block.
        let inodes = (GROUP_BLOCKS * PAGE_BYTES / inode_bytes.max(1)).clamp(64, GROUP_BLOCKS);
        let inodes_per_group = (inodes as u32).next_multiple_of(64);
        let table = u64::from(inodes_per_group / INODES_PER_BLOCK);
        let mut groups = blocks.div_ceil(GROUP_BLOCKS);
        let descriptors = groups.div_ceil(DESCRIPTORS_PER_BLOCK);
        let copies = |group: u64| if has_copy(group) { 1 + descriptors } else { 0 };
        let mut end = blocks;
        if groups > 0 {
            let last = groups - 1;
            if end - last * GROUP_BLOCKS < copies(last) + 2 + table + 50 {
                groups = last;
                end = last * GROUP_BLOCKS;
            }
        }
        if groups == 0 {
            return None;
        }
        let mut layout = BlockGroups {
            groups: Vec::with_capacity(groups as usize),
            inodes_per_group,
            free_blocks: 0,
            free_inodes: groups * u64::from(inodes_per_group) - RESERVED_INODES as u64,
            directories: 0,
            blocks: end,
            metadata_blocks: 0,
            block_bits: vec![None; groups as usize],
            fresh: [0, 1 + descriptors].map(|copies| fresh_bits(copies + 2 + table, GROUP_BLOCKS)),
            inode_bits: vec![0; groups as usize * (inodes_per_group / 64) as usize],
        };
        for group in 0..groups {
            let size = (end - group * GROUP_BLOCKS).min(GROUP_BLOCKS);
            let metadata = copies(group) + 2 + table;
            if size < GROUP_BLOCKS {
                layout.block_bits[group as usize] = Some(fresh_bits(metadata, size));
            }
            let reserved = if group == 0 { RESERVED_INODES } else { 0 };
            (0..reserved).for_each(|at| bitmap::set(&mut layout.inode_bits, at));
            layout.groups.push(BlockGroup {
                free_blocks: (size - metadata) as u32,
                free_inodes: inodes_per_group - reserved as u32,
                directories: 0,
                debt: 0,
                copies: copies(group) as u32,
            });
            layout.free_blocks += size - metadata;
            layout.metadata_blocks += metadata;
        }
        Some(layout)
    }

    pub(super) fn len(&self) -> u32 {
        self.groups.len() as u32
    }

    pub(super) fn at(&self, group: u32) -> &BlockGroup {
        &self.groups[group as usize]
    }

    pub(super) fn at_mut(&mut self, group: u32) -> &mut BlockGroup {
        &mut self.groups[group as usize]
    }

    /// The group that a block is in.
    pub(super) fn group_of(&self, block: u64) -> u32 {
        (block / GROUP_BLOCKS) as u32
    }

    /// The first block of a group.
    pub(super) fn start(&self, group: u32) -> u64 {
        u64::from(group) * GROUP_BLOCKS
    }

    /// Blocks of a group.
    pub(super) fn size(&self, group: u32) -> usize {
        (self.blocks - self.start(group)).min(GROUP_BLOCKS) as usize
    }

    pub(super) fn block_bits(&self, group: u32) -> &[u64] {
        self.block_bits[group as usize].as_deref().unwrap_or(&self.fresh[self.kind(group)])
    }

    fn block_bits_mut(&mut self, group: u32) -> &mut [u64] {
        let kind = self.kind(group);
        self.block_bits[group as usize].get_or_insert_with(|| self.fresh[kind].clone())
    }

    /// Which of the fresh bitmaps the group has.
    fn kind(&self, group: u32) -> usize {
        usize::from(self.at(group).copies > 0)
    }

    pub(super) fn block_bitmap(&self, group: u32) -> BlockNo {
        BlockNo(self.start(group) + u64::from(self.at(group).copies))
    }

    pub(super) fn inode_bitmap(&self, group: u32) -> BlockNo {
        self.block_bitmap(group).next()
    }

    /// The block of the inode table that holds the inode.
    pub(super) fn inode_block(&self, inode: Inode) -> BlockNo {
        let at = inode.0 - 1;
        let (group, at) = (at / self.inodes_per_group, at % self.inodes_per_group);
        BlockNo(self.inode_bitmap(group).0 + 1 + u64::from(at / INODES_PER_BLOCK))
    }

    /// The block that holds the group's descriptor.
    pub(super) fn descriptor(&self, group: u32) -> BlockNo {
        BlockNo(1 + u64::from(group) / DESCRIPTORS_PER_BLOCK)
    }

    /// The group that an inode is in.
    pub(super) fn group_of_inode(&self, inode: Inode) -> u32 {
        (inode.0 - 1) / self.inodes_per_group
    }

    /// Takes the first free inode of a group that has one.
    pub(super) fn take_inode(&mut self, group: u32) -> Option<Inode> {
        let words = (self.inodes_per_group / 64) as usize;
        let bits = &mut self.inode_bits[group as usize * words..][..words];
        let at = bitmap::next_zero(bits, 0, self.inodes_per_group as usize)?;
        bitmap::set(bits, at);
        self.groups[group as usize].free_inodes -= 1;
        self.free_inodes -= 1;
        Some(Inode(group * self.inodes_per_group + at as u32 + 1))
    }

    pub(super) fn free_inode(&mut self, inode: Inode) {
        let group = self.group_of_inode(inode);
        bitmap::clear(&mut self.inode_bits, (inode.0 - 1) as usize);
        self.at_mut(group).free_inodes += 1;
        self.free_inodes += 1;
    }

    /// Whether a block is free; those beyond the end are not.
    pub(super) fn is_free(&self, block: u64) -> bool {
        block < self.blocks && !bitmap::is_set(self.block_bits(self.group_of(block)), (block % GROUP_BLOCKS) as usize)
    }

    /// Takes a free block.
    pub(super) fn take_block(&mut self, block: u64) {
        debug_assert!(self.is_free(block));
        let group = self.group_of(block);
        bitmap::set(self.block_bits_mut(group), (block % GROUP_BLOCKS) as usize);
        self.at_mut(group).free_blocks -= 1;
        self.free_blocks -= 1;
    }

    pub(super) fn free_block(&mut self, block: u64) {
        debug_assert!(block < self.blocks && !self.is_free(block));
        let group = self.group_of(block);
        bitmap::clear(self.block_bits_mut(group), (block % GROUP_BLOCKS) as usize);
        self.at_mut(group).free_blocks += 1;
        self.free_blocks += 1;
    }
}
