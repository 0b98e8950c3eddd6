//! Inputs drawn from a seed: locality x/y, and Zipf.
//!
//! x/y: x % of the accesses go to y % of the data, the hot blocks. The other updates go to the cold blocks, half of the
//! remaining data. The other half is never updated, but read as often as the cold blocks. Hot, cold and read-only
//! blocks are mixed at random. Source: R-LFS, section 5.1.

use umbrella_units::{BlockNo, Extent, Pages};

use super::error::LogError;
use super::input::{LogInput, Request};
use super::percent::Percent;
use crate::trace::TraceOp;
use crate::workload::{Rng, Seed, Zipf};

fn request(op: TraceOp, block: u64) -> Request {
    Request { op, extent: Extent { start: BlockNo(block), blocks: 1 } }
}

/// All numbers below `count` in an order of chance.
fn shuffled(rng: &mut Rng, count: u64) -> Vec<u64> {
    let mut all: Vec<u64> = (0..count).collect();
    for at in (1..all.len()).rev() {
        let other = rng.index(at + 1);
        all.swap(at, other);
    }
    all
}

impl LogInput {
    /// `requests` requests with locality x/y; the share `reads` of them reads.
    pub fn hot_cold(
        (x, y): (Percent, Percent),
        blocks: Pages,
        requests: u64,
        reads: Percent,
        seed: Seed,
    ) -> Result<LogInput, LogError> {
        let mut rng = Rng::new(seed, "hot-cold", 0);
        let order = shuffled(&mut rng, blocks.0);
        let hot = (order.len() * y.0 as usize / 100).clamp(1, order.len().saturating_sub(2).max(1));
        let cold = (order.len() - hot).div_ceil(2);
        let mut draw = || {
            let reads = rng.chance(f64::from(reads.0) / 100.0);
            let rest = if reads { order.len() - hot } else { cold };
            let to_hot = rng.chance(f64::from(x.0) / 100.0);
            let at = if to_hot { rng.index(hot) } else { hot + rng.index(rest) };
            request(if reads { TraceOp::Read } else { TraceOp::Write }, order[at])
        };
        let requests = (0..requests).map(|_| draw()).collect();
        let read = if reads.0 > 0 { format!(", {} % reads", reads.0) } else { String::new() };
        LogInput::new(&format!("{}/{}{read}", x.0, y.0), requests, blocks)
    }

    /// Writes of single blocks by Zipf's law with exponent `theta`; which block has which rank is chance.
    pub fn zipf(theta: f64, blocks: Pages, requests: u64, seed: Seed) -> Result<LogInput, LogError> {
        let mut rng = Rng::new(seed, "zipf", 0);
        let order = shuffled(&mut rng, blocks.0);
        let zipf = Zipf::new(blocks.0, theta);
        let requests = (0..requests).map(|_| request(TraceOp::Write, order[zipf.draw(&mut rng) as usize])).collect();
        LogInput::new(&format!("zipf {theta}"), requests, blocks)
    }
}
