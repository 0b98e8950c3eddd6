//! The list of policies. A new policy is one file, and one line here.

use super::policies::{
    clairvoyant, cscan, file, lrw, recency, segment, sorted, stow, sweep, two_queue, two_queue_sorted, wasl_segment,
    wasl_segment_zone, wasl_zone, wow, write_minimal, zone, zone_segment,
};
use super::policy::Policy;
use crate::error::PolicyError;
use crate::params::{ParamInfo, Values};

/// What there is to know of a policy.
#[derive(Debug, Clone, Copy)]
pub struct PolicyInfo {
    /// Its name.
    pub name: &'static str,
    /// What it does, in a line.
    pub summary: &'static str,
    /// The paper and section that it comes from.
    pub source: &'static str,
    /// Its parameters.
    pub params: &'static [ParamInfo],
    /// Whether it has to be told the future, which only the lab can.
    pub offline: bool,
    /// What it keeps of the dirty pages, in words.
    pub keeps: &'static str,
    /// Makes one.
    pub build: fn(&Values) -> Box<dyn Policy>,
}

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
