//! What becomes dirty on one file system, page by page, as the kernel tells it.
//!
//! The programs are attached from [`Source::watch`] until the source is dropped; when the process dies, the kernel takes
//! them away.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;

use rustix::fs::Dev;
use umbrella_units::{ByteSize, FileId, Nanos, PageIndex, Pages};

use super::btf::Btf;
use super::error::BpfError;
use super::program::{self, COUNTERS, KEY, KernelDevice, Layout, Maps, RECORD};
use super::sys::{self, Map, MapKind, MapShape, Mapping, Refusal};

const DIRTIED: &str = "writeback_dirty_folio";
const WRITTEN: &str = "sb_clear_inode_writeback";

/// Files that are noted while the ring is full.
const OVERFLOWED: u32 = 16 << 10;
/// Bits of a record's head: being written, to be passed over.
const BUSY: u32 = 1 << 31;
const DISCARDED: u32 = 1 << 30;

/// A file of the file system that is watched: an inode number is used again, its generation is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileKey {
    /// The inode number.
    pub file: FileId,
    /// The inode's generation.
    pub generation: u32,
}

/// What the kernel told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// Pages that were clean, or not in memory, are dirty. A write to pages that are dirty already is not told.
    Dirtied {
        /// Of which file.
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

/// What could not be told since the begin.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lost {
    /// Records for which the ring had no room.
    pub records: u64,
    /// Of these, records whose file could not be noted either.
    pub unnoted: u64,
}

/// See the module.
pub struct Source {
    ring: Mapping,
    counters: Map,
    overflowed: Map,
    _programs: [OwnedFd; 2],
}

impl Source {
    /// Watches the file system with this device number (`s_dev`, as `/proc/self/mountinfo` shows it) through a ring of at
    /// least so many bytes.
    pub fn watch(device: Dev, ring: ByteSize) -> Result<Source, BpfError> {
        let btf = Btf::of_kernel()?;
        let layout = Layout::of(&btf)?;
        let tracepoints = [btf.tracepoint(DIRTIED)?, btf.tracepoint(WRITTEN)?];
        let page = rustix::param::page_size() as u64;
        let size = ByteSize(ring.0.clamp(page, 1 << 30).next_power_of_two());

        let map = |step, kind, key_bytes: usize, value_bytes: usize, entries| {
            let shape = MapShape { kind, key_bytes: key_bytes as u32, value_bytes: value_bytes as u32, entries };
            Map::new(shape).map_err(|source| BpfError::of_call(step, source))
        };
        let ring = map("making the ring", MapKind::Ring, 0, 0, size.0 as u32)?;
        let counters = map("making the counters", MapKind::Array, 4, COUNTERS, 1)?;
        let overflowed = map("making the table of files", MapKind::Hash, KEY, 8, OVERFLOWED)?;
        let mapping =
            Mapping::new(ring.as_fd(), size).map_err(|source| BpfError::of_call("mapping the ring", source))?;

        let device = KernelDevice(rustix::fs::major(device) << 20 | rustix::fs::minor(device));
        let maps = Maps { ring: ring.as_fd(), counters: counters.as_fd(), overflowed: overflowed.as_fd() };
        let [dirtied, written] = tracepoints;
        let attach = |tracepoint: &'static str, id, words: Vec<u64>| {
            sys::attach("umbrella", id, &words).map_err(|refusal| refused(tracepoint, refusal))
        };
        let programs = [
            attach(DIRTIED, dirtied, program::dirtied(&layout, device, maps))?,
            attach(WRITTEN, written, program::written(&layout, device, maps))?,
        ];
        Ok(Source { ring: mapping, counters, overflowed, _programs: programs })
    }

    /// Hands over up to `most` things that were seen, in the order in which they happened on each processor; how many.
    pub fn drain(&mut self, most: usize, mut take: impl FnMut(Seen)) -> usize {
        let end = self.ring.written_to().load(Ordering::Acquire);
        let mut position = self.ring.read_to().load(Ordering::Relaxed);
        let mut taken = 0;
        while position < end && taken < most {
            let head = self.ring.head(position).load(Ordering::Acquire);
            if head & BUSY != 0 {
                break;
            }
            if head & DISCARDED == 0
                && let Some(seen) = program::read(&self.ring.record::<RECORD>(position))
            {
                take(seen);
            }
            taken += 1;
            position += (u64::from(head & !DISCARDED) + 8).next_multiple_of(8);
            self.ring.read_to().store(position, Ordering::Release);
        }
        taken
    }

    /// What was lost so far.
    pub fn lost(&self) -> io::Result<Lost> {
        let counters = self.counters.value(&0_u32.to_ne_bytes())?;
        let word = |at: usize| Some(u64::from_ne_bytes(counters.get(at..at + 8)?.try_into().ok()?));
        Ok(Lost { records: word(0).unwrap_or(0), unnoted: word(8).unwrap_or(0) })
    }

    /// Takes up to `most` of the files of which something was lost.
    pub fn overflowed(&mut self, most: usize) -> io::Result<Vec<FileKey>> {
        let mut files = Vec::new();
        while files.len() < most
            && let Some(key) = self.overflowed.first_key()?
        {
            // First taken out, then looked through: what is lost in between notes the file again.
            self.overflowed.remove(&key)?;
            files.extend(program::read_key(&key));
        }
        Ok(files)
    }
}

fn refused(tracepoint: &'static str, refusal: Refusal) -> BpfError {
    match refusal.error.raw_os_error() {
        Some(libc::EPERM) => BpfError::NotPermitted { step: "loading a program" },
        _ => BpfError::Refused { tracepoint, source: refusal.error, log: refusal.log },
    }
}
