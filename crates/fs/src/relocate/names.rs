//! The common steps of changes of names over several branches: record the change first, then change one branch after
//! the other.
//!
//! 1. An intent is written, on the first branch that takes it.
//! 2. Each branch gets one system call. A branch may refuse, or not say whether it has done its part while others come
//!    after it. The branches before it are then taken back: an intent first that says so, then the system calls and
//!    fsyncs, then both intents go. For a branch that does not say, the second intent stays.
//! 3. The changed directories are fsynced.
//! 4. The intent goes. The last branch may not say whether it has done its part, or a branch may not say so durably.
//!    Another intent then takes the place of the first. It names only such branches, and says that the change has
//!    happened, whatever the old names are used for since.
//!
//! If the branch with the first intent is silent, the second intent is on another branch. The daemon may die before the
//! first intent is gone, and the next mount may have the silent branch alone. That branch does not know of the second
//! intent, so names may be unchanged on one branch and changed on another.
//!
//! Each call to a branch that may hang returns ([`BranchCaller`]), late and with an error. That one call may still take
//! effect then; nothing comes after it.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::io::Errno;
use tracing::warn;

use crate::relocate::commit::ParentTimes;
use crate::relocate::error::is_doubtful;
use crate::relocate::intent::Verdict;
use crate::relocate::journal::{Recorded, fresh_name, record_as};
use crate::relocate::{BranchUuid, Decision, EntryAt, Intent, RelocateError, Reversibility, Step, StepHook, run_hook};

/// How the calls to a branch are made.
pub trait BranchCaller: Clone {
    /// Makes a call, or says why there is no answer; it may still happen then.
    fn call<T: Send + 'static>(
        &self,
        call: impl FnOnce() -> Result<T, RelocateError> + Send + 'static,
    ) -> Result<T, RelocateError>;
}

/// An open directory.
pub type Directory = Arc<dyn AsFd + Send + Sync>;

/// A name in a directory, for calls that may outlive their callers.
#[derive(Clone)]
pub struct OwnedEntry {
    /// The directory; may be open with `O_PATH`.
    pub dir: Directory,
    /// One component.
    pub name: OsString,
}

impl OwnedEntry {
    pub(super) fn place(&self) -> EntryAt<'_> {
        EntryAt { dir: self.dir.as_fd(), name: &self.name }
    }

    /// The directories of two names, once where they are one, durably as they are.
    pub(super) fn sync_both(&self, other: &OwnedEntry) -> Result<(), Errno> {
        ParentTimes::of([self.dir.as_fd(), other.dir.as_fd()]).sync()
    }
}

/// Where intents are written: the [`super::INTENTS_DIR`] of a branch.
#[derive(Clone)]
pub struct Journal<R> {
    /// How it is reached.
    pub reach: R,
    /// The directory.
    pub dir: Directory,
}

impl<R: BranchCaller> Journal<R> {
    fn record(&self, intent: &Intent) -> Result<OsString, RelocateError> {
        let (dir, intent, name) = (Arc::clone(&self.dir), intent.clone(), fresh_name());
        let (decision, theirs) = (Arc::new(Decision::default()), name.clone());
        let told = Arc::clone(&decision);
        let written = self.reach.call(move || {
            let recorded = record_as(dir.as_fd(), theirs, &intent)?;
            told.end().inspect_err(|_| {
                // No intent names it any more: it must not be found one day.
                let _already_failing = recorded.remove();
            })
        });
        match written {
            // It was written after all, just when it was given up.
            Err(error) if decision.abandon() != Reversibility::Ending => Err(error),
            _ => Ok(name),
        }
    }

    fn remove(&self, name: OsString, durably: bool) -> Result<(), RelocateError> {
        let dir = Arc::clone(&self.dir);
        self.reach.call(move || {
            let recorded = Recorded::new(dir.as_fd(), name);
            if durably { recorded.remove() } else { recorded.remove_lazily() }
        })
    }
}

/// An intent that is on disk.
pub(super) struct StoredIntent<'a, R> {
    journals: &'a [Journal<R>],
    at: usize,
    name: OsString,
}

impl<'a, R: BranchCaller> StoredIntent<'a, R> {
    /// Writes it on the first branch that takes it.
    pub(super) fn write(journals: &'a [Journal<R>], intent: &Intent) -> Result<Self, RelocateError> {
        let mut error = RelocateError::NoSpace;
        for (at, journal) in journals.iter().enumerate() {
            match journal.record(intent) {
                Ok(name) => return Ok(StoredIntent { journals, at, name }),
                Err(why) => error = why,
            }
        }
        Err(error)
    }

    /// Removes it, durable when this returns.
    pub(super) fn remove(self) -> Result<(), RelocateError> {
        self.erase(true)
    }

    /// The change is over. `left` is the remaining part of it. It takes the place of this intent, unless nothing is
    /// left and this one can be removed. An intent that stays must not be found when the names are used for something
    /// else.
    pub(super) fn close(self, left: &Intent, is_complete: bool) {
        if is_complete && self.erase(true).is_ok() {
            return;
        }
        match StoredIntent::write(self.journals, left) {
            // The newer one counts, should this one stay.
            Ok(_) => drop(self.erase(false)),
            Err(error) => warn!(%error, "cannot record an unfinished rename"),
        }
    }

    fn erase(&self, durably: bool) -> Result<(), RelocateError> {
        self.journals.get(self.at).map_or(Ok(()), |journal| journal.remove(self.name.clone(), durably))
    }
}

/// One branch's part in a change of names.
pub(super) trait Participant {
    fn branch(&self) -> BranchUuid;
    /// Makes its system call.
    fn execute(&self) -> Result<(), RelocateError>;
    /// Whether the call has happened although it failed.
    fn has_happened(&self) -> Result<bool, RelocateError>;
    /// Takes it back; durable when this returns.
    fn undo(&self) -> Result<(), RelocateError>;
    fn sync(&self) -> Result<(), RelocateError>;
}

/// Steps 2 to 4; returns the branches that do not say whether it has happened there, durably. `left` is the intent for
/// what is left to do on some.
pub(super) fn carry_out<R: BranchCaller>(
    parts: &[impl Participant],
    recorded: StoredIntent<'_, R>,
    left: impl Fn(&[BranchUuid], Verdict) -> Intent,
    hook: Option<StepHook<'_>>,
) -> Result<Vec<BranchUuid>, RelocateError> {
    run_hook(hook, Step::IntentWritten)?;
    let mut unsure = Vec::new();
    for (done, part) in parts.iter().enumerate() {
        if let Err(error) = part.execute() {
            match part.has_happened() {
                Ok(true) => {}
                Ok(false) if !is_doubtful(error.errno()) => {
                    roll_back(parts.get(..done).unwrap_or_default(), None, recorded, left, hook)?;
                    return Err(error);
                }
                // With others behind it, recovery could not tell after a crash which way they went.
                Ok(false) | Err(_) if done + 1 < parts.len() => {
                    roll_back(parts.get(..done).unwrap_or_default(), Some(part.branch()), recorded, left, hook)?;
                    return Err(RelocateError::NoAnswer { branch: part.branch(), errno: error.errno() });
                }
                Ok(false) | Err(_) => {
                    warn!(%error, branch = %part.branch(), "a branch did not confirm a rename");
                    unsure.push(part.branch());
                }
            }
        }
        run_hook(hook, Step::Placed(done))?;
    }
    for part in parts {
        if !unsure.contains(&part.branch())
            && let Err(error) = part.sync()
        {
            // Done for all to see; an intent makes it so after a power loss too.
            warn!(%error, branch = %part.branch(), "cannot flush a directory in which names have changed");
            unsure.push(part.branch());
        }
    }
    run_hook(hook, Step::Synced)?;
    recorded.close(&left(&unsure, Verdict::Done), unsure.is_empty());
    run_hook(hook, Step::IntentRemoved).map(|()| unsure)
}

/// Rolls back the change on the branches that made it, after another branch refused or did not answer.
fn roll_back<R: BranchCaller>(
    done: &[impl Participant],
    silent: Option<BranchUuid>,
    recorded: StoredIntent<'_, R>,
    left: impl Fn(&[BranchUuid], Verdict) -> Intent,
    hook: Option<StepHook<'_>>,
) -> Result<(), RelocateError> {
    let in_doubt = |error: RelocateError| RelocateError::InDoubt { errno: error.errno() };
    let branches: Vec<_> = done.iter().map(Participant::branch).chain(silent).collect();
    let way_back = match StoredIntent::write(recorded.journals, &left(&branches, Verdict::Undone)) {
        Ok(way_back) => Some(way_back),
        Err(error) if silent.is_some() => return Err(in_doubt(error)),
        // What is found under the names says it too.
        Err(_) => None,
    };
    // The last first, so that it is always the first ones that are changed. What was not touched may be what cannot be
    // flushed.
    for part in done.iter().rev() {
        run_hook(hook, Step::Undoing)?;
        part.undo().map_err(in_doubt)?;
    }
    run_hook(hook, Step::Undoing)?;
    let Some(way_back) = way_back else {
        recorded.close(&left(&[], Verdict::Undone), true);
        return Ok(());
    };
    let is_gone = recorded.erase(true).is_ok();
    run_hook(hook, Step::Undoing)?;
    // One that names no branch says at least that the other has nothing to say any more.
    way_back.close(&left(silent.as_slice(), Verdict::Undone), is_gone && silent.is_none());
    Ok(())
}
