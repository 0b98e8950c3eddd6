//! Wakes the monitor: something happened that it should look at before its time. Nobody has to look now and then whether anything did.

use std::time::Instant;

use crate::ground::locks::{Condvar, LeafMutex, rank};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Attention {
    wanted: LeafMutex<rank::Attention, bool>,
    wake: Condvar,
}

impl Attention {
    /// Wakes who waits, or lets the next one not wait at all.
    pub(crate) fn call(&self) {
        *self.wanted.lock() = true;
        self.wake.notify_one();
    }

    /// Waits for a call, but not longer than that.
    pub(crate) fn wait_until(&self, deadline: Instant) {
        let mut wanted = self.wanted.lock();
        self.wake.wait_while_until(&mut wanted, |wanted| !*wanted, deadline);
        *wanted = false;
    }
}
