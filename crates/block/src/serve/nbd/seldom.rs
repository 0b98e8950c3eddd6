//! Lines of the log that clients could have written as often as they like: the first, then one in ten seconds that
//! counts the others.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

const EVERY: Duration = Duration::from_secs(10);

/// One kind of line.
#[derive(Debug, Default)]
pub(super) struct RateLimit(Mutex<Last>);

#[derive(Debug, Default)]
struct Last {
    told: Option<Instant>,
    untold: u64,
}

impl RateLimit {
    /// Whether to write it now, and how many were not written since the last.
    pub(super) fn tell(&self) -> Option<u64> {
        self.0.lock().tell(Instant::now())
    }
}

impl Last {
    fn tell(&mut self, now: Instant) -> Option<u64> {
        if self.told.is_some_and(|told| now.saturating_duration_since(told) < EVERY) {
            self.untold += 1;
            return None;
        }
        self.told = Some(now);
        Some(std::mem::take(&mut self.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_told_and_then_one_in_ten_seconds_with_the_number_of_the_others() {
        let (begin, mut last) = (Instant::now(), Last::default());
        let told: Vec<_> = (0..25).map(|second| last.tell(begin + Duration::from_secs(second))).collect();
        let wanted: Vec<_> =
            (0..25).map(|second| (second % 10 == 0).then_some(if second == 0 { 0 } else { 9 })).collect();
        assert_eq!(told, wanted);
    }
}
