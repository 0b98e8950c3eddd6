//! Puts another disk in a branch's place, because the disk that was there broke, was formatted anew, or lost its
//! marker.
//!
//! 1. A check that no user loses sight of files without having asked for that.
//! 2. The old branch goes, with all that the pool remembers of it.
//! 3. The new branch comes online. The pool notes where the old one was, and rules now mean the new one.
//!
//! If the new branch cannot come online, the old branch and its memory are put back.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use umbrella_units::BranchId;

use crate::admin::Admin;
use crate::admin::membership::is_mounted;
use crate::branch::state::Remembered;
use crate::branch::{Branch, run_within};
use crate::error::{AddedAs, Error};
use crate::ground::advice::advised;
use crate::spec::BranchSpec;

/// How long a disk may take to say which it is.
const LOOK: Duration = Duration::from_secs(1);

impl Admin {
    /// Takes in what is now at the path of a branch, or at another path, as a new branch of the same name. Files on the
    /// old one vanish from the tree; while it is online and holds some, only by `force`.
    pub(crate) fn replace_branch(&self, name: &str, path: Option<PathBuf>, force: bool) -> Result<(), Error> {
        let old = self.branches.named(name)?;
        let memory = self.context.state.branch(name);
        let path = path.unwrap_or_else(|| old.spec.path.clone());
        // In the place of a disk goes a disk, not the directory below its mount point.
        let was_mount = memory.as_ref().is_some_and(|known| known.was_mount) && !force;
        let require_mount = old.settings().require_mount.or(was_mount.then_some(true));
        let spec = BranchSpec { path, require_mount, ..BranchSpec::clone(&old.settings()) };
        self.no_overlap(&spec)?;
        if !force && spec.path != old.spec.path && require_mount != Some(false) {
            is_mounted(&spec, AddedAs::InPlace)?;
        }
        let was_draining = old.draining();
        if !force && old.is_online() {
            old.set_draining_for_now(true);
            self.refuse_files(&old).inspect_err(|_| old.set_draining_for_now(was_draining))?;
        }
        if is_still_at(&old, &spec.path) {
            old.set_draining_for_now(was_draining);
            return Err(Error::StillInPlace { name: name.to_owned(), path: spec.path });
        }
        // Before the monitor has to wait: the branch may hang.
        old.retire("replaced".to_owned());
        let mut known_epochs = self.branches.known_epochs.lock();
        let before = self.branches.list.load_full();
        let mut branches = Vec::clone(&before);
        let gone = BranchSpec { name: String::new(), optional: true, ..BranchSpec::clone(&old.settings()) };
        if let Some(place) = branches.get_mut(old.id.index()) {
            *place = Branch::new(old.id, gone, Arc::clone(&self.context.state));
        }
        self.branches.list.store(Arc::new(branches.clone()));
        let former = former_paths(&old, memory.as_ref(), &spec.path);
        let new = match self.install_replacement(BranchId(branches.len() as u16), spec, former) {
            Ok(new) => new,
            Err(reason) => {
                let remembered = memory.as_ref().map_or(Ok(()), |known| self.context.state.remember(name, known));
                let noted = || self.context.state.note_errors(name, &old.errors());
                if let Err(error) = remembered
                    .and_then(|()| self.context.state.note_draining(name, was_draining))
                    .and_then(|()| noted())
                {
                    tracing::error!(branch = name, %error, "cannot restore the pool's record of the branch");
                }
                old.set_draining_for_now(was_draining);
                old.reinstate();
                self.branches.list.store(before);
                // Else a probe will; the monitor tells the tree.
                let _ = old.bring_online();
                return Err(Error::BranchUnusable { name: name.to_owned(), reason });
            }
        };
        if let Some(epoch) = known_epochs.get_mut(old.id.index()) {
            *epoch = None;
        }
        old.clear_errors();
        self.branch_is_gone(&old, memory.as_ref());
        branches.push(Arc::clone(&new));
        self.branches.list.store(Arc::new(branches));
        self.placement.rebind_rules();
        let known = self.branch_changed(&new, new.online().as_ref());
        known_epochs.push(if known { new.epoch() } else { None });
        Ok(())
    }

    /// An error that names a file on a branch that takes nothing new.
    fn refuse_files(&self, old: &Arc<Branch>) -> Result<(), Error> {
        let name = || old.spec.name.clone();
        let unreadable = |source| Error::BranchUnreadable { name: name(), source };
        self.await_earlier_placements().map_err(unreadable)?;
        match self.file_on(old).map_err(unreadable)? {
            Some(example) => Err(Error::ReplacesFiles { name: name(), example }),
            None => Ok(()),
        }
    }

    /// Installs the new branch and brings it online. Forgets the old one before, also its drain, because the new one
    /// would take no files.
    fn install_replacement(&self, id: BranchId, spec: BranchSpec, former: Vec<PathBuf>) -> Result<Arc<Branch>, String> {
        let name = spec.name.clone();
        self.context.state.forget(&name).map_err(|error| error.to_string())?;
        let new = Branch::new(id, spec, Arc::clone(&self.context.state));
        new.set_access_times(self.context.spec.access_times);
        new.bring_online().map_err(|error| advised(&error))?;
        self.context.state.note_former_paths(&name, former).map_err(|error| error.to_string())?;
        Ok(new)
    }
}

/// Whether what is at a path is the branch as it is in use. Where it does not say so soon, it is not.
fn is_still_at(old: &Branch, path: &Path) -> bool {
    let Some(online) = old.online() else { return false };
    let path = path.to_owned();
    let is_same = move || {
        let (own, there) = (rustix::fs::fstat(online.root()).ok()?, rustix::fs::stat(&path).ok()?);
        Some((own.st_dev, own.st_ino) == (there.st_dev, there.st_ino))
    };
    run_within(LOOK, is_same).flatten() == Some(true)
}

/// Where disks were that this one takes the place of, so that a configuration that still names one of them brings none
/// back.
fn former_paths(old: &Branch, memory: Option<&Remembered>, new: &Path) -> Vec<PathBuf> {
    let mut former = memory.map(|known| known.former_paths.clone()).unwrap_or_default();
    former.push(old.spec.path.clone());
    former.sort();
    former.dedup();
    former.retain(|path| path != new);
    former
}
