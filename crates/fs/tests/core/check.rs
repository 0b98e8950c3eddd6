//! Comparing a pool with its model, and what must hold on the branches themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use umbrella_fs::control::protocol::BranchState;
use umbrella_fs::pool::{Attr, OpenRequest};
use umbrella_fs::{NodeId, OpError};
use umbrella_policy::placement::spec::FileKind;

use crate::bench::{BRANCHES, has_room_always, place_name};
use crate::model::{Attrs, Content, Key, Model, Ref};
use crate::world::{Done, World, fail};

/// Every path on the branches that are there, and the branches that have it.
type OnDisk = BTreeMap<String, Vec<(usize, std::fs::Metadata)>>;

/// The paths on the branches that are there.
pub(crate) fn paths_on_disk(world: &World) -> BTreeSet<String> {
    on_disk(world).into_keys().collect()
}

/// Which branches have what, for a trace.
pub(crate) fn where_all_is(world: &World) -> Vec<String> {
    on_disk(world).iter().map(|(path, copies)| format!("{path}@{}", branches_of(copies).join("+"))).collect()
}

fn on_disk(world: &World) -> OnDisk {
    let mut found = OnDisk::new();
    for (place, path) in world.bench.places().iter().enumerate().filter(|(place, _)| world.away != Some(*place)) {
        walk(path, "", place, &mut found);
    }
    found
}

fn walk(root: &Path, below: &str, branch: usize, found: &mut OnDisk) {
    for entry in std::fs::read_dir(root.join(below.trim_start_matches('/'))).unwrap() {
        let entry = entry.unwrap();
        let path = format!("{below}/{}", entry.file_name().to_str().unwrap());
        if path == "/.umbrella" {
            continue;
        }
        let meta = entry.metadata().unwrap();
        if meta.is_dir() {
            walk(root, &path, branch, found);
        }
        found.entry(path).or_default().push((branch, meta));
    }
}

/// After every operation.
pub(crate) fn all(world: &mut World) -> Done {
    let seen = world.seen();
    // First: a lookup makes copies of a directory alike that differ since one of them was away.
    tree(world, &seen)?;
    open_files(world, &seen)?;
    on_branches(world, &seen, &on_disk(world))?;
    hidden_is_clean(world)
}

/// The pool goes on without a branch that it cannot have; here it must have all but the one that was taken away.
pub(crate) fn branches_are_there(world: &World) -> Done {
    let branches = world.pool().status().branches;
    for (number, branch) in branches.iter().enumerate().filter(|(number, _)| world.away != Some(*number)) {
        if branch.state != BranchState::Online {
            return fail(format!("branch {} is not there: {:?}", BRANCHES[number], branch.state));
        }
    }
    Ok(())
}

/// Every file once, directories alike on all branches, nothing that nobody made.
fn on_branches(world: &World, seen: &Model, disk: &OnDisk) -> Done {
    let names: BTreeMap<String, Ref> = seen.names().into_iter().map(|(_, _, path, what)| (path, what)).collect();
    if let Some(path) = disk.keys().find(|path| !names.contains_key(*path)) {
        return fail(format!("{path} is on {:?} and in no model", branches_of(&disk[path])));
    }
    for (path, what) in &names {
        let Some(copies) = disk.get(path) else { return fail(format!("{path} is on no branch")) };
        match what {
            Ref::File(_) if copies.len() != 1 => {
                return fail(format!("{path} is on several branches: {:?}", branches_of(copies)));
            }
            Ref::File(key) => {
                let expected = &world.model.files[key];
                let full = world.bench.places()[copies[0].0].join(&path[1..]);
                if expected.data().is_some_and(|data| std::fs::read(&full).unwrap() != *data) {
                    return fail(format!("{path} has other contents on {}", place_name(copies[0].0)));
                }
                if matches!(expected.content, Content::Pipe) && !copies[0].1.file_type().is_fifo() {
                    return fail(format!("{path} is no pipe any more"));
                }
            }
            Ref::Dir(key) => {
                let attrs = &seen.dirs[key].attrs;
                for (branch, meta) in copies {
                    let found = (meta.mode() & 0o7777, meta.uid(), meta.gid());
                    if found != (attrs.perm, attrs.uid, attrs.gid) {
                        return fail(format!(
                            "{path} on {} has mode {:o}, owner {}:{}, expected {:o}, {}:{}",
                            place_name(*branch),
                            found.0,
                            found.1,
                            found.2,
                            attrs.perm,
                            attrs.uid,
                            attrs.gid
                        ));
                    }
                }
            }
        }
    }
    Ok(())
}

fn branches_of(copies: &[(usize, std::fs::Metadata)]) -> Vec<&str> {
    copies.iter().map(|(place, _)| place_name(*place)).collect()
}

/// Nothing moves between two operations, so nothing is half done.
pub(crate) fn hidden_is_clean(world: &World) -> Done {
    for (place, at) in world.bench.places().iter().enumerate().filter(|(place, _)| world.away != Some(*place)) {
        let name = place_name(place);
        for folder in ["tmp", "intents"] {
            let path = at.join(".umbrella").join(folder);
            if let Some(entry) = std::fs::read_dir(&path).unwrap().next() {
                let left = entry.unwrap().file_name();
                return fail(format!("{} stays in {folder} of {name}", left.display()));
            }
        }
    }
    Ok(())
}

/// The whole tree as the pool shows it.
fn tree(world: &mut World, seen: &Model) -> Done {
    let by_listing = world.steps.is_multiple_of(2);
    let pool = world.pool();
    for (dir, path) in seen.dir_paths() {
        let node = world.dir_node(dir)?;
        let listing = pool.list(node, 0, u64::MAX).map_err(|error| format!("listing of {path}/: {error:?}"))?;
        let listed: Vec<_> = listing.after(0).iter().map(|entry| entry.name.to_str().unwrap().to_owned()).collect();
        let sorted: BTreeSet<_> = listed.iter().cloned().collect();
        if sorted.len() != listed.len() {
            return fail(format!("{path}/ has a name twice: {listed:?}"));
        }
        if !sorted.iter().eq(seen.dirs[&dir].entries.keys()) {
            let expected: Vec<_> = seen.dirs[&dir].entries.keys().collect();
            return fail(format!("{path}/ lists {sorted:?}, expected {expected:?}"));
        }
        for entry in listing.after(0) {
            let name = entry.name.to_str().unwrap();
            let what = seen.entry(dir, name).unwrap();
            let found =
                if by_listing { pool.lookup_entry(node, &listing, entry) } else { pool.lookup(node, &entry.name) };
            let attr = found.map_err(|error| format!("lookup of {path}/{name}: {error:?}"))?;
            let was_known = world.known.contains_key(&what);
            world.note_node(what, attr.node).map_err(|text| format!("{path}/{name}: {text}"))?;
            let checked = entry_is(world, &format!("{path}/{name}"), what, &attr, entry.ino.0);
            if !was_known && matches!(what, Ref::File(_)) {
                // Comparing does not change what the kernel knows.
                world.known.remove(&what);
                pool.forget(attr.node, 1);
            }
            checked?;
        }
        if !matches!(pool.lookup(node, OsStr::new("nobody")), Err(OpError::Sys(rustix::io::Errno::NOENT))) {
            return fail(format!("{path}/nobody is found"));
        }
    }
    Ok(())
}

fn entry_is(world: &mut World, path: &str, what: Ref, attr: &Attr, listed_ino: u64) -> Done {
    attributes(world, path, what, attr)?;
    let by_node = world.pool().getattr(attr.node).map_err(|error| format!("attributes of {path}: {error:?}"))?;
    if (by_node.ino, by_node.meta.mtime) != (attr.ino, attr.meta.mtime) {
        return fail(format!("{path} has other attributes by name ({attr:?}) than by node ({by_node:?})"));
    }
    // A directory with several copies may be listed by another one's number before it is looked up.
    if listed_ino != attr.ino.0 {
        return fail(format!("{path} is listed with inode {listed_ino} and has {}", attr.ino));
    }
    xattrs(world, path, what, attr.node)?;
    let Ref::File(key) = what else { return Ok(()) };
    let pool = world.pool();
    match &world.model.files[&key].content {
        Content::Link(target) => {
            let found = pool.readlink(attr.node).map_err(|error| format!("{path}: {error:?}"))?;
            if found != target.as_bytes() {
                return fail(format!("{path} leads elsewhere"));
            }
        }
        Content::Data(data) if world.steps.is_multiple_of(4) => {
            let request = OpenRequest { read: true, ..OpenRequest::default() };
            let opened = pool.open(attr.node, request).map_err(|error| format!("open of {path}: {error:?}"))?;
            let read = contents(world, opened.handle, data.len());
            pool.release(opened.handle).map_err(|error| format!("close of {path}: {error:?}"))?;
            if read? != *data {
                return fail(format!("{path} reads differently"));
            }
        }
        _ => {}
    }
    Ok(())
}

fn contents(world: &World, handle: umbrella_fs::HandleId, len: usize) -> Done<Vec<u8>> {
    let mut buffer = vec![0; len + 1];
    let got = world.pool().read(handle, &mut buffer, 0).map_err(|error| format!("read: {error:?}"))?;
    buffer.truncate(got);
    Ok(buffer)
}

fn xattrs(world: &World, path: &str, what: Ref, node: NodeId) -> Done {
    let expected = match what {
        Ref::Dir(key) => &world.model.dirs[&key].attrs.xattrs,
        Ref::File(key) => &world.model.files[&key].attrs.xattrs,
    };
    let pool = world.pool();
    let list = pool.listxattr(node).map_err(|error| format!("xattrs of {path}: {error:?}"))?;
    let names: BTreeSet<_> = list
        .split(|byte| *byte == 0)
        .filter_map(|name| std::str::from_utf8(name).ok())
        .filter(|name| name.starts_with("user.") || name.starts_with("trusted."))
        .map(str::to_owned)
        .collect();
    if !names.iter().eq(expected.keys()) {
        return fail(format!("{path} has the attributes {names:?}, expected {:?}", expected.keys()));
    }
    for (name, value) in expected {
        let found = pool.getxattr(node, OsStr::new(name)).map_err(|error| format!("{name} of {path}: {error:?}"))?;
        if found != *value {
            return fail(format!("{name} of {path} has another value"));
        }
    }
    Ok(())
}

/// Compares with the model, and takes over what it did not know yet.
fn attributes(world: &mut World, path: &str, what: Ref, attr: &Attr) -> Done {
    let meta = &attr.meta;
    if let Ref::File(key) = what {
        let file = &world.model.files[&key];
        let kind = match file.content {
            Content::Data(_) => FileKind::File,
            Content::Link(_) => FileKind::Symlink,
            Content::Pipe => FileKind::Fifo,
        };
        if (meta.kind, meta.nlink, meta.size) != (kind, file.links, file.size()) {
            return fail(format!("{path}: expected {kind:?}, {} links, {} bytes: {meta:?}", file.links, file.size()));
        }
    } else if meta.kind != FileKind::Directory {
        return fail(format!("{path} is no directory"));
    }
    let is_dir = matches!(what, Ref::Dir(_));
    let complete = world.away.is_none();
    let known: &mut Attrs = world.model.attrs_mut(what);
    if (meta.perm, meta.uid, meta.gid) != (known.perm, known.uid, known.gid) {
        return fail(format!(
            "{path}: mode {:o}, owner {}:{}, expected {:o}, {}:{}",
            meta.perm, meta.uid, meta.gid, known.perm, known.uid, known.gid
        ));
    }
    let known_ino = *known.ino.get_or_insert(attr.ino.0);
    if known_ino != attr.ino.0 {
        return fail(format!("{path} had inode number {known_ino} and now has {}", attr.ino));
    }
    // Without all its copies a directory may look older.
    if complete || !is_dir {
        let known_mtime = *known.mtime.get_or_insert(meta.mtime);
        if known_mtime != meta.mtime {
            return fail(format!("{path} was last changed at {known_mtime:?} and now at {:?}", meta.mtime));
        }
    }
    Ok(())
}

/// Every open handle reads the contents of its file, named or not.
fn open_files(world: &mut World, seen: &Model) -> Done {
    let named: BTreeSet<Key> = seen.names().into_iter().filter_map(|name| file_of(name.3)).collect();
    for open in world.opens.clone() {
        let file = &world.model.files[&open.file];
        if world.away.is_some() && !named.contains(&open.file) {
            continue;
        }
        let data = file.data().unwrap();
        if contents(world, open.handle, data.len())? != *data {
            return fail(format!("an open file ({} links) reads differently", file.links));
        }
        let attr = world.pool().getattr(open.node).map_err(|error| format!("attributes of an open file: {error:?}"))?;
        attributes(world, "an open file", Ref::File(open.file), &attr)?;
    }
    Ok(())
}

fn file_of(what: Ref) -> Option<Key> {
    match what {
        Ref::File(key) => Some(key),
        Ref::Dir(_) => None,
    }
}

/// After a walk of the enforcer: each file is where its rule wants it.
pub(crate) fn placed(world: &World) -> Done {
    if !has_room_always(world.rules) || world.away.is_some() || world.draining {
        return Ok(());
    }
    for (_, _, path, what) in world.model.names() {
        let Some(file) = file_of(what) else { continue };
        if world.opens.iter().any(|open| open.file == file && open.write) {
            continue;
        }
        let explained = world.pool().explain(path.as_bytes()).map_err(|error| error.to_string())?;
        if explained.belongs.as_ref() != explained.on.first() {
            return fail(format!("{path} is on {:?}: {}", explained.on, explained.outcome));
        }
    }
    Ok(())
}
