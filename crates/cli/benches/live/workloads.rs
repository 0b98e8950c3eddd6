//! Workloads that the lab does not have by name; it can run them all the same.

use anyhow::Result;
use umbrella_lab::workload::{BoxedWorkload, ClientId, FileOperation, Scale, Seed, Workload, build_workload};
use umbrella_units::{ByteSize, FileId, Nanos, SplitMix64};

const FILES_A_DIRECTORY: u64 = 100;

/// One of the lab's own, at full size.
pub(crate) fn of_lab(spec: &str) -> Result<BoxedWorkload> {
    Ok(build_workload(spec, Seed(1), Scale::FULL)?)
}

/// One client writes pages at random places of many files that exist: what a policy that goes by place gains most from.
#[derive(Debug)]
pub(crate) struct RandomFiles {
    files: u64,
    size: ByteSize,
    io: ByteSize,
    prepared: u64,
    writes: u64,
    random: SplitMix64,
}

impl RandomFiles {
    /// `writes` writes of `io` bytes to `files` files of `size` bytes.
    pub(crate) fn new(files: u64, size: ByteSize, io: ByteSize, writes: u64) -> Self {
        Self { files: files.max(1), size, io, prepared: 0, writes, random: SplitMix64::new(1) }
    }

    fn directory(number: u64) -> FileId {
        FileId(2 + number)
    }

    fn file(number: u64) -> FileId {
        // Behind any directory.
        FileId(1_000_000 + number)
    }
}

impl Workload for RandomFiles {
    /// First the directories, then each file and what is in it.
    fn prepare(&mut self) -> Option<FileOperation> {
        let directories = self.files.div_ceil(FILES_A_DIRECTORY);
        let number = self.prepared;
        self.prepared += 1;
        if number < directories {
            return Some(FileOperation::Mkdir { dir: Self::directory(number), parent: FileId(1) });
        }
        let (number, writes) = ((number - directories) / 2, (number - directories) % 2 == 1);
        let file = Self::file(number);
        match writes {
            _ if number >= self.files => None,
            false => Some(FileOperation::Create { file, dir: Self::directory(number / FILES_A_DIRECTORY) }),
            true => Some(FileOperation::Write { file, offset: ByteSize(0), size: self.size }),
        }
    }

    fn next(&mut self, _client: ClientId, _now: Nanos) -> Option<FileOperation> {
        self.writes = self.writes.checked_sub(1)?;
        let file = Self::file(self.random.below(self.files));
        let offset = ByteSize(self.random.below(self.size.0 / self.io.0) * self.io.0);
        Some(FileOperation::Write { file, offset, size: self.io })
    }
}

/// The first steps of another workload.
pub(crate) struct First {
    /// The other.
    pub(crate) of: BoxedWorkload,
    /// Number of steps that are left.
    pub(crate) left: u64,
}

impl Workload for First {
    fn prepare(&mut self) -> Option<FileOperation> {
        self.of.prepare()
    }

    fn clients(&self) -> u32 {
        self.of.clients()
    }

    fn next(&mut self, client: ClientId, now: Nanos) -> Option<FileOperation> {
        self.left = self.left.checked_sub(1)?;
        self.of.next(client, now)
    }
}

/// Files are made one after the other, then deleted in the same order: what need never reach a disk.
#[derive(Debug)]
pub(crate) struct CreateDelete {
    files: u64,
    size: ByteSize,
    prepared: u64,
    step: u64,
}

impl CreateDelete {
    /// `files` files of `size` bytes.
    pub(crate) fn new(files: u64, size: ByteSize) -> Self {
        Self { files: files.max(1), size, prepared: 0, step: 0 }
    }
}

impl Workload for CreateDelete {
    fn prepare(&mut self) -> Option<FileOperation> {
        let dir = RandomFiles::directory(self.prepared);
        self.prepared += 1;
        (self.prepared <= self.files.div_ceil(FILES_A_DIRECTORY))
            .then_some(FileOperation::Mkdir { dir, parent: FileId(1) })
    }

    fn next(&mut self, _client: ClientId, _now: Nanos) -> Option<FileOperation> {
        let step = self.step;
        self.step += 1;
        let made = 2 * self.files;
        let number = if step < made { step / 2 } else { step - made };
        let (file, dir) = (RandomFiles::file(number), RandomFiles::directory(number / FILES_A_DIRECTORY));
        match step {
            _ if step < made && step.is_multiple_of(2) => Some(FileOperation::Create { file, dir }),
            _ if step < made => Some(FileOperation::Write { file, offset: ByteSize(0), size: self.size }),
            _ if number < self.files => Some(FileOperation::Delete { file }),
            _ => None,
        }
    }
}

/// The directory of files that are only read.
pub(crate) const READ_ONLY: FileId = FileId(2);
/// The directory of the others.
pub(crate) const CHANGING: FileId = FileId(3);

/// The dissertation's changed Postmark (UmbrellaFS, chapter III, figure 20): files of 8 KiB to 1 MiB in two sets, of
/// which one is only read. A transaction reads a file of the first set, or of the second reads one, appends to one,
/// makes one anew or deletes one.
#[derive(Debug)]
pub(crate) struct TwoSets {
    /// Files of each set at the start.
    files: u64,
    prepared: u64,
    transactions: u64,
    random: SplitMix64,
    /// What exists of the second set, with sizes.
    live: Vec<(FileId, u64)>,
    next: u64,
    /// The second half of a step.
    rest: Option<FileOperation>,
}

impl TwoSets {
    const SMALLEST: u64 = 8 << 10;
    const LARGEST: u64 = 1 << 20;

    pub(crate) fn new(files: u64, transactions: u64) -> Self {
        let random = SplitMix64::new(7);
        Self { files: files.max(1), prepared: 0, transactions, random, live: Vec::new(), next: 0, rest: None }
    }

    /// The same for a file in every run, in whole pages.
    fn size_of(number: u64) -> u64 {
        let mut random = SplitMix64::new(number);
        Self::SMALLEST + random.below((Self::LARGEST - Self::SMALLEST) / 4096) * 4096
    }

    fn create(&mut self) -> FileOperation {
        let number = self.next;
        self.next += 1;
        let (file, size) = (RandomFiles::file(number), Self::size_of(number));
        self.rest = Some(FileOperation::Write { file, offset: ByteSize(0), size: ByteSize(size) });
        if number < self.files {
            return FileOperation::Create { file, dir: READ_ONLY };
        }
        self.live.push((file, size));
        FileOperation::Create { file, dir: CHANGING }
    }

    fn change(&mut self) -> FileOperation {
        let place = self.random.below(self.live.len() as u64) as usize;
        match (self.random.below(4), self.live.get_mut(place)) {
            (0, Some((file, size))) => FileOperation::Read { file: *file, offset: ByteSize(0), size: ByteSize(*size) },
            (1, Some((file, size))) => {
                let offset = ByteSize(*size);
                *size += Self::SMALLEST;
                FileOperation::Write { file: *file, offset, size: ByteSize(Self::SMALLEST) }
            }
            (2, Some((file, _))) => {
                let file = *file;
                self.live.swap_remove(place);
                FileOperation::Delete { file }
            }
            _ => self.create(),
        }
    }
}

impl Workload for TwoSets {
    fn prepare(&mut self) -> Option<FileOperation> {
        let number = self.prepared;
        self.prepared += 1;
        match number {
            0 => Some(FileOperation::Mkdir { dir: READ_ONLY, parent: FileId(1) }),
            1 => Some(FileOperation::Mkdir { dir: CHANGING, parent: FileId(1) }),
            _ => self.rest.take().or_else(|| (self.next < 2 * self.files).then(|| self.create())),
        }
    }

    fn next(&mut self, _client: ClientId, _now: Nanos) -> Option<FileOperation> {
        if let Some(rest) = self.rest.take() {
            return Some(rest);
        }
        self.transactions = self.transactions.checked_sub(1)?;
        if self.random.below(2) == 0 {
            let number = self.random.below(self.files);
            let size = ByteSize(Self::size_of(number));
            return Some(FileOperation::Read { file: RandomFiles::file(number), offset: ByteSize(0), size });
        }
        Some(self.change())
    }
}

/// Two clients, each with files of its own below one of two directories: one writes at random places, the other
/// rewrites a few files over and over.
#[derive(Debug)]
pub(crate) struct TwoKinds {
    files: u64,
    size: ByteSize,
    io: ByteSize,
    prepared: u64,
    left: [u64; 2],
    random: SplitMix64,
}

impl TwoKinds {
    /// Each client makes `writes` writes of `io` bytes to `files` files of `size` bytes.
    pub(crate) fn new(files: u64, size: ByteSize, io: ByteSize, writes: u64) -> Self {
        Self { files: files.max(1), size, io, prepared: 0, left: [writes; 2], random: SplitMix64::new(3) }
    }
}

impl Workload for TwoKinds {
    fn prepare(&mut self) -> Option<FileOperation> {
        let number = self.prepared;
        self.prepared += 1;
        match number {
            0 => return Some(FileOperation::Mkdir { dir: READ_ONLY, parent: FileId(1) }),
            1 => return Some(FileOperation::Mkdir { dir: CHANGING, parent: FileId(1) }),
            _ => {}
        }
        let (number, writes) = ((number - 2) / 2, number % 2 == 1);
        let file = RandomFiles::file(number);
        match writes {
            _ if number >= 2 * self.files => None,
            false => Some(FileOperation::Create { file, dir: if number < self.files { READ_ONLY } else { CHANGING } }),
            true => Some(FileOperation::Write { file, offset: ByteSize(0), size: self.size }),
        }
    }

    fn clients(&self) -> u32 {
        2
    }

    fn next(&mut self, client: ClientId, _now: Nanos) -> Option<FileOperation> {
        let (left, first) = match client {
            ClientId(0) => (&mut self.left[0], 0),
            _ => (&mut self.left[1], self.files),
        };
        *left = left.checked_sub(1)?;
        // Nine in ten of the second client's writes go to a tenth of its files.
        let hot = client == ClientId(1) && self.random.below(10) > 0;
        let among = if hot { self.files.div_ceil(10) } else { self.files };
        let file = RandomFiles::file(first + self.random.below(among));
        let offset = ByteSize(self.random.below(self.size.0 / self.io.0) * self.io.0);
        Some(FileOperation::Write { file, offset, size: self.io })
    }
}
