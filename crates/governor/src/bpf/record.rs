//! What the programs in the kernel leave behind, as it is read; `dirty_pages.bpf.c` declares it.

use umbrella_units::{FileId, Nanos, PageIndex, Pages};

use super::source::{FileKey, Lost, Seen};

/// In place of a folio's order.
const WRITTEN: u32 = 0x100;
/// No folio is larger: 2^20 pages are 4 GiB.
const HIGHEST_ORDER: u32 = 20;

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// What a `struct record` says; none for one that no program writes.
pub(super) fn seen(record: &[u8]) -> Option<Seen> {
    let (file, what) = (key(record)?, word(record, 12)?);
    let (index, at) = (long(record, 16)?, Nanos(long(record, 24)?));
    match what {
        order @ 0..=HIGHEST_ORDER => {
            Some(Seen::Dirtied { file, first: PageIndex(index), pages: Pages(1 << order), at })
        }
        WRITTEN => Some(Seen::Written { file, at }),
        _ => None,
    }
}

/// The file that a `struct key` names.
pub(super) fn key(key: &[u8]) -> Option<FileKey> {
    Some(FileKey { file: FileId(long(key, 0)?), generation: word(key, 8)? })
}

/// The counters.
pub(super) fn lost(counters: &[u8]) -> Option<Lost> {
    Some(Lost { records: long(counters, 0)?, unnoted: long(counters, 8)? })
}
