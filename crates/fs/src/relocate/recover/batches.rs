//! Files of a batch ([`crate::relocate::batch`]): each is looked at by itself, by where its source, its copy and what
//! was parked are.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::syncfs;
use rustix::io::Errno;

use crate::relocate::batch::parked_name;
use crate::relocate::beneath::ResolvedName;
use crate::relocate::commit::place_new;
use crate::relocate::fingerprint::FileSnapshot;
use crate::relocate::intent::BatchFile;
use crate::relocate::recover::compare::is_same_file;
use crate::relocate::recover::moves::present;
use crate::relocate::recover::{IntentOutcome, Recovering, TAKEN, Unsettled, unlink};
use crate::relocate::{Fingerprint, HIDDEN_DIR, Intent, TEMP_DIR, attrs};

/// What recovery found of one file, besides its name.
struct Traces {
    /// The source, if the move had taken its name.
    parked: Option<ResolvedName>,
    /// The copy, if it has no name yet; never another file.
    temp: Option<(ResolvedName, FileSnapshot)>,
}

/// What is to be done about one file.
enum BatchRemainder {
    Nothing,
    /// The file has its name on the new branch; what was parked goes when that is durable.
    Parked(ResolvedName),
    /// It waits for a person.
    All,
}

impl Recovering<'_> {
    pub(super) fn settle_batch(&mut self, intent: &Intent) -> Result<IntentOutcome, Unsettled> {
        let Intent::Moves { from, to, files } = intent else { return Ok(IntentOutcome::Undone) };
        let roots = (self.writable(*from)?, self.writable(*to)?);
        let (mut parked, mut waiting, mut finished) = (Vec::new(), Vec::new(), false);
        for file in files {
            let traces = Traces {
                parked: in_temp(roots.0, parked_name(*to, OsStr::from_bytes(&file.temp)).as_bytes())?
                    .map(|(found, _)| found),
                temp: in_temp(roots.1, &file.temp)?.filter(|(_, seen)| is_same_file(&seen.print, &file.target)),
            };
            let single = Intent::Move {
                from: *from,
                to: *to,
                names: vec![file.path.clone()],
                temp: file.temp.clone(),
                source: file.source,
                target: file.target,
            };
            let is_abandoned = traces.parked.is_none() && self.is_abandoned(&single);
            let left = if is_abandoned { None } else { self.settle_file(roots, file, traces)? };
            match left {
                Some(BatchRemainder::Nothing) => {}
                Some(BatchRemainder::Parked(found)) => parked.push(found),
                Some(BatchRemainder::All) => waiting.push(file.clone()),
                // It has its name on the old branch, or had when the move was abandoned, and nothing was parked: as any
                // other move.
                None => finished |= matches!(self.settle_move(&single)?, IntentOutcome::Finished),
            }
        }
        finished |= !parked.is_empty();
        self.delete_parked(roots, parked)?;
        if !waiting.is_empty() {
            return Ok(IntentOutcome::Narrowed(Box::new(Intent::Moves { from: *from, to: *to, files: waiting })));
        }
        Ok(if finished { IntentOutcome::Finished } else { IntentOutcome::Undone })
    }

    /// `None`: what is left is a move as any other.
    fn settle_file(
        &mut self,
        (from, to): (BorrowedFd<'_>, BorrowedFd<'_>),
        file: &BatchFile,
        traces: Traces,
    ) -> Result<Option<BatchRemainder>, Unsettled> {
        let source = present(from, &file.path)?;
        match (traces.parked, traces.temp) {
            (Some(parked), None) => Ok(Some(BatchRemainder::Parked(parked))),
            (Some(parked), Some((temp, seen))) => {
                self.name_parked((from, to), file, (parked, source), (temp, &seen)).map(Some)
            }
            // In users' hands once: a power loss took its name.
            (None, Some((temp, seen))) if is_changed(&seen.print, &file.target) => {
                if present(to, &file.path)?.is_none() {
                    self.install_name(to, &file.path, &temp)?;
                }
                Ok(source.is_none().then_some(BatchRemainder::Nothing))
            }
            // Nothing was parked: where the name is gone, it was not the move that took it. No sync: found again, it is
            // deleted again.
            (None, Some((temp, _))) if source.is_none() || present(to, &file.path)?.is_none() => {
                self.act()?;
                unlink(temp.place())?;
                Ok(Some(BatchRemainder::Nothing))
            }
            (None, _) => Ok(source.is_none().then_some(BatchRemainder::Nothing)),
        }
    }

    /// The source was parked, and a power loss took the copy's name.
    fn name_parked(
        &mut self,
        (from, to): (BorrowedFd<'_>, BorrowedFd<'_>),
        file: &BatchFile,
        (parked, source): (ResolvedName, Option<(ResolvedName, FileSnapshot)>),
        (temp, copy): (ResolvedName, &FileSnapshot),
    ) -> Result<BatchRemainder, Unsettled> {
        match (present(to, &file.path)?, source) {
            (None, None) => {
                self.install_name(to, &file.path, &temp)?;
                Ok(BatchRemainder::Parked(parked))
            }
            (Some((_, seen)), _) if seen.print.ino == copy.print.ino => {
                self.act()?;
                unlink(temp.place())?;
                Ok(BatchRemainder::Parked(parked))
            }
            // The name is free on the old branch only.
            (Some(_), None) => {
                self.note_both(&file.path, TAKEN);
                let source = self.find_or_make(from, &file.path)?;
                self.act()?;
                place_new(parked.place(), source.place())?;
                attrs::sync_dir(source.dir.as_fd())?;
                self.act()?;
                unlink(temp.place())?;
                attrs::sync_dir(temp.dir.as_fd())?;
                Ok(BatchRemainder::Nothing)
            }
            (_, Some(_)) => {
                self.warn_kept(&file.path, &temp);
                Ok(BatchRemainder::All)
            }
        }
    }

    fn install_name(&mut self, to: BorrowedFd<'_>, path: &[u8], temp: &ResolvedName) -> Result<(), Unsettled> {
        let target = self.find_or_make(to, path)?;
        self.act()?;
        place_new(temp.place(), target.place())?;
        attrs::sync_dir(target.dir.as_fd())?;
        Ok(attrs::sync_dir(temp.dir.as_fd())?)
    }

    /// Their files may have been given any name on the new branch since, which need not be durable yet.
    fn delete_parked(
        &mut self,
        (from, to): (BorrowedFd<'_>, BorrowedFd<'_>),
        parked: Vec<ResolvedName>,
    ) -> Result<(), Unsettled> {
        if parked.is_empty() {
            return Ok(());
        }
        syncfs(attrs::open_to_sync(to)?)?;
        for parked in parked {
            self.act()?;
            unlink(parked.place())?;
        }
        Ok(syncfs(attrs::open_to_sync(from)?)?)
    }
}

fn in_temp(root: BorrowedFd<'_>, name: &[u8]) -> Result<Option<(ResolvedName, FileSnapshot)>, Errno> {
    present(root, &[HIDDEN_DIR.as_bytes(), b"/", TEMP_DIR.as_bytes(), b"/", name].concat())
}

fn is_changed(now: &Fingerprint, copy: &Fingerprint) -> bool {
    let state = |print: &Fingerprint| (print.size, print.mtime, print.mode, print.uid, print.gid);
    state(now) != state(copy)
}
