//! A pool in a run of the model checker, and the checker itself.

use std::ffi::OsStr;
use std::sync::Arc;

use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::thread::JoinHandle;
use shuttle::{Config, Runner};
use umbrella_fs::pool::{OpenRequest, Pool, Replace};
use umbrella_fs::{Caller, HandleId, NodeId};

use crate::bench::{BRANCHES, Bench, CREATE, Ground, READ, WRITE, small_area};

/// How many changes of threads that matter a schedule of the second kind has at most.
const DEPTH: usize = 4;
/// A run needs the stack of a thread.
const STACK: usize = 4 << 20;

fn asked(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// Runs a model under schedules by chance, and under such with few changes of threads, which find rare ones sooner.
pub(crate) fn explore(model: fn()) {
    let (seed, runs) = (asked("UMBRELLA_MODEL_SEED", 1), asked("UMBRELLA_MODEL_RUNS", 60) as usize);
    println!("UMBRELLA_MODEL_SEED={seed} UMBRELLA_MODEL_RUNS={runs}");
    run(RandomScheduler::new_from_seed(seed, runs), model);
    run(PctScheduler::new_from_seed(seed, DEPTH, runs), model);
}

fn run(scheduler: impl Scheduler + 'static, model: fn()) {
    let mut config = Config::new();
    config.stack_size = STACK;
    Runner::new(scheduler, config).run(model);
}

/// A pool, and a directory in it.
pub(crate) struct Scene {
    pub(crate) pool: Arc<Pool>,
    dir: NodeId,
    /// Another, on `fast`.
    other: NodeId,
    /// What the file holds that the scene began with.
    pub(crate) data: Vec<u8>,
    // After the pool.
    bench: Bench,
}

impl Scene {
    fn over(bench: Bench, rules: usize) -> Scene {
        let pool = bench.assemble(rules);
        let make = |name| pool.mkdir(NodeId::ROOT, OsStr::new(name), 0o755, Caller::ROOT).unwrap().node;
        let (dir, other) = (make("dir"), make("other"));
        Scene { pool, dir, other, data: Vec::new(), bench }
    }

    /// `dir/old` on `fast`, waiting for its move to `slow`.
    pub(crate) fn with_big_file() -> Arc<Scene> {
        let mut scene = Scene::over(Bench::new(Ground::Memory), 0);
        scene.data = (0..10_000_u32).map(|at| (at % 251) as u8).collect();
        scene.put("old", &scene.data);
        Arc::new(scene)
    }

    /// New files wait in memory.
    pub(crate) fn staged() -> Arc<Scene> {
        Arc::new(Scene::over(Bench::staged(Ground::Memory, small_area()), 0))
    }

    /// `dir/file.log` of that size on `tiny`, which has room for little more.
    pub(crate) fn on_the_small_branch(len: usize) -> Arc<Scene> {
        let mut scene = Scene::over(Bench::new(Ground::Memory), 3);
        scene
            .pool
            .reload_rules(&umbrella_policy::placement::spec::RulesSpec {
                rules: Vec::new(),
                default: vec!["tiny".to_owned(), "fast".to_owned()],
                groups: Vec::new(),
                evicts: Vec::new(),
            })
            .unwrap();
        scene.data = vec![7; len];
        scene.put("file.log", &scene.data);
        Arc::new(scene)
    }

    pub(crate) fn thread<T: Send + 'static>(
        self: &Arc<Self>,
        run: impl FnOnce(&Scene) -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let scene = Arc::clone(self);
        shuttle::thread::spawn(move || run(&scene))
    }

    /// A file that stays open, and so known.
    pub(crate) fn create(&self, name: &str, data: &[u8]) -> HandleId {
        self.create_known(name, data).1
    }

    fn create_known(&self, name: &str, data: &[u8]) -> (NodeId, HandleId) {
        let (attr, opened) = self.pool.create(self.dir, OsStr::new(name), 0o644, Caller::ROOT, CREATE).unwrap();
        assert_eq!(self.pool.write(opened.handle, data, 0, false), Ok(data.len()));
        (attr.node, opened.handle)
    }

    pub(crate) fn put(&self, name: &str, data: &[u8]) {
        let (node, handle) = self.create_known(name, data);
        self.pool.release(handle).unwrap();
        self.pool.forget(node, 1);
    }

    /// The node of a name, without a reference.
    pub(crate) fn find(&self, name: &str) -> Option<NodeId> {
        match self.pool.lookup(self.dir, OsStr::new(name)) {
            Ok(attr) => {
                self.pool.forget(attr.node, 1);
                Some(attr.node)
            }
            Err(error) => {
                assert_eq!(error, umbrella_fs::OpError::Sys(rustix::io::Errno::NOENT));
                None
            }
        }
    }

    fn open_as(&self, name: &str, request: OpenRequest) -> HandleId {
        let attr = self.pool.lookup(self.dir, OsStr::new(name)).unwrap();
        self.pool.open(attr.node, request).unwrap().handle
    }

    pub(crate) fn open(&self, name: &str) -> HandleId {
        self.open_as(name, READ)
    }

    pub(crate) fn open_to_write(&self, name: &str) -> HandleId {
        self.open_as(name, WRITE)
    }

    pub(crate) fn read(&self, handle: HandleId) -> Vec<u8> {
        let mut buffer = vec![0; 1 << 20];
        let got = self.pool.read(handle, &mut buffer, 0).unwrap();
        buffer.truncate(got);
        buffer
    }

    pub(crate) fn rename(&self, from: &str, to: &str, replace: Replace) {
        self.pool.rename(self.dir, OsStr::new(from), self.dir, OsStr::new(to), replace).unwrap();
    }

    pub(crate) fn rename_to_other_dir(&self, name: &str) {
        let name = OsStr::new(name);
        self.pool.rename(self.dir, name, self.other, name, Replace::Yes).unwrap();
    }

    pub(crate) fn rename_dir(&self, from: &str, to: &str) {
        let (from, to) = (OsStr::new(from), OsStr::new(to));
        self.pool.rename(NodeId::ROOT, from, NodeId::ROOT, to, Replace::Yes).unwrap();
    }

    pub(crate) fn unlink(&self, name: &str) {
        self.pool.unlink(self.dir, OsStr::new(name)).unwrap();
    }

    /// The branches that have a file.
    pub(crate) fn holders_in(&self, dir: &str, name: &str) -> Vec<&'static str> {
        let has = |branch: &usize| self.bench.branch(*branch).join(dir).join(name).exists();
        (0..BRANCHES.len()).filter(has).map(|branch| BRANCHES[branch]).collect()
    }

    pub(crate) fn holds_once(&self, name: &str) {
        self.holds_once_in("dir", name);
    }

    /// Once all that is due has moved, one branch has the file as it was, and none has anything else.
    pub(crate) fn holds_once_in(&self, dir: &str, name: &str) {
        self.pool.move_all_queued();
        assert_eq!(self.holders_in(dir, name), ["slow"]);
        assert!(std::fs::read(self.bench.branch(1).join(dir).join(name)).unwrap() == self.data, "it is as it was");
        for branch in 0..BRANCHES.len() {
            for hidden in [".umbrella/tmp", ".umbrella/intents"] {
                let folder = self.bench.branch(branch).join(hidden);
                assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0, "{} is empty", folder.display());
            }
        }
    }
}
