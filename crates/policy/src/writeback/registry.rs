//! The list of policies. A new policy is one file, and one line here.

use super::policies::{
    clairvoyant, cscan, file, lrw, recency, segment, sorted, stow, sweep, two_queue, two_queue_sorted, wasl_segment,
    wasl_segment_zone, wasl_zone, wow, write_minimal, zone, zone_segment,
};
use super::policy::PolicyInfo;
use crate::error::PolicyError;

static POLICIES: &[PolicyInfo] = &[
    file::INFO,
    recency::INFO,
    segment::INFO,
    zone::INFO,
    zone_segment::INFO,
    wasl_zone::INFO,
    wasl_segment::INFO,
    wasl_segment_zone::INFO,
    two_queue::INFO,
    sorted::INFO,
    two_queue_sorted::INFO,
    lrw::INFO,
    cscan::INFO,
    wow::INFO,
    stow::INFO,
    sweep::INFO,
    clairvoyant::INFO,
    write_minimal::INFO,
];

/// All policies, in the order of the documentation.
pub fn policies() -> &'static [PolicyInfo] {
    POLICIES
}

/// The policy of this name.
pub fn find_policy(name: &str) -> Result<&'static PolicyInfo, PolicyError> {
    let unknown = || PolicyError::unknown(name, POLICIES.iter().map(|info| info.name).collect());
    POLICIES.iter().find(|info| info.name == name).ok_or_else(unknown)
}
