//! The NBD server against public clients, and against clients that mean no good.

mod client;
mod devices;
mod fuzz;
mod hostile;
mod interop;
mod scripts;
mod sockets;
mod stop;
#[path = "../support/mod.rs"]
mod support;
mod tls;
