//! Directories: entries in blocks, and what making and removing a file touches.
//!
//! Source: Linux 2.6.12, `fs/ext2/dir.c` (`ext2_add_link`: the first block with room) and `fs/ext2/ialloc.c`.

use umbrella_units::{BlockNo, FileId, PAGE_BYTES};

use super::map::{HOLE, Map};
use super::{AllocError, Ext2, Node, touch};

/// Entries of a directory.
#[derive(Debug, Clone, Default)]
pub(super) struct Entries {
    /// Entries by block of the directory.
    pub(super) by_block: Vec<u32>,
    /// No block before this one has room.
    first_with_room: usize,
    pub(super) total: u64,
    /// The block where the last search that found its name ended (`i_dir_start_lookup`).
    start_lookup: usize,
}

impl Entries {
    /// Entries in these blocks.
    fn in_blocks(&self, blocks: std::ops::Range<usize>) -> u64 {
        self.by_block.get(blocks).map_or(0, |blocks| blocks.iter().map(|&entries| u64::from(entries)).sum())
    }

    /// How many entries a search for a name of that block goes by; half of the block that has it.
    fn search(&mut self, block: usize) -> u64 {
        let (from, all) = (self.start_lookup.min(self.by_block.len()), self.by_block.len());
        self.start_lookup = block;
        let before = if from <= block {
            self.in_blocks(from..block)
        } else {
            self.in_blocks(from..all) + self.in_blocks(0..block)
        };
        before + self.in_blocks(block..block + 1) / 2
    }
}

impl Ext2 {
    /// Takes an inode in the group and an entry in the directory.
    pub(super) fn make(
        &mut self,
        id: FileId,
        parent: u32,
        group: Option<u32>,
        touched: &mut Vec<BlockNo>,
    ) -> Result<u32, AllocError> {
        if self.places.contains_key(&id) {
            return Err(AllocError::Exists { file: id });
        }
        let inodes = u64::from(self.layout.inodes_per_group) * u64::from(self.layout.len());
        let group = group.ok_or(AllocError::NoInodes { inodes })?;
        let entry_block = self.add_entry(parent, touched)?;
        let inode = self.layout.take_inode(group).ok_or(AllocError::NoInodes { inodes })?;
        touch(touched, self.layout.inode_bitmap(group));
        touch(touched, self.layout.descriptor(group));
        touch(touched, self.layout.inode_block(inode));
        let node = Node::new(id, inode, parent, entry_block);
        let place = if let Some(place) = self.free_nodes.pop() {
            *self.node_mut(place) = node;
            place
        } else {
            self.nodes.push(node);
            (self.nodes.len() - 1) as u32
        };
        self.places.insert(id, place);
        Ok(place)
    }

    /// Gives back all that a file or directory has, and its entry.
    pub(super) fn unmake(&mut self, place: u32, touched: &mut Vec<BlockNo>) {
        self.cut(place, 0, touched);
        let Node { id, inode, parent, entry_block, .. } = *self.node(place);
        let group = self.layout.group_of_inode(inode);
        self.layout.free_inode(inode);
        touch(touched, self.layout.inode_bitmap(group));
        touch(touched, self.layout.descriptor(group));
        touch(touched, self.layout.inode_block(inode));
        let mut searched = 0;
        if let Some(entries) = &mut self.node_mut(parent).directory {
            searched = entries.search(entry_block as usize);
            entries.by_block[entry_block as usize] -= 1;
            entries.first_with_room = entries.first_with_room.min(entry_block as usize);
            entries.total -= 1;
        }
        self.scanned += searched;
        self.touch_entry(parent, entry_block, touched);
        self.node_mut(place).directory = None;
        self.open = self.open.filter(|&open| open != place);
        self.places.remove(&id);
        self.free_nodes.push(place);
    }

    /// Puts an entry into the first block of the directory with room.
    pub(super) fn add_entry(&mut self, directory: u32, touched: &mut Vec<BlockNo>) -> Result<u32, AllocError> {
        let per_block = (PAGE_BYTES / self.config.entry_bytes.clamp(12, PAGE_BYTES)) as u32;
        loop {
            if let Some(entries) = &mut self.node_mut(directory).directory {
                while entries.by_block.get(entries.first_with_room).is_some_and(|&used| used >= per_block) {
                    entries.first_with_room += 1;
                }
                let block = entries.first_with_room;
                if let Some(used) = entries.by_block.get_mut(block) {
                    *used += 1;
                    entries.total += 1;
                    let scanned = entries.in_blocks(0..block + 1);
                    self.scanned += scanned;
                    self.touch_entry(directory, block as u32, touched);
                    return Ok(block as u32);
                }
            }
            self.grow_directory(directory, touched)?;
        }
    }

    /// A name is looked for that is not there, as before each file is made: all entries are scanned
    /// (`ext2_find_entry`).
    pub fn look_up_absent(&mut self, dir: FileId) {
        let Ok(place) = self.directory(dir) else { return };
        self.scanned += self.node(place).directory.as_ref().map_or(0, |entries| entries.total);
    }

    /// How many directory entries were scanned since it was last asked.
    pub fn take_scanned(&mut self) -> u64 {
        std::mem::take(&mut self.scanned)
    }

    pub(super) fn touch_entry(&self, directory: u32, block: u32, touched: &mut Vec<BlockNo>) {
        let node = self.node(directory);
        touch(touched, BlockNo(u64::from(node.map.get(u64::from(block)))));
        touch(touched, self.layout.inode_block(node.inode));
    }

    /// Adds a block to a directory. Directories beyond twelve blocks get their indirect blocks as files do.
    pub(super) fn grow_directory(&mut self, place: u32, touched: &mut Vec<BlockNo>) -> Result<(), AllocError> {
        let index = self.node(place).directory.as_ref().map_or(0, |entries| entries.by_block.len()) as u64;
        let mut goal = self.goal(place, index);
        for indirect in Map::way(index) {
            if self.node(place).map.indirect(indirect) == HOLE {
                let at = self.block_near(place, goal, touched)?;
                self.node_mut(place).map.put_indirect(indirect, at);
                goal = u64::from(at);
            }
            touch(touched, BlockNo(u64::from(self.node(place).map.indirect(indirect))));
        }
        let block = self.block_near(place, goal, touched)?;
        let node = self.node_mut(place);
        node.map.put(index, block);
        node.next_index = index + 1;
        node.next_goal = block + 1;
        if let Some(entries) = &mut node.directory {
            entries.by_block.push(0);
        }
        Ok(())
    }
}
