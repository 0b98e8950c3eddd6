//! When all that is dirty has to go, however little it is: before it is so old that the kernel writes it by itself,
//! file by file.
//!
//! The oldest dirty page is as old as the last moment at which nothing was dirty, or at which all that was older had
//! gone. When that is half as long ago as the kernel lets dirty pages wait, a round begins: as many pages are chosen as
//! were dirty then. Which ones, the policy says; what it leaves for newer pages has its turn in the next round, or is
//! left to the kernel.

use umbrella_units::{Nanos, Pages};

/// See the module.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Round {
    /// Nothing that is dirty was dirty before.
    since: Option<Nanos>,
    began: Nanos,
    /// Still to be chosen.
    remaining: Pages,
}

impl Round {
    /// Whether something has to go now. `age`: how old it may become.
    pub(crate) fn is_due(&mut self, now: Nanos, dirty: Pages, age: Nanos) -> bool {
        if dirty == Pages(0) {
            *self = Round::default();
            return false;
        }
        let since = *self.since.get_or_insert(now);
        if self.remaining == Pages(0) && now.since(since) >= age {
            (self.began, self.remaining) = (now, dirty);
        }
        self.remaining = self.remaining.min(dirty);
        self.remaining.0 > 0
    }

    /// Counts `pages` chosen pages.
    pub(crate) fn chose(&mut self, pages: Pages) {
        if self.remaining.0 > 0 {
            self.remaining.0 = self.remaining.0.saturating_sub(pages.0);
            if self.remaining.0 == 0 {
                self.since = Some(self.began);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGE: Nanos = Nanos(100);

    #[test]
    fn what_was_dirty_when_it_got_too_old_goes_and_what_came_meanwhile_has_its_time() {
        let mut round = Round::default();
        assert!(!round.is_due(Nanos(5), Pages(3), AGE), "just dirty");
        assert!(!round.is_due(Nanos(104), Pages(10), AGE));
        assert!(round.is_due(Nanos(105), Pages(10), AGE));
        round.chose(Pages(4));
        assert!(round.is_due(Nanos(110), Pages(8), AGE), "two were written meanwhile");
        round.chose(Pages(6));
        assert!(!round.is_due(Nanos(120), Pages(2), AGE));
        assert!(!round.is_due(Nanos(204), Pages(2), AGE));
        assert!(round.is_due(Nanos(205), Pages(2), AGE), "dirty since 105 at the earliest");
    }

    #[test]
    fn what_others_cleaned_no_longer_remains() {
        let mut round = Round::default();
        round.is_due(Nanos(0), Pages(50), AGE);
        assert!(round.is_due(Nanos(100), Pages(50), AGE));
        assert!(round.is_due(Nanos(101), Pages(7), AGE));
        round.chose(Pages(7));
        assert!(!round.is_due(Nanos(102), Pages(1), AGE));
    }

    #[test]
    fn age_counts_from_where_nothing_was_dirty() {
        let mut round = Round::default();
        round.is_due(Nanos(0), Pages(1), AGE);
        assert!(!round.is_due(Nanos(99), Pages(0), AGE));
        assert!(!round.is_due(Nanos(100), Pages(1), AGE));
        assert!(round.is_due(Nanos(200), Pages(1), AGE));
    }

    #[test]
    fn a_kernel_that_lets_pages_wait_for_ever_is_not_anticipated() {
        let mut round = Round::default();
        round.is_due(Nanos(0), Pages(1), AGE);
        assert!(!round.is_due(Nanos(1000), Pages(1), Nanos::NEVER));
        assert!(round.is_due(Nanos(1001), Pages(1), AGE), "it looks again");
    }
}
