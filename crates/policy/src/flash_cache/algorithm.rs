//! How the log is flushed.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// How the log is flushed. Source: section 2.2; `Whole` is ours.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Algorithm {
    /// One request after the other: read it, write it.
    Alg1,
    /// As many requests as memory holds with one large read; then each of them, in log order.
    Alg2,
    /// Two half buffers: while one is written, the other is filled.
    Alg3,
    /// That, and what a buffer holds is sorted by address and merged.
    Alg4,
    /// Everything sorted by address and merged; only the newest data is read and written, each sector once.
    #[default]
    Whole,
}

impl Algorithm {
    /// All of them, in the order of the documentation.
    pub const ALL: [Algorithm; 5] =
        [Algorithm::Alg1, Algorithm::Alg2, Algorithm::Alg3, Algorithm::Alg4, Algorithm::Whole];

    /// What users call it.
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Alg1 => "alg1",
            Algorithm::Alg2 => "alg2",
            Algorithm::Alg3 => "alg3",
            Algorithm::Alg4 => "alg4",
            Algorithm::Whole => "whole",
        }
    }

    /// How many buffers share the memory: with two, flash is read while the disk is written.
    pub fn buffers(self) -> u64 {
        match self {
            Algorithm::Alg1 | Algorithm::Alg2 => 1,
            Algorithm::Alg3 | Algorithm::Alg4 | Algorithm::Whole => 2,
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that no algorithm has.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("no flush algorithm is called {name:?} (known: alg1, alg2, alg3, alg4, whole)")]
pub struct UnknownAlgorithm {
    /// What was asked for.
    pub name: String,
}

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    fn from_str(name: &str) -> Result<Algorithm, UnknownAlgorithm> {
        let known = Algorithm::ALL.into_iter().find(|algorithm| algorithm.name() == name);
        known.ok_or_else(|| UnknownAlgorithm { name: name.to_owned() })
    }
}
