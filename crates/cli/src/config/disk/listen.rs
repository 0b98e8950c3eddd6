//! Addresses to listen on.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Serialize, Serializer};
use thiserror::Error;
use umbrella_block::serve::nbd::Address;

use crate::text::quoted;

/// Where to listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Listen {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

/// An address that cannot be listened on.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{} is not an address (write for example \"unix:/run/media.nbd\", \"127.0.0.1:10809\" or \"[::1]:10809\")",
    quoted(text)
)]
pub(crate) struct BadListen {
    text: String,
}

impl FromStr for Listen {
    type Err = BadListen;

    fn from_str(text: &str) -> Result<Listen, BadListen> {
        let bad = || BadListen { text: text.to_owned() };
        match text.strip_prefix("unix:") {
            Some(path) if path.starts_with('/') && !path.contains('\0') => Ok(Listen::Unix(PathBuf::from(path))),
            Some(_) => Err(bad()),
            None => text.parse().map(Listen::Tcp).map_err(|_| bad()),
        }
    }
}

impl From<&Listen> for Address {
    fn from(listen: &Listen) -> Address {
        match listen {
            Listen::Unix(path) => Address::Unix(path.clone()),
            Listen::Tcp(address) => Address::Tcp(*address),
        }
    }
}

impl From<&Address> for Listen {
    fn from(address: &Address) -> Listen {
        match address {
            Address::Unix(path) => Listen::Unix(path.clone()),
            Address::Tcp(address) => Listen::Tcp(*address),
        }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Listen::Unix(path) => write!(f, "unix:{}", path.display()),
            Listen::Tcp(address) => write!(f, "{address}"),
        }
    }
}

impl Serialize for Listen {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
