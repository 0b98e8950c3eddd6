//! The merged tree over many branches. Everything except `fuse` works, and is tested, without FUSE.

pub mod branch;
pub mod control;
pub mod inode_map;
pub mod relocate;
pub mod spec;
