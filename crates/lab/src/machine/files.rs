//! Where files lie on the modelled disk, how large they are, and which of them are still staged in memory.

use rustc_hash::{FxHashMap, FxHashSet};
use umbrella_model::allocator::{Aging, AllocError, Ext2, Ext2Config, Log};
use umbrella_policy::staging::{self, Staged, Staging};
use umbrella_units::{BlockNo, ByteSize, FileId, Nanos, PAGE_BYTES, PageIndex, PageKey, Pages};

use super::RunError;
use super::config::{Allocation, Config};
use crate::workload::FileOperation;

/// What lies on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Nothing but blocks: page `n` of [`FileId::DEVICE`] is block `n`. For traces.
    Device,
    /// A file system like ext2, made with this seed. It is empty, or old files take a share of its room.
    FileSystem {
        /// The seed of its random parts.
        seed: u64,
        /// The share that old files take, in percent; 0: none.
        aged_percent: u32,
    },
}

/// The largest file system that the allocator knows: 8 TiB. On a larger disk it takes the first part.
const MOST_BLOCKS: u64 = (1 << 31) - 2;

#[derive(Debug, Clone, Copy)]
struct FileState {
    bytes: u64,
    dir: FileId,
}

/// See the module.
#[derive(Debug)]
pub(super) struct FileTable {
    ext2: Option<Ext2>,
    delayed: bool,
    /// Where what is written goes, if not to where it was.
    log: Option<Log>,
    /// Files by inode: policies know files by their inode numbers, as the live system does.
    by_inode: FxHashMap<FileId, FileId>,
    known: FxHashMap<FileId, FileState>,
    staging: Option<Staging>,
    /// Metadata blocks that hold something: to change one that is not in memory it has to be read.
    on_disk: FxHashSet<BlockNo>,
    /// What of the staged files has to leave and is not yet a whole page.
    owed: f64,
}

impl FileTable {
    pub(super) fn new(
        layout: Layout,
        capacity: BlockNo,
        config: &Config,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<FileTable, RunError> {
        let Config { staging, allocation, growing_windows, .. } = *config;
        let delayed = allocation == Allocation::Delayed;
        let log = (allocation == Allocation::Log).then(|| Log::new(BlockNo(capacity.0 / 2), capacity));
        let mut on_disk = FxHashSet::default();
        let ext2 = match layout {
            Layout::Device => None,
            Layout::FileSystem { seed, aged_percent } => {
                let blocks = if log.is_some() { capacity.0 / 2 } else { capacity.0 }.min(MOST_BLOCKS);
                let mut ext2 =
                    Ext2::new(Ext2Config { blocks, delayed, growing_windows, ..Ext2Config::default() }, seed)?;
                if aged_percent > 0 {
                    on_disk = ext2.age(seed, Aging::to(aged_percent), go_on)?.ok_or(RunError::Stopped)?;
                }
                Some(ext2)
            }
        };
        let staging = (staging && ext2.is_some()).then(|| Staging::new(staging::Config::default()));
        Ok(FileTable {
            ext2,
            delayed,
            log,
            by_inode: FxHashMap::default(),
            known: FxHashMap::default(),
            staging,
            on_disk,
            owed: 0.0,
        })
    }

    /// The client whose step is done now.
    pub(super) fn set_writer(&mut self, client: u32) {
        if let Some(ext2) = &mut self.ext2 {
            ext2.set_writer(client);
        }
    }

    /// The page as policies know it: by the file's inode number.
    pub(super) fn policy_key(&self, page: PageKey) -> PageKey {
        let inode = self.inode_of(page.file);
        PageKey { file: inode.unwrap_or(page.file), ..page }
    }

    /// The file's inode number, as a policy's name for it.
    pub(super) fn inode_of(&self, file: FileId) -> Option<FileId> {
        if self.is_device(file) {
            return Some(file);
        }
        self.ext2.as_ref().and_then(|ext2| ext2.inode_of(file)).map(|inode| FileId(u64::from(inode.0)))
    }

    /// The page that a policy refers to.
    pub(super) fn page_of(&self, page: PageKey) -> PageKey {
        PageKey { file: self.by_inode.get(&page.file).copied().unwrap_or(page.file), ..page }
    }

    fn note_inode(&mut self, file: FileId) {
        if let Some(inode) = self.inode_of(file) {
            self.by_inode.insert(inode, file);
        }
    }

    pub(super) fn is_device(&self, file: FileId) -> bool {
        file == FileId::DEVICE
    }

    /// Blocks in use.
    pub(super) fn used(&self) -> u64 {
        self.ext2.as_ref().map_or(0, |ext2| ext2.blocks() - ext2.free_blocks())
    }

    /// Whether a metadata block holds something.
    pub(super) fn is_on_disk(&self, block: BlockNo) -> bool {
        self.on_disk.contains(&block)
    }

    pub(super) fn now_on_disk(&mut self, block: BlockNo) {
        self.on_disk.insert(block);
    }

    /// The file's size.
    pub(super) fn bytes(&self, file: FileId) -> u64 {
        self.known.get(&file).map_or(0, |file| file.bytes)
    }

    /// The file's size in pages; a device has no end here.
    pub(super) fn pages(&self, file: FileId) -> u64 {
        if self.is_device(file) { u64::MAX } else { self.bytes(file).div_ceil(PAGE_BYTES) }
    }

    pub(super) fn grow(&mut self, file: FileId, bytes: u64) {
        if let Some(file) = self.known.get_mut(&file) {
            file.bytes = file.bytes.max(bytes);
        }
    }

    /// Where the page lies, or is expected to.
    pub(super) fn block_of(&self, page: PageKey) -> Option<BlockNo> {
        if let Some(place) = self.log.as_ref().and_then(|log| log.place(page)) {
            return Some(place);
        }
        if self.is_device(page.file) {
            return Some(BlockNo(page.index.0));
        }
        self.ext2.as_ref().and_then(|ext2| ext2.expected_block(page.file, page.index))
    }

    /// Where the page is written, now that it is. None: it was deleted.
    pub(super) fn write_place(&mut self, page: PageKey) -> Option<BlockNo> {
        let block = self.block_of(page)?;
        Some(self.log.as_mut().map_or(block, |log| log.append(page)))
    }

    /// Whether the page's block is only expected: it gets one when it is written back.
    pub(super) fn is_predicted(&self, page: PageKey) -> bool {
        self.delayed
            && !self.is_device(page.file)
            && self.ext2.as_ref().is_some_and(|ext2| ext2.block_of(page.file, page.index).is_none())
    }

    /// Gives a page that becomes dirty its block, or the promise of one.
    pub(super) fn place(&mut self, page: PageKey, touched: &mut Vec<BlockNo>) -> Result<(), AllocError> {
        let Some(ext2) = &mut self.ext2 else { return Ok(()) };
        if ext2.expected_block(page.file, page.index).is_some() {
            return Ok(());
        }
        if self.delayed {
            ext2.reserve(page.file, page.index)?;
        } else {
            ext2.allocate(page.file, page.index, touched)?;
        }
        Ok(())
    }

    /// Gives `pages` promised pages their blocks, together.
    pub(super) fn allocate_delayed(
        &mut self,
        first: PageKey,
        pages: u64,
        touched: &mut Vec<BlockNo>,
    ) -> Result<(), AllocError> {
        let Some(ext2) = &mut self.ext2 else { return Ok(()) };
        ext2.allocate_run(first.file, first.index, pages, touched, &mut Vec::new())
    }

    /// Adds the metadata blocks that have to be in memory before a page of the file can be found, the inode's block
    /// among them.
    pub(super) fn metadata_of(&self, file: FileId, index: PageIndex, out: &mut Vec<BlockNo>) {
        if let Some(ext2) = &self.ext2 {
            ext2.metadata_of(file, index, out);
        }
    }

    /// Adds all metadata blocks of the file: of its directory, its inode, every indirect block.
    pub(super) fn all_metadata_of(&self, file: FileId, out: &mut Vec<BlockNo>) {
        if let Some(ext2) = &self.ext2 {
            ext2.all_metadata_of(file, out);
        }
    }

    /// Adds the metadata blocks that were freed since the last call. Dirty ones among them need not be written.
    pub(super) fn forgotten(&mut self, out: &mut Vec<BlockNo>) {
        if let Some(ext2) = &mut self.ext2 {
            ext2.forgotten(out);
        }
    }

    /// A metadata block holds nothing any more.
    pub(super) fn no_longer_on_disk(&mut self, block: BlockNo) {
        self.on_disk.remove(&block);
        if let Some(log) = &mut self.log {
            log.forget(PageKey::device(block));
        }
    }

    /// Blocks between the file's first and last block, if it has any.
    pub(super) fn distance(&self, file: FileId) -> Option<u64> {
        self.ext2.as_ref().and_then(|ext2| ext2.distance(file))
    }

    pub(super) fn mkdir(&mut self, dir: FileId, parent: FileId, touched: &mut Vec<BlockNo>) -> Result<(), AllocError> {
        let Some(ext2) = &mut self.ext2 else { return Ok(()) };
        if dir == Ext2::ROOT {
            return Ok(());
        }
        self.known.insert(dir, FileState { bytes: PAGE_BYTES, dir: parent });
        ext2.look_up_absent(parent);
        ext2.mkdir(dir, parent, touched)
    }

    pub(super) fn create(&mut self, file: FileId, dir: FileId, touched: &mut Vec<BlockNo>) -> Result<(), AllocError> {
        self.known.insert(file, FileState { bytes: 0, dir });
        if let Some(ext2) = &mut self.ext2 {
            // Also before a staged file is made: the name may be on disk.
            ext2.look_up_absent(dir);
        }
        if let Some(staging) = &mut self.staging {
            // Memory that keeps its contents: ages do not matter.
            staging.create(Nanos(0), file, dir);
            return Ok(());
        }
        self.create_on_disk(file, dir, touched)
    }

    /// The number of directory entries scanned since the last call.
    pub(super) fn take_scanned(&mut self) -> u64 {
        self.ext2.as_mut().map_or(0, Ext2::take_scanned)
    }

    fn create_on_disk(&mut self, file: FileId, dir: FileId, touched: &mut Vec<BlockNo>) -> Result<(), AllocError> {
        if let Some(ext2) = &mut self.ext2 {
            ext2.create(file, dir, touched)?;
        }
        self.note_inode(file);
        Ok(())
    }

    pub(super) fn truncate(
        &mut self,
        file: FileId,
        size: ByteSize,
        touched: &mut Vec<BlockNo>,
    ) -> Result<(), AllocError> {
        let pages = PageIndex(size.0.div_ceil(PAGE_BYTES));
        self.drop_from_log(file, pages);
        if let Some(known) = self.known.get_mut(&file) {
            known.bytes = size.0;
        }
        match &mut self.staging {
            Some(staging) if staging.holds(file) => {
                // A larger size is a hole, and moves nothing out of staging.
                staging.write(file, size);
                Ok(())
            }
            _ => self.ext2.as_mut().map_or(Ok(()), |ext2| ext2.truncate(file, pages, touched)),
        }
    }

    pub(super) fn delete(&mut self, file: FileId, touched: &mut Vec<BlockNo>) -> Result<(), AllocError> {
        self.drop_from_log(file, PageIndex(0));
        self.known.remove(&file);
        if let Some(inode) = self.inode_of(file) {
            self.by_inode.remove(&inode);
        }
        if self.staging.as_mut().is_some_and(|staging| staging.delete(file)) {
            return Ok(());
        }
        self.ext2.as_mut().map_or(Ok(()), |ext2| ext2.delete(file, touched))
    }

    /// Removes the file's pages from `first` on from the log.
    fn drop_from_log(&mut self, file: FileId, first: PageIndex) {
        if let Some(log) = &mut self.log {
            log.truncate(file, first);
        }
    }

    /// One step of setting up: everything gets its place at once, nothing is staged.
    pub(super) fn prepare(&mut self, step: &FileOperation, touched: &mut Vec<BlockNo>) -> Result<(), AllocError> {
        match *step {
            FileOperation::Mkdir { dir, parent } => self.mkdir(dir, parent, touched),
            FileOperation::Create { file, dir } => {
                self.known.insert(file, FileState { bytes: 0, dir });
                self.create_on_disk(file, dir, touched)
            }
            FileOperation::Write { file, offset, size } => {
                let (first, pages) = super::counters::pages_of(offset, size);
                if let Some(ext2) = &mut self.ext2 {
                    for index in first..first + pages {
                        ext2.allocate(file, PageIndex(index), touched)?;
                    }
                }
                self.grow(file, offset.0.saturating_add(size.0));
                Ok(())
            }
            FileOperation::Truncate { file, size } => self.truncate(file, size, touched),
            FileOperation::Delete { file } => self.delete(file, touched),
            _ => Ok(()),
        }
    }

    // Staging.

    pub(super) fn is_staged(&self, file: FileId) -> bool {
        self.staging.as_ref().is_some_and(|staging| staging.holds(file))
    }

    /// A staged file is read: whether it is one.
    pub(super) fn touch_staged(&mut self, file: FileId) -> bool {
        match &mut self.staging {
            Some(staging) if staging.holds(file) => {
                staging.touch(file);
                true
            }
            _ => false,
        }
    }

    /// The staged files used longest ago, with at least `pages` pages together.
    pub(super) fn staged_longest(&self, pages: u64) -> Vec<FileId> {
        self.staging.as_ref().map_or_else(Vec::new, |staging| staging.pressure(Pages(pages)))
    }

    /// Carries over `pages` pages that should have left staging, but have not.
    pub(super) fn carry_over_owed(&mut self, pages: u64) {
        self.owed += pages as f64;
    }

    /// Pages that staged files hold.
    pub(super) fn staged_pages(&self) -> u64 {
        self.staging.as_ref().map_or(0, |staging| staging.pages().0)
    }

    /// Pages that the write would add to the staged file.
    pub(super) fn staged_growth(&self, file: FileId, offset: ByteSize, size: ByteSize) -> u64 {
        offset.0.saturating_add(size.0).div_ceil(PAGE_BYTES).saturating_sub(self.pages(file))
    }

    /// Writes to a staged file; whether it has to leave staging now.
    pub(super) fn write_staged(&mut self, file: FileId, offset: ByteSize, size: ByteSize) -> bool {
        let end = offset.0.saturating_add(size.0);
        self.grow(file, end);
        let bytes = self.bytes(file);
        self.staging.as_mut().is_some_and(|staging| staging.write(file, ByteSize(bytes)) == Staged::Transform)
    }

    /// Staged files that have to leave because reclaim took `reclaimed` of the `cached` pages. They give up the same
    /// share of the staged pages, as a kernel's shrinkers do. `short` more pages leave because reclaim found nothing
    /// else to take.
    pub(super) fn pressure(&mut self, reclaimed: u64, cached: u64, short: u64) -> Vec<FileId> {
        let Some(staging) = &mut self.staging else { return Vec::new() };
        self.owed += reclaimed as f64 * staging.pages().0 as f64 / cached.max(1) as f64 + short as f64;
        let pages = self.owed as u64;
        self.owed -= pages as f64;
        if pages == 0 { Vec::new() } else { staging.pressure(Pages(pages)) }
    }

    /// Takes a file out of staging and gives it its place on disk: inode and all blocks at once. Returns its pages.
    pub(super) fn transform(&mut self, file: FileId, touched: &mut Vec<BlockNo>) -> Result<u64, AllocError> {
        if let Some(staging) = &mut self.staging {
            staging.remove(file);
        }
        let Some(&FileState { bytes, dir }) = self.known.get(&file) else { return Ok(0) };
        self.create_on_disk(file, dir, touched)?;
        let Some(ext2) = &mut self.ext2 else { return Ok(0) };
        let pages = bytes.div_ceil(PAGE_BYTES);
        for index in 0..pages {
            ext2.allocate(file, PageIndex(index), touched)?;
        }
        Ok(pages)
    }
}
