//! Wakes the monitor: something happened that it should look at before its time. No thread has to look now and then
//! whether anything did.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Instant;

use crate::ground::locks::{Condvar, LeafMutex, rank};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Wakeup {
    wanted: LeafMutex<rank::Wakeup, bool>,
    wake: Condvar,
}

impl Wakeup {
    /// Wakes the thread that waits, or lets the next one not wait at all.
    pub(crate) fn wake(&self) {
        *self.wanted.lock() = true;
        self.wake.notify_one();
    }

    /// Waits to be woken, but not longer than that.
    pub(crate) fn wait_until(&self, deadline: Instant) {
        let mut wanted = self.wanted.lock();
        self.wake.wait_while_until(&mut wanted, |wanted| !*wanted, deadline);
        *wanted = false;
    }
}

/// Whether something happens, for a thread that looks now and then while it does, and sleeps while nothing does.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    state: AtomicU8,
    wakeup: Wakeup,
}

const QUIET: u8 = 0;
const BUSY: u8 = 1;
/// Nothing happens, and the thread sleeps.
const ASLEEP: u8 = 2;

impl Activity {
    /// Something happens. Costs a load while that is known.
    pub(crate) fn note(&self) {
        if self.state.load(Ordering::Relaxed) != BUSY && self.state.swap(BUSY, Ordering::Relaxed) == ASLEEP {
            self.wakeup.wake();
        }
    }

    /// Whether something happened since this was asked last.
    pub(crate) fn take(&self) -> bool {
        self.state.swap(QUIET, Ordering::Relaxed) == BUSY
    }

    /// Wakes the thread, whether it waits or sleeps.
    pub(crate) fn wake(&self) {
        self.wakeup.wake();
    }

    /// Waits to be woken, but not longer than that, whatever happens.
    pub(crate) fn wait_until(&self, deadline: Instant) {
        self.wakeup.wait_until(deadline);
    }

    /// Waits until something happens, or to be woken, but not longer than that.
    pub(crate) fn sleep_until(&self, deadline: Instant) {
        if self.state.compare_exchange(QUIET, ASLEEP, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.wakeup.wait_until(deadline);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_happens_ends_a_sleep_but_no_wait() {
        let activity = Arc::new(Activity::default());
        let soon = || Instant::now() + Duration::from_millis(20);
        activity.note();
        assert!(activity.take() && !activity.take());
        let began = Instant::now();
        activity.note();
        activity.wait_until(soon());
        assert!(began.elapsed() >= Duration::from_millis(20), "a wait lasts");
        activity.sleep_until(Instant::now() + Duration::from_secs(3600));
        assert!(activity.take(), "it did not sleep: something had happened");
        let other = Arc::clone(&activity);
        let thread = std::thread::spawn(move || other.sleep_until(Instant::now() + Duration::from_secs(3600)));
        while activity.state.load(Ordering::Relaxed) != ASLEEP {
            std::thread::yield_now();
        }
        activity.note();
        thread.join().unwrap();
        assert!(activity.take());
    }
}
