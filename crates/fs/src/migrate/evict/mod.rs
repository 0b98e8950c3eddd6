//! Fill levels: a branch or group that is too full moves files elsewhere, the best first, until it is not.
//!
//! 1. Its level is looked at every few seconds while the pool is in use ([`crate::admin`]), and when its hours begin.
//! 2. A round: one walk of its branches finds the files that leave first and together free what is needed ([`look`]);
//!    they move as any file does ([`crate::migrate::transfer`]), small ones together. What is open stays.
//! 3. More rounds, until the low mark is reached or nothing more can leave. Then it rests.
//!
//! What left has a mark with its inode number, so that no rule brings it back before it changes itself
//! ([`crate::inode_map`]).

mod look;
mod moving;
mod run;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use umbrella_policy::placement::{Evict, Level, Urgency};
use umbrella_units::ByteSize;

use crate::control::protocol::{EvictState, EvictStatus, EvictStay, EvictStays};
use crate::ground::locks::{RankedMutex, rank};
use crate::ground::meta::Meta;
use crate::inode_map::BackingKey;
use crate::migrate::Migrations;
use crate::migrate::moving::{MoveReason, MovedLink};
use crate::migrate::schedule::{is_open, next_change};
use crate::node::inode_key;

/// Interval between two looks at the hours, as the clock may be set, or the machine sleep.
const LOOK_AT_CLOCK: Duration = Duration::from_secs(600);
/// Interval between two looks at whether a file system has freed space that it frees late.
const LOOK_FOR_FREED: Duration = Duration::from_secs(1);

/// How far the fill levels are, by the names of their branches and groups.
#[derive(Default)]
pub(crate) struct Evicts {
    runs: RankedMutex<rank::EvictRuns, BTreeMap<String, Run>>,
    /// How often another configuration came in force: a rest ends with the one that it began under.
    changes: AtomicU64,
}

/// One fill level.
#[derive(Debug, Clone, Default)]
struct Run {
    /// Why it began; it has not come to its low mark yet.
    on: Option<Urgency>,
    is_moving: bool,
    in_hours: bool,
    rest: Option<EvictionPause>,
    files_moved: u64,
    bytes_moved: ByteSize,
    next: Vec<String>,
    stays: StayCounts,
}

/// Why a fill level waits that has not come to its low mark.
#[derive(Debug, Clone, Copy)]
struct EvictionPause {
    until: Instant,
    /// The level at its begin: much more than that ends it.
    used: ByteSize,
    /// At this level what was moved is free, and the rest ends early.
    freed: Option<ByteSize>,
    /// It goes on by itself: something was to be waited for, or the pool was in use since, and what was in use may be
    /// closed.
    wakes: bool,
}

/// Files that could not leave.
#[derive(Debug, Clone, Default)]
struct StayCounts(BTreeMap<EvictStay, (u64, u64)>);

impl StayCounts {
    fn note(&mut self, why: EvictStay, meta: &Meta) {
        let (files, bytes) = self.0.entry(why).or_default();
        *files += 1;
        *bytes += meta.occupied().0;
    }

    /// After another walk: what was tried and stayed is remembered.
    fn replace_found(&mut self, found: StayCounts) {
        self.0.retain(|why, _| matches!(why, EvictStay::InUse | EvictStay::Failed) && !found.0.contains_key(why));
        self.0.extend(found.0);
    }

    fn shown(&self) -> Vec<EvictStays> {
        let shown = |(why, (files, bytes)): (&EvictStay, &(u64, u64))| EvictStays {
            why: *why,
            files: *files,
            bytes: ByteSize(*bytes),
        };
        self.0.iter().map(shown).collect()
    }
}

impl EvictionPause {
    fn lasts(&self, level: Level) -> bool {
        let much_more = self.used.0.saturating_add(level.total.0 / 100);
        Instant::now() < self.until && level.used.0 <= much_more && self.freed.is_none_or(|freed| level.used > freed)
    }

    /// When the level is to be looked at again although the pool is idle.
    fn wakes_at(&self) -> Option<Instant> {
        let next = if self.freed.is_some() { self.until.min(Instant::now() + LOOK_FOR_FREED) } else { self.until };
        self.wakes.then_some(next)
    }
}

fn in_hours(evict: &Evict) -> bool {
    evict.window.is_empty() || is_open(&evict.window).unwrap_or(false)
}

impl Migrations {
    /// Looks at all fill levels, and lets files leave where that is due. `in_use`: the pool, since the last call. When
    /// it is to be called again although the pool is idle.
    pub(crate) fn enforce_fill_levels(&self, in_use: bool) -> Option<Instant> {
        // Before the rules: a rest by older ones is not kept.
        let changes = self.evicts.changes.load(Ordering::Acquire);
        let active = self.placement.rules.load_full();
        let evicts = active.rules.evicts();
        self.evicts.runs.lock().retain(|name, _| evicts.iter().any(|evict| evict.of == *name));
        evicts
            .iter()
            .filter_map(|evict| {
                let goes_on = self.enforce_fill_level(&active, evict, changes, in_use);
                [goes_on, begin_of_hours(evict)].into_iter().flatten().min()
            })
            .min()
    }

    /// Other rules, branches or settings are in force: what could not leave is looked at again at once.
    pub(crate) fn clear_pauses(&self) {
        self.evicts.changes.fetch_add(1, Ordering::AcqRel);
        for run in self.evicts.runs.lock().values_mut() {
            run.rest = None;
            run.next.clear();
            run.stays = StayCounts::default();
        }
        self.branches.levels.wake();
    }

    /// Whether any branch has a fill level.
    pub(crate) fn has_levels(&self) -> bool {
        !self.placement.rules.load().rules.evicts().is_empty()
    }

    /// For `status`.
    pub(crate) fn evict_statuses(&self) -> Vec<EvictStatus> {
        let (active, views) = (self.placement.rules.load(), self.placement.views());
        let runs = self.evicts.runs.lock().clone();
        let status = |evict: &Evict| {
            let run = runs.get(&evict.of).cloned().unwrap_or_default();
            let level = evict.level(&views);
            let state = match level {
                None => EvictState::Offline,
                Some(_) if run.is_moving && run.on == Some(Urgency::Short) => EvictState::MovingShort,
                Some(_) if run.is_moving => EvictState::Moving,
                Some(level) if run.rest.is_some_and(|rest| rest.lasts(level)) => EvictState::Rests,
                Some(level) if evict.begins(level, in_hours(evict)).is_some() => EvictState::Due,
                Some(level) if evict.begins(level, true).is_some() => EvictState::AwaitsHours,
                Some(_) => EvictState::Below,
            };
            let Level { total, used, .. } = level.unwrap_or_default();
            EvictStatus {
                of: evict.of.clone(),
                total,
                used,
                above: evict.above,
                until: evict.until,
                state,
                files_moved: run.files_moved,
                bytes_moved: run.bytes_moved,
                next: run.next,
                stays: run.stays.shown(),
            }
        };
        active.rules.evicts().iter().map(status).collect()
    }

    /// Whether no rule may bring a file back that is about to move: a fill level moves it, or did before, and it has
    /// not changed since.
    pub(crate) fn stays_away(&self, cause: MoveReason, from: BackingKey, link: &MovedLink) -> bool {
        let is_evicted = |meta: Meta| self.tree.inodes.is_evicted(inode_key(&link.from.online, &meta), meta.ctime);
        cause == MoveReason::Evict
            || cause != MoveReason::Warm
                && self.tree.inodes.was_evicted(from)
                && link.from.stat(&link.name).is_ok_and(is_evicted)
    }

    /// After a move: its change time is final.
    pub(crate) fn mark_evicted(&self, to: BackingKey, link: &MovedLink) {
        if let Ok(meta) = link.to.stat(&link.name) {
            self.tree.inodes.set_evicted(to, meta.ctime);
        }
    }
}

/// When the hours of a fill level may begin.
fn begin_of_hours(evict: &Evict) -> Option<Instant> {
    if evict.window.is_empty() {
        return None;
    }
    let seconds = u64::try_from(next_change(&evict.window) - crate::ground::meta::now().secs).unwrap_or(0);
    Some(Instant::now() + Duration::from_secs(seconds).min(LOOK_AT_CLOCK))
}
