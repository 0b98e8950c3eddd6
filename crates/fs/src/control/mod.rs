//! The control socket: one Unix socket a mount, owner-only, JSON lines.

pub mod protocol;
pub(crate) mod server;
