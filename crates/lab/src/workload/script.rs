//! Turns what a program does (write this whole file in blocks, then read that one) into single steps, one at a time. So
//! a file of many gigabytes takes no memory.

use std::collections::VecDeque;

use umbrella_units::{ByteSize, FileId, Nanos};

use super::{ClientId, FileOperation, Workload};

/// How long a client that waits for others sleeps before it looks again.
const POLL: Nanos = Nanos::from_millis(10);

/// What is done to the pieces of a byte range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Transfer {
    Read,
    Write,
    /// Each piece is read, changed and written back.
    Rewrite,
}

#[derive(Debug)]
enum Job {
    Step(FileOperation),
    Range { transfer: Transfer, file: FileId, from: u64, end: u64, piece: u64 },
}

/// The next steps of one client.
#[derive(Debug, Default)]
pub(super) struct Script {
    jobs: VecDeque<Job>,
}

impl Script {
    /// Adds one step.
    pub(super) fn step(&mut self, step: FileOperation) {
        self.jobs.push_back(Job::Step(step));
    }

    /// Begins a phase.
    pub(super) fn phase(&mut self, name: &'static str) {
        self.step(FileOperation::Phase { name });
    }

    /// Makes a directory.
    pub(super) fn mkdir(&mut self, dir: FileId, parent: FileId) {
        self.step(FileOperation::Mkdir { dir, parent });
    }

    /// Makes a file and writes it from its beginning, `piece` bytes at a time.
    pub(super) fn create(&mut self, file: FileId, dir: FileId, size: u64, piece: u64) {
        self.step(FileOperation::Create { file, dir });
        self.write(file, 0, size, piece);
    }

    /// Writes a range, `piece` bytes at a time.
    pub(super) fn write(&mut self, file: FileId, from: u64, size: u64, piece: u64) {
        self.range(Transfer::Write, file, from, size, piece);
    }

    /// Reads a range, `piece` bytes at a time.
    pub(super) fn read(&mut self, file: FileId, from: u64, size: u64, piece: u64) {
        self.range(Transfer::Read, file, from, size, piece);
    }

    /// Reads and writes back each piece of a range.
    pub(super) fn rewrite(&mut self, file: FileId, from: u64, size: u64, piece: u64) {
        self.range(Transfer::Rewrite, file, from, size, piece);
    }

    /// Looks at a file's attributes: a read of nothing.
    pub(super) fn stat(&mut self, file: FileId) {
        self.step(FileOperation::Read { file, offset: ByteSize(0), size: ByteSize(0) });
    }

    /// Removes a file or an empty directory.
    pub(super) fn delete(&mut self, file: FileId) {
        self.step(FileOperation::Delete { file });
    }

    /// Computes, or rests.
    pub(super) fn think(&mut self, time: Nanos) {
        if time > Nanos(0) {
            self.step(FileOperation::Think { time });
        }
    }

    /// Waits a moment for what another client has to finish first.
    pub(super) fn wait(&mut self) {
        self.think(POLL);
    }

    fn range(&mut self, transfer: Transfer, file: FileId, from: u64, size: u64, piece: u64) {
        if size > 0 {
            self.jobs.push_back(Job::Range { transfer, file, from, end: from + size, piece: piece.max(1) });
        }
    }

    /// The next step.
    pub(super) fn next(&mut self) -> Option<FileOperation> {
        match self.jobs.pop_front()? {
            Job::Step(step) => Some(step),
            Job::Range { transfer, file, from, end, piece } => {
                let until = end.min(from + piece);
                if until < end {
                    self.jobs.push_front(Job::Range { transfer, file, from: until, end, piece });
                }
                let (offset, size) = (ByteSize(from), ByteSize(until - from));
                if transfer == Transfer::Rewrite {
                    self.jobs.push_front(Job::Step(FileOperation::Write { file, offset, size }));
                }
                Some(match transfer {
                    Transfer::Read | Transfer::Rewrite => FileOperation::Read { file, offset, size },
                    Transfer::Write => FileOperation::Write { file, offset, size },
                })
            }
        }
    }
}

/// What a client does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScriptStep {
    /// What the script says.
    On,
    /// Nothing any more.
    Done,
}

/// A program with several clients: fills their scripts when they run out.
pub(super) trait Play {
    /// Adds some of the files that exist before time begins; [`ScriptStep::Done`] when all are added.
    fn set_up(&mut self, _script: &mut Script) -> ScriptStep {
        ScriptStep::Done
    }

    /// How many clients there are.
    fn clients(&self) -> u32 {
        1
    }

    /// Adds the client's next steps. The client has finished all earlier ones.
    fn next_steps(&mut self, client: ClientId, now: Nanos, script: &mut Script) -> ScriptStep;

    /// How much is done, 0 to 1, where no time limit says so.
    fn progress(&self) -> Option<f64> {
        None
    }

    /// What the user should know about this run.
    fn warnings(&self) -> &[String] {
        &[]
    }
}

/// A [`Play`] as a workload.
pub(super) struct Scripted<P> {
    play: P,
    set_up: Script,
    ready: bool,
    scripts: Vec<Script>,
    until: Nanos,
}

impl<P: Play> Scripted<P> {
    /// Runs until its clients are done.
    pub(super) fn new(play: P) -> Scripted<P> {
        Scripted::timed(play, Nanos::NEVER)
    }

    /// Runs until that moment, whatever its clients are doing then.
    pub(super) fn timed(play: P, until: Nanos) -> Scripted<P> {
        let scripts = (0..play.clients()).map(|_| Script::default()).collect();
        Scripted { play, set_up: Script::default(), ready: false, scripts, until }
    }
}

impl<P: Play> Workload for Scripted<P> {
    fn prepare(&mut self) -> Option<FileOperation> {
        loop {
            if let Some(step) = self.set_up.next() {
                return Some(step);
            }
            if self.ready {
                return None;
            }
            self.ready = self.play.set_up(&mut self.set_up) == ScriptStep::Done;
        }
    }

    fn clients(&self) -> u32 {
        self.play.clients()
    }

    fn next(&mut self, client: ClientId, now: Nanos) -> Option<FileOperation> {
        if now >= self.until {
            return None;
        }
        let script = self.scripts.get_mut(client.0 as usize)?;
        loop {
            if let Some(step) = script.next() {
                return Some(step);
            }
            if self.play.next_steps(client, now, script) == ScriptStep::Done {
                return None;
            }
        }
    }

    fn progress(&self, now: Nanos) -> Option<f64> {
        if self.until == Nanos::NEVER {
            return self.play.progress();
        }
        Some(share_of(now, self.until))
    }

    fn warnings(&self) -> &[String] {
        self.play.warnings()
    }
}

/// How much of the time until then is over, 0 to 1.
pub(super) fn share_of(now: Nanos, until: Nanos) -> f64 {
    (now.0 as f64 / until.0 as f64).min(1.0)
}

/// Hands out numbers for files and directories: from 2 (1 is the root), none twice.
#[derive(Debug)]
pub(super) struct Ids(u64);

impl Ids {
    /// The root directory.
    pub(super) const ROOT: FileId = FileId(1);

    /// Nothing but the root exists.
    pub(super) fn new() -> Ids {
        Ids(Self::ROOT.0)
    }

    /// The next number.
    pub(super) fn next(&mut self) -> FileId {
        self.0 += 1;
        FileId(self.0)
    }
}
