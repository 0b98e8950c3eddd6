//! A connected socket, Unix or TCP: whole sends, receives with a limit in time.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{
    Timeout, set_socket_send_buffer_size, set_socket_send_buffer_size_force, set_socket_timeout,
};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, recv, send, sendmsg, shutdown};

/// The send buffer asked of the kernel, for a client that reads slower than we write: a few large answers.
const SEND_BUFFER: usize = 2 << 20;

/// See the module.
#[derive(Debug)]
pub(super) struct Socket(OwnedFd);

/// How long a receive continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReceiveLimit {
    /// Something has come.
    Some,
    /// All has come, or time is over.
    Full,
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Socket {
    pub(super) fn new(fd: OwnedFd) -> Socket {
        // Without the right to more than the system's limit, as much as it allows; answers then only leave in more
        // steps.
        let _ = set_socket_send_buffer_size_force(&fd, SEND_BUFFER)
            .or_else(|_| set_socket_send_buffer_size(&fd, SEND_BUFFER));
        Socket(fd)
    }

    /// Limits how long one receive may wait.
    pub(super) fn set_receive_limit(&self, limit: Duration) -> io::Result<()> {
        // Zero would mean for ever.
        Ok(set_socket_timeout(&self.0, Timeout::Recv, Some(limit.max(Duration::from_millis(1))))?)
    }

    /// Limits how long one send may wait.
    pub(super) fn set_send_limit(&self, limit: Duration) -> io::Result<()> {
        Ok(set_socket_timeout(&self.0, Timeout::Send, Some(limit.max(Duration::from_millis(1))))?)
    }

    /// Receives; 0 at the end, [`Errno::AGAIN`] if nothing has come within the limit.
    pub(super) fn receive(&self, buffer: &mut [u8], until: ReceiveLimit) -> rustix::io::Result<usize> {
        let flags = if until == ReceiveLimit::Full { RecvFlags::WAITALL } else { RecvFlags::empty() };
        loop {
            match recv(&self.0, &mut *buffer, flags) {
                Err(Errno::INTR) => {}
                received => return received.map(|(got, _)| got),
            }
        }
    }

    /// Receives if something has come; [`Errno::AGAIN`] if not.
    pub(super) fn receive_now(&self, buffer: &mut [u8]) -> rustix::io::Result<usize> {
        recv(&self.0, &mut *buffer, RecvFlags::DONTWAIT).map(|(got, _)| got)
    }

    /// Sends all of it.
    pub(super) fn send(&self, mut rest: &[u8]) -> rustix::io::Result<()> {
        while !rest.is_empty() {
            match send(&self.0, rest, SendFlags::NOSIGNAL) {
                Err(Errno::INTR) => {}
                Ok(sent) => rest = rest.get(sent..).unwrap_or_default(),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sends all of both, together as far as possible.
    pub(super) fn send_two(&self, first: &[u8], second: &[u8]) -> rustix::io::Result<()> {
        let sent = loop {
            let parts = [IoSlice::new(first), IoSlice::new(second)];
            match sendmsg(&self.0, &parts, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL) {
                Err(Errno::INTR) => {}
                sent => break sent?,
            }
        };
        self.send(first.get(sent..).unwrap_or_default())?;
        self.send(second.get(sent.saturating_sub(first.len())..).unwrap_or_default())
    }

    /// Sends what fits now; [`Errno::AGAIN`] if nothing does.
    pub(super) fn send_now(&self, bytes: &[u8]) -> rustix::io::Result<usize> {
        send(&self.0, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
    }

    /// Ends sending: the other side reads to the end.
    pub(super) fn stop_sending(&self) {
        let _ = shutdown(&self.0, Shutdown::Write);
    }

    /// Ends receiving: what waits for a request wakes up. Answers can still be sent.
    pub(super) fn stop_receiving(&self) {
        let _ = shutdown(&self.0, Shutdown::Read);
    }

    /// Ends it both ways.
    pub(super) fn close(&self) {
        let _ = shutdown(&self.0, Shutdown::Both);
    }
}
