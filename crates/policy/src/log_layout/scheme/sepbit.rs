//! SepBIT: blocks are kept apart by when they will probably be invalid. A block that the user writes will live about as
//! long as the version that it replaces did; one that the cleaner moves, the longer the older it is already.
//!
//! - ℓ: the mean life of the last 16 reclaimed segments of class 1, in blocks that the user wrote; endless before.
//! - The user's writes: class 1 if what they replace lived less than ℓ, else class 2.
//! - The cleaner's: class 3 what comes from class 1; classes 4, 5 and 6 what is younger than 4ℓ, younger than 16ℓ, and
//!   older.
//!
//! Stream = 6 - class, so that streams go from cold to hot.
//!
//! Source: Wang et al., "Separating Data via Block Invalidation Time Inference for Write Amplification Reduction in
//! Log-Structured Storage", FAST 2022, section 3, algorithm 1.

use super::{Copied, Reclaimed, Scheme, SchemeInfo, Written};
use crate::log_layout::ids::Stream;

pub(super) const INFO: SchemeInfo = SchemeInfo {
    name: "sepbit",
    help: "six classes by when a block will probably be invalid, inferred from how long the version before it lived",
    source: "SepBIT, FAST 2022",
    params: &[],
    make: |_| Box::new(SepBit { lifespan: u64::MAX, sum: 0, reclaimed: 0 }),
};

const CLASSES: u8 = 6;
const SHORT_LIVED: Stream = Stream(CLASSES - 1);
const LONG_LIVED: Stream = Stream(CLASSES - 2);
const SURVIVORS: Stream = Stream(CLASSES - 3);
/// Segments over which a lifespan is averaged.
const WINDOW: u64 = 16;

#[derive(Debug)]
struct SepBit {
    /// ℓ.
    lifespan: u64,
    /// Lifespans of the segments reclaimed since it was last set, and how many they are.
    sum: u64,
    reclaimed: u64,
}

impl Scheme for SepBit {
    fn streams(&self) -> u8 {
        CLASSES
    }

    fn written(&mut self, write: &Written) -> Stream {
        let short = write.old.is_some_and(|old| write.now.since(old.written) < self.lifespan);
        if short { SHORT_LIVED } else { LONG_LIVED }
    }

    fn copied(&mut self, copy: &Copied) -> Stream {
        if copy.from == SHORT_LIVED {
            return SURVIVORS;
        }
        match copy.now.since(copy.written) {
            age if age < self.lifespan.saturating_mul(4) => Stream(2),
            age if age < self.lifespan.saturating_mul(16) => Stream(1),
            _ => Stream(0),
        }
    }

    fn reclaimed(&mut self, segment: &Reclaimed) {
        if segment.stream != SHORT_LIVED {
            return;
        }
        self.sum = self.sum.saturating_add(segment.now.since(segment.opened));
        self.reclaimed += 1;
        if self.reclaimed == WINDOW {
            self.lifespan = self.sum / WINDOW;
            self.sum = 0;
            self.reclaimed = 0;
        }
    }
}
