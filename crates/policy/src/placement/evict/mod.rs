//! Fill levels: when a branch or group is too full, which files leave it, and where they go.
//!
//! - A fill level begins above its high mark, in its hours; below `min_free` at any hour. It ends at its low mark.
//! - A file goes only where its own rule's list allows. That is an entry after the one that it is on or, where `to` is
//!   given, those entries of `to` that the file's list names.
//! - Files that come to a branch with a fill level because a rule prefers it stop at the low mark
//!   ([`super::Rules::limit_arrivals`]), and so do files that another fill level sends. No move between branches makes
//!   a fill level begin, so two never send files to and fro.

mod selection;

use std::time::Duration;

use umbrella_units::{Amount, BranchId, ByteSize, Timestamp};

use super::expression::Expression;
use super::facts::{BranchView, FileFacts, view};
use super::slot::Set;
use super::spec::EvictOrder;
use crate::heat::Opens;
use crate::schedule::Schedule;

pub use selection::Selection;

/// The fill level of a branch or group, compiled.
#[derive(Debug, Clone)]
pub struct Evict {
    /// Name of the branch or group.
    pub of: String,
    /// Its branches.
    pub members: Vec<BranchId>,
    /// The high mark.
    pub above: Amount,
    /// The low mark.
    pub until: Amount,
    /// Which file leaves first.
    pub order: EvictOrder,
    /// Hours of the week; without any, always.
    pub window: Schedule,
    /// Where files go; empty: to what follows in their lists.
    pub(super) to: Vec<Set>,
    pub(super) only: Expression,
    pub(super) min_age: Duration,
}

/// How full a branch or group is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Level {
    /// Size.
    pub total: ByteSize,
    /// What is not free.
    pub used: ByteSize,
    /// What is missing to `min_free`.
    pub short: ByteSize,
}

/// Why files leave now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Urgency {
    /// The level is above the high mark.
    Level,
    /// Less than `min_free` is free: hours and `min_stay` do not count.
    Short,
}

impl Evict {
    /// How full it is, by its branches that are online; `None` while none is.
    pub fn level(&self, branches: &[BranchView]) -> Option<Level> {
        let views = self.members.iter().filter_map(|id| view(branches, *id)).filter(|view| view.online);
        let levels = views.map(|view| Level {
            total: view.total,
            used: ByteSize(view.total.0.saturating_sub(view.free.0)),
            short: ByteSize(view.min_free.0.saturating_sub(view.free.0)),
        });
        levels.reduce(|one, other| Level {
            total: ByteSize(one.total.0.saturating_add(other.total.0)),
            used: ByteSize(one.used.0.saturating_add(other.used.0)),
            short: ByteSize(one.short.0.saturating_add(other.short.0)),
        })
    }

    /// Whether files are to leave.
    pub fn begins(&self, level: Level, in_hours: bool) -> Option<Urgency> {
        if level.short.0 > 0 {
            return Some(Urgency::Short);
        }
        (in_hours && level.used > self.above.of(level.total)).then_some(Urgency::Level)
    }

    /// What has to come free until it ends.
    pub fn excess(&self, level: Level) -> ByteSize {
        ByteSize(level.used.0.saturating_sub(self.until.of(level.total).0).max(level.short.0))
    }

    /// By its order: the file with the lowest key leaves first.
    pub fn key(&self, facts: &FileFacts<'_>) -> i128 {
        let time = |time: Timestamp| i128::from(time.secs) * 1_000_000_000 + i128::from(time.nanos);
        match self.order {
            EvictOrder::Oldest => time(facts.mtime),
            EvictOrder::LeastRecentlyUsed => time(facts.atime),
            EvictOrder::Largest => -i128::from(facts.size.0),
            EvictOrder::Coldest => (i128::from(facts.heat.min(Opens::MAX).0) << 64) + i128::from(facts.mtime.secs),
        }
    }

    /// The room that is left below the low mark.
    pub(super) fn room(&self, branches: &[BranchView]) -> Option<ByteSize> {
        let level = self.level(branches)?;
        Some(ByteSize(self.until.of(level.total).0.saturating_sub(level.used.0)))
    }
}
