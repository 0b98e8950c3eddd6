//! Everything that can be seen of a directory tree, and how two trees differ.

use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::fmt::Write as _;
use std::fs;
use std::hash::{Hash, Hasher};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// One file or directory as a user sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub kind: &'static str,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// 0 for directories, whose size means nothing.
    pub size: u64,
    /// 0 for directories.
    pub links: u64,
    pub mtime: (i64, i64),
    pub device: u64,
    pub target: PathBuf,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Hash of the content of a regular file.
    pub content: u64,
}

/// A tree by path relative to its root. The root itself is `""`.
pub type Tree = BTreeMap<PathBuf, Entry>;

/// Which times are part of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Times {
    Kept,
    Ignored,
}

/// Reads a whole tree.
pub fn snapshot(root: &Path, times: Times) -> Tree {
    let mut tree = Tree::new();
    visit(root, Path::new(""), times, &mut tree);
    tree
}

fn visit(root: &Path, relative: &Path, times: Times, tree: &mut Tree) {
    let path = if relative.as_os_str().is_empty() { root.to_owned() } else { root.join(relative) };
    let entry = entry(&path, times);
    let is_dir = entry.kind == "directory";
    tree.insert(relative.to_owned(), entry);
    if is_dir {
        let names = fs::read_dir(&path).unwrap_or_else(|error| panic!("cannot list {}: {error}", path.display()));
        for name in names {
            let name = name.unwrap_or_else(|error| panic!("cannot list {}: {error}", path.display())).file_name();
            let below = relative.join(&name);
            assert!(!tree.contains_key(&below), "{} is listed twice", below.display());
            visit(root, &below, times, tree);
        }
    }
}

/// The visible state of one file.
pub fn entry(path: &Path, times: Times) -> Entry {
    let meta = fs::symlink_metadata(path).unwrap_or_else(|error| panic!("cannot stat {}: {error}", path.display()));
    let kind = kind(&meta);
    let regular = kind == "file";
    let content = if regular {
        let data = fs::read(path).unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()));
        assert_eq!(data.len() as u64, meta.len(), "{} reads shorter or longer than its size", path.display());
        hash(&data)
    } else {
        0
    };
    let directory = kind == "directory";
    Entry {
        kind,
        mode: meta.mode() & 0o7777,
        uid: meta.uid(),
        gid: meta.gid(),
        size: if directory { 0 } else { meta.len() },
        links: if directory { 0 } else { meta.nlink() },
        mtime: if times == Times::Kept { (meta.mtime(), meta.mtime_nsec()) } else { (0, 0) },
        device: if kind.ends_with("device") { meta.rdev() } else { 0 },
        target: if kind == "symlink" { fs::read_link(path).unwrap() } else { PathBuf::new() },
        xattrs: xattrs(path),
        content,
    }
}

fn kind(meta: &fs::Metadata) -> &'static str {
    let kind = meta.file_type();
    if kind.is_dir() {
        "directory"
    } else if kind.is_symlink() {
        "symlink"
    } else if kind.is_fifo() {
        "fifo"
    } else if kind.is_socket() {
        "socket"
    } else if kind.is_block_device() {
        "block device"
    } else if kind.is_char_device() {
        "char device"
    } else {
        "file"
    }
}

/// A short name for a content.
pub fn hash(data: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    data.hash(&mut hasher);
    hasher.finish()
}

/// All extended attributes that a user of a pool sees, ACLs among them.
pub fn xattrs(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut names = vec![0_u8; 64 * 1024];
    let length = match rustix::fs::llistxattr(path, &mut names[..]) {
        Ok(length) => length,
        Err(rustix::io::Errno::OPNOTSUPP) => return BTreeMap::new(),
        Err(error) => panic!("cannot list the extended attributes of {}: {error}", path.display()),
    };
    names[..length]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty() && !name.starts_with(b"trusted.umbrella."))
        .map(|name| {
            let mut value = vec![0_u8; 64 * 1024];
            let length = rustix::fs::lgetxattr(path, name, &mut value[..])
                .unwrap_or_else(|error| panic!("cannot read {} of {}: {error}", name.escape_ascii(), path.display()));
            value.truncate(length);
            (name.to_vec(), value)
        })
        .collect()
}

/// Every difference, one a line; empty when the trees are equal.
pub fn difference(expected: &Tree, actual: &Tree) -> String {
    let mut text = String::new();
    for (path, entry) in expected {
        match actual.get(path) {
            None => writeln!(text, "  missing: {} ({})", shown(path), entry.kind).unwrap(),
            Some(other) if other != entry => {
                writeln!(text, "  differs: {}\n    expected {entry:?}\n    found    {other:?}", shown(path)).unwrap();
            }
            Some(_) => {}
        }
    }
    for path in actual.keys().filter(|path| !expected.contains_key(*path)) {
        writeln!(text, "  too many: {}", shown(path)).unwrap();
    }
    text
}

fn shown(path: &Path) -> String {
    format!("/{}", path.as_os_str().as_bytes().escape_ascii())
}

/// Fails with every difference unless the trees are equal.
#[track_caller]
pub fn assert_same(expected: &Tree, actual: &Tree, what: &str) {
    let text = difference(expected, actual);
    assert!(text.is_empty(), "{what}:\n{text}");
}

/// What the pool keeps for itself at the root of each branch.
const HIDDEN: &str = ".umbrella";

/// Files below a directory that are not directories, relative to it, without what the pool keeps for itself.
pub fn files_below(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![PathBuf::new()];
    while let Some(relative) = open.pop() {
        let Ok(names) = fs::read_dir(root.join(&relative)) else { continue };
        for name in names.flatten() {
            let path = relative.join(name.file_name());
            if path == Path::new(HIDDEN) {
                continue;
            }
            if name.file_type().is_ok_and(|kind| kind.is_dir()) {
                open.push(path);
            } else {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Names in a directory, sorted.
pub fn names(path: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(path)
        .unwrap_or_else(|error| panic!("cannot list {}: {error}", path.display()))
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}
