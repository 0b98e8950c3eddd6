//! A file server: each thread makes a file and writes it, appends to another, reads a third, deletes a fourth and looks
//! at a fifth. This is filebench's `fileserver.f`, as TESA used it in section IV.A: 10,000 files of 128 KB on average,
//! 1 MB a read or write call, appends of 16 KB, 60 s.
//!
//! From filebench: 50 threads, 80 % of the files exist in the beginning, and directories have 20 entries. An append
//! adds from 1 byte to the size of an append. Sizes are gamma distributed (its default shape is 1.5). No two threads
//! work on one file. Assumed: all files are equally likely.

use umbrella_units::{FileId, Nanos};

use super::draw::Rng;
use super::entry::{BoxedWorkload, WorkloadEntry};
use super::kinds::{CLIENTS, IO, SHARE, SOME, param};
use super::params::ParamKind;
use super::script::{Ids, Play, Script, ScriptStep, Scripted};
use super::{ClientId, Params, Scale, Seed, WorkloadError};

pub(super) const ENTRY: WorkloadEntry = WorkloadEntry {
    name: "fileserver",
    summary: "threads create, append to, read, delete and look at files",
    source: "TESA, section IV.A (filebench's fileserver)",
    scales: "files and the duration",
    params: &[
        param("files", SOME, "10000", "TESA, section IV.A", "files that the set has room for"),
        param("size", IO, "128KiB", "TESA, section IV.A", "bytes of a file, on average"),
        param(
            "gamma",
            ParamKind::Number { min: 1.0, max: 1000.0 },
            "1.5",
            "filebench",
            "shape of the gamma distribution of sizes",
        ),
        param("io", IO, "1MiB", "TESA, section IV.A", "bytes of a read or write call"),
        param("append", IO, "16KiB", "TESA, section IV.A", "bytes of an append at most"),
        param(
            "existing",
            SHARE,
            "0.8",
            "filebench's fileserver.f (prealloc)",
            "share of the files that exist in the beginning",
        ),
        param("dir-width", SOME, "20", "filebench's fileserver.f", "entries of a directory"),
        param("threads", CLIENTS, "50", "filebench's fileserver.f", "threads"),
        param("duration", ParamKind::Duration, "60s", "TESA, section IV.A", "how long it runs"),
    ],
    build,
};

/// A place of the file set: filled or not.
#[derive(Debug, Clone, Copy)]
struct FileSlot {
    dir: FileId,
    /// What the file will have when it is made.
    planned: u64,
    size: u64,
    file: FileId,
}

/// Places of one kind, each equally likely to be taken.
#[derive(Debug, Default)]
struct Pool(Vec<usize>);

impl Pool {
    fn take(&mut self, rng: &mut Rng) -> Option<usize> {
        if self.0.is_empty() {
            return None;
        }
        let at = rng.index(self.0.len());
        Some(self.0.swap_remove(at))
    }

    fn release_file(&mut self, place: usize) {
        self.0.push(place);
    }
}

/// What a thread does in turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flow {
    Create,
    Append,
    Read,
    Delete,
    Stat,
}

impl Flow {
    fn after(self) -> Flow {
        match self {
            Flow::Create => Flow::Append,
            Flow::Append => Flow::Read,
            Flow::Read => Flow::Delete,
            Flow::Delete => Flow::Stat,
            Flow::Stat => Flow::Create,
        }
    }
}

#[derive(Debug)]
struct Thread {
    rng: Rng,
    flow: Flow,
    /// The place it works on, and whether a file will be there afterwards.
    busy: Option<(usize, bool)>,
}

#[derive(Debug)]
struct Fileserver {
    ids: Ids,
    rng: Rng,
    mean: f64,
    gamma: f64,
    existing: f64,
    width: u64,
    files: u64,
    dirs: Vec<FileId>,
    places: Vec<FileSlot>,
    filled: Pool,
    empty: Pool,
    threads: Vec<Thread>,
    io: u64,
    append: u64,
}

#[allow(clippy::unnecessary_wraps)] // The registry's signature.
fn build(seed: Seed, scale: Scale, params: &Params) -> Result<BoxedWorkload, WorkloadError> {
    let threads = (1..=params.count("threads"))
        .map(|stream| Thread { rng: Rng::new(seed, ENTRY.name, stream), flow: Flow::Create, busy: None })
        .collect();
    let server = Fileserver {
        ids: Ids::new(),
        rng: Rng::new(seed, ENTRY.name, 0),
        mean: params.size("size").0 as f64,
        gamma: params.number("gamma"),
        existing: params.number("existing"),
        width: params.count("dir-width"),
        files: scale.count(params.count("files")),
        dirs: Vec::new(),
        places: Vec::new(),
        filled: Pool::default(),
        empty: Pool::default(),
        threads,
        io: params.size("io").0,
        append: params.size("append").0,
    };
    Ok(Box::new(Scripted::timed(server, scale.time(params.duration("duration")))))
}

impl Fileserver {
    /// Makes levels of directories, each `width` wide, until the last has room for all files.
    fn set_up_dirs(&mut self, script: &mut Script) {
        let leaves = self.files.div_ceil(self.width);
        let mut levels = vec![leaves];
        while let Some(&last) = levels.last()
            && last > self.width
            && self.width > 1
        {
            levels.push(last.div_ceil(self.width));
        }
        let mut above = vec![Ids::ROOT];
        for &wanted in levels.iter().rev() {
            let parents = std::mem::take(&mut above);
            for at in 0..wanted as usize {
                let dir = self.ids.next();
                script.mkdir(dir, parents[at * parents.len() / wanted as usize]);
                above.push(dir);
            }
        }
        self.dirs = above;
    }

    /// Chooses the next file to work on. Chooses nothing when other threads work on all files.
    fn next_file(&mut self, thread: usize, script: &mut Script) {
        let Thread { rng, flow, busy } = &mut self.threads[thread];
        let now = *flow;
        *flow = now.after();
        let pool = if now == Flow::Create { &mut self.empty } else { &mut self.filled };
        let Some(at) = pool.take(rng) else {
            return;
        };
        *busy = Some((at, now != Flow::Delete));
        let place = &mut self.places[at];
        match now {
            Flow::Create => {
                place.file = self.ids.next();
                place.size = place.planned;
                script.create(place.file, place.dir, place.size, self.io);
            }
            Flow::Append => {
                let more = 1 + rng.below(self.append);
                script.write(place.file, place.size, more, more);
                place.size += more;
            }
            Flow::Read => script.read(place.file, 0, place.size, self.io),
            Flow::Delete => script.delete(place.file),
            Flow::Stat => script.stat(place.file),
        }
    }
}

impl Play for Fileserver {
    fn set_up(&mut self, script: &mut Script) -> ScriptStep {
        if self.dirs.is_empty() {
            self.set_up_dirs(script);
        }
        let at = self.places.len();
        if at as u64 == self.files {
            return ScriptStep::Done;
        }
        let dir = self.dirs[at / self.width as usize];
        let planned = (self.rng.gamma(self.mean, self.gamma) as u64).max(1);
        let mut place = FileSlot { dir, planned, size: 0, file: FileId::default() };
        if self.rng.chance(self.existing) {
            place.file = self.ids.next();
            place.size = planned;
            script.create(place.file, dir, planned, planned);
            self.filled.release_file(at);
        } else {
            self.empty.release_file(at);
        }
        self.places.push(place);
        ScriptStep::On
    }

    fn clients(&self) -> u32 {
        self.threads.len() as u32
    }

    fn next_steps(&mut self, client: ClientId, _now: Nanos, script: &mut Script) -> ScriptStep {
        let thread = client.0 as usize;
        match self.threads[thread].busy.take() {
            Some((place, true)) => self.filled.release_file(place),
            Some((place, false)) => self.empty.release_file(place),
            None => {}
        }
        for _ in 0..5 {
            self.next_file(thread, script);
            if self.threads[thread].busy.is_some() {
                return ScriptStep::On;
            }
        }
        script.wait();
        ScriptStep::On
    }
}
