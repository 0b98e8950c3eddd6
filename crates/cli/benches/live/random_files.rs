//! One client writes pages at random places of many files that exist: what a policy that goes by place gains most from.

use umbrella_lab::workload::{BoxedWorkload, ClientId, Step, Workload};
use umbrella_units::{ByteSize, FileId, Nanos};

const FILES_A_DIRECTORY: u64 = 100;

/// The workload.
#[derive(Debug)]
pub(crate) struct RandomFiles {
    files: u64,
    size: ByteSize,
    io: ByteSize,
    prepared: u64,
    writes: u64,
    dice: u64,
}

impl RandomFiles {
    /// `writes` writes of `io` bytes to `files` files of `size` bytes.
    pub(crate) fn new(files: u64, size: ByteSize, io: ByteSize, writes: u64) -> Self {
        Self { files: files.max(1), size, io, prepared: 0, writes, dice: 1 }
    }

    fn directory(number: u64) -> FileId {
        FileId(2 + number)
    }

    fn file(number: u64) -> FileId {
        // Behind any directory.
        FileId(1_000_000 + number)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.dice = self.dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.dice >> 33) % end.max(1)
    }
}

impl Workload for RandomFiles {
    /// First the directories, then each file and what is in it.
    fn prepare(&mut self) -> Option<Step> {
        let directories = self.files.div_ceil(FILES_A_DIRECTORY);
        let number = self.prepared;
        self.prepared += 1;
        if number < directories {
            return Some(Step::Mkdir { dir: Self::directory(number), parent: FileId(1) });
        }
        let (number, writes) = ((number - directories) / 2, (number - directories) % 2 == 1);
        let file = Self::file(number);
        match writes {
            _ if number >= self.files => None,
            false => Some(Step::Create { file, dir: Self::directory(number / FILES_A_DIRECTORY) }),
            true => Some(Step::Write { file, offset: ByteSize(0), size: self.size }),
        }
    }

    fn clients(&self) -> u32 {
        1
    }

    fn next(&mut self, _client: ClientId, _now: Nanos) -> Option<Step> {
        self.writes = self.writes.checked_sub(1)?;
        let file = Self::file(self.below(self.files));
        let offset = ByteSize(self.below(self.size.0 / self.io.0) * self.io.0);
        Some(Step::Write { file, offset, size: self.io })
    }
}

/// The first so many steps of another workload.
pub(crate) struct First {
    /// The other.
    pub(crate) of: BoxedWorkload,
    /// So many.
    pub(crate) left: u64,
}

impl Workload for First {
    fn prepare(&mut self) -> Option<Step> {
        self.of.prepare()
    }

    fn clients(&self) -> u32 {
        self.of.clients()
    }

    fn next(&mut self, client: ClientId, now: Nanos) -> Option<Step> {
        self.left = self.left.checked_sub(1)?;
        self.of.next(client, now)
    }
}
