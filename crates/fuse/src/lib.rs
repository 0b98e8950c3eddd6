//! File systems in user space on Linux: the kernel's FUSE protocol, over `/dev/fuse` and over io_uring.
//!
//! Implement [`Filesystem`], then [`Session::mount`] and [`Session::run`]. Every operation is one method that gets the
//! request as a struct of named fields and a [`Reply`] to answer with, at once or later, from any thread. What is not
//! implemented answers ENOSYS.
//!
//! ```no_run
//! use umbrella_fuse::*;
//!
//! struct Empty;
//!
//! impl Filesystem for Empty {
//!     fn getattr(&self, _context: &Context<'_>, request: GetAttr, reply: Reply<Stat>) {
//!         let attributes = Attributes::new(InodeNumber(request.node.0), FileType::Directory, 0o755);
//!         reply.ok(Stat { attributes, ttl: std::time::Duration::from_secs(1) });
//!     }
//! }
//!
//! let options = MountOptions::DEFAULT_PERMISSIONS;
//! let spec = MountSpec { source: "empty".into(), subtype: "empty".into(), options };
//! Session::mount(Empty, "/mnt/empty".as_ref(), &spec, Config::default())?.run()?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! Where to look:
//! - [`Filesystem`]: the methods. `getattr`, `lookup`, `readdir` and `read` make a file system that can be read. Each
//!   takes a struct of its own, such as [`Lookup`] or [`Read`], and a [`Reply`] of its own, such as [`Entry`] or
//!   [`Data`].
//! - [`Session`], [`Config`], [`MountSpec`]: mounting and serving. [`Unmounter`] and [`Notifier`] act on the mount from
//!   elsewhere.
//! - [`Offer`] and [`Agreement`]: what kernel and file system may use, settled in [`Filesystem::init`].
//! - [`BackingFile`]: data that goes to another file without asking. [`Observer`]: sees each request.
//!
//! What to know:
//! - A [`NodeId`] is what the kernel calls a file by. It comes into being with each [`Entry`] that names it, and goes
//!   with [`Filesystem::forget`].
//! - Methods are called from many threads. Over io_uring each request has a thread of its own while it is under way, on
//!   the processor of the calling program.
//! - Times to live say how long the kernel may answer by itself; [`Notifier`] takes them back.
//! - A process that uses its own mount can lock itself up for good: serve from a process that does not.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic))]

mod abi;
mod answer;
mod backing;
mod body;
mod channel;
mod connection;
mod device;
mod extensions;
mod filesystem;
mod flags;
mod ioctl;
mod memory;
mod mount;
mod notify;
mod operation;
mod operations;
mod reply;
mod request;
mod session;
mod sys;
#[cfg(test)]
mod tests;
mod transport;
mod types;

pub use abi::operation_name;
pub use answer::{
    Answer, Block, Copied, Created, Data, Entry, Full, IoctlAnswer, Listed, Listing, Offset, Opened, Ready, Space,
    Stat, Statx, Written, Xattr,
};
pub use backing::BackingFile;
pub use connection::{Agreement, Offer};
pub use extensions::{Extensions, SecurityContext};
pub use filesystem::{Context, Filesystem};
pub use flags::{AttributeFlags, InitFlags, IoctlFlags, OpenFlags, RenameFlags, WriteFlags};
pub use ioctl::{FileIoctl, FsXattr};
pub use memory::RingMemory;
pub use mount::{MountOptions, MountSpec, Unmounter};
pub use notify::Notifier;
pub use reply::{Finished, Observer, Reply};
pub use request::*;
pub use session::{Config, Session, TransportInUse};
pub use transport::Transport;
pub use transport::dev::DeviceThreads;
pub use types::{
    Attributes, Errno, FileHandle, FileType, InodeNumber, Lock, LockKind, LockOwner, NewTime, NodeId, PollHandle,
    RequestId, Timestamp,
};
