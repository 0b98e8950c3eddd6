//! tar unpacks a kernel tree that was built: it reads an archive and writes files and directories in path order. MRAM,
//! section 4.4.1: Linux 2.6.12 with kernel image, sources and objects, 540,802,444 bytes.
//!
//! tar reads records of 10 KiB (20 blocks of 512 bytes) and writes the rest of each record at once. So a file is
//! written in pieces of at most 10 KiB. Every file and directory has a header block, and data is padded to whole blocks
//! (the ustar format).
//!
//! The thesis gives only the size of the archive, which is no multiple of 512: it was compressed, or it is the files'
//! sum. Here it is the files' sum, and decompression costs nothing. Assumed: 21,000 files in 1,100 directories, of
//! which about 17,000 are the sources of 2.6.12 and the rest objects. Sizes are lognormal with a deviation of 1.5.

use umbrella_units::{ByteSize, FileId, Nanos};

use super::draw::{Rng, lognormal_sizes};
use super::entry::{BoxedWorkload, WorkloadEntry};
use super::kinds::{FILE, PAGE, SIGMA, SOME, param};
use super::params::ParamKind;
use super::script::{Ids, Play, Script, ScriptStep, Scripted};
use super::tree::{Branch, grow};
use super::{ClientId, FileOperation, Params, Scale, Seed, WorkloadError};

/// A block of the archive format.
const TAR_BLOCK: u64 = 512;

/// Bytes of a record.
const RECORD: ParamKind = ParamKind::Size { min: ByteSize(TAR_BLOCK), max: ByteSize(1 << 30) };

pub(super) const ENTRY: WorkloadEntry = WorkloadEntry {
    name: "untar",
    summary: "an archive of a built kernel tree is unpacked",
    source: "MRAM, section 4.4.1",
    scales: "files, directories and bytes",
    params: &[
        param("files", SOME, "21000", "assumed", "files"),
        param("dirs", SOME, "1100", "assumed", "directories"),
        param("total", FILE, "540802444", "MRAM, section 4.4.1", "bytes of all files"),
        param("sigma", SIGMA, "1.5", "assumed", "deviation of the logarithm of sizes"),
        param(
            "record",
            RECORD,
            "10KiB",
            "GNU tar's blocking factor of 20",
            "bytes of a read of the archive; writes are as large at most",
        ),
        param(
            "archive",
            ParamKind::Flag,
            "true",
            "MRAM, section 4.4.1",
            "whether the archive is read from the same disk",
        ),
    ],
    build,
};

#[derive(Debug)]
struct Untar {
    ids: Ids,
    archive: FileId,
    archive_size: u64,
    reads_archive: bool,
    tree: Vec<Branch>,
    dirs: Vec<FileId>,
    sizes: std::vec::IntoIter<u64>,
    left_here: u64,
    /// How far in the archive it is, and how much of it has been read.
    at: u64,
    read: u64,
    record: u64,
}

#[allow(clippy::unnecessary_wraps)] // The registry's signature.
fn build(seed: Seed, scale: Scale, params: &Params) -> Result<BoxedWorkload, WorkloadError> {
    let mut rng = Rng::new(seed, ENTRY.name, 0);
    let files = scale.count(params.count("files"));
    let tree = grow(&mut rng, scale.count(params.count("dirs")), files);
    let total = scale.size(params.size("total"), PAGE).0;
    let sizes = lognormal_sizes(&mut rng, files, total, params.number("sigma"));
    let record = params.size("record").0;
    let data: u64 = sizes.iter().map(|size| size.next_multiple_of(TAR_BLOCK)).sum();
    let blocks = data + (tree.len() as u64 + files) * TAR_BLOCK;
    let mut ids = Ids::new();
    Ok(Box::new(Scripted::new(Untar {
        archive: ids.next(),
        ids,
        archive_size: blocks.next_multiple_of(record),
        reads_archive: params.flag("archive"),
        dirs: Vec::with_capacity(tree.len()),
        tree,
        sizes: sizes.into_iter(),
        left_here: 0,
        at: 0,
        read: 0,
        record,
    })))
}

impl Untar {
    /// Goes on by a piece of the archive, at most `wanted` bytes: reads the next record if need be, and says how much
    /// of the piece it has.
    fn take(&mut self, wanted: u64, script: &mut Script) -> u64 {
        if self.at == self.read {
            if self.reads_archive {
                let (offset, size) = (ByteSize(self.read), ByteSize(self.record));
                script.step(FileOperation::Read { file: self.archive, offset, size });
            }
            self.read += self.record;
        }
        let piece = wanted.min(self.read - self.at);
        self.at += piece;
        piece
    }

    fn skip(&mut self, mut bytes: u64, script: &mut Script) {
        while bytes > 0 {
            bytes -= self.take(bytes, script);
        }
    }

    fn unpack(&mut self, file: FileId, size: u64, script: &mut Script) {
        let mut offset = 0;
        while offset < size {
            let piece = self.take(size - offset, script);
            script.write(file, offset, piece, piece);
            offset += piece;
        }
        self.skip(size.next_multiple_of(TAR_BLOCK) - size, script);
    }
}

impl Play for Untar {
    fn set_up(&mut self, script: &mut Script) -> ScriptStep {
        if self.reads_archive {
            script.create(self.archive, Ids::ROOT, self.archive_size, self.archive_size);
        }
        ScriptStep::Done
    }

    fn progress(&self) -> Option<f64> {
        Some(self.at as f64 / self.archive_size as f64)
    }

    fn next_steps(&mut self, _client: ClientId, _now: Nanos, script: &mut Script) -> ScriptStep {
        if self.left_here == 0 {
            let Some(branch) = self.tree.get(self.dirs.len()).copied() else {
                return ScriptStep::Done;
            };
            self.skip(TAR_BLOCK, script);
            let dir = self.ids.next();
            script.mkdir(dir, branch.parent.map_or(Ids::ROOT, |parent| self.dirs[parent]));
            self.dirs.push(dir);
            self.left_here = branch.files;
            return ScriptStep::On;
        }
        self.left_here -= 1;
        if let (Some(size), Some(&dir)) = (self.sizes.next(), self.dirs.last()) {
            self.skip(TAR_BLOCK, script);
            let file = self.ids.next();
            script.step(FileOperation::Create { file, dir });
            self.unpack(file, size, script);
        }
        ScriptStep::On
    }
}
