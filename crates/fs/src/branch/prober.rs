//! Checks that may hang, each on a thread of its own, with a time limit.

use std::sync::Arc;
use std::time::Duration;

use crate::ground::locks::{Condvar, LeafMutex, rank};

/// Runs one thing at a time on a thread of its own.
#[derive(Debug, Default)]
pub(super) struct Prober {
    busy: Arc<LeafMutex<rank::Prober, bool>>,
    free: Arc<Condvar>,
    #[cfg(test)]
    pub(super) before: LeafMutex<rank::Prober, Option<Hook>>,
}

/// Runs at the start of each probe: tests let it hang.
#[cfg(test)]
pub(super) struct Hook(pub(super) Arc<dyn Fn() + Send + Sync>);

#[cfg(test)]
impl std::fmt::Debug for Hook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hook")
    }
}

type ReplySlot<T> = Arc<(LeafMutex<rank::ProberReply, Option<T>>, Condvar)>;

impl Prober {
    /// The result of `ask`.
    pub(super) fn run<T: Send + 'static>(
        &self,
        timeout: Duration,
        ask: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ProbeFailure> {
        let deadline = std::time::Instant::now() + timeout;
        {
            let mut busy = self.busy.lock();
            while *busy {
                if self.free.wait_until(&mut busy, deadline).timed_out() {
                    return Err(ProbeFailure::Hangs);
                }
            }
            *busy = true;
        }
        let reply: ReplySlot<T> = Arc::default();
        let theirs = Arc::clone(&reply);
        let (busy, free) = (Arc::clone(&self.busy), Arc::clone(&self.free));
        #[cfg(test)]
        let hook = self.before.lock().as_ref().map(|hook| Arc::clone(&hook.0));
        let release = Release { busy, free };
        let work = move || {
            let _release = release;
            #[cfg(test)]
            if let Some(hook) = hook {
                hook();
            }
            let found = ask();
            *theirs.0.lock() = Some(found);
            theirs.1.notify_one();
        };
        // `Release` is dropped with the closure.
        let spawned = std::thread::Builder::new().name("branch-probe".to_owned()).spawn(work);
        spawned.map_err(|_| ProbeFailure::NoThread)?;
        let mut found = reply.0.lock();
        while found.is_none() {
            if reply.1.wait_until(&mut found, deadline).timed_out() {
                break;
            }
        }
        found.take().ok_or(ProbeFailure::Hangs)
    }
}

/// Runs a call that may hang. `None` if it does not return within `limit`; it then keeps its thread.
pub(crate) fn run_within<T: Send + 'static>(limit: Duration, call: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    Prober::default().run(limit, call).ok()
}

/// Why there is no result.
#[derive(Debug, Clone, Copy)]
pub(super) enum ProbeFailure {
    /// It, or one before it, does not return in time.
    Hangs,
    /// The daemon can start no thread.
    NoThread,
}

/// Frees the prober however its thread ends.
struct Release {
    busy: Arc<LeafMutex<rank::Prober, bool>>,
    free: Arc<Condvar>,
}

impl Drop for Release {
    fn drop(&mut self) {
        *self.busy.lock() = false;
        self.free.notify_one();
    }
}
