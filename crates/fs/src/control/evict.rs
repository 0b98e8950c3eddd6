//! Reports on fill levels.

use serde::{Deserialize, Serialize};
use umbrella_units::{Amount, ByteSize};

/// The fill level of a branch or group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EvictStatus {
    /// Name of the branch or group.
    pub of: String,
    /// Its size.
    pub total: ByteSize,
    /// Used space.
    pub used: ByteSize,
    /// Files leave above this.
    pub above: Amount,
    /// Until this.
    pub until: Amount,
    /// What happens now.
    pub state: EvictState,
    /// Files that left since the mount.
    pub files_moved: u64,
    /// Their bytes.
    pub bytes_moved: ByteSize,
    /// Paths of what leaves next, as far as that is known.
    pub next: Vec<String>,
    /// What could not leave when the branch was looked through last.
    pub stays: Vec<EvictStays>,
}

/// What a fill level does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EvictState {
    /// Nothing has to leave: at or below the high mark, or below it on the way there.
    Below,
    /// Above the high mark; what may leave is looked for next: within seconds, and in an idle pool once it is used.
    Due,
    /// Above the high mark, outside of its hours.
    AwaitsHours,
    /// Files leave.
    Moving,
    /// Files leave, in its hours or not: less than `min_free` is free.
    MovingShort,
    /// Nothing more could leave; it looks again later.
    Rests,
    /// A branch is offline.
    Offline,
}

/// Files that stay, for one reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvictStays {
    /// Why.
    pub why: EvictStay,
    /// How many.
    pub files: u64,
    /// What they occupy.
    pub bytes: ByteSize,
}

/// Why a file does not leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EvictStay {
    /// `only` or `min_age` leaves it out.
    Excluded,
    /// Its own list names no other branch for it.
    Nowhere,
    /// Where it may go has no room, or is offline.
    NoRoom,
    /// `min_stay`
    Held,
    /// The file was open, or it changed.
    InUse,
    /// It could not be moved.
    Failed,
}
