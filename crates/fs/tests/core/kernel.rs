//! What the kernel is told to forget, so that nothing old stays in its cache.

use std::ffi::OsStr;
use std::sync::{Arc, Mutex};

use rustix::fs::{FallocateFlags, XattrFlags};
use rustix::io::Errno;
use umbrella_fs::pool::{AttributeChange, NewTime, Pool, Replace};
use umbrella_fs::{Caller, NodeId, OpError, OpResult};
use umbrella_units::Timestamp;

use crate::bench::{Bench, FakeKernel, Ground, WRITE};
use crate::races::put;

/// Its name, the nodes that it concerns, and the change itself.
type NamedChange<'a> = (&'a str, &'a [NodeId], &'a dyn Fn() -> OpResult<()>);

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
    let change = AttributeChange { perm: Some(0o700), mtime: Some(time), ..AttributeChange::default() };
    for node in [file, dir] {
        scene.told();
        assert!(scene.pool.setattr(node, &change).is_err());
        assert_eq!(scene.pool.getattr(node).unwrap().meta.perm, 0o700);
        assert_eq!(scene.told(), [node]);
    }
}

#[test]
fn the_kernel_forgets_what_a_failed_allocation_may_have_changed() {
    let scene = Scene::new();
    let file = put(&scene.pool, NodeId::ROOT, "file", b"text");
    let opened = scene.pool.open(file, WRITE).unwrap();
    scene.told();
    // A tmpfs cannot do that.
    let failed = scene.pool.fallocate(opened.handle, FallocateFlags::COLLAPSE_RANGE, 0, 4096, false);
    assert_eq!(failed, Err(OpError::Sys(Errno::OPNOTSUPP)));
    assert_eq!(scene.told(), [file]);
    scene.pool.release(opened.handle).unwrap();
}

#[test]
fn the_kernel_forgets_attributes_that_a_reply_on_its_way_may_bring_back() {
    let scene = Scene::new();
    let pool = &scene.pool;
    let name = OsStr::new;
    let mkdir = |parent, called: &str| pool.mkdir(parent, name(called), 0o755, Caller::ROOT).unwrap().node;
    let [one, two] = ["one", "two"].map(|called| mkdir(NodeId::ROOT, called));
    let (inner, beside) = (mkdir(one, "inner"), mkdir(two, "beside"));
    let (file, peer) = (put(pool, one, "file", b"text"), put(pool, two, "peer", b"text"));
    let place = |node| match node {
        _ if node == one => (NodeId::ROOT, "one"),
        _ if node == two => (NodeId::ROOT, "two"),
        _ if node == inner => (one, "inner"),
        _ if node == beside => (two, "beside"),
        _ if node == file => (one, "file"),
        _ => (two, "peer"),
    };
    let opened = pool.open(file, WRITE).unwrap();
    let there_and_back = |from: (NodeId, &str), to: (NodeId, &str), replace| {
        pool.rename(from.0, name(from.1), to.0, name(to.1), replace)?;
        pool.rename(to.0, name(to.1), from.0, name(from.1), replace)
    };
    let rename = |from: &str| there_and_back((one, from), (one, "renamed"), Replace::No);
    let exchange = |from: &str, with: &str| there_and_back((one, from), (two, with), Replace::Exchange);
    let set = |node| pool.setxattr(node, name("user.one"), b"1", XattrFlags::empty());
    let allocate = || pool.fallocate(opened.handle, FallocateFlags::KEEP_SIZE, 0, 8192, false);
    let changes: [NamedChange<'_>; 8] = [
        ("space is allocated", &[file], &allocate),
        ("an attribute of a file is set", &[file], &|| set(file)),
        ("an attribute of a directory is set", &[one], &|| set(one)),
        ("one is removed", &[file], &|| set(file).and_then(|()| pool.removexattr(file, name("user.one")))),
        ("a file is renamed", &[file, one], &|| rename("file")),
        ("files change names", &[file, peer, one, two], &|| exchange("file", "peer")),
        ("a directory is renamed", &[inner, one], &|| rename("inner")),
        ("directories change names", &[inner, beside, one, two], &|| exchange("inner", "beside")),
    ];
    let ask = |node: NodeId| pool.getattr(node).map(|_| ()).unwrap();
    let look_up = |node: NodeId| pool.lookup(place(node).0, name(place(node).1)).map(|_| ()).unwrap();
    let list = |node: NodeId| {
        let (parent, called) = place(node);
        let listing = pool.list(parent, 0, u64::MAX).unwrap();
        let entry = listing.after(0).iter().find(|entry| entry.name == called).unwrap();
        pool.lookup_entry(parent, &listing, entry).map(|_| ()).unwrap();
    };
    let looks: [&(dyn Fn(NodeId) + Sync); 3] = [&ask, &look_up, &list];
    for (what, nodes, change) in changes {
        for (&node, look) in nodes.iter().flat_map(|node| looks.map(|look| (node, look))) {
            std::thread::scope(|scope| scope.spawn(|| look(node)).join().unwrap());
            scene.told();
            change().unwrap();
            assert!(scene.told().contains(&node), "{what}: {node:?} of {nodes:?}");
            change().unwrap();
            assert!(!scene.told().contains(&node), "{what}: nobody has looked since");
        }
    }
    pool.release(opened.handle).unwrap();
}
