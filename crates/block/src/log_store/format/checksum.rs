//! Checksums of everything on disk.

use std::fmt;

/// A CRC32C.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Checksum(pub u32);

impl Checksum {
    /// That of `bytes`.
    pub fn of(bytes: &[u8]) -> Checksum {
        Checksum(crate::checksum::crc32c(bytes))
    }

    /// The checksum of the same bytes with `bytes` appended.
    #[must_use]
    pub fn append(self, bytes: &[u8]) -> Checksum {
        Checksum(crc32c::crc32c_append(self.0, bytes))
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}
