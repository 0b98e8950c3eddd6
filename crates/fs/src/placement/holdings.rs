//! What the members of a group hold of a directory that is kept together: walked for when a file is to be placed, and
//! remembered for a while.
//!
//! A directory that a file was just sent to counts as begun there, so that its next files follow before the first one
//! can be seen.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;
use rustix::fs::FileType;
use smallvec::SmallVec;
use umbrella_policy::placement::DirUsage;
use umbrella_units::{BranchId, ByteSize};

use crate::branch::Branch;
use crate::error::OpResult;
use crate::ground::at::DirAt;
use crate::ground::locks::{RankedMutex, rank};

/// How old an answer may be.
const MAX_AGE: Duration = Duration::from_secs(10);
/// Most directories that are remembered.
const MOST: usize = 4096;
/// Entries of one directory that are looked at on a branch: enough to tell which branch holds most.
const MOST_ENTRIES: usize = 10_000;

/// The holdings of each branch, by directory.
#[derive(Default)]
pub(crate) struct Holdings {
    dirs: RankedMutex<rank::PlacementHoldings, FxHashMap<Box<[u8]>, GroupHoldings>>,
}

struct GroupHoldings {
    since: Instant,
    on: SmallVec<[(BranchId, DirUsage); 4]>,
    /// Where a first file was sent to since.
    begun: Option<BranchId>,
}

impl Holdings {
    /// What a branch holds below a directory; nothing where it cannot be asked.
    pub(crate) fn held(&self, dir: &[u8], branch: &Arc<Branch>) -> DirUsage {
        if let Some(held) = self.remembered(dir, branch.id) {
            return held;
        }
        let held = read_usage(dir, branch).unwrap_or_default();
        self.remember(dir, branch.id, held);
        held
    }

    fn remembered(&self, dir: &[u8], branch: BranchId) -> Option<DirUsage> {
        let dirs = self.dirs.lock();
        let known = dirs.get(dir).filter(|known| known.since.elapsed() < MAX_AGE)?;
        known.on.iter().find(|(on, _)| *on == branch).map(|(_, held)| *held)
    }

    fn remember(&self, dir: &[u8], branch: BranchId, held: DirUsage) {
        let mut dirs = self.dirs.lock();
        if dirs.len() >= MOST {
            dirs.retain(|_, known| known.since.elapsed() < MAX_AGE);
        }
        if dirs.len() >= MOST {
            dirs.clear();
        }
        let empty = || GroupHoldings { since: Instant::now(), on: SmallVec::new(), begun: None };
        let known = dirs.entry(dir.into()).or_insert_with(empty);
        if known.since.elapsed() >= MAX_AGE {
            *known = empty();
        }
        known.on.retain(|(on, _)| *on != branch);
        known.on.push((branch, held));
    }

    /// A file of a directory is sent to a branch: where no branch holds any of it, it is begun there. True: it was
    /// begun elsewhere meanwhile.
    pub(crate) fn begin(&self, dir: &[u8], branch: BranchId) -> bool {
        let mut dirs = self.dirs.lock();
        let Some(known) = dirs.get_mut(dir) else { return false };
        if let Some(first) = known.begun {
            return first != branch;
        }
        if known.on.iter().all(|(_, held)| *held == DirUsage::default()) {
            known.begun = Some(branch);
            known.on.retain(|(on, _)| *on != branch);
            known.on.push((branch, DirUsage { bytes: ByteSize(0), files: 1 }));
        }
        false
    }
}

/// Whether a branch has a directory.
pub(crate) fn has_directory(dir: &[u8], branch: &Arc<Branch>) -> bool {
    find(dir, branch).is_ok()
}

fn find(dir: &[u8], branch: &Arc<Branch>) -> OpResult<DirAt> {
    let parts = dir.split(|byte| *byte == b'/').filter(|part| !part.is_empty());
    parts.map(OsStr::from_bytes).try_fold(DirAt::root(branch)?, |at, part| at.descend(part))
}

fn read_usage(dir: &[u8], branch: &Arc<Branch>) -> OpResult<DirUsage> {
    let mut held = DirUsage::default();
    let mut left = MOST_ENTRIES;
    let mut open = vec![find(dir, branch)?];
    while let Some(at) = open.pop() {
        for entry in at.list(true)? {
            if left == 0 {
                return Ok(held);
            }
            left -= 1;
            if entry.kind == FileType::Directory {
                open.extend(at.descend(&entry.name));
            } else if let Ok(meta) = at.stat(&entry.name) {
                held.files += 1;
                held.bytes = ByteSize(held.bytes.0.saturating_add(meta.occupied().0));
            }
        }
    }
    Ok(held)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILM: DirUsage = DirUsage { bytes: ByteSize(1), files: 1 };

    #[test]
    fn a_directory_is_begun_where_its_first_file_was_sent() {
        let holdings = Holdings::default();
        for branch in [BranchId(0), BranchId(1)] {
            holdings.remember(b"/a", branch, DirUsage::default());
        }
        assert!(!holdings.begin(b"/a", BranchId(1)));
        assert!(holdings.begin(b"/a", BranchId(0)), "another was faster");
        assert!(!holdings.begin(b"/a", BranchId(1)));
        assert_eq!(holdings.remembered(b"/a", BranchId(1)).map(|held| held.files), Some(1));
        assert_eq!(holdings.remembered(b"/a", BranchId(0)), Some(DirUsage::default()));
    }

    #[test]
    fn the_memory_of_directories_is_bounded() {
        let holdings = Holdings::default();
        for number in 0..10 * MOST {
            holdings.remember(number.to_string().as_bytes(), BranchId(0), FILM);
        }
        assert!(holdings.dirs.lock().len() <= MOST);
        let newest = (10 * MOST - 1).to_string();
        assert_eq!(holdings.remembered(newest.as_bytes(), BranchId(0)), Some(FILM));
    }
}
