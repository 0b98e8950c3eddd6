//! `wasl_segment_zone`: the zone with the longest segments, whole. All pages, in use or not.
//!
//! Segments are counted inside the zone: a run ends at its border. The average segment length alone decides: no
//! threshold, no minimum of pages, no recency, so that one zone with a single long run goes before a full one. On a tie
//! (the source names none) the zone with most pages, then the lowest number. Source: MRAM, 3.2.6 to 3.2.7, figures 3.8
//! to 3.10.
//!
//! The source says two things about a zone that holds more than was asked for. Chosen zones are written whole (3.2.2,
//! and the algorithms of figures 3.5 and 3.10). Of a large zone much less is written than is sorted (4.5.2). Here it is
//! written whole.

use umbrella_units::{Nanos, Pages};

use super::super::event::DirtyPage;
use super::super::index::{BlockNeeds, DirtyIndex, Needs, Segments, ZoneNeeds, ZoneOrder};
use super::super::policy::{Policy, PolicyInfo, SelectionTarget};

pub(in super::super) const INFO: PolicyInfo = PolicyInfo {
    name: "wasl_segment_zone",
    summary: "the zone with the longest segments, zone by zone (WASL hybrid)",
    source: "MRAM, 3.2, hybrid segment/zone algorithm, figures 3.8 to 3.10",
    params: &[super::zone_param("8MiB")],
    offline: false,
    keeps: "pages by block, zones by length of segments",
    build: |values| Box::new(LongestZone { blocks: values.pages("zone") }),
};

struct LongestZone {
    blocks: Pages,
}

impl Policy for LongestZone {
    fn needs(&self) -> Needs {
        let zones = Some(ZoneNeeds { blocks: self.blocks.0, order: ZoneOrder::Length });
        Needs { blocks: Some(BlockNeeds { segments: Segments::InZones, zones }), ..Needs::default() }
    }

    fn select(&mut self, _now: Nanos, want: Pages, index: &mut DirtyIndex, out: &mut Vec<DirtyPage>) {
        let goal = SelectionTarget::new(want, out);
        while !goal.is_met(out) {
            let Some(zone) = index.longest_zone(Pages(0), false) else { return };
            index.take_zone(zone, out);
        }
    }
}
