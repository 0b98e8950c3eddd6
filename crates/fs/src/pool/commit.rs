//! The end of a move: the copy gets its names, and the source goes. Between local branches on the thread that moves; where one may hang, on its workers.

use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use super::transfer::Leg;
use crate::branch::{Branch, Online};
use crate::relocate::{self, BranchUuid, Decision, Durability, LeftAt, Move, MovedName, Place, RelocateError, Removal};

/// Commits a move. Where a branch may hang, on its workers: the caller holds locks that others wait for. What is not done in time either
/// does not happen any more, or has happened but for the end of the source.
pub(super) fn commit_guarded(
    legs: &[Leg],
    paths: &[Vec<u8>],
    target: &Arc<Branch>,
    online: &Arc<Online>,
    temp: &OsStr,
    copied: &relocate::Copied,
    durability: Durability,
) -> Result<Removal, RelocateError> {
    let first = legs.first().ok_or(RelocateError::Changed)?;
    let source = &first.from;
    let decision = Arc::new(Decision::default());
    let theirs = Arc::clone(&decision);
    let owned: Vec<_> = legs
        .iter()
        .zip(paths)
        .map(|(leg, path)| (Arc::clone(&leg.from.fd), Arc::clone(&leg.to.fd), leg.name.clone(), path.clone()))
        .collect();
    let (from, to, temp, copied) = (Arc::clone(&source.online), Arc::clone(online), temp.to_owned(), copied.clone());
    let commit = move || {
        let hidden = to.hidden.as_ref().ok_or(RelocateError::Changed)?;
        // What is not synced must not be promised by an intent that is: it lies where the source does.
        let intents = match durability {
            Durability::Now => hidden,
            Durability::Begun => from.hidden.as_ref().ok_or(RelocateError::Changed)?,
        };
        let names: Vec<_> = owned
            .iter()
            .map(|(from, to, name, path)| MovedName {
                source: Place { dir: from.as_fd(), name },
                target: Place { dir: to.as_fd(), name },
                path,
            })
            .collect();
        relocate::commit(&Move {
            from: BranchUuid(from.uuid),
            to: BranchUuid(to.uuid),
            names: &names,
            temp: Place { dir: hidden.tmp.as_fd(), name: &temp },
            intents: intents.intents.as_fd(),
            copied: &copied,
            durability,
            decision: &theirs,
            hook: None,
        })
    };
    // As they were when the move was made ready: one that went offline since may hang.
    let guarded = [(target, online), (&source.branch, &source.online)].into_iter().find(|(_, online)| online.guarded);
    match guarded.map(|(branch, _)| branch) {
        None => commit(),
        Some(branch) => match branch.io_within(COMMIT_PATIENCE, move |_| Ok(commit())) {
            Ok(done) => done,
            Err(errno) => match decision.leave() {
                LeftAt::Open => Err(RelocateError::GivenUp),
                LeftAt::Ending => Ok(Removal::Unsure { errno }),
                LeftAt::Undoing => Err(RelocateError::InDoubt { errno }),
            },
        },
    }
}

/// How long a branch that may hang may take for a commit, or for a call of a change of names.
pub(super) const COMMIT_PATIENCE: Duration = Duration::from_secs(20);
