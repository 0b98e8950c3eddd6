//! Changes of names: what is made, removed, renamed and linked.
//!
//! `create`, `unlink`, `rename`, `exchange`: the requests; `several`: changes that concern several branches, wherever
//! those may hang.

mod create;
mod exchange;
mod rename;
mod several;
mod unlink;

use std::sync::Arc;

use crate::area::Staged;
use crate::branch::Branches;
use crate::context::Context;
use crate::io::Io;
use crate::migrate::Migrations;
use crate::placement::Placement;
use crate::staging::Staging;
use crate::tree::Tree;

pub use rename::Replace;
pub use several::OldName;

/// See the module.
pub(crate) struct Names {
    context: Arc<Context>,
    branches: Arc<Branches>,
    staged: Arc<Staged>,
    placement: Arc<Placement>,
    tree: Arc<Tree>,
    migrate: Arc<Migrations>,
    staging: Arc<Staging>,
    io: Arc<Io>,
}

impl Names {
    pub(crate) fn new(tree: &Arc<Tree>, migrate: &Arc<Migrations>, staging: &Arc<Staging>, io: &Arc<Io>) -> Names {
        Names {
            context: Arc::clone(&tree.context),
            branches: Arc::clone(&tree.branches),
            staged: Arc::clone(&tree.placement.staged),
            placement: Arc::clone(&tree.placement),
            tree: Arc::clone(tree),
            migrate: Arc::clone(migrate),
            staging: Arc::clone(staging),
            io: Arc::clone(io),
        }
    }
}
