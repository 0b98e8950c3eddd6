//! A configuration that was edited while the pool is mounted: what it changes, and how it is put in force.
//!
//! 1. Changes that only a mount takes up are refused, and nothing changes. So are rules that name branches that are not
//!    there, and settings that a branch cannot fulfil.
//! 2. Branches that are to be read-only take nothing more; one with a file open for writing is refused.
//! 3. A staging area is opened if new files need one and there is none. If that fails, step 2 is taken back. A dry run
//!    says what would keep it from being opened, and ends here.
//! 4. The rules, the branches, the pool and the staging area get the configured values. Threads that wait by an old
//!    value are woken.
//! 5. The kernel forgets what it keeps by old values.
//!
//! Of all this only the staging area outlives the daemon. The next mount takes back the files in it, whatever its
//! configuration says. `area/open` says what a kill leaves of an area that was about to be opened.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use umbrella_policy::placement::Rules;
use umbrella_policy::placement::spec::StagingMode;
use umbrella_units::BranchId;

use crate::admin::Admin;
use crate::admin::difference::Difference;
use crate::area;
use crate::area::{Area, Intake};
use crate::branch::Branch;
use crate::control::protocol::ConfigChange;
use crate::error::Error;
use crate::ground::advice::advised;
use crate::node::Handle;
use crate::placement::ActiveRules;
use crate::spec::{BranchSpec, PoolSpec, StagingSpec, ThresholdChange, WriteBackChange, WriteBackSpec};
use crate::warning::{Warning, WarningSubject};

/// What a reload did, or would do.
#[derive(Debug)]
pub(crate) struct Reloaded {
    pub(crate) changes: Vec<ConfigChange>,
    /// What waits for the next mount, or for `umbrella branch`.
    pub(crate) not_in_force: Vec<String>,
}

impl Admin {
    /// Puts a configuration in force, or only says what would change. An error changes nothing.
    pub(crate) fn reload(&self, new: PoolSpec, dry_run: bool) -> Result<Reloaded, Error> {
        let _one_at_a_time = self.reloading.lock();
        let (Difference { live: changes, fixed }, not_in_force) = self.difference(&new);
        if !fixed.is_empty() {
            return Err(Error::FixedKeys { keys: fixed });
        }
        let rules = ActiveRules::bind(new.rules.clone(), &self.branches.list.load())?.rules;
        for branch in self.branches.all_named() {
            if let Some(spec) = spec_of(&new, &branch) {
                let unfit = |source| Error::BranchUnfit { name: branch.spec.name.clone(), source: Box::new(source) };
                branch.check_settings(spec).map_err(unfit)?;
            }
        }
        if dry_run {
            self.check_staging(&new, &rules)?;
        } else {
            let closed = self.stop_writers(&new)?;
            self.open_staging(&new, &rules).inspect_err(|_| set_read_only(&closed, false))?;
            self.apply_spec(new)?;
        }
        Ok(Reloaded { changes, not_in_force })
    }

    /// What `new` says that is not in force, and what of that a reload does not touch.
    fn difference(&self, new: &PoolSpec) -> (Difference, Vec<String>) {
        let old = PoolSpec {
            mount: self.context.spec.mount.clone(),
            transport: self.context.spec.transport,
            ..PoolSpec::clone(&self.context.settings())
        };
        let area = self.area_of_mount().map(|area| &area.spec);
        let mut difference = Difference::of_pool(&old, new, area);
        // While there is an area that takes nothing in, no file can wait, whatever the section says.
        let is_wanted = new.staging.as_ref().is_some_and(|staging| staging.mode != StagingMode::Never);
        if is_wanted && old.staging != new.staging && area.is_none() && self.staged.area().is_some() {
            difference.live.retain(|change| !change.key.starts_with("staging.") && change.key != "[staging]");
            difference.fixed.push("[staging]".to_owned());
        }
        difference.of_rules(self.placement.rules.load().spec(), &new.rules);
        let live = self.branches.all_named();
        let mut others = Vec::new();
        for branch in &new.branches {
            match live.iter().find(|known| known.spec.name == branch.name) {
                Some(known) => difference.of_branch(&known.settings(), branch),
                None => others.push(format!("branch {:?}, which is new", branch.name)),
            }
        }
        let is_gone = |known: &&Arc<Branch>| new.branches.iter().all(|branch| branch.name != known.spec.name);
        others.extend(live.iter().filter(is_gone).map(|it| format!("branch {:?}, which is missing", it.spec.name)));
        let in_new = new.branches.iter().filter(|branch| live.iter().any(|known| known.spec.name == branch.name));
        let in_force = live.iter().filter(|known| !is_gone(known));
        if in_force.map(|known| &known.spec.name).ne(in_new.map(|branch| &branch.name)) {
            others.push("the order of the branches".to_owned());
        }
        (difference, others)
    }

    /// The staging area that takes new files in, if this mount has one.
    fn area_of_mount(&self) -> Option<&Area> {
        self.staged.area().filter(|area| area.intake == Intake::NewFiles)
    }

    /// Makes branches read-only that are to be. Returns an error, and changes nothing, while a file is open for
    /// writing. Returns those that it made read-only.
    fn stop_writers(&self, new: &PoolSpec) -> Result<Vec<Arc<Branch>>, Error> {
        let closing: Vec<_> = self
            .branches
            .all_named()
            .into_iter()
            .filter(|branch| !branch.settings().read_only && spec_of(new, branch).is_some_and(|spec| spec.read_only))
            .collect();
        set_read_only(&closing, true);
        // Waits for threads that chose one of them for a new file before, so that the file is seen.
        let waited = if closing.is_empty() { Ok(()) } else { self.await_earlier_placements() };
        for branch in &closing {
            let name = || branch.spec.name.clone();
            if let Err(source) = waited {
                set_read_only(&closing, false);
                return Err(Error::BranchUnreadable { name: name(), source });
            }
            let written = |handle: &&Arc<Handle>| handle.writer && handle.current().branch.id == branch.id;
            let files = self.io.open_handles().iter().filter(written).count();
            if files > 0 {
                set_read_only(&closing, false);
                return Err(Error::BranchWritten { name: name(), files });
            }
        }
        Ok(closing)
    }

    /// Opens the staging area that new files need under the new configuration, if there is none. It is known as the
    /// area before it joins, as any branch does (`membership`); the first file waits in it after that. An error, and
    /// all as before, where there can be none.
    fn open_staging(&self, new: &PoolSpec, rules: &Rules) -> Result<(), Error> {
        let Some(wanted) = area::required_area(new, rules) else { return Ok(()) };
        if let Some(area) = self.staged.area() {
            if area.intake == Intake::Nothing {
                tracing::info!(
                    "new files wait in memory from the next mount on: files of an earlier staging area leave"
                );
            }
            return Ok(());
        }
        let mut known_epochs = self.branches.known_epochs.lock();
        let mut branches = Vec::clone(&self.branches.list.load());
        let id = BranchId(branches.len() as u16);
        let opened = area::open(Some(wanted), self.context.spec.access_times, &self.context.state, id);
        let area = match opened {
            Ok(Some(area)) => area,
            Ok(None) => return Ok(()),
            Err(error) if self.does_without(wanted) => {
                tracing::warn!(%error, "new files do not wait in memory");
                return Ok(());
            }
            Err(error) => return Err(Error::NoStagingArea(Box::new(error))),
        };
        let branch = Arc::clone(&area.branch);
        branches.push(Arc::clone(&branch));
        self.branches.set_staging(id);
        self.branches.list.store(Arc::new(branches));
        // If it cannot be told now, the monitor does it.
        let known = self.branch_changed(&branch, branch.online().as_ref());
        known_epochs.push(if known { branch.epoch() } else { None });
        self.staged.set_area(area);
        Ok(())
    }

    /// What [`Admin::open_staging`] would say, as far as that is seen with nothing changed.
    fn check_staging(&self, new: &PoolSpec, rules: &Rules) -> Result<(), Error> {
        let wanted = area::required_area(new, rules).filter(|_| self.staged.area().is_none());
        let Some(wanted) = wanted.filter(|wanted| !self.does_without(wanted)) else { return Ok(()) };
        let id = BranchId(self.branches.list.load().len() as u16);
        area::check(wanted, &self.context.state, id).map_err(|error| Error::NoStagingArea(Box::new(error)))
    }

    /// Whether an area that cannot be opened is no error: it could not be opened at the mount either, and the pool does
    /// without.
    fn does_without(&self, wanted: &StagingSpec) -> bool {
        let was_wanted = area::required_area(&self.context.settings(), &self.placement.rules.load().rules).is_some();
        wanted.is_optional() && was_wanted
    }

    fn apply_spec(&self, new: PoolSpec) -> Result<(), Error> {
        self.placement.reload_rules(&new.rules)?;
        for branch in self.branches.all_named() {
            let Some(spec) = spec_of(&new, &branch) else { continue };
            let write_back = (branch.settings().write_back != spec.write_back).then(|| spec.write_back.clone());
            branch.set_timeout(new.probe_timeout);
            branch.configure(spec.clone());
            if let Some(write_back) = write_back {
                self.change_write_back(&branch, write_back);
            }
        }
        let before = PoolSpec::clone(&self.context.settings());
        self.context.configure(new);
        let now = self.context.settings();
        if before.threads != now.threads
            && let Some(kernel) = self.context.kernel.get()
        {
            kernel.keep_threads(now.threads_kept());
        }
        if before.staging != now.staging {
            self.change_staging(now.staging.as_ref());
        }
        self.migrate.clear_pauses();
        // Branches that were opened anew are shown at once.
        self.report_changes();
        self.branches.wakeup.wake();
        let shown = |spec: &PoolSpec| (spec.on_branch_error, spec.directories, spec.cache_timeout);
        if shown(&before) != shown(&now) {
            self.forget_all();
        }
        Ok(())
    }

    /// A policy that cannot be had is a warning, as at the mount.
    fn change_write_back(&self, branch: &Branch, wanted: Option<WriteBackSpec>) {
        let exactly = |size: Option<_>| size.map_or(ThresholdChange::Auto, ThresholdChange::At);
        let change = wanted.map(|WriteBackSpec { policy, limit, background }| WriteBackChange {
            policy,
            limit: exactly(limit),
            background: exactly(background),
        });
        let name = &branch.spec.name;
        if let Err(error) = self.write_back.set_write_back(name, change) {
            self.context
                .warn(WarningSubject::WriteBack(name.clone()), &Warning::WriteBackUnchanged { why: advised(&error) });
        }
    }

    /// Without a configuration, or with `mode = "never"`, what waits leaves now.
    fn change_staging(&self, wanted: Option<&StagingSpec>) {
        let Some(area) = self.area_of_mount() else { return };
        area.open.store(wanted.is_some(), Ordering::Relaxed);
        if let Some(spec) = wanted {
            area.configure(spec.clone());
        }
        if wanted.is_none_or(|spec| spec.mode == StagingMode::Never) {
            self.staging.empty_staging();
        }
    }
}

fn set_read_only(branches: &[Arc<Branch>], read_only: bool) {
    for branch in branches {
        branch.configure(BranchSpec { read_only, ..BranchSpec::clone(&branch.settings()) });
    }
}

fn spec_of<'s>(pool: &'s PoolSpec, branch: &Branch) -> Option<&'s BranchSpec> {
    pool.branches.iter().find(|spec| spec.name == branch.spec.name)
}
