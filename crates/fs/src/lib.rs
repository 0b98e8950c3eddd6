//! The merged tree over many branches. Everything except `fuse` works, and is tested, without FUSE.

mod admin;
mod area;
pub mod branch;
mod context;
pub mod control;
mod disk;
pub mod error;
mod fuse;
mod ground;
pub mod inode_map;
mod io;
pub mod metrics;
mod migrate;
pub mod mount;
mod names;
mod node;
mod placement;
pub mod pool;
pub mod relocate;
mod rights;
pub mod spec;
mod staging;
mod tree;
pub mod warning;
mod write_back;

pub use error::{Error, OpError, OpResult};
pub use ground::advice::{Advice, set_advice};
pub use ground::at::calls_on_branches;
pub use ground::creds::Caller;
pub use ground::lease::{Lease, NoLease};
pub use ground::listing::{DirEntry, Listing};
pub use ground::meta::Meta;
pub use node::{DataPath, HandleId, NodeId, PassthroughToken};
pub use warning::Warning;
