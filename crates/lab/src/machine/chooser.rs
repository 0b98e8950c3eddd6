//! Chooses the pages that the thresholds demand. The policy chooses, or for throttled writers another one, if
//! configured.
//!
//! In Linux 2.6.12 the background thread goes through `background_writeout()`, a throttled writer through
//! `balance_dirty_pages()` (mm/page-writeback.c). TESA (III-C) changes the one and leaves the other as it was. So while
//! writers are throttled, each of them writes a batch in turn with the background thread, in the kernel's own order.

use umbrella_policy::writeback::{DirtyPage, Event, Needs, WriteBack};
use umbrella_units::{Nanos, Pages};

/// The policy, and the one for throttled writers if they do not use it. Both know the same pages.
#[derive(Debug)]
pub(super) struct Chooser {
    policy: WriteBack,
    writers: Option<WriteBack>,
    turn: usize,
}

impl Chooser {
    /// Throttled writers ask the policy as well.
    pub(super) fn of_all(policy: WriteBack) -> Chooser {
        Chooser { policy, writers: None, turn: 0 }
    }

    /// Throttled writers write by another policy.
    #[must_use]
    pub(super) fn with_writers(self, writers: WriteBack) -> Chooser {
        Chooser { writers: Some(writers), ..self }
    }

    pub(super) fn on(&mut self, now: Nanos, event: Event) {
        self.policy.on(now, event);
        if let Some(writers) = &mut self.writers {
            writers.on(now, event);
        }
    }

    /// Chooses pages while `throttled` writers are throttled.
    pub(super) fn select(&mut self, now: Nanos, want: Pages, throttled: usize, out: &mut Vec<DirtyPage>) {
        let Some(writers) = &mut self.writers else { return self.policy.select(now, want, out) };
        let turn = self.turn % (throttled + 1);
        self.turn = turn + 1;
        let before = out.len();
        // Where the policy may choose nothing, because all is in use, a writer still may.
        for by_writer in [turn > 0, throttled > 0] {
            let (chooses, other) =
                if by_writer { (&mut *writers, &mut self.policy) } else { (&mut self.policy, &mut *writers) };
            chooses.select(now, want, out);
            for chosen in out.iter().skip(before) {
                other.on(now, Event::Clean { page: chosen.page });
            }
            if out.len() > before {
                return;
            }
        }
    }

    /// What the policy needs.
    pub(super) fn needs(&self) -> Needs {
        self.policy.needs()
    }

    /// Whether only pages that are not in use are chosen.
    pub(super) fn spares_active(&self) -> bool {
        self.writers.is_none() && self.policy.needs().inactive_only
    }

    pub(super) fn policy(&self) -> &WriteBack {
        &self.policy
    }
}

#[cfg(test)]
mod tests {
    use umbrella_units::{BlockNo, PageKey};

    use super::*;

    /// The policy `recency`, beside writers that write by file; the last page of the file was written first.
    fn chooser(active: bool) -> Chooser {
        let parse = |name| WriteBack::parse(name).expect("a policy");
        let mut chooser = Chooser::of_all(parse("recency")).with_writers(parse("file"));
        for block in [3, 2, 1, 0].map(BlockNo) {
            chooser.on(Nanos(0), Event::Dirty { page: PageKey::device(block), block, active });
        }
        chooser
    }

    fn choose(chooser: &mut Chooser, throttled: usize) -> Vec<u64> {
        let mut chosen = Vec::new();
        chooser.select(Nanos(0), Pages(1), throttled, &mut chosen);
        chosen.iter().map(|page| page.block.0).collect()
    }

    #[test]
    fn throttled_writers_take_turns_with_the_background_thread_and_choose_in_their_own_order() {
        let mut one_writer = chooser(false);
        let chosen: Vec<u64> = (0..4).flat_map(|_| choose(&mut one_writer, 1)).collect();
        assert_eq!(chosen, [3, 0, 2, 1]);
        assert_eq!(choose(&mut one_writer, 1), [0; 0]);
        assert_eq!(one_writer.policy().dirty(), Pages(0));
    }

    #[test]
    fn without_throttled_writers_the_policy_alone_chooses() {
        let mut nobody_waits = chooser(false);
        let chosen: Vec<u64> = (0..4).flat_map(|_| choose(&mut nobody_waits, 0)).collect();
        assert_eq!(chosen, [3, 2, 1, 0]);
    }

    #[test]
    fn what_the_policy_spares_is_written_by_throttled_writers() {
        let mut all_in_use = chooser(true);
        assert_eq!(choose(&mut all_in_use, 0), [0; 0]);
        assert_eq!([choose(&mut all_in_use, 2), choose(&mut all_in_use, 2)].concat(), [0, 1]);
    }
}
