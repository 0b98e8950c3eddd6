//! How fast copies may go: one bandwidth for all threads, waited for in short slices so that a copy can be stopped.

use std::time::{Duration, Instant};

use umbrella_units::ByteSize;

use crate::ground::locks::{RankedMutex, rank};

use super::RelocateError;

const SLICE: Duration = Duration::from_millis(20);

/// A bandwidth shared by threads: a token bucket that holds a quarter of a second.
#[derive(Debug)]
pub struct Throttle {
    state: RankedMutex<rank::Throttle, Bucket>,
}

#[derive(Debug)]
struct Bucket {
    rate: u64,
    /// Below zero: taken in advance, to be waited for.
    tokens: f64,
    filled: Instant,
}

impl Throttle {
    /// A throttle of `rate` bytes a second; zero counts as one.
    pub fn new(rate: ByteSize) -> Self {
        Throttle { state: RankedMutex::new(Bucket { rate: rate.0.max(1), tokens: 0.0, filled: Instant::now() }) }
    }

    /// Changes the bandwidth, also for waiting copies.
    pub fn set_rate(&self, rate: ByteSize) {
        let mut bucket = self.state.lock();
        bucket.fill();
        bucket.rate = rate.0.max(1);
    }

    /// Takes `bytes` and waits until they are paid for; returns early when it is `cancelled`.
    pub fn take(&self, bytes: ByteSize, cancelled: &dyn Fn() -> bool) -> Result<(), RelocateError> {
        self.state.lock().tokens -= bytes.0 as f64;
        loop {
            if cancelled() {
                return Err(RelocateError::Cancelled);
            }
            let wait = self.state.lock().fill();
            if wait.is_zero() {
                return Ok(());
            }
            std::thread::sleep(wait.min(SLICE));
        }
    }

    /// A slice small enough that a cancelled copy does not overshoot the bandwidth by much.
    pub(super) fn slice(&self) -> u64 {
        (self.state.lock().rate / 8).clamp(4096, 1 << 20)
    }
}

impl Bucket {
    fn fill(&mut self) -> Duration {
        let now = Instant::now();
        let rate = self.rate as f64;
        self.tokens = (self.tokens + now.duration_since(self.filled).as_secs_f64() * rate).min(rate / 4.0);
        self.filled = now;
        Duration::try_from_secs_f64((-self.tokens / rate).max(0.0)).unwrap_or(SLICE)
    }
}
