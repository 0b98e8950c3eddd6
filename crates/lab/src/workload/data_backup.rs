//! A laptop is backed up: a tree of files is copied in, file by file. TESA, section IV.A: 18,630 files, 649 MB.
//!
//! The paper says nothing of sizes and directories. Assumed: lognormal sizes with the deviation that Agrawal et al.
//! found on desktop file systems (Impressions, FAST 2009, table 2: 2.46), the mean following from the two totals; 10.2
//! files a directory (the same paper's mean); 64 KiB a write, about what a file sharing protocol of that time sends.

use umbrella_units::{FileId, Nanos};

use super::draw::{Rng, lognormal_sizes};
use super::entry::{BoxedWorkload, WorkloadEntry};
use super::kinds::{FILE, IO, PAGE, SIGMA, SOME, param};
use super::params::ParamKind;
use super::script::{Ids, Play, Script, ScriptStep, Scripted};
use super::tree::{Branch, grow};
use super::{ClientId, Params, Scale, Seed, WorkloadError};

pub(super) const ENTRY: WorkloadEntry = WorkloadEntry {
    name: "data-backup",
    summary: "a tree of files is copied in",
    source: "TESA, section IV.A",
    scales: "files, directories and bytes",
    params: &[
        param("files", SOME, "18630", "TESA, section IV.A", "files"),
        param("total", FILE, "649MiB", "TESA, section IV.A", "bytes in all"),
        param("sigma", SIGMA, "2.46", "Impressions (FAST 2009), table 2", "deviation of the logarithm of sizes"),
        param(
            "per-dir",
            ParamKind::Number { min: 0.1, max: 1e6 },
            "10.2",
            "Impressions (FAST 2009)",
            "files of a directory, on average",
        ),
        param("io", IO, "64KiB", "assumed", "bytes of a write call"),
    ],
    build,
};

#[derive(Debug)]
struct Backup {
    ids: Ids,
    tree: std::vec::IntoIter<Branch>,
    dirs: Vec<FileId>,
    sizes: std::vec::IntoIter<u64>,
    left_here: u64,
    files: u64,
    io: u64,
}

#[allow(clippy::unnecessary_wraps)] // The registry's signature.
fn build(seed: Seed, scale: Scale, params: &Params) -> Result<BoxedWorkload, WorkloadError> {
    let mut rng = Rng::new(seed, ENTRY.name, 0);
    let files = scale.count(params.count("files"));
    let dirs = (files as f64 / params.number("per-dir")).ceil() as u64;
    let tree = grow(&mut rng, dirs, files);
    let total = scale.size(params.size("total"), PAGE).0;
    let sizes = lognormal_sizes(&mut rng, files, total, params.number("sigma"));
    Ok(Box::new(Scripted::new(Backup {
        ids: Ids::new(),
        dirs: Vec::with_capacity(tree.len()),
        tree: tree.into_iter(),
        sizes: sizes.into_iter(),
        left_here: 0,
        files,
        io: params.size("io").0,
    })))
}

impl Play for Backup {
    fn progress(&self) -> Option<f64> {
        Some(1.0 - self.sizes.len() as f64 / self.files as f64)
    }

    fn next_steps(&mut self, _client: ClientId, _now: Nanos, script: &mut Script) -> ScriptStep {
        if self.left_here == 0 {
            let Some(branch) = self.tree.next() else {
                return ScriptStep::Done;
            };
            let dir = self.ids.next();
            script.mkdir(dir, branch.parent.map_or(Ids::ROOT, |parent| self.dirs[parent]));
            self.dirs.push(dir);
            self.left_here = branch.files;
            return ScriptStep::On;
        }
        self.left_here -= 1;
        if let (Some(size), Some(&dir)) = (self.sizes.next(), self.dirs.last()) {
            script.create(self.ids.next(), dir, size, self.io);
        }
        ScriptStep::On
    }
}
