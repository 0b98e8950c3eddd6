//! Writes at random places of one large file: filebench's random write as TESA used it (section IV.A: 16 KB in a file
//! of 2 GB, 60 s). filebench draws offsets that are multiples of the size of a write (its `randomwrite.f`).

use umbrella_units::{ByteSize, FileId, Nanos};

use super::draw::Rng;
use super::entry::{BoxedWorkload, WorkloadEntry};
use super::kinds::{FILE, IO, param};
use super::params::ParamKind;
use super::script::{Ids, share_of};
use super::{ClientId, FileOperation, Params, Scale, Seed, Workload, WorkloadError};

pub(super) const ENTRY: WorkloadEntry = WorkloadEntry {
    name: "rnd-write",
    summary: "one client writes at random places of one file that exists",
    source: "TESA, section IV.A (filebench)",
    scales: "the file and the duration",
    params: &[
        param("io", IO, "16KiB", "TESA, section IV.A", "bytes of a write; offsets are multiples of it"),
        param("file", FILE, "2GiB", "TESA, section IV.A", "bytes of the file"),
        param("duration", ParamKind::Duration, "60s", "TESA, section IV.A", "how long it runs"),
    ],
    build,
};

#[derive(Debug)]
struct RndWrite {
    file: FileId,
    to_prepare: u8,
    io: u64,
    places: u64,
    rng: Rng,
    until: Nanos,
}

fn build(seed: Seed, scale: Scale, params: &Params) -> Result<BoxedWorkload, WorkloadError> {
    let io = params.size("io");
    if io > params.size("file") {
        let reason = "io is larger than the file";
        return Err(WorkloadError::Contradiction { workload: ENTRY.name, reason });
    }
    Ok(Box::new(RndWrite {
        file: Ids::new().next(),
        to_prepare: 2,
        io: io.0,
        places: scale.size(params.size("file"), io).0 / io.0,
        rng: Rng::new(seed, ENTRY.name, 0),
        until: scale.time(params.duration("duration")),
    }))
}

impl Workload for RndWrite {
    fn prepare(&mut self) -> Option<FileOperation> {
        self.to_prepare = self.to_prepare.checked_sub(1)?;
        Some(if self.to_prepare == 1 {
            FileOperation::Create { file: self.file, dir: Ids::ROOT }
        } else {
            FileOperation::Write { file: self.file, offset: ByteSize(0), size: ByteSize(self.places * self.io) }
        })
    }

    fn next(&mut self, _client: ClientId, now: Nanos) -> Option<FileOperation> {
        if now >= self.until {
            return None;
        }
        let offset = ByteSize(self.rng.below(self.places) * self.io);
        Some(FileOperation::Write { file: self.file, offset, size: ByteSize(self.io) })
    }

    fn progress(&self, now: Nanos) -> Option<f64> {
        Some(share_of(now, self.until))
    }
}
