//! Bonnie++ on one file: written by character, written by block, rewritten, read by character, read by block, then
//! random seeks. MRAM, section 4.3: Bonnie++ 1.03a, 1 GB.
//!
//! From Bonnie++ 1.0: blocks of 8 KiB, 8000 seeks by 3 processes, a tenth of the sought blocks written back. By
//! character means through the C library, whose buffer turns that into 4 KiB calls and whose loop takes time
//! (`char-ns`, assumed). The file is emptied between the two writes. The last test makes, looks at and deletes small
//! files, in order and then at random. MRAM does not report it, so it is off unless `files` is given.

use umbrella_units::{ByteSize, FileId, Nanos};

use super::draw::Rng;
use super::entry::{BoxedWorkload, WorkloadEntry};
use super::kinds::{ANY, CLIENTS, FILE, IO, PAGE, SHARE, param};
use super::params::ParamKind;
use super::script::{Ids, Play, Script, ScriptStep, Scripted};
use super::{ClientId, FileOperation, Params, Scale, Seed, WorkloadError};

/// The C library's buffer.
const STDIO: u64 = 4096;

pub(super) const ENTRY: WorkloadEntry = WorkloadEntry {
    name: "bonnie",
    summary: "one large file is written, rewritten, read and sought in",
    source: "MRAM, section 4.3 (Bonnie++ 1.03a)",
    scales: "the file, seeks and small files",
    params: &[
        param("size", FILE, "1GiB", "MRAM, section 4.3", "bytes of the file"),
        param("chunk", IO, "8KiB", "Bonnie++", "bytes of a block"),
        param("chars", ParamKind::Flag, "true", "MRAM, section 4.3", "whether there are tests by character"),
        param("char-ns", ANY, "20", "assumed", "nanoseconds that a character takes"),
        param("seeks", ANY, "8000", "Bonnie++ (readme)", "seeks"),
        param("seekers", CLIENTS, "3", "Bonnie++ (readme)", "processes that seek"),
        param("update", SHARE, "0.1", "Bonnie++ (readme)", "share of the seeks that write the block back"),
        param("files", ANY, "0", "MRAM does not report it; Bonnie++: 16384", "empty files made, looked at and deleted"),
    ],
    build,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Test {
    Begin,
    CharWrite,
    BlockWrite,
    Rewrite,
    CharRead,
    BlockRead,
    Seek,
    Seeking,
    Create,
    Stat,
    Delete,
    CreateAtRandom,
    StatAtRandom,
    DeleteAtRandom,
    End,
}

#[derive(Debug)]
struct Bonnie {
    ids: Ids,
    file: FileId,
    size: u64,
    chunk: u64,
    chars: bool,
    char_ns: u64,
    test: Test,
    seeks_left: u64,
    update: f64,
    seed: Seed,
    away: Vec<bool>,
    small_rng: Rng,
    files: u64,
    small: Vec<FileId>,
    /// How many calls, or small files, the current test has done.
    done: usize,
}

fn build(seed: Seed, scale: Scale, params: &Params) -> Result<BoxedWorkload, WorkloadError> {
    let chunk = params.size("chunk");
    if chunk > params.size("size") {
        let reason = "chunk is larger than size";
        return Err(WorkloadError::Contradiction { workload: ENTRY.name, reason });
    }
    let seekers = params.count("seekers");
    let mut ids = Ids::new();
    Ok(Box::new(Scripted::new(Bonnie {
        file: ids.next(),
        ids,
        size: scale.size(params.size("size"), PAGE).0.max(chunk.0),
        chunk: chunk.0,
        chars: params.flag("chars"),
        char_ns: params.count("char-ns"),
        test: Test::Begin,
        seeks_left: scale.count(params.count("seeks")),
        update: params.number("update"),
        seed,
        away: vec![false; seekers as usize],
        small_rng: Rng::new(seed, ENTRY.name, 0),
        files: scale.count(params.count("files")),
        small: Vec::new(),
        done: 0,
    })))
}

impl Bonnie {
    /// One seek, or nothing when all are done.
    fn seek(&mut self, script: &mut Script) -> bool {
        let Some(left) = self.seeks_left.checked_sub(1) else {
            return false;
        };
        self.seeks_left = left;
        // Each seek has its own generator, so that the work is the same whichever client makes it.
        let mut rng = Rng::new(self.seed, ENTRY.name, 1 + left);
        let (offset, size) = (ByteSize(rng.below(self.size / self.chunk) * self.chunk), ByteSize(self.chunk));
        script.step(FileOperation::Read { file: self.file, offset, size });
        if rng.chance(self.update) {
            script.step(FileOperation::Write { file: self.file, offset, size });
        }
        true
    }

    /// By character, one call: the computing before it and the writing, or the reading and the computing after it.
    fn by_char(&mut self, script: &mut Script) -> bool {
        let at = self.done as u64 * STDIO;
        let piece = STDIO.min(self.size.saturating_sub(at));
        if piece == 0 {
            return false;
        }
        let computing = Nanos(piece * self.char_ns);
        if self.test == Test::CharWrite {
            script.think(computing);
            script.write(self.file, at, piece, piece);
        } else {
            script.read(self.file, at, piece, piece);
            script.think(computing);
        }
        self.done += 1;
        true
    }

    /// Begins the test that follows the current one, and does all of it that needs no turns.
    fn next_test(&mut self, script: &mut Script) {
        let (file, size, chunk) = (self.file, self.size, self.chunk);
        self.done = 0;
        self.test = match self.test {
            Test::Begin if self.chars => {
                script.phase("char-write");
                script.step(FileOperation::Create { file, dir: Ids::ROOT });
                Test::CharWrite
            }
            Test::Begin | Test::CharWrite => {
                script.phase("block-write");
                if self.chars {
                    script.step(FileOperation::Truncate { file, size: ByteSize(0) });
                } else {
                    script.step(FileOperation::Create { file, dir: Ids::ROOT });
                }
                script.write(file, 0, size, chunk);
                Test::BlockWrite
            }
            Test::BlockWrite => {
                script.phase("rewrite");
                script.rewrite(file, 0, size, chunk);
                Test::Rewrite
            }
            Test::Rewrite if self.chars => {
                script.phase("char-read");
                Test::CharRead
            }
            Test::Rewrite | Test::CharRead => {
                script.phase("block-read");
                script.read(file, 0, size, chunk);
                Test::BlockRead
            }
            Test::BlockRead => {
                script.phase("seek");
                Test::Seek
            }
            Test::Seek => Test::Seeking,
            Test::Seeking => {
                script.delete(file);
                if self.files == 0 {
                    Test::End
                } else {
                    script.phase("create");
                    Test::Create
                }
            }
            Test::Create => {
                script.phase("stat");
                Test::Stat
            }
            Test::Stat => {
                script.phase("delete");
                Test::Delete
            }
            Test::Delete => {
                self.small.clear();
                script.phase("create-at-random");
                Test::CreateAtRandom
            }
            Test::CreateAtRandom => {
                script.phase("stat-at-random");
                self.shuffle();
                Test::StatAtRandom
            }
            Test::StatAtRandom => {
                script.phase("delete-at-random");
                self.shuffle();
                Test::DeleteAtRandom
            }
            Test::DeleteAtRandom | Test::End => Test::End,
        };
    }

    fn shuffle(&mut self) {
        for at in (1..self.small.len()).rev() {
            let other = self.small_rng.index(at + 1);
            self.small.swap(at, other);
        }
    }

    /// The next turn of the current test, or nothing when it is done.
    fn turn(&mut self, script: &mut Script) -> bool {
        match self.test {
            Test::CharWrite | Test::CharRead => self.by_char(script),
            _ => self.small_file(script),
        }
    }

    /// One small file of the current test, or nothing when all are done.
    fn small_file(&mut self, script: &mut Script) -> bool {
        if self.done as u64 == self.files {
            return false;
        }
        match self.test {
            Test::Create | Test::CreateAtRandom => {
                let file = self.ids.next();
                self.small.push(file);
                script.create(file, Ids::ROOT, 0, 1);
            }
            Test::Stat | Test::StatAtRandom => script.stat(self.small[self.done]),
            Test::Delete | Test::DeleteAtRandom => script.delete(self.small[self.done]),
            _ => return false,
        }
        self.done += 1;
        true
    }
}

impl Play for Bonnie {
    fn clients(&self) -> u32 {
        self.away.len() as u32
    }

    /// By tests; each counts alike.
    fn progress(&self) -> Option<f64> {
        Some(f64::from(self.test as u8) / f64::from(Test::End as u8))
    }

    fn next_steps(&mut self, client: ClientId, _now: Nanos, script: &mut Script) -> ScriptStep {
        let seeker = client.0 as usize;
        if self.test == Test::Seek && self.seek(script) {
            return ScriptStep::On;
        }
        if seeker > 0 {
            if self.test < Test::Seek {
                script.wait();
                return ScriptStep::On;
            }
            self.away[seeker] = true;
            return ScriptStep::Done;
        }
        if self.test == Test::Seeking && self.away[1..].contains(&false) {
            script.wait();
        } else if self.test == Test::End {
            return ScriptStep::Done;
        } else if !self.turn(script) {
            self.next_test(script);
        }
        ScriptStep::On
    }
}
