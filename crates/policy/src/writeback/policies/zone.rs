//! `zone`: the zone with most dirty pages, whole; on a tie the lowest number. Inactive pages only.
//!
//! Pages of one zone lie close to each other, so that the head moves little between them. Source: TESA, III-A, equation
//! 1, and III-B.

use umbrella_units::{Nanos, Pages};

use super::super::event::DirtyPage;
use super::super::index::{BlockNeeds, DirtyIndex, Needs, Segments, ZoneNeeds, ZoneOrder};
use super::super::policy::{Policy, PolicyInfo, SelectionTarget};

pub(in super::super) const INFO: PolicyInfo = PolicyInfo {
    name: "zone",
    summary: "inactive pages of the zone with most of them, zone by zone",
    source: "TESA, III-A, equation 1",
    params: &[super::zone_param("8MiB")],
    offline: false,
    keeps: "inactive pages by block, zones by number of pages",
    build: |values| Box::new(FullestZone { blocks: values.pages("zone"), inactive_only: true }),
};

/// The fullest zone first; shared with `wasl_zone`.
pub(super) struct FullestZone {
    pub(super) blocks: Pages,
    pub(super) inactive_only: bool,
}

impl Policy for FullestZone {
    fn needs(&self) -> Needs {
        let zones = Some(ZoneNeeds { blocks: self.blocks.0, order: ZoneOrder::Pages });
        let blocks = Some(BlockNeeds { segments: Segments::InZones, zones });
        Needs { inactive_only: self.inactive_only, blocks, ..Needs::default() }
    }

    fn select(&mut self, _now: Nanos, want: Pages, index: &mut DirtyIndex, out: &mut Vec<DirtyPage>) {
        let goal = SelectionTarget::new(want, out);
        while !goal.is_met(out) {
            let Some(zone) = index.fullest_zone() else { return };
            index.take_zone(zone, out);
        }
    }
}
