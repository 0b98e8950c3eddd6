//! A record of the log: its header, a block, and the data behind it.
//!
//! ```text
//! header  0     magic, version, number of entries
//!         16    flash, epoch, sequence, place, certain mark
//!         64    promised mark, number of addresses of the record before (all ones: not known), 4 bytes unused
//!         80    entries, 24 bytes each: address, length, checksum, kind
//!               addresses of the record before, 16 bytes each
//! ```
//!
//! A record without entries is a mark: it says how far the log is whole. See [`super::super::recover`] for what the
//! marks prove.

use umbrella_policy::flash_cache::{LogSector, Logged, Source};
use umbrella_units::{Lba, SECTOR_BYTES, SectorRange};
use uuid::Uuid;

use super::{BLOCK, BLOCK_BYTES, Damage, Epoch, FIRST_VERSION, Fields, MOST_DATA, RecordNo, begin, open, seal};

pub(super) const MAGIC: [u8; 8] = *b"UMBRECRD";
const HEADER_BYTES: usize = 80;
const ENTRY_BYTES: usize = 24;
pub(super) const ADDRESS_BYTES: usize = 16;
const ADDRESSES_UNKNOWN: u32 = u32::MAX;
/// Room for entries and addresses.
const ROOM: usize = BLOCK_BYTES - HEADER_BYTES - 4;
/// The most entries of a record: with the addresses of as many of the record before it they fill the header.
pub(in crate::hybrid) const MOST_ENTRIES: usize = ROOM / (ENTRY_BYTES + ADDRESS_BYTES);

/// What an entry says of its sectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::hybrid) enum Content {
    /// Data, behind the header; its checksum.
    Data(u32),
    /// They are zeroes.
    Zeroes,
    /// What was there is lost. It takes its place in the record, and says nothing of the disk.
    Lost,
}

/// A write in a record, or a part of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::hybrid) struct RecordEntry {
    /// Where it belongs.
    pub(in crate::hybrid) range: SectorRange,
    pub(in crate::hybrid) content: Content,
}

/// How far the log was whole when a record was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::hybrid) struct Marks {
    /// Records up to this number were durable: a flush of them had been answered.
    pub(in crate::hybrid) certain: RecordNo,
    /// Records up to this number are durable once the flush is answered that was under way. Not more than the record's
    /// own number.
    pub(in crate::hybrid) promised: RecordNo,
}

/// The header of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::hybrid) struct Header {
    /// The flash that it was written to.
    pub(in crate::hybrid) flash: Uuid,
    /// The opening in which it was written.
    pub(in crate::hybrid) epoch: Epoch,
    /// Its number: one more than that of the record before it.
    pub(in crate::hybrid) sequence: RecordNo,
    /// Where it was written.
    pub(in crate::hybrid) at: LogSector,
    pub(in crate::hybrid) marks: Marks,
    /// Its writes: zeroes first, then those with data in the order of their data.
    pub(in crate::hybrid) entries: Vec<RecordEntry>,
    /// The addresses of the record before it, so that they are known if that is damaged. `None` if they are not known.
    pub(in crate::hybrid) before: Option<Vec<SectorRange>>,
}

impl Header {
    /// Reads one, and nothing that does not fit into a record.
    pub(in crate::hybrid) fn decode(bytes: &[u8]) -> Result<Header, Damage> {
        let mut fields = open(bytes, BLOCK_BYTES, MAGIC)?;
        let count = fields.u32()? as usize;
        let flash = fields.uuid()?;
        let (epoch, sequence, at, certain) =
            (Epoch(fields.u64()?), RecordNo(fields.u64()?), LogSector(fields.u64()?), RecordNo(fields.u64()?));
        let (promised, addresses) = (RecordNo(fields.u64()?), fields.u32()?);
        fields.u32()?;
        let is_first_version = fields.version == FIRST_VERSION;
        let addresses = (!is_first_version && addresses != ADDRESSES_UNKNOWN).then_some(addresses as usize);
        let fits = |count: usize, addresses: usize| {
            count <= ROOM / ENTRY_BYTES
                && addresses <= ROOM / ADDRESS_BYTES
                && count * ENTRY_BYTES + addresses * ADDRESS_BYTES <= ROOM
        };
        if !fits(count, addresses.unwrap_or(0)) || is_first_version && count == 0 {
            return Err(Damage::Field);
        }
        let entries = (0..count).map(|_| decode_entry(&mut fields)).collect::<Result<Vec<RecordEntry>, Damage>>()?;
        let before = addresses.map(|count| (0..count).map(|_| range(&mut fields)).collect::<Result<Vec<_>, Damage>>());
        let marks = Marks { certain, promised: if is_first_version { certain } else { promised } };
        let header = Header { flash, epoch, sequence, at, marks, entries, before: before.transpose()? };
        let sound = header.data() <= MOST_DATA
            && at.0.is_multiple_of(BLOCK)
            && [at.0, sequence.0, epoch.0].iter().all(|&counter| counter < 1 << 62)
            && marks.promised <= sequence.max(certain)
            && header.entries.is_sorted_by_key(RecordEntry::takes_room);
        if !sound {
            return Err(Damage::Field);
        }
        Ok(header)
    }

    /// As it is written, a block. Addresses that do not fit beside the entries are left out.
    pub(in crate::hybrid) fn encode(&self) -> Vec<u8> {
        let mut bytes = begin(MAGIC);
        bytes.extend_from_slice(&(self.entries.len() as u32).to_le_bytes());
        bytes.extend_from_slice(self.flash.as_bytes());
        let marks = [self.marks.certain.0, self.marks.promised.0];
        for number in [self.epoch.0, self.sequence.0, self.at.0].into_iter().chain(marks) {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        let fits = |before: &&Vec<SectorRange>| self.entries.len() * ENTRY_BYTES + before.len() * ADDRESS_BYTES <= ROOM;
        let before = self.before.as_ref().filter(fits);
        bytes.extend_from_slice(&before.map_or(ADDRESSES_UNKNOWN, |before| before.len() as u32).to_le_bytes());
        bytes.resize(HEADER_BYTES, 0);
        for entry in &self.entries {
            let (checksum, kind): (u32, u32) = match entry.content {
                Content::Data(checksum) => (checksum, 0),
                Content::Zeroes => (0, 1),
                Content::Lost => (0, 2),
            };
            bytes.extend_from_slice(&address(entry.range));
            bytes.extend_from_slice(&checksum.to_le_bytes());
            bytes.extend_from_slice(&kind.to_le_bytes());
        }
        for range in before.into_iter().flatten() {
            bytes.extend_from_slice(&address(*range));
        }
        seal(bytes, BLOCK_BYTES)
    }

    /// Sectors of data.
    pub(in crate::hybrid) fn data(&self) -> u64 {
        self.entries.iter().map(RecordEntry::data).fold(0, u64::saturating_add)
    }

    /// Sectors of the whole record.
    pub(in crate::hybrid) fn sectors(&self) -> u64 {
        record_sectors(self.data())
    }

    /// Where the next record may begin.
    pub(in crate::hybrid) fn end(&self) -> LogSector {
        LogSector(self.at.0 + self.sectors())
    }

    /// Whether it only says how far the log is whole.
    pub(in crate::hybrid) fn is_mark(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether it was written in the place of a damaged record.
    pub(in crate::hybrid) fn is_filler(&self) -> bool {
        self.is_blank() || self.lost().next().is_some()
    }

    /// Whether it replaces a header that was lost, and says nothing of its record. No other one has neither marks nor
    /// addresses of the record before: the first of an opening promises itself, and later ones have those addresses.
    pub(in crate::hybrid) fn is_blank(&self) -> bool {
        let none = Marks { certain: RecordNo(0), promised: RecordNo(0) };
        self.marks == none && self.before.is_none() && self.entries.iter().all(|entry| entry.content == Content::Lost)
    }

    /// The sectors that a filler says are lost.
    pub(in crate::hybrid) fn lost(&self) -> impl Iterator<Item = SectorRange> + '_ {
        self.entries.iter().filter(|entry| entry.content == Content::Lost).map(|entry| entry.range)
    }

    /// What it holds, as the next record repeats it.
    pub(in crate::hybrid) fn addresses(&self) -> Vec<SectorRange> {
        self.logged().map(|logged| logged.range).collect()
    }

    /// Each entry with where its data begins.
    fn placed(&self) -> impl Iterator<Item = (&RecordEntry, LogSector)> + '_ {
        let mut data = self.at.0 + BLOCK;
        self.entries.iter().map(move |entry| {
            let at = data;
            data += entry.data();
            (entry, LogSector(at))
        })
    }

    /// Its writes as the log keeps account of them: what lies one behind the other on the disk too is one.
    pub(in crate::hybrid) fn logged(&self) -> impl Iterator<Item = Logged> + '_ {
        // The header counts for the first that has data.
        let mut metadata = BLOCK as u32;
        let mut entries = self.placed().peekable();
        std::iter::from_fn(move || {
            loop {
                let (entry, at) = entries.next()?;
                let mut range = entry.range;
                match entry.content {
                    Content::Lost => {}
                    Content::Zeroes => return Some(Logged { range, source: Source::Zeroes(self.at), metadata: 0 }),
                    Content::Data(_) => {
                        let continues = |next: &RecordEntry, end| {
                            matches!(next.content, Content::Data(_)) && next.range.start == end
                        };
                        while let Some((next, _)) = entries.next_if(|(next, _)| continues(next, range.end())) {
                            range.sectors += next.range.sectors;
                        }
                        let metadata = std::mem::take(&mut metadata);
                        return Some(Logged { range, source: Source::Log(at), metadata });
                    }
                }
            }
        })
    }

    /// The entries whose data is not what was written. `data` is what lies behind the header.
    fn is_damaged<'a>(&'a self, data: &'a [u8]) -> impl Iterator<Item = bool> + 'a {
        self.placed().map(move |(entry, at)| {
            let Content::Data(checksum) = entry.content else { return false };
            let from = ((at.0 - self.at.0 - BLOCK) * SECTOR_BYTES) as usize;
            let own = data.get(from..from + (entry.data() * SECTOR_BYTES) as usize);
            own.is_none_or(|own| crate::checksum::crc32c(own) != checksum)
        })
    }

    /// The sectors whose data is not what was written. `data` is what lies behind the header.
    pub(in crate::hybrid) fn damaged<'a>(&'a self, data: &'a [u8]) -> impl Iterator<Item = SectorRange> + 'a {
        self.entries.iter().zip(self.is_damaged(data)).filter_map(|(entry, damaged)| damaged.then_some(entry.range))
    }

    /// The blocks behind the header in which all is lost.
    pub(in crate::hybrid) fn lost_blocks(&self) -> impl Iterator<Item = LogSector> + '_ {
        let overlaps = |(entry, at): (&RecordEntry, LogSector), block: u64| {
            matches!(entry.content, Content::Data(_)) && at.0 < block + BLOCK && block < at.0 + entry.data()
        };
        let blocks = (self.at.0 + BLOCK..self.end().0).step_by(BLOCK as usize);
        blocks.filter(move |block| !self.placed().any(|placed| overlaps(placed, *block))).map(LogSector)
    }

    /// The same record without the entries whose data is not what was written.
    pub(in crate::hybrid) fn without_damaged(&self, data: &[u8]) -> Header {
        let mend = |(entry, damaged): (&RecordEntry, bool)| {
            if damaged { RecordEntry { content: Content::Lost, ..*entry } } else { *entry }
        };
        Header { entries: self.entries.iter().zip(self.is_damaged(data)).map(mend).collect(), ..self.clone() }
    }
}

impl RecordEntry {
    /// The entry that takes the place of `sectors` lost sectors of data.
    pub(in crate::hybrid) fn lost(sectors: u64) -> RecordEntry {
        RecordEntry { range: SectorRange { start: Lba(0), sectors }, content: Content::Lost }
    }

    /// Sectors of data in the record.
    pub(in crate::hybrid) fn data(&self) -> u64 {
        if self.takes_room() { self.range.sectors } else { 0 }
    }

    fn takes_room(&self) -> bool {
        self.content != Content::Zeroes
    }
}

fn decode_entry(fields: &mut Fields<'_>) -> Result<RecordEntry, Damage> {
    let range = range(fields)?;
    let (checksum, kind) = (fields.u32()?, fields.u32()?);
    let content = match kind {
        0 => Content::Data(checksum),
        1 => Content::Zeroes,
        2 if fields.version > FIRST_VERSION => Content::Lost,
        _ => return Err(Damage::Field),
    };
    Ok(RecordEntry { range, content })
}

pub(super) fn range(fields: &mut Fields<'_>) -> Result<SectorRange, Damage> {
    let range = SectorRange { start: Lba(fields.u64()?), sectors: fields.u64()? };
    let sound = range.sectors > 0 && range.start.0.checked_add(range.sectors).is_some_and(|end| end < 1 << 54);
    if sound { Ok(range) } else { Err(Damage::Field) }
}

pub(super) fn address(range: SectorRange) -> [u8; ADDRESS_BYTES] {
    (u128::from(range.start.0) | u128::from(range.sectors) << 64).to_le_bytes()
}

/// The size of a record with `data` sectors of data, in sectors.
pub(in crate::hybrid) fn record_sectors(data: u64) -> u64 {
    BLOCK + data.next_multiple_of(BLOCK)
}
