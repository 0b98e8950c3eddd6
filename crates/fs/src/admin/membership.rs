//! Branches that join or leave the pool while it is mounted.
//!
//! A branch that joins:
//!
//! 1. It is opened, and its identity is compared with the remembered one (`branch`).
//! 2. Under the lock on names, what a crash left half done on it is finished or undone.
//! 3. Its inode numbers are loaded.
//! 4. The topology's number goes up, so every directory is looked for on the branch at its next use. The kernel forgets
//!    owners, modes and ACLs of directories, because the branch's copies may change them.
//! 5. Earlier descriptors and listings are forgotten, in the kernel too. From here on the branch is reported as online.
//!
//! A branch that is removed:
//!
//! 1. Nothing new is placed there.
//! 2. Operations that chose it earlier are waited for.
//! 3. It is searched for files. Directories that only it has are made on other branches.
//! 4. A nameless branch that is never online takes its number.
//! 5. The state directory forgets it, durably. After a crash before this step it is still a branch, and nothing is
//!    lost.

use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use umbrella_policy::placement::spec::FileKind;
use umbrella_units::BranchId;

use crate::admin::Admin;
use crate::admin::monitor::ProbeScope;
use crate::branch::not_mounted::not_mounted;
use crate::branch::state::{Remembered, StateDir};
use crate::branch::{Branch, Online, run_within};
use crate::error::{AddedAs, Error, OpError, OpResult};
use crate::ground::advice::advised;
use crate::ground::at::DirAt;
use crate::metrics::Metric;
use crate::node::Body;
use crate::relocate;
use crate::relocate::{BranchUuid, RecoverBranch, Recovery, Returned};
use crate::spec::{BranchSpec, STAGING, is_branch_name, resolve};
use crate::warning::{Warning, WarningSubject};

/// How long the path of a branch that is to be added may take to be looked at.
const INSPECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a branch that came back waits for those among names.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);
/// How long branches that may hang may take to put right what was left half done: no thread can resolve a name
/// meanwhile.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(20);

impl Admin {
    /// At the start: finishes what a crash left half done, then takes every branch in.
    pub(crate) fn load_branches(&self) {
        let online = self.branches.online();
        let gone = GoneAreas::of(&self.context.state);
        let recovery = relocate::recover(&recoverable(&online, gone.as_ref()));
        self.report_recovery(&recovery);
        for (branch, _) in &online {
            self.admit(branch);
            if let Some(online) = branch.online() {
                branch.set_shown(online.epoch);
            }
            if branch.draining() {
                let name = branch.spec.name.clone();
                tracing::warn!("{}", advised(&Warning::Draining { name }));
            }
        }
        *self.branches.known_epochs.lock() = self.branches.list.load().iter().map(|branch| branch.epoch()).collect();
        for name in self.context.state.branch_names() {
            if self.branches.named(&name).is_err() && name != STAGING {
                self.context.warn(WarningSubject::Forgotten(name.clone()), &Warning::Forgotten { name });
            }
        }
    }

    fn report_recovery(&self, recovery: &Recovery) {
        for warning in &recovery.warnings {
            self.context.warn(WarningSubject::Recovery(warning.clone()), &Warning::Recovery(warning.clone()));
        }
        if recovery.finished + recovery.undone + recovery.leftovers > 0 {
            tracing::info!(
                finished = recovery.finished,
                undone = recovery.undone,
                leftovers = recovery.leftovers,
                "finished or undid changes that the last run left half done"
            );
        }
        if recovery.pending > 0 {
            let branches = recovery.awaited.iter().map(|uuid| self.name_of(*uuid)).collect::<Vec<_>>().join(", ");
            tracing::warn!(
                pending = recovery.pending,
                %branches,
                "half-done changes wait for branches that are missing or read-only, and are finished when these return"
            );
        }
    }

    fn name_of(&self, uuid: BranchUuid) -> String {
        let names = self.context.state.branch_names();
        let named =
            names.into_iter().find(|name| self.context.state.branch(name).is_some_and(|known| known.uuid == uuid.0));
        named.unwrap_or_else(|| format!("one that the pool has forgotten ({uuid})"))
    }

    fn admit(&self, branch: &Arc<Branch>) {
        self.prepare(branch);
        if let Some(online) = branch.online() {
            branch.set_admitted(online.epoch);
        }
    }

    fn prepare(&self, branch: &Arc<Branch>) {
        branch.set_timeout(self.context.settings().probe_timeout);
        branch.set_wakeup(&self.branches.wakeup);
        self.watch_disk(branch);
        branch.set_passthrough(self.passthrough_works(branch));
        let inodes = Arc::clone(&self.tree.inodes);
        let loaded = branch.io(move |online| {
            Ok(match &online.hidden {
                Some(hidden) => {
                    if let Err(error) = inodes.load_heat(online.slot, hidden.dir.as_fd()) {
                        tracing::warn!(%error, "cannot read the heat of files; all of them start cold");
                    }
                    inodes.load(online.slot, hidden.dir.as_fd())
                }
                None => inodes.load_read_only(online.slot, online.root()),
            }
            .map_err(|error| error.to_string()))
        });
        if let Err(error) = loaded.map_err(|errno| errno.to_string()).and_then(|loaded| loaded) {
            let name = branch.spec.name.clone();
            self.context.warn(WarningSubject::Inodes(name.clone()), &Warning::InodesUnread { name, why: error });
        }
        if let (Some(dir), Ok(at)) = (self.tree.root.dir(), DirAt::root(branch))
            && let Ok(meta) = at.stat_self()
        {
            self.tree.add_copy(&self.tree.root, dir, branch, &meta);
        }
        if branch.settings().read_only {
            return;
        }
        self.write_back.start_flusher_of(branch);
    }

    /// The kernel's passthrough became known: branches that are online are tried.
    pub(crate) fn announce_passthrough(&self) {
        for branch in self.branches.list.load().iter() {
            branch.set_passthrough(self.passthrough_works(branch));
        }
    }

    /// Whether the kernel takes files of this branch: tried with one that has no name. Not where a branch may hang:
    /// past the daemon, it would hang its callers for good.
    fn passthrough_works(&self, branch: &Branch) -> bool {
        let Some(online) = branch.online().filter(|online| !online.guarded) else { return false };
        let Some(kernel) = self.context.kernel.get().filter(|kernel| kernel.gives_passthrough()) else { return false };
        let Some(hidden) = &online.hidden else { return true };
        let file = relocate::scratch_file(hidden.tmp.as_fd());
        file.is_ok_and(|file| kernel.register(file.as_fd()).is_ok())
    }

    /// A branch came online or went offline: everything that was known of names is looked for anew. Returns false while
    /// a long change is under way; try again.
    pub(crate) fn branch_changed(&self, branch: &Arc<Branch>, now: Option<&Arc<Online>>) -> bool {
        if let Some(online) = now {
            self.probe_others(online);
            // While no thread waits, and before directories get the names that they were given meanwhile.
            if !self.intents_can_be_read(branch) || !self.tree.remove_orphans(branch, online) {
                return false;
            }
            // No operation may use names while half-done changes on this branch are put right. Bounded: waiting here
            // holds up others.
            let Some(_names) = self.tree.rename_lock.try_write_for(LOCK_TIMEOUT) else { return false };
            self.context.count(Metric::BranchesFound);
            let Some(recovery) = self.recover_returned(branch, online) else { return false };
            self.report_recovery(&recovery);
            self.admit(branch);
            self.branches.topology.fetch_add(1, Ordering::AcqRel);
            // While no thread resolves names: what a copy here denies holds before anything on the branch can be
            // reached.
            self.forget_rights();
            self.tree.forget_copies_away(online.uuid.to_u128_le());
        } else {
            let known = self.context.state.branch(&branch.spec.name);
            if let Some(known) = &known {
                self.tree.remember_copies(branch.id, known.uuid.to_u128_le());
            }
            self.disconnect(branch, known.as_ref());
            return true;
        }
        self.tree.dir_fds.drop_branch(branch.id);
        self.forget_listings();
        if let Some(online) = now {
            branch.set_shown(online.epoch);
        }
        true
    }

    /// A branch that can be reached no more.
    fn disconnect(&self, branch: &Arc<Branch>, known: Option<&Remembered>) {
        self.context.count(Metric::BranchesLost);
        self.write_back.stop_flusher(branch.id);
        if let Some(known) = known {
            self.tree.inodes.unload(known.slot);
        }
        self.branches.topology.fetch_add(1, Ordering::AcqRel);
        self.tree.dir_fds.drop_branch(branch.id);
        self.forget_listings();
        branch.set_gone();
    }

    /// A branch was removed or replaced, and will not come back: no change is kept for its copies. `known`: as it was
    /// remembered before.
    ///
    /// Its disk may be changed from then on. So changes of names that began before have ended; one that hangs is waited
    /// for within bounds only.
    pub(crate) fn branch_is_gone(&self, branch: &Arc<Branch>, known: Option<&Remembered>) {
        self.disconnect(branch, known);
        let _hangs = self.await_earlier_placements();
        if let Some(known) = known {
            self.tree.forget_copies_away(known.uuid.to_u128_le());
        }
    }

    /// A look at what recovery will look at, while no thread waits; a branch that may hang does it here.
    fn intents_can_be_read(&self, branch: &Branch) -> bool {
        let look = |online: &Online| {
            let Some(hidden) = &online.hidden else { return Ok(()) };
            for dir in [&hidden.intents, &hidden.tmp] {
                for entry in rustix::fs::Dir::read_from(dir)? {
                    entry?;
                }
            }
            Ok(())
        };
        branch.io(look) != Err(rustix::io::Errno::TIMEDOUT)
    }

    /// Puts right what a branch that has come back left half done; where one of the branches may hang, on its workers.
    /// `None`: that took too long. It is left where it is, and the branch is offline.
    fn recover_returned(&self, branch: &Arc<Branch>, online: &Online) -> Option<Recovery> {
        let all = self.branches.online();
        let uuid = BranchUuid(online.uuid);
        let moves = self.migrate.abandoned_copies();
        let is_given_up = move |temp: &[u8]| moves.contains(OsStr::from_bytes(temp));
        let gone = GoneAreas::of(&self.context.state);
        let guarded = all.iter().filter(|(_, online)| online.guarded).max_by_key(|(it, _)| it.id == branch.id);
        let Some(guarded) = guarded.map(|(branch, _)| Arc::clone(branch)) else {
            let returned = Returned { uuid, given_up: &is_given_up };
            let branches = recoverable(&all, gone.as_ref());
            return Some(relocate::recover_returned(&branches, returned, &|| ControlFlow::Continue(())));
        };
        let given_up = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&given_up);
        let recover = move |_: &Online| {
            let stop = || if stop.load(Ordering::Acquire) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
            let returned = Returned { uuid, given_up: &is_given_up };
            Ok(relocate::recover_returned(&recoverable(&all, gone.as_ref()), returned, &stop))
        };
        let recovered = guarded.io_within(RECOVERY_TIMEOUT, recover);
        if recovered.is_err() {
            given_up.store(true, Ordering::Release);
            branch.take_offline(
                "cannot finish or undo what a crash interrupted on it: a branch does not answer".to_owned(),
            );
        }
        recovered.ok()
    }

    /// Asks the other branches that may hang: recovery looks at them under the lock on names, and must not hang there.
    fn probe_others(&self, new: &Online) {
        let others = self.branches.online();
        if others.iter().any(|(_, online)| online.guarded && online.epoch != new.epoch) {
            self.probe_branches(ProbeScope::All);
        }
    }

    /// Has the kernel forget owners, modes and ACLs of all directories. Waits for nothing: no contents are dropped.
    fn forget_rights(&self) {
        let Some(kernel) = self.context.kernel.get() else { return };
        for node in self.tree.nodes.snapshot().iter().filter(|node| node.dir().is_some()) {
            kernel.drop_attributes(node.id);
        }
        kernel.drop_names();
    }

    /// Has the kernel forget what it keeps of the whole tree.
    pub(crate) fn forget_all(&self) {
        if let Some(kernel) = self.context.kernel.get() {
            for node in self.tree.nodes.snapshot() {
                kernel.drop_attributes(node.id);
            }
        }
        self.branches.topology.fetch_add(1, Ordering::AcqRel);
        self.forget_listings();
    }

    fn forget_listings(&self) {
        let kernel = self.context.kernel.get();
        for node in self.tree.nodes.snapshot() {
            if let Body::Dir(dir) = &node.body {
                *dir.listing.lock() = None;
                if let Some(kernel) = kernel {
                    kernel.drop_contents(node.id);
                }
            }
        }
        if let Some(kernel) = kernel {
            kernel.drop_names();
        }
    }

    /// Takes a branch in, if the configuration could name it too.
    pub(crate) fn add_branch(&self, spec: BranchSpec) -> Result<(), Error> {
        // In lists a name means a branch or a group.
        let is_group = self.placement.rules.load().rules.groups().iter().any(|group| group.name == spec.name);
        if !is_branch_name(&spec.name) || is_group {
            return Err(Error::BranchName { name: spec.name });
        }
        if !spec.path.is_absolute() || spec.path.components().any(|part| part == Component::ParentDir) {
            return Err(Error::BranchPath { path: spec.path });
        }
        // Before the lock: looking at paths may take long.
        self.no_overlap(&spec)?;
        if spec.require_mount != Some(false) {
            is_mounted(&spec, AddedAs::New)?;
        }
        let mut known_epochs = self.branches.known_epochs.lock();
        if self.branches.named(&spec.name).is_ok() {
            return Err(Error::BranchExists { name: spec.name });
        }
        let mut branches = Vec::clone(&self.branches.list.load());
        let branch = Branch::new(BranchId(branches.len() as u16), spec, Arc::clone(&self.context.state));
        branch.set_access_times(self.context.spec.access_times);
        branch
            .bring_online()
            .map_err(|error| Error::BranchUnusable { name: branch.spec.name.clone(), reason: advised(&error) })?;
        branches.push(Arc::clone(&branch));
        self.branches.list.store(Arc::new(branches));
        self.placement.rebind_rules();
        // If it cannot be told now, the monitor does it.
        let known = self.branch_changed(&branch, branch.online().as_ref());
        known_epochs.push(if known { branch.epoch() } else { None });
        Ok(())
    }

    pub(crate) fn no_overlap(&self, new: &BranchSpec) -> Result<(), Error> {
        let overlap = |a: &Path, b: &Path| a.starts_with(b) || b.starts_with(a);
        let failed = |other| Err(Error::BranchOverlaps { path: new.path.clone(), other });
        let mount = &self.context.spec.mount;
        // As it is written first: in the mount, looking for links would ask this daemon.
        let path = if overlap(&new.path, mount) { new.path.clone() } else { inspect_path(new, resolve)? };
        if overlap(&path, mount) {
            return failed(format!("the mount point {}", mount.display()));
        }
        if let Some(hidden) =
            path.ancestors().find(|above| above.file_name().is_some_and(|name| name == crate::branch::HIDDEN_DIR))
        {
            return failed(format!("Umbrella's own {}", hidden.display()));
        }
        for branch in self.branches.all() {
            // What is offline may hang.
            let as_written = branch.spec.path.clone();
            let there = branch.io(move |_| Ok(resolve(&as_written))).unwrap_or_else(|_| branch.spec.path.clone());
            if branch.spec.name != new.name && overlap(&path, &there) {
                return failed(format!("the branch {:?} ({})", branch.spec.name, there.display()));
            }
        }
        Ok(())
    }

    /// Forgets a branch. Without `force` only one that holds no file, and no directory vanishes with it; with it, its
    /// files stay on it and vanish from the tree.
    pub(crate) fn remove_branch(&self, name: &str, force: bool) -> Result<(), Error> {
        let branch = match self.branches.named(name) {
            Err(_) if name != STAGING && self.context.state.branch(name).is_some() => {
                self.context.clear_warning(&WarningSubject::Forgotten(name.to_owned()));
                return self.context.state.forget(name).map_err(|error| Error::Io {
                    doing: format!("forget branch {name:?}"),
                    source: std::io::Error::other(error),
                });
            }
            found => found?,
        };
        if !force {
            let was_draining = branch.draining();
            branch.set_draining_for_now(true);
            self.check_removable(&branch).inspect_err(|_| branch.set_draining_for_now(was_draining))?;
        }
        // Before the monitor has to wait: the branch may hang.
        branch.retire("removed from the pool".to_owned());
        let mut known_epochs = self.branches.known_epochs.lock();
        let branch = self.branches.named(name)?;
        let mut branches = Vec::clone(&self.branches.list.load());
        let gone = BranchSpec { name: String::new(), optional: true, ..BranchSpec::clone(&branch.settings()) };
        if let Some(place) = branches.get_mut(branch.id.index()) {
            // A tombstone: never online, found by no name, keeping the id.
            *place = Branch::new(branch.id, gone, Arc::clone(&self.context.state));
        }
        self.branches.list.store(Arc::new(branches));
        if let Some(epoch) = known_epochs.get_mut(branch.id.index()) {
            *epoch = None;
        }
        self.branch_is_gone(&branch, self.context.state.branch(name).as_ref());
        self.placement.forget_full();
        self.context.state.forget(name).map_err(|error| Error::Io {
            doing: format!(
                "branch {name:?}: cannot save its removal; it comes back at the next mount (run the command again)"
            ),
            source: std::io::Error::other(error),
        })
    }

    /// Fails unless a drained branch can be removed without loss: no file is on it, and its directories are on other
    /// branches too.
    fn check_removable(&self, branch: &Arc<Branch>) -> Result<(), Error> {
        let name = || branch.spec.name.clone();
        let unreadable = |source| Error::BranchUnreadable { name: name(), source };
        self.await_earlier_placements().map_err(unreadable)?;
        if let Some(example) = self.file_on(branch).map_err(unreadable)? {
            return Err(Error::BranchNotEmpty { name: name(), example });
        }
        self.migrate.keep_dirs(branch)
    }

    /// A thread that chose this branch for a new file before the drain holds the lock until the file exists, so the
    /// file is seen.
    pub(crate) fn await_earlier_placements(&self) -> OpResult<()> {
        self.tree.rename_lock.try_write_for(LOCK_TIMEOUT).map(drop).ok_or(OpError::Sys(rustix::io::Errno::BUSY))
    }

    /// Any file on a branch, for a message. An error where the branch cannot be looked through to its last directory.
    pub(crate) fn file_on(&self, branch: &Arc<Branch>) -> OpResult<Option<String>> {
        let mut stack = vec![(DirAt::root(branch)?, Vec::<u8>::new())];
        while let Some((dir, path)) = stack.pop() {
            for entry in dir.list(true)? {
                if path.is_empty() && entry.name == crate::branch::HIDDEN_DIR {
                    continue;
                }
                let mut below = path.clone();
                below.push(b'/');
                below.extend_from_slice(std::os::unix::ffi::OsStrExt::as_bytes(entry.name.as_os_str()));
                let Some(meta) = dir.find(&entry.name)? else { continue };
                if meta.kind != FileKind::Directory {
                    return Ok(Some(String::from_utf8_lossy(&below).into_owned()));
                }
                stack.push((dir.descend(&entry.name)?, below));
            }
        }
        Ok(None)
    }
}

/// An error where a new branch is a directory whose disk is missing.
pub(crate) fn is_mounted(spec: &BranchSpec, comes: AddedAs) -> Result<(), Error> {
    let name = || spec.name.clone();
    inspect_path(spec, not_mounted)?
        .map_or(Ok(()), |reason| Err(Error::BranchNotMounted { name: name(), reason, comes }))
}

/// Inspects the path of a new branch. Fails if its file system does not answer in time.
fn inspect_path<T: Send + 'static>(spec: &BranchSpec, inspect: fn(&Path) -> T) -> Result<T, Error> {
    let path = spec.path.clone();
    run_within(INSPECT_TIMEOUT, move || inspect(&path)).ok_or_else(|| Error::BranchUnusable {
        name: spec.name.clone(),
        reason: format!("{} did not answer within {} s", spec.path.display(), INSPECT_TIMEOUT.as_secs()),
    })
}

/// Staging areas that never come back. A change that names one finds it empty, and need not wait for it.
struct GoneAreas {
    uuids: Vec<BranchUuid>,
    root: OwnedFd,
}

impl GoneAreas {
    /// `None` where there are none.
    fn of(state: &StateDir) -> Option<GoneAreas> {
        let uuids: Vec<BranchUuid> = state.gone_areas().into_iter().map(BranchUuid).collect();
        if uuids.is_empty() {
            return None;
        }
        match state.empty_dir() {
            Ok(root) => Some(GoneAreas { uuids, root }),
            Err(error) => {
                tracing::warn!(%error, "changes that concern an earlier staging area wait for the next mount");
                None
            }
        }
    }
}

fn recoverable<'a>(online: &'a [(Arc<Branch>, Arc<Online>)], gone: Option<&'a GoneAreas>) -> Vec<RecoverBranch<'a>> {
    let online = online.iter().map(|(branch, online)| RecoverBranch {
        uuid: BranchUuid(online.uuid),
        root: online.root(),
        writable: !branch.settings().read_only && online.hidden.is_some(),
    });
    let gone = gone.into_iter().flat_map(|gone| {
        gone.uuids.iter().map(|uuid| RecoverBranch { uuid: *uuid, root: gone.root.as_fd(), writable: true })
    });
    online.chain(gone).collect()
}
