//! What the programs in the kernel leave behind, as it is read; `dirty_pages.bpf.c` declares it.

use umbrella_units::{FileId, Nanos, PageIndex, Pages};

/// In place of a folio's order.
const WRITTEN: u32 = 0x100;
/// No folio is larger: 2^20 pages are 4 GiB.
const HIGHEST_ORDER: u32 = 20;

/// A file of the file system that is watched: an inode number is used again, its generation is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileKey {
    /// The inode number.
    pub file: FileId,
    /// The inode's generation.
    pub generation: u32,
}

/// A report of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KernelReport {
    /// Pages that were clean, or not in memory, are dirty. A write to pages that are already dirty is not reported.
    Dirtied {
        /// The file.
        file: FileKey,
        /// The first page.
        first: PageIndex,
        /// How many: the kernel keeps account of a large folio as a whole.
        pages: Pages,
        /// When, on the monotonic clock.
        at: Nanos,
    },
    /// Nothing of the file is on its way to disk any more: some of its pages were written.
    Written {
        /// Which file.
        file: FileKey,
        /// When.
        at: Nanos,
    },
}

/// Events that could not be reported since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LostEvents {
    /// Records for which the ring had no room.
    pub records: u64,
    /// Of these, records whose file could not be noted either.
    pub unnoted: u64,
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// Parses a `struct record`. `None` if no BPF program writes such a record.
pub(super) fn parse(record: &[u8]) -> Option<KernelReport> {
    let (file, what) = (key(record)?, word(record, 12)?);
    let (index, at) = (long(record, 16)?, Nanos(long(record, 24)?));
    match what {
        order @ 0..=HIGHEST_ORDER => {
            Some(KernelReport::Dirtied { file, first: PageIndex(index), pages: Pages(1 << order), at })
        }
        WRITTEN => Some(KernelReport::Written { file, at }),
        _ => None,
    }
}

/// The file that a `struct key` names.
pub(super) fn key(key: &[u8]) -> Option<FileKey> {
    Some(FileKey { file: FileId(long(key, 0)?), generation: word(key, 8)? })
}

/// The counters.
pub(super) fn lost(counters: &[u8]) -> Option<LostEvents> {
    Some(LostEvents { records: long(counters, 0)?, unnoted: long(counters, 8)? })
}
