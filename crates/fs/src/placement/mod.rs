//! Where files belong: the rules in force, and the facts of the real world that they are evaluated with.

mod around;
mod bind;
mod guess;
mod heat;
mod holdings;
mod place;
mod treatment;
mod xattrs;

use std::sync::Arc;

use arc_swap::ArcSwap;
use umbrella_policy::placement::LastSizes;

use crate::area::Staged;
use crate::branch::Branches;
use crate::context::Context;
use crate::ground::locks::{RankedMutex, rank};
use crate::inode_map::InodeMap;
use crate::node::NodeTable;

pub(crate) use bind::ActiveRules;
pub(crate) use holdings::Holdings;
pub(crate) use place::{NewFile, Views, settled_facts};

/// See the module.
pub(crate) struct Placement {
    pub(crate) context: Arc<Context>,
    pub(crate) branches: Arc<Branches>,
    pub(crate) staged: Arc<Staged>,
    pub(crate) nodes: Arc<NodeTable>,
    pub(crate) inodes: Arc<InodeMap>,
    pub(crate) rules: ArcSwap<ActiveRules>,
    pub(crate) holdings: Holdings,
    pub(crate) last_sizes: RankedMutex<rank::LastSizes, LastSizes>,
}
