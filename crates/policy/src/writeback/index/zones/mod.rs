//! Zones: how many dirty blocks each holds, and in how many segments, with the zone to choose at hand.
//!
//! A segment belongs to the zone of its first block (TESA, III-C), with all its blocks, also those beyond the zone's
//! end. Where runs are cut at the borders of zones (WASL, and TESA's `zone`) that is simply the zone they lie in.

use std::cmp::Ordering;

use umbrella_units::Pages;

use super::heap::Heap;
use super::runs::RunSet;
use super::slab::push;
use super::table::{Hash, SlotTable, scattered};

/// Which choice among zones a policy asks for, so that only its order is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ZoneOrder {
    /// None: zones are only counted.
    Unordered,
    /// The zone with most dirty pages ([`super::DirtyIndex::fullest_zone`]).
    Pages,
    /// The zone with the longest segments ([`super::DirtyIndex::longest_zone`]).
    Length,
    /// Both.
    PagesAndLength,
    /// The zone with the longest segments, and the ages of each zone's pages summed ([`super::DirtyIndex::zone_age`]).
    LengthAndAges,
    /// The zones whose segments have at least `length` pages on average, and the others, each in order of number
    /// ([`super::DirtyIndex::next_zone`]).
    Classes {
        /// The length.
        length: Pages,
    },
}

/// A zone that holds dirty pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Zone {
    /// Its number: block / zone size.
    pub number: u64,
    /// Dirty blocks of its segments (NB).
    pub pages: u64,
    /// Segments that begin in it (NS).
    pub segments: u64,
    /// Whether it was hit since the mark was last cleared ([`super::DirtyIndex::set_hit`]; the recency bit of WOW).
    pub hit: bool,
}

impl Zone {
    /// Whether the average length of its segments is at least `length` pages.
    pub fn has_length(&self, length: u64) -> bool {
        u128::from(self.pages) >= u128::from(length) * u128::from(self.segments)
    }

    /// Orders by average length of segments, then by dirty pages; the lower number is the greater on a tie.
    fn by_length(&self, other: &Zone) -> Ordering {
        let (mine, others) = (self.pages * other.segments, other.pages * self.segments);
        mine.cmp(&others).then(self.by_pages(other))
    }

    fn by_pages(&self, other: &Zone) -> Ordering {
        self.pages.cmp(&other.pages).then(other.number.cmp(&self.number))
    }
}

#[derive(Debug, Clone, Copy)]
struct ZoneEntry {
    number: u64,
    pages: u32,
    /// Above them two bits: hit, and stale: the heaps have older counts.
    segments: u32,
}

const HIT: u32 = 1 << 31;
const STALE: u32 = 1 << 30;
const FLAGS: u32 = HIT | STALE;

impl ZoneEntry {
    fn zone(self) -> Zone {
        Zone {
            number: self.number,
            pages: u64::from(self.pages),
            segments: u64::from(self.segments & !FLAGS),
            hit: self.segments & HIT != 0,
        }
    }
}

/// The zones in two classes, each in order: those with long segments, and the others.
#[derive(Debug)]
struct Classes {
    /// Pages per segment from which segments are long.
    length: u64,
    long: RunSet,
    short: RunSet,
    long_pages: u64,
}

impl Classes {
    fn set(&mut self, long: bool) -> &mut RunSet {
        if long { &mut self.long } else { &mut self.short }
    }

    fn change(&mut self, before: Option<Zone>, after: Option<Zone>) {
        let class = |zone: Option<Zone>| zone.map(|zone| (zone.number, zone.has_length(self.length), zone.pages));
        let (before, after) = (class(before), class(after));
        for (sign, class) in [(-1, before), (1, after)] {
            if let Some((_, true, pages)) = class {
                self.long_pages = self.long_pages.wrapping_add_signed(sign * pages as i64);
            }
        }
        let place = |class: Option<(u64, bool, u64)>| class.map(|(number, long, _)| (number, long));
        if place(before) == place(after) {
            return;
        }
        if let Some((number, long)) = place(before) {
            self.set(long).remove(number, 1);
        }
        if let Some((number, long)) = place(after) {
            self.set(long).insert(number);
        }
    }
}

/// All zones with dirty pages.
#[derive(Debug)]
pub(super) struct Zones {
    /// Blocks of a zone.
    size: u64,
    entries: Vec<ZoneEntry>,
    free: Vec<u32>,
    table: SlotTable,
    by_pages: Option<Heap>,
    by_length: Option<Heap>,
    /// Zones, by pages, that are not in `by_length` for now: they came first there but had fewer pages than the
    /// average.
    poor: Heap,
    /// What the heaps are ordered by: each entry as it was when it was last put in order. A zone may change a thousand
    /// times before one is chosen; the heaps are put right when they are asked.
    ordered: Vec<ZoneEntry>,
    /// Entries to be put in order; some may be free by now.
    stale: Vec<u32>,
    classes: Option<Classes>,
    /// For each entry the sum of its pages' stamps, and that of all.
    stamps: Option<(Vec<u64>, u64)>,
    /// Blocks in all zones.
    pages: u64,
    /// Zones with dirty pages.
    used: u64,
    /// The zone that was changed last.
    latest: u32,
}

fn more(entries: &[ZoneEntry]) -> impl Fn(u32, u32) -> bool + '_ {
    |a, b| entries[a as usize].zone().by_pages(&entries[b as usize].zone()) == Ordering::Greater
}

fn longer(entries: &[ZoneEntry]) -> impl Fn(u32, u32) -> bool + '_ {
    |a, b| entries[a as usize].zone().by_length(&entries[b as usize].zone()) == Ordering::Greater
}

fn zone_hash(number: u64) -> Hash {
    scattered(2, number)
}

impl Zones {
    pub(super) fn new(size: u64, order: ZoneOrder) -> Zones {
        let classes = match order {
            ZoneOrder::Classes { length } => {
                Some(Classes { length: length.0, long: RunSet::new(0), short: RunSet::new(0), long_pages: 0 })
            }
            _ => None,
        };
        let pages = matches!(order, ZoneOrder::Pages | ZoneOrder::PagesAndLength);
        let length = matches!(order, ZoneOrder::Length | ZoneOrder::PagesAndLength | ZoneOrder::LengthAndAges);
        Zones {
            size,
            entries: Vec::new(),
            free: Vec::new(),
            table: SlotTable::default(),
            by_pages: pages.then(Heap::default),
            by_length: length.then(Heap::default),
            poor: Heap::default(),
            ordered: Vec::new(),
            stale: Vec::new(),
            classes,
            stamps: matches!(order, ZoneOrder::LengthAndAges).then(|| (Vec::new(), 0)),
            pages: 0,
            used: 0,
            latest: 0,
        }
    }

    /// Blocks of a zone.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// The number of the zone that holds `block`.
    pub(super) fn number(&self, block: u64) -> u64 {
        // A division takes long; most sizes are powers of two.
        if self.size.is_power_of_two() { block >> self.size.trailing_zeros() } else { block / self.size }
    }

    fn slot(&self, number: u64) -> Option<u32> {
        if self.entries.get(self.latest as usize).is_some_and(|entry| entry.number == number && entry.pages > 0) {
            return Some(self.latest);
        }
        self.table.find(zone_hash(number), |slot| self.entries[slot as usize].number == number)
    }

    fn add_slot(&mut self, number: u64) -> u32 {
        let mut entry = ZoneEntry { number, pages: 0, segments: 0 };
        let slot = if let Some(slot) = self.free.pop() {
            // It may wait to be put in order still.
            entry.segments = self.entries[slot as usize].segments & STALE;
            self.entries[slot as usize] = entry;
            slot
        } else {
            if self.entries.len() == self.entries.capacity() {
                self.entries.reserve_exact(self.entries.len() / 16 + 64);
            }
            self.entries.push(entry);
            (self.entries.len() - 1) as u32
        };
        let entries = &self.entries;
        self.table.insert(zone_hash(number), slot, entries.len(), |slot| zone_hash(entries[slot as usize].number));
        slot
    }

    /// Finds the zone of a block and reads it, so that the processor has it in its cache for a change.
    pub(super) fn warm(&mut self, block: u64) {
        if let Some(slot) = self.slot(self.number(block)) {
            self.latest = slot;
            std::hint::black_box(self.entries[slot as usize].pages);
        }
    }

    /// Changes the counts of the zone that holds `block`.
    pub(super) fn change(&mut self, block: u64, pages: i64, segments: i64) {
        let number = self.number(block);
        let (slot, new) = self.slot(number).map_or_else(|| (self.add_slot(number), true), |slot| (slot, false));
        let before = self.entries[slot as usize].zone();
        let entry = &mut self.entries[slot as usize];
        entry.pages = (i64::from(entry.pages) + pages) as u32;
        entry.segments = (i64::from(entry.segments & !FLAGS) + segments) as u32 | (entry.segments & FLAGS);
        let gone = entry.pages == 0;
        self.pages = self.pages.wrapping_add_signed(pages);
        self.used = self.used + u64::from(new) - u64::from(gone);
        self.latest = slot;
        if let Some(classes) = &mut self.classes {
            let after = entry.zone();
            classes.change((!new).then_some(before), (!gone).then_some(after));
        }
        if self.by_pages.is_some() || self.by_length.is_some() {
            if gone {
                self.leave_heaps(slot);
            } else if self.entries[slot as usize].segments & STALE == 0 {
                self.entries[slot as usize].segments |= STALE;
                push(&mut self.stale, slot);
            }
        }
        if gone {
            self.table.remove(zone_hash(number), slot);
            self.free.push(slot);
        }
    }

    fn leave_heaps(&mut self, slot: u32) {
        let ordered = &self.ordered;
        if let Some(heap) = self.by_pages.as_mut().filter(|heap| heap.holds(slot)) {
            heap.remove(slot, more(ordered));
        }
        if let Some(heap) = self.by_length.as_mut().filter(|heap| heap.holds(slot)) {
            heap.remove(slot, longer(ordered));
        }
        if self.poor.holds(slot) {
            self.poor.remove(slot, more(ordered));
        }
    }

    /// Puts those zones in order that have changed.
    fn put_in_order(&mut self) {
        while let Some(slot) = self.stale.pop() {
            let entry = &mut self.entries[slot as usize];
            entry.segments &= !STALE;
            if entry.pages == 0 {
                continue;
            }
            while self.ordered.len() <= slot as usize {
                push(&mut self.ordered, ZoneEntry { number: 0, pages: 0, segments: 0 });
            }
            self.ordered[slot as usize] = *entry;
            let ordered = &self.ordered;
            if let Some(heap) = &mut self.by_pages {
                if heap.holds(slot) { heap.changed(slot, more(ordered)) } else { heap.insert(slot, more(ordered)) }
            }
            if self.poor.holds(slot) {
                self.poor.changed(slot, more(ordered));
            } else if let Some(heap) = &mut self.by_length {
                if heap.holds(slot) { heap.changed(slot, longer(ordered)) } else { heap.insert(slot, longer(ordered)) }
            }
        }
    }

    /// Adds a page's stamp to the sum of the zone that holds `block`, or takes one off.
    pub(super) fn change_stamps(&mut self, block: u64, plus: u32, minus: u32) {
        if self.stamps.is_none() {
            return;
        }
        let Some(slot) = self.slot(self.number(block)) else { return };
        let Some((stamps, all)) = &mut self.stamps else { return };
        let add = |sum: u64| sum.wrapping_add(u64::from(plus)).wrapping_sub(u64::from(minus));
        while stamps.len() <= slot as usize {
            push(stamps, 0);
        }
        stamps[slot as usize] = add(stamps[slot as usize]);
        *all = add(*all);
    }

    /// The sum of stamps of the zone of this number, and that of all.
    pub(super) fn stamps(&self, number: u64) -> Option<(u64, u64)> {
        let (stamps, all) = self.stamps.as_ref()?;
        Some((stamps.get(self.slot(number)? as usize).copied().unwrap_or(0), *all))
    }

    /// Sets or clears the mark of a zone.
    pub(super) fn set_hit(&mut self, number: u64, hit: bool) {
        if let Some(slot) = self.slot(number) {
            let entry = &mut self.entries[slot as usize];
            entry.segments = if hit { entry.segments | HIT } else { entry.segments & !HIT };
        }
    }

    /// The zone of this number, when it holds dirty pages.
    pub(super) fn get(&self, number: u64) -> Option<Zone> {
        self.slot(number).map(|slot| self.entries[slot as usize].zone())
    }

    /// The zone with most dirty pages.
    pub(super) fn fullest(&mut self) -> Option<Zone> {
        self.put_in_order();
        let slot = self.by_pages.as_ref()?.first()?;
        Some(self.entries[slot as usize].zone())
    }

    /// The zone with the longest segments among those that have at least `shortest` pages per segment and, if
    /// `above_average`, at least as many pages as the average zone.
    ///
    /// What comes first by length but is below the average is put aside until the average has fallen to it: O(log n)
    /// each time that it is passed, not at each question.
    pub(super) fn longest(&mut self, shortest: u64, above_average: bool) -> Option<Zone> {
        self.put_in_order();
        let (entries, ordered, poor) = (&self.entries, &self.ordered, &mut self.poor);
        let heap = self.by_length.as_mut()?;
        let (used, pages) = (u128::from(self.used), u128::from(self.pages));
        let suffices = |zone: Zone| !above_average || u128::from(zone.pages) * used >= pages;
        while let Some(slot) = poor.first().filter(|&slot| suffices(entries[slot as usize].zone())) {
            poor.remove(slot, more(ordered));
            heap.insert(slot, longer(ordered));
        }
        while let Some(slot) = heap.first() {
            let zone = entries[slot as usize].zone();
            if !zone.has_length(shortest) {
                return None;
            }
            if suffices(zone) {
                return Some(zone);
            }
            heap.remove(slot, longer(ordered));
            poor.insert(slot, more(ordered));
        }
        None
    }

    /// The first zone of a class whose number is at least `number`.
    pub(super) fn next_in_class(&self, number: u64, long: bool) -> Option<Zone> {
        let classes = self.classes.as_ref()?;
        let set = if long { &classes.long } else { &classes.short };
        self.get(set.at_or_after(number)?.start.max(number))
    }

    /// Blocks in zones with long segments.
    pub(super) fn long_pages(&self) -> u64 {
        self.classes.as_ref().map_or(0, |classes| classes.long_pages)
    }

    /// How many zones hold dirty pages, and how many blocks they hold.
    pub(super) fn totals(&self) -> (u64, u64) {
        (self.used, self.pages)
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> usize {
        let heap = |heap: &Option<Heap>| heap.as_ref().map_or(0, Heap::bytes);
        self.entries.capacity() * size_of::<ZoneEntry>()
            + self.ordered.capacity() * size_of::<ZoneEntry>()
            + (self.free.capacity() + self.stale.capacity()) * size_of::<u32>()
            + self.table.bytes()
            + heap(&self.by_pages)
            + heap(&self.by_length)
            + self.poor.bytes()
            + self.stamps.as_ref().map_or(0, |(stamps, _)| stamps.capacity() * size_of::<u64>())
            + self.classes.as_ref().map_or(0, |classes| classes.long.bytes() + classes.short.bytes())
    }
}

#[cfg(test)]
mod tests;
