//! `wasl_zone`: the zone with most dirty pages, whole; on a tie the lowest number. All pages, in use or not.
//!
//! Memory that survives a power cut sets no deadline, so the choice is about place alone. Source: MRAM, 3.2.2 to 3.2.3.
//! (4.5.2 refers to zones of which a part is written; see `wasl_segment_zone`.)

use super::super::policy::PolicyInfo;
use super::zone::FullestZone;

pub(in super::super) const INFO: PolicyInfo = PolicyInfo {
    name: "wasl_zone",
    summary: "the zone with most dirty pages, zone by zone",
    source: "MRAM, 3.2, zone-based algorithm",
    params: &[super::zone_param("8MiB")],
    offline: false,
    keeps: "pages by block, zones by number of pages",
    build: |values| Box::new(FullestZone { blocks: values.pages("zone"), inactive_only: false }),
};
