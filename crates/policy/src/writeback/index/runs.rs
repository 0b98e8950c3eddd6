//! A set of positions (blocks of a disk, pages of a file), seen as maximal runs in ascending order.
//!
//! The positions lie in chunks ([`super::chunk`]); a run is what a chunk and its neighbours hold, and is kept nowhere.
//! So a change costs a probe for its chunk and a change of one word in most cases. The order of chunks is changed only
//! when one is born or dies. A set may be cut: then no run crosses a multiple of the cut (the zones of WASL).
//!
//! The longest run: a heap of chunks by the longest run that begins in each. It is made when first asked for, and
//! chunks that have changed since are measured only when it is asked again.

use std::collections::BTreeMap;

use super::chunk::{Chunk, SPAN, Stretch};
use super::heap::Heap;
use super::table::{Hash, SlotTable, scattered};

/// Up to this number, chunks are searched one by one.
const SMALL: usize = 4;

/// Adjacent positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) start: u64,
    pub(super) len: u64,
}

impl Run {
    pub(super) fn end(self) -> u64 {
        self.start + self.len
    }
}

/// Whether the run of a position continues before and after what was added or taken out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sides {
    pub(super) left: bool,
    pub(super) right: bool,
}

impl Sides {
    /// By how many runs there are more with the position than without.
    pub(super) fn runs(self) -> i64 {
        1 - i64::from(self.left) - i64::from(self.right)
    }
}

/// A chunk, with the longest run that began in it when it was last measured.
#[derive(Debug)]
struct Numbered {
    /// Its first position / [`SPAN`].
    number: u64,
    longest: Stretch,
    stale: bool,
    chunk: Chunk,
}

#[derive(Debug, Default)]
struct ByLength {
    heap: Heap,
    /// Slots to be measured; some may be free by now.
    stale: Vec<u32>,
}

/// The set.
#[derive(Debug)]
pub(super) struct RunSet {
    chunks: Vec<Numbered>,
    free: Vec<u32>,
    /// The chunks by number, once there were more than a few.
    table: SlotTable,
    order: BTreeMap<u64, u32>,
    is_ordered: bool,
    by_length: Option<Box<ByLength>>,
    /// The chunk that was changed last.
    latest: u32,
    /// No run crosses a multiple of this; zero when runs are whole.
    cut: u64,
    runs: usize,
}

fn chunk_hash(number: u64) -> Hash {
    scattered(4, number)
}

fn split(position: u64) -> (u64, u32) {
    (position / u64::from(SPAN), (position % u64::from(SPAN)) as u32)
}

fn joined(number: u64, offset: u32) -> u64 {
    number * u64::from(SPAN) + u64::from(offset)
}

fn goes_first(chunks: &[Numbered]) -> impl Fn(u32, u32) -> bool + '_ {
    let key = |slot: u32| (std::cmp::Reverse(chunks[slot as usize].longest.len), chunks[slot as usize].number);
    move |a, b| key(a) < key(b)
}

impl RunSet {
    /// An empty set; `cut` positions is the longest run, from one multiple to the next, zero for whole runs.
    pub(super) fn new(cut: u64) -> RunSet {
        RunSet {
            chunks: Vec::new(),
            free: Vec::new(),
            table: SlotTable::default(),
            order: BTreeMap::new(),
            is_ordered: false,
            by_length: None,
            latest: 0,
            cut,
            runs: 0,
        }
    }

    /// How many runs there are.
    pub(super) fn runs(&self) -> usize {
        self.runs
    }

    /// Whether no run crosses the borders of stretches of `size` positions.
    pub(super) fn is_cut_at(&self, size: u64) -> bool {
        self.cut == size
    }

    fn find(&self, number: u64) -> Option<u32> {
        let is_it = |slot: u32| {
            self.chunks.get(slot as usize).is_some_and(|chunk| chunk.number == number && chunk.chunk.count > 0)
        };
        if is_it(self.latest) {
            return Some(self.latest);
        }
        if self.is_ordered {
            return self.table.find(chunk_hash(number), is_it);
        }
        (0..self.chunks.len() as u32).find(|&slot| is_it(slot))
    }

    fn chunk(&self, number: u64) -> Option<&Chunk> {
        self.find(number).map(|slot| &self.chunks[slot as usize].chunk)
    }

    /// The first chunk whose number is at least this.
    fn chunk_from(&self, number: u64) -> Option<&Numbered> {
        if let Some(slot) = self.find(number) {
            return Some(&self.chunks[slot as usize]);
        }
        if self.is_ordered {
            return self.order.range(number..).next().map(|(_, &slot)| &self.chunks[slot as usize]);
        }
        let ahead = self.chunks.iter().filter(|chunk| chunk.number >= number && chunk.chunk.count > 0);
        ahead.min_by_key(|chunk| chunk.number)
    }

    fn add_chunk(&mut self, number: u64) -> u32 {
        let mut new = Numbered { number, longest: Stretch { start: 0, len: 0 }, stale: false, chunk: Chunk::new() };
        let slot = if let Some(slot) = self.free.pop() {
            // It may wait to be measured still.
            new.stale = self.chunks[slot as usize].stale;
            self.chunks[slot as usize] = new;
            slot
        } else {
            if self.chunks.len() == self.chunks.capacity() {
                self.chunks.reserve_exact(self.chunks.len() / 16 + 1);
            }
            self.chunks.push(new);
            (self.chunks.len() - 1) as u32
        };
        if self.is_ordered {
            self.list(slot);
        } else if self.chunks.len() > SMALL {
            self.is_ordered = true;
            (0..self.chunks.len() as u32).for_each(|slot| self.list(slot));
        }
        slot
    }

    fn list(&mut self, slot: u32) {
        let (chunks, number) = (&self.chunks, self.chunks[slot as usize].number);
        self.table.insert(chunk_hash(number), slot, chunks.len(), |slot| chunk_hash(chunks[slot as usize].number));
        self.order.insert(number, slot);
    }

    fn remove_chunk(&mut self, slot: u32) {
        let number = self.chunks[slot as usize].number;
        if let Some(by_length) = &mut self.by_length
            && by_length.heap.holds(slot)
        {
            by_length.heap.remove(slot, goes_first(&self.chunks));
        }
        if self.is_ordered {
            self.table.remove(chunk_hash(number), slot);
            self.order.remove(&number);
        }
        self.chunks[slot as usize].chunk = Chunk::new();
        self.free.push(slot);
    }

    /// Takes note that a chunk is going to be changed.
    fn touch(&mut self, slot: u32) {
        self.latest = slot;
        let Some(by_length) = &mut self.by_length else { return };
        if !std::mem::replace(&mut self.chunks[slot as usize].stale, true) {
            by_length.stale.push(slot);
        }
    }

    /// Finds the place of a position and reads it, so that the processor has it in its cache for a change.
    pub(super) fn warm(&mut self, position: u64) {
        let (number, offset) = split(position);
        if let Some(slot) = self.find(number) {
            self.latest = slot;
            self.chunks[slot as usize].chunk.warm(offset);
        }
    }

    fn is_border(&self, position: u64) -> bool {
        // A division takes long; most cuts are powers of two.
        match self.cut {
            0 => false,
            cut if cut.is_power_of_two() => position & (cut - 1) == 0,
            cut => position.is_multiple_of(cut),
        }
    }

    /// Where a run that holds `position` ends at the latest.
    fn border_after(&self, position: u64) -> u64 {
        position.checked_div(self.cut).map_or(u64::MAX, |before| (before + 1).saturating_mul(self.cut))
    }

    fn has(&self, position: u64) -> bool {
        let (number, offset) = split(position);
        self.chunk(number).is_some_and(|chunk| chunk.has(offset))
    }

    /// Whether the run of `position` continues before and after it; `slot` is its chunk.
    fn sides(&self, slot: u32, position: u64, len: u64) -> Sides {
        let has = |other: u64| {
            let (number, offset) = split(other);
            let near = &self.chunks[slot as usize];
            if near.number == number { near.chunk.has(offset) } else { self.has(other) }
        };
        let end = position + len;
        Sides {
            left: position > 0 && has(position - 1) && !self.is_border(position),
            right: has(end) && !self.is_border(end),
        }
    }

    /// Where the run that holds `position` ends.
    pub(super) fn end(&self, position: u64) -> u64 {
        let border = self.border_after(position);
        let (mut number, mut offset) = split(position);
        while let Some(chunk) = self.chunk(number) {
            offset = chunk.end(offset);
            if offset < SPAN || joined(number, offset) >= border {
                break;
            }
            (number, offset) = (number + 1, 0);
        }
        joined(number, offset).min(border)
    }

    /// Where the run that holds `position` starts.
    pub(super) fn start(&self, position: u64) -> u64 {
        let border = position.checked_div(self.cut).map_or(0, |before| before * self.cut);
        let (mut number, offset) = split(position);
        let mut start = position;
        let mut chunk = self.chunk(number).filter(|chunk| chunk.has(offset));
        let mut from = offset;
        while let Some(here) = chunk {
            let first = here.start(from);
            start = joined(number, first);
            if first > 0 || start <= border {
                break;
            }
            (number, from) = (number - 1, SPAN - 1);
            chunk = self.chunk(number).filter(|chunk| chunk.has(from));
        }
        start.max(border)
    }

    /// The first position that is there, at `position` or later.
    fn next(&self, position: u64) -> Option<u64> {
        let (number, offset) = split(position);
        let here = self.chunk_from(number)?;
        let from = if here.number == number { offset } else { 0 };
        if let Some(next) = here.chunk.next(from) {
            return Some(joined(here.number, next));
        }
        let after = self.chunk_from(here.number + 1)?;
        after.chunk.next(0).map(|next| joined(after.number, next))
    }

    fn run_from(&self, start: u64) -> Run {
        Run { start, len: self.end(start) - start }
    }

    /// The first run that starts at `position` or later.
    pub(super) fn from(&self, position: u64) -> Option<Run> {
        let mut start = self.next(position)?;
        if start == position && position > 0 && !self.is_border(position) && self.has(position - 1) {
            start = self.next(self.end(position))?;
        }
        Some(self.run_from(start))
    }

    /// The run that holds `position`, else the first after it.
    pub(super) fn at_or_after(&self, position: u64) -> Option<Run> {
        let next = self.next(position)?;
        Some(self.run_from(if next == position { self.start(position) } else { next }))
    }

    /// Adds a position; `None` when it was there already.
    pub(super) fn insert(&mut self, position: u64) -> Option<Sides> {
        let (number, offset) = split(position);
        let slot = match self.find(number) {
            Some(slot) if self.chunks[slot as usize].chunk.has(offset) => return None,
            Some(slot) => slot,
            None => self.add_chunk(number),
        };
        self.touch(slot);
        self.chunks[slot as usize].chunk.insert(offset, 1);
        let sides = self.sides(slot, position, 1);
        self.runs = self.runs.wrapping_add_signed(sides.runs() as isize);
        Some(sides)
    }

    /// Takes out `len` adjacent positions; `None` when they are not in one run.
    pub(super) fn remove(&mut self, position: u64, len: u64) -> Option<Sides> {
        let (number, offset) = split(position);
        let slot = self.find(number)?;
        let in_one = len == 1 || self.end(position) >= position + len;
        if len == 0 || !self.chunks[slot as usize].chunk.has(offset) || !in_one {
            return None;
        }
        let sides = self.sides(slot, position, len);
        self.runs = self.runs.wrapping_add_signed(-sides.runs() as isize);
        self.for_parts(Run { start: position, len }, |set, number, offset, len| {
            let Some(slot) = set.find(number) else { return };
            set.touch(slot);
            set.chunks[slot as usize].chunk.remove(offset, len);
            if set.chunks[slot as usize].chunk.count == 0 {
                set.remove_chunk(slot);
            }
        });
        Some(sides)
    }

    /// Adds a run that touches no other; the set is not cut.
    pub(super) fn insert_run(&mut self, run: Run) {
        self.runs += usize::from(run.len > 0);
        self.for_parts(run, |set, number, offset, len| {
            let slot = set.find(number).unwrap_or_else(|| set.add_chunk(number));
            set.touch(slot);
            set.chunks[slot as usize].chunk.insert(offset, len);
        });
    }

    /// Does something with the part of a run in each chunk.
    fn for_parts(&mut self, run: Run, mut act: impl FnMut(&mut RunSet, u64, u32, u32)) {
        let mut at = run.start;
        while at < run.end() {
            let (number, offset) = split(at);
            let len = (run.end() - at).min(u64::from(SPAN - offset)) as u32;
            act(self, number, offset, len);
            at += u64::from(len);
        }
    }

    /// The longest run; the first on a tie.
    pub(super) fn longest(&mut self) -> Option<Run> {
        let mut by_length = self.by_length.take().unwrap_or_else(|| {
            let all = 0..self.chunks.len() as u32;
            all.clone().for_each(|slot| self.chunks[slot as usize].stale = true);
            Box::new(ByLength { heap: Heap::default(), stale: all.collect() })
        });
        while let Some(slot) = by_length.stale.pop() {
            self.chunks[slot as usize].stale = false;
            if self.chunks[slot as usize].chunk.count > 0 {
                self.measure_at(slot, &mut by_length.heap);
            }
        }
        let first = by_length.heap.first();
        self.by_length = Some(by_length);
        let chunk = &self.chunks[first? as usize];
        Some(Run { start: joined(chunk.number, chunk.longest.start), len: u64::from(chunk.longest.len) })
    }

    /// Measures a chunk that has changed, and those before it from which a run may reach into it.
    fn measure_at(&mut self, slot: u32, heap: &mut Heap) {
        self.measure(slot, heap);
        let mut number = self.chunks[slot as usize].number;
        while let Some(before) = number.checked_sub(1).and_then(|before| self.find(before)) {
            let chunk = &self.chunks[before as usize].chunk;
            let (reaches, is_full) = (chunk.has(SPAN - 1), chunk.count == SPAN);
            if reaches {
                self.measure(before, heap);
            }
            if !reaches || !is_full {
                return;
            }
            number -= 1;
        }
    }

    fn measure(&mut self, slot: u32, heap: &mut Heap) {
        let longest = self.longest_in(slot);
        let chunk = &mut self.chunks[slot as usize];
        if std::mem::replace(&mut chunk.longest, longest) == longest && heap.holds(slot) {
            return;
        }
        if heap.holds(slot) {
            heap.changed(slot, goes_first(&self.chunks));
        } else {
            heap.insert(slot, goes_first(&self.chunks));
        }
    }

    /// The longest run that begins in a chunk.
    fn longest_in(&self, slot: u32) -> Stretch {
        let Numbered { number, chunk, .. } = &self.chunks[slot as usize];
        let (begin, end) = (joined(*number, 0), joined(*number + 1, 0));
        let mut best = Stretch { start: 0, len: 0 };
        if self.cut != 0 {
            let mut next = self.from(begin).filter(|run| run.start < end);
            while let Some(run) = next {
                if run.len > u64::from(best.len) {
                    best = Stretch { start: split(run.start).1, len: run.len as u32 };
                }
                next = self.from(run.end()).filter(|run| run.start < end);
            }
            return best;
        }
        let continues = begin > 0 && chunk.has(0) && self.has(begin - 1);
        let from = if continues { chunk.end(0) } else { 0 };
        if from < SPAN {
            best = chunk.longest(from);
            if chunk.has(SPAN - 1) {
                let start = chunk.start(SPAN - 1);
                let len = self.end(end - 1) - joined(*number, start);
                if len > u64::from(best.len) {
                    best = Stretch { start, len: len as u32 };
                }
            }
        }
        best
    }

    /// Bytes held. For the order of chunks a node's share is reckoned: 12 bytes an entry, two thirds full.
    pub(super) fn bytes(&self) -> usize {
        self.chunks.capacity() * size_of::<Numbered>()
            + self.chunks.iter().map(|chunk| chunk.chunk.bytes()).sum::<usize>()
            + self.free.capacity() * size_of::<u32>()
            + self.table.bytes()
            + self.order.len() * 18
            + self.by_length.as_ref().map_or(0, |by_length| by_length.heap.bytes() + by_length.stale.capacity() * 4)
    }
}
