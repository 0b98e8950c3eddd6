//! `umbrella repair --equalise`: makes the copies of directories equal in owner, mode and ACLs.
//!
//! 1. The directories below a path that several branches have are walked; those whose copies differ are reported.
//! 2. Only then are they changed, as by a chmod, chown or setfacl of a user: to the rights that users see, or to those
//!    on one branch.
//!
//! Nothing of the walk lasts. A walk that is ended leaves each directory as it was or changed, and can be begun again.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use rustix::fs::FileType;
use rustix::io::Errno;
use umbrella_units::BranchId;

use crate::admin::Admin;
use crate::control::protocol::{
    CopyRights, DirectoryEvent, EqualiseOutcome, EqualiseSummary, Progress, bytes_unless_text,
};
use crate::error::{Error, OpError, OpResult};
use crate::ground::kernel_cache::KernelCache;
use crate::node::{Dir, Node, NodeId};
use crate::rights::Rights;
use crate::tree::Pinned;
use crate::tree::inspected_copy::InspectedCopy;

/// What is to be made equal, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Equalise {
    /// A directory of the pool; all below it too.
    pub path: Vec<u8>,
    /// The branch whose copies are right; `None`: what is shown.
    pub like: Option<String>,
    /// Only say what differs.
    pub dry_run: bool,
}

/// A directory whose copies differ.
struct RightsRepair {
    wanted: Rights,
    copies: Vec<CopyRights>,
    /// Copies that have something else and can be changed.
    others: Vec<BranchId>,
}

struct EqualiseWalk<'a> {
    admin: &'a Admin,
    like: Option<BranchId>,
    tell: &'a mut dyn FnMut(&Progress) -> bool,
    progress: Progress,
    summary: EqualiseSummary,
}

impl Admin {
    /// Makes the copies of directories equal. `tell` hears of each that differs, or could not be changed; it ends the
    /// walk by returning false.
    pub(crate) fn make_equal(
        &self,
        asked: &Equalise,
        tell: &mut dyn FnMut(&Progress) -> bool,
    ) -> Result<EqualiseSummary, Error> {
        let like = match &asked.like {
            Some(name) => Some(self.branches.named(name)?),
            None => None,
        };
        if let Some(branch) = &like {
            let unusable = match branch.online() {
                None => Some("it is offline"),
                Some(online) if !online.abilities.ownership => Some("its file system keeps no owners and modes"),
                Some(_) => None,
            };
            if let Some(reason) = unusable {
                let reason = format!("{reason}, so other branches cannot be made like it");
                return Err(Error::BranchUnusable { name: branch.spec.name.clone(), reason });
            }
        }
        let failed = |source| Error::Path { path: String::from_utf8_lossy(&asked.path).into_owned(), source };
        let top = Pinned::at_path(&self.tree, &asked.path).map_err(failed)?;
        if top.node.dir().is_none() {
            return Err(failed(OpError::Sys(Errno::NOTDIR)));
        }
        let like = like.map(|branch| branch.id);
        let mut walk = EqualiseWalk {
            admin: self,
            like,
            tell,
            progress: Progress::default(),
            summary: EqualiseSummary::default(),
        };
        let differing = walk.list(top);
        if !asked.dry_run && !walk.summary.stopped {
            walk.change(&differing);
        }
        Ok(walk.summary)
    }

    /// What would make a directory's copies equal; `None` where they are. The caller holds the lock on its attributes.
    fn plan(&self, node: &Arc<Node>, dir: &Dir, like: Option<BranchId>) -> OpResult<Option<RightsRepair>> {
        self.tree.compare(node, dir)?;
        let Some(divergence) = dir.state.read().divergence.clone() else { return Ok(None) };
        let inspected = self.tree.inspect_copies(node, dir)?;
        let counts = |seen: &&InspectedCopy| {
            !self.branches.is_staging(seen.at.id())
                && seen.at.online.abilities.ownership
                && !divergence.empty.contains(&seen.at.id())
        };
        let inspected: Vec<&InspectedCopy> = inspected.iter().filter(counts).collect();
        let wanted = match like {
            Some(like) => match inspected.iter().find(|seen| seen.at.id() == like) {
                Some(seen) => seen.rights(),
                None => return Ok(None),
            },
            None => divergence.shown.rights.clone(),
        };
        let others: Vec<BranchId> =
            inspected.iter().filter(|seen| seen.can_follow() && !seen.has(&wanted)).map(|seen| seen.at.id()).collect();
        let copies = inspected.iter().map(|seen| copy_rights(&seen.at.branch.spec.name, &seen.rights())).collect();
        Ok((!others.is_empty()).then_some(RightsRepair { wanted, copies, others }))
    }
}

impl<'a> EqualiseWalk<'a> {
    fn list(&mut self, top: Pinned<'a>) -> Vec<Pinned<'a>> {
        let mut differing = Vec::new();
        let mut stack = vec![top];
        while let Some(at) = stack.pop() {
            self.progress.current = String::from_utf8_lossy(&at.node.path()).into_owned();
            self.summary.directories_seen += 1;
            let event = self.inspect(&at.node).unwrap_or_else(|error| self.not_looked_at(&at.node, error));
            let differs = event.is_some();
            self.tick(event);
            if self.summary.stopped {
                break;
            }
            stack.extend(self.below(&at.node));
            if differs {
                self.summary.directories_differing += 1;
                differing.push(at);
            }
        }
        differing
    }

    fn inspect(&mut self, node: &Arc<Node>) -> OpResult<Option<DirectoryEvent>> {
        let admin = self.admin;
        let dir = node.dir().ok_or(OpError::Sys(Errno::NOTDIR))?;
        let _names = admin.tree.rename_lock.read();
        admin.tree.refresh(node, dir)?;
        let _attributes = dir.attributes.lock();
        let plan = admin.plan(node, dir, self.like)?;
        let has_model = |like: BranchId| {
            let state = dir.state.read();
            let is_there = || state.copies.iter().any(|copy| copy.branch == like);
            state.divergence.as_ref().is_none_or(|it| is_there() && !it.empty.contains(&like))
        };
        if self.like.is_some_and(|like| !has_model(like)) {
            self.summary.directories_without_model += 1;
        }
        Ok(plan.map(|plan| event(node, &plan, EqualiseOutcome::Differs, None)))
    }

    /// Counts a directory that could not be compared, unless it was removed meanwhile.
    fn not_looked_at(&mut self, node: &Arc<Node>, error: OpError) -> Option<DirectoryEvent> {
        if !error.is_missing() {
            let path = String::from_utf8_lossy(&node.path()).into_owned();
            tracing::warn!(path, %error, "a directory could not be compared with its copies");
            self.summary.directories_failed += 1;
        }
        None
    }

    /// Directories in a directory that several branches have.
    fn below(&mut self, node: &Arc<Node>) -> Vec<Pinned<'a>> {
        let admin = self.admin;
        let copies = {
            let _names = admin.tree.rename_lock.read();
            admin.tree.copies(node).unwrap_or_default()
        };
        let mut names: FxHashMap<_, usize> = FxHashMap::default();
        for copy in copies.iter().filter(|_| copies.len() > 1) {
            match copy.list(true) {
                Ok(entries) => {
                    let is_dir = |kind| matches!(kind, FileType::Directory | FileType::Unknown);
                    for entry in entries.into_iter().filter(|entry| is_dir(entry.kind)) {
                        *names.entry(entry.name).or_default() += 1;
                    }
                }
                Err(error) => {
                    let branch = &copy.branch.spec.name;
                    tracing::warn!(%branch, %error, "a directory cannot be listed: everything below it is skipped");
                    self.summary.directories_failed += 1;
                }
            }
        }
        let several = names.into_iter().filter(|(_, count)| *count > 1).map(|(name, _)| name);
        let several = several.filter(|name| node.id != NodeId::ROOT || name != crate::branch::HIDDEN_DIR);
        let mut several: Vec<_> = several.collect();
        several.sort_unstable_by(|a, b| b.cmp(a));
        let found = several.iter().filter_map(|name| Pinned::lookup(&admin.tree, node, name).ok());
        found.filter(|found| found.node.dir().is_some()).collect()
    }

    fn change(&mut self, differing: &[Pinned<'a>]) {
        for at in differing {
            match self.admin.tree.change_and_invalidate(at.node.id, |cache| self.change_one(&at.node, cache)) {
                // Another thread has made them equal meanwhile.
                Ok(None) => self.summary.directories_equalised += 1,
                Ok(Some(event)) => {
                    match event.outcome {
                        EqualiseOutcome::Failed => self.summary.directories_failed += 1,
                        _ => self.summary.directories_equalised += 1,
                    }
                    self.tick(Some(event));
                }
                // It was removed meanwhile.
                Err(error) => {
                    tracing::debug!(%error, "a directory was removed before it was made equal");
                }
            }
            self.tick(None);
            if self.summary.stopped {
                return;
            }
        }
    }

    /// What was done; `None` where nothing had to be.
    fn change_one(&self, node: &Arc<Node>, cache: KernelCache) -> OpResult<Option<DirectoryEvent>> {
        let admin = self.admin;
        let dir = node.dir().ok_or(OpError::Sys(Errno::NOTDIR))?;
        let _names = admin.tree.rename_lock.read();
        admin.tree.refresh(node, dir)?;
        let _attributes = dir.attributes.lock();
        let Some(plan) = admin.plan(node, dir, self.like)? else { return Ok(None) };
        let copies = admin.tree.known_copies(node, dir)?;
        let away = admin.tree.copies_without_rights(node, dir);
        let done = admin.tree.change_copies(node, (&copies, &away), Some(&plan.wanted), cache, |copy| {
            if copy.branch.settings().read_only { Err(OpError::Sys(Errno::ROFS)) } else { Ok(()) }
        });
        let inspected = admin.tree.inspect_copies(node, dir)?;
        let lacks = |seen: &&InspectedCopy| plan.others.contains(&seen.at.id()) && !seen.has(&plan.wanted);
        let left: Vec<&str> = inspected.iter().filter(lacks).map(|seen| seen.at.branch.spec.name.as_str()).collect();
        let why = match done {
            Err(error) => error.to_string(),
            Ok(()) if left.is_empty() => return Ok(Some(event(node, &plan, EqualiseOutcome::Equalised, None))),
            Ok(()) => format!("the copy on {} could not be changed (the daemon's log says why)", left.join(", ")),
        };
        Ok(Some(event(node, &plan, EqualiseOutcome::Failed, Some(why))))
    }

    fn tick(&mut self, event: Option<DirectoryEvent>) {
        self.progress.directory = event;
        let go_on = (self.tell)(&self.progress) && !self.admin.context.is_stopping();
        self.progress.directory = None;
        self.summary.stopped |= !go_on;
    }
}

fn event(node: &Arc<Node>, plan: &RightsRepair, outcome: EqualiseOutcome, detail: Option<String>) -> DirectoryEvent {
    let path = node.path();
    DirectoryEvent {
        path: String::from_utf8_lossy(&path).into_owned(),
        path_bytes: bytes_unless_text(&path),
        copies: plan.copies.clone(),
        to: copy_rights("", &plan.wanted),
        outcome,
        detail,
    }
}

fn copy_rights(branch: &str, rights: &Rights) -> CopyRights {
    CopyRights {
        branch: branch.to_owned(),
        mode: rights.perm,
        uid: rights.uid,
        gid: rights.gid,
        acl: rights.access.is_some() || rights.default.is_some(),
    }
}
