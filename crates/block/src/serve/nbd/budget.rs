//! The memory that large requests may hold at once.
//!
//! Each connection has a share of its own, which no other connection can use up. A request that is larger than the free
//! part of the share takes its memory from a common reserve. So clients that announce large transfers and do not
//! continue hold up only others of their kind.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Condvar, Mutex};
use umbrella_units::ByteSize;

use super::wire::MAX_TRANSFER;

/// Requests up to this size use memory that each thread has anyway.
pub(super) const FREE: usize = 256 << 10;
/// The least share of a connection.
const LEAST_SHARE: usize = 1 << 20;
/// The largest request.
const LARGEST: usize = MAX_TRANSFER as usize;

/// See the module.
#[derive(Debug)]
pub(super) struct Budget {
    /// What each connection has for itself: half of all, divided.
    share: usize,
    /// The most that one connection may take of the common reserve.
    most: usize,
    /// The free part of the common reserve.
    left: Mutex<usize>,
    freed: Condvar,
}

impl Budget {
    pub(super) fn new(total: ByteSize, connections: usize) -> Budget {
        let total = total.0 as usize;
        let share = (total / 2 / connections.max(1)).max(LEAST_SHARE);
        let common = total.saturating_sub(share.saturating_mul(connections)).max(LARGEST);
        Budget { share, most: (common / 2).max(LARGEST), left: Mutex::new(common), freed: Condvar::new() }
    }

    /// The account of a new connection.
    pub(super) fn account(&self) -> Account<'_> {
        Account { budget: self, own: AtomicUsize::new(self.share), borrowed: AtomicUsize::new(0) }
    }
}

/// What a connection may have. Its numbers change while the budget is locked.
#[derive(Debug)]
pub(super) struct Account<'b> {
    budget: &'b Budget,
    /// The free part of its share.
    own: AtomicUsize,
    /// The part of the common reserve that it holds.
    borrowed: AtomicUsize,
}

impl Account<'_> {
    /// Waits until `bytes` bytes are free, and takes them until the permit is dropped. A larger number than that of the
    /// largest request counts as the largest request.
    pub(super) fn take(&self, bytes: usize) -> Permit<'_> {
        if bytes <= FREE {
            return Permit { account: self, own: 0, borrowed: 0 };
        }
        let bytes = bytes.min(LARGEST);
        let mut left = self.budget.left.lock();
        loop {
            let (own, borrowed) = (self.own.load(Ordering::Relaxed), self.borrowed.load(Ordering::Relaxed));
            if bytes <= own {
                self.own.store(own - bytes, Ordering::Relaxed);
                return Permit { account: self, own: bytes, borrowed: 0 };
            }
            if bytes <= *left && borrowed + bytes <= self.budget.most {
                *left -= bytes;
                self.borrowed.store(borrowed + bytes, Ordering::Relaxed);
                return Permit { account: self, own: 0, borrowed: bytes };
            }
            self.budget.freed.wait(&mut left);
        }
    }
}

/// Memory of a budget; given back when dropped.
#[derive(Debug)]
pub(super) struct Permit<'a> {
    account: &'a Account<'a>,
    own: usize,
    borrowed: usize,
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        if self.own + self.borrowed > 0 {
            let mut left = self.account.budget.left.lock();
            *left += self.borrowed;
            self.account.own.fetch_add(self.own, Ordering::Relaxed);
            self.account.borrowed.fetch_sub(self.borrowed, Ordering::Relaxed);
            self.account.budget.freed.notify_all();
        }
    }
}
