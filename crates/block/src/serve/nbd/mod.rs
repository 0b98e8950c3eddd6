//! An NBD server: offers block devices to programs and other machines.
//!
//! Speaks the fixed newstyle handshake, structured answers, FUA, trim, zeroes, block status of files, and several
//! connections to one export. [`wire`] and the negotiation are pure. A connection goes through these steps:
//!
//! 1. The server accepts it, if it may have one more, and gives it a thread.
//! 2. The thread negotiates until the client has chosen an export, within a time limit. If the client asks for TLS and
//!    the server offers it, everything after that is encrypted, and the negotiation starts anew.
//! 3. The connection's threads take turns to lead; the leader reads requests. It answers a request itself if that takes
//!    no waiting: the device says that waiting does not pay, or the page cache has the data. Those answers leave
//!    together when no further request has arrived. For any other request it gives up the lead and carries the request
//!    out, while the next thread reads on.
//! 4. A stop lets requests under way end, closes the connections, and flushes every device.
//!
//! A flush on one connection covers the writes of all, since all call the same device. MULTI_CONN announces that to
//! clients.
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
mod rate_limit;
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
