//! The control socket: one Unix socket a daemon, owner-only, JSON lines.

mod balance;
mod change;
mod directories;
mod evict;
pub mod protocol;
pub(crate) mod server;
pub mod socket;

pub use socket::STOP;
