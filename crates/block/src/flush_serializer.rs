//! A device whose flushes take turns.
//!
//! Of two concurrent flushes, a device may report a loss to one only, as Linux reports a failed write-back only once.
//! The other would succeed. So what flushes from several threads does it through this: one flush at a time, and none
//! after one that failed, which fails as that one did. Those that wait for their turn share one flush.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::device::BlockDevice;
use crate::error::BlockError;

/// A device whose flushes take turns; see the module.
pub(crate) struct FlushSerializer {
    inner: Arc<dyn BlockDevice>,
    /// How many flushes have begun.
    begun: AtomicU64,
    /// Held by the thread that flushes; the error of the flush that failed.
    failed: Mutex<Option<BlockError>>,
}

impl FlushSerializer {
    /// Around that device.
    pub(crate) fn new(inner: Arc<dyn BlockDevice>) -> FlushSerializer {
        FlushSerializer { inner, begun: AtomicU64::new(0), failed: Mutex::new(None) }
    }
}

impl BlockDevice for FlushSerializer {
    crate::forward!(inner: geometry, refresh, read, write, discard, has_extents, first_extent, write_zeroes);

    fn flush(&self) -> Result<(), BlockError> {
        let begun = self.begun.load(Ordering::Acquire);
        let mut failed = self.failed.lock();
        if let Some(error) = &*failed {
            return Err(error.clone());
        }
        if self.begun.load(Ordering::Acquire) > begun {
            return Ok(()); // One that began after this call did has ended well, and covers what this one was to cover.
        }
        self.begun.fetch_add(1, Ordering::AcqRel);
        let done = self.inner.flush();
        *failed = done.clone().err();
        done
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;

    use umbrella_units::ByteSize;

    use super::*;
    use crate::memory::Memory;
    use crate::testing::until;

    /// Counts flushes. Each lasts until it may end.
    struct Slow {
        inner: Memory,
        flushes: AtomicU64,
        may_end: AtomicBool,
    }

    impl BlockDevice for Slow {
        crate::forward!(inner: geometry, read, write, discard, write_zeroes);

        fn flush(&self) -> Result<(), BlockError> {
            self.flushes.fetch_add(1, Ordering::SeqCst);
            until("it may end", || self.may_end.load(Ordering::SeqCst));
            self.inner.flush()
        }
    }

    #[test]
    fn those_that_wait_for_their_turn_share_one_flush() {
        let device = Arc::new(Slow {
            inner: Memory::new(ByteSize(1 << 20)),
            flushes: AtomicU64::new(0),
            may_end: AtomicBool::new(false),
        });
        let serializer = FlushSerializer::new(device.clone());
        let flushes = || device.flushes.load(Ordering::SeqCst);
        let calling = AtomicU64::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| serializer.flush());
            until("the first flushes", || flushes() > 0);
            for _ in 0..16 {
                scope.spawn(|| {
                    calling.fetch_add(1, Ordering::SeqCst);
                    serializer.flush()
                });
            }
            until("all call", || calling.load(Ordering::SeqCst) >= 16);
            std::thread::sleep(Duration::from_millis(100));
            device.may_end.store(true, Ordering::SeqCst);
        });
        // Two, if none of them was held up between saying that it calls and calling.
        assert!((2..8).contains(&flushes()), "{} flushes for 16 that waited", flushes());
        serializer.flush().expect("memory does not fail");
        let before = flushes();
        serializer.flush().expect("memory does not fail");
        assert_eq!(flushes(), before + 1, "nothing that was written later is left out");
    }
}
