//! The ground of the pool: calls on one branch, threads for calls that may hang, attributes, listings, callers.

pub(crate) mod advice;
pub(crate) mod at;
pub(crate) mod creds;
pub(crate) mod dir_sync;
pub(crate) mod fd_path;
pub(crate) mod inode_flags;
pub(crate) mod kernel_cache;
pub(crate) mod lease;
pub(crate) mod listing;
pub(crate) mod locks;
pub(crate) mod meta;
pub(crate) mod shortage;
pub(crate) mod wakeup;
pub(crate) mod workers;
pub(crate) mod write_out;

/// Name of the hidden directory in the root of every writable branch. Never shown in the tree: no path in the pool may
/// begin with it.
pub const HIDDEN_DIR: &str = ".umbrella";
