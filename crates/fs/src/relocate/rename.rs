//! Renames that touch more than one branch, each as one operation.
//!
//! A directory:
//!
//! 1. Check every branch; then as in `names`:
//! 2. Write the intent.
//! 3. Rename on one branch after the other.
//! 4. fsync all parents.
//! 5. Remove the intent.
//!
//! Recovery goes on if any branch has been renamed, else it drops the intent.
//!
//! A file over a file of another branch:
//!
//! 1. fsync the file, or a power loss could leave neither's contents.
//! 2. Write the intent.
//! 3. Rename.
//! 4. fsync both parents.
//! 5. Unlink the old file.
//! 6. fsync its parent.
//! 7. Remove the intent.
//!
//! Recovery unlinks the old file if the rename happened, else it drops the intent. The old file may be one that a power
//! loss took back or cut off, not one that has changed since: then both stay, with a warning.
//!
//! - If the branch of the old file does not say whether it is gone, an intent to remove it takes the place of the
//!   first.
//! - If the other branch does not say whether it has renamed, durably, the call fails, and the old file keeps the name.
//!   An intent to take the rename back takes the place of the first.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{FileType, renameat};
use rustix::io::Errno;
use tracing::warn;

use crate::relocate::commit::{ParentTimes, Removal, place_new, remove};
use crate::relocate::dirs::clone_dir;
use crate::relocate::error::{ErrorContext, is_doubtful};
use crate::relocate::fingerprint::{snapshot, snapshot_if_present};
use crate::relocate::intent::{Verdict, relative};
use crate::relocate::names::{BranchCaller, Journal, OwnedEntry, Participant, StoredIntent, carry_out};
use crate::relocate::recover::EVERYTHING;
use crate::relocate::{BranchUuid, EntryAt, Fingerprint, Intent, RelocateError, Step, StepHook, attrs, run_hook};

/// One branch of a directory that is renamed.
#[derive(Clone)]
pub struct DirSite<R> {
    /// The branch.
    pub branch: BranchUuid,
    /// How it is reached.
    pub reach: R,
    /// Old name on it.
    pub from: OwnedEntry,
    /// New name on it; the parent exists.
    pub to: OwnedEntry,
}

/// A directory that is renamed on every branch that has it.
#[derive(Clone, Copy)]
pub struct DirRename<'a, R> {
    /// The branches that have the old name, more than one.
    pub sites: &'a [DirSite<R>],
    /// Old path in the pool.
    pub from_path: &'a [u8],
    /// New path in the pool.
    pub to_path: &'a [u8],
    /// An empty directory of the new name may be replaced.
    pub replaced: bool,
    /// Where the intent may be written, the best place first.
    pub journals: &'a [Journal<R>],
    /// For tests; `None` otherwise.
    pub hook: Option<StepHook<'a>>,
}

/// A file that is renamed over a file on another branch.
#[derive(Clone, Copy)]
pub struct Supersede<'a, R> {
    /// The branch of the file that is renamed, and its two names there.
    pub winner: &'a DirSite<R>,
    /// Branch of the file that is replaced.
    pub loser: BranchUuid,
    /// How it is reached.
    pub loser_reach: &'a R,
    /// That file.
    pub replaced: &'a OwnedEntry,
    /// Old path in the pool.
    pub from_path: &'a [u8],
    /// New path in the pool.
    pub to_path: &'a [u8],
    /// Where the intent may be written, the best place first.
    pub journals: &'a [Journal<R>],
    /// For tests; `None` otherwise.
    pub hook: Option<StepHook<'a>>,
}

/// Renames a directory on all its branches as one operation.
///
/// Returns the branches that do not say whether it happened there: on them recovery finishes it.
pub fn rename_dir<R: BranchCaller>(r: &DirRename<'_, R>) -> Result<Vec<BranchUuid>, RelocateError> {
    run_hook(r.hook, Step::Start)?;
    let replaced = r.replaced;
    let parts = r.sites.iter().map(|site| site.check(replaced).map(|held| Renaming { site, replaced, held }));
    let parts = parts.collect::<Result<Vec<_>, _>>()?;
    let intent = |branches, verdict| Intent::RenameDir {
        from: relative(r.from_path).to_vec(),
        to: relative(r.to_path).to_vec(),
        branches,
        replaced,
        verdict,
    };
    let recorded =
        StoredIntent::write(r.journals, &intent(r.sites.iter().map(|site| site.branch).collect(), Verdict::Open))?;
    carry_out(&parts, recorded, |some, verdict| intent(some.to_vec(), verdict), r.hook)
}

impl<R: BranchCaller> DirSite<R> {
    fn call<T: Send + 'static>(
        &self,
        call: impl FnOnce(&OwnedEntry, &OwnedEntry) -> Result<T, RelocateError> + Send + 'static,
    ) -> Result<T, RelocateError> {
        let (from, to) = (self.from.clone(), self.to.clone());
        self.reach.call(move || call(&from, &to))
    }

    /// Looks whether the rename can be done; holds the empty directory that is to be replaced.
    fn check(&self, replaced: bool) -> Result<Option<Arc<OwnedFd>>, RelocateError> {
        self.call(move |from, to| {
            if snapshot(from.place()).doing("stat the directory")?.print.file_type() != FileType::Directory {
                return Err(RelocateError::NotDirectory);
            }
            match snapshot_if_present(to.place()).doing("stat the new name")? {
                None => Ok(None),
                Some(_) if !replaced => Err(RelocateError::Taken),
                Some(seen) if seen.print.file_type() != FileType::Directory => Err(RelocateError::NotDirectory),
                Some(_) => {
                    attrs::open_path(to.place()).map(|held| Some(Arc::new(held))).doing("open the directory to replace")
                }
            }
        })
    }

    fn sync(&self) -> Result<(), RelocateError> {
        self.call(|from, to| from.sync_both(to).doing("flush the directories"))
    }
}

/// One branch's part in the rename of a directory.
struct Renaming<'a, R> {
    site: &'a DirSite<R>,
    replaced: bool,
    held: Option<Arc<OwnedFd>>,
}

impl<R: BranchCaller> Participant for Renaming<'_, R> {
    fn branch(&self) -> BranchUuid {
        self.site.branch
    }

    fn execute(&self) -> Result<(), RelocateError> {
        let replaced = self.replaced;
        self.site.call(move |from, to| rename_one(from.place(), to.place(), replaced))
    }

    fn has_happened(&self) -> Result<bool, RelocateError> {
        self.site.call(|from, to| {
            let old = snapshot_if_present(from.place()).doing("stat the old name")?;
            let new = snapshot_if_present(to.place()).doing("stat the new name")?;
            Ok(old.is_none() && new.is_some())
        })
    }

    fn undo(&self) -> Result<(), RelocateError> {
        let held = self.held.clone();
        self.site.call(move |from, to| {
            place_new(to.place(), from.place())?;
            if let Some(old) = held {
                clone_dir(old.as_fd(), to.dir.as_fd(), &to.name, &EVERYTHING)?;
            }
            from.sync_both(to).doing("flush the directories")
        })
    }

    fn sync(&self) -> Result<(), RelocateError> {
        self.site.sync()
    }
}

pub(super) fn rename_one(from: EntryAt<'_>, to: EntryAt<'_>, replaced: bool) -> Result<(), RelocateError> {
    if replaced {
        return match renameat(from.dir, from.name, to.dir, to.name) {
            Err(Errno::NOTEMPTY | Errno::EXIST) => Err(RelocateError::Taken),
            done => done.doing("rename a directory"),
        };
    }
    place_new(from, to)
}

/// Renames a file and removes the one it replaces on another branch, as one operation.
///
/// Where the branch of the replaced file does not say whether it is gone, the rename has happened, and an intent stays.
pub fn supersede<R: BranchCaller>(s: &Supersede<'_, R>) -> Result<Removal, RelocateError> {
    run_hook(s.hook, Step::Start)?;
    let winner_file = s.winner.call(|from, _| {
        let file = snapshot(from.place()).doing("stat the file")?.print;
        if file.file_type() == FileType::RegularFile {
            attrs::sync_file(from.place()).doing("flush the file")?;
        }
        Ok(file)
    })?;
    let loser_file = s.on_loser(|file| Ok(snapshot(file.place()).doing("stat the file to replace")?.print))?;
    if winner_file.file_type() == FileType::Directory || loser_file.file_type() == FileType::Directory {
        return Err(RelocateError::IsDirectory);
    }
    let intent = |verdict| Intent::Supersede {
        from: relative(s.from_path).to_vec(),
        to: relative(s.to_path).to_vec(),
        winner: s.winner.branch,
        winner_file,
        loser: s.loser,
        loser_file,
        verdict,
    };
    let recorded = StoredIntent::write(s.journals, &intent(Verdict::Open))?;
    // The file that was to be replaced goes on, whatever the winner's branch comes to say.
    let in_doubt = |recorded: StoredIntent<'_, R>, error: RelocateError| {
        recorded.close(&intent(Verdict::Undone), false);
        RelocateError::InDoubt { errno: error.errno() }
    };
    run_hook(s.hook, Step::IntentWritten)?;
    if let Err(error) = s.rename() {
        match s.has_happened(winner_file) {
            Ok(true) => {}
            Ok(false) if !is_doubtful(error.errno()) => {
                recorded.remove()?;
                return Err(error);
            }
            Ok(false) | Err(_) => return Err(in_doubt(recorded, error)),
        }
    }
    run_hook(s.hook, Step::Placed(0))?;
    let removed = match s.winner.sync() {
        // It may be durable or not, and the other file stays.
        Err(error) if is_doubtful(error.errno()) => return Err(in_doubt(recorded, error)),
        synced => {
            run_hook(s.hook, Step::Synced)?;
            synced.and_then(|()| s.on_loser(|file| remove(file.place()).doing("remove the replaced file")))
        }
    };
    let unsure = match removed {
        Ok(Removal::Done) => None,
        Ok(Removal::Unsure { errno }) => Some(errno),
        Err(error) if is_doubtful(error.errno()) => Some(error.errno()),
        Err(error) => {
            if let Err(error) = s.roll_back() {
                return Err(in_doubt(recorded, error));
            }
            recorded.remove()?;
            return Err(error);
        }
    };
    if let Some(errno) = unsure {
        // Later changes of the winner do not matter for the removal of the other file.
        recorded.close(&intent(Verdict::Done), false);
        return Ok(Removal::Unsure { errno });
    }
    run_hook(s.hook, Step::Removed(0))?;
    let synced = s.on_loser(|file| attrs::sync_dir(file.dir.as_fd()).doing("flush the directory of a replaced file"));
    if let Err(error) = synced {
        warn!(%error, "cannot remove the intent of a finished rename");
        return Ok(Removal::Done);
    }
    run_hook(s.hook, Step::RemovalSynced)?;
    recorded.close(&intent(Verdict::Done), true);
    run_hook(s.hook, Step::IntentRemoved)?;
    Ok(Removal::Done)
}

impl<R: BranchCaller> Supersede<'_, R> {
    fn on_loser<T: Send + 'static>(
        &self,
        call: impl FnOnce(&OwnedEntry) -> Result<T, RelocateError> + Send + 'static,
    ) -> Result<T, RelocateError> {
        let file = self.replaced.clone();
        self.loser_reach.call(move || call(&file))
    }

    fn rename(&self) -> Result<(), RelocateError> {
        self.winner.call(|from, to| renameat(&from.dir, &from.name, &to.dir, &to.name).doing("rename a file"))
    }

    fn has_happened(&self, winner: Fingerprint) -> Result<bool, RelocateError> {
        self.winner.call(move |from, to| {
            let new = snapshot_if_present(to.place()).doing("stat the new name")?;
            let old = snapshot_if_present(from.place()).doing("stat the old name")?;
            Ok(old.is_none() && new.is_some_and(|new| new.print.ino == winner.ino))
        })
    }

    fn roll_back(&self) -> Result<(), RelocateError> {
        self.winner.call(|from, to| {
            place_new(to.place(), from.place())?;
            ParentTimes::of([from.dir.as_fd(), to.dir.as_fd()]).sync().doing("flush the directories")
        })
    }
}
