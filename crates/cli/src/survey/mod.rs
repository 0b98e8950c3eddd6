//! What a pool over existing disks looks like, found by reading only. It finds names that are on several branches,
//! directories that differ, names that differ only in case, and how much each branch holds.
//!
//! The walk goes through one directory of all branches at a time. It lists the directory on each branch, sorts the
//! names and merges the listings. So it keeps the names of one directory, and the directories that it has still to
//! enter. It follows no symbolic link, and asks the kernel not to change access times.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

mod compare;
mod finding;
mod listing;
mod walk;

#[cfg(test)]
mod tests;

pub(crate) use compare::{Contents, same_bytes};
pub(crate) use finding::{BranchTotals, Content, Copied, Finding, PoolPath, Totals};
pub(crate) use listing::{Dir, open_below, open_file};
pub(crate) use walk::{Root, Step, walk};
