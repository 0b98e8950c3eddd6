//! The files that were written: how each can be reached, where it lies, when it was written last. Bounded: files
//! without dirty pages are forgotten when there are too many.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustc_hash::FxHashMap;
use umbrella_units::{BlockNo, FileId, Nanos, PageIndex};

use crate::file::{FileHandle, PageRange};
use crate::geometry::Geometry;
use crate::place::{Places, Promises};
use crate::recency::Life;
use crate::sys::Mapped;

/// Files known at most, and extents of all of them.
const MOST_FILES: usize = 1 << 16;
const MOST_EXTENTS: usize = 1 << 20;
/// Descriptors kept where the file system has no handles.
const MOST_KEPT: usize = 256;

/// How a file is opened for its write-back.
#[derive(Debug, Clone)]
pub(crate) enum Reach {
    /// By handle.
    Handle(FileHandle),
    /// It is kept open.
    Kept(Arc<OwnedFd>),
}

/// Counts the reported writes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WriteSequence(pub(crate) u64);

#[derive(Debug)]
pub(crate) struct WrittenFile {
    pub(crate) life: Life,
    pub(crate) reach: Reach,
    pub(crate) places: Places,
    /// The last write.
    pub(crate) written: WriteSequence,
    /// A write-back failed, and that was not reported yet.
    pub(crate) failed: bool,
}

/// The file system's answer to a question that a write may need before it can be noted.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) from: PageIndex,
    pub(crate) to: PageIndex,
    pub(crate) found: Vec<Mapped>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Files {
    known: FxHashMap<FileId, WrittenFile>,
    promises: Promises,
    lives: u64,
    kept: usize,
    extents: usize,
}

impl Files {
    pub(crate) fn new(geometry: Geometry) -> Files {
        Files { known: FxHashMap::default(), promises: Promises::new(geometry), lives: 0, kept: 0, extents: 0 }
    }

    pub(crate) fn get(&self, file: FileId) -> Option<&WrittenFile> {
        self.known.get(&file)
    }

    pub(crate) fn get_mut(&mut self, file: FileId) -> Option<&mut WrittenFile> {
        self.known.get_mut(&file)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (FileId, &WrittenFile)> {
        self.known.iter().map(|(file, known)| (*file, known))
    }

    /// The files with a failed write-back that was not reported yet; it counts as reported then.
    pub(crate) fn take_failed(&mut self) -> Vec<FileId> {
        let failed =
            self.known.iter_mut().filter_map(|(file, known)| std::mem::take(&mut known.failed).then_some(*file));
        failed.collect()
    }

    /// Whether another descriptor may be kept.
    pub(crate) fn may_keep(&self) -> bool {
        self.kept < MOST_KEPT
    }

    /// Adds a file. Does nothing if it is known already.
    pub(crate) fn add(&mut self, file: FileId, reach: Reach) {
        if self.known.contains_key(&file) {
            return;
        }
        self.lives += 1;
        self.kept += usize::from(matches!(reach, Reach::Kept(_)));
        let known = WrittenFile {
            life: Life(self.lives),
            reach,
            places: Places::default(),
            written: WriteSequence::default(),
            failed: false,
        };
        self.known.insert(file, known);
    }

    /// Whether files have to be forgotten before another comes.
    pub(crate) fn is_full(&self) -> bool {
        self.known.len() >= MOST_FILES || self.extents >= MOST_EXTENTS || self.kept >= MOST_KEPT
    }

    /// Forgets all files that need not be known.
    pub(crate) fn trim(&mut self, is_dirty: impl Fn(FileId) -> bool) {
        self.known.retain(|file, known| known.failed || is_dirty(*file));
        if self.extents >= MOST_EXTENTS {
            self.known.values_mut().for_each(|known| known.places.forget());
        }
        self.count();
    }

    pub(crate) fn remove(&mut self, file: FileId) {
        if let Some(known) = self.known.remove(&file) {
            self.kept -= usize::from(matches!(known.reach, Reach::Kept(_)));
            self.extents -= known.places.extents().len();
        }
    }

    /// Closes the descriptors of files that are not dirty.
    pub(crate) fn close_clean(&mut self, is_dirty: impl Fn(FileId) -> bool) {
        if self.kept > 0 {
            let idle = |file: FileId, known: &WrittenFile| matches!(known.reach, Reach::Kept(_)) && !is_dirty(file);
            self.known.retain(|file, known| known.failed || !idle(*file, known));
            self.count();
        }
    }

    fn count(&mut self) {
        self.extents = self.known.values().map(|known| known.places.extents().len()).sum();
        self.kept = self.known.values().filter(|known| matches!(known.reach, Reach::Kept(_))).count();
    }

    pub(crate) fn record_places(&mut self, file: FileId, answer: &Answer, now: Nanos) {
        let Some(known) = self.known.get_mut(&file) else { return };
        self.extents -= known.places.extents().len();
        known.places.record_places(answer.from, answer.to, &answer.found, now);
        self.extents += known.places.extents().len();
    }

    /// The file changed its length or its extents.
    pub(crate) fn cut(&mut self, file: FileId, from: PageIndex) {
        let Some(known) = self.known.get_mut(&file) else { return };
        self.extents -= known.places.extents().len();
        known.places.cut(from);
        self.extents += known.places.extents().len();
    }

    /// Nothing is known of the file's places any more.
    pub(crate) fn forget_places(&mut self, file: FileId) {
        let Some(known) = self.known.get_mut(&file) else { return };
        self.extents -= known.places.extents().len();
        known.places.forget();
    }

    pub(crate) fn block_of(&mut self, file: FileId, page: PageIndex) -> Option<BlockNo> {
        Some(self.known.get_mut(&file)?.places.block_of(file, page, &mut self.promises))
    }

    /// The first page from which the file system has to map the range; `None` if all its places are known.
    pub(crate) fn first_unmapped(&self, file: FileId, range: PageRange, now: Nanos) -> Option<PageIndex> {
        let last = PageIndex(range.end().0.saturating_sub(1));
        let Some(known) = self.known.get(&file) else { return Places::default().first_unmapped(range.first, now) };
        known.places.first_unmapped(range.first, now).or_else(|| known.places.first_unmapped(last, now))
    }

    pub(crate) fn bytes(&self) -> usize {
        self.known.capacity() * size_of::<(FileId, WrittenFile)>() + self.extents * size_of::<Mapped>()
    }
}

/// A few descriptors of files that are written back, the last used first. All are closed when there is nothing to do,
/// so that no deleted file keeps its space for long.
#[derive(Debug, Default)]
pub(crate) struct Opened {
    files: Vec<(FileId, Life, Arc<OwnedFd>)>,
}

/// Descriptors that are kept for the next write-back at most.
pub(crate) const MOST_OPEN: usize = 64;

impl Opened {
    /// The file, opened if it is not.
    pub(crate) fn get(
        &mut self,
        root: &OwnedFd,
        file: FileId,
        life: Life,
        reach: &Reach,
    ) -> std::io::Result<Arc<OwnedFd>> {
        let handle = match reach {
            Reach::Kept(fd) => return Ok(Arc::clone(fd)),
            Reach::Handle(handle) => handle,
        };
        if let Some(at) = self.files.iter().position(|(known, its, _)| (*known, *its) == (file, life)) {
            self.files[..=at].rotate_right(1);
        } else {
            let fd = Arc::new(crate::sys::open_handle(root.as_fd(), handle)?);
            self.files.truncate(MOST_OPEN - 1);
            self.files.insert(0, (file, life, fd));
        }
        self.files.first().map(|(_, _, fd)| Arc::clone(fd)).ok_or_else(|| std::io::ErrorKind::NotFound.into())
    }

    pub(crate) fn close(&mut self, file: FileId) {
        self.files.retain(|(known, _, _)| *known != file);
    }

    pub(crate) fn close_all(&mut self) {
        self.files.clear();
    }
}
