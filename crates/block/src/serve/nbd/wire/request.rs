//! Requests of the transmission phase.

use super::{CommandFlags, Cursor, Offset};

/// How many bytes a request has, without the data of a write.
pub const REQUEST_BYTES: usize = 28;

const MAGIC: u32 = 0x2560_9513;

/// What the client calls the request; given back with the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cookie(pub [u8; 8]);

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Data.
    Read,
    /// Takes the data that follows.
    Write,
    /// The end.
    Disconnect,
    /// Makes writes durable.
    Flush,
    /// Forgets a range.
    Trim,
    /// Will be read soon.
    Cache,
    /// Zeroes without sending them.
    WriteZeroes,
    /// How a range is allocated.
    BlockStatus,
    /// Something else.
    Unknown(u16),
}

impl From<u16> for Command {
    fn from(number: u16) -> Command {
        match number {
            0 => Command::Read,
            1 => Command::Write,
            2 => Command::Disconnect,
            3 => Command::Flush,
            4 => Command::Trim,
            5 => Command::Cache,
            6 => Command::WriteZeroes,
            7 => Command::BlockStatus,
            other => Command::Unknown(other),
        }
    }
}

/// A request, as it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// What it asks for.
    pub command: Command,
    /// How; also unknown bits.
    pub flags: CommandFlags,
    /// Whose answer it wants.
    pub cookie: Cookie,
    /// The first byte.
    pub offset: Offset,
    /// How many bytes.
    pub length: u32,
}

impl Request {
    /// Reads a request; `None` if the bytes are not one.
    pub fn parse(bytes: &[u8; REQUEST_BYTES]) -> Option<Request> {
        let mut cursor = Cursor(bytes);
        if cursor.u32()? != MAGIC {
            return None;
        }
        Some(Request {
            flags: CommandFlags::from_bits_retain(cursor.u16()?),
            command: Command::from(cursor.u16()?),
            cookie: Cookie(cursor.array()?),
            offset: Offset(cursor.u64()?),
            length: cursor.u32()?,
        })
    }

    /// How many bytes of data follow it.
    pub fn payload(&self) -> usize {
        if self.command == Command::Write { self.length as usize } else { 0 }
    }
}
