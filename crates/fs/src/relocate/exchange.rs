//! Two entries change names on several branches, as one operation: directories, or a directory and a file.
//!
//! Every branch has its part, which is one system call: where both names are, they are exchanged; where one is, it gets the other name.
//!
//! 1. Look at both names on every branch: what the call needs is there, what is not in the exchange has neither name.
//! 2. An intent with what each branch has under both names.
//! 3. The system call on one branch after the other. When one refuses, those before it are taken back; where one does not say what it did, the
//!    others go on, and the intent stays for it.
//! 4. fsync of all parents.
//! 5. The intent is removed.
//!
//! | when | what is left | what happens |
//! | --- | --- | --- |
//! | crash in 1-2 | everything as it was, maybe `new-*` | nothing to do |
//! | crash after 2 | intent, everything as it was | undone: the intent is dropped |
//! | crash in 3 | some branches exchanged | finished on the others |
//! | crash in 4-5 | all exchanged | finished: fsync |
//! | power loss in 3-5, branches fall back to different states | some branches exchanged | finished on the others |
//! | a branch is missing at the mount | perhaps exchanged | finished on those that are there; an intent for the missing one stays |
//! | the names were used for something else since | neither entry is found | left alone |
//!
//! Exchanged or not is told by inode number, kind and birth time, as two names that are both there say nothing themselves; where inodes are
//! numbered anew at each mount by birth and modification time; where one name is there by which of the two it is.

use std::os::fd::BorrowedFd;

use rustix::fs::{RenameFlags, renameat_with};
use rustix::io::Errno;
use tracing::warn;

use super::commit::{ParentTimes, place_new};
use super::error::{Doing, is_refusal};
use super::fingerprint::look_maybe;
use super::intent::{ExchangeSite, relative};
use super::journal::record;
use super::{BranchUuid, Decision, Fingerprint, Intent, Place, RelocateError, Step, StepHook, told};

/// One branch of two entries that change names.
#[derive(Debug, Clone, Copy)]
pub struct Swap<'a> {
    /// The branch.
    pub branch: BranchUuid,
    /// The first name on it; the parent exists.
    pub one: Place<'a>,
    /// The second name on it; the parent exists.
    pub other: Place<'a>,
    /// Which of the names are there.
    pub holds: Holds,
}

/// Which of the two entries a branch has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holds {
    /// The first.
    One,
    /// The second.
    Other,
    /// Both.
    Both,
}

/// Two entries that change names on every branch that has one of them.
#[derive(Clone, Copy)]
pub struct Exchange<'a> {
    /// The branches that have either.
    pub swaps: &'a [Swap<'a>],
    /// First path in the pool.
    pub one_path: &'a [u8],
    /// Second path in the pool.
    pub other_path: &'a [u8],
    /// The [`super::INTENTS_DIR`] of any of the branches; with [`RelocateError::NoSpace`] try another.
    pub intents: BorrowedFd<'a>,
    /// Whether it still may happen.
    pub decision: &'a Decision,
    /// For tests; `None` otherwise.
    pub hook: Option<StepHook<'a>>,
}

/// Exchanges two names on all branches as one operation.
///
/// Returns the branches that do not say whether it happened there: on them recovery finishes it.
pub fn exchange(e: &Exchange<'_>) -> Result<Vec<BranchUuid>, RelocateError> {
    told(e.hook, Step::Start)?;
    let sites = e.swaps.iter().map(Swap::look).collect::<Result<Vec<_>, _>>()?;
    let intent = Intent::Exchange {
        one: relative(e.one_path).to_vec(),
        other: relative(e.other_path).to_vec(),
        sites: sites.clone(),
        decided: false,
    };
    let recorded = record(e.intents, &intent)?;
    told(e.hook, Step::IntentWritten)?;
    e.decision.begin()?;
    let mut unsure = Vec::new();
    for (done, (swap, before)) in e.swaps.iter().zip(&sites).enumerate() {
        e.decision.check()?;
        if let Err(error) = swap.go() {
            match swap.has_happened(before) {
                Ok(true) => {}
                Ok(false) if is_refusal(error.errno()) => {
                    e.decision.undo()?;
                    e.undo(done).map_err(|error| RelocateError::InDoubt { errno: error.errno() })?;
                    recorded.remove()?;
                    return Err(error);
                }
                Ok(false) | Err(_) => unsure.push(swap.branch),
            }
        }
        told(e.hook, Step::Placed(done))?;
    }
    let synced = e.parents().sync();
    if let Err(errno) = synced {
        // Done for all to see; the intent stays and makes it so after a power loss too.
        warn!(%errno, "cannot flush a directory in which names were exchanged");
    }
    if synced.is_err() || !unsure.is_empty() {
        return Ok(unsure);
    }
    told(e.hook, Step::Synced)?;
    if let Err(error) = recorded.remove() {
        warn!(%error, "an intent stays although its exchange is complete");
    }
    told(e.hook, Step::IntentRemoved).map(|()| unsure)
}

impl<'a> Exchange<'a> {
    fn parents(&self) -> ParentTimes<'a> {
        ParentTimes::of(self.swaps.iter().flat_map(|swap| [swap.one.dir, swap.other.dir]))
    }

    /// The last first, so that it is always the first ones that are exchanged. What was not touched may be what cannot be flushed.
    fn undo(&self, done: usize) -> Result<(), RelocateError> {
        let exchanged = || self.swaps.iter().take(done);
        exchanged().rev().try_for_each(|swap| swap.reversed().go())?;
        ParentTimes::of(exchanged().flat_map(|swap| [swap.one.dir, swap.other.dir]))
            .sync()
            .doing("flush the directories")
    }
}

impl Swap<'_> {
    fn look(&self) -> Result<ExchangeSite, RelocateError> {
        let at = |place| -> Result<Option<Fingerprint>, RelocateError> {
            Ok(look_maybe(place).doing("look at a name to exchange")?.map(|seen| seen.print))
        };
        let (one, other) = (at(self.one)?, at(self.other)?);
        match (self.holds, one.is_some(), other.is_some()) {
            (Holds::One, true, false) | (Holds::Other, false, true) | (Holds::Both, true, true) => {
                Ok(ExchangeSite { branch: self.branch, one, other })
            }
            // Hidden behind a file on another branch, or made behind the mount's back.
            (_, true, true) => Err(RelocateError::Taken),
            _ => Err(RelocateError::Changed),
        }
    }

    /// This branch's part, which is one system call.
    pub(super) fn go(&self) -> Result<(), RelocateError> {
        match self.holds {
            Holds::One => place_new(self.one, self.other),
            Holds::Other => place_new(self.other, self.one),
            Holds::Both => {
                let (one, other) = (self.one, self.other);
                renameat_with(one.dir, one.name, other.dir, other.name, RenameFlags::EXCHANGE)
                    .doing("exchange two names")
            }
        }
    }

    /// Whether its part has happened although the call failed; an error where the branch does not say.
    fn has_happened(&self, before: &ExchangeSite) -> Result<bool, Errno> {
        let ino = |print: Option<Fingerprint>| print.map(|print| print.ino);
        let now = |place| Ok(look_maybe(place)?.map(|seen| seen.print.ino));
        Ok(now(self.one)? == ino(before.other) && now(self.other)? == ino(before.one))
    }

    /// What takes it back.
    fn reversed(&self) -> Self {
        Swap { one: self.other, other: self.one, ..*self }
    }
}
