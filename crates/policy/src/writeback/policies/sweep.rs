//! `sweep`: around the disk in block order, stopping only where a stop is worth it, and leaving pages in use alone. Ours.
//!
//! The circular elevator wastes the least on long seeks but stops for every lone page; the choice by zones stops only
//! where much is to be had but crosses the disk between its stops. `sweep` goes round like the first and chooses
//! like the second:
//!
//! 1. The disk is cut into regions. What a region would cost is reckoned in page transfers: its pages, and for each of its
//!    segments one positioning, or the gaps between them where passing over a gap is quicker than positioning anew. Its
//!    worth is pages per cost.
//! 2. The head goes on from where it is to the next region whose worth is at least `worth` percent of what the average
//!    page costs now, over all dirty pages. Regions worth less stay and gather pages until they pass, or are passed by: as
//!    poor regions pile up, the average sinks to them, so that none waits for ever.
//! 3. In a region, segments that lie closer than a positioning are one cluster. A cluster is left for the next round
//!    when most of its pages are in use: active, or written more than once and the last time less than a share of
//!    the last round ago (what is written again before the head returns would be written in vain). A page in use among
//!    others that are not is written with them: it costs a transfer, to spare it would cost a positioning.
//! 4. If a whole round has not given enough, poor regions are taken as well, and after another round pages in use.
//!
//! Regions are written whole, so that a selection may exceed what was wanted by a region.

use umbrella_units::{BlockNo, Extent, Nanos, Pages};

use super::super::event::DirtyPage;
use super::super::index::{BlockNeeds, DirtyIndex, Needs, Segments, Zone, ZoneNeeds, ZoneOrder};
use super::super::params::{ParamInfo, ParamKind, Values};
use super::super::policy::{Goal, Policy};
use super::super::registry::PolicyInfo;

pub(in super::super) const INFO: PolicyInfo = PolicyInfo {
    name: "sweep",
    summary: "around the disk in block order, stopping where it is worth it, leaving pages in use for the next round",
    source: "our own",
    params: &[
        ParamInfo {
            name: "region",
            kind: ParamKind::Bytes,
            default: "4MiB",
            min: "4KiB",
            max: "64GiB",
            help: "size of a region, which is passed by or written as a whole",
        },
        ParamInfo {
            name: "position",
            kind: ParamKind::Bytes,
            default: "512KiB",
            min: "4KiB",
            max: "64MiB",
            help: "what the disk could transfer in the time of a short positioning",
        },
        ParamInfo {
            name: "worth",
            kind: ParamKind::Number,
            default: "60",
            min: "0",
            max: "1000",
            help: "percentage of the average worth of a page from which a region is written",
        },
        ParamInfo {
            name: "fresh",
            kind: ParamKind::Number,
            default: "50",
            min: "0",
            max: "1000",
            help: "percentage of a round for which a page written repeatedly counts as in use",
        },
    ],
    offline: false,
    keeps: "pages by block, regions with their pages and segments",
    build: |values| Box::new(Sweep::new(values)),
};

/// How much of what the sweep would pass by it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Pressure {
    /// Only regions that are worth it, without pages in use.
    None,
    /// All regions, without pages in use.
    PoorRegions,
    /// All pages.
    All,
}

struct Sweep {
    region: u64,
    position: u64,
    worth: u64,
    fresh: u64,
    /// Where the sweep goes on.
    head: BlockNo,
    /// When the head last began a round, and how long the round before took.
    began: Nanos,
    round: Nanos,
}

impl Sweep {
    fn new(values: &Values) -> Sweep {
        Sweep {
            region: values.pages("region").0,
            position: values.pages("position").0,
            worth: values.number("worth"),
            fresh: values.number("fresh"),
            head: BlockNo(0),
            began: Nanos(0),
            round: Nanos(0),
        }
    }

    /// The next region with dirty pages; a new round begins when there is none ahead.
    fn next(&mut self, now: Nanos, index: &DirtyIndex) -> Option<Zone> {
        let ahead = index.segment_from(self.head).or_else(|| {
            if now > self.began {
                self.round = now - self.began;
                self.began = now;
            }
            index.segment_from(BlockNo(0))
        });
        let region = index.zone_of(ahead?.start)?;
        self.head = BlockNo((region.number + 1).saturating_mul(self.region));
        Some(region)
    }

    /// What it costs to write the region, in page transfers.
    fn cost(&self, region: Zone) -> u64 {
        let gaps = self.region.saturating_sub(region.pages);
        region.pages + self.position.min(self.region) + ((region.segments - 1) * self.position).min(gaps)
    }

    fn is_worth_it(&self, region: Zone, index: &DirtyIndex) -> bool {
        let (pages, segments) = (index.dirty_blocks().0, index.segments());
        let average_cost = u128::from(pages) + u128::from(segments) * u128::from(self.position);
        let mine = u128::from(region.pages) * average_cost * 100;
        mine >= u128::from(self.worth) * u128::from(pages) * u128::from(self.cost(region))
    }

    fn is_in_use(&self, block: BlockNo, now: Nanos, index: &DirtyIndex) -> bool {
        let fresh = Nanos(self.round.0 / 100 * self.fresh);
        index.usage_at(block, now).is_some_and(|page| page.active || (page.writes > 1 && page.age < fresh))
    }

    /// Whether most pages of the segments are in use.
    fn are_in_use(&self, cluster: &[Extent], now: Nanos, index: &DirtyIndex) -> bool {
        let pages: u64 = cluster.iter().map(|segment| segment.blocks).sum();
        let blocks = cluster.iter().flat_map(|segment| (segment.start.0..segment.end().0).map(BlockNo));
        2 * blocks.filter(|&block| self.is_in_use(block, now, index)).count() as u64 > pages
    }

    fn write(&self, region: Zone, now: Nanos, pressure: Pressure, index: &mut DirtyIndex, out: &mut Vec<DirtyPage>) {
        if pressure == Pressure::All {
            index.take_zone(region, out);
            return;
        }
        let mut cluster: Vec<Extent> = Vec::new();
        let mut next = index.segment_from(BlockNo(region.number.saturating_mul(self.region)));
        loop {
            let segment = next.filter(|segment| segment.start < self.head);
            let joins = match (segment, cluster.last()) {
                (Some(segment), Some(last)) => segment.start.0 - last.end().0 <= self.position,
                (segment, _) => segment.is_some(),
            };
            if let (Some(segment), true) = (segment, joins) {
                cluster.push(segment);
                next = index.segment_from(segment.end());
                continue;
            }
            if !self.are_in_use(&cluster, now, index) {
                for &segment in &cluster {
                    index.take_blocks(segment, out);
                }
            }
            cluster.clear();
            if segment.is_none() {
                return;
            }
        }
    }
}

impl Policy for Sweep {
    fn needs(&self) -> Needs {
        let zones = Some(ZoneNeeds { blocks: self.region, order: ZoneOrder::Unordered });
        Needs { blocks: Some(BlockNeeds { segments: Segments::InZones, zones }), ..Needs::default() }
    }

    fn select(&mut self, now: Nanos, want: Pages, index: &mut DirtyIndex, out: &mut Vec<DirtyPage>) {
        let goal = Goal::new(want, out);
        for pressure in [Pressure::None, Pressure::PoorRegions, Pressure::All] {
            let mut left = index.dirty_zones();
            while left > 0 && !goal.is_met(out) {
                let Some(region) = self.next(now, index) else { return };
                left -= 1;
                if pressure > Pressure::None || self.is_worth_it(region, index) {
                    self.write(region, now, pressure, index, out);
                }
            }
        }
    }
}
