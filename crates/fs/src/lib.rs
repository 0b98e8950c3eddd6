//! The merged tree over many branches. Everything except `fuse` works, and is tested, without FUSE.

mod area;
mod at;
mod attention;
pub mod branch;
mod context;
pub mod control;
mod creds;
mod disk;
pub mod error;
mod fd_path;
mod fuse;
pub mod inode_flags;
pub mod inode_map;
mod kernel_cache;
mod lease;
mod listing;
mod meta;
pub mod metrics;
mod migrate;
pub mod mount;
mod node;
mod placement;
pub mod pool;
pub mod relocate;
mod rights;
pub mod spec;
mod staging;
mod tree;
mod workers;
mod write_back;

pub use at::calls_on_branches;
pub use creds::Caller;
pub use error::{Error, OpError, OpResult};
pub use listing::{Entry, Listing};
pub use meta::Meta;
pub use node::{DataPath, HandleId, NodeId, PassthroughToken};
