//! Chance: one stream of numbers per client, the same on every machine and for every version of this program.
//!
//! The generator is ChaCha8, whose output is defined by its key and stream number. It is not the `SplitMix64` of the
//! other crates, because the golden hashes of the workloads in the repository depend on its numbers. Ranges and
//! distributions are computed here, with arithmetic that does not depend on the platform's C library.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// The seed of a run. Two runs of a workload with one seed ask for the same, step by step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Seed(pub u64);

/// A stream of chance.
#[derive(Debug, Clone)]
pub(crate) struct Rng(ChaCha8Rng);

impl Rng {
    /// The stream of this number for a workload of this name: every client has its own, so that what one draws does not
    /// depend on when another one does.
    pub(crate) fn new(seed: Seed, workload: &str, stream: u64) -> Rng {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&seed.0.to_le_bytes());
        for (slot, byte) in key[8..].iter_mut().zip(workload.bytes()) {
            *slot = byte;
        }
        let mut rng = ChaCha8Rng::from_seed(key);
        rng.set_stream(stream);
        Rng(rng)
    }

    /// Any number below `end`, all equally likely; zero when `end` is.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.0.next_u64()) * u128::from(end)) >> 64) as u64
    }

    /// Any place of a list of that length.
    pub(crate) fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// From 0 to just below 1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Whether something of this probability happens.
    pub(crate) fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// A sample of the normal distribution with mean 0 and deviation 1 (Marsaglia's polar method).
    fn normal(&mut self) -> f64 {
        loop {
            let (x, y) = (2.0 * self.unit() - 1.0, 2.0 * self.unit() - 1.0);
            let square = x * x + y * y;
            if square > 0.0 && square < 1.0 {
                return x * (-2.0 * libm::log(square) / square).sqrt();
            }
        }
    }

    /// A sample of the lognormal distribution with this mean; `sigma` is the deviation of the logarithm.
    pub(crate) fn lognormal(&mut self, mean: f64, sigma: f64) -> f64 {
        mean * libm::exp(sigma * self.normal() - sigma * sigma / 2.0)
    }

    /// A sample of the gamma distribution with this mean and shape, at least 1 (Marsaglia and Tsang 2000).
    pub(super) fn gamma(&mut self, mean: f64, shape: f64) -> f64 {
        let base = shape - 1.0 / 3.0;
        loop {
            let normal = self.normal();
            let root = 1.0 + normal / (9.0 * base).sqrt();
            if root <= 0.0 {
                continue;
            }
            let cube = root * root * root;
            let chance = 1.0 - self.unit();
            if libm::log(chance) < 0.5 * normal * normal + base - base * cube + base * libm::log(cube) {
                return base * cube * mean / shape;
            }
        }
    }
}

/// The Zipf distribution over `0..n`: rank `r` is drawn in proportion to `1 / (r + 1)^theta`.
///
/// Cost: 8 bytes a rank, O(log n) a draw.
#[derive(Debug, Clone)]
pub(crate) struct Zipf {
    cumulated: Vec<f64>,
}

impl Zipf {
    /// Over `n` ranks; all are equally likely when `theta` is 0.
    pub(crate) fn new(n: u64, theta: f64) -> Zipf {
        let mut sum = 0.0;
        let cumulated = (1..=n.max(1))
            .map(|rank| {
                sum += libm::pow(rank as f64, -theta);
                sum
            })
            .collect();
        Zipf { cumulated }
    }

    /// A rank.
    pub(crate) fn draw(&self, rng: &mut Rng) -> u64 {
        let sum = self.cumulated.last().copied().unwrap_or(1.0);
        let at = rng.unit() * sum;
        let rank = self.cumulated.partition_point(|end| *end <= at);
        (rank as u64).min(self.cumulated.len() as u64 - 1)
    }
}

/// Lognormal sizes of `n` files that together have exactly `total` bytes; each has at least one byte when that is
/// possible.
pub(super) fn lognormal_sizes(rng: &mut Rng, n: u64, total: u64, sigma: f64) -> Vec<u64> {
    let drawn: Vec<f64> = (0..n).map(|_| rng.lognormal(1.0, sigma)).collect();
    let sum: f64 = drawn.iter().sum();
    let spread = total.saturating_sub(n) as f64;
    let mut sizes: Vec<u64> = drawn.iter().map(|share| u64::from(total >= n) + (share / sum * spread) as u64).collect();
    let missing = total.saturating_sub(sizes.iter().sum());
    if let Some(largest) = sizes.iter_mut().max() {
        *largest += missing;
    }
    sizes
}
