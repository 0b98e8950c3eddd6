//! IOzone's throughput test as UmbrellaFS changed it (chapter V, "Page Cache Evaluation"): 16 processes, each on a file
//! of its own. Some write at places drawn from a Zipf distribution; the others go through their file in order, both
//! reading and writing. 2, 4 or 8 of the 16 are Zipf writers.
//!
//! The text gives neither the size of the files nor the skew. Assumed: 256 MiB, so that the 16 files are twice the
//! machine's memory of 2 GB, and theta 1. The popular places are scattered over the file, and a Zipf writer makes as
//! many writes as its file has records. Records of 4 KiB are IOzone's default. The files exist when time begins, those
//! of the Zipf writers first.

use std::ops::Range;

use umbrella_units::{ByteSize, FileId, Nanos};

use super::draw::{Rng, Zipf};
use super::entry::{BoxedWorkload, WorkloadEntry};
use super::kinds::{ANY, CLIENTS, FILE, IO, SHARE, SOME, param};
use super::params::ParamKind;
use super::script::{Ids, Play, Script, ScriptStep, Scripted};
use super::{ClientId, FileOperation, Params, Scale, Seed, WorkloadError};

pub(super) const ENTRY: WorkloadEntry = WorkloadEntry {
    name: "iozone",
    summary: "processes on files of their own: some write at Zipf places, the others read and write in order",
    source: "UmbrellaFS, chapter V",
    scales: "the files",
    params: &[
        param("procs", CLIENTS, "16", "UmbrellaFS, chapter V", "processes"),
        param("writers", ANY, "4", "UmbrellaFS, chapter V (2, 4 and 8)", "how many of them are Zipf writers"),
        param(
            "theta",
            ParamKind::Number { min: 0.0, max: 10.0 },
            "1",
            "assumed",
            "skew of the Zipf distribution; 0 is uniform",
        ),
        param("file", FILE, "256MiB", "assumed", "bytes of each file"),
        param("record", IO, "4KiB", "IOzone's default", "bytes of a read or write call"),
        param(
            "read",
            SHARE,
            "0.5",
            "UmbrellaFS, chapter V (\"uniform mix\")",
            "share of reads of a process that goes in order",
        ),
        param("passes", SOME, "1", "assumed", "how often a file is gone through"),
        param("writers-last", ParamKind::Flag, "false", "assumed", "whether the Zipf writers' files are made last"),
    ],
    build,
};

#[derive(Debug)]
struct Process {
    rng: Rng,
    file: FileId,
    done: u64,
}

#[derive(Debug)]
struct Iozone {
    processes: Vec<Process>,
    prepared: usize,
    /// The clients that are Zipf writers.
    writers: Range<u32>,
    zipf: Zipf,
    /// Place = (rank * stride + shift) mod records: a bijection, as the stride and the number of records share no
    /// factor.
    stride: u64,
    records: u64,
    record: u64,
    passes: u64,
    read: f64,
}

fn build(seed: Seed, scale: Scale, params: &Params) -> Result<BoxedWorkload, WorkloadError> {
    let (procs, writers) = (params.count("procs"), params.count("writers"));
    let contradiction = |reason| Err(WorkloadError::Contradiction { workload: ENTRY.name, reason });
    if writers > procs {
        return contradiction("there are more writers than procs");
    }
    let record = params.size("record");
    if record > params.size("file") {
        return contradiction("record is larger than file");
    }
    let records = scale.size(params.size("file"), record).0 / record.0;
    if records > 1 << 26 {
        return contradiction("file has more than 2^26 records");
    }
    let zipf = Zipf::new(if writers > 0 { records } else { 1 }, params.number("theta"));
    let mut ids = Ids::new();
    let processes = (0..procs)
        .map(|stream| Process { rng: Rng::new(seed, ENTRY.name, stream), file: ids.next(), done: 0 })
        .collect();
    let first = if params.flag("writers-last") { procs - writers } else { 0 };
    Ok(Box::new(Scripted::new(Iozone {
        processes,
        prepared: 0,
        writers: first as u32..(first + writers) as u32,
        zipf,
        stride: stride(records),
        records,
        record: record.0,
        passes: params.count("passes"),
        read: params.number("read"),
    })))
}

/// About the golden section of `n`, without a common factor.
fn stride(n: u64) -> u64 {
    let mut stride = (n as f64 * 0.618_033_988_75) as u64 | 1;
    while gcd(stride, n) != 1 {
        stride += 1;
    }
    stride
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

impl Play for Iozone {
    fn set_up(&mut self, script: &mut Script) -> ScriptStep {
        let Some(process) = self.processes.get(self.prepared) else {
            return ScriptStep::Done;
        };
        let size = self.records * self.record;
        script.create(process.file, Ids::ROOT, size, size);
        self.prepared += 1;
        ScriptStep::On
    }

    fn clients(&self) -> u32 {
        self.processes.len() as u32
    }

    fn progress(&self) -> Option<f64> {
        let done: f64 = self.processes.iter().map(|process| process.done as f64).sum();
        let each = self.records as f64 * self.passes as f64;
        Some(done / (each * self.processes.len() as f64))
    }

    fn next_steps(&mut self, client: ClientId, _now: Nanos, script: &mut Script) -> ScriptStep {
        let Process { rng, file, done } = &mut self.processes[client.0 as usize];
        if *done == self.records.saturating_mul(self.passes) {
            return ScriptStep::Done;
        }
        let (file, size) = (*file, ByteSize(self.record));
        if self.writers.contains(&client.0) {
            let rank = u128::from(self.zipf.draw(rng));
            let place = (rank * u128::from(self.stride) + u128::from(client.0)) % u128::from(self.records);
            script.step(FileOperation::Write { file, offset: ByteSize(place as u64 * self.record), size });
        } else {
            let offset = ByteSize(*done % self.records * self.record);
            script.step(if rng.chance(self.read) {
                FileOperation::Read { file, offset, size }
            } else {
                FileOperation::Write { file, offset, size }
            });
        }
        *done += 1;
        ScriptStep::On
    }
}
