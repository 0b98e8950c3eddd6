//! An aged file system: before a run begins, files come and go until the free space looks used.
//!
//! Files are written by several writers at once, a few pages each in turn; then, in rounds, some are deleted and others
//! fill their room. Sizes are lognormal with the parameters of Impressions (Agrawal et al., FAST 2009, table 2: mu 9.48,
//! sigma 2.46, in bytes), cut at 64 MiB. Directories: one for forty files; each round replaces a fifth of the files
//! (both assumed).

use umbrella_units::{FileId, PAGE_BYTES, PageIndex};

use super::random::Random;
use super::{AllocError, Ext2};

/// How much aging.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Aging {
    /// The share of the blocks that is used in the end; 0.0 to 0.95.
    pub fill: f64,
    /// How many times a fifth of the files is replaced.
    pub rounds: u32,
}

const MU: f64 = 9.48;
const SIGMA: f64 = 2.46;
const LARGEST: f64 = 64.0 * 1024.0 * 1024.0;
const FILES_PER_DIRECTORY: u64 = 40;
const WRITERS: u64 = 8;
/// The most pages that a writer adds before the next one's turn.
const TURN: u64 = 16;

struct Ager {
    random: Random,
    /// The number of the next old file: they count down from the top, where no workload numbers its files.
    next_id: u64,
    files: Vec<FileId>,
    directories: Vec<FileId>,
}

struct Writer {
    file: FileId,
    written: u64,
    size: u64,
}

impl Ext2 {
    /// Ages the file system. What the old files' data and metadata dirtied is taken to be on disk. The same seed gives the
    /// same layout. Stops early when inodes run out. Costs time and four bytes of memory for each used block.
    pub fn age(&mut self, seed: u64, aging: Aging) -> Result<(), AllocError> {
        let free = (self.layout.blocks as f64 * (1.0 - aging.fill.clamp(0.0, 0.95))) as u64;
        let mut ager =
            Ager { random: Random::new(seed), next_id: u64::MAX - 1, files: Vec::new(), directories: Vec::new() };
        self.fill_up(&mut ager, free)?;
        for _ in 0..aging.rounds {
            for _ in 0..ager.files.len() / 5 {
                let at = ager.random.below(ager.files.len() as u64) as usize;
                self.delete(ager.files.swap_remove(at), &mut Vec::new())?;
            }
            self.fill_up(&mut ager, free)?;
        }
        self.set_writer(0);
        self.forgotten.clear();
        Ok(())
    }

    /// Writes files until at most `free` blocks are free.
    fn fill_up(&mut self, ager: &mut Ager, free: u64) -> Result<(), AllocError> {
        let mut writers: [Option<Writer>; WRITERS as usize] = std::array::from_fn(|_| None);
        let mut touched = Vec::new();
        while self.layout.free_blocks > free {
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
                self.allocate_run(writer.file, PageIndex(writer.written), pages, &mut touched, &mut Vec::new())?;
            } else {
                for at in writer.written..writer.written + pages {
                    self.allocate(writer.file, PageIndex(at), &mut touched)?;
                }
            }
            writer.written += pages;
            if writer.written == writer.size {
                self.close(writer.file, &mut touched);
                writers[turn as usize] = None;
            }
            touched.clear();
        }
        for writer in writers.into_iter().flatten() {
            self.close(writer.file, &mut touched);
        }
        Ok(())
    }

    fn old_file(&mut self, ager: &mut Ager) -> Result<Writer, AllocError> {
        let mut touched = Vec::new();
        if ager.directories.len() as u64 * FILES_PER_DIRECTORY <= ager.files.len() as u64 {
            let parents = ager.directories.len() as u64 + 1;
            let parent = ager.directories.get(ager.random.below(parents) as usize).copied().unwrap_or(Ext2::ROOT);
            let directory = FileId(ager.next_id);
            self.mkdir(directory, parent, &mut touched)?;
            ager.next_id -= 1;
            ager.directories.push(directory);
        }
        let at = ager.random.below(ager.directories.len() as u64) as usize;
        let file = FileId(ager.next_id);
        self.create(file, ager.directories[at], &mut touched)?;
        ager.next_id -= 1;
        ager.files.push(file);
        let bytes = (MU + SIGMA * ager.random.normal()).exp().clamp(1.0, LARGEST);
        Ok(Writer { file, written: 0, size: (bytes as u64).div_ceil(PAGE_BYTES) })
    }
}
