//! Renames over several branches that were cut short.

use std::os::fd::AsFd;

use rustix::io::Errno;

use super::super::beneath;
use super::super::commit::{ParentTimes, place_new};
use super::super::rename::rename_one;
use super::super::{BranchUuid, Fingerprint, Intent, RelocateError, Verdict};
use super::compare::{is_like, is_not_newer};
use super::moves::present;
use super::{IntentOutcome, Recovering, Unsettled, show, unlink};

impl Recovering<'_> {
    /// Goes on with the rename if it has begun anywhere, or may have begun on a branch that is not there; takes it back
    /// if an intent says so.
    pub(super) fn settle_rename_dir(&mut self, intent: &Intent) -> Result<IntentOutcome, Unsettled> {
        let Intent::RenameDir { from, to, branches, replaced, verdict } = intent else {
            return Ok(IntentOutcome::Undone);
        };
        let goes_back = *verdict == Verdict::Undone;
        let (from, to) = if goes_back { (to, from) } else { (from, to) };
        let mut waiting = Vec::new();
        let mut ahead = Vec::new();
        let mut begun = *verdict != Verdict::Open;
        for uuid in branches {
            let Some(branch) = self.present(*uuid) else {
                // The first ones are renamed first, and taken back last: behind one that has the old name none is
                // renamed.
                begun |= ahead.is_empty();
                waiting.push(*uuid);
                continue;
            };
            let old = match beneath::find(branch.root, from)? {
                Some(found) if found.inspect()?.is_some() => found,
                _ => {
                    begun = true;
                    continue;
                }
            };
            ahead.push((branch, old));
        }
        if !begun {
            return Ok(IntentOutcome::Undone);
        }
        for (branch, old) in ahead {
            if !branch.writable {
                waiting.push(branch.uuid);
                continue;
            }
            let new = self.find_or_make(branch.root, to)?;
            self.act()?;
            match rename_one(old.place(), new.place(), *replaced && !goes_back) {
                Ok(()) => {}
                // It was an empty directory that was to be replaced.
                Err(RelocateError::Taken) if goes_back => {}
                Err(RelocateError::Taken) => {
                    self.warn(format!("branch {}: {} stays, since {} is in use", branch.uuid, show(from), show(to)));
                }
                Err(error) => return Err(error.into()),
            }
        }
        for branch in self.branches.iter().filter(|branch| branches.contains(&branch.uuid) && branch.writable) {
            for path in [from, to] {
                if let Some(found) = beneath::find(branch.root, path)? {
                    ParentTimes::of([found.dir.as_fd()]).sync()?;
                }
            }
        }
        if waiting.is_empty() {
            return Ok(IntentOutcome::Finished);
        }
        Ok(IntentOutcome::Narrowed(Box::new(left(intent, waiting))))
    }

    /// Removes the replaced file if the winner has its name.
    pub(super) fn settle_supersede(&mut self, intent: &Intent) -> Result<IntentOutcome, Unsettled> {
        let Intent::Supersede { from, to, winner, winner_file, loser, loser_file, verdict } = intent else {
            return Ok(IntentOutcome::Undone);
        };
        if *verdict != Verdict::Done {
            let root = self.present(*winner).ok_or(Unsettled::Waiting)?.root;
            let at = |path: &[u8]| -> Result<Option<Fingerprint>, Errno> {
                Ok(present(root, path)?.map(|(_, seen)| seen.print))
            };
            let (old, new) = (at(from)?, at(to)?);
            let renamed = match new {
                Some(new) if is_winner(&new, winner_file) => true,
                // Inodes are numbered anew at each mount on some file systems.
                Some(new) => old.is_none() && is_like(&new, winner_file),
                None => false,
            };
            if !renamed {
                return Ok(IntentOutcome::Undone);
            }
            if *verdict == Verdict::Undone {
                return self.roll_back(from, to, *winner);
            }
            if let Some(found) = beneath::find(root, to)? {
                ParentTimes::of([found.dir.as_fd()]).sync()?;
            }
        }
        let Ok(root) = self.writable(*loser) else {
            return Ok(IntentOutcome::Narrowed(Box::new(left(intent, Vec::new()))));
        };
        let Some((found, seen)) = present(root, to)? else { return Ok(IntentOutcome::Finished) };
        if !is_not_newer(&seen.print, loser_file) && !is_like(&seen.print, loser_file) {
            self.note_both(to, "the file that a rename replaces has changed since");
            return Ok(IntentOutcome::Undone);
        }
        self.act()?;
        unlink(found.place())?;
        ParentTimes::of([found.dir.as_fd()]).sync()?;
        Ok(IntentOutcome::Finished)
    }
}

impl Recovering<'_> {
    /// Rolls back a rename that failed for the caller: its branch was offline, and the file to replace has been in use
    /// since.
    fn roll_back(&mut self, from: &[u8], to: &[u8], winner: BranchUuid) -> Result<IntentOutcome, Unsettled> {
        let root = self.writable(winner)?;
        let (old, Some(new)) = (self.find_or_make(root, from)?, beneath::find(root, to)?) else {
            return Ok(IntentOutcome::Undone);
        };
        self.act()?;
        match place_new(new.place(), old.place()) {
            Err(RelocateError::Taken) => {
                self.warn(format!(
                    "a rename of {} to {} was cut short, and both names are in use; both files stay",
                    show(from),
                    show(to)
                ));
            }
            done => done?,
        }
        ParentTimes::of([old.dir.as_fd(), new.dir.as_fd()]).sync()?;
        Ok(IntentOutcome::Undone)
    }
}

/// The same change, of which the end is known, and this is left to do.
fn left(intent: &Intent, waiting: Vec<BranchUuid>) -> Intent {
    let mut left = intent.clone();
    if let Intent::RenameDir { branches, .. } = &mut left {
        *branches = waiting;
    }
    if let Intent::RenameDir { verdict: verdict @ Verdict::Open, .. }
    | Intent::Supersede { verdict: verdict @ Verdict::Open, .. } = &mut left
    {
        *verdict = Verdict::Done;
    }
    left
}

fn is_winner(now: &Fingerprint, then: &Fingerprint) -> bool {
    now.ino == then.ino && now.file_type() == then.file_type() && (now.btime == then.btime || now.mtime == then.mtime)
}
