//! The log's bytes. A header of 16 bytes: magic, version (u32), CRC32C of those. Then records of 64 bytes, each closed
//! by the CRC32C of its first 60. All integers are little endian:
//!
//! | bytes | what |
//! | --- | --- |
//! | 0 | kind: 1 assign, 2 forget, 3 lent, 4 returned, 5 high water |
//! | 1 | flags: 1 shared, 2 has a birth time, 4 has a guard, 8 a fill level moved it |
//! | 2-3 | zero |
//! | 4-7 | hops |
//! | 8-15, 16-23 | foreign device, inode number on the branch |
//! | 24-31 | number, or the counter of a high water |
//! | 32-39, 48-51 | birth time as users see it: seconds, nanoseconds |
//! | 40-47, 52-55 | guard: birth time of the file on the branch |
//! | 56-59 | sum of the change time that the file had when a fill level had moved it; else zero |
//!
//! Older logs never have the flag 8, and older readers ignore it.

use umbrella_units::Timestamp;

const MAGIC: [u8; 8] = *b"UMBINODE";
const VERSION: u32 = 1;
/// Bytes before the first record.
pub(super) const HEADER: usize = 16;
/// Bytes of a record.
pub(super) const RECORD: usize = 64;
const BODY: usize = RECORD - 4;

const SHARED: u8 = 1;
const HAS_BORN: u8 = 2;
const HAS_GUARD: u8 = 4;
const EVICTED: u8 = 8;

/// What the map knows of one file that does not have the number of its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InodeEntry {
    /// The number users see.
    pub number: u64,
    /// How often the file moved: of two entries with one number, left by a crash, the one with more moves is right.
    pub hops: u32,
    /// Others may show the number too: copies of one directory.
    pub shared: bool,
    /// Birth time as users see it.
    pub born: Option<Timestamp>,
    /// Birth time of the file on the branch: another one there means another file.
    pub guard: Option<Timestamp>,
    /// A fill level moved it there: a sum of the change time that it had then.
    pub evicted: Option<u32>,
}

/// One step in the life of a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record {
    /// The file has this entry.
    Assign {
        /// Foreign device.
        dev: u64,
        /// Inode number on the branch.
        ino: u64,
        /// Its entry.
        entry: InodeEntry,
    },
    /// The file has the number of its place again, or is gone.
    Forget {
        /// Foreign device.
        dev: u64,
        /// Inode number on the branch.
        ino: u64,
    },
    /// A number of this branch's range is shown by a file elsewhere.
    Lent(u64),
    /// It is not any more.
    Returned(u64),
    /// Counters below this may have been used.
    HighWater(u64),
}

/// A log, read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decoded {
    /// In order, up to the first that is damaged.
    pub records: Vec<Record>,
    /// How many bytes of the log are good.
    pub good: usize,
}

/// Why nothing of a log can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// Not a log, or damaged.
    #[error("it does not begin like a log of inode numbers")]
    Damaged,
    /// From a newer program.
    #[error("its version is {0}, and this program knows {VERSION}")]
    Version(u32),
}

/// The bytes a log begins with.
pub(super) fn header() -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    let crc = crc32c::crc32c(&bytes[..12]);
    bytes[12..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// Reads a log. Never panics; an empty log, or a header that was cut short, is a log without records.
pub fn decode(bytes: &[u8]) -> Result<Decoded, HeaderError> {
    let Some((head, body)) = bytes.split_at_checked(HEADER) else {
        let begun = header().starts_with(bytes);
        return if begun { Ok(Decoded { records: Vec::new(), good: 0 }) } else { Err(HeaderError::Damaged) };
    };
    if head.get(..8) != Some(&MAGIC) || u32_at(head, 12) != crc32c::crc32c(head.get(..12).unwrap_or_default()) {
        return Err(HeaderError::Damaged);
    }
    match u32_at(head, 8) {
        VERSION => {}
        other => return Err(HeaderError::Version(other)),
    }
    let records: Vec<Record> = body.chunks_exact(RECORD).map_while(decode_record).collect();
    Ok(Decoded { good: HEADER + records.len() * RECORD, records })
}

/// Reads one record of [`RECORD`] bytes.
pub(super) fn decode_record(bytes: &[u8]) -> Option<Record> {
    let body = bytes.get(..BODY)?;
    if u32_at(bytes, BODY) != crc32c::crc32c(body) {
        return None;
    }
    let (&kind, &flags) = (body.first()?, body.get(1)?);
    let (dev, ino, number) = (u64_at(body, 8), u64_at(body, 16), u64_at(body, 24));
    let time = |flag: u8, secs: usize, nanos: usize| {
        (flags & flag != 0).then(|| Timestamp { secs: u64_at(body, secs) as i64, nanos: u32_at(body, nanos) })
    };
    Some(match kind {
        1 => Record::Assign {
            dev,
            ino,
            entry: InodeEntry {
                number,
                hops: u32_at(body, 4),
                shared: flags & SHARED != 0,
                born: time(HAS_BORN, 32, 48),
                guard: time(HAS_GUARD, 40, 52),
                evicted: (flags & EVICTED != 0).then(|| u32_at(body, 56)),
            },
        },
        2 => Record::Forget { dev, ino },
        3 => Record::Lent(number),
        4 => Record::Returned(number),
        5 => Record::HighWater(number),
        _ => return None,
    })
}

/// The bytes of a record.
pub(super) fn encode(record: &Record) -> [u8; RECORD] {
    let mut bytes = [0; RECORD];
    let mut put = |at: usize, value: &[u8]| {
        if let Some(room) = bytes.get_mut(at..at + value.len()) {
            room.copy_from_slice(value);
        }
    };
    let kind = match record {
        Record::Assign { dev, ino, entry } => {
            put(8, &dev.to_le_bytes());
            put(16, &ino.to_le_bytes());
            put(24, &entry.number.to_le_bytes());
            put(4, &entry.hops.to_le_bytes());
            let mut flags = if entry.shared { SHARED } else { 0 };
            for (flag, time, secs, nanos) in [(HAS_BORN, entry.born, 32, 48), (HAS_GUARD, entry.guard, 40, 52)] {
                if let Some(time) = time {
                    flags |= flag;
                    put(secs, &time.secs.to_le_bytes());
                    put(nanos, &time.nanos.to_le_bytes());
                }
            }
            if let Some(mark) = entry.evicted {
                flags |= EVICTED;
                put(56, &mark.to_le_bytes());
            }
            put(1, &[flags]);
            1
        }
        Record::Forget { dev, ino } => {
            put(8, &dev.to_le_bytes());
            put(16, &ino.to_le_bytes());
            2
        }
        Record::Lent(number) => {
            put(24, &number.to_le_bytes());
            3
        }
        Record::Returned(number) => {
            put(24, &number.to_le_bytes());
            4
        }
        Record::HighWater(counter) => {
            put(24, &counter.to_le_bytes());
            5
        }
    };
    put(0, &[kind]);
    let crc = crc32c::crc32c(&bytes[..BODY]);
    bytes[BODY..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let word = bytes.get(at..at + 4).and_then(|word| word.try_into().ok());
    u32::from_le_bytes(word.unwrap_or_default())
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let word = bytes.get(at..at + 8).and_then(|word| word.try_into().ok());
    u64::from_le_bytes(word.unwrap_or_default())
}
