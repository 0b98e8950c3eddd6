//! `sweep`: around the disk in block order, stopping where pages have waited long enough to pay for the stop, and
//! leaving pages in use alone. Ours.
//!
//! The circular elevator wastes least on long seeks, but stops for every lone page. The choice by zones stops only
//! where much is to be had, but crosses the disk between its stops. `sweep` goes round like the first and chooses among
//! its stops:
//!
//! 1. The disk is cut into regions. The cost of a stop is counted in page transfers: the region's pages, and one
//!    positioning to get there (or the region's length, if that is less). Each further segment adds a positioning, or
//!    all that is clean in the region where passing over it is quicker. For the cost of all dirty pages each segment
//!    counts as if it stood alone: a positioning each.
//! 2. A dirty page pays rent for the memory it holds: the time since its last write. One stop with twice as many pages
//!    saves something against two stops. A region is due when the rent of its pages, per that saving, is at least `due`
//!    percent of the rent per cost of all dirty pages.
//!
//!    The reason: let pages come to region r at a rate of a(r), with stops at intervals of t(r). The stops cost c /
//!    t(r) beside what each page costs anyway. The pages hold a(r) t(r) / 2 pages of memory. For a given memory the
//!    cost is least when a(r) t(r)^2 / c is the same everywhere, and a(r) t(r)^2 / 2 is the rent at the stop. So poor
//!    regions are visited seldom, rich ones often, and none waits for ever. A page that is written again and again pays
//!    hardly any rent. Where segments lie so far apart that a positioning each is needed, waiting saves nothing, and
//!    the region is due.
//! 3. In a region, segments with no more than a positioning between them are one cluster. A cluster is left for the
//!    next round when most of its pages are in use. In use are active pages, and pages written more than once whose
//!    last write is less than a share of the last round ago. If a page is written again before the head returns,
//!    writing it now would be wasted. A page in use among others that are not is written with them: it costs a
//!    transfer, to spare it would cost a positioning.
//! 4. Streams among scattered pages do not wait for the head. A region is a `bargain` when its segments are as long as
//!    a positioning on average, and its pages cost a quarter of the average or less. Bargains are written first, the
//!    longest segments before others, until the longest are no bargain. Their pages gain nothing by staying. The memory
//!    is worth more to scattered pages, which may be written again, or get neighbours.
//! 5. The system writes a page by itself after a time (`expire`). When the disk is so far behind that a page stays
//!    dirty for half of that time, nothing is passed by: it would be written then, wherever the head is.
//! 6. If a whole round has not given enough, regions that are not due are taken as well, and after another round pages
//!    in use. A round may give hardly anything: a 64th of what is dirty. The next selections then do without its kind
//!    for an eighth of what is dirty, so that selections of a few pages do not each go round in vain.
//!
//! Regions are written whole, so a selection may exceed what was wanted by a region.

use umbrella_units::{BlockNo, Extent, Nanos, Pages};

use super::super::event::DirtyPage;
use super::super::index::{BlockNeeds, DirtyIndex, Needs, Segments, Zone, ZoneNeeds, ZoneOrder};
use super::super::policy::{Policy, PolicyInfo, SelectionTarget};
use crate::param_info::{ParamInfo, ParamKind};
use crate::params::ParamValues;

pub(in super::super) const INFO: PolicyInfo = PolicyInfo {
    name: "sweep",
    summary: "around the disk in block order, stopping where pages have waited long enough to pay for it",
    source: "our own",
    params: &[
        ParamInfo {
            name: "region",
            kind: ParamKind::Bytes,
            default: "4MiB",
            min: "4KiB",
            max: "64GiB",
            help: "size of a region, which is skipped or written as a whole",
        },
        ParamInfo {
            name: "position",
            kind: ParamKind::Bytes,
            default: "512KiB",
            min: "4KiB",
            max: "64MiB",
            help: "how much the disk could transfer in the time of a short seek",
        },
        ParamInfo {
            name: "due",
            kind: ParamKind::Number,
            default: "150",
            min: "0",
            max: "1000",
            help: "percentage of the average wait per cost from which a region is written",
        },
        ParamInfo {
            name: "fresh",
            kind: ParamKind::Number,
            default: "50",
            min: "0",
            max: "1000",
            help: "percentage of a round for which a page written repeatedly counts as in use",
        },
        ParamInfo {
            name: "expire",
            kind: ParamKind::Duration,
            default: "30s",
            min: "0s",
            max: "1d",
            help: "the age at which a page is written wherever the head is; 0s: never",
        },
        ParamInfo {
            name: "bargain",
            kind: ParamKind::Number,
            default: "4",
            min: "0",
            max: "1000",
            help: "how many times cheaper than the average page a stream's pages must be for the head to leave its \
                round; 0: never",
        },
    ],
    offline: false,
    keeps: "pages by block, regions with their pages, segments and ages",
    build: |values| Box::new(Sweep::new(values)),
};

/// How much of what the sweep would pass by it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Pressure {
    /// Only regions that are due, without pages in use.
    None,
    /// All regions, without pages in use.
    AllRegions,
    /// All pages.
    All,
}

struct Sweep {
    region: u64,
    position: u64,
    due: u64,
    fresh: u64,
    expire: Nanos,
    bargain: u128,
    /// Where the sweep continues.
    head: BlockNo,
    /// When the head last began a round, if it ever did, and how long the round before took.
    began: Option<Nanos>,
    round: Nanos,
    /// Pages selected since, by the selection in which the round began as well.
    written: u64,
    /// How long a page stays dirty at the pace of the round (Little's law).
    stay: Nanos,
    /// How many pages are still to be taken without the rounds before this pressure, which gave hardly anything.
    urgent: (Pressure, u64),
}

impl Sweep {
    fn new(values: &ParamValues) -> Sweep {
        Sweep {
            region: values.pages("region").0,
            position: values.pages("position").0,
            due: values.number("due"),
            fresh: values.number("fresh"),
            expire: values.duration("expire"),
            bargain: u128::from(values.number("bargain")),
            head: BlockNo(0),
            began: None,
            round: Nanos(0),
            written: 0,
            stay: Nanos(0),
            urgent: (Pressure::None, 0),
        }
    }

    /// How long this round has taken; the first begins when it is first asked.
    fn took(&mut self, now: Nanos) -> Nanos {
        now - *self.began.get_or_insert(now)
    }

    /// The next region with dirty pages; a new round begins when there is none ahead.
    fn next(&mut self, now: Nanos, index: &DirtyIndex) -> Option<Zone> {
        let ahead = index.segment_from(self.head).or_else(|| {
            let took = self.took(now);
            if took > Nanos(0) {
                (self.round, self.began, self.written) = (took, Some(now), 0);
            }
            index.segment_from(BlockNo(0))
        });
        let region = index.zone_of(ahead?.start)?;
        self.head = BlockNo((region.number + 1).saturating_mul(self.region));
        Some(region)
    }

    /// What it costs to write the region, in page transfers.
    fn cost(&self, region: Zone) -> u64 {
        self.cost_of(region.pages, region.segments)
    }

    fn cost_of(&self, pages: u64, segments: u64) -> u64 {
        let gaps = self.region.saturating_sub(pages);
        pages + self.position.min(self.region) + (segments.saturating_sub(1) * self.position).min(gaps)
    }

    /// What is saved if the region is written once with twice as much rather than twice, in page transfers.
    fn saving(&self, region: Zone) -> u64 {
        (2 * self.cost(region)).saturating_sub(self.cost_of(2 * region.pages, 2 * region.segments))
    }

    /// What it costs to write all pages, in page transfers: each segment for itself.
    fn cost_of_all(&self, index: &DirtyIndex) -> u128 {
        u128::from(index.dirty_blocks().0) + u128::from(index.segments()) * u128::from(self.position)
    }

    /// Writes regions of long segments whose pages are `bargain` times cheaper than the average page.
    fn take_bargains(&self, goal: SelectionTarget, index: &mut DirtyIndex, out: &mut Vec<DirtyPage>) {
        while self.bargain > 0 && !goal.is_met(out) {
            let Some(region) = index.longest_zone(Pages(self.position), false) else { return };
            let average = self.cost_of_all(index) * u128::from(region.pages);
            if average < self.bargain * u128::from(self.cost(region)) * u128::from(index.dirty_blocks().0) {
                return;
            }
            index.take_zone(region, out);
        }
    }

    /// Estimates how long a page stays dirty, once enough of this round is done to tell: an eighth of what is dirty.
    fn note_pace(&mut self, now: Nanos, index: &DirtyIndex) {
        let (dirty, took) = (index.dirty_blocks().0, self.took(now));
        if self.written >= dirty / 8 && self.written > 0 && took > Nanos(0) {
            let stay = u128::from(took.0) * u128::from(dirty) / u128::from(self.written);
            self.stay = Nanos(u64::try_from(stay).unwrap_or(u64::MAX));
        }
    }

    /// Whether pages that are passed by would be written by the system before the head is back.
    fn is_late(&self) -> bool {
        self.expire > Nanos(0) && self.stay.0.saturating_mul(2) >= self.expire.0
    }

    fn is_due(&self, region: Zone, now: Nanos, index: &DirtyIndex) -> bool {
        let Some((mine, all)) = index.zone_age(region, now) else { return true };
        let saving = u128::from(self.saving(region));
        // In milliseconds, so that no product leaves 128 bits.
        let (mine, all) = (u128::from(mine.0 / 1_000_000), u128::from(all.0 / 1_000_000));
        mine * self.cost_of_all(index) * 100 >= all * saving * u128::from(self.due)
    }

    fn is_in_use(&self, block: BlockNo, now: Nanos, index: &DirtyIndex) -> bool {
        let fresh = Nanos((self.round.0 / 100).saturating_mul(self.fresh));
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
        let zones = Some(ZoneNeeds { blocks: self.region, order: ZoneOrder::LengthAndAges });
        Needs { blocks: Some(BlockNeeds { segments: Segments::InZones, zones }), ..Needs::default() }
    }

    fn select(&mut self, now: Nanos, want: Pages, index: &mut DirtyIndex, out: &mut Vec<DirtyPage>) {
        let (goal, before) = (SelectionTarget::new(want, out), out.len());
        self.note_pace(now, index);
        self.take_bargains(goal, index, out);
        let least = match self.urgent {
            _ if self.is_late() => Pressure::All,
            (pressure, 1..) => pressure,
            _ => Pressure::None,
        };
        let (mut begun, mut in_vain) = (out.len(), None);
        for pressure in [Pressure::None, Pressure::AllRegions, Pressure::All].into_iter().filter(|&this| this >= least)
        {
            if pressure > least && !goal.is_met(out) && ((out.len() - begun) as u64) < index.dirty_blocks().0 / 64 {
                in_vain = Some(pressure);
            }
            begun = out.len();
            let mut left = index.dirty_zones();
            while left > 0 && !goal.is_met(out) {
                let Some(region) = self.next(now, index) else { break };
                left -= 1;
                if pressure > Pressure::None || self.is_due(region, now, index) {
                    self.write(region, now, pressure, index, out);
                }
            }
        }
        let taken = (out.len() - before) as u64;
        self.written += taken;
        self.urgent = match in_vain {
            Some(pressure) => (pressure, index.dirty_blocks().0 / 8),
            None => (self.urgent.0, self.urgent.1.saturating_sub(taken)),
        };
    }
}
