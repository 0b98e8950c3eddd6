//! Updates with locality x/y: x % of them go to the y % of the files that are hot, the rest to cold ones. Half of the
//! other files are cold; the other half is never updated. R-LFS, section 5.1: files of 100 KB in 100 directories fill
//! 85 % of a disk of 40 GB, and 50,000 of them are updated, each as a whole.
//!
//! Assumed: 90/10, the locality of the Sprite LFS study that the paper refers to. Hot, cold and read-only files are
//! mixed at random. Each write has 64 KiB.

use umbrella_units::{FileId, Nanos};

use super::draw::Rng;
use super::entry::{BoxedWorkload, WorkloadEntry};
use super::kinds::{ANY, FILE, IO, SOME, param};
use super::params::ParamKind;
use super::script::{Ids, Play, Script, ScriptStep, Scripted};
use super::{ClientId, Params, Scale, Seed, WorkloadError};

const PERCENT: ParamKind = ParamKind::Number { min: 0.0, max: 100.0 };

pub(super) const ENTRY: WorkloadEntry = WorkloadEntry {
    name: "hot-cold",
    summary: "files are updated: most updates go to a few files, half of the others never change",
    source: "R-LFS, section 5.1; Rosenblum and Ousterhout 1992",
    scales: "files, directories and updates",
    params: &[
        param("x", PERCENT, "90", "Rosenblum and Ousterhout 1992", "percent of the updates that go to hot files"),
        param("y", PERCENT, "10", "Rosenblum and Ousterhout 1992", "percent of the files that are hot"),
        param("files", SOME, "340000", "R-LFS, section 5.1 (85 % of 40 GB)", "files"),
        param("size", FILE, "100KB", "R-LFS, section 5.1", "bytes of a file"),
        param("dirs", SOME, "100", "R-LFS, section 5.1", "directories"),
        param("updates", ANY, "50000", "R-LFS, section 5.1", "files that are written anew"),
        param("io", IO, "64KiB", "assumed", "bytes of a write call"),
    ],
    build,
};

#[derive(Debug)]
struct HotCold {
    rng: Rng,
    ids: Ids,
    wanted_dirs: u64,
    dirs: Vec<FileId>,
    wanted_files: usize,
    /// Hot ones first, then cold ones, then those that are only read; in order of creation until all are there.
    files: Vec<FileId>,
    hot: usize,
    cold: usize,
    x: f64,
    updates_left: u64,
    wanted_updates: u64,
    size: u64,
    io: u64,
}

#[allow(clippy::unnecessary_wraps)] // The registry's signature.
fn build(seed: Seed, scale: Scale, params: &Params) -> Result<BoxedWorkload, WorkloadError> {
    let files = scale.count(params.count("files")) as usize;
    let hot = (files as f64 * params.number("y") / 100.0).round() as usize;
    let cold = (files - hot).div_ceil(2);
    Ok(Box::new(Scripted::new(HotCold {
        rng: Rng::new(seed, ENTRY.name, 0),
        ids: Ids::new(),
        wanted_dirs: scale.count(params.count("dirs")),
        dirs: Vec::new(),
        wanted_files: files,
        files: Vec::new(),
        hot,
        cold,
        x: params.number("x") / 100.0,
        updates_left: scale.count(params.count("updates")),
        wanted_updates: scale.count(params.count("updates")),
        size: params.size("size").0,
        io: params.size("io").0,
    })))
}

impl Play for HotCold {
    fn set_up(&mut self, script: &mut Script) -> ScriptStep {
        if (self.dirs.len() as u64) < self.wanted_dirs {
            let dir = self.ids.next();
            self.dirs.push(dir);
            script.mkdir(dir, Ids::ROOT);
            return ScriptStep::On;
        }
        if self.files.len() < self.wanted_files {
            let dir = self.dirs[self.files.len() % self.dirs.len()];
            let file = self.ids.next();
            self.files.push(file);
            script.create(file, dir, self.size, self.size);
            return ScriptStep::On;
        }
        for at in (1..self.files.len()).rev() {
            let other = self.rng.index(at + 1);
            self.files.swap(at, other);
        }
        ScriptStep::Done
    }

    fn progress(&self) -> Option<f64> {
        Some(1.0 - self.updates_left as f64 / self.wanted_updates.max(1) as f64)
    }

    fn next_steps(&mut self, _client: ClientId, _now: Nanos, script: &mut Script) -> ScriptStep {
        let Some(left) = self.updates_left.checked_sub(1) else {
            return ScriptStep::Done;
        };
        self.updates_left = left;
        let to_hot = self.cold == 0 || (self.hot > 0 && self.rng.chance(self.x));
        let at = if to_hot { self.rng.index(self.hot) } else { self.hot + self.rng.index(self.cold) };
        script.write(self.files[at], 0, self.size, self.io);
        ScriptStep::On
    }
}
