//! Moves files between branches so that no crash loses or doubles one. Works on raw directory descriptors; knows
//! neither FUSE nor nodes.
//!
//! Every writable branch has a hidden directory `.umbrella` (0700) with `tmp/` (copies under way) and `intents/` (one
//! file for each change of several steps). Users never see it.
//!
//! # A relocation, step by step
//!
//! 1. [`copy`]: the source is held open, its attributes are read; what the target cannot keep is refused. A file is
//!    made in `tmp/` with its permissions, then the owner and the attributes, the data (holes stay holes), and what a
//!    write would drop: setuid bits, capabilities, times.
//! 2. fsync of the copy. It is compared with what was asked for.
//! 3. [`verify_unchanged`]: inode, size, times, mode, owner and link count of the source are what they were at step 1.
//! 4. [`commit`]: an intent is written as `intents/new-*`, fsynced, renamed, and `intents/` fsynced. Before, the caller
//!    has made the names that it tells durable on the old branch, where a rename has just given them.
//! 5. The copy is renamed to its name without ever replacing a file; further names are linked.
//! 6. fsync of the directories that got a name, then of `tmp/`.
//! 7. Step 3 once more; then every old name is unlinked.
//! 8. fsync of the directories that lost a name.
//! 9. The intent is unlinked. No fsync: found again after a power loss, it has nothing left to do.
//!
//! The times of the directories are put back at 5 and 7, since nothing changed for users.
//!
//! A file that was never synced and leaves volatile memory need not survive a power loss. Steps 2 and 6 then sync
//! nothing ([`Durability`]). The intent of step 4 lies in the same memory as the source, so both are there or neither
//! is.
//!
//! # What can go wrong
//!
//! | when | what is left | what happens |
//! | --- | --- | --- |
//! | crash in 1-3 | a copy in `tmp/` | [`recover`] deletes it |
//! | crash in 4 | the same, maybe `new-*` | deleted |
//! | crash after 4 | intent, copy, source | undone: the copy is deleted |
//! | crash in 5-6 | some names in place, source | finished: missing names are linked, fsync, source unlinked |
//! | crash in 7-8 | names in place, part of the source | finished |
//! | crash after 8 | intent only | dropped |
//! | no source is left, a copy in `tmp/`, another file under its name (a disk lost what it had promised) | the other file, the copy | the copy may be the only one: it gets a name of the file that is free, else both stay, with a warning |
//! | power loss, directory updates out of order | a source name that was unlinked is back; a copy in `tmp/` beside its name | the same rules: every state is looked at, none is inferred from the step |
//! | power loss, a rename of the source before the move is not durable | nothing of the move: the rename was synced before 4 | - |
//! | power loss, source rolled back to an earlier state, or cut off | older or shorter source, whole copy | finished: the copy was durable, and the source cannot be newer |
//! | source changed after the crash | newer source, untouched copy | undone: the copy is deleted |
//! | power loss after 9, the intent is back | another file under a source's name, maybe the copy under the same name | both stay, with a warning: the copy may be the only one |
//! | both changed | two files | both stay, with a warning |
//! | target full, at any time in 1-6 | nothing | [`RelocateError::NoSpace`], the copy is deleted |
//! | name taken at the target | the other file | [`RelocateError::Taken`], the copy is deleted |
//! | source changed while it is copied | nothing | [`RelocateError::Changed`], the copy is deleted |
//! | a name the caller did not list | nothing | [`RelocateError::OtherLinks`] |
//! | source cannot be unlinked (immutable, read-only) | nothing | the new names are taken back; if that fails too: [`RelocateError::InDoubt`], and the intent stays |
//! | the source's branch does not say whether a name is gone, or not durably (it dies in 7-8, or hangs in 7) | for each name an intent to remove it, whole copy | the move has happened ([`Removal::Unsure`]); when the branch is back, what is left of the source goes, whatever users made of the copy |
//! | a branch hangs before the first unlink | intent, source, maybe the copy | [`Decision::abandon`]: the source stays, nothing more is done to it; [`record_abandoned`] says so beside it. Undone when the branch is back, also where users have deleted the source since |
//! | the target's branch dies in 5-6 | the same | [`RelocateError::InDoubt`], and as above |
//! | the target's branch comes back, the source's was in use all the time | intent, source, maybe the copy | undone: the source may be open; where both have changed, or another file has the source's name, both stay |
//! | a branch is missing at the mount | intent | pending until it is there |
//! | hidden directory missing | nothing | no intents, nothing to do |
//! | damaged or hostile intent | the file | moved aside to `bad-*` with a warning, never guessed; no copy is deleted while one is there |
//!
//! Inode number and birth time say whether a file is the source. Where births are not known and the source has changed,
//! both files stay.
//!
//! Many small files move together, and share their syncs: see `batch`.
//!
//! Renames and exchanges over several branches have their steps and tables in `rename` and `exchange`.
//!
//! Lookups of recovery go through `openat2` below the branch's root, and follow no symbolic link.
//!
//! What this cannot see: before Linux 6.13 times have the grain of a timer tick. A change that bypasses the mount
//! within the tick of the checking step is missed. Birth times are the copy's own. Flags (`lsattr`) are copied where
//! the target knows them.

mod attrs;
mod batch;
mod beneath;
mod branch_uuid;
mod commit;
mod copy;
mod decision;
mod dir_state;
mod dir_xattrs;
mod dirs;
mod error;
mod exchange;
mod fingerprint;
mod intent;
mod journal;
mod names;
mod recover;
mod rename;
mod throttle;

use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use umbrella_units::ByteSize;

pub use batch::{Batch, CopiesSync, MOST_FILES, MOST_PATH_BYTES, Parked, keeps_renames_whole};
pub use branch_uuid::BranchUuid;
pub use commit::{Move, MovedName, Removal, commit, record_removals, verify_unchanged};
pub use copy::{DurableCopy, copy, copy_from_fd, copy_unnamed, losses};
pub use decision::{Call, Decision, MoveSide, Reversibility};
pub use dir_state::{
    Attributes, ChangeNote, ChangedAt, CopyId, DirAttributes, FoundAttributes, apply_dir_attributes, dir_attributes,
    is_reserved_xattr, kept_of, note_change,
};
pub(crate) use dir_state::{Intention, Mark, mark_changing, unmark};
pub use dirs::{clone_dir, clone_dir_durably, clone_dir_whole, sync_dir_attrs};
pub(crate) use error::is_doubtful;
pub use error::{DecodeError, Loss, RelocateError};
pub use exchange::{Exchange, Presence, Swap, exchange};
pub use fingerprint::Fingerprint;
pub use intent::{BatchFile, ExchangeSite, Intent, Verdict};
pub use journal::{Recorded, record, record_abandoned};
pub use names::{BranchCaller, Directory, Journal, OwnedEntry};
pub use recover::{CancelCheck, RecoverBranch, Recovery, Returned, recover, recover_returned};
pub use rename::{DirRename, DirSite, Supersede, rename_dir, supersede};
pub use throttle::Throttle;

pub use crate::ground::HIDDEN_DIR;

/// Below [`HIDDEN_DIR`]: copies under way.
pub const TEMP_DIR: &str = "tmp";
/// Below [`HIDDEN_DIR`]: one file for each change that takes several steps.
pub const INTENTS_DIR: &str = "intents";

/// A name in a directory. The directory may be open with `O_PATH`.
#[derive(Debug, Clone, Copy)]
pub struct EntryAt<'a> {
    /// The directory.
    pub dir: BorrowedFd<'a>,
    /// One component.
    pub name: &'a OsStr,
}

/// How durable a move makes its copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// All of it is on disk when it returns.
    Now,
    /// The caller syncs it later, with others.
    Together,
    /// For files that no program asked to be durable, out of memory that loses them with the power. The copy is on its
    /// way to the disk when the call returns; nothing is waited for. The file survives a crash of the daemon alone as
    /// always, because the kernel keeps its pages.
    Begun,
}

/// Receives the copy, and which bytes of it were just written: their offset and their number.
pub type Written<'a> = dyn Fn(BorrowedFd<'_>, u64, ByteSize) + Sync + 'a;

/// Most bytes that a paced copy writes between two looks at its pace.
pub const PACED_SLICE: ByteSize = ByteSize(1 << 20);

/// The limits of a copy, and its observers.
#[derive(Clone, Copy)]
pub struct Limits<'a> {
    /// Set it to end the copy at the next slice with [`RelocateError::Cancelled`].
    pub cancel: &'a AtomicBool,
    /// Bandwidth.
    pub throttle: Option<&'a Throttle>,
    /// Asked between slices, and while the bandwidth is waited for; true ends the copy as `cancel` does.
    pub stop: Option<&'a dyn Fn() -> bool>,
    /// Receives the bytes of data copied so far, slice by slice.
    pub progress: Option<&'a (dyn Fn(u64) + Sync)>,
    /// Receives each slice after it was written, and may take its time; slices are at most [`PACED_SLICE`] then.
    pub written: Option<&'a Written<'a>>,
    /// Called after each slice of data, and may take its time. With it, written data is sent to the disk at once,
    /// except small files.
    pub rest: Option<&'a dyn Fn()>,
    /// Step 2 syncs only where it is [`Durability::Now`].
    pub durability: Durability,
}

impl<'a> Limits<'a> {
    /// Full speed, durable, without observers.
    pub fn new(cancel: &'a AtomicBool) -> Self {
        let durability = Durability::Now;
        Limits { cancel, throttle: None, stop: None, progress: None, written: None, rest: None, durability }
    }

    fn cancelled(&self) -> bool {
        self.cancel.load(Ordering::Relaxed) || self.stop.is_some_and(|stop| stop())
    }
}

/// Where a change stands; a [`StepHook`] gets it after the step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Nothing is written yet.
    Start,
    /// The intent is durable.
    IntentWritten,
    /// One name is in place on its new branch (or has its new name).
    Placed(usize),
    /// The directories that got new names are durable.
    Synced,
    /// The source is still what was copied, and its names go next.
    Verified,
    /// One name is gone from its old branch.
    Removed(usize),
    /// The directories that lost names are durable.
    RemovalSynced,
    /// The intent is gone.
    IntentRemoved,
    /// Something failed, and what was done is taken back next.
    Undoing,
}

/// Called between steps; `Break` stops at once as a crash would, with [`RelocateError::Stopped`]. For tests.
pub type StepHook<'a> = &'a (dyn Fn(Step) -> ControlFlow<()> + 'a);

fn run_hook(hook: Option<StepHook<'_>>, step: Step) -> Result<(), RelocateError> {
    match hook.map_or(ControlFlow::Continue(()), |hook| hook(step)) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(RelocateError::Stopped { after: step }),
    }
}

#[cfg(test)]
mod tests;

/// A file without a name in a branch's [`TEMP_DIR`], to try things with.
pub fn scratch_file(temp: BorrowedFd<'_>) -> Result<std::os::fd::OwnedFd, rustix::io::Errno> {
    use rustix::fs::{AtFlags, Mode, OFlags, openat, unlinkat};
    let name = format!("scratch-{}", std::process::id());
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(temp, name.as_str(), flags, Mode::RUSR | Mode::WUSR)?;
    unlinkat(temp, name.as_str(), AtFlags::empty())?;
    Ok(file)
}
