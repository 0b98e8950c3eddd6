//! Whether others use the disks of a move, and how long it rests for them.
//!
//! A move in the background stops reading and writing now and then, and looks at the disks:
//!
//! 1. It waits until the disks have answered all requests, so that it does not give way to its own writes.
//! 2. Whatever the disks do from then on, they do for others. While requests wait for an answer, the move rests.
//! 3. It goes on when the disks are idle for a moment, or after [`MOST_TICKS`]: on a disk that is always busy, a move
//!    still has a quarter of the time.
//!
//! Source of the figures: `/sys/block/*/stat`.

use std::time::Duration;

use crate::disk::devices::DiskLoad;

/// How long a move reads and writes between two looks.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// How long the disks are watched at a time.
pub(super) const TICK: Duration = Duration::from_millis(10);
/// Most ticks of a rest: three times [`CHECK_INTERVAL`].
pub(super) const MOST_TICKS: u32 = 150;
/// Requests that waited together for less than this in a tick are no load.
const LOAD: Duration = Duration::from_millis(2);

/// What a look has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DiskUse {
    /// No other program uses the disks.
    Idle,
    /// The move has rested for others.
    Busy,
}

/// Rests while others use the disks. `look`: what the disks are doing; `tick` waits, and ends the rest by returning
/// false.
pub(super) fn rest(look: impl Fn() -> Vec<DiskLoad>, mut tick: impl FnMut() -> bool) -> DiskUse {
    let mut ticks = 0..MOST_TICKS;
    let mut goes_on = || ticks.next().is_some() && tick();
    let mut before = look();
    while before.iter().any(|load| load.in_flight > 0) {
        if !goes_on() {
            return DiskUse::Busy;
        }
        before = look();
    }
    let mut found = DiskUse::Idle;
    while goes_on() {
        let now = look();
        if !are_used(&before, &now) {
            break;
        }
        (found, before) = (DiskUse::Busy, now);
    }
    found
}

fn are_used(before: &[DiskLoad], now: &[DiskLoad]) -> bool {
    let is_used = |(before, now): (&DiskLoad, &DiskLoad)| {
        now.in_flight > 0 || now.in_queue.saturating_sub(before.in_queue) >= LOAD
    };
    before.iter().zip(now).any(is_used)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Rests beside disks that do what `load` says at each tick; how many ticks it rested.
    fn rested(load: impl Fn(u32) -> Vec<(u64, u64)>) -> (DiskUse, u32) {
        let ticks = Cell::new(0);
        let loads = |tick: u32| -> Vec<DiskLoad> {
            let of_disk = |(in_flight, ms): (u64, u64)| DiskLoad { in_flight, in_queue: Duration::from_millis(ms) };
            load(tick).into_iter().map(of_disk).collect()
        };
        let found = rest(
            || loads(ticks.get()),
            || {
                ticks.set(ticks.get() + 1);
                true
            },
        );
        (found, ticks.get())
    }

    #[test]
    fn beside_idle_disks_a_move_goes_on_after_one_look() {
        assert_eq!(rested(|_| vec![(0, 4000), (0, 7)]), (DiskUse::Idle, 1));
        assert_eq!(rested(|_| Vec::new()), (DiskUse::Idle, 1), "disks that do not say what they do");
    }

    #[test]
    fn a_move_does_not_give_way_to_its_own_writes() {
        // They are answered in the first five ticks, and count then.
        let own = |tick: u32| vec![(5_u64.saturating_sub(u64::from(tick)), u64::from(tick.min(5)) * 100)];
        assert_eq!(rested(own), (DiskUse::Idle, 6));
    }

    #[test]
    fn a_move_rests_while_others_wait_for_one_of_its_disks() {
        // Requests that are answered between two looks, for twenty ticks.
        let quick = |tick: u32| vec![(0, 0), (0, u64::from(tick.min(20)) * 5)];
        assert_eq!(rested(quick), (DiskUse::Busy, 21));
        // One that hangs on from look to look.
        let slow = |tick: u32| vec![(u64::from((1..30).contains(&tick)), 0)];
        assert_eq!(rested(slow), (DiskUse::Busy, 30));
    }

    #[test]
    fn a_request_now_and_then_holds_no_move_up() {
        assert_eq!(rested(|tick| vec![(0, u64::from(tick))]), (DiskUse::Idle, 1));
    }

    #[test]
    fn on_disks_that_are_always_busy_a_move_goes_on_after_its_longest_rest() {
        assert_eq!(rested(|_| vec![(1, 0)]), (DiskUse::Busy, MOST_TICKS));
        assert_eq!(rested(|tick| vec![(0, u64::from(tick) * 10)]), (DiskUse::Busy, MOST_TICKS));
        assert_eq!(TICK * MOST_TICKS, CHECK_INTERVAL * 3, "a quarter of the time is left for the move");
    }

    #[test]
    fn a_rest_ends_when_the_pool_does() {
        let busy = || vec![DiskLoad { in_flight: 1, in_queue: Duration::ZERO }];
        assert_eq!(rest(busy, || false), DiskUse::Busy);
    }
}
