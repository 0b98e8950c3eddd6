//! A plain model of a file system, and what runs a workload against it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use umbrella_lab::workload::{BoxedWorkload, ClientId, FileOperation, Scale, Seed, build_workload};
use umbrella_units::{FileId, Nanos};

/// The time that a step takes: so much per call and so much per byte (100 MB/s), that timed workloads come to their
/// end.
#[derive(Clone, Copy)]
pub(crate) struct Speed {
    pub(crate) call: Nanos,
    pub(crate) per_kib: Nanos,
}

pub(crate) const DISK: Speed = Speed { call: Nanos::from_micros(50), per_kib: Nanos::from_micros(10) };

#[derive(Debug, Clone, Copy)]
pub(crate) struct Node {
    pub(crate) size: u64,
    pub(crate) dir: bool,
    pub(crate) parent: u64,
    pub(crate) entries: u64,
}

/// A file system that only knows what there is.
#[derive(Default)]
pub(crate) struct Model {
    pub(crate) nodes: BTreeMap<u64, Node>,
    pub(crate) used: HashSet<u64>,
    /// Whether a file may get a hole.
    pub(crate) holes: bool,
}

impl Model {
    pub(crate) fn new(holes: bool) -> Model {
        let root = Node { size: 0, dir: true, parent: 0, entries: 0 };
        Model { nodes: BTreeMap::from([(1, root)]), used: HashSet::from([0, 1]), holes }
    }

    pub(crate) fn file(&mut self, file: FileId, step: &FileOperation) -> &mut Node {
        let node = self.nodes.get_mut(&file.0).unwrap_or_else(|| panic!("{step:?}: there is no such file"));
        assert!(!node.dir, "{step:?}: it is a directory");
        node
    }

    pub(crate) fn add(&mut self, id: FileId, parent: FileId, dir: bool, step: &FileOperation) {
        assert!(self.used.insert(id.0), "{step:?}: the number was used before");
        let above = self.nodes.get_mut(&parent.0).unwrap_or_else(|| panic!("{step:?}: there is no such directory"));
        assert!(above.dir, "{step:?}: it is made in a file");
        above.entries += 1;
        self.nodes.insert(id.0, Node { size: 0, dir, parent: parent.0, entries: 0 });
    }

    pub(crate) fn apply(&mut self, step: &FileOperation) {
        match *step {
            FileOperation::Mkdir { dir, parent } => self.add(dir, parent, true, step),
            FileOperation::Create { file, dir } => self.add(file, dir, false, step),
            FileOperation::Write { file, offset, size } => {
                let holes = self.holes;
                let node = self.file(file, step);
                assert!(size.0 > 0, "{step:?}: nothing is written");
                assert!(holes || offset.0 <= node.size, "{step:?}: a hole after {} bytes", node.size);
                node.size = node.size.max(offset.0 + size.0);
            }
            FileOperation::Read { file, offset, size } => {
                let end = self.file(file, step).size;
                assert!(offset.0 + size.0 <= end, "{step:?}: the file ends at {end}");
            }
            FileOperation::Truncate { file, size } => self.file(file, step).size = size.0,
            FileOperation::Delete { file } => {
                let node = self.nodes.remove(&file.0).unwrap_or_else(|| panic!("{step:?}: there is no such file"));
                assert_eq!(node.entries, 0, "{step:?}: the directory is not empty");
                assert_ne!(file.0, 1, "the root is deleted");
                self.nodes.get_mut(&node.parent).expect("a parent is there while its entries are").entries -= 1;
            }
            FileOperation::Fsync { file } => {
                self.file(file, step);
            }
            FileOperation::Think { time } => assert!(time > Nanos(0), "{step:?}: no time passes"),
            FileOperation::Sync | FileOperation::Phase { .. } => {}
        }
    }

    pub(crate) fn files(&self) -> impl Iterator<Item = &Node> {
        self.nodes.values().filter(|node| !node.dir)
    }

    pub(crate) fn dirs(&self) -> usize {
        self.nodes.values().filter(|node| node.dir).count() - 1
    }
}

/// What a run did after its preparation.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) model: Model,
    pub(crate) steps: u64,
    pub(crate) mkdirs: u64,
    pub(crate) creates: u64,
    pub(crate) writes: u64,
    pub(crate) reads: u64,
    pub(crate) stats: u64,
    pub(crate) deletes: u64,
    pub(crate) fsyncs: u64,
    pub(crate) waits: u64,
    pub(crate) written: u64,
    pub(crate) read: u64,
    pub(crate) largest_write: u64,
    pub(crate) phases: Vec<&'static str>,
    /// Writes of each file, and of each place of it.
    pub(crate) places: HashMap<(u64, u64), u64>,
    pub(crate) end: Nanos,
    pub(crate) prepared_files: usize,
    pub(crate) prepared_dirs: usize,
    pub(crate) prepared_bytes: u64,
    pub(crate) reads_by_client: BTreeMap<u32, u64>,
    pub(crate) writes_by_client: BTreeMap<u32, u64>,
}

impl Seen {
    pub(crate) fn count(&mut self, client: u32, step: &FileOperation) {
        self.steps += 1;
        match *step {
            FileOperation::Mkdir { .. } => self.mkdirs += 1,
            FileOperation::Create { .. } => self.creates += 1,
            FileOperation::Write { file, offset, size } => {
                self.writes += 1;
                self.written += size.0;
                self.largest_write = self.largest_write.max(size.0);
                *self.writes_by_client.entry(client).or_default() += 1;
                *self.places.entry((file.0, offset.0)).or_default() += 1;
            }
            FileOperation::Read { size, .. } if size.0 == 0 => self.stats += 1,
            FileOperation::Read { size, .. } => {
                self.reads += 1;
                self.read += size.0;
                *self.reads_by_client.entry(client).or_default() += 1;
            }
            FileOperation::Delete { .. } => self.deletes += 1,
            FileOperation::Fsync { .. } => self.fsyncs += 1,
            FileOperation::Think { .. } => self.waits += 1,
            FileOperation::Phase { name } => self.phases.push(name),
            FileOperation::Truncate { .. } | FileOperation::Sync => {}
        }
    }
}

/// Makes the workload, or fails with what is wrong.
pub(crate) fn build(spec: &str, seed: u64, scale: f64) -> BoxedWorkload {
    build_workload(spec, Seed(seed), Scale::new(scale).unwrap()).unwrap_or_else(|error| panic!("{spec}: {error}"))
}

/// Runs it to its end, or for at most `most` steps. The client whose step ends first goes next, as on a machine without
/// contention.
pub(crate) fn run_for(mut workload: BoxedWorkload, speed: Speed, holes: bool, most: u64) -> Seen {
    let mut seen = Seen { model: Model::new(holes), ..Seen::default() };
    while let Some(step) = workload.prepare() {
        seen.model.apply(&step);
    }
    seen.prepared_files = seen.model.files().count();
    seen.prepared_dirs = seen.model.dirs();
    seen.prepared_bytes = seen.model.files().map(|node| node.size).sum();
    let mut free: BTreeSet<(Nanos, u32)> = (0..workload.clients()).map(|client| (Nanos(0), client)).collect();
    while let Some((now, client)) = free.pop_first() {
        seen.end = seen.end.max(now);
        let Some(step) = workload.next(ClientId(client), now) else {
            assert!(workload.next(ClientId(client), now).is_none(), "a client that has finished continues");
            continue;
        };
        seen.model.apply(&step);
        seen.count(client, &step);
        if seen.steps == most {
            break;
        }
        let took = match step {
            FileOperation::Think { time } => time,
            FileOperation::Phase { .. } => Nanos(0),
            FileOperation::Write { size, .. } | FileOperation::Read { size, .. } => {
                Nanos(speed.call.0 + size.0 * speed.per_kib.0 / 1024)
            }
            _ => speed.call,
        };
        free.insert((now + took, client));
    }
    seen
}

pub(crate) fn run(spec: &str, scale: f64) -> Seen {
    let holes = spec.starts_with("dbench");
    run_for(build(spec, 1, scale), DISK, holes, u64::MAX)
}

pub(crate) fn within(value: f64, wanted: f64, share: f64) {
    assert!((value - wanted).abs() <= wanted * share, "{value} is not within {share} of {wanted}");
}
