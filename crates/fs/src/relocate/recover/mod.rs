//! What a crash left behind: every intent is finished or undone, copies without an intent are deleted.
//!
//! Recovery may itself be cut short anywhere: each of its steps leaves a state that it understands. It deletes a file
//! only when another is shown to be the same (by the identities in the intent, or byte for byte), and keeps both with a
//! warning otherwise.

mod batches;
mod compare;
mod exchanges;
mod moves;
mod renames;

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use rustc_hash::FxHashSet;
use rustix::fs::{AtFlags, Dir, Mode, OFlags, RenameFlags, openat, renameat_with, unlinkat};
use rustix::io::Errno;

use crate::branch::Abilities;
use crate::branch::beneath::split;
use crate::relocate::batch::{parked_for, parked_name};
use crate::relocate::beneath::ResolvedName;
use crate::relocate::intent::BatchFile;
use crate::relocate::journal::{ABANDONED, BAD, NEW, read_file, record};
use crate::relocate::{
    BranchUuid, DecodeError, EntryAt, HIDDEN_DIR, INTENTS_DIR, Intent, RelocateError, TEMP_DIR, attrs, beneath, dirs,
};

/// Recovery does not know what a branch can keep: it tries.
pub(super) const EVERYTHING: Abilities = Abilities::ALL;

/// A branch that is there.
#[derive(Debug, Clone, Copy)]
pub struct RecoverBranch<'a> {
    /// Its identity.
    pub uuid: BranchUuid,
    /// Its root.
    pub root: BorrowedFd<'a>,
    /// Whether anything may be changed on it.
    pub writable: bool,
}

/// What recovery did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Changes brought to their end.
    pub finished: usize,
    /// Changes taken back, or that had not begun.
    pub undone: usize,
    /// Changes that wait for a branch that is missing, read-only or failing.
    pub pending: usize,
    /// The branches that those need, and that are missing or read-only.
    pub awaited: BTreeSet<BranchUuid>,
    /// Copies without an intent that were deleted.
    pub leftovers: usize,
    /// For people.
    pub warnings: Vec<String>,
}

/// Finishes or undoes what a crash interrupted, and deletes copies without an intent. At mount, before anything is
/// served.
pub fn recover(branches: &[RecoverBranch<'_>]) -> Recovery {
    Recovering {
        branches,
        returned: None,
        stop: None,
        decided: Vec::new(),
        abandoned: Vec::new(),
        both: Vec::new(),
        report: Recovery::default(),
    }
    .run()
}

/// [`recover`] for a branch that came back while others are in use: only what concerns it.
///
/// The caller keeps users away from the paths of the branch's intents, or serves the branch only afterwards.
pub fn recover_returned(branches: &[RecoverBranch<'_>], returned: Returned<'_>, stop: CancelCheck<'_>) -> Recovery {
    Recovering {
        branches,
        returned: Some(returned),
        stop: Some(stop),
        decided: Vec::new(),
        abandoned: Vec::new(),
        both: Vec::new(),
        report: Recovery::default(),
    }
    .run()
}

/// A branch that came back, and the moves that ended without it.
#[derive(Clone, Copy)]
pub struct Returned<'a> {
    /// The branch.
    pub uuid: BranchUuid,
    /// Whether a move with a copy of this name was given up. Its sources were in use ever since, and are gone only if
    /// users wanted it.
    pub given_up: &'a dyn Fn(&[u8]) -> bool,
}

/// Asked before every change; `Break` ends recovery there, as a crash would.
pub type CancelCheck<'a> = &'a dyn Fn() -> ControlFlow<()>;

#[cfg(test)]
pub(super) fn recover_until(branches: &[RecoverBranch<'_>], stop: CancelCheck<'_>) -> Recovery {
    Recovering {
        branches,
        returned: None,
        stop: Some(stop),
        decided: Vec::new(),
        abandoned: Vec::new(),
        both: Vec::new(),
        report: Recovery::default(),
    }
    .run()
}

/// Why two files have one name.
const TAKEN: &str = "another file took the name while it moved";

/// Names in the [`TEMP_DIR`] of branches.
type TempCopies = FxHashSet<(BranchUuid, Vec<u8>)>;

/// How an intent ended.
enum IntentOutcome {
    Finished,
    Undone,
    /// It is replaced by one that says what is left to do.
    Narrowed(Box<Intent>),
}

/// Why an intent stays for now.
enum Unsettled {
    /// A branch it needs is not there or may not be changed.
    Waiting,
    Failed(Errno),
    Stopped,
}

impl From<Errno> for Unsettled {
    fn from(errno: Errno) -> Self {
        Unsettled::Failed(errno)
    }
}

impl From<RelocateError> for Unsettled {
    fn from(error: RelocateError) -> Self {
        Unsettled::Failed(error.errno())
    }
}

struct Recovering<'a> {
    branches: &'a [RecoverBranch<'a>],
    returned: Option<Returned<'a>>,
    stop: Option<CancelCheck<'a>>,
    /// Intents that say what is left to do of changes that are over, and whether the one whose place they took is gone.
    decided: Vec<(OsString, Intent, bool)>,
    /// Moves that have not happened, although their intents may be there.
    abandoned: Vec<Intent>,
    /// Paths at which two files were left, and why. A later intent may remove one of them.
    both: Vec<(Vec<u8>, &'static str)>,
    report: Recovery,
}

impl<'a> Recovering<'a> {
    fn run(mut self) -> Recovery {
        let _stopped = self.intents().and_then(|kept| self.leftovers(kept.as_ref()));
        for (path, why) in std::mem::take(&mut self.both) {
            if self.branches.iter().filter(|branch| !matches!(moves::present(branch.root, &path), Ok(None))).count() > 1
            {
                self.warn(format!("{}: {why}; both files stay", show(&path)));
            }
        }
        self.report
    }

    /// Whether a move has not happened. Its sources were in use ever since, and are gone only if users wanted it.
    fn is_abandoned(&self, intent: &Intent) -> bool {
        let Intent::Move { temp, .. } = intent else { return false };
        self.abandoned.contains(intent) || self.returned.is_some_and(|returned| (returned.given_up)(temp))
    }

    fn note_both(&mut self, path: &[u8], why: &'static str) {
        self.both.push((path.to_vec(), why));
    }

    fn warn(&mut self, message: String) {
        self.report.warnings.push(message);
    }

    /// The name of a file that moved is another's, and its copy has none.
    fn warn_kept(&mut self, path: &[u8], copy: &ResolvedName) {
        self.warn(format!(
            "{}: {TAKEN}; its contents are kept in {HIDDEN_DIR}/{TEMP_DIR} as {}",
            show(path),
            copy.place().name.display()
        ));
    }

    fn count_waiting(&mut self, intent: &Intent) {
        self.report.pending += 1;
        let missing = intent.branches().into_iter().filter(|uuid| self.writable(*uuid).is_err());
        self.report.awaited.extend(missing.collect::<Vec<_>>());
    }

    /// Before every change.
    fn act(&self) -> Result<(), Unsettled> {
        match self.stop.map_or(ControlFlow::Continue(()), |stop| stop()) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Unsettled::Stopped),
        }
    }

    fn writable(&self, uuid: BranchUuid) -> Result<BorrowedFd<'a>, Unsettled> {
        let branch = self.branches.iter().find(|branch| branch.uuid == uuid && branch.writable);
        branch.map(|branch| branch.root).ok_or(Unsettled::Waiting)
    }

    fn present(&self, uuid: BranchUuid) -> Option<&'a RecoverBranch<'a>> {
        self.branches.iter().find(|branch| branch.uuid == uuid)
    }

    /// One of the hidden directories of a branch; `None` with a warning if it is not what it should be.
    fn hidden(&mut self, branch: &RecoverBranch<'_>, which: &str) -> Option<OwnedFd> {
        match beneath::open_dir(branch.root, format!("{HIDDEN_DIR}/{which}").as_bytes()) {
            Ok(dir) => Some(dir),
            Err(Errno::NOENT) => None,
            Err(errno) => {
                self.warn(format!("branch {}: {HIDDEN_DIR}/{which} cannot be opened ({errno}); check it", branch.uuid));
                None
            }
        }
    }

    /// Acts on every intent, the oldest first; returns the copies that intents still need, `None` if that is not known.
    fn intents(&mut self) -> Result<Option<TempCopies>, Unsettled> {
        let mut files = Vec::new();
        for branch in self.branches {
            let Some(dir) = self.hidden(branch, INTENTS_DIR) else { continue };
            match names(dir.as_fd()) {
                Ok(names) => files.extend(names.into_iter().map(|name| (name, branch))),
                Err(errno) => self.warn(format!("branch {}: intents cannot be listed: {errno}", branch.uuid)),
            }
        }
        files.sort_by(|a, b| a.0.cmp(&b.0));
        self.note_outcomes(&files);
        let mut needed = Some(TempCopies::default());
        for (name, branch) in files {
            let Some(dir) = self.hidden(branch, INTENTS_DIR) else { continue };
            match self.file(branch, dir.as_fd(), &name)? {
                RetainedCopies::Nothing => {}
                RetainedCopies::Copies(copies) => {
                    if let Some(needed) = &mut needed {
                        needed.extend(copies);
                    }
                }
                RetainedCopies::Unknown => needed = None,
            }
        }
        Ok(needed)
    }

    /// Looks for intents that say what is left to do of others, which are on a branch that was away, or that those have
    /// not happened.
    fn note_outcomes(&mut self, files: &[(OsString, &RecoverBranch<'_>)]) {
        for (name, branch) in files {
            let Some(dir) = self.hidden(branch, INTENTS_DIR) else { continue };
            let Ok(Some(bytes)) = read_file(dir.as_fd(), name) else { continue };
            let Ok(intent) = Intent::decode(&bytes) else { continue };
            if name.as_bytes().starts_with(ABANDONED.as_bytes()) {
                self.abandoned.push(intent);
            } else if intent.is_decided() {
                self.decided.push((name.clone(), intent, false));
            }
        }
    }

    fn file(
        &mut self,
        branch: &RecoverBranch<'_>,
        dir: BorrowedFd<'_>,
        name: &OsStr,
    ) -> Result<RetainedCopies, Unsettled> {
        let shown = name.display().to_string();
        if shown.starts_with(BAD) {
            self.warn(format!(
                "branch {}: unreadable intent {shown} is set aside; check it, then delete it",
                branch.uuid
            ));
            return Ok(RetainedCopies::Unknown);
        }
        if shown.starts_with(NEW) {
            // It was never whole, so nothing was done. On a branch in use it may be under way.
            if branch.writable && self.returned.is_none_or(|returned| returned.uuid == branch.uuid) {
                self.act()?;
                let _next_time = unlinkat(dir, name, AtFlags::empty());
            }
            return Ok(RetainedCopies::Nothing);
        }
        let intent = match read_file(dir, name) {
            Ok(bytes) => bytes.map_or(Err(DecodeError::Long), |bytes| Intent::decode(&bytes)),
            Err(errno) => {
                self.report.pending += 1;
                self.warn(format!("branch {}: intent {shown} cannot be read: {errno}", branch.uuid));
                return Ok(RetainedCopies::Unknown);
            }
        };
        match intent {
            Ok(intent) => self.intent(branch, dir, name, &intent),
            Err(reason @ DecodeError::Version(_)) => {
                self.report.pending += 1;
                self.warn(format!("branch {}: intent {shown}: {reason} (mount with the newer program)", branch.uuid));
                Ok(RetainedCopies::Unknown)
            }
            Err(reason) => self.set_aside(branch, dir, name, &reason.to_string()),
        }
    }

    fn intent(
        &mut self,
        branch: &RecoverBranch<'_>,
        dir: BorrowedFd<'_>,
        name: &OsStr,
        intent: &Intent,
    ) -> Result<RetainedCopies, Unsettled> {
        let concerns = |uuid| uuid == branch.uuid || intent.branches().contains(&uuid);
        let has_outlived = self.decided.iter().any(|(decided, _, has_outlived)| decided == name && *has_outlived);
        if self.returned.is_some_and(|returned| !concerns(returned.uuid)) && !has_outlived {
            return Ok(kept(intent));
        }
        let newer = self
            .decided
            .iter_mut()
            .find(|(newer, decided, _)| newer.as_os_str() > name && decided.takes_the_place_of(intent));
        let replaced = newer.is_some();
        if let Some((_, _, has_outlived)) = newer {
            *has_outlived = branch.writable;
        }
        let outcome = match branch.writable {
            true if replaced => Ok(IntentOutcome::Finished),
            true => self.settle(intent),
            false => Err(Unsettled::Waiting),
        };
        match outcome {
            Ok(IntentOutcome::Finished) => self.report.finished += 1,
            Ok(IntentOutcome::Undone) => self.report.undone += 1,
            Ok(IntentOutcome::Narrowed(left)) => {
                self.count_waiting(&left);
                if *left == *intent {
                    return Ok(kept(intent));
                }
                self.act()?;
                if record(dir, &left).is_err() {
                    return Ok(kept(intent));
                }
            }
            Err(Unsettled::Waiting) => {
                self.count_waiting(intent);
                return Ok(kept(intent));
            }
            Err(Unsettled::Stopped) => return Err(Unsettled::Stopped),
            Err(Unsettled::Failed(errno @ (Errno::LOOP | Errno::XDEV))) => {
                return self.set_aside(branch, dir, name, &format!("a path leaves the branch ({errno})"));
            }
            Err(Unsettled::Failed(errno)) => {
                self.report.pending += 1;
                self.warn(format!(
                    "branch {}: intent {}: {errno}; tried again at the next mount",
                    branch.uuid,
                    name.display()
                ));
                return Ok(kept(intent));
            }
        }
        self.act()?;
        let removed = match unlinkat(dir, name, AtFlags::empty()) {
            // A commit that had been left alone came to its end after all.
            Err(Errno::NOENT) => Ok(()),
            removed => removed,
        };
        if let Err(errno) = removed.and_then(|()| attrs::sync_dir(dir)) {
            self.warn(format!("branch {}: intent {} cannot be removed: {errno}", branch.uuid, name.display()));
        }
        Ok(RetainedCopies::Nothing)
    }

    fn settle(&mut self, intent: &Intent) -> Result<IntentOutcome, Unsettled> {
        match intent {
            Intent::Move { .. } => self.settle_move(intent),
            Intent::Moves { .. } => self.settle_batch(intent),
            Intent::RenameDir { .. } => self.settle_rename_dir(intent),
            Intent::Supersede { .. } => self.settle_supersede(intent),
            Intent::Exchange { one, other, sites, verdict } => self.settle_exchange(one, other, sites, *verdict),
        }
    }

    /// Keeps an intent that cannot be trusted for a person to look at.
    fn set_aside(
        &mut self,
        branch: &RecoverBranch<'_>,
        dir: BorrowedFd<'_>,
        name: &OsStr,
        reason: &str,
    ) -> Result<RetainedCopies, Unsettled> {
        self.warn(format!("branch {}: intent {} is set aside: {reason}", branch.uuid, name.display()));
        if branch.writable {
            self.act()?;
            for attempt in 0..100 {
                let mut aside = OsString::from(BAD);
                // A name of 255 bytes has no room for the prefix.
                aside.push(OsStr::from_bytes(name.as_bytes().get(..200).unwrap_or(name.as_bytes())));
                if attempt > 0 {
                    aside.push(format!(".{attempt}"));
                }
                match renameat_with(dir, name, dir, &aside, RenameFlags::NOREPLACE) {
                    Err(Errno::EXIST) => {}
                    Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
                        let _next_time = super::commit::place_new(EntryAt { dir, name }, EntryAt { dir, name: &aside });
                        break;
                    }
                    _ => break,
                }
            }
        }
        Ok(RetainedCopies::Unknown)
    }

    /// Deletes copies that no intent needs. While an unreadable intent is there, any copy may be needed.
    fn leftovers(&mut self, needed: Option<&TempCopies>) -> Result<(), Unsettled> {
        for branch in self.branches {
            if !branch.writable || self.returned.is_some_and(|returned| returned.uuid != branch.uuid) {
                continue;
            }
            let Some(dir) = self.hidden(branch, TEMP_DIR) else { continue };
            let Ok(names) = names(dir.as_fd()) else { continue };
            let Some(needed) = needed else {
                if !names.is_empty() {
                    self.warn(format!(
                        "branch {}: {} unfinished copies stay while intents are unclear",
                        branch.uuid,
                        names.len()
                    ));
                }
                continue;
            };
            for name in names {
                let is_needed = needed.contains(&(branch.uuid, name.as_bytes().to_vec()));
                // The intent that needs it lies on that branch.
                let waits_for_branch = parked_for(name.as_bytes()).is_some_and(|to| self.present(to).is_none());
                if is_needed || waits_for_branch {
                    continue;
                }
                self.act()?;
                match unlinkat(&dir, &name, AtFlags::empty()) {
                    Err(Errno::ISDIR) => match remove_dir(dir.as_fd(), &name) {
                        Ok(()) => self.report.leftovers += 1,
                        Err(errno) => self.warn(format!("branch {}: {}: {errno}", branch.uuid, name.display())),
                    },
                    Err(errno) => self.warn(format!("branch {}: copy {}: {errno}", branch.uuid, name.display())),
                    Ok(()) => self.report.leftovers += 1,
                }
            }
        }
        Ok(())
    }

    /// The name below a branch, with its directory made like another branch's if it is missing.
    fn find_or_make(&self, root: BorrowedFd<'_>, path: &[u8]) -> Result<ResolvedName, Unsettled> {
        if let Some(found) = beneath::find(root, path)? {
            return Ok(found);
        }
        let (parent, _) = split(path);
        let ends = parent.iter().enumerate().filter(|&(_, &b)| b == b'/').map(|(at, _)| at).chain([parent.len()]);
        for end in ends {
            let dir = parent.get(..end).unwrap_or_default();
            match beneath::open_dir(root, dir) {
                Ok(_) => continue,
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno.into()),
            }
            let like = self.branches.iter().find_map(|branch| beneath::open_dir(branch.root, dir).ok());
            let like = like.ok_or(Errno::NOENT)?;
            let (above, name) = split(dir);
            let above = beneath::open_dir(root, above)?;
            self.act()?;
            dirs::clone_dir_durably(like.as_fd(), above.as_fd(), OsStr::from_bytes(name), &EVERYTHING)?;
        }
        beneath::find(root, path)?.ok_or(Unsettled::Failed(Errno::NOENT))
    }
}

/// What of the hidden directories an intent file that stays needs.
enum RetainedCopies {
    Nothing,
    Copies(TempCopies),
    Unknown,
}

fn kept(intent: &Intent) -> RetainedCopies {
    match intent {
        Intent::Move { to, temp, .. } => RetainedCopies::Copies([(*to, temp.clone())].into_iter().collect()),
        Intent::Moves { from, to, files } => {
            let parked = |temp: &[u8]| parked_name(*to, OsStr::from_bytes(temp)).into_encoded_bytes();
            let both = |file: &BatchFile| [(*to, file.temp.clone()), (*from, parked(&file.temp))];
            RetainedCopies::Copies(files.iter().flat_map(both).collect())
        }
        Intent::RenameDir { .. } | Intent::Supersede { .. } | Intent::Exchange { .. } => RetainedCopies::Nothing,
    }
}

fn names(dir: BorrowedFd<'_>) -> Result<Vec<OsString>, Errno> {
    let open = openat(dir, c".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let mut names = Vec::new();
    for entry in Dir::read_from(&open)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(OsStr::from_bytes(name).to_owned());
        }
    }
    Ok(names)
}

fn show(path: &[u8]) -> String {
    format!("/{}", String::from_utf8_lossy(path))
}

fn unlink(place: EntryAt<'_>) -> Result<(), Errno> {
    match unlinkat(place.dir, place.name, AtFlags::empty()) {
        Err(Errno::NOENT) => Ok(()),
        done => done,
    }
}

/// Removes a directory that was on its way, with what a trial made in it: files, no directories.
fn remove_dir(parent: BorrowedFd<'_>, name: &OsStr) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = openat(parent, name, flags, Mode::empty())?;
    for name in names(dir.as_fd())? {
        unlinkat(&dir, &name, AtFlags::empty())?;
    }
    unlinkat(parent, name, AtFlags::REMOVEDIR)
}
