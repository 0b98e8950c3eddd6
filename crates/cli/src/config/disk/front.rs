//! What makes a disk a block device of this machine.

use std::fmt;
use std::str::FromStr;

use anyhow::bail;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::text::quoted;

/// The part of Linux that carries an attached disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Front {
    /// A loop device over a file that FUSE shows; any Linux has both.
    #[default]
    Loop,
    /// The ublk driver.
    Ublk,
}

/// No front of that name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("unknown front {}; known: {}", quoted(name), Front::ALL.map(Front::name).join(", "))]
pub(crate) struct UnknownFront {
    name: String,
}

impl Front {
    pub(crate) const ALL: [Front; 2] = [Front::Loop, Front::Ublk];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Front::Loop => "loop",
            Front::Ublk => "ublk",
        }
    }

    /// Fails if this program was built without it.
    pub(crate) fn needs_to_be_built(self) -> anyhow::Result<()> {
        if self == Front::Ublk && !cfg!(feature = "ublk") {
            bail!(
                "this umbrella is built without ublk; use the front \"loop\", or build with `make build FEATURES=ublk`"
            );
        }
        Ok(())
    }
}

impl fmt::Display for Front {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Front {
    type Err = UnknownFront;

    fn from_str(name: &str) -> Result<Front, UnknownFront> {
        let known = Front::ALL.into_iter().find(|front| front.name() == name);
        known.ok_or_else(|| UnknownFront { name: name.to_owned() })
    }
}
