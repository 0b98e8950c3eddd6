//! An aged file system: before a run begins, files come and go until the free space looks used.
//!
//! Files are written by several writers at once, a few pages each in turn; then, in rounds, some are deleted and others
//! fill their room. Sizes are lognormal with the parameters of Impressions (Agrawal et al., FAST 2009, table 2: mu
//! 9.48, sigma 2.46, in bytes), cut at 64 MiB. Directories: one for forty files; each round replaces a fifth of the
//! files (both assumed).

use rustc_hash::FxHashSet;
use umbrella_units::{BlockNo, FileId, PAGE_BYTES, PageIndex, SplitMix64};

use super::random::normal;
use super::{AllocError, Ext2};

/// How much aging.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Aging {
    /// The share of the blocks that is used in the end, in percent; up to [`Aging::MOST_PERCENT`].
    pub percent: u32,
    /// How many times a fifth of the files is replaced.
    pub rounds: u32,
}

impl Aging {
    /// A fuller disk has no room for what a workload writes.
    pub const MOST_PERCENT: u32 = 95;

    /// So full, after each file was replaced twice (assumed: no source tells how often files of a file system are).
    pub fn to(percent: u32) -> Aging {
        Aging { percent, rounds: 10 }
    }
}

const MU: f64 = 9.48;
const SIGMA: f64 = 2.46;
const LARGEST: f64 = 64.0 * 1024.0 * 1024.0;
const FILES_PER_DIRECTORY: u64 = 40;
const WRITERS: u64 = 8;
/// The most pages that a writer adds before the next one's turn.
const TURN: u64 = 16;
/// Some milliseconds.
const STEPS_BETWEEN_LOOKS: u64 = 1 << 12;

struct Ager {
    random: SplitMix64,
    /// The number of the next old file: they count down from the top, where no workload numbers its files.
    next_id: u64,
    files: Vec<FileId>,
    directories: Vec<FileId>,
    /// Metadata blocks that were changed in one go; those that hold something.
    touched: Vec<BlockNo>,
    metadata: FxHashSet<BlockNo>,
    /// Turns and deletions so far.
    steps: u64,
}

impl Ager {
    /// Counts a step, and asks now and then whether it is to end.
    fn ends(&mut self, go_on: &mut dyn FnMut() -> bool) -> bool {
        self.steps += 1;
        self.steps.is_multiple_of(STEPS_BETWEEN_LOOKS) && !go_on()
    }
}

struct Writer {
    file: FileId,
    written: u64,
    size: u64,
}

impl Ext2 {
    /// Ages the file system, and returns the metadata blocks in use: the blocks that the old files dirtied count as on
    /// disk. The same seed gives the same layout. Stops early when inodes run out. Costs time and four bytes of memory
    /// for each used block. `go_on` is called now and then; if it says no, there is nothing to return, and the file
    /// system is of no use.
    pub fn age(
        &mut self,
        seed: u64,
        aging: Aging,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Option<FxHashSet<BlockNo>>, AllocError> {
        let used = self.layout.blocks / 100 * u64::from(aging.percent.min(Aging::MOST_PERCENT));
        let free = self.layout.blocks - used;
        let mut ager = Ager {
            random: SplitMix64::new(seed),
            next_id: u64::MAX - 1,
            files: Vec::new(),
            directories: Vec::new(),
            touched: Vec::new(),
            metadata: FxHashSet::default(),
            steps: 0,
        };
        if !self.fill_up(&mut ager, free, go_on)? {
            return Ok(None);
        }
        for _ in 0..aging.rounds {
            for _ in 0..ager.files.len() / 5 {
                if ager.ends(go_on) {
                    return Ok(None);
                }
                let at = ager.random.below(ager.files.len() as u64) as usize;
                self.delete(ager.files.swap_remove(at), &mut ager.touched)?;
                self.remember_metadata(&mut ager);
            }
            if !self.fill_up(&mut ager, free, go_on)? {
                return Ok(None);
            }
        }
        self.set_writer(0);
        Ok(Some(ager.metadata))
    }

    fn remember_metadata(&mut self, ager: &mut Ager) {
        ager.metadata.extend(ager.touched.drain(..));
        for block in self.forgotten.drain(..) {
            ager.metadata.remove(&block);
        }
    }

    /// Writes files until at most `free` blocks are free; false when `go_on` ended it before.
    fn fill_up(&mut self, ager: &mut Ager, free: u64, go_on: &mut dyn FnMut() -> bool) -> Result<bool, AllocError> {
        let mut writers: [Option<Writer>; WRITERS as usize] = std::array::from_fn(|_| None);
        while self.layout.free_blocks > free {
            if ager.ends(go_on) {
                return Ok(false);
            }
            let turn = ager.random.below(WRITERS);
            let Some(writer) = &mut writers[turn as usize] else {
                match self.old_file(ager) {
                    Err(AllocError::NoInodes { .. }) => break,
                    writer => writers[turn as usize] = Some(writer?),
                }
                continue;
            };
            self.set_writer(turn as u32);
            let pages = (1 + ager.random.below(TURN)).min(writer.size - writer.written);
            if self.config.delayed {
                self.allocate_run(writer.file, PageIndex(writer.written), pages, &mut ager.touched, &mut Vec::new())?;
            } else {
                for at in writer.written..writer.written + pages {
                    self.allocate(writer.file, PageIndex(at), &mut ager.touched)?;
                }
            }
            writer.written += pages;
            if writer.written == writer.size {
                self.close(writer.file, &mut ager.touched);
                writers[turn as usize] = None;
            }
            self.remember_metadata(ager);
        }
        for writer in writers.into_iter().flatten() {
            self.close(writer.file, &mut ager.touched);
        }
        self.remember_metadata(ager);
        Ok(true)
    }

    fn old_file(&mut self, ager: &mut Ager) -> Result<Writer, AllocError> {
        if ager.directories.len() as u64 * FILES_PER_DIRECTORY <= ager.files.len() as u64 {
            let parents = ager.directories.len() as u64 + 1;
            let parent = ager.directories.get(ager.random.below(parents) as usize).copied().unwrap_or(Ext2::ROOT);
            let directory = FileId(ager.next_id);
            self.mkdir(directory, parent, &mut ager.touched)?;
            ager.next_id -= 1;
            ager.directories.push(directory);
        }
        let at = ager.random.below(ager.directories.len() as u64) as usize;
        let file = FileId(ager.next_id);
        self.create(file, ager.directories[at], &mut ager.touched)?;
        ager.next_id -= 1;
        ager.files.push(file);
        let bytes = (MU + SIGMA * normal(&mut ager.random)).exp().clamp(1.0, LARGEST);
        Ok(Writer { file, written: 0, size: (bytes as u64).div_ceil(PAGE_BYTES) })
    }
}
