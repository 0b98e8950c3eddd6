//! How fast copies may go: one bandwidth for all threads, waited for in short slices so that a copy can be stopped.

use std::time::{Duration, Instant};

use umbrella_units::ByteSize;

use crate::ground::locks::{RankedMutex, rank};

use super::RelocateError;

const SLICE: Duration = Duration::from_millis(20);

/// A bandwidth shared by threads: a token bucket that holds a quarter of a second.
#[derive(Debug)]
pub struct Throttle {
    /// Bytes a second.
    rate: u64,
    state: RankedMutex<rank::Throttle, Bucket>,
}

#[derive(Debug)]
struct Bucket {
    /// Below zero: taken in advance, to be waited for.
    tokens: f64,
    filled: Instant,
}

impl Throttle {
    /// A throttle of `rate` bytes a second; zero counts as one.
    pub fn new(rate: ByteSize) -> Self {
        let bucket = Bucket { tokens: 0.0, filled: Instant::now() };
        Throttle { rate: rate.0.max(1), state: RankedMutex::new(bucket) }
    }

    /// Takes `bytes` and waits until they are paid for; returns early when it is `cancelled`.
    pub fn take(&self, bytes: ByteSize, cancelled: &dyn Fn() -> bool) -> Result<(), RelocateError> {
        self.state.lock().tokens -= bytes.0 as f64;
        loop {
            if cancelled() {
                return Err(RelocateError::Cancelled);
            }
            let wait = self.state.lock().fill(self.rate as f64);
            if wait.is_zero() {
                return Ok(());
            }
            std::thread::sleep(wait.min(SLICE));
        }
    }

    /// A slice small enough that a cancelled copy does not overshoot the bandwidth by much.
    pub(super) fn slice(&self) -> u64 {
        (self.rate / 8).clamp(4096, 1 << 20)
    }
}

impl Bucket {
    /// Adds what has come in since the last call; returns how long the rest takes.
    fn fill(&mut self, rate: f64) -> Duration {
        let now = Instant::now();
        self.tokens = (self.tokens + now.duration_since(self.filled).as_secs_f64() * rate).min(rate / 4.0);
        self.filled = now;
        Duration::try_from_secs_f64((-self.tokens / rate).max(0.0)).unwrap_or(SLICE)
    }
}
