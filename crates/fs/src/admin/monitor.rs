//! Watches the branches: checks from time to time whether each is alive, and tells the tree when one came or went.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::admin::Admin;
use crate::branch::Branch;
use crate::ground::meta::now;
use crate::metrics::Metric;
use crate::warning::{Warning, WarningSubject};

/// Shortest time between two checks of a branch that seems unwell, and between two attempts to tell the tree of a
/// change that it could not take up.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);
/// After this time without any use of the tree, local branches are checked no more often than once in this time.
const IDLE_INTERVAL: Duration = Duration::from_secs(60);
/// Number of rounds after which changed heat of files is written down: a minute's worth, unless `probe_interval` says
/// otherwise.
const HEAT_ROUNDS: u32 = 12;

/// Which branches are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProbeScope {
    All,
    /// Branches that may hang: network and FUSE file systems.
    Guarded,
}

/// When branches are checked next. In between the monitor sleeps, unless it is called.
#[derive(Debug)]
struct Rounds {
    every: Duration,
    /// The tree was in use last.
    used: Instant,
    /// All were asked last.
    all: Instant,
    /// The last probe of branches that may hang.
    guarded: Instant,
    /// The heat of files was written down last.
    heat: Instant,
}

impl Rounds {
    fn new(every: Duration, now: Instant) -> Rounds {
        Rounds { every, used: now, all: now, guarded: now, heat: now }
    }

    fn next_of_all(&self, now: Instant) -> Instant {
        let rests = now.saturating_duration_since(self.used) >= IDLE_INTERVAL;
        self.all + if rests { self.every.max(IDLE_INTERVAL) } else { self.every }
    }

    /// The branches that are due.
    fn due(&self, now: Instant, any_guarded: bool) -> Option<ProbeScope> {
        if now >= self.next_of_all(now) {
            return Some(ProbeScope::All);
        }
        (any_guarded && now >= self.guarded + self.every).then_some(ProbeScope::Guarded)
    }

    /// When the next branch is due.
    fn next(&self, now: Instant, any_guarded: bool) -> Instant {
        let all = self.next_of_all(now);
        if any_guarded { all.min(self.guarded + self.every) } else { all }
    }

    fn done(&mut self, asked: ProbeScope, now: Instant) {
        self.guarded = now;
        if asked == ProbeScope::All {
            self.all = now;
        }
    }
}

impl Admin {
    /// The monitor's thread.
    pub(crate) fn run_monitor(&self) {
        let mut rounds = Rounds::new(self.context.settings().probe_interval, Instant::now());
        while !self.context.is_stopping() {
            rounds.every = self.context.settings().probe_interval;
            let now = Instant::now();
            if self.branches.used.load(Ordering::Relaxed) || self.io.has_open_handles() {
                rounds.used = now;
            }
            let unwell = self.any_suspect() && now >= rounds.guarded + RETRY_INTERVAL;
            let due = if unwell { Some(ProbeScope::All) } else { rounds.due(now, self.any_guarded()) };
            if let Some(asked) = due {
                self.branches.used.store(false, Ordering::Relaxed);
                self.probe_branches(asked);
                self.keep_numbers();
                if rounds.heat.elapsed() >= rounds.every * HEAT_ROUNDS {
                    self.keep_heat();
                    rounds.heat = Instant::now();
                }
                self.read_error_counters();
                rounds.done(asked, Instant::now());
            }
            let told = self.report_changes();
            self.report_failing();
            let now = Instant::now();
            let next = rounds.next(now, self.any_guarded());
            let soon = if told && !self.any_suspect() { next } else { next.min(now + RETRY_INTERVAL) };
            self.branches.wakeup.wait_until(soon);
        }
    }

    fn any_guarded(&self) -> bool {
        self.branches.list.load().iter().any(|branch| branch.is_guarded())
    }

    fn any_suspect(&self) -> bool {
        self.branches.list.load().iter().any(|branch| branch.is_suspect())
    }

    /// Asks every branch now, and tells the tree of those that came or went.
    pub(crate) fn probe_now(&self) {
        self.probe_branches(ProbeScope::All);
        self.report_changes();
    }

    /// Asks branches all at once, so that one that hangs does not keep the others from being asked.
    pub(crate) fn probe_branches(&self, asked: ProbeScope) {
        let timeout = self.context.settings().probe_timeout;
        std::thread::scope(|scope| {
            let wanted = |branch: &Arc<Branch>| asked == ProbeScope::All || branch.is_guarded();
            for branch in self.branches.all().into_iter().filter(wanted) {
                let probe = move || {
                    branch.probe(timeout);
                    self.check_hidden_folder(&branch);
                };
                // Without a thread a branch is checked the next time.
                let _ = std::thread::Builder::new().name("probe".to_owned()).spawn_scoped(scope, probe);
            }
        });
    }

    /// Warns when the hidden folder of a branch was deleted, because the next mount would not recognize the branch.
    fn check_hidden_folder(&self, branch: &Branch) {
        let gone = branch.io(|online| match &online.hidden {
            Some(hidden) => rustix::fs::fstat(&hidden.dir).map(|stat| stat.st_nlink == 0),
            None => Ok(false),
        });
        let name = branch.spec.name.clone();
        let subject = WarningSubject::HiddenFolder(name.clone());
        match gone {
            Ok(true) => self.context.warn(subject, &Warning::HiddenFolderGone { name }),
            Ok(false) => self.context.clear_warning(&subject),
            Err(_) => {}
        }
    }

    /// Writes down the inode numbers that changed on branches where each record would be a round trip.
    fn keep_numbers(&self) {
        for branch in self.branches.list.load().iter() {
            if branch.online().is_some_and(|online| online.guarded) {
                self.keep_numbers_of(branch);
            }
        }
    }

    /// Writes down the heat of files.
    fn keep_heat(&self) {
        self.context.metrics.set(Metric::HeatFiles, self.tree.inodes.heats().count() as u64);
        for branch in self.branches.list.load().iter() {
            self.keep_heat_of(branch);
        }
    }

    /// Writes down the heat of a branch's files. It is worth no more than a line in the log when that fails.
    pub(crate) fn keep_heat_of(&self, branch: &Branch) {
        let (inodes, half_life) = (Arc::clone(&self.tree.inodes), self.placement.heat_settings().half_life);
        let kept = branch.io(move |online| {
            let Some(hidden) = &online.hidden else { return Ok(Ok(())) };
            let kept = inodes.keep_heat(online.slot, hidden.dir.as_fd(), (now(), half_life));
            Ok(kept.map_err(|error| error.to_string()))
        });
        if let Err(error) = kept.map_err(|errno| errno.to_string()).and_then(|kept| kept) {
            tracing::debug!(branch = %branch.spec.name, error, "cannot save the heat of files");
        }
    }

    /// Writes down the inode numbers of a branch, and waits for its disk.
    pub(crate) fn keep_numbers_of(&self, branch: &Branch) {
        let inodes = Arc::clone(&self.tree.inodes);
        let kept = branch.io(move |online| {
            let Some(hidden) = &online.hidden else { return Ok(Ok(())) };
            Ok(inodes.sync(online.slot, hidden.dir.as_fd()).map_err(|error| error.to_string()))
        });
        if let Err(error) = kept.map_err(|errno| errno.to_string()).and_then(|kept| kept) {
            tracing::warn!(branch = %branch.spec.name, error, "cannot save inode numbers");
        }
    }

    /// False: the tree could not take up all that has changed.
    pub(crate) fn report_changes(&self) -> bool {
        let mut known_epochs = self.branches.known_epochs.lock();
        let branches = self.branches.list.load();
        for (branch, epoch) in branches.iter().zip(known_epochs.iter_mut()) {
            let now = branch.epoch();
            if *epoch != now {
                tracing::info!(branch = %branch.spec.name, online = now.is_some(), "branch changed");
                if self.branch_changed(branch, branch.online().as_ref()) {
                    *epoch = now;
                }
            }
        }
        branches.iter().zip(known_epochs.iter()).all(|(branch, epoch)| *epoch == branch.epoch())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: Duration = Duration::from_secs(5);
    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn a_pool_that_nobody_uses_asks_its_local_branches_once_a_minute() {
        let start = Instant::now();
        let mut rounds = Rounds::new(EVERY, start);
        let (mut now, mut asked) = (start, Vec::new());
        while now < start + 5 * MINUTE {
            now = rounds.next(now, false);
            if let Some(whom) = rounds.due(now, false) {
                assert_eq!(whom, ProbeScope::All);
                rounds.done(whom, now);
                asked.push((now - start).as_secs());
            }
        }
        assert_eq!(asked[..11], [5, 10, 15, 20, 25, 30, 35, 40, 45, 50, 55]);
        assert!(asked[11..].windows(2).all(|pair| pair[1] - pair[0] == 60), "{asked:?}");
        // Used again, they are checked at once.
        rounds.used = now + EVERY;
        assert_eq!(rounds.due(now + EVERY, false), Some(ProbeScope::All));
    }

    #[test]
    fn branches_that_may_hang_are_asked_as_often_as_ever() {
        let start = Instant::now();
        let mut rounds = Rounds::new(EVERY, start);
        let (mut now, mut guarded) = (start, 0);
        while now < start + 10 * MINUTE {
            let next = rounds.next(now, true);
            assert_eq!(next - now, EVERY);
            now = next;
            let whom = rounds.due(now, true).unwrap();
            guarded += u32::from(whom == ProbeScope::Guarded);
            rounds.done(whom, now);
        }
        assert_eq!(guarded, 9 * 11 + 1, "eleven before each of nine rounds of all");
    }

    #[test]
    fn an_interval_longer_than_a_minute_stays_as_it_is() {
        let start = Instant::now();
        let rounds = Rounds::new(10 * MINUTE, start);
        assert_eq!(rounds.next(start + 5 * MINUTE, false), start + 10 * MINUTE);
    }
}
