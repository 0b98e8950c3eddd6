//! A pool beside a model: every operation is done to both.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::sync::Arc;

use rustix::fs::{FallocateFlags, XattrFlags};
use rustix::io::Errno;
use umbrella_fs::pool::{AttributeChange, NewTime, OpenRequest, Pool, Replace, WalkOptions};
use umbrella_fs::{Caller, HandleId, NodeId, OpError, OpResult};
use umbrella_units::Timestamp;

use crate::bench::{BRANCHES, Bench, Ground, RULE_SETS, rule_set, small_area};
use crate::check;
use crate::model::{Attrs, Content, Dir, Key, Model, ROOT, Ref};
use crate::ops::{Op, Pick};

/// What failed, for people.
pub(crate) type Done<T = ()> = Result<T, String>;

const NAMES: [&str; 9] = ["a", "b", "c", "d", "e.log", "f.log", "g", "h", "i"];
pub(crate) const XATTRS: [&str; 3] = ["user.one", "user.two", "trusted.three"];

/// A file that is open; it holds a reference of its node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Open {
    pub(crate) handle: HandleId,
    pub(crate) file: Key,
    pub(crate) node: NodeId,
    pub(crate) write: bool,
}

/// A name that is there.
type Name = (Key, String, String, Ref);

pub(crate) struct World {
    pub(crate) pool: Option<Arc<Pool>>,
    pub(crate) bench: Bench,
    pub(crate) model: Model,
    pub(crate) opens: Vec<Open>,
    /// Nodes that "the kernel" knows, one reference each.
    pub(crate) known: BTreeMap<Ref, NodeId>,
    pub(crate) rules: usize,
    /// The branch that is away, and the paths on the others then.
    pub(crate) away: Option<usize>,
    /// A branch went away since the last sync of all that succeeded: it may have lost something.
    pub(crate) may_have_lost: bool,
    pub(crate) draining: bool,
    writes: u32,
    /// A write to a file with several names ended on a full branch.
    pub(crate) is_cut: bool,
    pub(crate) steps: u32,
}

pub(crate) fn fail<T>(text: impl Into<String>) -> Done<T> {
    Err(text.into())
}

fn well<T>(what: &str, result: OpResult<T>) -> Done<T> {
    result.map_err(|error| format!("{what}: {error:?}"))
}

/// Where there is no room anywhere it is not on disk, and is said not to be.
fn synced(what: &str, result: OpResult<()>) -> Done {
    if result == Err(OpError::NoRoom) { Ok(()) } else { well(what, result) }
}

/// The result must be what the model says.
fn same<T>(what: &str, result: OpResult<T>, expected: Result<(), Errno>) -> Done<Option<T>> {
    match (result, expected) {
        (Ok(value), Ok(())) => Ok(Some(value)),
        (Err(OpError::Sys(errno)), Err(expected)) if errno == expected => Ok(None),
        (got, expected) => fail(format!("{what}: got {:?}, expected {expected:?}", got.map(|_| ()))),
    }
}

/// Bytes of a write: different for each.
pub(crate) fn pattern(number: u32, len: u32) -> Vec<u8> {
    (0..len).map(|at| (at.wrapping_mul(31) ^ number.wrapping_mul(0x9E37) ^ (at >> 8)) as u8).collect()
}

fn overwrite(data: &mut Vec<u8>, at: usize, with: &[u8]) {
    if !with.is_empty() {
        data.resize(data.len().max(at + with.len()), 0);
        data[at..at + with.len()].copy_from_slice(with);
    }
}

impl World {
    pub(crate) fn new(ground: Ground, rules: usize) -> World {
        World::over(Bench::new(ground), rules)
    }

    /// With new files staged.
    pub(crate) fn staged(ground: Ground, rules: usize) -> World {
        World::over(Bench::staged(ground, small_area()), rules)
    }

    /// On branches that are there.
    pub(crate) fn over(bench: Bench, rules: usize) -> World {
        let pool = Some(bench.assemble(rules));
        World {
            pool,
            bench,
            model: Model::new(),
            opens: Vec::new(),
            known: BTreeMap::new(),
            rules,
            away: None,
            may_have_lost: false,
            draining: false,
            writes: 0,
            is_cut: false,
            steps: 0,
        }
    }

    pub(crate) fn pool(&self) -> Arc<Pool> {
        Arc::clone(self.pool.as_ref().unwrap())
    }

    /// The model of what can be seen now.
    pub(crate) fn seen(&self) -> Model {
        if self.away.is_none() { self.model.clone() } else { self.model.visible(&check::paths_on_disk(self)) }
    }

    /// Does one operation, then compares everything.
    pub(crate) fn step(&mut self, op: Op) -> Done {
        self.apply(op).map_err(|text| format!("{op:?}: {text}"))?;
        self.steps += 1;
        check::all(self).map_err(|text| format!("after {op:?}: {text}"))
    }

    /// All that is still under way comes to its end.
    pub(crate) fn finish(&mut self) -> Done {
        for op in [Op::GiveBack, Op::Settle, Op::Remount { orderly: true }, Op::Enforce, Op::Settle] {
            self.step(op)?;
        }
        Ok(())
    }

    fn new_name(&mut self, pick: Pick) -> String {
        if self.away.is_some() {
            // A name that the absent branch cannot have.
            self.writes += 1;
            return format!("out-{}", self.writes);
        }
        NAMES[pick as usize % NAMES.len()].to_owned()
    }

    fn pick_dir(&self, pick: Pick) -> Key {
        let dirs = self.seen().dir_paths();
        dirs[pick as usize % dirs.len()].0
    }

    fn pick_name(&self, pick: Pick, fits: impl Fn(&World, Ref) -> bool) -> Option<Name> {
        let names: Vec<_> = self.seen().names().into_iter().filter(|name| fits(self, name.3)).collect();
        (!names.is_empty()).then(|| names[pick as usize % names.len()].clone())
    }

    fn pick_file(&self, pick: Pick) -> Option<Name> {
        self.pick_name(pick, |world, what| matches!(what, Ref::File(key) if world.model.files[&key].data().is_some()))
    }

    fn pick_open(&self, pick: Pick, write: bool) -> Option<Open> {
        let seen: BTreeSet<Ref> = self.seen().names().into_iter().map(|name| name.3).collect();
        let usable =
            |open: &&Open| (!write || open.write) && (self.away.is_none() || seen.contains(&Ref::File(open.file)));
        let opens: Vec<_> = self.opens.iter().filter(usable).collect();
        (!opens.is_empty()).then(|| *opens[pick as usize % opens.len()])
    }

    /// Looks a name up as the kernel would; the reference stays with `known`.
    pub(crate) fn node_at(&mut self, dir: Key, name: &str, what: Ref) -> Done<NodeId> {
        let parent = self.dir_node(dir)?;
        let attr = well(&format!("lookup of {name}"), self.pool().lookup(parent, OsStr::new(name)))?;
        self.note_node(what, attr.node)
    }

    /// Keeps one reference of a node that was just given.
    pub(crate) fn note_node(&mut self, what: Ref, node: NodeId) -> Done<NodeId> {
        match self.known.get(&what) {
            None => {
                self.known.insert(what, node);
            }
            Some(known) if *known == node => self.pool().forget(node, 1),
            Some(known) => return fail(format!("{what:?} was node {known:?} and is now {node:?}")),
        }
        Ok(node)
    }

    pub(crate) fn dir_node(&mut self, dir: Key) -> Done<NodeId> {
        if dir == ROOT {
            return Ok(NodeId::ROOT);
        }
        if let Some(node) = self.known.get(&Ref::Dir(dir)) {
            return Ok(*node);
        }
        let names = self.model.names();
        let Some((parent, name, ..)) = names.into_iter().find(|name| name.3 == Ref::Dir(dir)) else {
            return fail(format!("directory {dir} has no name in the model"));
        };
        self.node_at(parent, &name, Ref::Dir(dir))
    }

    fn forget_known(&mut self, what: Ref) {
        if let Some(node) = self.known.remove(&what) {
            self.pool().forget(node, 1);
        }
    }

    /// After names went: the kernel drops what has none.
    fn bury(&mut self) {
        let held: BTreeSet<Key> = self.opens.iter().map(|open| open.file).collect();
        self.model.bury(&held);
        let gone: Vec<Ref> = self
            .known
            .keys()
            .copied()
            .filter(|what| match what {
                Ref::File(key) => self.model.files.get(key).is_none_or(|file| file.links == 0),
                Ref::Dir(key) => !self.model.dirs.contains_key(key),
            })
            .collect();
        for what in gone {
            self.forget_known(what);
        }
    }

    fn attrs_for_new(&self, dir: Key, perm: u32, uid: u32, is_dir: bool) -> Attrs {
        let above = &self.model.dirs[&dir].attrs;
        let inherits = above.perm & 0o2000 != 0;
        // mkdir(2) gives no set-id bits but the inherited one.
        let perm = if is_dir { (perm & 0o1777) | (above.perm & 0o2000) } else { perm };
        Attrs { perm, uid, gid: if inherits { above.gid } else { uid }, ..Attrs::default() }
    }

    fn create(&mut self, dir: Pick, name: Pick, perm: u32, uid: u32) -> Done<Option<Open>> {
        let dir = self.pick_dir(dir);
        let name = self.new_name(name);
        let parent = self.dir_node(dir)?;
        let expected = if self.model.entry(dir, &name).is_some() { Err(Errno::EXIST) } else { Ok(()) };
        let caller = Caller { uid, gid: uid, umask: 0 };
        let request = OpenRequest { read: true, write: true, exclusive: true, ..OpenRequest::default() };
        let made = self.pool().create(parent, OsStr::new(&name), perm, caller, request);
        let Some((attr, opened)) = same(&format!("create {name}"), made, expected)? else { return Ok(None) };
        let attrs = self.attrs_for_new(dir, perm, uid, false);
        let key = self.model.add_file(dir, &name, Content::Data(Vec::new()), attrs);
        let open = Open { handle: opened.handle, file: key, node: attr.node, write: true };
        self.opens.push(open);
        Ok(Some(open))
    }

    fn write(&mut self, open: Open, at: u32, len: u32) -> Done {
        self.writes += 1;
        let (pool, data) = (self.pool(), pattern(self.writes, len));
        let file = self.model.files.get_mut(&open.file).unwrap();
        let written = match pool.write(open.handle, &data, u64::from(at), false) {
            // A file leaves a full branch with all its names, or not at all: of several the pool may not know each.
            Err(OpError::NoRoom) if file.links > 1 => 0,
            written => well("write", written)?,
        };
        if written != data.len() {
            if file.links < 2 {
                return fail(format!("{written} of {} bytes written", data.len()));
            }
            self.is_cut = true;
        }
        file.attrs.mtime = None;
        overwrite(file.data_mut().unwrap(), at as usize, &data[..written]);
        Ok(())
    }

    fn close(&mut self, open: Open) -> Done {
        self.opens.retain(|other| other.handle != open.handle);
        well("release", self.pool().release(open.handle))?;
        self.pool().forget(open.node, 1);
        self.bury();
        Ok(())
    }

    fn make(&mut self, dir: Pick, name: Pick, content: Option<Content>, perm: u32) -> Done {
        let dir = self.pick_dir(dir);
        let name = self.new_name(name);
        let parent = self.dir_node(dir)?;
        let expected = if self.model.entry(dir, &name).is_some() { Err(Errno::EXIST) } else { Ok(()) };
        let (pool, os) = (self.pool(), OsStr::new(&name));
        let made = match &content {
            None => pool.mkdir(parent, os, perm, Caller::ROOT),
            Some(Content::Link(target)) => pool.symlink(parent, os, OsStr::new(target), Caller::ROOT),
            Some(_) => pool.mknod(parent, os, libc::S_IFIFO | perm, 0, Caller::ROOT),
        };
        let Some(attr) = same(&format!("make {name}"), made, expected)? else { return Ok(()) };
        let attrs = self.attrs_for_new(dir, perm, 0, content.is_none());
        let what = match content {
            None => {
                let key = self.model.fresh();
                self.model.dirs.insert(key, Dir { attrs, entries: BTreeMap::new() });
                self.model.insert(dir, &name, Ref::Dir(key));
                Ref::Dir(key)
            }
            Some(content) => Ref::File(self.model.add_file(dir, &name, content, attrs)),
        };
        self.note_node(what, attr.node).map(drop)
    }

    fn rename(&mut self, from: Name, dir: Key, name: &str, way: Replace) -> Done {
        let (from_dir, from_name, _, what) = from;
        let target = self.model.entry(dir, name);
        let into_itself = matches!(what, Ref::Dir(key) if self.model.is_within(dir, key));
        let over_above = matches!(target, Some(Ref::Dir(key)) if self.model.is_within(from_dir, key));
        if into_itself || over_above || (from_dir == dir && from_name == name) {
            return Ok(()); // The kernel answers these.
        }
        let expected = match (what, target) {
            (_, Some(_)) if way == Replace::No => Err(Errno::EXIST),
            (Ref::File(_), Some(Ref::Dir(_))) => Err(Errno::ISDIR),
            (Ref::Dir(_), Some(Ref::File(_))) => Err(Errno::NOTDIR),
            (_, Some(Ref::Dir(key))) if !self.model.dirs[&key].entries.is_empty() => Err(Errno::NOTEMPTY),
            _ => Ok(()),
        };
        let (parent, to) = (self.dir_node(from_dir)?, self.dir_node(dir)?);
        let renamed = self.pool().rename(parent, OsStr::new(&from_name), to, OsStr::new(name), way);
        if same(&format!("rename {from_name} to {name}"), renamed, expected)?.is_none() || target == Some(what) {
            return Ok(());
        }
        match target {
            Some(Ref::Dir(key)) => {
                self.model.dirs.remove(&key);
            }
            Some(Ref::File(_)) => self.model.unlink(dir, name),
            None => {}
        }
        self.model.remove(from_dir, &from_name);
        self.model.insert(dir, name, what);
        self.bury();
        Ok(())
    }

    fn exchange(&mut self, a: &Name, b: &Name) -> Done {
        let below = |what, dir| matches!(what, Ref::Dir(key) if self.model.is_within(dir, key));
        if a.3 == b.3 || below(a.3, b.0) || below(b.3, a.0) {
            return Ok(());
        }
        let (parent, to) = (self.dir_node(a.0)?, self.dir_node(b.0)?);
        match self.pool().rename(parent, OsStr::new(&a.1), to, OsStr::new(&b.1), Replace::Exchange) {
            Ok(()) => {}
            // Not both on one branch, and they cannot be brought together.
            Err(OpError::Sys(Errno::INVAL | Errno::BUSY | Errno::NOSPC) | OpError::NoRoom) => return Ok(()),
            Err(error) => return fail(format!("exchange of {} and {}: {error:?}", a.2, b.2)),
        }
        self.model.insert(a.0, &a.1, b.3);
        self.model.insert(b.0, &b.1, a.3);
        Ok(())
    }

    fn change(&mut self, name: &Name, change: &AttributeChange) -> Done {
        let node = self.node_at(name.0, &name.1, name.3)?;
        well("setattr", self.pool().setattr(node, change)).map(drop)
    }

    fn set_xattr(&mut self, what: Pick, name: u32, len: Option<u32>) -> Done {
        let fits = |world: &World, what| match what {
            // A copy that is away could not follow.
            Ref::Dir(_) => world.away.is_none(),
            Ref::File(key) => world.model.files[&key].data().is_some(),
        };
        let Some(found) = self.pick_name(what, fits) else { return Ok(()) };
        let node = self.node_at(found.0, &found.1, found.3)?;
        let (pool, name) = (self.pool(), XATTRS[name as usize]);
        self.writes += 1;
        let number = self.writes;
        let xattrs = &mut self.model.attrs_mut(found.3).xattrs;
        if let Some(len) = len {
            let value = pattern(number, len);
            well("setxattr", pool.setxattr(node, OsStr::new(name), &value, XattrFlags::empty()))?;
            xattrs.insert(name.to_owned(), value);
        } else {
            let expected = if xattrs.remove(name).is_some() { Ok(()) } else { Err(Errno::NODATA) };
            same("removexattr", pool.removexattr(node, OsStr::new(name)), expected)?;
        }
        Ok(())
    }

    pub(crate) fn drop_caches(&mut self) {
        for what in self.known.keys().copied().collect::<Vec<_>>() {
            self.forget_known(what);
        }
    }

    /// The pool is gone and there again. Files open without a name are gone with it.
    pub(crate) fn remount(&mut self, orderly: bool) -> Done {
        self.known.clear();
        self.opens.clear();
        if let Some(pool) = self.pool.take() {
            if orderly {
                pool.close_staging();
                pool.shut_down();
            }
            assert_eq!(Arc::strong_count(&pool), 1, "the pool is still in use");
        }
        self.model.bury(&BTreeSet::new());
        self.pool = Some(self.bench.assemble(self.rules));
        self.draining = false;
        check::branches_are_there(self)
    }

    #[expect(clippy::too_many_lines, reason = "an arm for each operation")]
    pub(crate) fn apply(&mut self, op: Op) -> Done {
        let here = self.away.is_none();
        match op {
            Op::Put { dir, name, perm, uid, len } => {
                let Some(open) = self.create(dir, name, perm, uid)? else { return Ok(()) };
                self.write(open, 0, len)?;
                self.close(open)
            }
            Op::CreateOpen { dir, name } => self.create(dir, name, 0o644, 0).map(drop),
            Op::Mkdir { dir, name, perm } => self.make(dir, name, None, perm),
            Op::Symlink { dir, name } => self.make(dir, name, Some(Content::Link("../else/where".to_owned())), 0o777),
            Op::Mkfifo { dir, name } => self.make(dir, name, Some(Content::Pipe), 0o600),
            Op::Link { file, dir, name } => self.link(file, dir, name),
            Op::Open { file, write, truncate } => self.open(file, write, truncate && write),
            Op::Write { handle, at, len } => match self.pick_open(handle, true) {
                Some(open) => self.write(open, at, len),
                None => Ok(()),
            },
            Op::Allocate { handle, len } => self.allocate(handle, u64::from(len) + 1),
            Op::CopyRange { from, to } => self.copy_range(from, to),
            Op::Close { handle } if !self.opens.is_empty() => {
                self.close(self.opens[handle as usize % self.opens.len()])
            }
            Op::Unlink { entry } => {
                let Some(name) = self.pick_name(entry, |_, what| matches!(what, Ref::File(_))) else { return Ok(()) };
                let parent = self.dir_node(name.0)?;
                well("unlink", self.pool().unlink(parent, OsStr::new(&name.1)))?;
                self.model.unlink(name.0, &name.1);
                self.bury();
                Ok(())
            }
            Op::Rmdir { dir } if here => self.rmdir(dir),
            Op::Rename { entry, dir, name, way } => {
                let Some(from) = self.pick_name(entry, |_, what| here || matches!(what, Ref::File(_))) else {
                    return Ok(());
                };
                let (dir, name) = (self.pick_dir(dir), self.new_name(name));
                self.rename(from, dir, &name, if way < 6 { Replace::Yes } else { Replace::No })
            }
            Op::Exchange { entry, other } if here => {
                let names = (self.pick_name(entry, |_, _| true), self.pick_name(other, |_, _| true));
                if let (Some(a), Some(b)) = names { self.exchange(&a, &b) } else { Ok(()) }
            }
            Op::Chmod { what, perm } => self.chmod(what, perm),
            Op::Chown { what, uid } => self.chown(what, uid),
            Op::SetTime { what, secs } => {
                let Some(name) = self.pick_file(what) else { return Ok(()) };
                let time = Timestamp { secs: i64::from(secs), nanos: 5 };
                self.change(&name, &AttributeChange { mtime: Some(NewTime::At(time)), ..AttributeChange::default() })?;
                self.model.attrs_mut(name.3).mtime = Some(time);
                Ok(())
            }
            Op::Truncate { file, len } => self.truncate(file, len),
            Op::SetXattr { what, name, len } => self.set_xattr(what, name, Some(len)),
            Op::RemoveXattr { what, name } => self.set_xattr(what, name, None),
            Op::Settle => {
                self.pool().destage_due();
                self.pool().move_all_queued();
                Ok(())
            }
            Op::Sync => match self.pool().sync_all() {
                Err(OpError::Sys(Errno::IO)) if self.may_have_lost => Ok(()),
                done => {
                    self.may_have_lost &= done.is_err();
                    synced("sync", done)
                }
            },
            Op::Fsync { handle } => match self.pick_open(handle, false) {
                Some(open) => synced("fsync", self.pool().fsync(open.handle, false)),
                None => Ok(()),
            },
            Op::Enforce => self.enforce(),
            Op::Reload { rules } => {
                self.rules = rules as usize % RULE_SETS;
                self.pool().reload_rules(&rule_set(self.rules)).map_err(|error| error.to_string())
            }
            Op::DropCaches => {
                self.drop_caches();
                Ok(())
            }
            Op::Remount { orderly } => self.remount(orderly),
            Op::TakeAway { branch } if here && !self.draining => {
                let branch = branch as usize % BRANCHES.len();
                // What changes while it is away is younger, also by a clock that only ticks.
                std::thread::sleep(std::time::Duration::from_millis(10));
                self.bench.take_away(branch);
                (self.away, self.may_have_lost) = (Some(branch), true);
                self.pool().probe_now();
                Ok(())
            }
            Op::GiveBack => {
                let Some(branch) = self.away.take() else { return Ok(()) };
                self.bench.give_back(branch);
                self.pool().probe_now();
                Ok(())
            }
            Op::Drain { branch } if here && !self.draining => {
                self.draining = true;
                let name = BRANCHES[1 + branch as usize % 2];
                match self.pool().drain(name, &mut |_| true) {
                    // What is open, or has no room elsewhere, stays for now.
                    Ok(_) | Err(umbrella_fs::Error::NotDrained { failed: 0, .. }) => Ok(()),
                    Err(error) => fail(error.to_string()),
                }
            }
            Op::Close { .. } | Op::Rmdir { .. } | Op::Exchange { .. } | Op::TakeAway { .. } | Op::Drain { .. } => {
                Ok(())
            }
        }
    }

    fn link(&mut self, file: Pick, dir: Pick, name: Pick) -> Done {
        let Some(found) = self.pick_name(file, |_, what| matches!(what, Ref::File(_))) else { return Ok(()) };
        let Ref::File(key) = found.3 else { return Ok(()) };
        let node = self.node_at(found.0, &found.1, found.3)?;
        let (dir, name) = (self.pick_dir(dir), self.new_name(name));
        let parent = self.dir_node(dir)?;
        let expected = if self.model.entry(dir, &name).is_some() { Err(Errno::EXIST) } else { Ok(()) };
        let linked = self.pool().link(node, parent, OsStr::new(&name));
        if let Some(attr) = same(&format!("link {} to {name}", found.2), linked, expected)? {
            self.model.files.get_mut(&key).unwrap().links += 1;
            self.model.insert(dir, &name, found.3);
            self.note_node(found.3, attr.node)?;
        }
        Ok(())
    }

    fn open(&mut self, file: Pick, write: bool, truncate: bool) -> Done {
        let Some(found) = self.pick_file(file) else { return Ok(()) };
        let Ref::File(key) = found.3 else { return Ok(()) };
        let parent = self.dir_node(found.0)?;
        // The reference of this lookup is the open file's.
        let node = well("lookup", self.pool().lookup(parent, OsStr::new(&found.1)))?.node;
        let request = OpenRequest { read: true, write, truncate, ..OpenRequest::default() };
        let opened = well("open", self.pool().open(node, request))?;
        if truncate {
            let file = self.model.files.get_mut(&key).unwrap();
            file.attrs.mtime = None;
            file.data_mut().unwrap().clear();
        }
        self.opens.push(Open { handle: opened.handle, file: key, node, write });
        Ok(())
    }

    fn allocate(&mut self, handle: Pick, len: u64) -> Done {
        let Some(open) = self.pick_open(handle, true) else { return Ok(()) };
        well("fallocate", self.pool().fallocate(open.handle, FallocateFlags::empty(), 0, len, false))?;
        let file = self.model.files.get_mut(&open.file).unwrap();
        file.attrs.mtime = None;
        let data = file.data_mut().unwrap();
        data.resize(data.len().max(len as usize), 0);
        Ok(())
    }

    fn enforce(&self) -> Done {
        let summary = self.pool().enforce(WalkOptions::default(), &mut |_| true);
        if summary.stopped { Err("nobody stopped the walk".to_owned()) } else { Ok(()) }
    }

    fn copy_range(&mut self, from: Pick, to: Pick) -> Done {
        let (Some(from), Some(to)) = (self.pick_open(from, false), self.pick_open(to, true)) else { return Ok(()) };
        if from.file == to.file {
            return Ok(());
        }
        let data = self.model.files[&from.file].data().unwrap().clone();
        let mut done = 0;
        while done < data.len() {
            let left = data.len() - done;
            match well(
                "copy",
                self.pool().copy_range((from.handle, done as u64), (to.handle, done as u64), left, false),
            )? {
                0 => return fail("a copy ended early"),
                copied => done += copied,
            }
        }
        let file = self.model.files.get_mut(&to.file).unwrap();
        file.attrs.mtime = None;
        overwrite(file.data_mut().unwrap(), 0, &data);
        Ok(())
    }

    fn rmdir(&mut self, dir: Pick) -> Done {
        let Some(name) = self.pick_name(dir, |_, what| matches!(what, Ref::Dir(_))) else { return Ok(()) };
        let Ref::Dir(key) = name.3 else { return Ok(()) };
        let parent = self.dir_node(name.0)?;
        let empty = self.model.dirs[&key].entries.is_empty();
        let removed = self.pool().rmdir(parent, OsStr::new(&name.1));
        if same("rmdir", removed, if empty { Ok(()) } else { Err(Errno::NOTEMPTY) })?.is_some() {
            self.model.remove(name.0, &name.1);
            self.model.dirs.remove(&key);
            self.bury();
        }
        Ok(())
    }

    fn chmod(&mut self, what: Pick, perm: u32) -> Done {
        let not_link = |world: &World, what| !matches!(what, Ref::File(key) if matches!(world.model.files[&key].content, Content::Link(_)));
        let Some(name) = self.pick_name(what, not_link) else { return Ok(()) };
        self.change(&name, &AttributeChange { perm: Some(perm), ..AttributeChange::default() })?;
        self.model.attrs_mut(name.3).perm = perm;
        Ok(())
    }

    fn chown(&mut self, what: Pick, uid: u32) -> Done {
        let Some(name) = self.pick_name(what, |_, _| true) else { return Ok(()) };
        self.change(&name, &AttributeChange { uid: Some(uid), gid: Some(uid), ..AttributeChange::default() })?;
        let attrs = self.model.attrs_mut(name.3);
        (attrs.uid, attrs.gid) = (uid, uid);
        if matches!(name.3, Ref::File(_)) {
            // chown takes set-user-id away, and set-group-id where it is not a lock's.
            let group = if attrs.perm & 0o010 != 0 { 0o2000 } else { 0 };
            attrs.perm &= !(0o4000 | group);
        }
        Ok(())
    }

    fn truncate(&mut self, file: Pick, len: u32) -> Done {
        let Some(name) = self.pick_file(file) else { return Ok(()) };
        let Ref::File(key) = name.3 else { return Ok(()) };
        self.change(&name, &AttributeChange { size: Some(u64::from(len)), ..AttributeChange::default() })?;
        let file = self.model.files.get_mut(&key).unwrap();
        file.attrs.mtime = None;
        file.data_mut().unwrap().resize(len as usize, 0);
        Ok(())
    }
}
