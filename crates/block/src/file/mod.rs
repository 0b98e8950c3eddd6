//! A regular file or a real device.
//!
//! Every call is one `pread` or `pwrite` on the caller's thread, repeated until all is done. Calls at once come from
//! the callers' threads; [`Geometry::queue_depth`] says how many are worth it.
//!
//! Why not io_uring: the interface is one blocking call per transfer. So a ring would hold one entry at a time, and
//! cost a submission, a wait and a lock where `pread` costs one system call. Measured with random reads of 4 KiB from a
//! virtual disk with O_DIRECT: one thread with a ring of n entries against n threads with `pread`. The ring reached 0.9
//! to 1.0 of their rate at 4 entries, and 0.8 to 0.9 at 16 and 32. It took about half of their processor time (4
//! instead of 7 us a read).
//!
//! What makes a write durable, and when:
//! 1. [`Durability::Cached`]: `pwrite`; the page cache or the disk's own cache may hold it.
//! 2. [`Durability::Through`]: `pwritev2` with RWF_DSYNC, for that range alone; `fdatasync` after it where the file
//!    system lacks that.
//! 3. [`BlockDevice::flush`]: `fdatasync`, which also empties the disk's cache.
//!
//! Linux reports a failed write-back once, to the first caller that asks, and forgets the pages. So steps 2 and 3 take
//! turns, and the first failure poisons the device: it refuses writes and flushes for as long as it is open. Reads go
//! on. A flush also fails when another program has made a file shorter.
//!
//! Direct I/O (O_DIRECT) needs aligned memory; other memory goes through an aligned buffer, at most 1 MiB at a time.

mod access;
mod buffer;
mod byte_locks;
mod error;
mod extents;
mod holder;
mod kernel;
mod open;
mod transfer;
mod zeroes;

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use umbrella_units::{Lba, SECTOR_BYTES, SectorRange};

pub use crate::device::Allocation;
pub use access::Access;
pub use buffer::{ALIGNMENT, AlignedBuffer};
pub use error::OpenError;
pub use extents::Extents;
pub use holder::Holder;
pub use open::{Cache, OpenOptions};

use crate::device::{BlockDevice, Durability, Geometry, Zeroes};
use crate::error::{BlockError, Operation, with_remedy};
use transfer::{Sync, Transfer};
use zeroes::Fallback;

/// What kind of file holds the sectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Regular,
    Block,
}

/// See the module.
#[derive(Debug)]
pub struct FileDevice {
    name: Arc<str>,
    kind: Kind,
    access: Access,
    cache: Cache,
    geometry: Geometry,
    /// Sectors, if there are more by now than at the opening.
    grown: AtomicU64,
    transfer: Transfer,
    /// Held by the call that may be the one to learn of a failed write-back, until the others can see it too.
    turn: Mutex<()>,
    flushes_begun: AtomicU64,
    /// Reads that failed.
    failed_reads: AtomicU64,
    /// The first sector of the last of them.
    failed_at: AtomicU64,
    poison: OnceLock<BlockError>,
}

/// Reads that failed since a device was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailedReads {
    /// How many.
    pub count: u64,
    /// Where the last of them began.
    pub last: Lba,
}

impl FileDevice {
    /// Which file it is, for people.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it may be written.
    pub fn access(&self) -> Access {
        self.access
    }

    /// What the transfers go through; [`Cache::Page`] also where direct I/O was asked for and the file system refused
    /// it.
    pub fn cache(&self) -> Cache {
        self.cache
    }

    /// Reads that failed; `None` if all were done.
    pub fn failed_reads(&self) -> Option<FailedReads> {
        let count = self.failed_reads.load(Ordering::Relaxed);
        (count > 0).then(|| FailedReads { count, last: Lba(self.failed_at.load(Ordering::Relaxed)) })
    }

    fn failed_read(&self, range: SectorRange, source: io::Error) -> BlockError {
        self.failed_at.store(range.start.0, Ordering::Relaxed);
        self.failed_reads.fetch_add(1, Ordering::Relaxed);
        self.failed(Operation::Read, Some(range), source)
    }

    fn failed(&self, operation: Operation, range: Option<SectorRange>, source: io::Error) -> BlockError {
        BlockError::io(&self.name, operation, range, source)
    }

    /// Refuses when the device may not be written (any more).
    fn writable(&self) -> Result<(), BlockError> {
        if self.access == Access::ReadOnly {
            return Err(BlockError::ReadOnly { device: Arc::clone(&self.name) });
        }
        self.poison.get().map_or(Ok(()), |poison| Err(poison.clone()))
    }

    /// Runs what can consume the one report of a failed write-back; a failure poisons.
    fn durably(
        &self,
        operation: Operation,
        range: Option<SectorRange>,
        run: impl FnOnce() -> io::Result<()>,
    ) -> Result<(), BlockError> {
        run().map_err(|source| {
            let reason = Arc::from(with_remedy(&source));
            let poison = BlockError::Poisoned { device: Arc::clone(&self.name), operation, reason };
            // An earlier poison stays: it names the first failure.
            let _ = self.poison.set(poison);
            self.failed(operation, range, source)
        })
    }

    fn sync(&self) -> Result<(), BlockError> {
        self.durably(Operation::Flush, None, || {
            self.transfer.sync()?;
            self.refuse_cut()
        })
    }

    /// Fails if another program has cut the file: a write beyond its new end makes it longer again, with zeroes in
    /// place of the removed part.
    fn refuse_cut(&self) -> io::Result<()> {
        let is_cut = self.kind == Kind::Regular
            && open::size(self.as_fd(), self.kind)?.0 < self.geometry().capacity.0.saturating_mul(SECTOR_BYTES);
        if is_cut {
            Err(io::Error::new(io::ErrorKind::UnexpectedEof, "another program has made the file shorter"))
        } else {
            Ok(())
        }
    }
}

impl AsFd for FileDevice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.transfer.as_fd()
    }
}

impl Drop for FileDevice {
    /// A process that is being started here has a copy of the descriptor for a moment, and would keep the locks.
    fn drop(&mut self) {
        open::unlock(self.as_fd());
    }
}

impl BlockDevice for FileDevice {
    fn geometry(&self) -> Geometry {
        let capacity = self.geometry.capacity.max(Lba(self.grown.load(Ordering::Acquire)));
        Geometry { capacity, ..self.geometry }
    }

    fn refresh(&self) -> Result<(), BlockError> {
        let failed = |source| self.failed(Operation::Open, None, source);
        let size = open::size(self.as_fd(), self.kind).map_err(failed)?;
        let block = u64::from(self.geometry.logical_block) / SECTOR_BYTES;
        self.grown.fetch_max(size.0 / SECTOR_BYTES / block * block, Ordering::AcqRel);
        Ok(())
    }

    fn read(&self, at: Lba, buffer: &mut [u8]) -> Result<(), BlockError> {
        let range = self.geometry().check(at, buffer.len())?;
        self.transfer.read(offset(at), buffer).map_err(|source| self.failed_read(range, source))
    }

    fn write(&self, at: Lba, data: &[u8], durability: Durability) -> Result<(), BlockError> {
        let range = self.geometry().check(at, data.len())?;
        self.writable()?;
        match durability {
            Durability::Cached => self
                .transfer
                .write(offset(at), data, Sync::No)
                .map_err(|source| self.failed(Operation::Write, Some(range), source)),
            Durability::Through => {
                let _turn = self.turn.lock();
                self.writable()?;
                self.durably(Operation::Write, Some(range), || self.transfer.write(offset(at), data, Sync::Range))
            }
        }
    }

    fn flush(&self) -> Result<(), BlockError> {
        if self.access == Access::ReadOnly {
            return Ok(());
        }
        let begun = self.flushes_begun.load(Ordering::Acquire);
        let _turn = self.turn.lock();
        self.writable()?;
        if self.flushes_begun.load(Ordering::Acquire) > begun {
            return Ok(()); // One that began after this call did has ended well, and covers all that this one was to cover.
        }
        self.flushes_begun.fetch_add(1, Ordering::AcqRel);
        self.sync()
    }

    fn discard(&self, range: SectorRange) -> Result<(), BlockError> {
        self.geometry().check_range(range)?;
        self.writable()?;
        self.deallocate(range).map_err(|source| self.failed(Operation::Discard, Some(range), source))
    }

    fn has_extents(&self) -> bool {
        self.kind == Kind::Regular
    }

    fn first_extent(&self, range: SectorRange) -> Result<(SectorRange, Allocation), BlockError> {
        self.geometry().check_range(range)?;
        self.extent(range)
    }

    fn write_zeroes(&self, range: SectorRange, zeroes: Zeroes, durability: Durability) -> Result<(), BlockError> {
        self.geometry().check_range(range)?;
        self.writable()?;
        self.zero(range, zeroes, Fallback::WriteThem)
            .map_err(|source| self.failed(Operation::Write, Some(range), source))?;
        if durability == Durability::Through {
            let _turn = self.turn.lock();
            self.writable()?;
            self.sync()?;
        }
        Ok(())
    }
}

/// Where a sector of the device begins in its file, in bytes.
fn offset(at: Lba) -> u64 {
    at.0.saturating_mul(SECTOR_BYTES)
}
