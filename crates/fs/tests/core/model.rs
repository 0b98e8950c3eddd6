//! What users should see, in memory.

use std::collections::{BTreeMap, BTreeSet};

use umbrella_units::Timestamp;

pub(crate) type Key = u32;
pub(crate) type Xattrs = BTreeMap<String, Vec<u8>>;

/// The root's key.
pub(crate) const ROOT: Key = 0;

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Ref {
    Dir(Key),
    File(Key),
}

/// What files and directories share. `None`: taken over at the next comparison, and held fast from then on.
#[derive(Debug, Clone, Default)]
pub(crate) struct Attrs {
    pub(crate) perm: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) xattrs: Xattrs,
    pub(crate) ino: Option<u64>,
    pub(crate) mtime: Option<Timestamp>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Dir {
    pub(crate) attrs: Attrs,
    pub(crate) entries: BTreeMap<String, Ref>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Content {
    Data(Vec<u8>),
    Link(String),
    Pipe,
}

#[derive(Debug, Clone)]
pub(crate) struct File {
    pub(crate) attrs: Attrs,
    pub(crate) content: Content,
    pub(crate) links: u32,
}

impl File {
    pub(crate) fn data(&self) -> Option<&Vec<u8>> {
        match &self.content {
            Content::Data(data) => Some(data),
            _ => None,
        }
    }

    pub(crate) fn data_mut(&mut self) -> Option<&mut Vec<u8>> {
        match &mut self.content {
            Content::Data(data) => Some(data),
            _ => None,
        }
    }

    pub(crate) fn size(&self) -> u64 {
        match &self.content {
            Content::Data(data) => data.len() as u64,
            Content::Link(target) => target.len() as u64,
            Content::Pipe => 0,
        }
    }
}

/// See the module. Files without a name stay for as long as somebody holds them open.
#[derive(Debug, Clone)]
pub(crate) struct Model {
    pub(crate) dirs: BTreeMap<Key, Dir>,
    pub(crate) files: BTreeMap<Key, File>,
    next: Key,
}

impl Model {
    pub(crate) fn new() -> Model {
        let attrs = Attrs { perm: 0o755, ..Attrs::default() };
        let dirs = BTreeMap::from([(ROOT, Dir { attrs, entries: BTreeMap::new() })]);
        Model { dirs, files: BTreeMap::new(), next: ROOT + 1 }
    }

    pub(crate) fn fresh(&mut self) -> Key {
        self.next += 1;
        self.next - 1
    }

    pub(crate) fn entry(&self, dir: Key, name: &str) -> Option<Ref> {
        self.dirs[&dir].entries.get(name).copied()
    }

    pub(crate) fn attrs_mut(&mut self, of: Ref) -> &mut Attrs {
        match of {
            Ref::Dir(key) => &mut self.dirs.get_mut(&key).unwrap().attrs,
            Ref::File(key) => &mut self.files.get_mut(&key).unwrap().attrs,
        }
    }

    /// The directory's own time changes with its entries.
    pub(crate) fn touch_dir(&mut self, dir: Key) {
        self.dirs.get_mut(&dir).unwrap().attrs.mtime = None;
    }

    pub(crate) fn insert(&mut self, dir: Key, name: &str, what: Ref) {
        self.dirs.get_mut(&dir).unwrap().entries.insert(name.to_owned(), what);
        self.touch_dir(dir);
    }

    pub(crate) fn remove(&mut self, dir: Key, name: &str) {
        self.dirs.get_mut(&dir).unwrap().entries.remove(name);
        self.touch_dir(dir);
    }

    pub(crate) fn add_file(&mut self, dir: Key, name: &str, content: Content, attrs: Attrs) -> Key {
        let key = self.fresh();
        self.files.insert(key, File { attrs, content, links: 1 });
        self.insert(dir, name, Ref::File(key));
        key
    }

    /// Takes a name from a file.
    pub(crate) fn unlink(&mut self, dir: Key, name: &str) {
        if let Some(Ref::File(key)) = self.entry(dir, name) {
            self.files.get_mut(&key).unwrap().links -= 1;
        }
        self.remove(dir, name);
    }

    /// Forgets files that have no name, except those held open.
    pub(crate) fn bury(&mut self, held: &BTreeSet<Key>) {
        self.files.retain(|key, file| file.links > 0 || held.contains(key));
    }

    /// All directories with their paths (`""` for the root, else `/a/b`), parents first.
    pub(crate) fn dir_paths(&self) -> Vec<(Key, String)> {
        let mut paths = vec![(ROOT, String::new())];
        let mut at = 0;
        while at < paths.len() {
            let (key, path) = paths[at].clone();
            for (name, entry) in &self.dirs[&key].entries {
                if let Ref::Dir(below) = entry {
                    paths.push((*below, format!("{path}/{name}")));
                }
            }
            at += 1;
        }
        paths
    }

    /// All names: directory, name, path, and what it is.
    pub(crate) fn names(&self) -> Vec<(Key, String, String, Ref)> {
        let mut names = Vec::new();
        for (dir, path) in self.dir_paths() {
            for (name, entry) in &self.dirs[&dir].entries {
                names.push((dir, name.clone(), format!("{path}/{name}"), *entry));
            }
        }
        names
    }

    pub(crate) fn path_of_dir(&self, key: Key) -> String {
        self.dir_paths().into_iter().find(|(found, _)| *found == key).map(|(_, path)| path).unwrap()
    }

    /// Whether `below` is `above` or lies in it.
    pub(crate) fn is_within(&self, below: Key, above: Key) -> bool {
        let (below, above) = (self.path_of_dir(below), self.path_of_dir(above));
        below == above || below.starts_with(&format!("{above}/"))
    }

    /// What is left to see when only these paths are on a branch that is there.
    pub(crate) fn visible(&self, paths: &BTreeSet<String>) -> Model {
        let mut model = self.clone();
        for (dir, name, path, what) in self.names() {
            if !paths.contains(&path) {
                if let Some(above) = model.dirs.get_mut(&dir) {
                    above.entries.remove(&name);
                }
                if let Ref::Dir(key) = what {
                    model.dirs.remove(&key);
                }
            }
        }
        model
    }
}
