//! Where the pages lie on disk: block -> page, segments, zones.
//!
//! Two pages may claim one block for a while (a remap that is half done, a block freed and given to another file). Then
//! both stay: one in the table of blocks, the others in a map beside it. The block counts once in segments and zones,
//! and taking it takes all its pages.

use std::collections::{BTreeMap, BTreeSet};

use umbrella_units::PageKey;

use super::runs::{Run, RunSet};
use super::slab::Slab;
use super::table::{Hash, SlotTable, hash};
use super::zones::Zones;

/// The pages by block.
#[derive(Debug)]
pub(super) struct Places {
    by_block: SlotTable,
    /// Further pages of blocks that more than one page claims.
    others: BTreeMap<u64, BTreeSet<u32>>,
    pub(super) runs: RunSet,
    pub(super) zones: Option<Zones>,
}

fn block_hash(block: u64) -> Hash {
    hash(1, block)
}

fn hash_in(pages: &Slab) -> impl Fn(u32) -> Hash {
    |slot| block_hash(pages.get(slot).block().0)
}

impl Places {
    /// No pages yet; `cut`: see [`RunSet::new`].
    pub(super) fn new(cut: u64, zones: Option<Zones>) -> Places {
        Places { by_block: SlotTable::default(), others: BTreeMap::new(), runs: RunSet::new(cut), zones }
    }

    /// The page that holds the block in the table.
    pub(super) fn owner(&self, block: u64, pages: &Slab) -> Option<u32> {
        self.by_block.find(block_hash(block), |slot| pages.get(slot).block().0 == block)
    }

    /// Whether some block is claimed by more than one page.
    pub(super) fn has_shared_blocks(&self) -> bool {
        !self.others.is_empty()
    }

    /// Reads what a change at this block is going to need, all at once.
    pub(super) fn warm(&mut self, block: u64) {
        self.by_block.warm(block_hash(block));
        self.runs.warm(block);
        if let Some(zones) = &mut self.zones {
            zones.warm(block);
        }
    }

    /// Lets a page in. Only the stamp of the page in the table counts, as the block does.
    pub(super) fn add(&mut self, slot: u32, pages: &Slab) {
        self.claim(slot, pages);
        let entry = pages.get(slot);
        if self.owner(entry.block().0, pages) == Some(slot)
            && let Some(zones) = &mut self.zones
        {
            zones.change_stamps(entry.block().0, entry.stamp(), 0);
        }
    }

    fn claim(&mut self, slot: u32, pages: &Slab) {
        let block = pages.get(slot).block().0;
        let Some(sides) = self.runs.insert(block) else {
            self.others.entry(block).or_default().insert(slot);
            return;
        };
        self.by_block.insert(block_hash(block), slot, pages.entries.len(), hash_in(pages));
        let Some(zones) = &mut self.zones else { return };
        if self.runs.is_cut_at(zones.size()) {
            zones.change(block, 1, sides.runs());
            return;
        }
        let start = if sides.left { self.runs.start(block) } else { block };
        let next = block + 1;
        if !sides.right || zones.number(next) == zones.number(start) {
            zones.change(start, 1, sides.runs());
            return;
        }
        let moved = (self.runs.end(next) - next) as i64;
        zones.change(next, -moved, -1);
        zones.change(start, 1 + moved, i64::from(!sides.left));
    }

    /// Takes a page out.
    pub(super) fn remove(&mut self, slot: u32, pages: &Slab) {
        let block = pages.get(slot).block().0;
        self.warm(block);
        if let Some(others) = self.others.get_mut(&block) {
            if !others.remove(&slot)
                && let Some(heir) = others.pop_first()
            {
                self.by_block.replace(block_hash(block), slot, heir, pages.entries.len(), hash_in(pages));
                if let Some(zones) = &mut self.zones {
                    zones.change_stamps(block, pages.get(heir).stamp(), pages.get(slot).stamp());
                }
            }
            if others.is_empty() {
                self.others.remove(&block);
            }
            return;
        }
        if let Some(zones) = &mut self.zones {
            zones.change_stamps(block, 0, pages.get(slot).stamp());
        }
        self.by_block.remove(block_hash(block), slot);
        self.remove_run(block, 1);
    }

    fn remove_run(&mut self, block: u64, len: u64) {
        let (Some(sides), Some(zones)) = (self.runs.remove(block, len), &mut self.zones) else { return };
        let (next, len) = (block + len, len as i64);
        if self.runs.is_cut_at(zones.size()) {
            zones.change(block, -len, -sides.runs());
            return;
        }
        let start = if sides.left { self.runs.start(block - 1) } else { block };
        if !sides.right || zones.number(next) == zones.number(start) {
            zones.change(start, -len, -sides.runs());
            return;
        }
        let moved = (self.runs.end(next) - next) as i64;
        zones.change(start, -(len + moved), -i64::from(!sides.left));
        zones.change(next, moved, 1);
    }

    /// Takes out the pages of blocks that lie in one run; appends their slots in block order.
    pub(super) fn take(&mut self, blocks: Run, pages: &Slab, key: impl Fn(u32) -> PageKey, out: &mut Vec<u32>) {
        for block in blocks.start..blocks.end() {
            let Some(owner) = self.owner(block, pages) else { continue };
            let before = out.len();
            out.push(owner);
            if let Some(others) = self.others.remove(&block) {
                out.extend(others);
                out[before..].sort_by_key(|&slot| key(slot));
            }
            self.by_block.remove(block_hash(block), owner);
            if let Some(zones) = &mut self.zones {
                zones.change_stamps(block, 0, pages.get(owner).stamp());
            }
        }
        self.remove_run(blocks.start, blocks.len);
    }

    /// Bytes of the table of blocks, with what is beside it.
    pub(super) fn table_bytes(&self) -> usize {
        // A set of its own for each such block: a node of the map and one of the set, at least.
        self.by_block.bytes() + self.others.values().map(|others| 120 + 8 * others.len()).sum::<usize>()
    }
}
