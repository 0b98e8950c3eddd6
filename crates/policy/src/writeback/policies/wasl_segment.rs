//! `wasl_segment`: the longest run of dirty blocks, whole; on a tie the lowest block. All pages, in use or not.
//!
//! Runs are not cut at zones here; only the hybrid of the two knows both. Source: MRAM, 3.2.4 to 3.2.5, figure 3.7.

use super::super::policy::PolicyInfo;
use super::segment::LongestSegment;

pub(in super::super) const INFO: PolicyInfo = PolicyInfo {
    name: "wasl_segment",
    summary: "the longest run of dirty blocks, run by run",
    source: "MRAM, 3.2, segment-based algorithm, figure 3.7",
    params: &[],
    offline: false,
    keeps: "pages by block, runs by length",
    build: |_| Box::new(LongestSegment { inactive_only: false }),
};
