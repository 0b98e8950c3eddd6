//! What an operation may cost in system calls on its branch, where a directory is on one of three branches. The calls of the kernel's requests around it are
//! counted apart: a create by a program is a lookup, a create, and later a release.

use std::ffi::OsStr;
use std::sync::Arc;

use rustix::fs::XattrFlags;
use rustix::io::Errno;
use umbrella_fs::pool::{Change, OpenRequest, Pool, Replace};
use umbrella_fs::{Caller, NodeId, OpError, calls_on_branches};

use crate::bench::{Bench, Ground};
use crate::races::{READ, WRITE};

const USER: Caller = Caller { uid: 1000, gid: 1000, ..Caller::ROOT };
const NEW: OpenRequest = OpenRequest { exclusive: true, ..WRITE };

struct Scene {
    pool: Arc<Pool>,
    dir: NodeId,
    _bench: Bench,
}

impl Scene {
    fn new() -> Scene {
        let bench = Bench::new(Ground::Memory);
        let pool = bench.assemble(0);
        let dir = pool.mkdir(NodeId::ROOT, OsStr::new("dir"), 0o777, Caller::ROOT).unwrap().node;
        // From its first use on, the directory is open.
        assert!(pool.lookup(dir, OsStr::new("nothing")).is_err());
        Scene { pool, dir, _bench: bench }
    }

    /// A closed file.
    fn file(&self, name: &str) -> NodeId {
        let (attr, opened) = self.pool.create(self.dir, OsStr::new(name), 0o644, Caller::ROOT, NEW).unwrap();
        self.pool.release(opened.handle).unwrap();
        attr.node
    }
}

fn calls<T>(operation: impl FnOnce() -> T) -> (u64, T) {
    let before = calls_on_branches();
    let done = operation();
    (calls_on_branches() - before, done)
}

#[test]
fn a_lookup_asks_once_each_branch_that_has_the_directory() {
    let scene = Scene::new();
    let missing = Err(OpError::Sys(Errno::NOENT));
    assert_eq!(calls(|| scene.pool.lookup(scene.dir, OsStr::new("nothing")).map(|_| ())), (1, missing));
    assert_eq!(calls(|| scene.pool.lookup(NodeId::ROOT, OsStr::new("nothing")).map(|_| ())), (3, missing));
    scene.file("file");
    assert_eq!(calls(|| scene.pool.lookup(scene.dir, OsStr::new("file")).map(|_| ())), (1, Ok(())));
}

#[test]
fn a_create_opens_and_looks_and_sets_the_owner() {
    let scene = Scene::new();
    let create = |name: &str, caller| scene.pool.create(scene.dir, OsStr::new(name), 0o644, caller, NEW).map(|_| ());
    assert_eq!(calls(|| create("roots", Caller::ROOT)), (2, Ok(())));
    // The directory is looked at as well: it may pass on its group.
    assert_eq!(calls(|| create("users", USER)), (4, Ok(())));
}

#[test]
fn a_name_that_is_taken_is_not_made_again() {
    let scene = Scene::new();
    let node = scene.file("file");
    let create = |request| scene.pool.create(scene.dir, OsStr::new("file"), 0o644, Caller::ROOT, request);
    assert_eq!(create(NEW).map(|_| ()), Err(OpError::Sys(Errno::EXIST)));
    assert_eq!(create(WRITE).map(|(attr, _)| attr.node), Ok(node));
    let made = scene.pool.mkdir(scene.dir, OsStr::new("file"), 0o755, Caller::ROOT);
    assert_eq!(made.map(|_| ()), Err(OpError::Sys(Errno::EXIST)));
}

#[test]
fn directories_and_links_are_made_and_looked_at() {
    let scene = Scene::new();
    let mkdir = |name: &str, caller| scene.pool.mkdir(scene.dir, OsStr::new(name), 0o755, caller).map(|_| ());
    assert_eq!(calls(|| mkdir("roots", Caller::ROOT)), (2, Ok(())));
    assert_eq!(calls(|| mkdir("users", USER)), (5, Ok(())));
    let symlink = || scene.pool.symlink(scene.dir, OsStr::new("link"), OsStr::new("to"), Caller::ROOT).map(|_| ());
    assert_eq!(calls(symlink), (2, Ok(())));
    assert_eq!(calls(|| scene.pool.rmdir(scene.dir, OsStr::new("roots"))), (4, Ok(())));
}

#[test]
fn a_directory_that_is_not_empty_stays() {
    let scene = Scene::new();
    let inner = scene.pool.mkdir(scene.dir, OsStr::new("inner"), 0o755, Caller::ROOT).unwrap().node;
    scene.pool.create(inner, OsStr::new("file"), 0o644, Caller::ROOT, NEW).unwrap();
    assert_eq!(scene.pool.rmdir(scene.dir, OsStr::new("inner")), Err(OpError::Sys(Errno::NOTEMPTY)));
    assert!(scene.pool.lookup(inner, OsStr::new("file")).is_ok());
}

#[test]
fn a_removal_looks_once_and_removes() {
    let scene = Scene::new();
    scene.file("file");
    assert_eq!(calls(|| scene.pool.unlink(scene.dir, OsStr::new("file"))), (2, Ok(())));
}

#[test]
fn a_rename_looks_once_and_renames() {
    let scene = Scene::new();
    let node = scene.file("old");
    let rename = |from: &str, to: &str, replace| {
        scene.pool.rename(scene.dir, OsStr::new(from), scene.dir, OsStr::new(to), replace)
    };
    assert_eq!(calls(|| rename("old", "new", Replace::No)), (2, Ok(())));
    assert_eq!(calls(|| rename("new", "old", Replace::Yes)), (2, Ok(())));
    assert_eq!(scene.pool.lookup(scene.dir, OsStr::new("old")).map(|attr| attr.node), Ok(node));
    // What is replaced is looked at after the branch has said that there is something.
    scene.file("other");
    assert_eq!(rename("old", "other", Replace::No), Err(OpError::Sys(Errno::EXIST)));
    assert_eq!(calls(|| rename("old", "other", Replace::Yes)), (4, Ok(())));
    assert_eq!(scene.pool.lookup(scene.dir, OsStr::new("other")).map(|attr| attr.node), Ok(node));
}

#[test]
fn attributes_are_one_call_and_their_change_four() {
    let scene = Scene::new();
    let node = scene.file("file");
    assert_eq!(calls(|| scene.pool.getattr(node).map(|_| ())), (1, Ok(())));
    let change = Change { perm: Some(0o600), ..Change::default() };
    assert_eq!(calls(|| scene.pool.setattr(node, &change).map(|attr| attr.meta.perm)), (4, Ok(0o600)));
}

#[test]
fn a_file_is_opened_looked_at_and_read() {
    let scene = Scene::new();
    let node = scene.file("file");
    let (count, opened) = calls(|| scene.pool.open(node, READ).unwrap());
    assert_eq!(count, 2);
    let mut buffer = [0; 16];
    assert_eq!(calls(|| scene.pool.read(opened.handle, &mut buffer, 0)), (1, Ok(0)));
    assert_eq!(calls(|| scene.pool.release(opened.handle)), (0, Ok(())));
}

#[test]
fn a_new_file_has_no_capability_and_no_branch_is_asked_for_it() {
    let scene = Scene::new();
    let capability = OsStr::new("security.capability");
    let create = |name: &str| scene.pool.create(scene.dir, OsStr::new(name), 0o644, Caller::ROOT, NEW).unwrap();
    let asked = |node| calls(|| scene.pool.getxattr(node, capability));
    let none = Err(OpError::Sys(Errno::NODATA));

    let (written, _open) = create("written");
    assert_eq!(asked(written.node), (0, none.clone()));
    assert_eq!(asked(written.node), (1, none.clone()), "once, so that what is set behind the mount counts");
    let (calls_of_closed, answer) = asked(scene.file("closed"));
    assert!(calls_of_closed > 0 && answer == none, "{calls_of_closed} calls");

    let (given, _open) = create("given");
    // Version 2, effective, and no capability.
    let value = [&[1, 0, 0, 2][..], &[0; 16]].concat();
    scene.pool.setxattr(given.node, capability, &value, XattrFlags::empty()).unwrap();
    assert_eq!(asked(given.node), (1, Ok(value)));
}
