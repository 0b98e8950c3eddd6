//! Two entries change names on several branches, as one operation: directories, or a directory and a file.
//!
//! Every branch has its part, which is one system call: where both names are, they are exchanged; where one is, it gets
//! the other name.
//!
//! 1. Look at both names on every branch: what the call needs is there, what is not in the exchange has neither name.
//! 2. An intent with what each branch has under both names; then as in `names`:
//! 3. The system call on one branch after the other. When one refuses, those before it are taken back.
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
//! | the last branch does not say in 3 what it did | the others exchanged, an intent for that one | finished when it is back |
//! | another branch does not say in 3 what it did | the others as they were, an intent for that one | taken back when it is back |
//! | a branch is missing at the mount | perhaps exchanged | finished on those that are there; an intent for the missing one stays |
//! | the names were used for something else since | neither entry is found | left alone |
//!
//! Two names that are both there do not show by themselves whether they were exchanged. So inode number, kind and birth
//! time decide. Where inodes are numbered anew at each mount, birth and modification time decide. Where only one name
//! is there, that name decides.

use rustix::fs::{RenameFlags, renameat_with};

use crate::relocate::commit::place_new;
use crate::relocate::error::ErrorContext;
use crate::relocate::fingerprint::snapshot_if_present;
use crate::relocate::intent::{ExchangeSite, Verdict, relative};
use crate::relocate::names::{BranchCaller, Journal, OwnedEntry, Participant, StoredIntent, carry_out};
use crate::relocate::{BranchUuid, EntryAt, Fingerprint, Intent, RelocateError, Step, StepHook, run_hook};

/// One branch of two entries that change names.
#[derive(Clone)]
pub struct Swap<R> {
    /// The branch.
    pub branch: BranchUuid,
    /// How it is reached.
    pub reach: R,
    /// The first name on it; the parent exists.
    pub one: OwnedEntry,
    /// The second name on it; the parent exists.
    pub other: OwnedEntry,
    /// Which of the names are there.
    pub holds: Presence,
}

/// Which of the two entries a branch has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// The first.
    One,
    /// The second.
    Other,
    /// Both.
    Both,
}

/// Two entries that change names on every branch that has one of them.
#[derive(Clone, Copy)]
pub struct Exchange<'a, R> {
    /// The branches that have either.
    pub swaps: &'a [Swap<R>],
    /// First path in the pool.
    pub one_path: &'a [u8],
    /// Second path in the pool.
    pub other_path: &'a [u8],
    /// Where the intent may be written, the best place first.
    pub journals: &'a [Journal<R>],
    /// For tests; `None` otherwise.
    pub hook: Option<StepHook<'a>>,
}

/// Exchanges two names on all branches as one operation.
///
/// Returns the branches that do not say whether it happened there: on them recovery finishes it.
pub fn exchange<R: BranchCaller>(e: &Exchange<'_, R>) -> Result<Vec<BranchUuid>, RelocateError> {
    run_hook(e.hook, Step::Start)?;
    let parts = e.swaps.iter().map(|swap| swap.inspect().map(|before| ExchangeParticipant { swap, before }));
    let parts = parts.collect::<Result<Vec<_>, _>>()?;
    let intent = |sites, verdict| Intent::Exchange {
        one: relative(e.one_path).to_vec(),
        other: relative(e.other_path).to_vec(),
        sites,
        verdict,
    };
    let recorded =
        StoredIntent::write(e.journals, &intent(parts.iter().map(|part| part.before).collect(), Verdict::Open))?;
    let left = |unsure: &[BranchUuid], verdict| {
        let sites = parts.iter().map(|part| part.before).filter(|site| unsure.contains(&site.branch));
        intent(sites.collect(), verdict)
    };
    carry_out(&parts, recorded, left, e.hook)
}

impl<R: BranchCaller> Swap<R> {
    fn call<T: Send + 'static>(
        &self,
        call: impl FnOnce(&OwnedEntry, &OwnedEntry) -> Result<T, RelocateError> + Send + 'static,
    ) -> Result<T, RelocateError> {
        let (one, other) = (self.one.clone(), self.other.clone());
        self.reach.call(move || call(&one, &other))
    }

    fn inspect(&self) -> Result<ExchangeSite, RelocateError> {
        let (one, other) = self.call(|one, other| Ok((print_at(one)?, print_at(other)?)))?;
        match (self.holds, one.is_some(), other.is_some()) {
            (Presence::One, true, false) | (Presence::Other, false, true) | (Presence::Both, true, true) => {
                Ok(ExchangeSite { branch: self.branch, one, other })
            }
            // Hidden behind a file on another branch, or made behind the mount's back.
            (_, true, true) => Err(RelocateError::Taken),
            _ => Err(RelocateError::Changed),
        }
    }
}

/// One branch's part in an exchange.
struct ExchangeParticipant<'a, R> {
    swap: &'a Swap<R>,
    before: ExchangeSite,
}

impl<R: BranchCaller> Participant for ExchangeParticipant<'_, R> {
    fn branch(&self) -> BranchUuid {
        self.swap.branch
    }

    fn execute(&self) -> Result<(), RelocateError> {
        let holds = self.swap.holds;
        self.swap.call(move |one, other| change_names(one.place(), other.place(), holds))
    }

    fn has_happened(&self) -> Result<bool, RelocateError> {
        let now = self.swap.call(|one, other| Ok((print_at(one)?, print_at(other)?)))?;
        let ino = |print: Option<Fingerprint>| print.map(|print| print.ino);
        Ok((ino(now.0), ino(now.1)) == (ino(self.before.other), ino(self.before.one)))
    }

    fn undo(&self) -> Result<(), RelocateError> {
        let holds = self.swap.holds;
        self.swap.call(move |one, other| {
            change_names(other.place(), one.place(), holds)?;
            one.sync_both(other).doing("flush the directories")
        })
    }

    fn sync(&self) -> Result<(), RelocateError> {
        self.swap.call(|one, other| one.sync_both(other).doing("flush the directories"))
    }
}

fn print_at(spot: &OwnedEntry) -> Result<Option<Fingerprint>, RelocateError> {
    Ok(snapshot_if_present(spot.place()).doing("stat a name to exchange")?.map(|seen| seen.print))
}

/// One branch's part, which is one system call.
pub(super) fn change_names(one: EntryAt<'_>, other: EntryAt<'_>, holds: Presence) -> Result<(), RelocateError> {
    match holds {
        Presence::One => place_new(one, other),
        Presence::Other => place_new(other, one),
        Presence::Both => {
            renameat_with(one.dir, one.name, other.dir, other.name, RenameFlags::EXCHANGE).doing("exchange two names")
        }
    }
}
