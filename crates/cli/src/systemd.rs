//! Notifications to systemd, for a service of `Type=notify`.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Whether systemd expects notifications.
pub(crate) fn wants_notifications() -> bool {
    std::env::var_os("NOTIFY_SOCKET").is_some()
}

/// Sends the state of the service to systemd; see sd_notify(3).
pub(crate) fn notify(state: &str) {
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
