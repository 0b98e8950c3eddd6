//! Renames that touch more than one branch, each as one operation.
//!
//! A directory: 1. check every branch; 2. intent; 3. rename on one branch after the other; 4. fsync all parents; 5. remove the intent.
//! Recovery goes on if any branch has been renamed, else it drops the intent. When one refuses in 3, those before it are taken back; where one
//! does not say what it did, the others go on, and the intent stays for it.
//!
//! A file over a file of another branch: 1. fsync of the file, or a power loss could leave neither's contents; 2. intent; 3. rename;
//! 4. fsync both parents; 5. unlink the old file; 6. fsync its parent; 7. remove the intent. Recovery unlinks the old file if the rename happened, else it drops the intent.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, renameat};
use rustix::io::Errno;
use tracing::warn;

use super::commit::{ParentTimes, Removal, place_new, remove};
use super::dirs::clone_dir;
use super::error::{Doing, is_refusal};
use super::fingerprint::{look, look_maybe};
use super::journal::{Recorded, record};
use super::recover::EVERYTHING;
use super::{BranchUuid, Decision, Fingerprint, Intent, Place, RelocateError, Step, StepHook, attrs, told};

/// One branch of a directory that is renamed.
#[derive(Debug, Clone, Copy)]
pub struct DirSite<'a> {
    /// The branch.
    pub branch: BranchUuid,
    /// Old name on it.
    pub from: Place<'a>,
    /// New name on it; the parent exists.
    pub to: Place<'a>,
}

/// A directory that is renamed on every branch that has it.
#[derive(Clone, Copy)]
pub struct DirRename<'a> {
    /// The branches that have the old name.
    pub sites: &'a [DirSite<'a>],
    /// Old path in the pool.
    pub from_path: &'a [u8],
    /// New path in the pool.
    pub to_path: &'a [u8],
    /// An empty directory of the new name may be replaced.
    pub replaced: bool,
    /// The [`super::INTENTS_DIR`] of any of the branches; with [`RelocateError::NoSpace`] try another.
    pub intents: BorrowedFd<'a>,
    /// Whether it still may happen.
    pub decision: &'a Decision,
    /// For tests; `None` otherwise.
    pub hook: Option<StepHook<'a>>,
}

/// A file that is renamed over a file on another branch.
#[derive(Clone, Copy)]
pub struct Supersede<'a> {
    /// Branch of the file that is renamed.
    pub winner: BranchUuid,
    /// Its old name.
    pub from: Place<'a>,
    /// Its new name, on the same branch.
    pub to: Place<'a>,
    /// Branch of the file that is replaced.
    pub loser: BranchUuid,
    /// That file.
    pub replaced: Place<'a>,
    /// Old path in the pool.
    pub from_path: &'a [u8],
    /// New path in the pool.
    pub to_path: &'a [u8],
    /// The [`super::INTENTS_DIR`] of either branch; with [`RelocateError::NoSpace`] try the other.
    pub intents: BorrowedFd<'a>,
    /// Whether it still may happen.
    pub decision: &'a Decision,
    /// For tests; `None` otherwise.
    pub hook: Option<StepHook<'a>>,
}

/// Renames a directory on all its branches as one operation. With one branch it is a plain rename, without intent or fsync.
///
/// Returns the branches that do not say whether it happened there: on them recovery finishes it.
pub fn rename_dir(r: &DirRename<'_>) -> Result<Vec<BranchUuid>, RelocateError> {
    told(r.hook, Step::Start)?;
    if let [site] = r.sites {
        return rename_one(site, r.replaced).map(|()| Vec::new());
    }
    let mut replaced_dirs = Vec::new();
    for site in r.sites {
        replaced_dirs.push(r.look_at_target(site)?);
    }
    let recorded = record(
        r.intents,
        &Intent::RenameDir {
            from: super::intent::relative(r.from_path).to_vec(),
            to: super::intent::relative(r.to_path).to_vec(),
            branches: r.sites.iter().map(|site| site.branch).collect(),
            replaced: r.replaced,
            decided: false,
        },
    )?;
    told(r.hook, Step::IntentWritten)?;
    r.decision.begin()?;
    let mut unsure = Vec::new();
    for (done, site) in r.sites.iter().enumerate() {
        r.decision.check()?;
        if let Err(error) = rename_one(site, r.replaced) {
            match site.has_happened() {
                Ok(true) => {}
                Ok(false) if is_refusal(error.errno()) => {
                    r.decision.undo()?;
                    r.undo(done, &replaced_dirs).map_err(|error| RelocateError::InDoubt { errno: error.errno() })?;
                    recorded.remove()?;
                    return Err(error);
                }
                Ok(false) | Err(_) => unsure.push(site.branch),
            }
        }
        told(r.hook, Step::Placed(done))?;
    }
    let synced = r.parents().sync();
    if let Err(errno) = synced {
        // Done for all to see; the intent stays and makes it so after a power loss too.
        warn!(%errno, "cannot flush a directory that was renamed");
    }
    if synced.is_err() || !unsure.is_empty() {
        return Ok(unsure);
    }
    told(r.hook, Step::Synced)?;
    settle(recorded);
    told(r.hook, Step::IntentRemoved).map(|()| unsure)
}

impl DirSite<'_> {
    /// Whether a rename that failed has happened all the same; an error where the branch does not say.
    fn has_happened(&self) -> Result<bool, Errno> {
        Ok(look_maybe(self.from)?.is_none() && look_maybe(self.to)?.is_some())
    }
}

impl<'a> DirRename<'a> {
    /// Checks one branch; holds the empty directory that is to be replaced there.
    fn look_at_target(&self, site: &DirSite<'_>) -> Result<Option<OwnedFd>, RelocateError> {
        if look(site.from).doing("look at the directory")?.print.file_type() != FileType::Directory {
            return Err(RelocateError::NotDirectory);
        }
        match look_maybe(site.to).doing("look at the new name")? {
            None => Ok(None),
            Some(_) if !self.replaced => Err(RelocateError::Taken),
            Some(seen) if seen.print.file_type() != FileType::Directory => Err(RelocateError::NotDirectory),
            Some(_) => attrs::hold(site.to).map(Some).doing("open the directory to replace"),
        }
    }

    fn parents(&self) -> ParentTimes<'a> {
        ParentTimes::of(self.sites.iter().flat_map(|site| [site.from.dir, site.to.dir]))
    }

    /// The last first, so that it is always the first ones that are renamed. What was not touched may be what cannot be flushed.
    fn undo(&self, done: usize, replaced: &[Option<OwnedFd>]) -> Result<(), RelocateError> {
        let renamed = || self.sites.iter().zip(replaced).take(done);
        for (site, replaced) in renamed().rev() {
            place_new(site.to, site.from)?;
            if let Some(old) = replaced {
                clone_dir(old.as_fd(), site.to.dir, site.to.name, &EVERYTHING)?;
            }
        }
        ParentTimes::of(renamed().flat_map(|(site, _)| [site.from.dir, site.to.dir]))
            .sync()
            .doing("flush the directories")
    }
}

pub(super) fn rename_one(site: &DirSite<'_>, replaced: bool) -> Result<(), RelocateError> {
    if replaced {
        return match renameat(site.from.dir, site.from.name, site.to.dir, site.to.name) {
            Err(Errno::NOTEMPTY | Errno::EXIST) => Err(RelocateError::Taken),
            done => done.doing("rename a directory"),
        };
    }
    place_new(site.from, site.to)
}

/// Renames a file and removes the one it replaces on another branch, as one operation.
///
/// Where the branch of the replaced file does not say whether it is gone, the rename has happened, and the intent stays.
pub fn supersede(s: &Supersede<'_>) -> Result<Removal, RelocateError> {
    told(s.hook, Step::Start)?;
    let winner_file = look(s.from).doing("look at the file")?.print;
    let loser_file = look(s.replaced).doing("look at the file to replace")?.print;
    if winner_file.file_type() == FileType::Directory || loser_file.file_type() == FileType::Directory {
        return Err(RelocateError::IsDirectory);
    }
    if winner_file.file_type() == FileType::RegularFile {
        attrs::sync_file(s.from).doing("flush the file")?;
    }
    let second = look_maybe(s.to).doing("look at the new name")?.is_some();
    let intent = |decided| Intent::Supersede {
        from: super::intent::relative(s.from_path).to_vec(),
        to: super::intent::relative(s.to_path).to_vec(),
        winner: s.winner,
        winner_file,
        loser: s.loser,
        loser_file,
        decided,
    };
    let recorded = record(s.intents, &intent(false))?;
    told(s.hook, Step::IntentWritten)?;
    s.decision.begin()?;
    if let Err(errno) = renameat(s.from.dir, s.from.name, s.to.dir, s.to.name) {
        match s.has_happened(&winner_file) {
            Ok(true) => {}
            Ok(false) if is_refusal(errno) => {
                s.decision.undo()?;
                recorded.remove()?;
                return Err(errno).doing("rename a file");
            }
            Ok(false) | Err(_) => return Err(RelocateError::InDoubt { errno }),
        }
    }
    told(s.hook, Step::Placed(0))?;
    let winners = ParentTimes::of([s.from.dir, s.to.dir]);
    let synced = winners.sync();
    told(s.hook, Step::Synced)?;
    s.decision.end()?;
    match synced.and_then(|()| remove(s.replaced)) {
        Ok(Removal::Done) => {}
        Ok(unsure) => {
            // What becomes of the winner meanwhile is nothing to whether the other one goes.
            if record(s.intents, &intent(true)).is_ok() {
                let _finds_it_done = recorded.remove_lazily();
            }
            return Ok(unsure);
        }
        Err(errno) => {
            s.decision.undo()?;
            // With a second file already replaced on the winner's branch there is no way back.
            let undone = if second { Err(RelocateError::InDoubt { errno }) } else { place_new(s.to, s.from) };
            undone.map_err(|_| RelocateError::InDoubt { errno })?;
            winners.sync().map_err(|errno| RelocateError::InDoubt { errno })?;
            recorded.remove()?;
            return Err(errno).doing("remove the file that is replaced");
        }
    }
    told(s.hook, Step::Removed(0))?;
    if let Err(errno) = attrs::sync_dir(s.replaced.dir) {
        warn!(%errno, "cannot flush the directory of a file that was replaced");
        return Ok(Removal::Done);
    }
    told(s.hook, Step::RemovalSynced)?;
    settle(recorded);
    told(s.hook, Step::IntentRemoved)?;
    Ok(Removal::Done)
}

impl Supersede<'_> {
    /// Whether a rename that failed has happened all the same; an error where the branch does not say.
    fn has_happened(&self, winner: &Fingerprint) -> Result<bool, Errno> {
        let new = look_maybe(self.to)?;
        Ok(look_maybe(self.from)?.is_none() && new.is_some_and(|new| new.print.ino == winner.ino))
    }
}

/// The change is complete whether or not its intent can be removed.
fn settle(recorded: Recorded<'_>) {
    if let Err(error) = recorded.remove() {
        warn!(%error, "an intent stays although its rename is complete");
    }
}
