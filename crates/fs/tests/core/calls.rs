//! What an operation may cost in system calls on its branch, where a directory is on one of three branches. The calls
//! of the kernel's requests around it are counted apart: a create by a program is a lookup, a create, and later a
//! release.

use std::ffi::OsStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::fs::XattrFlags;
use rustix::io::Errno;
use umbrella_fs::pool::{AttributeChange, Pool, Replace};
use umbrella_fs::{Caller, DataPath, NodeId, OpError, PassthroughToken, calls_on_branches};

use crate::bench::{Bench, CREATE, FakeKernel, Ground, READ, WRITE};
use crate::races::put;

const USER: Caller = Caller { uid: 1000, gid: 1000, ..Caller::ROOT };

struct Scene {
    pool: Arc<Pool>,
    dir: NodeId,
    bench: Bench,
}

/// Rules that send logs from the first branch of the list to `slow`.
const LOGS_TO_SLOW: usize = 3;

impl Scene {
    fn new() -> Scene {
        Scene::with_rules(0)
    }

    fn with_rules(rules: usize) -> Scene {
        let bench = Bench::new(Ground::Memory);
        let pool = bench.assemble(rules);
        let dir = pool.mkdir(NodeId::ROOT, OsStr::new("dir"), 0o777, Caller::ROOT).unwrap().node;
        // From its first use on, the directory is open.
        assert!(pool.lookup(dir, OsStr::new("nothing")).is_err());
        Scene { pool, dir, bench }
    }

    /// A closed file.
    fn file(&self, name: &str) -> NodeId {
        let (attr, opened) = self.pool.create(self.dir, OsStr::new(name), 0o644, Caller::ROOT, CREATE).unwrap();
        self.pool.release(opened.handle).unwrap();
        attr.node
    }
}

fn calls<T>(operation: impl FnOnce() -> T) -> (u64, T) {
    let before = calls_on_branches();
    let done = operation();
    (calls_on_branches() - before, done)
}

/// What the moves of renamed files cost, where `sync` syncs what it likes before they move.
fn calls_of_moves(count: usize, sync: impl FnOnce(&Scene)) -> u64 {
    let scene = Scene::with_rules(LOGS_TO_SLOW);
    for at in 0..count {
        scene.file(&format!("{at}.txt"));
        let (from, to) = (format!("{at}.txt"), format!("{at}.log"));
        scene.pool.rename(scene.dir, OsStr::new(&from), scene.dir, OsStr::new(&to), Replace::No).unwrap();
    }
    sync(&scene);
    let (calls, ()) = calls(|| scene.pool.move_all_queued());
    let on_slow = |dir: &str, at| scene.bench.branch(1).join(format!("{dir}/{at}.log")).exists();
    assert!((0..count).all(|at| on_slow("dir", at) || on_slow("new", at)), "all of them have moved");
    calls
}

#[test]
fn files_move_once_the_names_that_renames_gave_them_are_durable_and_that_is_done_once() {
    let rename_dir = |scene: &Scene| {
        scene.pool.rename(NodeId::ROOT, OsStr::new("dir"), NodeId::ROOT, OsStr::new("new"), Replace::No).unwrap();
    };
    for count in [1, 5] {
        let synced = |scene: &Scene| scene.pool.fsync_dir(scene.dir, false).unwrap();
        let root_synced = |scene: &Scene| scene.pool.fsync_dir(NodeId::ROOT, false).unwrap();
        let least = calls_of_moves(count, synced);
        assert_eq!(calls_of_moves(count, |_| {}), least + 1, "{count} files");
        let least = calls_of_moves(count, |scene| {
            synced(scene);
            rename_dir(scene);
            root_synced(scene);
        });
        let renamed_dir = calls_of_moves(count, |scene| {
            synced(scene);
            rename_dir(scene);
        });
        assert_eq!(renamed_dir, least + 1, "{count} files of a directory");
        let both = calls_of_moves(count, rename_dir);
        assert_eq!(both, least + 2, "{count} files and their directory");
    }
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
    let create = |name: &str, caller| scene.pool.create(scene.dir, OsStr::new(name), 0o644, caller, CREATE).map(|_| ());
    assert_eq!(calls(|| create("roots", Caller::ROOT)), (2, Ok(())));
    // The directory is looked at as well: it may pass on its group.
    assert_eq!(calls(|| create("users", USER)), (4, Ok(())));
}

#[test]
fn a_name_that_is_taken_is_not_made_again() {
    let scene = Scene::new();
    let node = scene.file("file");
    let create = |request| scene.pool.create(scene.dir, OsStr::new("file"), 0o644, Caller::ROOT, request);
    assert_eq!(create(CREATE).map(|_| ()), Err(OpError::Sys(Errno::EXIST)));
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
    scene.pool.create(inner, OsStr::new("file"), 0o644, Caller::ROOT, CREATE).unwrap();
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
    let change = AttributeChange { perm: Some(0o600), ..AttributeChange::default() };
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

/// A pool whose files are registered for passthrough, as long as that does not fail with this error.
fn passed_through() -> (Scene, Arc<AtomicI32>) {
    let scene = Scene::new();
    let fails = Arc::<AtomicI32>::default();
    let error = Arc::clone(&fails);
    let register = move || match error.load(Ordering::Relaxed) {
        0 => Ok(Arc::new(()) as PassthroughToken),
        error => Err(std::io::Error::from_raw_os_error(error)),
    };
    scene.pool.set_kernel(Box::new(FakeKernel { forgets: Box::new(|_| ()), register: Some(Box::new(register)) }));
    (scene, fails)
}

#[test]
fn a_file_is_registered_at_its_first_open_and_no_more_with_its_last_close() {
    let (scene, _) = passed_through();
    let node = scene.file("file");
    let (count, first) = calls(|| scene.pool.open(node, READ).unwrap());
    assert_eq!((count, first.data), (3, DataPath::Passthrough));
    let (count, second) = calls(|| scene.pool.open(node, READ).unwrap());
    assert_eq!((count, second.data), (2, DataPath::Passthrough));
    assert_eq!(calls(|| scene.pool.release(first.handle)), (0, Ok(())));
    drop((first.token, second.token));
    assert_eq!(calls(|| scene.pool.release(second.handle)), (1, Ok(())));
    // After a writer the rules want to know its size.
    let writer = scene.pool.open(node, WRITE).unwrap();
    assert_eq!(calls(|| scene.pool.release(writer.handle)), (2, Ok(())));
}

#[test]
fn a_file_that_cannot_be_registered_is_read_and_written_by_the_daemon() {
    let (scene, fails) = passed_through();
    let node = scene.file("file");
    // No descriptors, no right, stacked too deep.
    for error in [Errno::MFILE, Errno::PERM, Errno::LOOP] {
        fails.store(error.raw_os_error(), Ordering::Relaxed);
        let opened = scene.pool.open(node, WRITE).unwrap();
        assert_eq!(opened.data, DataPath::Mediated, "{error}");
        assert_eq!(scene.pool.write(opened.handle, b"data", 0, false), Ok(4));
        let mut buffer = [0; 16];
        assert_eq!(scene.pool.read(opened.handle, &mut buffer, 0), Ok(4));
        scene.pool.release(opened.handle).unwrap();
        fails.store(0, Ordering::Relaxed);
        let opened = scene.pool.open(node, READ).unwrap();
        assert_eq!(opened.data, DataPath::Passthrough, "it is tried anew");
        scene.pool.release(opened.handle).unwrap();
    }
}

#[test]
fn other_operations_have_their_budget_too() {
    let scene = Scene::new();
    let node = scene.file("file");
    let name = OsStr::new;
    let link = |to: &str| scene.pool.link(node, scene.dir, name(to)).map(|_| ());
    assert_eq!(calls(|| link("other")), (3, Ok(())));
    let device = || scene.pool.mknod(scene.dir, name("pipe"), 0o010_644, 0, Caller::ROOT).map(|_| ());
    assert_eq!(calls(device), (2, Ok(())));
    let unnamed = || scene.pool.create_unnamed(scene.dir, 0o644, Caller::ROOT, CREATE).map(|_| ());
    assert_eq!(calls(unnamed), (2, Ok(())));
    let opened = scene.pool.open(node, WRITE).unwrap();
    assert_eq!(calls(|| scene.pool.write(opened.handle, b"data", 0, false)), (1, Ok(4)));
    assert_eq!(calls(|| scene.pool.fsync(opened.handle, false)), (1, Ok(())));
    scene.pool.release(opened.handle).unwrap();
    let user = name("user.name");
    assert_eq!(calls(|| scene.pool.setxattr(node, user, b"value", XattrFlags::empty())), (3, Ok(())));
    assert_eq!(calls(|| scene.pool.getxattr(node, user)), (3, Ok(b"value".to_vec())));
    let symlink = scene.pool.symlink(scene.dir, name("link"), name("to"), Caller::ROOT).unwrap();
    assert_eq!(calls(|| scene.pool.readlink(symlink.node)), (1, Ok(b"to".to_vec())));
}

#[test]
fn a_new_file_has_no_capability_and_no_branch_is_asked_for_it() {
    let scene = Scene::new();
    let capability = OsStr::new("security.capability");
    let create = |name: &str| scene.pool.create(scene.dir, OsStr::new(name), 0o644, Caller::ROOT, CREATE).unwrap();
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

#[test]
fn an_fsync_takes_along_once_what_went_from_its_directories_on_other_branches() {
    let bench = Bench::new(Ground::Memory);
    // Logs go to another branch than the rest.
    let pool = bench.assemble(2);
    let mkdir = |parent, name: &str| pool.mkdir(parent, OsStr::new(name), 0o755, Caller::ROOT).unwrap().node;
    let above = mkdir(NodeId::ROOT, "above");
    let (dir, aside) = (mkdir(above, "dir"), mkdir(above, "aside"));
    let file = put(&pool, dir, "file", b"text");
    for name in ["1.log", "2.log", "3.log", "4.log", "5.log"] {
        put(&pool, dir, name, b"text");
    }
    for (parent, name) in [(above, "1.log"), (aside, "1.log"), (dir, "plain")] {
        put(&pool, parent, name, b"text");
    }
    let opened = pool.open(file, WRITE).unwrap();
    let sync = || calls(|| pool.fsync(opened.handle, true));
    let unlink = |parent, name: &str| pool.unlink(parent, OsStr::new(name)).unwrap();
    let rename = |from: &str, to: &str| pool.rename(dir, OsStr::new(from), dir, OsStr::new(to), Replace::Yes).unwrap();
    let (alone, with_one) = ((1, Ok(())), (2, Ok(())));
    assert_eq!(sync(), alone, "new names elsewhere are not waited for");
    unlink(dir, "1.log");
    assert_eq!((sync(), sync()), (with_one, alone), "a name was removed");
    rename("2.log", "6.log");
    assert_eq!((sync(), sync()), (with_one, alone), "a name was changed");
    unlink(above, "1.log");
    assert_eq!((sync(), sync()), (with_one, alone), "in the directory above");
    unlink(dir, "3.log");
    assert_eq!(pool.fsync_dir(dir, false), Ok(()));
    assert_eq!(sync(), alone, "the directory was synced since");
    unlink(dir, "plain");
    unlink(aside, "1.log");
    assert_eq!(sync(), alone, "on its own branch, and in another directory");
    pool.release(opened.handle).unwrap();
}
