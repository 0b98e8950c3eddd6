//! Which group a new directory, a new file, or a block goes to.
//!
//! Source: Linux 2.6.12, `fs/ext2/ialloc.c` (`find_group_orlov`, `find_group_other`) and `fs/ext2/balloc.c`
//! (`ext2_new_block`).

use umbrella_units::SplitMix64;

use super::layout::{BlockGroups, GROUP_BLOCKS};
use super::{Inode, bitmap};

/// What a directory is taken to cost its group, in inodes and in blocks.
const INODE_COST: u32 = 64;
const BLOCK_COST: u64 = 256;

impl BlockGroups {
    /// The group of a directory of the root. From a random group on, it is the one with fewest directories among those
    /// with at least the average of free inodes and blocks.
    pub(super) fn group_for_top_directory(&self, random: &mut SplitMix64) -> Option<u32> {
        let first = random.below(u64::from(self.len())) as u32;
        let (inodes, blocks) = self.average_free();
        let good = self.groups_from(first).filter(|&group| {
            let group = self.at(group);
            group.free_inodes > 0 && group.free_inodes >= inodes && group.free_blocks >= blocks
        });
        good.min_by_key(|&group| self.at(group).directories).or_else(|| self.any_group(first))
    }

    /// Where any other directory goes: its parent's group, or the next that has room and not too many directories.
    pub(super) fn group_for_directory(&self, parent: u32) -> Option<u32> {
        let (inodes, blocks) = self.average_free();
        let groups = u64::from(self.len());
        let used = self.blocks - self.free_blocks;
        let per_directory = used / self.directories.max(1);
        let most = (self.directories / groups) as u32 + self.inodes_per_group / 16;
        let least_inodes = inodes.saturating_sub(self.inodes_per_group / 4);
        let least_blocks = blocks.saturating_sub(GROUP_BLOCKS as u32 / 4);
        let debt = (GROUP_BLOCKS / per_directory.max(BLOCK_COST)) as u32;
        let debt = debt.min(self.inodes_per_group / INODE_COST).clamp(1, 255);
        let good = |&group: &u32| {
            let group = self.at(group);
            group.free_inodes > 0
                && u32::from(group.debt) < debt
                && group.directories < most
                && group.free_inodes >= least_inodes
                && group.free_blocks >= least_blocks
        };
        self.groups_from(parent).find(good).or_else(|| self.any_group(parent))
    }

    /// Where a file goes: its directory's group; else it hops from there in growing steps, so that the files of a full
    /// directory stay together; else anywhere.
    pub(super) fn group_for_file(&self, parent: u32, directory: Inode) -> Option<u32> {
        let has_room = |group: u32| self.at(group).free_inodes > 0 && self.at(group).free_blocks > 0;
        if has_room(parent) {
            return Some(parent);
        }
        let groups = u64::from(self.len());
        let mut group = u64::from(parent) + u64::from(directory.0);
        let mut step = 1;
        while step < groups {
            group += step;
            if has_room((group % groups) as u32) {
                return Some((group % groups) as u32);
            }
            step *= 2;
        }
        self.groups_from(parent).find(|&group| self.at(group).free_inodes > 0)
    }

    fn any_group(&self, first: u32) -> Option<u32> {
        let (inodes, _) = self.average_free();
        self.groups_from(first)
            .find(|&group| self.at(group).free_inodes >= inodes.max(1))
            .or_else(|| self.groups_from(first).find(|&group| self.at(group).free_inodes > 0))
    }

    fn average_free(&self) -> (u32, u32) {
        let groups = u64::from(self.len());
        ((self.free_inodes / groups) as u32, (self.free_blocks / groups) as u32)
    }

    fn groups_from(&self, first: u32) -> impl Iterator<Item = u32> {
        (first..self.len()).chain(0..first)
    }

    /// Takes a block near `goal`, and up to `window` free blocks right behind it.
    pub(super) fn new_block(&mut self, goal: u64, window: u16) -> Option<(u64, u16)> {
        let goal = if goal < self.blocks { goal } else { 0 };
        let first = self.group_of(goal);
        let near = if self.at(first).free_blocks > 0 {
            bitmap::grab_block(self.block_bits(first), self.size(first), (goal % GROUP_BLOCKS) as usize)
        } else {
            None
        };
        let (group, at) = if let Some(at) = near {
            (first, at)
        } else {
            let mut others = self.groups_from((first + 1) % self.len());
            let group = others.find(|&group| self.at(group).free_blocks > 0)?;
            (group, bitmap::grab_block(self.block_bits(group), self.size(group), 0)?)
        };
        let block = self.start(group) + at as u64;
        self.take_block(block);
        let end = bitmap::next_one(self.block_bits(group), at + 1, self.size(group));
        let behind = (end - at - 1).min(usize::from(window)) as u16;
        for next in 0..u64::from(behind) {
            self.take_block(block + 1 + next);
        }
        Some((block, behind))
    }

    /// A free run of `blocks` blocks at or after `goal` in its group, or in a later group, or anywhere; else the
    /// longest there is. First block and length; takes nothing.
    pub(super) fn find_run(&self, goal: u64, blocks: u64) -> Option<(u64, u64)> {
        let goal = if goal < self.blocks { goal } else { 0 };
        let first = self.group_of(goal);
        let mut longest: Option<(u64, u64)> = None;
        let rest = self.groups_from((first + 1) % self.len());
        let from = std::iter::once((first, (goal % GROUP_BLOCKS) as usize));
        for (group, from) in from.chain(rest.map(|group| (group, 0))) {
            if longest.is_some_and(|(_, length)| u64::from(self.at(group).free_blocks) <= length) {
                continue;
            }
            let (bits, size) = (self.block_bits(group), self.size(group));
            let mut at = from;
            while let Some(start) = bitmap::next_zero(bits, at, size) {
                at = bitmap::next_one(bits, start, size);
                let length = ((at - start) as u64).min(blocks);
                if longest.is_none_or(|(_, before)| length > before) {
                    longest = Some((self.start(group) + start as u64, length));
                    if length == blocks {
                        return longest;
                    }
                }
            }
        }
        longest
    }
}
