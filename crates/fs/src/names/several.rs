//! Changes of names that concern several branches, wherever those may hang.
//!
//! A rename blocks lookups. So calls to branches that may hang run on workers, with a time limit. After the limit the
//! branch goes offline, the others go on, and recovery gives it the new names later (`relocate::names`).

use std::ffi::OsStr;
use std::sync::Arc;

use rustix::io::Errno;

use crate::branch::{Branch, Online};
use crate::error::{OpError, OpResult};
use crate::ground::at::DirAt;
use crate::migrate::COMMIT_TIMEOUT;
use crate::node::{Node, path_of};
use crate::relocate;
use crate::relocate::{
    BranchCaller, BranchUuid, DirRename, DirSite, Directory, Exchange, Journal, OwnedEntry, Presence, RelocateError,
    Removal, Supersede, Swap,
};
use crate::spec::STAGING;

/// What a rename leaves at the old name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OldName {
    /// Nothing.
    Nothing,
    /// A whiteout: overlayfs knows by it that a name of a lower layer is gone.
    Whiteout,
}

/// One end of a rename.
pub(crate) struct RenameSide<'a> {
    pub(crate) parent: Arc<Node>,
    pub(crate) name: &'a OsStr,
    pub(crate) behind: OldName,
}

/// Two directories on one branch, one for each of the two names, and which of the names it has in them.
pub(crate) struct Site {
    pub(crate) one: DirAt,
    pub(crate) other: DirAt,
    pub(crate) holds: Presence,
}

/// A branch, as it was when a change of names was made ready: one that went offline since may hang.
#[derive(Clone)]
struct OnlineBranch {
    branch: Arc<Branch>,
    online: Arc<Online>,
}

impl OnlineBranch {
    fn of(dir: &DirAt) -> OnlineBranch {
        OnlineBranch { branch: Arc::clone(&dir.branch), online: Arc::clone(&dir.online) }
    }
}

impl BranchCaller for OnlineBranch {
    fn call<T: Send + 'static>(
        &self,
        call: impl FnOnce() -> Result<T, RelocateError> + Send + 'static,
    ) -> Result<T, RelocateError> {
        if !self.online.guarded {
            return call();
        }
        let no_answer = |errno| RelocateError::Io { doing: "reach the branch", errno };
        self.branch.io_within(COMMIT_TIMEOUT, move |_| Ok(call())).map_err(no_answer)?
    }
}

/// Renames a directory on all branches that have it: from the first of each pair of directories to the second.
pub(crate) fn rename_dir(
    from: &RenameSide<'_>,
    to: &RenameSide<'_>,
    places: &[(DirAt, DirAt)],
    replaced: bool,
) -> OpResult<()> {
    let site = |(old, new): &(DirAt, DirAt)| DirSite {
        branch: BranchUuid(old.online.uuid),
        reach: OnlineBranch::of(old),
        from: owned_entry(old, from),
        to: owned_entry(new, to),
    };
    let sites: Vec<_> = hanging_last(places, |(old, _)| old).map(site).collect();
    let branches: Vec<_> = places.iter().map(|(old, _)| old).collect();
    let done = relocate::rename_dir(&DirRename {
        sites: &sites,
        from_path: &path_of(&from.parent, from.name),
        to_path: &path_of(&to.parent, to.name),
        replaced,
        journals: &journals(&branches)?,
        hook: None,
    });
    done_or_unsure(&branches, done)
}

/// Exchanges two names, of which one at least is a directory's, on all branches that have either.
pub(crate) fn exchange(one: &RenameSide<'_>, other: &RenameSide<'_>, sites: &[Site]) -> OpResult<()> {
    let swap = |site: &Site| Swap {
        branch: BranchUuid(site.one.online.uuid),
        reach: OnlineBranch::of(&site.one),
        one: owned_entry(&site.one, one),
        other: owned_entry(&site.other, other),
        holds: site.holds,
    };
    let swaps: Vec<_> = hanging_last(sites, |site| &site.one).map(swap).collect();
    let branches: Vec<_> = sites.iter().map(|site| &site.one).collect();
    let done = relocate::exchange(&Exchange {
        swaps: &swaps,
        one_path: &path_of(&one.parent, one.name),
        other_path: &path_of(&other.parent, other.name),
        journals: &journals(&branches)?,
        hook: None,
    });
    done_or_unsure(&branches, done)
}

/// Renames a file, from `dir` to `to_dir` on one branch, over one that is in `target_dir` on another.
pub(crate) fn supersede(
    from: &RenameSide<'_>,
    to: &RenameSide<'_>,
    dir: &DirAt,
    to_dir: &DirAt,
    target_dir: &DirAt,
) -> OpResult<()> {
    let winner = DirSite {
        branch: BranchUuid(dir.online.uuid),
        reach: OnlineBranch::of(dir),
        from: owned_entry(dir, from),
        to: owned_entry(to_dir, to),
    };
    let done = relocate::supersede(&Supersede {
        winner: &winner,
        loser: BranchUuid(target_dir.online.uuid),
        loser_reach: &OnlineBranch::of(target_dir),
        replaced: &owned_entry(target_dir, to),
        from_path: &path_of(&from.parent, from.name),
        to_path: &path_of(&to.parent, to.name),
        journals: &journals(&[dir, target_dir])?,
        hook: None,
    });
    match done {
        Ok(Removal::Done) => {}
        // When it is back, recovery removes what is left there.
        Ok(Removal::Unsure { errno }) => {
            let reason = format!("it did not confirm the removal of a replaced file ({errno})");
            target_dir.branch.take_offline(reason);
        }
        Err(error) => {
            if !error.is_settled() {
                dir.branch.take_offline(format!("a rename on it: {error}"));
            }
            return Err(OpError::Sys(error.errno()));
        }
    }
    Ok(())
}

fn done_or_unsure(branches: &[&DirAt], done: Result<Vec<BranchUuid>, RelocateError>) -> OpResult<()> {
    match done {
        Ok(unsure) => {
            for dir in branches.iter().filter(|dir| unsure.contains(&BranchUuid(dir.online.uuid))) {
                // When it is back, recovery finishes it there.
                dir.branch.take_offline("it did not confirm a rename".to_owned());
            }
            Ok(())
        }
        Err(error) => {
            if let RelocateError::NoAnswer { branch, .. } = &error {
                for dir in branches.iter().filter(|dir| dir.online.uuid == branch.0) {
                    // When it is back, recovery takes there back what has happened.
                    dir.branch.take_offline(error.to_string());
                }
            } else if !error.is_settled() {
                for dir in branches.iter().filter(|dir| dir.online.guarded) {
                    dir.branch.take_offline(format!("a rename: {error}"));
                }
            }
            Err(OpError::Sys(error.errno()))
        }
    }
}

fn owned_entry(dir: &DirAt, end: &RenameSide<'_>) -> OwnedEntry {
    OwnedEntry { dir: Arc::clone(&dir.fd) as Directory, name: end.name.to_owned() }
}

/// The places in order, with branches that may hang last. If one hangs, the rest of the change concerns only that
/// branch.
fn hanging_last<T>(places: &[T], dir: impl Fn(&T) -> &DirAt) -> impl Iterator<Item = &T> {
    let (guarded, local): (Vec<_>, Vec<_>) = places.iter().partition(|place| dir(place).online.guarded);
    local.into_iter().chain(guarded)
}

/// Where a change on these branches may be recorded.
fn journals(branches: &[&DirAt]) -> OpResult<Vec<Journal<OnlineBranch>>> {
    // A power loss empties the staging area: what it holds of a change that others share is not the place to remember
    // it.
    let lasting = |dir: &DirAt| dir.branch.spec.name != STAGING;
    let any_lasting = branches.iter().any(|dir| lasting(dir));
    let journal = |dir: &&DirAt| -> OpResult<Journal<OnlineBranch>> {
        let hidden = dir.online.hidden.as_ref().ok_or(OpError::Sys(Errno::ROFS))?;
        Ok(Journal { reach: OnlineBranch::of(dir), dir: Arc::clone(&hidden.intents) as Directory })
    };
    // None of them may be read-only.
    let all = hanging_last(branches, |dir| dir).map(|dir| Ok((lasting(dir), journal(dir)?)));
    let all = all.collect::<OpResult<Vec<_>>>()?;
    Ok(all.into_iter().filter(|(lasts, _)| *lasts || !any_lasting).map(|(_, journal)| journal).collect())
}
