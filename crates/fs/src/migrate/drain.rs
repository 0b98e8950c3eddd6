//! A branch is emptied: every file moves to where else it may be, and directories that are only there get a copy
//! elsewhere.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use smallvec::SmallVec;
use umbrella_policy::placement::spec::FileKind;
use umbrella_units::BranchId;

use crate::branch::Branch;
use crate::control::protocol::{BranchState, EnforceSummary, Progress, Purpose};
use crate::error::{Error, NameConflict, OpResult};
use crate::ground::at::DirAt;
use crate::ground::creds::Caller;
use crate::migrate::{Migrations, WalkOptions};
use crate::node::{Node, NodeId, path_of};
use crate::placement::NewFile;
use crate::tree::Pinned;

impl Migrations {
    /// Empties a branch: nothing new goes there, and every file moves to where else it may be. `Branch::set_draining`
    /// stays on, over unmounts too, until [`Migrations::stop_drain`].
    pub(crate) fn drain(&self, name: &str, tell: &mut dyn FnMut(&Progress) -> bool) -> Result<EnforceSummary, Error> {
        let branch = self.branches.named(name)?;
        if let BranchState::Offline { reason, .. } = branch.branch_state() {
            return Err(Error::DrainOffline { name: name.to_owned(), reason });
        }
        let unkept = |error| Error::DrainUnkept { name: name.to_owned(), source: error };
        branch.set_draining(true).map_err(unkept)?;
        let bandwidth = self.context.settings().enforce.bandwidth;
        let walk = WalkOptions { dry_run: false, bandwidth, only: Some(branch.id), purpose: Purpose::Drain };
        let summary = self.enforce(walk, &mut |progress| tell(progress) && branch.draining());
        if !branch.draining() {
            return Err(Error::DrainStopped { name: name.to_owned() });
        }
        if self.context.is_stopping() {
            return Err(Error::DrainEnded { name: name.to_owned() });
        }
        if summary.stopped {
            return Ok(summary);
        }
        let kept = self.keep_dirs(&branch);
        let unread = |source| Error::DrainUnread { name: name.to_owned(), source };
        let (example, twice, clash) = self.leftover_on(&branch).map_err(unread)?.into_example();
        match example {
            None => kept.map(|()| summary),
            Some(example) => Err(Error::NotDrained {
                name: name.to_owned(),
                example,
                busy: summary.files_busy,
                no_room: summary.files_no_room,
                failed: summary.files_failed,
                twice: twice.map(Box::new),
                clash: clash.map(Box::new),
            }),
        }
    }

    /// Places new files on a branch again, and ends the walk that empties it.
    pub(crate) fn stop_drain(&self, name: &str) -> Result<(), Error> {
        let unkept = |error| Error::DrainUnkept { name: name.to_owned(), source: error };
        self.branches.named(name)?.set_draining(false).map_err(unkept)
    }

    /// Directories that only a branch that takes nothing new has get a copy elsewhere, so that none vanishes with it:
    /// where a new directory of that name would be made.
    pub(crate) fn keep_dirs(&self, branch: &Branch) -> Result<(), Error> {
        let mut stack = vec![Pinned::root(&self.tree)];
        while let Some(dir) = stack.pop() {
            let below = self.keep_dir(&dir.node, branch).map_err(|source| {
                let path = String::from_utf8_lossy(&dir.node.path()).into_owned();
                Error::Path { path, source }
            })?;
            for name in below {
                match Pinned::lookup(&self.tree, &dir.node, &name) {
                    Ok(below) if below.node.dir().is_some() => stack.push(below),
                    Ok(_) => {}
                    Err(error) if error.is_missing() => {}
                    Err(source) => {
                        let path = String::from_utf8_lossy(&path_of(&dir.node, &name)).into_owned();
                        return Err(Error::Path { path, source });
                    }
                }
            }
        }
        Ok(())
    }

    /// Sees to it that a directory is on another branch; the names of those in it that are on `branch`.
    fn keep_dir(&self, node: &Arc<Node>, branch: &Branch) -> OpResult<Vec<OsString>> {
        let _names = self.tree.rename_lock.read();
        // What is in the staging area does not stay either.
        let stays = |other: BranchId| other != branch.id && !self.branches.is_staging(other);
        let copies = match self.tree.copies(node) {
            Err(error) if error.is_missing() => return Ok(Vec::new()), // Removed meanwhile.
            copies => copies?,
        };
        let Some(here) = copies.iter().find(|copy| copy.id() == branch.id) else { return Ok(Vec::new()) };
        if !copies.iter().any(|copy| stays(copy.id()))
            && let Some((parent, name)) = node.place()
        {
            let meta = here.stat_self()?;
            let caller = Caller { uid: meta.uid, gid: meta.gid, umask: 0 };
            let new = NewFile { parent: &parent, name: &name, kind: FileKind::Directory, perm: meta.perm, caller };
            let mut full: SmallVec<[BranchId; 4]> = smallvec::smallvec![branch.id];
            loop {
                let other = self.placement.place_new(&new, &full)?;
                match self.tree.ensure_dir(node, other) {
                    Err(error) if error.is_full() => full.push(other),
                    made => break made.map(drop)?,
                }
            }
        }
        let mut below = Vec::new();
        for entry in here.list(true)? {
            if node.id == NodeId::ROOT && entry.name == crate::branch::HIDDEN_DIR {
                continue;
            }
            if here.find(&entry.name)?.is_some_and(|meta| meta.kind == FileKind::Directory) {
                below.push(entry.name);
            }
        }
        Ok(below)
    }
}

/// What is left.
#[derive(Debug, Default)]
pub(crate) struct Leftover {
    /// One of the files, as a path in the pool.
    pub(crate) example: Option<String>,
    /// Files that another branch has too.
    pub(crate) twice: Option<NameConflict>,
    /// Directories here that are files there, or the other way round.
    pub(crate) clash: Option<NameConflict>,
}

/// One directory, on the branch to be emptied and on those others that have it.
struct DirPair {
    here: DirAt,
    others: Vec<DirAt>,
    path: PathBuf,
}

impl Migrations {
    /// Looks through a whole branch, and for each name it still has at all others that are online.
    pub(crate) fn leftover_on(&self, branch: &Arc<Branch>) -> OpResult<Leftover> {
        let others = self.branches.list.load();
        let others = others.iter().filter(|other| other.id != branch.id && !self.branches.is_staging(other.id));
        let others = others.filter(|other| other.is_online()).filter_map(|other| DirAt::root(other).ok()).collect();
        let mut left = Leftover::default();
        let mut stack = vec![DirPair { here: DirAt::root(branch)?, others, path: PathBuf::new() }];
        while let Some(place) = stack.pop() {
            for entry in place.here.list(true)? {
                if place.path.as_os_str().is_empty() && entry.name == crate::branch::HIDDEN_DIR {
                    continue;
                }
                left.inspect(&place, &entry.name, &mut stack)?;
            }
        }
        Ok(left)
    }
}

impl Leftover {
    fn inspect(&mut self, place: &DirPair, name: &OsStr, stack: &mut Vec<DirPair>) -> OpResult<()> {
        let Some(meta) = place.here.find(name)? else { return Ok(()) };
        let path = place.path.join(name);
        let is_dir = meta.kind == FileKind::Directory;
        if !is_dir && self.example.is_none() {
            self.example = Some(format!("/{}", String::from_utf8_lossy(path.as_os_str().as_bytes())));
        }
        let mut below = Vec::new();
        for other in &place.others {
            let Some(there) = other.find(name)? else { continue };
            match (is_dir, there.kind == FileKind::Directory) {
                (true, true) => below.push(other.descend(name)?),
                (false, false) => note(&mut self.twice, place, other, &path),
                _ => note(&mut self.clash, place, other, &path),
            }
        }
        if is_dir {
            stack.push(DirPair { here: place.here.descend(name)?, others: below, path });
        }
        Ok(())
    }

    /// A directory here that is a file there keeps no file from leaving, but would be lost with the branch.
    pub(crate) fn into_example(self) -> (Option<String>, Option<NameConflict>, Option<NameConflict>) {
        let clash = self.clash.as_ref().map(|clash| clash.here.display().to_string());
        (self.example.or(clash), self.twice, self.clash)
    }
}

fn note(seen: &mut Option<NameConflict>, place: &DirPair, other: &DirAt, path: &Path) {
    let on = |dir: &DirAt| dir.branch.spec.path.join(path);
    let hidden = [&place.here, other].iter().any(|dir| dir.branch.settings().hide);
    seen.get_or_insert_with(|| NameConflict { names: 0, here: on(&place.here), there: on(other), hidden }).names += 1;
}
