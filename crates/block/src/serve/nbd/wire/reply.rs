//! Answers of the transmission phase: simple ones, and the chunks of structured ones.

use super::Offset;
use super::request::Cookie;

const SIMPLE_MAGIC: u32 = 0x6744_6698;
const CHUNK_MAGIC: u32 = 0x668e_33ef;

/// How many bytes stand before the data of a simple answer.
pub const SIMPLE_BYTES: usize = 16;
/// How many bytes stand before the data of a chunk, without what its type puts before the data.
pub const CHUNK_BYTES: usize = 20;
/// How many bytes stand before the data of a chunk of [`ChunkType::OffsetData`].
pub const DATA_CHUNK_BYTES: usize = CHUNK_BYTES + 8;

/// The number of "base:allocation" in the answers to BLOCK_STATUS.
pub const ALLOCATION_CONTEXT: u32 = 1;

/// The errors that the protocol has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum ErrorCode {
    /// Not permitted.
    Perm = 1,
    /// Reading or writing failed.
    Io = 5,
    /// No memory.
    NoMemory = 12,
    /// The request makes no sense.
    Invalid = 22,
    /// No space, or beyond the end.
    NoSpace = 28,
    /// Too long for one piece.
    Overflow = 75,
    /// It cannot be done, or not quickly.
    NotSupported = 95,
    /// The server is about to stop.
    Shutdown = 108,
}

/// What a chunk holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum ChunkType {
    /// Nothing: all is well.
    None = 0,
    /// Where data begin, and the data.
    OffsetData = 1,
    /// Where zeroes begin, and how many.
    OffsetHole = 2,
    /// Extents.
    BlockStatus = 5,
    /// An error, of the whole request.
    Error = 0x8001,
}

/// Whether more chunks of the same answer follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum ChunkFollows {
    /// This is the last one.
    Done = 1,
    /// More follow.
    Follows = 0,
}

/// The front of a simple answer; the data of a successful read follow.
pub fn simple(error: Option<ErrorCode>, cookie: Cookie) -> [u8; SIMPLE_BYTES] {
    let mut bytes = [0; SIMPLE_BYTES];
    let code = error.map_or(0, |error| error as u32);
    put(&mut bytes, &[&SIMPLE_MAGIC.to_be_bytes(), &code.to_be_bytes(), &cookie.0]);
    bytes
}

/// The front of a chunk with `length` bytes behind it.
pub fn chunk(more: ChunkFollows, kind: ChunkType, cookie: Cookie, length: u32) -> [u8; CHUNK_BYTES] {
    let mut bytes = [0; CHUNK_BYTES];
    put(
        &mut bytes,
        &[
            &CHUNK_MAGIC.to_be_bytes(),
            &(more as u16).to_be_bytes(),
            &(kind as u16).to_be_bytes(),
            &cookie.0,
            &length.to_be_bytes(),
        ],
    );
    bytes
}

/// The front of a chunk with `length` bytes of data, at most [`MAX_TRANSFER`](super::MAX_TRANSFER).
pub fn data_chunk(more: ChunkFollows, cookie: Cookie, offset: Offset, length: u32) -> [u8; DATA_CHUNK_BYTES] {
    let mut bytes = [0; DATA_CHUNK_BYTES];
    let front = chunk(more, ChunkType::OffsetData, cookie, length.saturating_add(8));
    put(&mut bytes, &[&front, &offset.0.to_be_bytes()]);
    bytes
}

/// A chunk that stands for `length` zero bytes.
pub fn hole_chunk(more: ChunkFollows, cookie: Cookie, offset: Offset, length: u32) -> [u8; CHUNK_BYTES + 12] {
    let mut bytes = [0; CHUNK_BYTES + 12];
    let front = chunk(more, ChunkType::OffsetHole, cookie, 12);
    put(&mut bytes, &[&front, &offset.0.to_be_bytes(), &length.to_be_bytes()]);
    bytes
}

/// A last chunk that reports an error, with a message for people.
pub fn error_chunk(out: &mut Vec<u8>, cookie: Cookie, error: ErrorCode, words: &str) {
    let words = words.get(..words.len().min(super::MAX_STRING)).unwrap_or_default();
    let length = 6 + words.len();
    out.extend_from_slice(&chunk(ChunkFollows::Done, ChunkType::Error, cookie, length as u32));
    out.extend_from_slice(&(error as u32).to_be_bytes());
    out.extend_from_slice(&(words.len() as u16).to_be_bytes());
    out.extend_from_slice(words.as_bytes());
}

/// How an extent is allocated, as "base:allocation" says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Status {
    /// May hold anything.
    Data = 0,
    /// Occupies nothing and reads as zeroes.
    Hole = 3,
}

/// A last chunk with extents, each with its length in bytes.
pub fn status_chunk(out: &mut Vec<u8>, cookie: Cookie, extents: &[(u32, Status)]) {
    let length = 4 + 8 * extents.len();
    out.extend_from_slice(&chunk(ChunkFollows::Done, ChunkType::BlockStatus, cookie, length as u32));
    out.extend_from_slice(&ALLOCATION_CONTEXT.to_be_bytes());
    for (bytes, status) in extents {
        out.extend_from_slice(&bytes.to_be_bytes());
        out.extend_from_slice(&(*status as u32).to_be_bytes());
    }
}

/// Lays fields one behind the other.
fn put(mut to: &mut [u8], fields: &[&[u8]]) {
    for field in fields {
        if let Some(here) = to.split_off_mut(..field.len()) {
            here.copy_from_slice(field);
        }
    }
}
