//! dbench: each client repeats the requests of an office program to a file server, as fast as it can. UmbrellaFS,
//! chapter V: 100 clients, 300 s; the load file is the one that comes with dbench.
//!
//! That file is not ours to distribute: it is read from where Debian's package `dbench` puts it. If it is missing, a
//! stand-in of the same mix is used, with a warning; `load=stand-in` asks for that.
//!
//! As in dbench 4, a flush waits until the file is on disk (version 3 ignored it; `flush=false`). Names ignore case,
//! and the tree is removed at the end of a round. A rename costs nothing here except the removal of a file that had the
//! new name. Reads are cut at the end of the file.

use std::path::Path;
use std::sync::Arc;

use umbrella_units::{ByteSize, FileId, Nanos};

use super::dbench_load::{Call, Load, PathNo, built_in_load, parse};
use super::entry::{BoxedWorkload, WorkloadEntry};
use super::kinds::{CLIENTS, param};
use super::params::ParamKind;
use super::script::{Ids, Play, Script, ScriptStep, Scripted};
use super::{ClientId, FileOperation, Params, Scale, Seed, WorkloadError};

/// Where Debian's package puts the load file.
const DEBIAN: &str = "/usr/share/dbench/client.txt";

/// The value of `load` that asks for the stand-in.
const STAND_IN: &str = "stand-in";

pub(super) const ENTRY: WorkloadEntry = WorkloadEntry {
    name: "dbench",
    summary: "clients do what an office program did to a file server",
    source: "UmbrellaFS, chapter V (dbench 4)",
    scales: "clients and the duration",
    params: &[
        param("clients", CLIENTS, "100", "UmbrellaFS, chapter V", "clients"),
        param("duration", ParamKind::Duration, "300s", "UmbrellaFS, chapter V", "how long it runs"),
        param(
            "load",
            ParamKind::Path,
            DEBIAN,
            "Debian's package dbench",
            "the load file, or \"stand-in\" for a made-up one",
        ),
        param("flush", ParamKind::Flag, "true", "dbench 4", "whether a flush waits for the disk"),
    ],
    build,
};

/// What a name refers to.
#[derive(Debug, Clone, Copy)]
enum NameTarget {
    Nothing,
    /// `home` is the directory that it was made in, whatever its name is now.
    File {
        file: FileId,
        size: u64,
        home: FileId,
    },
    Directory(FileId),
}

#[derive(Debug)]
struct DbenchClient {
    dir: FileId,
    at: usize,
    things: Vec<NameTarget>,
}

#[derive(Debug)]
struct Dbench {
    ids: Ids,
    load: Arc<Load>,
    clients: Vec<DbenchClient>,
    prepared: usize,
    flush: bool,
    warnings: Vec<String>,
}

fn build(_seed: Seed, scale: Scale, params: &Params) -> Result<BoxedWorkload, WorkloadError> {
    let (load, warning) = load(params)?;
    let clients = scale.count(params.count("clients"));
    let things = vec![NameTarget::Nothing; load.parents.len()];
    let mut ids = Ids::new();
    let dbench = Dbench {
        clients: (0..clients).map(|_| DbenchClient { dir: ids.next(), at: 0, things: things.clone() }).collect(),
        ids,
        load: Arc::new(load),
        prepared: 0,
        flush: params.flag("flush"),
        warnings: warning.into_iter().collect(),
    };
    Ok(Box::new(Scripted::timed(dbench, scale.time(params.duration("duration")))))
}

/// The largest load file; dbench's own has 25 MB.
const LARGEST_LOAD: u64 = 256 << 20;

fn read_load(path: &str) -> std::io::Result<String> {
    let found = std::fs::metadata(path)?;
    if !found.is_file() || found.len() > LARGEST_LOAD {
        let reason = "it is not a regular file of at most 256 MiB";
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, reason));
    }
    std::fs::read_to_string(path)
}

/// The load, and what the user should know about it.
fn load(params: &Params) -> Result<(Load, Option<String>), WorkloadError> {
    let path = params.path("load");
    if path == STAND_IN {
        return Ok((built_in_load(), None));
    }
    match read_load(path) {
        Ok(text) => match parse(&text) {
            Ok(load) => Ok((load, None)),
            Err(source) => Err(WorkloadError::Load { workload: ENTRY.name, path: Path::new(path).to_owned(), source }),
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && !params.is_given("load") => {
            let warning = format!(
                "dbench: {path} is missing, so a synthetic load of the same mix runs (install the package dbench, or \
                give load=PATH)"
            );
            Ok((built_in_load(), Some(warning)))
        }
        Err(source) => Err(WorkloadError::LoadFile { workload: ENTRY.name, path: Path::new(path).to_owned(), source }),
    }
}

impl DbenchClient {
    fn target_mut(&mut self, path: PathNo) -> &mut NameTarget {
        &mut self.things[path.0 as usize]
    }

    /// The nearest directory above the name that is there.
    fn dir_of(&self, load: &Load, path: PathNo) -> FileId {
        let mut above = load.parents[path.0 as usize];
        while let Some(parent) = above {
            if let NameTarget::Directory(dir) = self.things[parent.0 as usize] {
                return dir;
            }
            above = load.parents[parent.0 as usize];
        }
        self.dir
    }

    fn remove(&mut self, path: PathNo, script: &mut Script) {
        if let NameTarget::File { file, .. } = *self.target_mut(path) {
            script.delete(file);
            *self.target_mut(path) = NameTarget::Nothing;
        }
    }

    /// Files first, then directories, those below others before these.
    fn remove_tree(&mut self, load: &Load, top: PathNo, script: &mut Script) {
        let inside: Vec<_> =
            (0..self.things.len() as u32).map(PathNo).filter(|path| is_below(load, *path, top)).collect();
        for &path in &inside {
            self.remove(path, script);
        }
        for &path in inside.iter().rev() {
            let NameTarget::Directory(dir) = *self.target_mut(path) else {
                continue;
            };
            // A file that was made here and now has a name elsewhere still counts as being here.
            if !self.things.iter().any(|thing| matches!(thing, NameTarget::File { home, .. } if *home == dir)) {
                script.delete(dir);
            }
            *self.target_mut(path) = NameTarget::Nothing;
        }
    }

    /// The file at the name, made if nothing is there; `None` when a directory is. With its size, to be changed.
    fn make(&mut self, load: &Load, ids: &mut Ids, path: PathNo, script: &mut Script) -> Option<(FileId, &mut u64)> {
        if let NameTarget::Nothing = *self.target_mut(path) {
            let (file, home) = (ids.next(), self.dir_of(load, path));
            script.step(FileOperation::Create { file, dir: home });
            *self.target_mut(path) = NameTarget::File { file, size: 0, home };
        }
        match self.target_mut(path) {
            NameTarget::File { file, size, .. } => Some((*file, size)),
            NameTarget::Directory(_) | NameTarget::Nothing => None,
        }
    }

    fn call(&mut self, call: Call, load: &Load, ids: &mut Ids, flush: bool, script: &mut Script) {
        match call {
            Call::Mkdir(path) => {
                if let NameTarget::Nothing = *self.target_mut(path) {
                    let dir = ids.next();
                    script.mkdir(dir, self.dir_of(load, path));
                    *self.target_mut(path) = NameTarget::Directory(dir);
                }
            }
            Call::Create { path, empties } => {
                if let Some((file, end)) = self.make(load, ids, path, script)
                    && empties
                    && *end > 0
                {
                    *end = 0;
                    script.step(FileOperation::Truncate { file, size: ByteSize(0) });
                }
            }
            Call::Read { path, offset, size } => {
                if let NameTarget::File { file, size: end, .. } = *self.target_mut(path)
                    && offset < end
                {
                    let size = u64::from(size).min(end - offset);
                    script.read(file, offset, size, size);
                }
            }
            Call::Write { path, offset, size } => {
                if let Some((file, end)) = self.make(load, ids, path, script) {
                    let size = u64::from(size);
                    *end = (*end).max(offset + size);
                    script.write(file, offset, size, size);
                }
            }
            Call::Flush(path) => {
                if let (true, NameTarget::File { file, .. }) = (flush, *self.target_mut(path)) {
                    script.step(FileOperation::Fsync { file });
                }
            }
            Call::Delete(path) => self.remove(path, script),
            Call::Rename { from, to } => {
                if let (true, moved @ NameTarget::File { .. }) = (from != to, *self.target_mut(from)) {
                    self.remove(to, script);
                    *self.target_mut(to) = moved;
                    *self.target_mut(from) = NameTarget::Nothing;
                }
            }
            Call::DeleteTree(top) => self.remove_tree(load, top, script),
        }
    }
}

fn is_below(load: &Load, path: PathNo, top: PathNo) -> bool {
    let mut at = Some(path);
    while let Some(path) = at {
        if path == top {
            return true;
        }
        at = load.parents[path.0 as usize];
    }
    false
}

impl Play for Dbench {
    fn set_up(&mut self, script: &mut Script) -> ScriptStep {
        let Some(client) = self.clients.get(self.prepared) else {
            return ScriptStep::Done;
        };
        script.mkdir(client.dir, Ids::ROOT);
        self.prepared += 1;
        ScriptStep::On
    }

    fn clients(&self) -> u32 {
        self.clients.len() as u32
    }

    fn next_steps(&mut self, client: ClientId, _now: Nanos, script: &mut Script) -> ScriptStep {
        let client = &mut self.clients[client.0 as usize];
        let call = self.load.calls[client.at];
        client.at = (client.at + 1) % self.load.calls.len();
        let round_ends = client.at == 0;
        client.call(call, &self.load, &mut self.ids, self.flush, script);
        if round_ends {
            // A round with no work left would never end.
            script.think(Nanos::from_micros(1));
        }
        ScriptStep::On
    }

    fn warnings(&self) -> &[String] {
        &self.warnings
    }
}
