//! Several jobs compile a kernel: each reads a source and its headers, computes, and writes an object and a list of its
//! dependencies. When a directory is done, its objects are linked into one, and all of those into the kernel.
//! UmbrellaFS, chapter V: Fedora's kernel 2.6.25 with the configuration of the test machine, said to be bound by the
//! processor.
//!
//! The text gives no counts. Assumed:
//! - 6,000 sources of 20 KB and 8,000 headers of 6 KB on average (lognormal, deviation 1.2)
//! - 150 headers a source, popular ones more often (Zipf, theta 0.8)
//! - 20 sources a directory
//! - 0.5 s of computing a source (lognormal, deviation 0.5)
//! - objects of 100 KB on average (with debugging information)
//! - 4 jobs
//!
//! Sources and headers are read whole in one call, as the compiler does; outputs are written through the C library's 4
//! KiB buffer. The order is that of the tree.

use umbrella_units::{FileId, Nanos};

use super::draw::{Rng, Zipf};
use super::entry::{BoxedWorkload, WorkloadEntry};
use super::kinds::{CLIENTS, FEW, FILE, IO, SOME, param};
use super::params::ParamKind;
use super::script::{Ids, Play, Script, ScriptStep, Scripted};
use super::{ClientId, Params, Scale, Seed, WorkloadError};

/// Deviation of the logarithm of sizes.
const SIZE_SIGMA: f64 = 1.2;

/// Deviation of the logarithm of computing times.
const CPU_SIGMA: f64 = 0.5;

/// Skew of how popular headers are.
const THETA: f64 = 0.8;

/// Bytes of a list of dependencies for each header in it: the length of a path.
const DEPENDENCY: u64 = 40;

/// Headers of a directory.
const HEADERS_PER_DIR: usize = 200;

/// Linking takes this share of the time that compiling the same objects took.
const LINK_SHARE: f64 = 0.01;

pub(super) const ENTRY: WorkloadEntry = WorkloadEntry {
    name: "kernel-compile",
    summary: "jobs read sources and headers, compute, and write objects; then all is linked",
    source: "UmbrellaFS, chapter V",
    scales: "sources and headers",
    params: &[
        param("sources", SOME, "6000", "assumed", "sources that are compiled"),
        param("source-size", IO, "20KB", "assumed", "bytes of a source, on average"),
        param("headers", SOME, "8000", "assumed", "headers"),
        param("header-size", IO, "6KB", "assumed", "bytes of a header, on average"),
        param("includes", FEW, "150", "assumed", "headers that a source reads"),
        param("object-size", FILE, "100KB", "assumed", "bytes of an object, on average"),
        param("per-dir", SOME, "20", "assumed", "sources of a directory"),
        param("cpu", ParamKind::Duration, "500ms", "assumed", "computing for a source, on average"),
        param("io", IO, "4KiB", "the C library's buffer", "bytes of a write call"),
        param("jobs", CLIENTS, "4", "assumed", "jobs (make -j)"),
    ],
    build,
};

#[derive(Debug, Clone, Copy)]
struct TreeFile {
    id: FileId,
    size: u64,
}

#[derive(Debug)]
struct Directory {
    id: FileId,
    /// Sources that are not compiled yet.
    left: u64,
    objects: Vec<TreeFile>,
}

/// What a job works on.
#[derive(Debug, Clone, Copy)]
enum Task {
    Compile(usize),
    LinkDirectory,
    LinkAll,
}

#[derive(Debug)]
struct KernelCompile {
    rng: Rng,
    ids: Ids,
    seed: Seed,
    tasks: Vec<Option<Task>>,
    wanted_headers: usize,
    headers: Vec<TreeFile>,
    header_dir: FileId,
    zipf: Zipf,
    wanted_sources: usize,
    sources: Vec<TreeFile>,
    per_dir: usize,
    dirs: Vec<Directory>,
    next_source: usize,
    parts: Vec<TreeFile>,
    source_mean: f64,
    header_mean: f64,
    object_mean: f64,
    cpu: f64,
    includes: u64,
    io: u64,
    linked: usize,
}

#[allow(clippy::unnecessary_wraps)] // The registry's signature.
fn build(seed: Seed, scale: Scale, params: &Params) -> Result<BoxedWorkload, WorkloadError> {
    let headers = scale.count(params.count("headers"));
    let jobs = params.count("jobs");
    Ok(Box::new(Scripted::new(KernelCompile {
        rng: Rng::new(seed, ENTRY.name, 0),
        ids: Ids::new(),
        seed,
        tasks: vec![None; jobs as usize],
        wanted_headers: headers as usize,
        headers: Vec::new(),
        header_dir: Ids::ROOT,
        zipf: Zipf::new(headers, THETA),
        wanted_sources: scale.count(params.count("sources")) as usize,
        sources: Vec::new(),
        per_dir: params.count("per-dir") as usize,
        dirs: Vec::new(),
        next_source: 0,
        parts: Vec::new(),
        source_mean: params.size("source-size").0 as f64,
        header_mean: params.size("header-size").0 as f64,
        object_mean: params.size("object-size").0 as f64,
        cpu: params.duration("cpu").0 as f64,
        includes: params.count("includes"),
        io: params.size("io").0,
        linked: 0,
    })))
}

fn drawn_size(rng: &mut Rng, mean: f64) -> u64 {
    (rng.lognormal(mean, SIZE_SIGMA) as u64).max(1)
}

impl KernelCompile {
    fn compile(&mut self, source: usize, script: &mut Script) {
        // Each source has its own, so that the work is the same whichever job comes to it.
        let rng = &mut Rng::new(self.seed, ENTRY.name, 1 + source as u64);
        let whole = |script: &mut Script, file: TreeFile| script.read(file.id, 0, file.size, file.size);
        whole(script, self.sources[source]);
        for _ in 0..self.includes {
            whole(script, self.headers[self.zipf.draw(rng) as usize]);
        }
        script.think(Nanos(rng.lognormal(self.cpu, CPU_SIGMA) as u64));
        let dir = &mut self.dirs[source / self.per_dir];
        let object = TreeFile { id: self.ids.next(), size: drawn_size(rng, self.object_mean) };
        script.create(object.id, dir.id, object.size, self.io);
        script.create(self.ids.next(), dir.id, self.includes * DEPENDENCY, self.io);
        dir.objects.push(object);
    }

    fn link(&mut self, inputs: &[TreeFile], dir: FileId, script: &mut Script) -> TreeFile {
        for input in inputs {
            script.read(input.id, 0, input.size, input.size);
        }
        script.think(Nanos((inputs.len() as f64 * self.cpu * LINK_SHARE) as u64));
        let output = TreeFile { id: self.ids.next(), size: inputs.iter().map(|input| input.size).sum() };
        script.create(output.id, dir, output.size, self.io);
        output
    }

    /// The task that the job's last task has made possible, if this job does it.
    fn next_task(&mut self, job: usize, script: &mut Script) -> Option<Task> {
        match self.tasks[job].take()? {
            Task::Compile(dir) => {
                self.dirs[dir].left -= 1;
                if self.dirs[dir].left > 0 {
                    return None;
                }
                let objects = std::mem::take(&mut self.dirs[dir].objects);
                let part = self.link(&objects, self.dirs[dir].id, script);
                self.parts.push(part);
                Some(Task::LinkDirectory)
            }
            Task::LinkDirectory => {
                self.linked += 1;
                if self.linked < self.dirs.len() {
                    return None;
                }
                let parts = std::mem::take(&mut self.parts);
                script.phase("link");
                self.link(&parts, Ids::ROOT, script);
                Some(Task::LinkAll)
            }
            Task::LinkAll => None,
        }
    }
}

impl Play for KernelCompile {
    fn set_up(&mut self, script: &mut Script) -> ScriptStep {
        if self.headers.len() < self.wanted_headers {
            if self.headers.len().is_multiple_of(HEADERS_PER_DIR) {
                self.header_dir = self.ids.next();
                script.mkdir(self.header_dir, Ids::ROOT);
            }
            let file = TreeFile { id: self.ids.next(), size: drawn_size(&mut self.rng, self.header_mean) };
            script.create(file.id, self.header_dir, file.size, file.size);
            self.headers.push(file);
            return ScriptStep::On;
        }
        if self.sources.len() == self.wanted_sources {
            return ScriptStep::Done;
        }
        if self.sources.len().is_multiple_of(self.per_dir) {
            let dir = Directory { id: self.ids.next(), left: 0, objects: Vec::new() };
            script.mkdir(dir.id, Ids::ROOT);
            self.dirs.push(dir);
        }
        if let Some(dir) = self.dirs.last_mut() {
            let file = TreeFile { id: self.ids.next(), size: drawn_size(&mut self.rng, self.source_mean) };
            dir.left += 1;
            script.create(file.id, dir.id, file.size, file.size);
            self.sources.push(file);
        }
        ScriptStep::On
    }

    fn clients(&self) -> u32 {
        self.tasks.len() as u32
    }

    fn progress(&self) -> Option<f64> {
        Some(self.next_source as f64 / self.sources.len().max(1) as f64)
    }

    fn next_steps(&mut self, client: ClientId, _now: Nanos, script: &mut Script) -> ScriptStep {
        let job = client.0 as usize;
        if let Some(task) = self.next_task(job, script) {
            self.tasks[job] = Some(task);
            return ScriptStep::On;
        }
        if self.next_source == self.sources.len() {
            return ScriptStep::Done;
        }
        let source = self.next_source;
        self.next_source += 1;
        self.tasks[job] = Some(Task::Compile(source / self.per_dir));
        self.compile(source, script);
        ScriptStep::On
    }
}
