//! The identity of a branch.

use std::fmt;

use uuid::Uuid;

/// The identity that a branch keeps for life.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BranchUuid(pub Uuid);

impl fmt::Display for BranchUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.simple().fmt(f)
    }
}
