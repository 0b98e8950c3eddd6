//! Delayed allocation: a page is promised a block when it is written, and gets its own when it goes to disk.
//!
//! A promise is a block that no other page gets meanwhile. So no two dirty pages claim one address, and an accepted
//! write never finds the disk full. A promise costs no metadata: it is only in memory. When a run of pages goes to
//! disk, its promises are taken back and one run of blocks is looked for, first behind the page before. The allocator
//! of ext4 does the same for a whole request.

use umbrella_units::{BlockNo, Extent, FileId, PageIndex};

use super::map::{HOLE, Map, PROMISED};
use super::{AllocError, Ext2, touch};

/// Number of consecutive free blocks at a place where promises without a neighbour begin.
const STRETCH: u64 = 16;

impl Ext2 {
    /// Promises the page a block, and says which it may be; the page's own if it has one.
    pub fn reserve(&mut self, file: FileId, index: PageIndex) -> Result<BlockNo, AllocError> {
        let place = self.file(file)?;
        let block = self.node(place).map.get(index.0);
        if block != HOLE {
            return Ok(BlockNo(u64::from(block & !PROMISED)));
        }
        Map::check(file, index)?;
        let before = index.0.checked_sub(1).map_or(HOLE, |before| self.node(place).map.get(before));
        let behind = u64::from(before & !PROMISED) + 1;
        let block = if before != HOLE && self.layout.is_free(behind) {
            behind
        } else {
            let group = self.group_of(place);
            let from = self.layout.start(group) + u64::from(self.promise_at[group as usize]);
            let (block, _) = self.layout.find_run(from, STRETCH).ok_or(self.no_space())?;
            let end = self.layout.start(group) + self.layout.size(group) as u64;
            let next = if (from..end).contains(&block) { block + STRETCH } else { end };
            let next = if next < end { next - self.layout.start(group) } else { 0 };
            self.promise_at[group as usize] = next as u32;
            block
        };
        self.layout.take_block(block);
        self.node_mut(place).map.put(index.0, block as u32 | PROMISED);
        Ok(BlockNo(block))
    }

    /// The block that a page has, or is promised.
    pub fn expected_block(&self, file: FileId, index: PageIndex) -> Option<BlockNo> {
        let block = self.node(*self.places.get(&file)?).map.get(index.0);
        (block != HOLE).then_some(BlockNo(u64::from(block & !PROMISED)))
    }

    /// Chooses blocks for the `pages` pages from `first` on that have none of their own, together. Adds where all of
    /// them lie, in page order.
    pub fn allocate_run(
        &mut self,
        file: FileId,
        first: PageIndex,
        pages: u64,
        touched: &mut Vec<BlockNo>,
        out: &mut Vec<Extent>,
    ) -> Result<(), AllocError> {
        let place = self.file(file)?;
        if pages > 0 {
            Map::check(file, PageIndex(first.0.saturating_add(pages - 1)))?;
        }
        self.choose(place, first.0, pages, touched, out)
    }

    pub(super) fn choose(
        &mut self,
        place: u32,
        first: u64,
        pages: u64,
        touched: &mut Vec<BlockNo>,
        out: &mut Vec<Extent>,
    ) -> Result<(), AllocError> {
        let end = first + pages;
        let own = |block: u32| block != HOLE && block & PROMISED == 0;
        let holes = (first..end).filter(|&at| self.node(place).map.get(at) == HOLE).count() as u64;
        if holes > self.layout.free_blocks {
            return Err(self.no_space());
        }
        let mut at = first;
        while at < end {
            let from = at;
            while at < end && !own(self.node(place).map.get(at)) {
                at += 1;
            }
            self.choose_stretch(place, from, at, touched)?;
            while at < end && own(self.node(place).map.get(at)) {
                at += 1;
            }
        }
        let before = out.len();
        for at in first..end {
            let block = BlockNo(u64::from(self.node(place).map.get(at)));
            match out[before..].last_mut() {
                Some(last) if last.end() == block => last.blocks += 1,
                _ => out.push(Extent { start: block, blocks: 1 }),
            }
        }
        Ok(())
    }

    /// Chooses blocks for pages that have none of their own.
    fn choose_stretch(&mut self, place: u32, from: u64, to: u64, touched: &mut Vec<BlockNo>) -> Result<(), AllocError> {
        if from == to {
            return Ok(());
        }
        for at in from..to {
            let block = self.node(place).map.get(at);
            if block != HOLE {
                self.layout.free_block(u64::from(block & !PROMISED));
                self.node_mut(place).map.put(at, HOLE);
            }
        }
        let mut at = from;
        while at < to {
            let before = at.checked_sub(1).map_or(HOLE, |before| self.node(place).map.get(before));
            let goal = if before == HOLE { self.goal(place, at) } else { u64::from(before & !PROMISED) + 1 };
            let (start, length) = self.layout.find_run(goal, to - at).ok_or(self.no_space())?;
            for block in start..start + length {
                self.layout.take_block(block);
                self.node_mut(place).map.put(at, block as u32);
                at += 1;
            }
            let group = self.layout.group_of(start);
            touch(touched, self.layout.block_bitmap(group));
            touch(touched, self.layout.descriptor(group));
        }
        let inode = self.inode_block(place);
        touch(touched, inode);
        Ok(())
    }
}
