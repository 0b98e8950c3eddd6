//! Branches that join and leave, reports about the pool, and its end.
//!
//! - `membership`: branches that join and leave
//! - `replace`: a disk that takes another's place
//! - `monitor`: which branches are alive
//! - `disk_errors`: which disks fail
//! - `levels`: when fill levels are checked
//! - `requests`: requests over the control socket
//! - `report`: the output of `status` and `explain`
//! - `what_if`: `explain` for a file that does not exist
//! - `repair`: making the copies of directories equal
//! - `reload`: a configuration that was edited while the pool is mounted
//! - `difference`: what a reload changes

mod difference;
mod disk_errors;
mod ending;
mod levels;
mod membership;
mod monitor;
mod reload;
mod repair;
mod replace;
mod report;
mod requests;
mod what_if;

use std::sync::Arc;
use std::time::Instant;

use crate::area::Staged;
use crate::branch::Branches;
use crate::context::Context;
use crate::ground::advice::advised;
use crate::ground::locks::{RankedMutex, rank};
use crate::io::Io;
use crate::migrate::Migrations;
use crate::placement::Placement;
use crate::staging::Staging;
use crate::tree::Tree;
use crate::warning::Warning;
use crate::write_back::WriteBack;

pub(crate) use disk_errors::DiskErrors;
use reload::Reloaded;
pub use repair::Equalise;

/// See the module.
pub(crate) struct Admin {
    context: Arc<Context>,
    branches: Arc<Branches>,
    write_back: Arc<WriteBack>,
    staged: Arc<Staged>,
    placement: Arc<Placement>,
    tree: Arc<Tree>,
    migrate: Arc<Migrations>,
    staging: Arc<Staging>,
    io: Arc<Io>,
    disk_errors: DiskErrors,
    reloading: RankedMutex<rank::Reload, ()>,
    started: Instant,
}

impl Admin {
    /// `disk_errors`: listened to since before the branches were used.
    pub(crate) fn new(
        tree: &Arc<Tree>,
        migrate: &Arc<Migrations>,
        staging: &Arc<Staging>,
        io: &Arc<Io>,
        disk_errors: DiskErrors,
    ) -> Admin {
        Admin {
            context: Arc::clone(&tree.context),
            branches: Arc::clone(&tree.branches),
            write_back: Arc::clone(&migrate.write_back),
            staged: Arc::clone(&tree.placement.staged),
            placement: Arc::clone(&tree.placement),
            tree: Arc::clone(tree),
            migrate: Arc::clone(migrate),
            staging: Arc::clone(staging),
            io: Arc::clone(io),
            disk_errors,
            reloading: RankedMutex::default(),
            started: Instant::now(),
        }
    }

    /// Of branches that are plain directories, where the configuration does not say that they are meant to be.
    fn unmounted_warnings(&self) -> Vec<Warning> {
        let was_mount = |name: &str| self.context.state.branch(name).is_none_or(|known| known.was_mount);
        let online = self.branches.all_named().into_iter().filter(|branch| branch.is_online());
        let settings = online.map(|branch| branch.settings()).filter(|it| it.require_mount.is_none());
        let bare = settings.filter(|it| !was_mount(&it.name));
        bare.map(|it| Warning::NoMountPoint { name: it.name.clone(), path: it.path.clone() }).collect()
    }

    pub(crate) fn warnings(&self) -> Vec<String> {
        self.placement.forget_full_with_room();
        let mut current = self.failing_warnings();
        current.extend(self.unmounted_warnings());
        current.extend(self.tree.differing_warning());
        current.extend(self.staging.hanging_warnings());
        current.extend(self.staging.stuck_warning());
        current.extend(self.descriptor_warning());
        let mut warnings = self.context.warnings();
        warnings.extend(current.iter().map(|warning| advised(warning)));
        warnings.extend(self.context.kernel.get().and_then(|kernel| kernel.shortage()));
        warnings
    }
}
