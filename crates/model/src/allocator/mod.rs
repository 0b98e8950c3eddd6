//! Where files lie on disk: an allocator that fragments as the real ones do.
//!
//! [`Ext2`] follows the ext2 of Linux 2.6.12, the file system under MRAM. Except for its journal, this is also the ext3
//! under TESA:
//!
//! - Block groups have bitmaps and inode tables. Top directories are spread, others stay near their parents (Orlov). A
//!   file's inode is the first free one in its directory's group.
//! - A file's next block is the one behind its last if that is free. Behind a newly found block, seven more are
//!   reserved for the file until it is closed: writers that take turns alternate in windows of eight. A file counts as
//!   closed when its writer continues with another file ([`Ext2Config::close_on_switch`]).
//! - The first block of a file is looked for at a place in its group that depends on the process (`ext2_find_near`'s
//!   colour, [`Ext2::set_writer`]).
//! - There are twelve direct blocks, then indirect ones, each allocated just before the first block it points to.
//! - A full group spills to the next.
//!
//! With [`Ext2Config::delayed`] a page is only promised some block when it is written ([`Ext2::reserve`]). The blocks
//! of a whole run of pages are chosen together when it goes to disk ([`Ext2::allocate_run`]): contiguous if such a
//! place is free anywhere. As in ext4 there are no indirect blocks then. The blocks of an extent tree, needed beyond
//! four extents, are left out.
//!
//! With [`Ext2Config::growing_windows`] the blocks behind a newly found one are reserved as in ext3. A window has eight
//! blocks at first, and twice as many each time that one is used up, at most 1,024. The next window of a file keeps its
//! size. Here a window ends before the next block in use; in ext3 it may continue behind it. Source: Linux 2.6.12,
//! fs/ext3/balloc.c (`alloc_new_reservation`, `EXT3_DEFAULT_RESERVE_BLOCKS`, `EXT3_MAX_RESERVE_BLOCKS`).
//!
//! Every operation adds the metadata blocks that it dirties to `touched`. So a driver can dirty them in its page cache
//! ([`umbrella_units::PageKey::device`]). The method [`Ext2::forgotten`] names those that need not be written any more.
//! Left out: the superblock, symbolic and hard links, reserved blocks for the administrator.

mod age;
mod bitmap;
mod blocks;
mod delayed;
mod directory;
mod error;
mod groups;
mod layout;
mod log;
mod map;
mod random;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use umbrella_units::{BlockNo, FileId, PAGE_BYTES, PageIndex, SplitMix64};

pub use age::Aging;
use directory::Entries;
pub use error::AllocError;
use layout::BlockGroups;
pub use log::Log;
use map::{HOLE, Map, PROMISED};

/// How a file system is made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Ext2Config {
    /// Blocks of the disk.
    pub blocks: u64,
    /// Bytes of the disk for each inode (`mke2fs -i`; 8,192 was its default for 4 KiB blocks in 2005).
    pub inode_bytes: u64,
    /// Bytes of a directory entry: eight and the name, rounded up to four. Assumed: names of up to sixteen letters.
    pub entry_bytes: u64,
    /// Whether blocks are chosen when pages go to disk instead of when they are written.
    pub delayed: bool,
    /// Whether a client ([`Ext2::set_writer`]) that gets blocks for another file closes the one before. If not, only
    /// [`Ext2::close`] closes a file.
    pub close_on_switch: bool,
    /// Whether windows grow as in ext3 ([`Ext2`]): eight blocks, and twice as many each time that one is used up, to
    /// 1,024.
    pub growing_windows: bool,
    /// The most files that count as open. A file closes when it got no new window while this many others got one.
    pub open_files: usize,
}

impl Default for Ext2Config {
    /// MRAM's disk of 80 GB.
    fn default() -> Ext2Config {
        Ext2Config {
            blocks: 80_000_000_000 / PAGE_BYTES,
            inode_bytes: 8192,
            entry_bytes: 24,
            delayed: false,
            close_on_switch: true,
            growing_windows: false,
            open_files: 256,
        }
    }
}

/// An inode's number; from 1. In a group they are given out in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Inode(pub u32);

/// A file or a directory.
#[derive(Debug, Clone)]
struct Node {
    id: FileId,
    inode: Inode,
    /// The directory's place among the nodes, and the block of it that has the entry.
    parent: u32,
    entry_block: u32,
    map: Map,
    /// Blocks set aside: the first, how many are left, and how many the next window has where windows grow.
    window: u32,
    window_left: u16,
    window_size: u16,
    /// The page behind the last one that got a block, and the block that would follow (`i_next_alloc_block`).
    next_index: u64,
    next_goal: u32,
    directory: Option<Box<Entries>>,
}

impl Node {
    /// A file without blocks.
    fn new(id: FileId, inode: Inode, parent: u32, entry_block: u32) -> Node {
        Node {
            id,
            inode,
            parent,
            entry_block,
            map: Map::default(),
            window: HOLE,
            window_left: 0,
            window_size: 0,
            next_index: 0,
            next_goal: HOLE,
            directory: None,
        }
    }
}

/// See the module.
#[derive(Debug, Clone)]
pub struct Ext2 {
    config: Ext2Config,
    layout: BlockGroups,
    nodes: Vec<Node>,
    free_nodes: Vec<u32>,
    places: FxHashMap<FileId, u32>,
    random: SplitMix64,
    writer: u32,
    /// The place of the file that got blocks for this client last; others' by client.
    open: Option<u32>,
    open_of_others: FxHashMap<u32, u32>,
    /// Places of files that have blocks set aside, or had them.
    windows: VecDeque<u32>,
    forgotten: Vec<BlockNo>,
    /// Directory entries that were scanned.
    scanned: u64,
    /// For delayed allocation: where the next promise without a neighbour is looked for, by group.
    promise_at: Vec<u32>,
    /// Scratch space of truncation.
    cut: Vec<u32>,
    cut_indirects: Vec<u32>,
}

/// Adds a block unless it was among the last few.
fn touch(touched: &mut Vec<BlockNo>, block: BlockNo) {
    let recent = touched.len().saturating_sub(8);
    if !touched[recent..].contains(&block) {
        touched.push(block);
    }
}

/// The root's place among the nodes.
const ROOT_PLACE: u32 = 0;

impl Ext2 {
    /// The root directory: always there.
    pub const ROOT: FileId = FileId(1);

    /// An empty file system. The seed decides where top directories go.
    pub fn new(config: Ext2Config, seed: u64) -> Result<Ext2, AllocError> {
        let most = u64::from(PROMISED) - 1;
        let bad = AllocError::BadSize { blocks: config.blocks, least: 1024, most };
        if config.blocks > most || config.blocks < 1024 {
            return Err(bad);
        }
        let layout = BlockGroups::new(config.blocks, config.inode_bytes).ok_or(bad)?;
        let root = Node { directory: Some(Box::default()), ..Node::new(Ext2::ROOT, Inode(2), ROOT_PLACE, 0) };
        let mut new = Ext2 {
            promise_at: vec![0; layout.groups.len()],
            layout,
            nodes: vec![root],
            free_nodes: Vec::new(),
            places: FxHashMap::from_iter([(Ext2::ROOT, ROOT_PLACE)]),
            random: SplitMix64::new(seed),
            writer: 0,
            open: None,
            open_of_others: FxHashMap::default(),
            windows: VecDeque::new(),
            forgotten: Vec::new(),
            scanned: 0,
            cut: Vec::new(),
            cut_indirects: Vec::new(),
            config,
        };
        new.layout.directories = 1;
        new.layout.at_mut(0).directories = 1;
        new.grow_directory(ROOT_PLACE, &mut Vec::new())?;
        Ok(new)
    }

    /// What it was made with.
    pub fn config(&self) -> &Ext2Config {
        &self.config
    }

    /// Blocks that are neither used, nor set aside, nor promised.
    pub fn free_blocks(&self) -> u64 {
        self.layout.free_blocks
    }

    /// Blocks of bitmaps, inode tables and group descriptors.
    pub fn metadata_blocks(&self) -> u64 {
        self.layout.metadata_blocks
    }

    /// Blocks of the file system: those of the disk, except an end that is too small for a group.
    pub fn blocks(&self) -> u64 {
        self.layout.blocks
    }

    /// Sets the client that writes next. New files of different clients start at different places of their group (by
    /// the process number, modulo sixteen).
    pub fn set_writer(&mut self, client: u32) {
        if client == self.writer {
            return;
        }
        if let Some(place) = self.open {
            self.open_of_others.insert(self.writer, place);
        }
        self.writer = client;
        self.open = self.open_of_others.remove(&client);
    }

    /// Adds the metadata blocks that were freed since the last call. Dirty ones among them need not be written.
    pub fn forgotten(&mut self, out: &mut Vec<BlockNo>) {
        out.append(&mut self.forgotten);
    }

    /// Makes a directory.
    pub fn mkdir(&mut self, dir: FileId, parent: FileId, touched: &mut Vec<BlockNo>) -> Result<(), AllocError> {
        let parent = self.directory(parent)?;
        let group = if parent == ROOT_PLACE {
            self.layout.group_for_top_directory(&mut self.random)
        } else {
            self.layout.group_for_directory(self.layout.group_of_inode(self.node(parent).inode))
        };
        let place = self.make(dir, parent, group, touched)?;
        self.node_mut(place).directory = Some(Box::default());
        if let Err(error) = self.grow_directory(place, touched) {
            self.unmake(place, touched);
            return Err(error);
        }
        let group = self.group_of(place);
        self.layout.directories += 1;
        let group = self.layout.at_mut(group);
        group.directories += 1;
        group.debt = group.debt.saturating_add(1);
        Ok(())
    }

    /// Makes an empty file.
    pub fn create(&mut self, file: FileId, dir: FileId, touched: &mut Vec<BlockNo>) -> Result<(), AllocError> {
        let parent = self.directory(dir)?;
        let inode = self.node(parent).inode;
        let group = self.layout.group_for_file(self.layout.group_of_inode(inode), inode);
        let place = self.make(file, parent, group, touched)?;
        let group = self.group_of(place);
        let group = self.layout.at_mut(group);
        group.debt = group.debt.saturating_sub(1);
        Ok(())
    }

    /// The block of a page; `None` for a hole, and for a page whose block is not chosen yet.
    pub fn block_of(&self, file: FileId, index: PageIndex) -> Option<BlockNo> {
        let block = self.node(*self.places.get(&file)?).map.get(index.0);
        (block != HOLE && block & PROMISED == 0).then_some(BlockNo(u64::from(block)))
    }

    /// The page's block; a new one if it has none.
    pub fn allocate(
        &mut self,
        file: FileId,
        index: PageIndex,
        touched: &mut Vec<BlockNo>,
    ) -> Result<BlockNo, AllocError> {
        let place = self.file(file)?;
        let block = self.node(place).map.get(index.0);
        if block != HOLE && block & PROMISED == 0 {
            return Ok(BlockNo(u64::from(block)));
        }
        Map::check(file, index)?;
        if self.config.delayed {
            self.choose(place, index.0, 1, touched, &mut Vec::new())?;
            return Ok(BlockNo(u64::from(self.node(place).map.get(index.0))));
        }
        if self.config.close_on_switch
            && self.open != Some(place)
            && let Some(before) = self.open.replace(place)
        {
            self.discard_window(before, touched);
        }
        let mut goal = self.goal(place, index.0);
        let mut last = None;
        for indirect in Map::way(index.0) {
            let mut at = self.node(place).map.indirect(indirect);
            if at == HOLE {
                at = self.block_near(place, goal, touched)?;
                self.node_mut(place).map.put_indirect(indirect, at);
                goal = u64::from(at);
                if let Some(above) = last {
                    touch(touched, above);
                }
            }
            last = Some(BlockNo(u64::from(at)));
        }
        let block = self.block_near(place, goal, touched)?;
        let inode = self.inode_block(place);
        touch(touched, inode);
        if let Some(indirect) = last {
            touch(touched, indirect);
        }
        let node = self.node_mut(place);
        node.map.put(index.0, block);
        node.next_index = index.0 + 1;
        node.next_goal = block + 1;
        Ok(BlockNo(u64::from(block)))
    }

    /// The file is closed: what was set aside for it is free again.
    pub fn close(&mut self, file: FileId, touched: &mut Vec<BlockNo>) {
        if let Some(&place) = self.places.get(&file) {
            self.discard_window(place, touched);
        }
    }

    /// Cuts the file to `pages` pages; a shorter one stays as it is.
    pub fn truncate(&mut self, file: FileId, pages: PageIndex, touched: &mut Vec<BlockNo>) -> Result<(), AllocError> {
        let place = self.file(file)?;
        self.cut(place, pages.0, touched);
        let inode = self.inode_block(place);
        touch(touched, inode);
        Ok(())
    }

    /// Removes a file, or an empty directory.
    pub fn delete(&mut self, file: FileId, touched: &mut Vec<BlockNo>) -> Result<(), AllocError> {
        let place = *self.places.get(&file).ok_or(AllocError::NoSuchFile { file })?;
        if let Some(entries) = &self.node(place).directory {
            if entries.total > 0 || place == ROOT_PLACE {
                return Err(AllocError::InUse { directory: file });
            }
            let group = self.group_of(place);
            self.layout.directories -= 1;
            self.layout.at_mut(group).directories -= 1;
        }
        self.unmake(place, touched);
        Ok(())
    }

    /// The file's inode number.
    pub fn inode_of(&self, file: FileId) -> Option<Inode> {
        self.places.get(&file).map(|&place| self.node(place).inode)
    }

    /// Adds the metadata blocks that must be read before a page of the file can be found: of its directory, its inode,
    /// its indirect blocks.
    pub fn metadata_of(&self, file: FileId, index: PageIndex, out: &mut Vec<BlockNo>) {
        let Some(&place) = self.places.get(&file) else { return };
        self.entry_and_inode(place, out);
        out.extend(self.node(place).map.indirect_blocks_to(index.0).map(|block| BlockNo(u64::from(block))));
    }

    /// Adds all metadata blocks of the file: of its directory, its inode, every indirect block. What an fsync waits for
    /// besides the file's pages.
    pub fn all_metadata_of(&self, file: FileId, out: &mut Vec<BlockNo>) {
        let Some(&place) = self.places.get(&file) else { return };
        self.entry_and_inode(place, out);
        out.extend(self.node(place).map.indirects().map(|block| BlockNo(u64::from(block))));
    }

    fn entry_and_inode(&self, place: u32, out: &mut Vec<BlockNo>) {
        let node = self.node(place);
        let entry = self.node(node.parent).map.get(u64::from(node.entry_block));
        out.push(BlockNo(u64::from(entry)));
        out.push(self.inode_block(place));
    }

    /// How many runs of adjacent blocks the file's pages lie in; an indirect block in between ends a run.
    pub fn fragments(&self, file: FileId) -> u64 {
        let Some(&place) = self.places.get(&file) else { return 0 };
        let mut runs = 0;
        let mut expected = None;
        for (_, block) in self.node(place).map.iter() {
            runs += u64::from(expected != Some(block));
            expected = Some(block + 1);
        }
        runs
    }

    /// Blocks between the file's first and its last page (MRAM, figure 4.6); `None` when it has no blocks.
    pub fn distance(&self, file: FileId) -> Option<u64> {
        let map = &self.node(*self.places.get(&file)?).map;
        let mut blocks = map.iter().map(|(_, block)| block);
        let first = blocks.next()?;
        Some(u64::from(blocks.last().unwrap_or(first).abs_diff(first)))
    }

    fn node(&self, place: u32) -> &Node {
        &self.nodes[place as usize]
    }

    fn node_mut(&mut self, place: u32) -> &mut Node {
        &mut self.nodes[place as usize]
    }

    fn directory(&self, file: FileId) -> Result<u32, AllocError> {
        let place = *self.places.get(&file).ok_or(AllocError::NoSuchFile { file })?;
        self.node(place).directory.as_ref().map(|_| place).ok_or(AllocError::WrongKind { file })
    }

    fn file(&self, file: FileId) -> Result<u32, AllocError> {
        let place = *self.places.get(&file).ok_or(AllocError::NoSuchFile { file })?;
        if self.node(place).directory.is_some() { Err(AllocError::WrongKind { file }) } else { Ok(place) }
    }

    fn group_of(&self, place: u32) -> u32 {
        self.layout.group_of_inode(self.node(place).inode)
    }

    fn inode_block(&self, place: u32) -> BlockNo {
        self.layout.inode_block(self.node(place).inode)
    }

    fn no_space(&self) -> AllocError {
        AllocError::NoSpace { blocks: self.layout.blocks }
    }
}
