//! Which chunks were abandoned after a crash: a later epoch began with the same number or a lower one.
//!
//! Keeps only the epochs below which no later one goes, at most [`MOST`] of them. Beyond that every second is dropped,
//! and a chunk that was abandoned may pass for one that counts.

use std::collections::BTreeMap;

use super::format::{CheckpointNo, Sequence};
use super::headers::Order;

/// Epochs that are remembered: 40 MiB.
const MOST: usize = if cfg!(test) { 4 } else { 1 << 20 };

/// By epoch, the lowest number of its chunks; both rise.
#[derive(Debug, Default)]
pub(super) struct Timelines {
    lowest: BTreeMap<CheckpointNo, Sequence>,
}

impl Timelines {
    /// Takes in a chunk.
    pub(super) fn note(&mut self, (epoch, number): Order) {
        if self.lowest.range(epoch..).next().is_some_and(|(_, lowest)| *lowest <= number) {
            return;
        }
        while let Some((&earlier, _)) = self.lowest.range(..=epoch).next_back().filter(|(_, lowest)| **lowest >= number)
        {
            self.lowest.remove(&earlier);
        }
        self.lowest.insert(epoch, number);
        if self.lowest.len() > MOST {
            let mut nth = 0;
            self.lowest.retain(|_, _| {
                nth += 1;
                nth % 2 == 1
            });
        }
    }

    /// Whether a chunk was abandoned.
    pub(super) fn abandoned(&self, (epoch, number): Order) -> bool {
        self.lowest.range(epoch.next()..).next().is_some_and(|(_, lowest)| *lowest <= number)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_chunk_is_abandoned_where_a_later_epoch_has_its_number_or_a_lower_one(
            chunks in prop::collection::vec((0_u64..8, 0_u64..20), 0..40),
        ) {
            let chunks: Vec<Order> = chunks.into_iter().map(|(epoch, number)| (CheckpointNo(epoch), Sequence(number))).collect();
            let mut timelines = Timelines::default();
            let mut most = 0;
            for chunk in &chunks {
                timelines.note(*chunk);
                most = most.max(timelines.lowest.len());
            }
            prop_assert!(most <= MOST);
            for (epoch, number) in &chunks {
                let wanted = chunks.iter().any(|(later, lowest)| later > epoch && lowest <= number);
                let said = timelines.abandoned((*epoch, *number));
                prop_assert!(wanted || !said, "{epoch:?} {number:?}");
                prop_assert!(said || !wanted || most == MOST, "{epoch:?} {number:?}");
            }
        }
    }
}
