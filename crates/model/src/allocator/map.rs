//! Where the pages of one file lie: twelve direct blocks, then leaves of 1,024, each with its indirect block, as in an
//! ext2 inode. Four bytes a page, and a page is found in one step.

use super::AllocError;
use umbrella_units::{FileId, PageIndex};

/// No block.
pub(super) const HOLE: u32 = 0;
/// Marks a block that is promised to the page but may still be another (delayed allocation).
pub(super) const PROMISED: u32 = 1 << 31;

const DIRECT: u64 = 12;
const PER_LEAF: u64 = 1024;
/// Leaves that ext2 reaches: by one, two and three levels of indirect blocks.
const LEAVES: u64 = 1 + PER_LEAF + PER_LEAF * PER_LEAF;

/// 1,024 pages and their indirect block.
#[derive(Debug, Clone, Default)]
struct Leaf {
    indirect: u32,
    blocks: Vec<u32>,
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub(super) struct Map {
    direct: Vec<u32>,
    leaves: Vec<Leaf>,
    /// Blocks that point to indirect blocks: the first for leaves 1 to 1,024, and so on.
    uppers: Vec<u32>,
    /// The block that points to the second and all later of them.
    triple: u32,
}

/// An indirect block's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Indirect {
    Triple,
    Upper(usize),
    Leaf(usize),
}

fn get(blocks: &[u32], at: usize) -> u32 {
    blocks.get(at).copied().unwrap_or(HOLE)
}

fn put(blocks: &mut Vec<u32>, at: usize, block: u32) {
    if blocks.len() <= at {
        blocks.resize(at + 1, HOLE);
    }
    blocks[at] = block;
}

fn leaf_of(index: u64) -> Option<(usize, usize)> {
    let at = index.checked_sub(DIRECT)?;
    Some(((at / PER_LEAF) as usize, (at % PER_LEAF) as usize))
}

impl Map {
    pub(super) fn check(file: FileId, index: PageIndex) -> Result<(), AllocError> {
        match index.0.checked_sub(DIRECT) {
            Some(at) if at / PER_LEAF >= LEAVES => Err(AllocError::FileTooLarge { file, index }),
            _ => Ok(()),
        }
    }

    /// The page's block, perhaps with [`PROMISED`], or [`HOLE`].
    pub(super) fn get(&self, index: u64) -> u32 {
        match leaf_of(index) {
            None => get(&self.direct, index as usize),
            Some((leaf, at)) => self.leaves.get(leaf).map_or(HOLE, |leaf| get(&leaf.blocks, at)),
        }
    }

    pub(super) fn put(&mut self, index: u64, block: u32) {
        match leaf_of(index) {
            None => put(&mut self.direct, index as usize, block),
            Some((leaf, at)) => put(&mut self.leaf_mut(leaf).blocks, at, block),
        }
    }

    fn leaf_mut(&mut self, leaf: usize) -> &mut Leaf {
        if self.leaves.len() <= leaf {
            self.leaves.resize_with(leaf + 1, Leaf::default);
        }
        &mut self.leaves[leaf]
    }

    /// The indirect blocks on the way to a page, from the top.
    pub(super) fn way(index: u64) -> impl Iterator<Item = Indirect> {
        let leaf = leaf_of(index).map(|(leaf, _)| leaf);
        let upper = leaf.and_then(|leaf| leaf.checked_sub(1)).map(|leaf| leaf / PER_LEAF as usize);
        let triple = upper.filter(|&upper| upper > 0).map(|_| Indirect::Triple);
        triple.into_iter().chain(upper.map(Indirect::Upper)).chain(leaf.map(Indirect::Leaf))
    }

    pub(super) fn indirect(&self, indirect: Indirect) -> u32 {
        match indirect {
            Indirect::Triple => self.triple,
            Indirect::Upper(at) => get(&self.uppers, at),
            Indirect::Leaf(at) => self.leaves.get(at).map_or(HOLE, |leaf| leaf.indirect),
        }
    }

    pub(super) fn put_indirect(&mut self, indirect: Indirect, block: u32) {
        match indirect {
            Indirect::Triple => self.triple = block,
            Indirect::Upper(at) => put(&mut self.uppers, at, block),
            Indirect::Leaf(at) => self.leaf_mut(at).indirect = block,
        }
    }

    /// The nearest block before the page in the same indirect block, as [`Map::get`] gives it, and its page
    /// (`ext2_find_near`).
    pub(super) fn before(&self, index: u64) -> Option<(u64, u32)> {
        let (blocks, at) = match leaf_of(index) {
            None => (&self.direct, index as usize),
            Some((leaf, at)) => (&self.leaves.get(leaf)?.blocks, at),
        };
        let found = (0..at.min(blocks.len())).rev().find(|&at| blocks[at] != HOLE)?;
        Some((index - (at - found) as u64, blocks[found]))
    }

    /// The chosen blocks of the file's pages, in page order, with the pages.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, u32)> {
        let leaves = self
            .leaves
            .iter()
            .enumerate()
            .flat_map(|(leaf, blocks)| (DIRECT + leaf as u64 * PER_LEAF..).zip(blocks.blocks.iter().copied()));
        let direct = (0..).zip(self.direct.iter().copied());
        direct.chain(leaves).filter(|&(_, block)| block != HOLE && block & PROMISED == 0)
    }

    /// The indirect blocks on the way to a page that exist.
    pub(super) fn indirect_blocks_to(&self, index: u64) -> impl Iterator<Item = u32> {
        Map::way(index).map(|indirect| self.indirect(indirect)).filter(|&block| block != HOLE)
    }

    /// All indirect blocks.
    pub(super) fn indirects(&self) -> impl Iterator<Item = u32> {
        let leaves = self.leaves.iter().map(|leaf| leaf.indirect);
        leaves.chain(self.uppers.iter().copied()).chain([self.triple]).filter(|&block| block != HOLE)
    }

    /// Blocks that are promised.
    #[cfg(test)]
    pub(super) fn promised(&self) -> impl Iterator<Item = u32> {
        let leaves = self.leaves.iter().flat_map(|leaf| leaf.blocks.iter());
        let promised = self.direct.iter().chain(leaves).filter(|&block| block & PROMISED != 0);
        promised.map(|block| block & !PROMISED)
    }

    /// Cuts the file to `pages` pages. Adds the data blocks, promised ones with their mark, and the indirect blocks
    /// that nothing needs now.
    pub(super) fn truncate(&mut self, pages: u64, data: &mut Vec<u32>, indirects: &mut Vec<u32>) {
        let mut cut = |blocks: &mut Vec<u32>, at: usize| {
            data.extend(blocks.drain(at.min(blocks.len())..).filter(|&block| block != HOLE));
        };
        let mut free = |block: u32| {
            if block != HOLE {
                indirects.push(block);
            }
        };
        cut(&mut self.direct, pages.min(DIRECT) as usize);
        let (first, at) = leaf_of(pages.max(DIRECT)).unwrap_or((0, 0));
        if at > 0 && first < self.leaves.len() {
            cut(&mut self.leaves[first].blocks, at);
        }
        let keep = first + usize::from(at > 0);
        for mut leaf in self.leaves.drain(keep.min(self.leaves.len())..) {
            cut(&mut leaf.blocks, 0);
            free(leaf.indirect);
        }
        let uppers = keep.saturating_sub(1).div_ceil(PER_LEAF as usize);
        self.uppers.drain(uppers.min(self.uppers.len())..).for_each(&mut free);
        if uppers <= 1 {
            free(std::mem::take(&mut self.triple));
        }
    }
}
