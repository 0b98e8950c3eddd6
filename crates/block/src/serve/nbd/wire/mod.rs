//! The bytes of the protocol: its numbers, and parsing and encoding without any I/O. Everything here takes any bytes
//! and never panics.
//!
//! Source: the NBD protocol, doc/proto.md of the NetworkBlockDevice project. All numbers are big-endian.

pub mod option;
pub mod reply;
pub mod request;

#[cfg(test)]
mod tests;

use bitflags::bitflags;

/// The longest name or description that the protocol allows, in bytes.
pub const MAX_STRING: usize = 4096;

/// The longest read or write that is answered, in bytes; clients get it as the maximum block size.
pub const MAX_TRANSFER: u32 = 32 << 20;

/// A place on an export, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Offset(pub u64);

bitflags! {
    /// What a server says of itself first.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct ServerFlags: u16 {
        /// Options are negotiated as all clients do today.
        const FIXED_NEWSTYLE = 1;
        /// The zeroes that end an old answer can be left out.
        const NO_ZEROES = 1 << 1;
    }

    /// What a client answers to that.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct ClientFlags: u32 {
        /// See [`ServerFlags::FIXED_NEWSTYLE`].
        const FIXED_NEWSTYLE = 1;
        /// See [`ServerFlags::NO_ZEROES`].
        const NO_ZEROES = 1 << 1;
    }

    /// What an export can do.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct ExportFlags: u16 {
        /// The other flags mean something.
        const HAS_FLAGS = 1;
        /// Nothing may be written.
        const READ_ONLY = 1 << 1;
        /// FLUSH works.
        const FLUSH = 1 << 2;
        /// [`CommandFlags::FUA`] works.
        const FUA = 1 << 3;
        /// Distance costs time.
        const ROTATIONAL = 1 << 4;
        /// TRIM works.
        const TRIM = 1 << 5;
        /// WRITE_ZEROES works.
        const WRITE_ZEROES = 1 << 6;
        /// [`CommandFlags::DF`] works.
        const DF = 1 << 7;
        /// A flush on one connection covers the writes of all.
        const MULTI_CONN = 1 << 8;
        /// CACHE works.
        const CACHE = 1 << 10;
        /// [`CommandFlags::FAST_ZERO`] works.
        const FAST_ZERO = 1 << 11;
    }

    /// How a command is to be done.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct CommandFlags: u16 {
        /// It is on the medium when it is answered.
        const FUA = 1;
        /// Zeroes keep their space.
        const NO_HOLE = 1 << 1;
        /// A read is answered in one piece.
        const DF = 1 << 2;
        /// One extent is enough.
        const REQ_ONE = 1 << 3;
        /// Zeroes quickly or not at all.
        const FAST_ZERO = 1 << 4;
    }
}

/// The greeting of a server.
pub fn greeting() -> [u8; 18] {
    let mut bytes = [0; 18];
    let (magic, rest) = bytes.split_at_mut(8);
    let (options, flags) = rest.split_at_mut(8);
    magic.copy_from_slice(b"NBDMAGIC");
    options.copy_from_slice(b"IHAVEOPT");
    let server = ServerFlags::FIXED_NEWSTYLE | ServerFlags::NO_ZEROES;
    flags.copy_from_slice(&server.bits().to_be_bytes());
    bytes
}

/// Reads numbers from the front of bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cursor<'b>(pub(super) &'b [u8]);

impl<'b> Cursor<'b> {
    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    pub(super) fn bytes(&mut self, len: usize) -> Option<&'b [u8]> {
        let (first, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(first)
    }

    /// A string: a length and as many bytes of UTF-8, no more than the protocol allows.
    pub(super) fn string(&mut self) -> Option<&'b str> {
        let len = self.u32()? as usize;
        if len > MAX_STRING {
            return None;
        }
        std::str::from_utf8(self.bytes(len)?).ok()
    }
}
