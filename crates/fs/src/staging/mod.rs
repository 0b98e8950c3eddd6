//! Area: a new file waits in memory until its size and its fate are known (MRAM's Temporary-ramfs, on a stock kernel).
//!
//! The staging area is a branch of its own: a tmpfs, or a directory on memory that keeps its contents. No rule can name
//! it. Files are created there, and leave for the branch that their rule chooses in the way in which any file changes
//! its branch. So names, attributes, links, listings, open handles and inode numbers are what they are anywhere in the
//! tree.
//!
//! The mode says which new files wait ([`placement::treatment`](crate::placement)): those whose place depends on a fact
//! that they do not have yet, all of them, or none. Files of the first kind leave together with others, soon after
//! their last writer closed them. They leave earlier if they grow beyond the last size that a rule asks for.
//!
//! A file leaves ([`destage`]) when
//!
//! - it grows beyond `max_file`: under its writer, before the write that would;
//! - it has been there for `max_age`;
//! - memory gets short (`area`): those used longest ago first;
//! - a program wants it durable (fsync, `O_SYNC`, fsync of its directory, `umbrella sync`), where memory is volatile;
//! - the branches get full: it has its room before others take it ([`room`]);
//! - it is renamed over a file of a branch, so that no power loss can take both;
//! - a rule comes to decide that forbids it or, where all files wait, whose list has neither `default` nor `any`. Where
//!   such a rule decides from the first, nothing is staged;
//! - the tree is unmounted, or staging is no longer configured.
//!
//! `policy::staging` decides what becomes of it. Files that leave together do so in the order of their paths, so that
//! neighbours lie together. A file that is deleted before touches no disk.
//!
//! # What can go wrong
//!
//! | when | what happens |
//! | --- | --- |
//! | the daemon is killed | the tmpfs stays mounted; the next mount takes it back and its files leave at once |
//! | the daemon is killed while a file leaves | the intent lies in the staging area: the move is undone or finished at the next mount |
//! | power loss, volatile | what was not synced and is younger than `max_age` is gone, as out of any page cache |
//! | a branch hangs | what goes there stays in memory until it answers, and nothing else waits for it ([`workers`]) |
//! | no branch has room | nothing is staged that its branch could not take when it was created, and who writes to a branch does not take that room; what cannot leave all the same stays, with a warning |
//! | no room at unmount | the area stays mounted, its files are in the tree again at the next mount |
//! | the tmpfs is full | new files go to their branch at once; a file that is written leaves, and is synced on its way: there is no room for its intent |
//! | staging is taken out of the configuration | what is left of it is taken in once more, and leaves |

mod destage;
mod room;
mod scheduler;
mod workers;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::area::{SPARE_INODES, Staged, Wait, is_stageable, keeps_all};
use crate::branch::Branches;
use crate::context::Context;
use crate::error::{OpError, OpResult};
use crate::ground::at::DirAt;
use crate::ground::locks::{RankedMutex, rank};
use crate::metrics::Metric;
use crate::migrate::Migrations;
use crate::placement::{NewFile, Placement};
use crate::tree::Tree;
use crate::write_back::WriteBack;

pub(crate) use workers::{DestageWorkers, HANGS};

/// See the module.
pub(crate) struct Staging {
    context: Arc<Context>,
    branches: Arc<Branches>,
    write_back: Arc<WriteBack>,
    staged: Arc<Staged>,
    placement: Arc<Placement>,
    tree: Arc<Tree>,
    migrate: Arc<Migrations>,
    workers: Arc<DestageWorkers>,
    /// What an earlier mount left was looked for.
    taken_back: RankedMutex<rank::StagingTakenBack, bool>,
    /// When not all could leave that was to make way for writers. Held while it leaves.
    stuck: RankedMutex<rank::StagingShort, Option<Instant>>,
}

impl Staging {
    pub(crate) fn new(tree: &Arc<Tree>, write_back: &Arc<WriteBack>, migrate: &Arc<Migrations>) -> Arc<Staging> {
        Arc::new_cyclic(|this| Staging {
            context: Arc::clone(&tree.context),
            branches: Arc::clone(&tree.branches),
            write_back: Arc::clone(write_back),
            staged: Arc::clone(&tree.placement.staged),
            placement: Arc::clone(&tree.placement),
            tree: Arc::clone(tree),
            migrate: Arc::clone(migrate),
            workers: Arc::new(DestageWorkers::new(this.clone())),
            taken_back: RankedMutex::default(),
            stuck: RankedMutex::default(),
        })
    }

    /// How a new file waits in memory; `None`: it does not.
    pub(crate) fn wait_of(&self, new: &NewFile<'_>) -> Option<Wait> {
        let area = self.staged.area().filter(|_| self.staged.takes_new_files() && is_stageable(new.name, 1))?;
        self.placement.wait_of(new, area)
    }

    /// Makes a new file in the staging area. `None`: it is to be made on its branch at once.
    pub(crate) fn make_staged<T>(
        &self,
        new: &NewFile<'_>,
        call: impl Fn(&DirAt) -> OpResult<T>,
    ) -> OpResult<Option<(DirAt, T)>> {
        let Some(area) = self.staged.area().filter(|_| self.staged.takes_new_files()) else { return Ok(None) };
        // Its rule must have a place for it, with room for all that waits: what is staged has to be able to leave.
        let home = self.placement.place_new(new, &[]).inspect_err(|_| self.context.count(Metric::NoRoom))?;
        let home = self.branches.get(home)?;
        let (view, inodes) = (home.view(), home.space());
        let spare = view.free.0.saturating_sub(view.min_free.0);
        // Not every file system counts its inodes.
        let few_inodes = inodes.files_total > 0 && inodes.files_free < area.files() + SPARE_INODES;
        if !keeps_all(&home.abilities()) {
            return Ok(None);
        }
        if few_inodes
            || !area.has_room()
            || spare < area.used().0.saturating_add(area.settings().max_file.0.saturating_mul(2))
        {
            return Ok(None);
        }
        let made = self
            .tree
            .ensure_dir(new.parent, area.branch.id)
            .and_then(|dir| self.tree.change_entries(new.parent, &dir, || call(&dir)).map(|file| (dir, file)));
        match made {
            Ok(made) => Ok(Some(made)),
            Err(error @ OpError::Sys(rustix::io::Errno::EXIST | rustix::io::Errno::NAMETOOLONG)) => Err(error),
            Err(error) => {
                tracing::debug!(%error, "cannot stage a new file; it goes to its branch");
                Ok(None)
            }
        }
    }
}

/// How long the scheduler sleeps while anything waits, when no thread wakes it.
const TICK: Duration = Duration::from_millis(200);
