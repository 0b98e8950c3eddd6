//! Appends to one file, without end: filebench's sequential write as TESA used it (section IV.A: an empty file, appends
//! of 4 KB, 60 s).

use umbrella_units::{ByteSize, FileId, Nanos};

use super::entry::{BoxedWorkload, WorkloadEntry};
use super::kinds::{IO, param};
use super::params::ParamKind;
use super::script::{Ids, share_of};
use super::{ClientId, FileOperation, Params, Scale, Seed, Workload, WorkloadError};

pub(super) const ENTRY: WorkloadEntry = WorkloadEntry {
    name: "seq-write",
    summary: "one client appends to one file",
    source: "TESA, section IV.A (filebench)",
    scales: "the duration",
    params: &[
        param("io", IO, "4KiB", "TESA, section IV.A", "bytes of an append"),
        param("duration", ParamKind::Duration, "60s", "TESA, section IV.A", "how long it runs"),
    ],
    build,
};

#[derive(Debug)]
struct SeqWrite {
    file: FileId,
    created: bool,
    end: u64,
    io: u64,
    until: Nanos,
}

#[allow(clippy::unnecessary_wraps)] // The registry's signature.
fn build(_seed: Seed, scale: Scale, params: &Params) -> Result<BoxedWorkload, WorkloadError> {
    let file = Ids::new().next();
    let until = scale.time(params.duration("duration"));
    Ok(Box::new(SeqWrite { file, created: false, end: 0, io: params.size("io").0, until }))
}

impl Workload for SeqWrite {
    fn next(&mut self, _client: ClientId, now: Nanos) -> Option<FileOperation> {
        if now >= self.until {
            return None;
        }
        if !std::mem::replace(&mut self.created, true) {
            return Some(FileOperation::Create { file: self.file, dir: Ids::ROOT });
        }
        let offset = ByteSize(self.end);
        self.end += self.io;
        Some(FileOperation::Write { file: self.file, offset, size: ByteSize(self.io) })
    }

    fn progress(&self, now: Nanos) -> Option<f64> {
        Some(share_of(now, self.until))
    }
}
