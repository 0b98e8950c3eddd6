//! Choices that depend on a seed alone, so that every failure can be repeated.

use umbrella_units::SplitMix64;

/// A seeded source of choices.
#[derive(Debug, Clone)]
pub struct Choices(SplitMix64);

impl Choices {
    /// The same seed gives the same choices.
    pub fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    pub fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0.below(end)
    }

    /// True once in `n` times.
    pub fn once_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// One of these.
    pub fn pick<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.0.index(choices.len())].clone()
    }
}
