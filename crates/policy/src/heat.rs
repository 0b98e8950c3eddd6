//! The heat of a file: how often it was opened recently. An open counts one, half a half-life later, and so on. Bytes
//! that were read or written count as well, where they are seen: as many as the file has count as one open. So heat is
//! what a fast disk gains by a file, for the room that the file takes there. (Spectrum Scale's `FILE_HEAT` counts bytes
//! in the same way, and no opens.)
//!
//! Heat is one small value with its time, so nothing runs to let files cool: a reader gets the value as it has become
//! by then. The order of two files never changes by waiting.
//!
//! Clocks may be set. A time before that of the value counts as the same time, and the next open takes over the new
//! time. So a leap into the future cools files too early, and none stays hot for ever.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use umbrella_units::{ByteSize, Timestamp};

/// Bytes are counted in portions of this size.
pub const COUNTED_BYTES: ByteSize = ByteSize(64 << 20);

/// Opens, of which older ones count less, in millionths.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Opens(pub u64);

impl Opens {
    /// One open, just now.
    pub const ONE: Opens = Opens(1_000_000);
    /// More is not counted.
    pub const MAX: Opens = Opens(1_000_000_000 * Opens::ONE.0);

    /// Bytes of a file of this size: one for as many as it has. A smaller file counts as one of [`COUNTED_BYTES`], for
    /// its open stands for its bytes.
    pub fn of_bytes(bytes: ByteSize, size: ByteSize) -> Opens {
        let share = u128::from(bytes.0) * u128::from(Opens::ONE.0) / u128::from(size.0.max(COUNTED_BYTES.0));
        Opens(u64::try_from(share).unwrap_or(u64::MAX)).min(Opens::MAX)
    }

    /// For people: two decimals.
    #[must_use]
    pub fn rounded(self) -> Opens {
        Opens(self.0.saturating_add(5_000) / 10_000 * 10_000)
    }

    /// Both together.
    #[must_use]
    pub fn plus(self, other: Opens) -> Opens {
        Opens(self.0.saturating_add(other.0)).min(Opens::MAX)
    }
}

impl fmt::Display for Opens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, part) = (self.0 / Opens::ONE.0, self.0 % Opens::ONE.0);
        if part == 0 {
            write!(f, "{whole}")
        } else {
            write!(f, "{whole}.{}", format!("{part:06}").trim_end_matches('0'))
        }
    }
}

/// Not a number of opens.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a number of opens: write it like `5` or `0.5`, with at most six decimals")]
pub struct OpensError {
    text: String,
}

impl FromStr for Opens {
    type Err = OpensError;

    fn from_str(text: &str) -> Result<Opens, OpensError> {
        let error = || OpensError { text: text.to_owned() };
        let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(whole) || !digits(part) || part.len() > 6 {
            return Err(error());
        }
        let whole: u64 = whole.parse().map_err(|_| error())?;
        let part: u64 = format!("{part:0<6}").parse().map_err(|_| error())?;
        let opens = whole.checked_mul(Opens::ONE.0).and_then(|whole| whole.checked_add(part)).map(Opens);
        opens.filter(|opens| *opens <= Opens::MAX).ok_or_else(error)
    }
}

/// The heat of a file, at a time: eight bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Heat {
    /// Opens; never negative, never more than [`Opens::MAX`].
    value: f32,
    /// Seconds since 1970.
    at: u32,
}

impl Heat {
    /// As it was stored. What is no number, or too much, is mended.
    pub fn from_parts(value: f32, at: u32) -> Heat {
        let most = Opens::MAX.0 as f32 / Opens::ONE.0 as f32;
        Heat { value: if value > 0.0 { value.min(most) } else { 0.0 }, at }
    }

    /// To store it.
    pub fn parts(self) -> (f32, u32) {
        (self.value, self.at)
    }

    /// After one more open.
    #[must_use]
    pub fn opened(self, now: Timestamp, half_life: Duration) -> Heat {
        self.used(Opens::ONE, now, half_life)
    }

    /// After a use that counts as `by` opens.
    #[must_use]
    pub fn used(self, by: Opens, now: Timestamp, half_life: Duration) -> Heat {
        let now = seconds(now);
        let by = by.0 as f32 / Opens::ONE.0 as f32;
        Heat::from_parts(self.value_at(now, half_life) + by, now)
    }

    /// At least so warm from now on.
    #[must_use]
    pub fn raised(self, to: Opens, now: Timestamp, half_life: Duration) -> Heat {
        let now = seconds(now);
        let to = to.0 as f32 / Opens::ONE.0 as f32;
        Heat::from_parts(self.value_at(now, half_life).max(to), now)
    }

    /// How warm it is by then.
    pub fn opens(self, now: Timestamp, half_life: Duration) -> Opens {
        Opens((f64::from(self.value_at(seconds(now), half_life)) * Opens::ONE.0 as f64) as u64)
    }

    /// The later one of two of one file.
    #[must_use]
    pub fn later(self, other: Heat) -> Heat {
        if (other.at, other.value) > (self.at, self.value) { other } else { self }
    }

    fn value_at(self, now: u32, half_life: Duration) -> f32 {
        let age = f64::from(now.saturating_sub(self.at));
        if age == 0.0 {
            return self.value;
        }
        (f64::from(self.value) * libm::exp2(-age / half_life.as_secs_f64())) as f32
    }
}

/// Bytes that were moved because of heat, as they count against what may be moved in a day: they are forgiven evenly
/// over the day.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spending {
    bytes: u64,
    at: u32,
}

impl Spending {
    /// As it was stored: bytes, and seconds since 1970.
    pub fn from_parts(bytes: u64, at: u32) -> Spending {
        Spending { bytes, at }
    }

    /// To store it.
    pub fn parts(self) -> (u64, u32) {
        (self.bytes, self.at)
    }

    /// Whether more may be moved. What is larger than a whole day's bytes moves too, when the day begins.
    pub fn allows(self, now: Timestamp, a_day: ByteSize) -> bool {
        self.counted(seconds(now), a_day) < a_day.0
    }

    /// After a move.
    #[must_use]
    pub fn spent(self, bytes: ByteSize, now: Timestamp, a_day: ByteSize) -> Spending {
        let now = seconds(now);
        Spending { bytes: self.counted(now, a_day).saturating_add(bytes.0), at: now }
    }

    /// The later one of two.
    #[must_use]
    pub fn later(self, other: Spending) -> Spending {
        if (other.at, other.bytes) > (self.at, self.bytes) { other } else { self }
    }

    fn counted(self, now: u32, a_day: ByteSize) -> u64 {
        let forgiven = u128::from(a_day.0) * u128::from(now.saturating_sub(self.at)) / (24 * 3600);
        self.bytes.saturating_sub(u64::try_from(forgiven).unwrap_or(u64::MAX))
    }
}

/// Seconds since 1970, as far as they fit.
fn seconds(time: Timestamp) -> u32 {
    u32::try_from(time.secs.max(0)).unwrap_or(u32::MAX)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::float_cmp, reason = "tests")]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);

    fn at(secs: i64) -> Timestamp {
        Timestamp { secs, nanos: 0 }
    }

    #[test]
    fn an_open_counts_half_after_a_half_life() {
        let heat = Heat::default().opened(at(1000), WEEK);
        let after = |secs| heat.opens(at(1000 + secs), WEEK);
        let week = WEEK.as_secs() as i64;
        assert_eq!((after(0), after(week), after(2 * week)), (Opens::ONE, Opens(500_000), Opens(250_000)));
        let twice = heat.opened(at(1000 + week), WEEK);
        assert_eq!(twice.opens(at(1000 + week), WEEK), Opens(1_500_000));
    }

    #[test]
    fn bytes_count_by_their_share_of_the_file() {
        let (portion, gib) = (COUNTED_BYTES, 1 << 30);
        assert_eq!(Opens::of_bytes(portion, ByteSize(gib)), Opens(Opens::ONE.0 / 16));
        assert_eq!(Opens::of_bytes(ByteSize(2 * gib), ByteSize(gib)), Opens(2 * Opens::ONE.0));
        for small in [0, 1, 1 << 20, COUNTED_BYTES.0] {
            assert_eq!(Opens::of_bytes(portion, ByteSize(small)), Opens::ONE);
        }
        assert!(Opens::of_bytes(ByteSize(u64::MAX), ByteSize(0)) <= Opens::MAX);
        let heat = Heat::default().opened(at(1000), WEEK).used(Opens(500_000), at(1000), WEEK);
        assert_eq!(heat.opens(at(1000), WEEK), Opens(1_500_000));
    }

    #[test]
    fn a_clock_that_was_set_back_is_believed_from_the_next_open_on() {
        let ahead = Heat::default().opened(at(i64::from(u32::MAX)), WEEK);
        assert_eq!(ahead.opens(at(1000), WEEK), Opens::ONE);
        let back = ahead.opened(at(1000), WEEK);
        assert_eq!(back.opens(at(1000 + WEEK.as_secs() as i64), WEEK), Opens::ONE);
    }

    #[test]
    fn opens_are_written_as_they_are_read() {
        for text in ["0", "5", "0.5", "12.000001", "1000000000"] {
            assert_eq!(text.parse::<Opens>().unwrap().to_string(), text);
        }
        for text in ["", ".5", "5.", "-1", "1e3", "5 opens", "0.0000001", "1000000001", "99999999999999999999", "1.5.1"]
        {
            assert!(text.parse::<Opens>().is_err(), "{text}");
        }
        assert_eq!(Opens(1_234_567).rounded().to_string(), "1.23");
    }

    #[test]
    fn what_was_moved_is_forgiven_in_a_day() {
        let a_day = ByteSize(1000);
        let spent = Spending::default().spent(ByteSize(1500), at(0), a_day);
        assert!(!spent.allows(at(0), a_day) && !spent.allows(at(43_199), a_day) && spent.allows(at(43_300), a_day));
        let more = spent.spent(ByteSize(500), at(43_200), a_day);
        assert_eq!(more.counted(43_200, a_day), 1500);
        assert!(!Spending::default().allows(at(0), ByteSize(0)), "0 a day: nothing moves");
    }

    fn some_heat() -> impl Strategy<Value = Heat> {
        (any::<f32>(), any::<u32>()).prop_map(|(value, at)| Heat::from_parts(value, at))
    }

    proptest! {
        #[test]
        fn heat_falls_and_never_below_nothing(heat in some_heat(), now in any::<u32>(), later in any::<u32>(), half in 1u64..=u64::MAX) {
            let (half, soon, late) = (Duration::from_secs(half), at(now.min(later).into()), at(now.max(later).into()));
            prop_assert!(heat.opens(late, half) <= heat.opens(soon, half));
            prop_assert!(heat.opens(soon, half) <= Opens::MAX);
        }

        #[test]
        fn waiting_never_changes_the_order(a in some_heat(), b in some_heat(), wait in any::<u32>()) {
            let both = a.at.max(b.at);
            let order = |now: u32| (a.value_at(now, WEEK), b.value_at(now, WEEK));
            let (now, then) = (order(both), order(both.saturating_add(wait)));
            // The same within what rounding does.
            if now.0 > now.1 * 1.0001 {
                prop_assert!(then.0 >= then.1, "{now:?} {then:?}");
            }
        }

        #[test]
        fn any_clock_gives_numbers_in_bounds(start in some_heat(), times in prop::collection::vec(any::<i64>(), 1..50), half in any::<u64>(), raise in any::<u64>()) {
            let half = Duration::from_secs(half);
            let mut heat = start;
            for now in times {
                heat = heat.opened(at(now), half).raised(Opens(raise), at(now), half);
                prop_assert!(heat.value.is_finite() && heat.value >= 1.0);
                prop_assert!(heat.opens(at(now), half) <= Opens::MAX);
                prop_assert!(heat.opens(at(now), half) >= Opens::ONE);
            }
        }

        #[test]
        fn as_many_opens_at_once_are_as_warm(count in 1usize..2000, now in any::<u32>()) {
            let heat = (0..count).fold(Heat::default(), |heat, _| heat.opened(at(now.into()), WEEK));
            prop_assert_eq!(heat.opens(at(now.into()), WEEK), Opens(count as u64 * Opens::ONE.0));
        }

        #[test]
        fn no_more_moves_in_a_day_than_its_bytes_and_one_file(moves in prop::collection::vec((0i64..600, 0u64..300), 1..300)) {
            let (a_day, mut now, mut spending, mut moved) = (ByteSize(1000), 0, Spending::default(), Vec::new());
            for (wait, bytes) in moves {
                now += wait;
                if spending.allows(at(now), a_day) {
                    spending = spending.spent(ByteSize(bytes), at(now), a_day);
                    moved.push((now, bytes));
                }
            }
            for (start, _) in &moved {
                let day = moved.iter().filter(|(at, _)| (*start..*start + 86_400).contains(at));
                // What was not used before, and what comes free meanwhile.
                prop_assert!(day.map(|(_, bytes)| bytes).sum::<u64>() <= 2 * a_day.0 + 2 * 300);
            }
        }
    }
}
