//! When a fill level begins, goes on, rests and ends.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustc_hash::FxHashSet;
use umbrella_policy::placement::spec::EvictOrder;
use umbrella_policy::placement::{Evict, Level, Urgency};
use umbrella_units::ByteSize;

use crate::migrate::Migrations;
use crate::migrate::evict::look::{EvictionCandidates, Search};
use crate::migrate::evict::{EvictionPause, Run, StayCounts, in_hours};
use crate::node::Backing;
use crate::placement::ActiveRules;
use crate::warning::{Warning, WarningSubject};

/// Where nothing more can leave, no search runs for this time, or for [`PAUSE_FACTOR`] times the duration of the last
/// walk if that is longer.
const SEARCH_PAUSE: Duration = Duration::from_secs(60);
const PAUSE_FACTOR: u32 = 9;
/// A file system that frees space late is given this time at most.
const FREES_LATE: Duration = Duration::from_secs(30);
/// Where `max_move` of heat is used up, the next look at it comes after this time.
const BUDGET_PAUSE: Duration = Duration::from_secs(600);

/// Result of one round.
#[derive(Debug, Default)]
pub(super) struct EvictionRound {
    pub(super) files_moved: u64,
    pub(super) bytes_moved: ByteSize,
    /// The hours are over, or the pool ends.
    pub(super) is_stopped: bool,
    /// `max_move` of heat is used up.
    pub(super) is_budget_spent: bool,
}

impl Migrations {
    /// Looks at one fill level; returns when files that are to leave have left. When it goes on by itself.
    /// `changes`: of the configuration, before `active` was taken.
    pub(super) fn enforce_fill_level(
        &self,
        active: &Arc<ActiveRules>,
        evict: &Evict,
        changes: u64,
        in_use: bool,
    ) -> Option<Instant> {
        let level = evict.level(&self.placement.views())?;
        let urgency = match self.note_level(evict, level, in_use) {
            EvictionDue::Nothing => return None,
            EvictionDue::Later(at) => return at,
            EvictionDue::Now(urgency) => urgency,
        };
        self.log_begin(evict, urgency);
        self.with_run(evict, |run| run.is_moving = true);
        let mut rest = self.evict(active, evict, urgency);
        if let Some(rest) = &mut rest {
            rest.wakes |= in_use;
        }
        self.with_run(evict, |run| {
            run.is_moving = false;
            run.rest = rest.filter(|_| self.evicts.changes.load(Ordering::Acquire) == changes);
        });
        self.context.clear_warning(&WarningSubject::Evict(evict.of.clone()));
        rest.and_then(|rest| rest.wakes_at())
    }

    fn note_level(&self, evict: &Evict, level: Level, in_use: bool) -> EvictionDue {
        let in_hours = in_hours(evict);
        self.with_run(evict, |run| {
            if run.in_hours != in_hours {
                run.rest = None;
            }
            run.in_hours = in_hours;
            if let Some(rest) = &mut run.rest {
                rest.wakes |= in_use;
            }
            let goes_on = run.on.filter(|on| (*on == Urgency::Short || in_hours) && evict.excess(level).0 > 0);
            let Some(urgency) = evict.begins(level, in_hours).or(goes_on.map(|_| Urgency::Level)) else {
                run.end();
                return EvictionDue::Nothing;
            };
            if let Some(rest) = run.rest.filter(|rest| rest.lasts(level)) {
                return EvictionDue::Later(rest.wakes_at());
            }
            run.on = goes_on.or(Some(urgency));
            EvictionDue::Now(urgency)
        })
    }

    /// Rounds until the low mark, or until nothing more can leave; why it waits then.
    fn evict(&self, active: &Arc<ActiveRules>, evict: &Evict, urgency: Urgency) -> Option<EvictionPause> {
        let mut skip: FxHashSet<Backing> = FxHashSet::default();
        loop {
            let before = self.level_now(evict)?;
            let need = evict.excess(before);
            if need.0 == 0 {
                self.with_run(evict, Run::end);
                return None;
            }
            if self.is_budget_spent(evict, urgency == Urgency::Short) {
                return Some(EvictionPause {
                    until: Instant::now() + BUDGET_PAUSE,
                    used: before.used,
                    freed: None,
                    wakes: true,
                });
            }
            let (began, tried) = (Instant::now(), skip.len());
            let EvictionCandidates { files, stays } =
                self.select_victims(active, &Search { evict, urgency, need, skip: &skip });
            let walk_took = began.elapsed();
            self.with_run(evict, |run| run.stays.replace_found(stays));
            let round = self.move_victims(active, evict, files, &mut skip);
            if !round.is_stopped && !round.is_budget_spent {
                // All that was found has been tried.
                self.with_run(evict, |run| run.next.clear());
            }
            let used = self.level_now(evict)?.used;
            if round.is_budget_spent {
                return Some(EvictionPause { until: Instant::now() + BUDGET_PAUSE, used, freed: None, wakes: true });
            }
            if round.is_stopped {
                return Some(EvictionPause { until: Instant::now(), used, freed: None, wakes: true });
            }
            if round.files_moved == 0 && skip.len() == tried {
                let until = Instant::now() + SEARCH_PAUSE.max(walk_took * PAUSE_FACTOR);
                return Some(EvictionPause { until, used, freed: None, wakes: false });
            }
            let came_free = before.used.0.saturating_sub(used.0);
            if came_free < round.bytes_moved.0 / 2 {
                let freed = Some(ByteSize(before.used.0.saturating_sub(round.bytes_moved.0 / 2)));
                return Some(EvictionPause { until: Instant::now() + FREES_LATE, used, freed, wakes: true });
            }
        }
    }

    /// Logs the begin of an eviction. Below `min_free` it ignores the configured hours, and the log explains why disks
    /// run.
    fn log_begin(&self, evict: &Evict, urgency: Urgency) {
        if urgency == Urgency::Short && !in_hours(evict) {
            let of = evict.of.clone();
            self.context.warn(WarningSubject::Evict(of.clone()), &Warning::EvictsOutOfHours { of });
        }
        tracing::debug!(of = %evict.of, ?urgency, "a fill level begins");
    }

    /// Whether a fill level waits because what heat may move in a day has moved. Below `min_free` it does not count.
    pub(super) fn is_budget_spent(&self, evict: &Evict, is_short: bool) -> bool {
        evict.order == EvictOrder::Coldest && !is_short && !self.placement.may_move_by_heat()
    }

    /// How full it is, asked now.
    pub(super) fn level_now(&self, evict: &Evict) -> Option<Level> {
        for branch in evict.members.iter().filter_map(|id| self.branches.get(*id).ok()) {
            branch.space_now();
        }
        evict.level(&self.placement.views())
    }

    pub(super) fn with_run<T>(&self, evict: &Evict, change: impl FnOnce(&mut Run) -> T) -> T {
        let mut runs = self.evicts.runs.lock();
        change(runs.entry(evict.of.clone()).or_default())
    }
}

/// What a fill level is to do.
enum EvictionDue {
    Nothing,
    /// Not before that time, if it goes on by itself.
    Later(Option<Instant>),
    Now(Urgency),
}

impl Run {
    /// The low mark is reached.
    fn end(&mut self) {
        self.on = None;
        self.rest = None;
        self.next.clear();
        self.stays = StayCounts::default();
    }
}
