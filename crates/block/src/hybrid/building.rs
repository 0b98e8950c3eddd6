//! The record that is being put together.

use umbrella_units::{SECTOR_BYTES, SectorRange};

use super::format::{BLOCK_BYTES, Content, Entry, Header, MOST_DATA, MOST_ENTRIES, record_sectors};
use crate::device::Zeroes;

/// What is to be written.
#[derive(Debug, Clone, Copy)]
pub(super) enum Payload<'a> {
    Data(&'a [u8]),
    Zeroes(Zeroes),
}

/// A write that fits into one record, with its checksum.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece<'a> {
    pub(super) range: SectorRange,
    pub(super) payload: Payload<'a>,
    content: Content,
}

impl<'a> Piece<'a> {
    /// The checksum is made here, before any lock is taken.
    pub(super) fn new(range: SectorRange, payload: Payload<'a>) -> Piece<'a> {
        let content = match payload {
            Payload::Data(data) => Content::Data(crc32c::crc32c(data)),
            Payload::Zeroes(_) => Content::Zeroes,
        };
        Piece { range, payload, content }
    }

    /// Sectors of data.
    pub(super) fn data(&self) -> u64 {
        match self.payload {
            Payload::Data(_) => self.range.sectors,
            Payload::Zeroes(_) => 0,
        }
    }
}

/// Writes that will be one record.
#[derive(Debug, Default)]
pub(super) struct Building {
    zeroes: Vec<Entry>,
    entries: Vec<Entry>,
    /// Room for the header, then the data.
    bytes: Vec<u8>,
    data: u64,
}

impl Building {
    pub(super) fn is_empty(&self) -> bool {
        self.zeroes.is_empty() && self.entries.is_empty()
    }

    /// Whether one more fits into the record.
    pub(super) fn fits(&self, piece: &Piece<'_>) -> bool {
        self.zeroes.len() + self.entries.len() < MOST_ENTRIES && self.data + piece.data() <= MOST_DATA
    }

    /// Sectors of the record, with so much data more.
    pub(super) fn sectors_with(&self, data: u64) -> u64 {
        record_sectors(self.data + data)
    }

    pub(super) fn add(&mut self, piece: &Piece<'_>) {
        let entry = Entry { range: piece.range, content: piece.content };
        match piece.payload {
            Payload::Zeroes(_) => self.zeroes.push(entry),
            Payload::Data(data) => {
                if self.bytes.is_empty() {
                    self.bytes.resize(BLOCK_BYTES, 0);
                }
                self.entries.push(entry);
                self.bytes.extend_from_slice(data);
                self.data += piece.range.sectors;
            }
        }
    }

    /// Empty, with the memory of another one that is done.
    pub(super) fn reuse(mut bytes: Vec<u8>) -> Building {
        bytes.clear();
        Building { bytes, ..Building::default() }
    }

    /// The record's header, which has its entries now, and all of its bytes.
    pub(super) fn finish(mut self, header: Header) -> (Header, Vec<u8>) {
        let mut entries = self.zeroes;
        entries.append(&mut self.entries);
        let header = Header { entries, ..header };
        self.bytes.resize((header.sectors() * SECTOR_BYTES) as usize, 0);
        if let Some(first) = self.bytes.first_chunk_mut::<BLOCK_BYTES>() {
            first.copy_from_slice(&header.encode());
        }
        (header, self.bytes)
    }
}
