//! Word to systemd, when it started this program and wants to know (`Type=notify`).

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Whether systemd wants to know.
pub(crate) fn listens() -> bool {
    std::env::var_os("NOTIFY_SOCKET").is_some()
}

/// Says where the service is; see sd_notify(3).
pub(crate) fn tell(state: &str) {
    let Some(address) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let address = match address.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&address),
    };
    let sent = address.and_then(|address| UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address));
    if let Err(error) = sent {
        tracing::warn!("telling systemd {state}: {error}");
    }
}
