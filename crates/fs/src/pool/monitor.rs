//! Watches the branches: asks each from time to time whether it lives, and tells the tree when one came or went.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::Pool;
use super::admin::epoch;
use crate::branch::Branch;

/// How often it is looked whether a failed call took a branch offline.
const TICK: Duration = Duration::from_millis(200);

impl Pool {
    /// The monitor's thread.
    pub(crate) fn run_monitor(&self) {
        let mut asked = Instant::now();
        while !self.stopping.load(Ordering::Relaxed) {
            std::thread::sleep(TICK);
            let suspect = self.branches.load().iter().any(|branch| branch.is_suspect());
            if suspect || asked.elapsed() >= self.spec.probe_interval {
                self.probe_all();
                self.keep_numbers();
                asked = Instant::now();
            }
            self.tell_changes();
        }
    }

    /// Asks every branch now, and tells the tree of those that came or went.
    pub fn probe_now(&self) {
        self.probe_all();
        self.tell_changes();
    }

    /// Asks every branch at once, so that one that hangs does not keep the others from being asked.
    pub(super) fn probe_all(&self) {
        let timeout = self.spec.probe_timeout;
        std::thread::scope(|scope| {
            for branch in self.branches.load().iter().filter(|branch| !branch.spec.name.is_empty()) {
                let branch = Arc::clone(branch);
                let probe = move || {
                    branch.probe(timeout);
                    self.look_for_hidden(&branch);
                };
                // Without a thread a branch is asked the next time.
                let _ = std::thread::Builder::new().name("probe".to_owned()).spawn_scoped(scope, probe);
            }
        });
    }

    /// Says so when somebody has deleted the hidden folder of a branch: the next mount would not know the branch.
    fn look_for_hidden(&self, branch: &Branch) {
        let gone = branch.io(|online| match &online.hidden {
            Some(hidden) => rustix::fs::fstat(&hidden.dir).map(|stat| stat.st_nlink == 0),
            None => Ok(false),
        });
        let (name, subject) = (&branch.spec.name, format!("hidden {}", branch.spec.name));
        match gone {
            Ok(true) => self.warn(
                subject,
                format!(
                    "branch {name:?}: its folder .umbrella was deleted: nothing can move there, and the next mount will not know the disk (after the unmount: \
                     `umbrella branch replace '{name}' --pool CONFIG`, then mount again)"
                ),
            ),
            Ok(false) => self.unwarn(&subject),
            Err(_) => {}
        }
    }

    /// Writes down the inode numbers that changed on branches where each record would be a round trip.
    fn keep_numbers(&self) {
        for branch in self.branches.load().iter() {
            if branch.online().is_some_and(|online| online.guarded) {
                self.keep_numbers_of(branch);
            }
        }
    }

    /// Writes down the inode numbers of a branch, and waits for its disk.
    pub(super) fn keep_numbers_of(&self, branch: &Branch) {
        let inodes = Arc::clone(&self.inodes);
        let kept = branch.io(move |online| {
            let Some(hidden) = &online.hidden else { return Ok(Ok(())) };
            Ok(inodes.sync(online.slot, hidden.dir.as_fd()).map_err(|error| error.to_string()))
        });
        if let Err(error) = kept.map_err(|errno| errno.to_string()).and_then(|kept| kept) {
            tracing::warn!(branch = %branch.spec.name, error, "inode numbers could not be kept");
        }
    }

    fn tell_changes(&self) {
        let mut told = self.told.lock();
        let branches = self.branches.load();
        for (branch, told) in branches.iter().zip(told.iter_mut()) {
            let now = epoch(branch);
            if *told != now {
                tracing::info!(branch = %branch.spec.name, online = now.is_some(), "branch changed");
                if self.branch_changed(branch, branch.online().as_ref()) {
                    *told = now;
                }
            }
        }
    }
}
