//! A video server: readers, each going through one film from its beginning to its end, again and again. TESA, section
//! IV.A: 4 threads read 4 files of 1 GB that were made before, for 60 s. filebench's `videoserver.f`: 256 KB a read.
//!
//! filebench's program also has a writer that replaces a film of a second, passive set every 10 s, with 1 MB a write.
//! TESA does not mention one, so it is off unless `passive` is given. (TESA's table I has some memory for dirty pages
//! in this workload, so something was written.)

use umbrella_units::{FileId, Nanos};

use super::draw::Rng;
use super::entry::{BoxedWorkload, WorkloadEntry};
use super::kinds::{ANY, CLIENTS, FILE, IO, PAGE, SOME, param};
use super::params::ParamKind;
use super::script::{Ids, Play, Script, ScriptStep, Scripted};
use super::{ClientId, Params, Scale, Seed, WorkloadError};

pub(super) const ENTRY: WorkloadEntry = WorkloadEntry {
    name: "videoserver",
    summary: "readers stream large files; a writer may replace others meanwhile",
    source: "TESA, section IV.A (filebench's videoserver)",
    scales: "the files, the interval and the duration",
    params: &[
        param("files", SOME, "4", "TESA, section IV.A", "films that are read"),
        param("size", FILE, "1GiB", "TESA, section IV.A", "bytes of a film"),
        param("readers", CLIENTS, "4", "TESA, section IV.A", "clients that read"),
        param("io", IO, "256KiB", "filebench's videoserver.f", "bytes of a read call"),
        param(
            "passive",
            ANY,
            "0",
            "TESA mentions no writer",
            "films that a writer replaces; with 0 there is no writer",
        ),
        param("write-io", IO, "1MiB", "filebench's videoserver.f", "bytes of a write call"),
        param(
            "interval",
            ParamKind::Duration,
            "10s",
            "filebench's videoserver.f",
            "the writer's rest between two films",
        ),
        param("duration", ParamKind::Duration, "60s", "TESA, section IV.A", "how long it runs"),
    ],
    build,
};

#[derive(Debug)]
struct Videoserver {
    ids: Ids,
    rng: Rng,
    active: Vec<FileId>,
    wanted_active: u64,
    passive: Vec<FileId>,
    wanted_passive: u64,
    size: u64,
    readers: u32,
    io: u64,
    write_io: u64,
    interval: Nanos,
}

#[allow(clippy::unnecessary_wraps)] // The registry's signature.
fn build(seed: Seed, scale: Scale, params: &Params) -> Result<BoxedWorkload, WorkloadError> {
    let server = Videoserver {
        ids: Ids::new(),
        rng: Rng::new(seed, ENTRY.name, 0),
        active: Vec::new(),
        wanted_active: params.count("files"),
        passive: Vec::new(),
        wanted_passive: params.count("passive"),
        size: scale.size(params.size("size"), PAGE).0,
        readers: params.count("readers") as u32,
        io: params.size("io").0,
        write_io: params.size("write-io").0,
        interval: scale.time(params.duration("interval")),
    };
    Ok(Box::new(Scripted::timed(server, scale.time(params.duration("duration")))))
}

impl Play for Videoserver {
    fn set_up(&mut self, script: &mut Script) -> ScriptStep {
        let (films, wanted) = if (self.active.len() as u64) < self.wanted_active {
            (&mut self.active, self.wanted_active)
        } else {
            (&mut self.passive, self.wanted_passive)
        };
        if films.len() as u64 == wanted {
            return ScriptStep::Done;
        }
        let film = self.ids.next();
        films.push(film);
        script.create(film, Ids::ROOT, self.size, self.size);
        ScriptStep::On
    }

    fn clients(&self) -> u32 {
        self.readers + u32::from(self.wanted_passive > 0)
    }

    fn next_steps(&mut self, client: ClientId, _now: Nanos, script: &mut Script) -> ScriptStep {
        if client.0 < self.readers {
            let film = self.active[client.0 as usize % self.active.len()];
            script.read(film, 0, self.size, self.io);
            return ScriptStep::On;
        }
        let place = self.rng.index(self.passive.len());
        let film = self.ids.next();
        script.delete(std::mem::replace(&mut self.passive[place], film));
        script.create(film, Ids::ROOT, self.size, self.write_io);
        script.think(self.interval);
        ScriptStep::On
    }
}
