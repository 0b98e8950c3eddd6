//! Moves files between branches so that no crash loses or doubles one. Works on raw directory descriptors; knows neither FUSE nor nodes.

mod attrs;
mod beneath;
mod commit;
mod copy;
mod dirs;
mod error;
mod fingerprint;
mod intent;
mod journal;
mod recover;
mod rename;
mod throttle;

use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};

pub use commit::{Move, MovedName, commit, verify_unchanged};
pub use copy::{Copied, copy, copy_from_fd, losses};
pub use dirs::{clone_dir, clone_dir_durably, sync_dir_attrs};
pub use error::{Loss, RelocateError};
pub use fingerprint::Fingerprint;
pub use intent::{BranchUuid, DecodeError, Intent};
pub use journal::{Recorded, record};
pub use recover::{RecoverBranch, Recovery, recover, recover_returned};
pub use rename::{DirRename, DirSite, Supersede, rename_dir, supersede};
pub use throttle::Throttle;

/// The hidden directory at a branch's root; no pool path may begin with it.
pub const HIDDEN_DIR: &str = ".umbrella";
/// Below [`HIDDEN_DIR`]: copies under way.
pub const TEMP_DIR: &str = "tmp";
/// Below [`HIDDEN_DIR`]: one file for each change that takes several steps.
pub const INTENTS_DIR: &str = "intents";

/// A name in a directory. The directory may be open with `O_PATH`.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// The directory.
    pub dir: BorrowedFd<'a>,
    /// One component.
    pub name: &'a OsStr,
}

/// What holds a copy back, and who is told about it.
#[derive(Clone, Copy)]
pub struct Limits<'a> {
    /// Set it to end the copy at the next slice with [`RelocateError::Cancelled`].
    pub cancel: &'a AtomicBool,
    /// Bandwidth.
    pub throttle: Option<&'a Throttle>,
    /// Told the bytes of data copied so far, slice by slice.
    pub progress: Option<&'a (dyn Fn(u64) + Sync)>,
    /// Accept times rounded to what the target keeps, instead of [`Loss::Times`].
    pub coarse_times: bool,
}

impl<'a> Limits<'a> {
    /// Full speed, nobody told, exact times.
    pub fn new(cancel: &'a AtomicBool) -> Self {
        Limits { cancel, throttle: None, progress: None, coarse_times: false }
    }

    fn cancelled(&self) -> bool {
        self.cancel.load(Ordering::Relaxed)
    }
}

/// Where a change stands; told to a [`StepHook`] after the step.
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
    /// One name is gone from its old branch.
    Removed(usize),
    /// The directories that lost names are durable.
    RemovalSynced,
    /// The intent is gone.
    IntentRemoved,
}

/// Called between steps; `Break` stops at once as a crash would, with [`RelocateError::Stopped`]. For tests.
pub type StepHook<'a> = &'a (dyn Fn(Step) -> ControlFlow<()> + 'a);

fn told(hook: Option<StepHook<'_>>, step: Step) -> Result<(), RelocateError> {
    match hook.map_or(ControlFlow::Continue(()), |hook| hook(step)) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(RelocateError::Stopped { after: step }),
    }
}
