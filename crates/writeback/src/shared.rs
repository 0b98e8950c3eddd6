//! What the threads of a flusher share.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::{Condvar, Mutex};
use umbrella_units::Nanos;

use crate::error::FlusherError;
use crate::gate::Gate;
use crate::journal::Journal;
use crate::state::FlusherState;
use crate::sys::{self, KernelDirty};
use crate::thresholds::{Share, Thresholds};

/// How the flusher learns that a run has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CompletionMode {
    /// The kernel says so, with the error of a write-back, which then counts as reported: for files whose errors
    /// [`Flusher::take_error`](crate::Flusher::take_error) hands on.
    Reporting,
    /// The page cache is inspected, and errors stay for the owners of the files.
    Silent,
}

/// See the module. Locks in this order: journal, state, gate.
pub(crate) struct Shared {
    pub(crate) root: OwnedFd,
    pub(crate) waits: CompletionMode,
    /// Whether files can be opened by handle.
    pub(crate) has_handles: bool,
    pub(crate) started: Instant,
    pub(crate) journal: Mutex<Option<Journal>>,
    pub(crate) state: Mutex<FlusherState>,
    /// There is something to write back.
    pub(crate) work: Condvar,
    pub(crate) gate: Gate,
    pub(crate) share: Share,
    /// So old may what is dirty become before it is written back.
    pub(crate) age: AtomicU64,
    /// The kernel has less dirty than is believed.
    pub(crate) suspicious: AtomicBool,
    pub(crate) stopping: AtomicBool,
    /// Nothing is chosen for now.
    pub(crate) paused: AtomicBool,
}

/// How old what is dirty may become: half as old as the kernel lets it.
pub(crate) fn age() -> Nanos {
    const LEAST: Nanos = Nanos::from_secs(1);
    sys::expiry().map_or(Nanos::NEVER, |expiry| Nanos(expiry.0 / 2).max(LEAST))
}

impl Shared {
    pub(crate) fn now(&self) -> Nanos {
        Nanos(u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Publishes the number of dirty pages to the gate and the other flushers.
    pub(crate) fn publish_level(&self, state: &FlusherState) {
        self.gate.set_level(state.level());
        self.share.publish(state.policy.dirty());
    }

    /// Looks at what the kernel allows now.
    pub(crate) fn refresh(&self) {
        self.age.store(age().0, Ordering::Relaxed);
        let (allowance, wrong) = self.share.allowance(KernelDirty::read());
        let asked = self.state.lock().policy.settings().limits;
        self.gate.set_thresholds(Thresholds::new(asked, allowance));
        if wrong {
            self.suspicious.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn take_suspicious(&self) -> bool {
        self.suspicious.swap(false, Ordering::Relaxed)
    }

    /// Writes what the record grew by; ends it when its file is full, or cannot be written.
    pub(crate) fn write_record(&self) {
        let mut journal = self.journal.lock();
        let Some(file) = journal.as_mut() else { return };
        let mut state = self.state.lock();
        let Some(text) = state.policy.take_record() else {
            // It was more than memory may hold.
            *journal = None;
            return;
        };
        let rest = if file.has_room(text.len()) { None } else { state.policy.end_record() };
        drop(state);
        let written = file.append(&text).and_then(|()| rest.as_ref().map_or(Ok(()), |rest| file.append(rest)));
        if let Err(error) = &written {
            tracing::warn!(%error, "cannot write the record of write-back: it ends here");
            self.state.lock().policy.end_record();
        }
        if written.is_err() || rest.is_some() {
            *journal = None;
        }
    }

    /// Changes the policy in a way that may end the record, and writes its rest.
    pub(crate) fn with_record(
        &self,
        change: impl FnOnce(&mut FlusherState) -> Result<Option<String>, FlusherError>,
    ) -> Result<(), FlusherError> {
        let mut journal = self.journal.lock();
        let rest = change(&mut self.state.lock())?;
        match (rest, journal.as_mut()) {
            (Some(rest), Some(file)) => {
                let done = file.append(&rest);
                *journal = None;
                done
            }
            _ => Ok(()),
        }
    }
}
