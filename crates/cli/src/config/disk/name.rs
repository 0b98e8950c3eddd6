//! Names of disks.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;
use thiserror::Error;

use crate::text::quoted;

/// What commands call a disk. Fit for a file name, and for an NBD export.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub(crate) struct DiskName(String);

/// A name that no disk may have.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{} cannot be a disk's name: use 1 to {} letters, digits, \".\", \"_\" and \"-\", beginning with a letter or digit",
    quoted(name),
    DiskName::LONGEST
)]
pub(crate) struct BadDiskName {
    name: String,
}

impl DiskName {
    const LONGEST: usize = 64;

    /// The name of a file without its endings, other characters replaced: `/etc/umbrella/media.disk.toml` is `media`.
    pub(super) fn of_file(name: &str) -> Result<DiskName, BadDiskName> {
        let name = name.strip_suffix(".toml").unwrap_or(name);
        let name = name.strip_suffix(".disk").unwrap_or(name);
        let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') { c } else { '-' };
        let plain: String =
            name.chars().map(plain).skip_while(|c| !c.is_ascii_alphanumeric()).take(Self::LONGEST).collect();
        plain.parse().map_err(|_| BadDiskName { name: name.to_owned() })
    }
}

impl fmt::Display for DiskName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for DiskName {
    type Err = BadDiskName;

    fn from_str(name: &str) -> Result<DiskName, BadDiskName> {
        let good = name.len() <= DiskName::LONGEST
            && name.starts_with(|c: char| c.is_ascii_alphanumeric())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'));
        if good { Ok(DiskName(name.to_owned())) } else { Err(BadDiskName { name: name.to_owned() }) }
    }
}
