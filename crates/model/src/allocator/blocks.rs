//! How a file gets its next block, and gives blocks back.
//!
//! Source: Linux 2.6.12, `fs/ext2/inode.c` (`ext2_find_goal`, `ext2_find_near`, `ext2_alloc_block`,
//! `ext2_discard_prealloc`, `ext2_truncate`).

use umbrella_units::BlockNo;

use super::layout::GROUP_BLOCKS;
use super::map::{HOLE, Indirect, Map, PROMISED};
use super::{AllocError, Ext2, touch};

/// Blocks that are set aside for a file besides the one it asked for (`EXT2_DEFAULT_PREALLOC_BLOCKS` - 1).
const WINDOW: u16 = 7;

/// The largest window of a file whose windows grow, besides the block asked for.
const LARGEST_WINDOW: u16 = 1023;

/// Processes that start at different places of a group.
const COLOURS: u64 = 16;

impl Ext2 {
    /// `ext2_find_goal` and `ext2_find_near`.
    pub(super) fn goal(&self, place: u32, index: u64) -> u64 {
        let node = self.node(place);
        if node.next_goal != HOLE && node.next_index == index {
            return u64::from(node.next_goal);
        }
        if let Some((_, block)) = node.map.before(index) {
            return u64::from(block & !PROMISED);
        }
        if let Some(last @ Indirect::Leaf(_)) = Map::way(index).last() {
            let block = node.map.indirect(last);
            if block != HOLE {
                return u64::from(block);
            }
        }
        let group = self.layout.group_of_inode(node.inode);
        let colour = u64::from(self.writer) % COLOURS;
        self.layout.start(group) + colour * (GROUP_BLOCKS / COLOURS)
    }

    /// `ext2_alloc_block`: from the file's window if it fits the goal, else a new block and a new window.
    pub(super) fn block_near(&mut self, place: u32, goal: u64, touched: &mut Vec<BlockNo>) -> Result<u32, AllocError> {
        let node = self.node_mut(place);
        let window = u64::from(node.window);
        if node.window_left > 0 && (goal == window || goal + 1 == window) {
            let block = node.window;
            node.window += 1;
            node.window_left -= 1;
            return Ok(block);
        }
        let is_file = node.directory.is_none() && !self.config.delayed;
        let window = if is_file { self.next_window(place) } else { 0 };
        self.discard_window(place, touched);
        let mut found = self.layout.new_block(goal, window);
        if found.is_none() {
            self.discard_all_windows(touched);
            found = self.layout.new_block(goal, window);
        }
        let (block, behind) = found.ok_or(self.no_space())?;
        let group = self.layout.group_of(block);
        touch(touched, self.layout.block_bitmap(group));
        touch(touched, self.layout.descriptor(group));
        if behind > 0 {
            let node = self.node_mut(place);
            node.window = block as u32 + 1;
            node.window_left = behind;
            self.windows.push_back(place);
            if self.windows.len() > self.config.open_files.max(1) {
                self.close_one(touched);
            }
        }
        Ok(block as u32)
    }

    /// How many blocks are set aside for a file whose window does not serve it any more.
    fn next_window(&mut self, place: u32) -> u16 {
        if !self.config.growing_windows {
            return WINDOW;
        }
        let node = self.node_mut(place);
        let used_up = node.window_left == 0 && node.window != HOLE;
        node.window_size =
            if used_up { (2 * node.window_size + 1).min(LARGEST_WINDOW) } else { node.window_size.max(WINDOW) };
        node.window_size
    }

    /// Closes the file that got its window first. Its place may be in the list more than once.
    pub(super) fn close_one(&mut self, touched: &mut Vec<BlockNo>) {
        if let Some(place) = self.windows.pop_front()
            && !self.windows.contains(&place)
        {
            self.discard_window(place, touched);
        }
    }

    pub(super) fn discard_all_windows(&mut self, touched: &mut Vec<BlockNo>) {
        while let Some(place) = self.windows.pop_front() {
            self.discard_window(place, touched);
        }
    }

    /// `ext2_discard_prealloc`.
    pub(super) fn discard_window(&mut self, place: u32, touched: &mut Vec<BlockNo>) {
        let node = self.node_mut(place);
        let (first, left) = (node.window, node.window_left);
        (node.window, node.window_left) = (HOLE, 0);
        for block in first..first + u32::from(left) {
            self.free(block, touched);
        }
    }

    pub(super) fn free(&mut self, block: u32, touched: &mut Vec<BlockNo>) {
        self.layout.free_block(u64::from(block));
        let group = self.layout.group_of(u64::from(block));
        touch(touched, self.layout.block_bitmap(group));
        touch(touched, self.layout.descriptor(group));
    }

    /// Frees a file's blocks from page `pages` on.
    pub(super) fn cut(&mut self, place: u32, pages: u64, touched: &mut Vec<BlockNo>) {
        self.discard_window(place, touched);
        let mut data = std::mem::take(&mut self.cut);
        let mut indirects = std::mem::take(&mut self.cut_indirects);
        self.node_mut(place).map.truncate(pages, &mut data, &mut indirects);
        let is_directory = self.node(place).directory.is_some();
        for block in data.drain(..) {
            if block & PROMISED != 0 {
                self.layout.free_block(u64::from(block & !PROMISED));
                continue;
            }
            self.free(block, touched);
            if is_directory {
                self.forgotten.push(BlockNo(u64::from(block)));
            }
        }
        for block in indirects.drain(..) {
            self.free(block, touched);
            self.forgotten.push(BlockNo(u64::from(block)));
        }
        self.cut = data;
        self.cut_indirects = indirects;
        let kept = self.node(place).map.indirect_blocks_to(pages);
        kept.for_each(|block| touch(touched, BlockNo(u64::from(block))));
        let node = self.node_mut(place);
        node.next_index = 0;
        node.next_goal = HOLE;
    }
}
