//! What the kernel is told to forget, so that nothing old stays in its cache.

use std::ffi::OsStr;
use std::sync::{Arc, Mutex};

use umbrella_fs::pool::{Change, NewTime, Pool};
use umbrella_fs::{Caller, NodeId};
use umbrella_units::Timestamp;

use crate::bench::{Bench, FakeKernel, Ground};
use crate::races::put;

struct Scene {
    pool: Arc<Pool>,
    told: Arc<Mutex<Vec<NodeId>>>,
    _bench: Bench,
}

impl Scene {
    fn new() -> Scene {
        let bench = Bench::new(Ground::Memory);
        let pool = bench.assemble(0);
        let told = Arc::<Mutex<Vec<NodeId>>>::default();
        let kept = Arc::clone(&told);
        let note = move |node: Option<NodeId>| kept.lock().unwrap().extend(node);
        pool.set_kernel(Box::new(FakeKernel { forgets: Box::new(note), register: None }));
        Scene { pool, told, _bench: bench }
    }

    /// What the kernel was told to forget since this was asked last.
    fn told(&self) -> Vec<NodeId> {
        std::mem::take(&mut self.told.lock().unwrap())
    }
}

#[test]
fn the_kernel_forgets_what_a_change_that_failed_halfway_may_have_changed() {
    let scene = Scene::new();
    let dir = scene.pool.mkdir(NodeId::ROOT, OsStr::new("dir"), 0o755, Caller::ROOT).unwrap().node;
    let file = put(&scene.pool, dir, "file", b"text");
    // No such time: it fails after the mode.
    let time = NewTime::At(Timestamp { secs: 1, nanos: 2_000_000_000 });
    let change = Change { perm: Some(0o700), mtime: Some(time), ..Change::default() };
    for node in [file, dir] {
        scene.told();
        assert!(scene.pool.setattr(node, &change).is_err());
        assert_eq!(scene.pool.getattr(node).unwrap().meta.perm, 0o700);
        assert_eq!(scene.told(), [node]);
    }
}
