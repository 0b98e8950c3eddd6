//! Directory trees for workloads that unpack or copy one: how directories are nested and how many files each has, in
//! path order.
//!
//! Assumed, for lack of a published shape: directories come depth first. The parent of each new one is the last one or
//! one of its three ancestors. The numbers of files in directories are lognormal with a deviation of 1.

use super::draw::{Rng, lognormal_sizes};

/// Ancestors to which a walk climbs before it descends again.
const CLIMB: usize = 3;

/// Directories below each other at most.
const DEPTH: usize = 9;

/// A directory of a tree that is yet to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Branch {
    /// The place of its parent in the tree's list; `None` for the root.
    pub(super) parent: Option<usize>,
    /// Files in it.
    pub(super) files: u64,
}

/// `dirs` directories with `files` files in all, parents before children, depth first.
pub(super) fn grow(rng: &mut Rng, dirs: u64, files: u64) -> Vec<Branch> {
    let counts = lognormal_sizes(rng, dirs.max(1), files, 1.0);
    let mut path: Vec<usize> = Vec::new();
    counts
        .into_iter()
        .enumerate()
        .map(|(dir, files)| {
            let climb = rng.index(CLIMB.min(path.len()) + 1);
            path.truncate((path.len() - climb).min(DEPTH - 1));
            let parent = path.last().copied();
            path.push(dir);
            Branch { parent, files }
        })
        .collect()
}
