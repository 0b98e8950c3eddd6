//! The mail server benchmark PostMark 1.5 (Katcher 1997), as its program does it: make the files, then run
//! transactions, then remove the remaining files. Each transaction is a read of a whole file or an append, followed by
//! a creation or a deletion.
//!
//! From the program: sizes are drawn from `low` to below `high`. An append fills a file up to at most `high`, and adds
//! nothing to a file that has reached it. A creation does nothing while there are twice as many files as in the
//! beginning. Biases are tenths. Directories exist before time begins, and each file gets a random one. Files are
//! removed in the order in which they were made; the program goes through its table instead.
//!
//! TESA: 100,000 files, 100 directories, 200,000 transactions (the defaults here). UmbrellaFS, chapter V:
//! `files=12500,low=8KiB,high=64KiB,dirs=200,transactions=25000`. MRAM, 4.4.2.1: `files=5000..55000,dirs=0`; 4.4.2.2:
//! `files=500,low=2MiB,high=6MiB,dirs=0`.

use umbrella_units::{FileId, Nanos};

use super::draw::Rng;
use super::entry::{BoxedWorkload, WorkloadEntry};
use super::kinds::{ANY, FILE, IO, SOME, param};
use super::params::ParamKind;
use super::script::{Ids, Play, Script, ScriptStep, Scripted};
use super::{ClientId, Params, Scale, Seed, WorkloadError};

const BIAS: ParamKind = ParamKind::Count { min: 0, max: 10 };

pub(super) const ENTRY: WorkloadEntry = WorkloadEntry {
    name: "postmark",
    summary: "a mail server: many small files are made, read, appended to and deleted",
    source: "PostMark 1.5 (Katcher 1997); TESA, section IV.A; UmbrellaFS, chapter V; MRAM, 4.4.2",
    scales: "files, directories and transactions",
    params: &[
        param("files", SOME, "100000", "TESA, section IV.A", "files in the beginning"),
        param("transactions", ANY, "200000", "TESA, section IV.A; MRAM, 4.4.2.1", "transactions"),
        param("dirs", ANY, "100", "TESA, section IV.A", "subdirectories; with 0 or 1 all files are in the root"),
        param("low", FILE, "500B", "PostMark's default", "the smallest file"),
        param("high", FILE, "10000B", "PostMark's default (9.77 KiB)", "files are smaller than this, or grow to it"),
        param("read-bias", BIAS, "5", "PostMark's default", "how many of ten transactions read; the rest append"),
        param("create-bias", BIAS, "5", "PostMark's default", "how many of ten transactions create; the rest delete"),
        param(
            "block",
            IO,
            "4KiB",
            "UmbrellaFS, chapter V; PostMark's default of 512 B passes through a 4 KiB buffer of the C library",
            "bytes of a read or write call",
        ),
    ],
    build,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Create,
    Transactions,
    Delete,
}

#[derive(Debug, Clone, Copy)]
struct Mail {
    file: FileId,
    size: u64,
}

#[derive(Debug)]
struct Postmark {
    rng: Rng,
    ids: Ids,
    dirs: Vec<FileId>,
    wanted_dirs: u64,
    live: Vec<Mail>,
    begin: u64,
    to_create: u64,
    transactions_left: u64,
    transactions: u64,
    low: u64,
    high: u64,
    read_bias: u64,
    create_bias: u64,
    block: u64,
    phase: Option<Phase>,
}

fn build(seed: Seed, scale: Scale, params: &Params) -> Result<BoxedWorkload, WorkloadError> {
    let (low, high) = (params.size("low").0, params.size("high").0);
    if low > high {
        return Err(WorkloadError::Contradiction { workload: ENTRY.name, reason: "low is larger than high" });
    }
    let files = scale.count(params.count("files"));
    let dirs = params.count("dirs");
    Ok(Box::new(Scripted::new(Postmark {
        rng: Rng::new(seed, ENTRY.name, 0),
        ids: Ids::new(),
        dirs: Vec::new(),
        wanted_dirs: if dirs > 1 { scale.count(dirs) } else { 0 },
        live: Vec::new(),
        begin: files,
        to_create: files,
        transactions_left: scale.count(params.count("transactions")),
        transactions: scale.count(params.count("transactions")),
        low,
        high,
        read_bias: params.count("read-bias"),
        create_bias: params.count("create-bias"),
        block: params.size("block").0,
        phase: None,
    })))
}

impl Postmark {
    fn create(&mut self, script: &mut Script) {
        let dir = match self.dirs.as_slice() {
            [] => Ids::ROOT,
            dirs => dirs[self.rng.index(dirs.len())],
        };
        let size = self.low + self.rng.below(self.high - self.low);
        let file = self.ids.next();
        self.live.push(Mail { file, size });
        script.create(file, dir, size, self.block);
    }

    fn transaction(&mut self, script: &mut Script) {
        let at = self.rng.index(self.live.len());
        let Mail { file, size } = self.live[at];
        if self.rng.below(10) < self.read_bias {
            script.read(file, 0, size, self.block);
        } else if size < self.high {
            let more = 1 + self.rng.below(self.high - size);
            script.write(file, size, more, self.block);
            self.live[at].size += more;
        }
        if self.rng.below(10) < self.create_bias {
            if (self.live.len() as u64) < 2 * self.begin {
                self.create(script);
            }
        } else {
            let at = self.rng.index(self.live.len());
            script.delete(self.live.swap_remove(at).file);
        }
    }

    fn enter(&mut self, phase: Phase, script: &mut Script) {
        self.phase = Some(phase);
        script.phase(match phase {
            Phase::Create => "create",
            Phase::Transactions => "transactions",
            Phase::Delete => {
                self.live.sort_unstable_by_key(|mail| std::cmp::Reverse(mail.file));
                "delete"
            }
        });
    }
}

impl Play for Postmark {
    fn set_up(&mut self, script: &mut Script) -> ScriptStep {
        if self.dirs.len() as u64 == self.wanted_dirs {
            return ScriptStep::Done;
        }
        let dir = self.ids.next();
        self.dirs.push(dir);
        script.mkdir(dir, Ids::ROOT);
        ScriptStep::On
    }

    /// A file is made, taken part in a transaction, or removed: of three equal parts, as none can tell how long each
    /// takes.
    fn progress(&self) -> Option<f64> {
        let part = match self.phase {
            None => 0.0,
            Some(Phase::Create) => 1.0 - self.to_create as f64 / self.begin as f64,
            Some(Phase::Transactions) => 2.0 - self.transactions_left as f64 / self.transactions.max(1) as f64,
            Some(Phase::Delete) => 2.0 + 1.0 / (1.0 + self.live.len() as f64),
        };
        Some(part / 3.0)
    }

    fn next_steps(&mut self, _client: ClientId, _now: Nanos, script: &mut Script) -> ScriptStep {
        match self.phase {
            None => self.enter(Phase::Create, script),
            Some(Phase::Create) if self.to_create > 0 => {
                self.to_create -= 1;
                self.create(script);
            }
            Some(Phase::Create) => self.enter(Phase::Transactions, script),
            Some(Phase::Transactions) if self.transactions_left > 0 && !self.live.is_empty() => {
                self.transactions_left -= 1;
                self.transaction(script);
            }
            Some(Phase::Transactions) => self.enter(Phase::Delete, script),
            Some(Phase::Delete) => match self.live.pop() {
                Some(mail) => script.delete(mail.file),
                None => return ScriptStep::Done,
            },
        }
        ScriptStep::On
    }
}
