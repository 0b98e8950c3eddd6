//! What can go wrong, and the one place that turns it into errors of the protocol.

#[cfg(test)]
mod tests;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use rustix::io::Errno;
use thiserror::Error;

use super::wire::reply::ErrorCode;
use crate::error::BlockError;

/// Why a server could not be started, or did not stop cleanly.
#[derive(Debug, Error)]
pub enum ServeError {
    /// Nothing is offered.
    #[error("no export: name at least one device to serve")]
    NoExport,
    /// A name that the protocol cannot carry.
    #[error("export {name:?}…: name and description may have at most {limit} bytes each")]
    LongName {
        /// Its beginning.
        name: String,
        /// How long it may be.
        limit: usize,
    },
    /// Two exports of one name.
    #[error("export {name:?} is named twice")]
    SameName {
        /// Which name.
        name: String,
    },
    /// A server listens there already.
    #[error("{}: a server already listens there (stop it, or choose another socket)", path.display())]
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// Something that is not a socket is in the way.
    #[error("{}: exists and is not a socket", path.display())]
    NotASocket {
        /// What is in the way.
        path: PathBuf,
    },
    /// The system refused to listen.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Where.
        address: String,
        /// Why not.
        source: io::Error,
    },
    /// The last flush of an export failed.
    #[error("export {name:?}: the last flush failed: {source}")]
    Flush {
        /// Which one.
        name: String,
        /// Why.
        source: BlockError,
    },
}

/// Why a connection ended.
#[derive(Debug, Error)]
pub(super) enum Ended {
    /// The client has closed it, or said good-bye.
    #[error("closed by the client")]
    Closed,
    /// The server stops.
    #[error("the server stops")]
    Stopped,
    /// The client breaks the rules.
    #[error("protocol error of the client: {0}")]
    Protocol(Broken),
    /// The client does not continue.
    #[error("the client sent nothing for {} s in the middle of a message", .0.as_secs())]
    Stalled(Duration),
    /// The network or the client's program failed.
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl From<Errno> for Ended {
    fn from(error: Errno) -> Ended {
        Ended::Io(error.into())
    }
}

/// What a client did that ends the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(super) enum Broken {
    #[error("it does not use the fixed newstyle handshake")]
    Handshake,
    #[error("it sent an option without the magic number")]
    OptionMagic,
    #[error("it sent an option of {0} bytes, which is too long")]
    LongOption(u32),
    #[error("it asked for an unknown export by EXPORT_NAME, which cannot be refused otherwise")]
    UnknownExport,
    #[error("it sent unencrypted data after STARTTLS")]
    AfterStartTls,
    #[error("it did not use TLS, which is required here")]
    Unencrypted,
    #[error("it sent a request without the magic number")]
    RequestMagic,
    #[error("it sent a write of {0} bytes, which is too long")]
    LongWrite(u32),
}

/// The error code that the client gets for an error of the device.
pub(super) fn error_code(error: &BlockError) -> ErrorCode {
    match error {
        BlockError::BeyondEnd { .. } | BlockError::Unaligned { .. } => ErrorCode::Invalid,
        BlockError::ReadOnly { .. } => ErrorCode::Perm,
        BlockError::Poisoned { .. } => ErrorCode::Io,
        BlockError::Io { source, .. } => match source.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => ErrorCode::NoSpace,
            Some(Errno::NOMEM) => ErrorCode::NoMemory,
            Some(Errno::ROFS | Errno::PERM | Errno::ACCESS) => ErrorCode::Perm,
            Some(Errno::OPNOTSUPP) => ErrorCode::NotSupported,
            _ => ErrorCode::Io,
        },
    }
}

/// The error as a message for the client. It names no path of the server.
pub(super) fn error_message(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::Perm => "the export is read-only",
        ErrorCode::Io => "the device failed",
        ErrorCode::NoMemory => "no memory",
        ErrorCode::Invalid => "not whole blocks of the export, or beyond its end",
        ErrorCode::NoSpace => "no space, or beyond the end",
        ErrorCode::Overflow => "too long",
        ErrorCode::NotSupported => "not supported, or not quickly",
        ErrorCode::Shutdown => "the server stops",
    }
}
