//! One walk of the branches of a fill level: the files that leave first, and how many may not leave.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use rustc_hash::{FxHashMap, FxHashSet};
use umbrella_policy::placement::spec::FileKind;
use umbrella_policy::placement::{Evict, FileFacts, Leaving, Selection, Urgency};
use umbrella_units::ByteSize;

use crate::branch::{Branch, HIDDEN_DIR};
use crate::control::protocol::EvictStay;
use crate::ground::at::DirAt;
use crate::ground::meta::Meta;
use crate::migrate::Migrations;
use crate::migrate::evict::StayCounts;
use crate::node::Backing;
use crate::placement::{ActiveRules, Views};

/// Files of one round at most: a path each.
const MOST: usize = 1 << 14;

/// A file that may leave.
pub(super) struct EvictionVictim {
    pub(super) backing: Backing,
    pub(super) meta: Meta,
    /// All its names; the first decides where it goes.
    pub(super) paths: Vec<Vec<u8>>,
}

/// What a walk found.
pub(super) struct EvictionCandidates {
    /// The best first.
    pub(super) files: Vec<EvictionVictim>,
    pub(super) stays: StayCounts,
}

/// What a walk looks for.
pub(super) struct Search<'a> {
    pub(super) evict: &'a Evict,
    pub(super) urgency: Urgency,
    /// What has to come free.
    pub(super) need: ByteSize,
    /// Files that were tried and stay.
    pub(super) skip: &'a FxHashSet<Backing>,
}

/// A directory that is walked next: itself, or one below it. It is opened in its turn, so that a walk has as many
/// descriptors as the tree is deep, however many directories wait.
struct ToVisit {
    dir: DirAt,
    below: Option<OsString>,
    path: Vec<u8>,
}

struct EvictionScan<'a> {
    migrations: &'a Migrations,
    search: &'a Search<'a>,
    active: &'a ActiveRules,
    views: Views,
    selection: Selection<EvictionVictim>,
    stays: StayCounts,
    /// Files with several names, as far as those are met.
    linked: FxHashMap<Backing, EvictionVictim>,
}

impl Migrations {
    /// Looks through all branches of a fill level. What cannot be read stays.
    pub(super) fn select_victims(&self, active: &ActiveRules, search: &Search<'_>) -> EvictionCandidates {
        let mut walker = EvictionScan {
            migrations: self,
            search,
            active,
            views: self.placement.views(),
            selection: Selection::new(search.need, MOST),
            stays: StayCounts::default(),
            linked: FxHashMap::default(),
        };
        for branch in search.evict.members.iter().filter_map(|id| self.branches.get(*id).ok()) {
            if let Ok(root) = DirAt::root(&branch) {
                walker.walk(root);
            }
        }
        EvictionCandidates { files: walker.selection.into_sorted().collect(), stays: walker.stays }
    }
}

impl EvictionScan<'_> {
    fn walk(&mut self, root: DirAt) {
        let branch = std::sync::Arc::clone(&root.branch);
        let mut stack = vec![ToVisit { dir: root, below: None, path: Vec::new() }];
        while let Some(ToVisit { dir, below, path }) = stack.pop() {
            if self.migrations.context.is_stopping() {
                break;
            }
            let dir = match below.map_or(Ok(dir.clone()), |name| dir.descend(&name)) {
                Ok(dir) => dir,
                Err(_removed_or_unreadable) => continue,
            };
            let entries = match dir.list(true) {
                Ok(entries) => entries,
                // Removed meanwhile, or unreadable: what is in it stays.
                Err(error) => {
                    tracing::debug!(path = %String::from_utf8_lossy(&path), %error, "cannot list a directory for a fill level");
                    continue;
                }
            };
            for entry in entries {
                if path.is_empty() && entry.name == HIDDEN_DIR {
                    continue;
                }
                let Ok(meta) = dir.stat(&entry.name) else { continue };
                let path = [&path, &b"/"[..], entry.name.as_bytes()].concat();
                if meta.kind == FileKind::Directory {
                    stack.push(ToVisit { dir: dir.clone(), below: Some(entry.name), path });
                } else {
                    self.consider(&branch, meta, path);
                }
            }
        }
        for (_, file) in std::mem::take(&mut self.linked) {
            if file.paths.len() == file.meta.nlink as usize {
                self.evaluate(&branch, file);
            } else {
                self.stays.note(EvictStay::InUse, &file.meta);
            }
        }
    }

    fn consider(&mut self, branch: &Branch, meta: Meta, path: Vec<u8>) {
        let backing = Backing::of(branch, &meta);
        if self.search.skip.contains(&backing) {
            return;
        }
        if meta.nlink > 1 {
            let file = self.linked.entry(backing).or_insert(EvictionVictim { backing, meta, paths: Vec::new() });
            return file.paths.push(path);
        }
        self.evaluate(branch, EvictionVictim { backing, meta, paths: vec![path] });
    }

    fn evaluate(&mut self, branch: &Branch, mut file: EvictionVictim) {
        let placement = &self.migrations.placement;
        let resident = placement.resident(branch, &file.meta);
        let Some(first) = file.paths.first() else { return };
        let xattrs = placement.xattrs(first, &file.meta, branch);
        let facts = FileFacts { xattrs: xattrs.as_deref(), ..placement.facts(first, &file.meta, branch) };
        let (rules, evict) = (&self.active.rules, self.search.evict);
        let names = file.paths.iter().map(Vec::as_slice);
        let path = rules.deciding_name(names, &facts, &self.views, Some(&resident)).unwrap_or(first);
        let facts = FileFacts { path, ..facts };
        if !rules.is_evictable(evict, &facts, &self.views) {
            return self.stays.note(EvictStay::Excluded, &file.meta);
        }
        let around = placement.around(self.active);
        let key = evict.key(&facts);
        let leaving = rules.leaving((evict, self.search.urgency), &facts, &self.views, &resident, &around);
        let deciding = file.paths.iter().position(|other| other == path).unwrap_or(0);
        match leaving {
            Leaving::To(_) => {
                file.paths.swap(0, deciding);
                self.selection.offer(key, file.meta.occupied(), file);
            }
            Leaving::Nowhere => self.stays.note(EvictStay::Nowhere, &file.meta),
            Leaving::NoRoom => self.stays.note(EvictStay::NoRoom, &file.meta),
            Leaving::Held => self.stays.note(EvictStay::Held, &file.meta),
        }
    }
}

impl EvictionVictim {
    /// The result as text.
    pub(super) fn shown(&self) -> String {
        self.paths.first().map_or_else(String::new, |path| String::from_utf8_lossy(path).into_owned())
    }
}
