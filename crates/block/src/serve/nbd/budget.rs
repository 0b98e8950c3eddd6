//! The memory that large requests may hold at once.

use parking_lot::{Condvar, Mutex};
use umbrella_units::ByteSize;

/// Requests up to this size come out of what each thread has anyway.
pub(super) const FREE: usize = 256 << 10;

/// See the module.
#[derive(Debug)]
pub(super) struct Budget {
    total: usize,
    left: Mutex<usize>,
    freed: Condvar,
}

impl Budget {
    pub(super) fn new(total: ByteSize) -> Budget {
        let total = total.0 as usize;
        Budget { total, left: Mutex::new(total), freed: Condvar::new() }
    }

    /// Waits until so many bytes are free, and takes them until the permit is dropped. More than there are means all.
    pub(super) fn take(&self, bytes: usize) -> Permit<'_> {
        let bytes = if bytes <= FREE { 0 } else { bytes.min(self.total) };
        if bytes > 0 {
            let mut left = self.left.lock();
            self.freed.wait_while(&mut left, |left| *left < bytes);
            *left -= bytes;
        }
        Permit { budget: self, bytes }
    }
}

/// Memory of a budget; given back when dropped.
#[derive(Debug)]
pub(super) struct Permit<'b> {
    budget: &'b Budget,
    bytes: usize,
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            *self.budget.left.lock() += self.bytes;
            self.budget.freed.notify_all();
        }
    }
}
