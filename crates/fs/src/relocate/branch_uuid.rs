//! Who a branch is.

use std::fmt;

/// The identity that a branch keeps for life.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BranchUuid(pub [u8; 16]);

impl fmt::Display for BranchUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
