//! The record that is being put together.
//!
//! Each entry has a checksum, and what is wrong with it is lost as a whole should the log be damaged when it is opened.
//! So a long write is several entries: of a block each, or of as few as the header has room for (four blocks, in a
//! record of 1 MiB).

use umbrella_units::{Lba, SECTOR_BYTES, SectorRange};

use super::format::{BLOCK, BLOCK_BYTES, Content, Header, MOST_DATA, MOST_ENTRIES, RecordEntry, record_sectors};
use crate::device::Zeroes;

/// What is to be written.
#[derive(Debug, Clone, Copy)]
pub(super) enum WriteData<'a> {
    Data(&'a [u8]),
    Zeroes(Zeroes),
}

/// A write that fits into one record.
#[derive(Debug, Clone, Copy)]
pub(super) struct PendingWrite<'a> {
    pub(super) range: SectorRange,
    pub(super) payload: WriteData<'a>,
}

impl PendingWrite<'_> {
    /// Sectors of data.
    pub(super) fn data(&self) -> u64 {
        match self.payload {
            WriteData::Data(_) => self.range.sectors,
            WriteData::Zeroes(_) => 0,
        }
    }
}

/// Writes that will be one record.
#[derive(Debug, Default)]
pub(super) struct Building {
    zeroes: Vec<SectorRange>,
    /// Those with data.
    writes: Vec<SectorRange>,
    /// Room for the header, then the data.
    bytes: Vec<u8>,
    data: u64,
}

impl Building {
    pub(super) fn is_empty(&self) -> bool {
        self.zeroes.is_empty() && self.writes.is_empty()
    }

    /// Whether one more fits into the record.
    pub(super) fn fits(&self, piece: &PendingWrite<'_>) -> bool {
        self.zeroes.len() + self.writes.len() < MOST_ENTRIES && self.data + piece.data() <= MOST_DATA
    }

    /// The sectors of the record if this much data is added.
    pub(super) fn sectors_with(&self, data: u64) -> u64 {
        record_sectors(self.data + data)
    }

    pub(super) fn add(&mut self, piece: &PendingWrite<'_>) {
        match piece.payload {
            WriteData::Zeroes(_) => self.zeroes.push(piece.range),
            WriteData::Data(data) => {
                if self.bytes.is_empty() {
                    self.bytes.resize(BLOCK_BYTES, 0);
                }
                self.writes.push(piece.range);
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

    /// The record's header, which has its entries now, and all of its bytes. `None` if the data is not as long as the
    /// writes.
    pub(super) fn finish(mut self, header: Header) -> Option<(Header, Vec<u8>)> {
        let zeroes = self.zeroes.iter().map(|&range| RecordEntry { range, content: Content::Zeroes });
        // Without data there is no room for a header either yet.
        let mut data = self.bytes.get(BLOCK_BYTES..).unwrap_or_default();
        if data.len() as u64 != self.writes.iter().map(|write| write.bytes().0).sum::<u64>() {
            return None;
        }
        let parts = self.writes.iter().flat_map(|write| parts_of(*write, self.part_length()));
        let with_data = parts.map(|range| {
            let (own, rest) = data.split_at((range.sectors * SECTOR_BYTES) as usize);
            data = rest;
            RecordEntry { range, content: Content::Data(crate::checksum::crc32c(own)) }
        });
        let header = Header { entries: zeroes.chain(with_data).collect(), ..header };
        self.bytes.resize((header.sectors() * SECTOR_BYTES) as usize, 0);
        self.bytes.first_chunk_mut::<BLOCK_BYTES>()?.copy_from_slice(&header.encode());
        Some((header, self.bytes))
    }

    /// Sectors of the longest entry, so that all find room in the header.
    fn part_length(&self) -> u64 {
        let room = (MOST_ENTRIES - self.zeroes.len()) as u64;
        let fits = |length: &u64| self.writes.iter().map(|write| write.sectors.div_ceil(*length)).sum::<u64>() <= room;
        std::iter::successors(Some(BLOCK), |length| Some(2 * length))
            .find(|length| fits(length) || *length >= MOST_DATA)
            .unwrap_or(MOST_DATA)
    }
}

fn parts_of(write: SectorRange, length: u64) -> impl Iterator<Item = SectorRange> {
    (write.start.0..write.end().0).step_by(length as usize).map(move |start| {
        let end = (start + length).min(write.end().0);
        SectorRange::between(Lba(start), Lba(end))
    })
}
