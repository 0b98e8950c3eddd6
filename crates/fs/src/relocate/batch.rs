//! Moves of a batch: many small files from one branch to another, which share their syncs.
//!
//! A file of a batch has one name. Its source is not unlinked at once but parked: renamed into the hidden directory of
//! its own branch. That rename takes the name away and records that in one step, without a sync; a sync for all comes
//! later. So no lock is held while a disk is waited for.
//!
//! # A batch, step by step
//!
//! 1. Each file is copied into `tmp/` of the new branch as in a relocation of its own ([`super::copy`]), and not
//!    synced.
//! 2. The caller makes names durable on the old branch that renames have just given. Then [`Batch::record`]: one intent
//!    names all files. It is written as `intents/new-*`; one `syncfs` makes it and all copies durable; then it is
//!    renamed, and `intents/` is fsynced.
//! 3. [`Batch::place_and_park`], for one file after the other, each under its own locks. It checks that the source is
//!    what was copied, renames the copy to its name without ever replacing a file, and parks the source. It puts the
//!    times of both directories back.
//! 4. [`Batch::finish`]: fsync of the directories that got names, each once, and of `tmp/`; where these are many, one
//!    `syncfs` in place of that.
//! 5. Every parked source is unlinked.
//! 6. The same for the directories that lost names, and the old branch's `tmp/`.
//! 7. The intent is unlinked. No fsync: found again after a power loss, it has nothing left to do.
//!
//! Where 5 or 6 fails, a source may be back when its branch is, while users have renamed X. So an intent for each file
//! then says that its source goes, as after a move of its own. They take the place of the batch's. Recovery deletes
//! what is parked without an intent.
//!
//! A file that cannot be moved, or not now, falls out at any step before it is parked: its copy is deleted, and the
//! others go on.
//!
//! # What recovery finds
//!
//! For each file by itself, whatever became of the others. S: the source under its name; P: parked; T: the copy in
//! `tmp/`; X: the copy under its name.
//!
//! | crash | what is left | what happens |
//! | --- | --- | --- |
//! | in 1, or in 2 before the rename | S, maybe T, maybe `new-*` | T and `new-*` are deleted |
//! | after 2, before its turn in 3 | S, T | undone: T is deleted |
//! | the same, the file was deleted or renamed by a user meanwhile | T | T is deleted: without P, it was not the move that took the name |
//! | between the two renames of 3 | S, X | finished: S is deleted (X, where S has changed since) |
//! | after its turn in 3 | P, X, or whatever users made of X | the new branch is synced, then P is deleted |
//! | power loss before 4 ends, the new branch behind | P, T | T gets its name, sync, P is deleted |
//! | power loss before 4 ends, the old branch behind | S, X | finished: S is deleted |
//! | the same, both behind | S, T | undone; finished where users have changed T under its name |
//! | in 5-6 | P or S, X | as above |
//! | after 6 | X | nothing is left to do |
//! | after 7, the intent is back, another file has the name on the old branch | X, the other | both stay, with a warning |
//! | another file has the name, beside P and T | P, T, the other | P gets its name back where that is free, with a warning; else all stays, with a warning |
//! | a branch is missing at the mount | intent | pending; a parked source stays as long as the branch that its file went to is missing |
//!
//! That a rename is whole or not at all, also through a power loss, is a promise of journals and logs: batches are for
//! the file systems of [`keeps_renames_whole`].

use std::ffi::{OsStr, OsString};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, RenameFlags, fstat, fstatfs, renameat_with, syncfs, unlinkat};
use rustix::io::Errno;
use tracing::warn;

use crate::relocate::commit::{MovedName, ParentTimes, Removal, place_new, record_removals, verify_unchanged};
use crate::relocate::error::ErrorContext;
use crate::relocate::intent::BatchFile;
use crate::relocate::journal::{Recorded, record_after};
use crate::relocate::{BranchUuid, DurableCopy, EntryAt, Intent, RelocateError, Step, StepHook, attrs, run_hook};

/// Files of a batch at most, and the bytes of their paths: as many as an intent can name.
pub const MOST_FILES: usize = 3072;
/// See [`MOST_FILES`].
pub const MOST_PATH_BYTES: usize = 256 << 10;

/// Begins the name of a parked source.
const PARKED: &str = "parked-";

/// Where a batch goes from and to.
#[derive(Clone, Copy)]
pub struct Batch<'a> {
    /// Old branch.
    pub from: BranchUuid,
    /// New branch.
    pub to: BranchUuid,
    /// The [`super::TEMP_DIR`] of the old branch, for parked sources.
    pub parked: BorrowedFd<'a>,
    /// The [`super::TEMP_DIR`] of the new branch, which has the copies.
    pub temps: BorrowedFd<'a>,
    /// The [`super::INTENTS_DIR`] of the new branch.
    pub intents: BorrowedFd<'a>,
    /// Whether the old and the new branch's file system may be synced as a whole, with what others have written there.
    pub syncs_whole: [bool; 2],
    /// For tests; `None` otherwise.
    pub hook: Option<StepHook<'a>>,
}

/// From this number of directories on, one sync of their file system replaces a sync of each: each alone would empty
/// the disk's cache again.
const MANY_DIRS: usize = 6;

/// The new branch's file system, opened before the first copy is made. Its next sync reports every write since then
/// that failed.
#[derive(Debug)]
pub struct CopiesSync(OwnedFd);

/// A file that was parked.
#[derive(Debug, Clone, Copy)]
pub struct Parked<'a> {
    /// The directory that lost its name.
    pub source: BorrowedFd<'a>,
    /// The directory that has it now.
    pub target: BorrowedFd<'a>,
    /// Its copy's name in the [`super::TEMP_DIR`].
    pub temp: &'a OsStr,
    /// Its path in the pool.
    pub path: &'a [u8],
    /// What [`super::copy`] returned.
    pub copied: &'a DurableCopy,
}

/// Whether a rename on this file system is whole or not at all after a power loss.
pub fn keeps_renames_whole(dir: BorrowedFd<'_>) -> bool {
    const EXT4: u64 = 0xEF53;
    const XFS: u64 = 0x5846_5342;
    const BTRFS: u64 = 0x9123_683E;
    const F2FS: u64 = 0xF2F5_2010;
    const BCACHEFS: u64 = 0xCA45_1A4E;
    const TMPFS: u64 = 0x0102_1994;
    match fstatfs(dir).map(|fs| u64::try_from(fs.f_type)) {
        Ok(Ok(EXT4)) => has_journal(dir),
        Ok(Ok(XFS | BTRFS | F2FS | BCACHEFS | TMPFS)) => true,
        _ => false,
    }
}

/// Whether an ext4 has a journal: the kernel names the thread that writes it. ext2 and ext3 have the number of ext4.
fn has_journal(dir: BorrowedFd<'_>) -> bool {
    let Ok(stat) = fstat(dir) else { return false };
    let (major, minor) = (rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev));
    let Ok(device) = std::fs::read_link(format!("/sys/dev/block/{major}:{minor}")) else { return false };
    let Some(name) = device.file_name() else { return false };
    let thread = std::fs::read_to_string(Path::new("/sys/fs/ext4").join(name).join("journal_task"));
    thread.is_ok_and(|thread| thread.trim().parse::<u32>().is_ok())
}

/// The name of a source that is parked. It tells the branch that its file went to, so that no other mount takes it for
/// a copy.
pub(super) fn parked_name(to: BranchUuid, temp: &OsStr) -> OsString {
    let mut name = OsString::from(format!("{PARKED}{}-", to.0.simple()));
    name.push(temp);
    name
}

/// The branch that the file of a parked source went to; `None`: it is something else.
pub(super) fn parked_for(name: &[u8]) -> Option<BranchUuid> {
    let uuid = name.strip_prefix(PARKED.as_bytes())?.get(..32)?;
    uuid::Uuid::try_parse_ascii(uuid).ok().map(BranchUuid)
}

impl CopiesSync {
    /// Before the first copy.
    pub fn before(temps: BorrowedFd<'_>) -> Result<CopiesSync, RelocateError> {
        attrs::open_to_sync(temps).map(CopiesSync).doing("open the directory of copies")
    }
}

impl<'a> Batch<'a> {
    /// Step 2. `sync`: of copies that are not durable yet; without it, they are.
    pub fn record(&self, files: Vec<BatchFile>, sync: Option<&CopiesSync>) -> Result<Recorded<'a>, RelocateError> {
        run_hook(self.hook, Step::Start)?;
        let intent = Intent::Moves { from: self.from, to: self.to, files };
        let recorded = record_after(self.intents, &intent, |file| match sync {
            Some(CopiesSync(file_system)) => syncfs(file_system),
            None => rustix::fs::fsync(file).and_then(|()| attrs::sync_dir(self.temps)),
        })?;
        run_hook(self.hook, Step::IntentWritten)?;
        Ok(recorded)
    }

    /// Step 3 for one file. On an error the source is as it was, and the copy where it was, except for
    /// [`RelocateError::InDoubt`].
    pub fn place_and_park(&self, name: MovedName<'_>, temp: &OsStr, copied: &DurableCopy) -> Result<(), RelocateError> {
        verify_unchanged(name.source, copied)?;
        let times = ParentTimes::of([name.source.dir, name.target.dir]);
        let temp_at = EntryAt { dir: self.temps, name: temp };
        place_new(temp_at, name.target)?;
        run_hook(self.hook, Step::Placed(0))?;
        let parked = parked_name(self.to, temp);
        let flags = RenameFlags::NOREPLACE;
        if let Err(errno) = renameat_with(name.source.dir, name.source.name, self.parked, &parked, flags) {
            let undone = renameat_with(name.target.dir, name.target.name, self.temps, temp, flags);
            undone.map_err(|errno| RelocateError::InDoubt { errno })?;
            times.restore();
            return Err(errno).doing("set the source aside");
        }
        run_hook(self.hook, Step::Removed(0))?;
        times.restore();
        Ok(())
    }

    /// Steps 4 to 7. On an error the intent stays, and the next mount does what is left; the files are in their new
    /// places.
    pub fn finish(&self, recorded: Recorded<'_>, files: &[Parked<'_>]) -> Result<Removal, RelocateError> {
        let [_, to_whole] = self.syncs_whole;
        if !files.is_empty() {
            let targets = ParentTimes::of(files.iter().map(|file| file.target));
            sync_names(&targets, self.temps, to_whole).doing("flush the new directories")?;
            run_hook(self.hook, Step::Synced)?;
            match self.remove_sources(files) {
                Ok(()) => {}
                Err(stopped @ RelocateError::Stopped { .. }) => return Err(stopped),
                Err(error) => {
                    warn!(%error, "cannot remove the sources of moved files for good");
                    let removal = |file: &Parked<'_>| {
                        let ends = (self.from, file.copied.source, self.to, file.copied.target);
                        record_removals(self.intents, ends, file.temp, std::iter::once(file.path))
                    };
                    files.iter().try_for_each(removal)?;
                    recorded.remove()?;
                    return Ok(Removal::Unsure { errno: error.errno() });
                }
            }
        }
        recorded.remove_lazily()?;
        run_hook(self.hook, Step::IntentRemoved)?;
        Ok(Removal::Done)
    }

    /// Steps 5 and 6.
    fn remove_sources(&self, files: &[Parked<'_>]) -> Result<(), RelocateError> {
        let [from_whole, _] = self.syncs_whole;
        for (at, file) in files.iter().enumerate() {
            match unlinkat(self.parked, parked_name(self.to, file.temp), AtFlags::empty()) {
                // Recovery of a branch that came back was here.
                Ok(()) | Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno).doing("unlink the source"),
            }
            run_hook(self.hook, Step::Removed(at + 1))?;
        }
        let sources = ParentTimes::of(files.iter().map(|file| file.source));
        sync_names(&sources, self.parked, from_whole).doing("flush the old directories")?;
        run_hook(self.hook, Step::RemovalSynced)
    }
}

/// Makes the names in directories durable, and those in a hidden directory beside them.
fn sync_names(dirs: &ParentTimes<'_>, hidden: BorrowedFd<'_>, whole: bool) -> Result<(), Errno> {
    if whole && dirs.len() >= MANY_DIRS {
        return syncfs(attrs::open_to_sync(hidden)?);
    }
    dirs.sync()?;
    attrs::sync_dir(hidden)
}
