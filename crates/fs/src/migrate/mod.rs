//! How files get to another branch: the order of moves, the copy, the commit, and the walks that look for files in the
//! wrong place.
//!
//! - `mover`: the queue
//! - `transfer`, `copying`, `commit`, `unnamed`: one move
//! - `moving`: what a move is about, and why it did not happen
//! - `batch`: many small files at once
//! - `disk_turns`: one move at a time on a disk; `give_way`: no move while others wait for the disk
//! - `overflow`: a branch is full and a program writes
//! - `evict`: a branch is above its fill level
//! - `enforce`: a walk of the whole tree; `balance`: the same walk, for the members of a group; `schedule`: when walks
//!   run
//! - `revisit`: files whose names changed; `accessed`: files that were read; `warm`: files that were opened
//! - `drain`: a branch is emptied

mod accessed;
mod balance;
mod batch;
mod commit;
mod copying;
mod disk_turns;
mod drain;
mod enforce;
mod evict;
mod give_way;
mod mover;
mod moving;
mod overflow;
mod revisit;
mod schedule;
mod transfer;
mod unnamed;
mod warm;

use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rustc_hash::FxHashSet;

use crate::area::Staged;
use crate::branch::Branches;
use crate::context::Context;
use crate::ground::locks::{RankedMutex, rank};
use crate::placement::Placement;
use crate::tree::Tree;
use crate::write_back::WriteBack;

pub(crate) use balance::Balance;
pub(crate) use commit::COMMIT_TIMEOUT;
pub use enforce::WalkOptions;
pub(crate) use mover::{MOVERS, is_due};
pub(crate) use moving::NotMoved;
pub(crate) use moving::{MoveControl, MoveReason, MoveSeqGuard, show};

/// See the module.
pub(crate) struct Migrations {
    context: Arc<Context>,
    branches: Arc<Branches>,
    pub(crate) write_back: Arc<WriteBack>,
    staged: Arc<Staged>,
    placement: Arc<Placement>,
    tree: Arc<Tree>,
    mover: mover::Mover,
    disk_turns: disk_turns::DiskTurns,
    walks: enforce::Walks,
    revisits: revisit::Revisits,
    evicts: evict::Evicts,
    /// Copies whose moves have not happened, so that recovery does not finish them. A few bytes each.
    given_up: RankedMutex<rank::MigrateGivenUp, FxHashSet<OsString>>,
    /// Files may be where they do not belong without waiting for their move: the enforcer has to look.
    moves_left: AtomicBool,
}

impl Migrations {
    pub(crate) fn new(tree: &Arc<Tree>, write_back: &Arc<WriteBack>) -> Arc<Migrations> {
        Arc::new(Migrations {
            context: Arc::clone(&tree.context),
            branches: Arc::clone(&tree.branches),
            write_back: Arc::clone(write_back),
            staged: Arc::clone(&tree.placement.staged),
            placement: Arc::clone(&tree.placement),
            tree: Arc::clone(tree),
            mover: mover::Mover::new(),
            disk_turns: disk_turns::DiskTurns::default(),
            walks: enforce::Walks::default(),
            revisits: revisit::Revisits::default(),
            evicts: evict::Evicts::default(),
            given_up: RankedMutex::default(),
            moves_left: AtomicBool::new(false),
        })
    }

    /// Names of the abandoned copies, which recovery removes.
    pub(crate) fn abandoned_copies(&self) -> FxHashSet<OsString> {
        self.given_up.lock().clone()
    }
}
