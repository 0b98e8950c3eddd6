//! The merged tree over many branches. Everything except `fuse` works, and is tested, without FUSE.

pub mod control;
pub mod relocate;
pub mod spec;
