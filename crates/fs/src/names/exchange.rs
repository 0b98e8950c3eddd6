//! Two entries change names where one at least is a directory. On one branch that is one system call; over several it
//! is recorded first (see `relocate`). No copy of anything is made: each branch exchanges what it has.

use std::sync::Arc;

use rustix::fs::RenameFlags;
use rustix::io::Errno;

use crate::error::{OpError, OpResult};
use crate::names::rename::{note_changed, note_renamed, rename_known};
use crate::names::several::{RenameSide, Site};
use crate::names::{Names, several};
use crate::node::{Body, NameChange, Node, NodeId};
use crate::relocate::Presence;
use crate::tree::lookup::MergedEntry;

impl Names {
    /// Exchanges two entries on all branches that have either. The caller holds the rename lock exclusively.
    pub(crate) fn exchange_dirs(
        &self,
        one: &RenameSide<'_>,
        other: &RenameSide<'_>,
        (node, found): (&Arc<Node>, &MergedEntry),
        (other_node, other_found): (&Arc<Node>, &MergedEntry),
    ) -> OpResult<()> {
        if is_below(&other.parent, node.id) || is_below(&one.parent, other_node.id) {
            return Err(OpError::Sys(Errno::INVAL));
        }
        let sites = self.exchange_sites(one, other, found, other_found)?;
        match sites.as_slice() {
            [site] if site.holds == Presence::Both => {
                site.one.rename(one.name, &site.other, other.name, RenameFlags::EXCHANGE)?;
                note_renamed((one, &site.one), (other, &site.other), NameChange::Given);
            }
            sites => several::exchange(one, other, sites)?,
        }
        for site in &sites {
            note_changed(&one.parent, &site.one);
            note_changed(&other.parent, &site.other);
        }
        for (node, old, new) in [(node, one, other), (other_node, other, one)] {
            match &node.body {
                Body::Dir(dir) => {
                    dir.state.write().place = Some((Arc::clone(&new.parent), new.name.to_owned()));
                    self.migrate.revisit_below(node);
                }
                Body::File(file) => {
                    let mut state = file.state.write();
                    state.abort_copy();
                    rename_known(&mut state, old, new);
                    state.needs_evaluation = true;
                    drop(state);
                    self.migrate.evaluate_renamed(node, None);
                }
            }
        }
        Ok(())
    }

    /// The branches that have either name, each with both directories; missing directories are made.
    fn exchange_sites(
        &self,
        one: &RenameSide<'_>,
        other: &RenameSide<'_>,
        found: &MergedEntry,
        other_found: &MergedEntry,
    ) -> OpResult<Vec<Site>> {
        let has = |found: &MergedEntry, branch| found.at.iter().any(|(dir, _)| dir.id() == branch);
        let mut sites: Vec<Site> = Vec::new();
        for (dir, _) in found.at.iter().chain(&other_found.at) {
            let branch = dir.id();
            if sites.iter().any(|site| site.one.id() == branch) {
                continue;
            }
            let holds = match (has(found, branch), has(other_found, branch)) {
                (true, true) => Presence::Both,
                (true, false) => Presence::One,
                _ => Presence::Other,
            };
            if holds == Presence::Both && !dir.branch.abilities().rename_flags {
                return Err(OpError::Sys(Errno::INVAL));
            }
            sites.push(Site {
                one: self.tree.ensure_dir(&one.parent, branch)?,
                other: self.tree.ensure_dir(&other.parent, branch)?,
                holds,
            });
        }
        Ok(sites)
    }
}

/// Whether `at` is the directory `above`, or somewhere below it.
fn is_below(at: &Arc<Node>, above: NodeId) -> bool {
    let mut at = Arc::clone(at);
    loop {
        if at.id == above {
            return true;
        }
        match at.place() {
            Some((parent, _)) => at = parent,
            None => return false,
        }
    }
}
