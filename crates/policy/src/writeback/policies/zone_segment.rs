//! `zone_segment`: the zone with the longest segments if they are long, else the zone with most dirty pages. Inactive
//! pages only.
//!
//! Only the zones with at least as many dirty pages as the average zone are candidates. The one with the greatest
//! average segment length (ASL) is the target, if that is at least `alpha`; else the choice is that of `zone`. The
//! target is written whole and the choice made again. A segment belongs to the zone of its first block, with all its
//! blocks: the segments of the paper hold their pages, and a zone its segments. So ASL is truly the mean length of the
//! segments that begin in a zone. Source: TESA, III-A, equations 2 to 4, and III-C.

use umbrella_units::{Nanos, Pages};

use super::super::event::DirtyPage;
use super::super::index::{BlockNeeds, DirtyIndex, Needs, Segments, ZoneNeeds, ZoneOrder};
use super::super::policy::{Policy, PolicyInfo, SelectionTarget};
use crate::param_info::{ParamInfo, ParamKind};

pub(in super::super) const INFO: PolicyInfo = PolicyInfo {
    name: "zone_segment",
    summary: "inactive pages of the zone with the longest segments if these are long, else of the fullest zone (TESA)",
    source: "TESA, III-A, equations 2 to 4",
    params: &[
        ParamInfo {
            name: "alpha",
            kind: ParamKind::Number,
            default: "50",
            min: "0",
            max: "1000000000",
            help: "average pages per segment from which a zone is chosen for its segments",
        },
        super::zone_param("8MiB"),
    ],
    offline: false,
    keeps: "inactive pages by block, zones by number of pages and by length of segments",
    build: |values| Box::new(ZoneSegment { alpha: Pages(values.number("alpha")), blocks: values.pages("zone").0 }),
};

struct ZoneSegment {
    alpha: Pages,
    blocks: u64,
}

impl Policy for ZoneSegment {
    fn needs(&self) -> Needs {
        let zones = Some(ZoneNeeds { blocks: self.blocks, order: ZoneOrder::PagesAndLength });
        Needs { inactive_only: true, blocks: Some(BlockNeeds { segments: Segments::Whole, zones }), ..Needs::default() }
    }

    fn select(&mut self, _now: Nanos, want: Pages, index: &mut DirtyIndex, out: &mut Vec<DirtyPage>) {
        let goal = SelectionTarget::new(want, out);
        while !goal.is_met(out) {
            let target = index.longest_zone(self.alpha, true).or_else(|| index.fullest_zone());
            let Some(zone) = target else { return };
            index.take_zone(zone, out);
        }
    }
}
