//! Names for what is written: files that can be opened again, and ranges of their pages.

use std::os::fd::BorrowedFd;

use umbrella_units::{PAGE_BYTES, PageIndex, Pages};

/// Bytes that a handle has at most (`MAX_HANDLE_SZ`).
pub(crate) const HANDLE_BYTES: usize = 128;

/// What the kernel calls a file handle: names an inode of one file system for as long as it lives, without holding it
/// open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileHandle {
    pub(crate) kind: i32,
    pub(crate) bytes: Box<[u8]>,
}

impl FileHandle {
    /// The handle of an inode by number and generation (`FILEID_INO32_GEN`), as ext4 and xfs read it. `None` for
    /// numbers that do not fit in 32 bits.
    pub fn from_inode(ino: u64, generation: u32) -> Option<FileHandle> {
        const FILEID_INO32_GEN: i32 = 1;
        let ino = u32::try_from(ino).ok()?;
        let bytes = [ino.to_ne_bytes(), generation.to_ne_bytes()].concat().into_boxed_slice();
        Some(FileHandle { kind: FILEID_INO32_GEN, bytes })
    }
}

/// How a file that was written can be reached.
#[derive(Debug, Clone, Copy)]
pub enum FileRef<'a> {
    /// It is open.
    Open(BorrowedFd<'a>),
    /// By its handle.
    Handle(&'a FileHandle),
}

/// Adjacent pages of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageRange {
    /// The first page.
    pub first: PageIndex,
    /// How many pages.
    pub pages: Pages,
}

impl PageRange {
    /// The pages that hold `length` bytes from `offset` on; none for no byte. What lies beyond the last page that a
    /// file can have is left out.
    pub fn of_bytes(offset: u64, length: u64) -> PageRange {
        let first = offset / PAGE_BYTES;
        let end = offset.saturating_add(length).div_ceil(PAGE_BYTES);
        let pages = if length == 0 { 0 } else { end - first };
        PageRange { first: PageIndex(first), pages: Pages(pages) }
    }

    /// Its beginning, where it has more pages than `most`.
    #[must_use]
    pub(crate) fn no_longer_than(self, most: Pages) -> PageRange {
        PageRange { pages: self.pages.min(most), ..self }
    }

    /// The page behind the last.
    pub fn end(self) -> PageIndex {
        PageIndex(self.first.0.saturating_add(self.pages.0))
    }
}
