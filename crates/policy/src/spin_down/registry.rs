//! The list of spin-down policies. A new policy is one file, and one line here.

use super::{SpinDownInfo, adaptive, fixed, never, optimum, rent_to_buy};
use crate::error::PolicyError;

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
