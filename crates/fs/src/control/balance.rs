//! Reports on the balance of a group.

use serde::{Deserialize, Serialize};
use umbrella_units::ByteSize;

/// Totals of a balance.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BalanceSummary {
    /// The members that were evened out.
    pub members: Vec<MemberShare>,
    /// Bytes that were to move.
    pub bytes_planned: ByteSize,
    /// Files looked at.
    pub files_seen: u64,
    /// Files moved, or that would move.
    pub files_moved: u64,
    /// Their bytes.
    pub bytes_moved: ByteSize,
    /// Files that were busy.
    pub files_busy: u64,
    /// Files that could not be read or moved.
    pub files_failed: u64,
    /// Files for which there was no room any more.
    pub files_no_room: u64,
    /// It was ended before its end.
    pub stopped: bool,
    /// Files that were to move next then.
    #[serde(default)]
    pub files_left: u64,
}

/// How full a member is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MemberShare {
    /// Its name.
    pub branch: String,
    /// Size, as `status` has it.
    pub size: ByteSize,
    /// Bytes in use at the beginning, with what is kept for root.
    pub used: ByteSize,
    /// Bytes in use at the end; of a dry run, as planned.
    pub used_after: ByteSize,
}
