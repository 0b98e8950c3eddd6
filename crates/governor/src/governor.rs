//! The governor of one file system.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use umbrella_policy::writeback::{Event, Spec, WriteBack};
use umbrella_units::{BlockNo, ByteSize, FileId, Nanos, PAGE_BYTES, PageIndex, PageKey, Pages};

use crate::error::GovernorError;
use crate::file::{FileRef, PageRange};
use crate::settings::{Limits, Settings};
use crate::status::Status;

/// See the module. Events are told after the call that they tell of.
pub struct Governor {
    _root: OwnedFd,
    started: Instant,
    state: Mutex<State>,
}

struct State {
    policy: WriteBack,
    settings: Settings,
}

impl Governor {
    /// Starts to govern the file system that `root` lies on.
    pub fn start(root: OwnedFd, settings: Settings) -> Result<Arc<Governor>, GovernorError> {
        let state = Mutex::new(State { policy: settings.check()?, settings });
        Ok(Arc::new(Governor { _root: root, started: Instant::now(), state }))
    }

    fn now(&self) -> Nanos {
        Nanos(u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Pages of a file were written: they are dirty.
    pub fn wrote(&self, file: FileId, _by: FileRef<'_>, range: PageRange) {
        let now = self.now();
        let mut state = self.state.lock();
        for index in range.first.0..range.end().0 {
            let page = PageKey { file, index: PageIndex(index) };
            state.policy.on(now, Event::Dirty { page, block: BlockNo(index), active: false });
        }
    }

    /// Pages of a file were read.
    pub fn read(&self, file: FileId, range: PageRange) {
        let now = self.now();
        let mut state = self.state.lock();
        for index in range.first.0..range.end().0 {
            state.policy.on(now, Event::Touch { page: PageKey { file, index: PageIndex(index) } });
        }
    }

    /// A file ends before page `from` now.
    pub fn truncated(&self, file: FileId, from: PageIndex) {
        self.state.lock().policy.on(self.now(), Event::Truncate { file, from });
    }

    /// The last name of a file is gone, and nobody has it open; or it was moved to another file system.
    pub fn deleted(&self, file: FileId) {
        self.state.lock().policy.on(self.now(), Event::Delete { file });
    }

    /// Somebody wrote all of a file to disk.
    pub fn synced(&self, file: FileId) {
        self.deleted(file);
    }

    /// Lets a writer of so many pages go on: at once, or later from another thread, when there is room for more. Never blocks.
    pub fn when_room(&self, _wrote: Pages, go: Box<dyn FnOnce() + Send>) {
        go();
    }

    /// Changes the policy. What is dirty stays known.
    pub fn set_policy(&self, policy: &Spec) -> Result<(), GovernorError> {
        let mut state = self.state.lock();
        let settings = Settings { policy: policy.clone(), limits: state.settings.limits };
        state.policy = settings.check()?;
        state.settings = settings;
        Ok(())
    }

    /// Changes the limits.
    pub fn set_limits(&self, limits: Limits) -> Result<(), GovernorError> {
        self.state.lock().settings.limits = limits.check()?;
        Ok(())
    }

    /// Starts to record events and selections into a file of at most so many bytes.
    pub fn record_to(&self, _path: &Path, _most: ByteSize) -> Result<(), GovernorError> {
        Err(GovernorError::Stopped)
    }

    /// Ends the record, if there is one.
    pub fn end_record(&self) -> Result<(), GovernorError> {
        Ok(())
    }

    /// How it is doing.
    pub fn status(&self) -> Status {
        let state = self.state.lock();
        Status {
            policy: state.settings.policy.name.clone(),
            dirty: ByteSize(state.policy.dirty().0 * PAGE_BYTES),
            ..Status::default()
        }
    }

    /// Ends the threads; who waits is let go.
    pub fn stop(&self) {}
}
