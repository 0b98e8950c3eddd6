//! A rate limit for log lines that clients can cause as often as they like. The first line is written, then one in ten
//! seconds, with the count of the suppressed ones.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

const EVERY: Duration = Duration::from_secs(10);

/// The limit for one kind of line.
#[derive(Debug, Default)]
pub(super) struct RateLimit(Mutex<Last>);

#[derive(Debug, Default)]
struct Last {
    reported: Option<Instant>,
    suppressed: u64,
}

impl RateLimit {
    /// Whether to write a line now: the count of lines suppressed since the last one, or `None` to suppress this one.
    pub(super) fn admit_report(&self) -> Option<u64> {
        self.0.lock().admit_report(Instant::now())
    }
}

impl Last {
    fn admit_report(&mut self, now: Instant) -> Option<u64> {
        if self.reported.is_some_and(|reported| now.saturating_duration_since(reported) < EVERY) {
            self.suppressed += 1;
            return None;
        }
        self.reported = Some(now);
        Some(std::mem::take(&mut self.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_logged_and_then_one_in_ten_seconds_with_the_number_of_the_others() {
        let (begin, mut last) = (Instant::now(), Last::default());
        let reported: Vec<_> = (0..25).map(|second| last.admit_report(begin + Duration::from_secs(second))).collect();
        let wanted: Vec<_> =
            (0..25).map(|second| (second % 10 == 0).then_some(if second == 0 { 0 } else { 9 })).collect();
        assert_eq!(reported, wanted);
    }
}
