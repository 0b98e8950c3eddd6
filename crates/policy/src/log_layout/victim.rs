//! Which segment to clean.

use std::str::FromStr;

use thiserror::Error;

use super::ids::Clock;
use super::table::Segment;

/// How the cleaner chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Victim {
    /// The segment with the fewest live blocks.
    Greedy,
    /// The segment with the best benefit for its cost: free space × age / (1 + live share). Cold segments are cleaned
    /// while they are still fuller than hot ones.
    ///
    /// Source: Rosenblum and Ousterhout, "The Design and Implementation of a Log-Structured File System", section 3.5.
    #[default]
    CostBenefit,
}

/// A name that no way of choosing has.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("unknown way to choose victims: \"{name}\"; known: greedy, cost-benefit")]
pub struct UnknownVictim {
    /// The name.
    pub name: String,
}

impl FromStr for Victim {
    type Err = UnknownVictim;

    fn from_str(name: &str) -> Result<Victim, UnknownVictim> {
        match name {
            "greedy" => Ok(Victim::Greedy),
            "cost-benefit" => Ok(Victim::CostBenefit),
            _ => Err(UnknownVictim { name: name.to_owned() }),
        }
    }
}

impl Victim {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Victim::Greedy => "greedy",
            Victim::CostBenefit => "cost-benefit",
        }
    }

    /// How good a victim the segment is, of `blocks` blocks: more is better.
    pub(super) fn score(self, segment: &Segment, blocks: u32, now: Clock) -> f64 {
        let live = f64::from(segment.live) / f64::from(blocks);
        match self {
            Victim::Greedy => 1.0 - live,
            Victim::CostBenefit => (1.0 - live) * (now.since(segment.youngest) + 1) as f64 / (1.0 + live),
        }
    }
}
