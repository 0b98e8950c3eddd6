//! Changes of names that concern several branches, wherever those may hang.
//!
//! Between local branches they run on the thread that wants them. Where a branch may hang, on its workers: who waits holds up whoever looks up
//! a name. What is not done in time has not begun and does not happen any more; or it has, and is taken for done, while recovery sees to it that
//! it is, on every branch that has not said so, when that is back.

use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rustix::io::Errno;

use super::commit::COMMIT_PATIENCE;
use super::rename::End;
use crate::at::DirAt;
use crate::branch::Online;
use crate::error::{OpError, OpResult};
use crate::node::path_of;
use crate::relocate::{
    self, BranchUuid, Decision, DirRename, DirSite, Exchange, Holds, LeftAt, Place, RelocateError, Removal, Supersede, Swap,
};
use crate::spec::STAGING;

/// Two directories on one branch, one for each of the two names, and which of the names it has in them.
pub(super) struct Site {
    pub(super) one: DirAt,
    pub(super) other: DirAt,
    pub(super) holds: Holds,
}

/// A name in the pool.
struct Name {
    name: OsString,
    path: Vec<u8>,
}

impl Name {
    fn of(end: &End<'_>) -> Name {
        Name { name: end.name.to_owned(), path: path_of(&end.parent, end.name) }
    }

    fn on<'a>(&'a self, dir: &'a impl AsFd) -> Place<'a> {
        Place { dir: dir.as_fd(), name: &self.name }
    }
}

/// Renames a directory on all branches that have it: from the first of each pair of directories to the second.
pub(super) fn rename_dir(from: &End<'_>, to: &End<'_>, places: &[(DirAt, DirAt)], replaced: bool) -> OpResult<()> {
    let (old, new) = (Name::of(from), Name::of(to));
    let owned: Vec<_> = in_order(places, |(old, _)| old)
        .map(|(old, new)| (BranchUuid(old.online.uuid), Arc::clone(&old.fd), Arc::clone(&new.fd)))
        .collect();
    let branches: Vec<_> = places.iter().map(|(old, _)| old).collect();
    let rename = move |intents: BorrowedFd<'_>, decision: &Decision| {
        let site = |(branch, from, to)| DirSite { branch, from: old.on(from), to: new.on(to) };
        let sites: Vec<_> = owned.iter().map(|(branch, from, to)| site((*branch, from, to))).collect();
        relocate::rename_dir(&DirRename {
            sites: &sites,
            from_path: &old.path,
            to_path: &new.path,
            replaced,
            intents,
            decision,
            hook: None,
        })
    };
    done_or_unsure(&branches, carry_out(&branches, rename))
}

/// Exchanges two names, of which one at least is a directory's, on all branches that have either.
pub(super) fn exchange(one: &End<'_>, other: &End<'_>, sites: &[Site]) -> OpResult<()> {
    let (first, second) = (Name::of(one), Name::of(other));
    let owned: Vec<_> = in_order(sites, |site| &site.one)
        .map(|site| (BranchUuid(site.one.online.uuid), Arc::clone(&site.one.fd), Arc::clone(&site.other.fd), site.holds))
        .collect();
    let branches: Vec<_> = sites.iter().map(|site| &site.one).collect();
    let exchange = move |intents: BorrowedFd<'_>, decision: &Decision| {
        let swaps: Vec<_> = owned
            .iter()
            .map(|(branch, one, other, holds)| Swap {
                branch: *branch,
                one: first.on(one),
                other: second.on(other),
                holds: *holds,
            })
            .collect();
        relocate::exchange(&Exchange {
            swaps: &swaps,
            one_path: &first.path,
            other_path: &second.path,
            intents,
            decision,
            hook: None,
        })
    };
    done_or_unsure(&branches, carry_out(&branches, exchange))
}

/// Renames a file, from `dir` to `to_dir` on one branch, over one that is in `target_dir` on another.
pub(super) fn supersede(
    from: &End<'_>,
    to: &End<'_>,
    dir: &DirAt,
    to_dir: &DirAt,
    target_dir: &DirAt,
) -> OpResult<()> {
    let (old, new) = (Name::of(from), Name::of(to));
    let (winner, loser) = (BranchUuid(dir.online.uuid), BranchUuid(target_dir.online.uuid));
    let [from_fd, to_fd, replaced_fd] = [dir, to_dir, target_dir].map(|dir| Arc::clone(&dir.fd));
    let branches = [dir, target_dir];
    let supersede = move |intents: BorrowedFd<'_>, decision: &Decision| {
        relocate::supersede(&Supersede {
            winner,
            from: old.on(&from_fd),
            to: new.on(&to_fd),
            loser,
            replaced: new.on(&replaced_fd),
            from_path: &old.path,
            to_path: &new.path,
            intents,
            decision,
            hook: None,
        })
    };
    match carry_out(&branches, supersede) {
        Ok(Removal::Done) => Ok(()),
        // When it is back, recovery removes what is left there.
        Ok(Removal::Unsure { errno }) | Err(Unfinished::Left { at: LeftAt::Ending, errno }) => {
            target_dir.branch.take_offline(unsure("a file that was replaced is gone", errno));
            Ok(())
        }
        Err(unfinished) => {
            if unfinished.is_in_doubt() {
                dir.branch.take_offline(unsure("a file has its new name", unfinished.errno()));
            }
            Err(OpError::Sys(unfinished.errno()))
        }
    }
}

fn done_or_unsure(branches: &[&DirAt], done: Result<Vec<BranchUuid>, Unfinished>) -> OpResult<()> {
    let take_offline = |is_unsure: &dyn Fn(&DirAt) -> bool, errno| {
        for dir in branches.iter().filter(|dir| is_unsure(dir)) {
            dir.branch.take_offline(unsure("names have changed", errno));
        }
    };
    match done {
        Ok(silent) => {
            take_offline(&|dir| silent.contains(&BranchUuid(dir.online.uuid)), Errno::IO);
            Ok(())
        }
        Err(Unfinished::Left { at: LeftAt::Begun, errno }) => {
            take_offline(&|dir| dir.online.guarded, errno);
            Ok(())
        }
        Err(unfinished) => {
            if unfinished.is_in_doubt() {
                take_offline(&|dir| dir.online.guarded, unfinished.errno());
            }
            Err(OpError::Sys(unfinished.errno()))
        }
    }
}

fn unsure(what: &str, errno: Errno) -> String {
    format!("it does not say whether {what} ({errno})")
}

/// Why a change was not carried out, or is not known to be.
enum Unfinished {
    Failed(RelocateError),
    Left { at: LeftAt, errno: Errno },
}

impl Unfinished {
    fn errno(&self) -> Errno {
        match self {
            Unfinished::Failed(error) => error.errno(),
            Unfinished::Left { errno, .. } => *errno,
        }
    }

    /// Whether some of it may have happened.
    fn is_in_doubt(&self) -> bool {
        match self {
            Unfinished::Failed(error) => !error.is_settled(),
            Unfinished::Left { at, .. } => *at != LeftAt::Open,
        }
    }
}

/// Those that may hang last: what is left of a change, when one does, is on that alone.
fn in_order<T>(places: &[T], dir: impl Fn(&T) -> &DirAt) -> impl Iterator<Item = &T> {
    let (guarded, local): (Vec<_>, Vec<_>) = places.iter().partition(|place| dir(place).online.guarded);
    local.into_iter().chain(guarded)
}

/// Does a change that is recorded on one of these branches; on the next one where there is no room for the record.
fn carry_out<T: Send + 'static>(
    branches: &[&DirAt],
    call: impl Fn(BorrowedFd<'_>, &Decision) -> Result<T, RelocateError> + Send + 'static,
) -> Result<T, Unfinished> {
    if branches.iter().any(|dir| dir.online.hidden.is_none()) {
        return Err(Unfinished::Left { at: LeftAt::Open, errno: Errno::ROFS });
    }
    // A power loss empties the staging area: what it holds of a change that others share is not the place to remember it.
    let lasting = |dir: &DirAt| dir.branch.spec.name != STAGING;
    let any_lasting = branches.iter().any(|dir| lasting(dir));
    let places: Vec<Arc<Online>> = in_order(branches, |dir| dir)
        .filter(|dir| !any_lasting || lasting(dir))
        .map(|dir| Arc::clone(&dir.online))
        .collect();
    let decision = Arc::new(Decision::default());
    let theirs = Arc::clone(&decision);
    let change = move || {
        let mut done = Err(RelocateError::NoSpace);
        for hidden in places.iter().filter_map(|online| online.hidden.as_ref()) {
            done = call(hidden.intents.as_fd(), &theirs);
            if !matches!(done, Err(RelocateError::NoSpace)) {
                break;
            }
        }
        done
    };
    match branches.iter().find(|dir| dir.online.guarded) {
        None => change().map_err(Unfinished::Failed),
        Some(guarded) => match guarded.branch.io_within(COMMIT_PATIENCE, move |_| Ok(change())) {
            Ok(done) => done.map_err(Unfinished::Failed),
            Err(errno) => Err(Unfinished::Left { at: decision.leave(), errno }),
        },
    }
}
