//! A configuration that was edited while the pool is mounted: what it changes, and how it is put in force.
//!
//! 1. Changes that only a mount takes up are refused, and nothing changes. So are rules that name branches that are not
//!    there, and settings that a branch cannot fulfil.
//! 2. Branches that are to be read-only take nothing more; one with a file open for writing is refused.
//! 3. The rules, the branches, the pool and the staging area get the configured values. Threads that wait by an old
//!    value are woken.
//! 4. The kernel forgets what it keeps by old values.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use umbrella_policy::placement::spec::StagingMode;

use crate::admin::Admin;
use crate::admin::difference::Difference;
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
        ActiveRules::bind(new.rules.clone(), &self.branches.list.load())?;
        for branch in self.named_branches() {
            if let Some(spec) = spec_of(&new, &branch) {
                let unfit = |source| Error::BranchUnfit { name: branch.spec.name.clone(), source: Box::new(source) };
                branch.check_settings(spec).map_err(unfit)?;
            }
        }
        if !dry_run {
            self.close_to_writers(&new)?;
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
        let mut difference = Difference::of_pool(&old, new);
        if old.staging.is_none() && new.staging.as_ref().is_some_and(|new| self.has_area_of(new)) {
            difference.fixed.retain(|key| key != "[staging]");
            difference.live.push(ConfigChange::new("[staging]"));
        }
        // Without an area no file can wait, whatever the section says.
        let is_wanted = new.staging.as_ref().is_some_and(|staging| staging.mode != StagingMode::Never);
        if is_wanted && old.staging != new.staging && self.area_of_mount().is_none() {
            difference.live.retain(|change| !change.key.starts_with("staging."));
            difference.fixed.retain(|key| !key.starts_with("staging.") && key != "[staging]");
            difference.fixed.push("[staging]".to_owned());
        }
        difference.of_rules(self.placement.rules.load().spec(), &new.rules);
        let live = self.named_branches();
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

    fn named_branches(&self) -> Vec<Arc<Branch>> {
        let branches = self.branches.list.load();
        let named = |branch: &&Arc<Branch>| !branch.spec.name.is_empty() && !self.branches.is_staging(branch.id);
        branches.iter().filter(named).cloned().collect()
    }

    /// Whether the staging area of this mount is the one that is configured again.
    fn has_area_of(&self, new: &StagingSpec) -> bool {
        self.area_of_mount().is_some_and(|area| area.spec.path == new.path && area.spec.volatile == new.volatile)
    }

    /// The staging area that takes new files in, if this mount has one.
    fn area_of_mount(&self) -> Option<&Area> {
        self.staged.area.as_deref().filter(|area| area.intake == Intake::NewFiles)
    }

    /// Lets nobody write on branches that are to be read-only. An error, and all as before, where somebody has a file
    /// open for writing.
    fn close_to_writers(&self, new: &PoolSpec) -> Result<(), Error> {
        let closing: Vec<_> = self
            .named_branches()
            .into_iter()
            .filter(|branch| !branch.settings().read_only && spec_of(new, branch).is_some_and(|spec| spec.read_only))
            .collect();
        let set = |read_only| {
            for branch in &closing {
                branch.configure(BranchSpec { read_only, ..BranchSpec::clone(&branch.settings()) });
            }
        };
        set(true);
        // Who chose one of them for something new before is waited for, and seen here.
        let waited = if closing.is_empty() { Ok(()) } else { self.await_earlier_placements() };
        for branch in &closing {
            let name = || branch.spec.name.clone();
            if let Err(source) = waited {
                set(false);
                return Err(Error::BranchUnreadable { name: name(), source });
            }
            let written = |handle: &&Arc<Handle>| handle.writer && handle.current().branch.id == branch.id;
            let files = self.io.open_handles().iter().filter(written).count();
            if files > 0 {
                set(false);
                return Err(Error::BranchWritten { name: name(), files });
            }
        }
        Ok(())
    }

    fn apply_spec(&self, new: PoolSpec) -> Result<(), Error> {
        self.placement.reload_rules(&new.rules)?;
        for branch in self.named_branches() {
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
        self.migrate.forget_rests();
        // Branches that were opened anew are shown at once.
        self.report_changes();
        self.branches.attention.call();
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

fn spec_of<'s>(pool: &'s PoolSpec, branch: &Branch) -> Option<&'s BranchSpec> {
    pool.branches.iter().find(|spec| spec.name == branch.spec.name)
}
