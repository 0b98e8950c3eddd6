//! The list of spin-down policies. A new policy is one file, and one line here.

use super::costs::Costs;
use super::{Timeout, adaptive, fixed, never, optimum, rent_to_buy};
use crate::error::PolicyError;
use crate::params::{ParamInfo, Values};

/// What there is to know of a spin-down policy.
#[derive(Debug, Clone, Copy)]
pub struct SpinDownInfo {
    /// Its name.
    pub name: &'static str,
    /// What it does, in a line.
    pub summary: &'static str,
    /// The paper that it comes from.
    pub source: &'static str,
    /// Its parameters.
    pub params: &'static [ParamInfo],
    /// Whether it has to be told the future, which only the lab can.
    pub offline: bool,
    /// Makes one.
    pub build: fn(&Values, Costs) -> Box<dyn Timeout>,
}

static SPIN_DOWNS: &[SpinDownInfo] = &[never::INFO, fixed::INFO, adaptive::INFO, rent_to_buy::INFO, optimum::INFO];

/// All spin-down policies, in the order of the documentation.
pub fn spin_downs() -> &'static [SpinDownInfo] {
    SPIN_DOWNS
}

/// The spin-down policy of this name.
pub fn find_spin_down(name: &str) -> Result<&'static SpinDownInfo, PolicyError> {
    let unknown = || PolicyError::unknown(name, SPIN_DOWNS.iter().map(|info| info.name).collect());
    SPIN_DOWNS.iter().find(|info| info.name == name).ok_or_else(unknown)
}
