//! An NBD server: offers block devices to programs and other machines.
//!
//! Speaks the fixed newstyle handshake, structured answers, FUA, trim, zeroes, block status of files, and several
//! connections to one export. [`wire`] and the negotiation are pure; this is what happens to a connection:
//!
//! 1. The server accepts it, if it may have one more, and gives it a thread.
//! 2. It negotiates until the client has chosen an export, within a time limit. If the client asks for TLS, and it is
//!    offered, all that follows is encrypted, the negotiation begun anew.
//! 3. Its threads take turns to lead: the leader reads requests. One that can be answered at once (the device says that
//!    waiting does not pay, or the page cache has the data) it answers itself, and the answers leave together when no
//!    further request has arrived. For any other request it gives up the lead and carries the request out, while the
//!    next thread reads on.
//! 4. A stop lets requests under way end, closes the connections, and flushes every device.
//!
//! A flush on one connection covers the writes of all, since all call the same device: that is what a client is told by
//! MULTI_CONN.
//!
//! Source: doc/proto.md of the NetworkBlockDevice project.

mod answer;
mod budget;
mod connection;
mod errors;
mod export;
mod input;
mod listen;
mod negotiate;
mod output;
mod perform;
mod seldom;
mod server;
mod shared;
mod socket;
mod tls;
mod transmit;
mod watch;
pub mod wire;

pub use errors::ServeError;
pub use export::{Export, Exports};
pub use listen::Address;
pub use server::Server;
pub use shared::{Limits, Stats};
pub use tls::{Tls, TlsError};
