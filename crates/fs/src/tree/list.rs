//! Lists directories, all branches together (see [`crate::ground::listing`]).

use std::ffi::{OsStr, OsString};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustc_hash::FxHashMap;
use rustix::fs::FileType;
use rustix::io::Errno;
use umbrella_policy::placement::spec::FileKind;
use umbrella_units::Ino;

use crate::branch::HIDDEN_DIR;
use crate::error::{OpError, OpResult};
use crate::ground::at::DirAt;
use crate::ground::listing::{DirEntry, Listing, cookie_of};
use crate::inode_map::BackingKey;
use crate::node::{Dir, Node, NodeId};
use crate::tree::Tree;
use crate::tree::lookup::{Attr, found_one};

/// How often a listing is repeated because files move in the directory, before moves have to wait.
const MOST_REPEATS: usize = 4;

impl Tree {
    /// Begins a listing of a directory: the epoch of the branch that came last ([`Tree::list`]), and whether no other
    /// listing is open.
    pub(crate) fn begin_listing(&self, node: NodeId) -> (u64, bool) {
        let topology = self.branches.topology.load(Ordering::Acquire);
        let in_use = self.branches.list.load();
        let newest = in_use.iter().filter_map(|branch| branch.in_use()).map(|online| online.epoch).max();
        let is_alone = |dir: &Dir| {
            let alone = dir.readers.fetch_add(1, Ordering::AcqRel) == 0;
            if alone {
                dir.listed_at.store(topology, Ordering::Release);
            }
            alone
        };
        let alone = self.dir_node(node).is_ok_and(|node| node.dir().is_some_and(is_alone));
        (newest.unwrap_or_default(), alone)
    }

    /// Ends a listing. A branch that came or went meanwhile had the kernel forget the listing, perhaps before it was
    /// given this one.
    pub(crate) fn end_listing(&self, node: NodeId) {
        let Ok(node) = self.dir_node(node) else { return };
        let Some(dir) = node.dir() else { return };
        let less = |readers: u32| readers.checked_sub(1);
        let _never_opened = dir.readers.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
        let is_old = dir.listed_at.load(Ordering::Acquire) != self.branches.topology.load(Ordering::Acquire);
        if is_old && let Some(kernel) = self.context.kernel.get() {
            kernel.drop_contents(node.id);
        }
    }

    /// The merged listing, for a reader at `cookie`; made anew for a reader that begins. Where copies differ, it is
    /// without those on branches that came after the reader opened the directory: they may deny it. `newest`: the epoch
    /// of the last branch before.
    pub(crate) fn list(&self, node: NodeId, cookie: u64, newest: u64) -> OpResult<Arc<Listing>> {
        let _names = self.rename_lock.read();
        let node = self.dir_node(node)?;
        let listing = self.listing_of(&node, cookie)?;
        let was_there = |copy: &&DirAt| copy.online.epoch <= newest;
        if listing.copies.iter().all(|copy| was_there(&copy)) || node.divergence().is_none() {
            return Ok(listing);
        }
        let copies: Vec<DirAt> = listing.copies.iter().filter(was_there).cloned().collect();
        Ok(Arc::new(Listing { entries: self.merge(&node, &copies)?, copies, topology: listing.topology }))
    }

    pub(crate) fn listing_of(&self, node: &Arc<Node>, cookie: u64) -> OpResult<Arc<Listing>> {
        let dir = node.dir().ok_or(OpError::Sys(Errno::NOTDIR))?;
        let topology = self.branches.topology.load(Ordering::Acquire);
        let mut kept = dir.listing.lock();
        if cookie != 0
            && let Some(listing) = kept.as_ref().filter(|listing| listing.topology == topology)
        {
            let listing = Arc::clone(listing);
            if listing.is_exhausted(cookie) {
                *kept = None;
            }
            return Ok(listing);
        }
        let listing = Arc::new(self.make_listing(node, topology)?);
        *kept = Some(Arc::clone(&listing));
        Ok(listing)
    }

    fn make_listing(&self, node: &Arc<Node>, topology: u64) -> OpResult<Listing> {
        let dir = node.dir().ok_or(OpError::Sys(Errno::NOTDIR))?;
        if self.branches.is_incomplete() {
            return Err(OpError::Offline);
        }
        let look = || -> OpResult<Listing> {
            let copies: Vec<DirAt> = self.copies(node)?.into_iter().collect();
            Ok(Listing { entries: self.merge(node, &copies)?, copies, topology })
        };
        for _ in 0..MOST_REPEATS {
            let moves = dir.moves.load(Ordering::Acquire);
            let listing = look()?;
            // A file on its way between two copies may have been missed in both, also where there was but one when it
            // was looked.
            if moves.is_multiple_of(2) && dir.moves.load(Ordering::Acquire) == moves {
                return Ok(listing);
            }
            drop(dir.commit.lock());
        }
        // Out of a big directory one file after the other may move for hours.
        let _still = dir.commit.lock();
        look()
    }

    fn merge(&self, node: &Arc<Node>, copies: &[DirAt]) -> OpResult<Vec<DirEntry>> {
        let mut entries: Vec<DirEntry> = Vec::new();
        let mut seen: FxHashMap<OsString, usize> = FxHashMap::default();
        let mut answered = false;
        let mut failure = None;
        for (copy, at) in copies.iter().enumerate() {
            let raw = match self.opening(|| at.list(false)) {
                Ok(raw) => raw,
                Err(error) if self.context.is_strict() || error.is_own_shortage() => return Err(error),
                Err(error) => {
                    failure = Some(error);
                    continue;
                }
            };
            answered = true;
            for entry in raw {
                if node.id == NodeId::ROOT && entry.name == HIDDEN_DIR {
                    continue;
                }
                let kind = kind_of(at, &entry.name, entry.kind);
                if copies.len() > 1 {
                    if let Some(&known) = seen.get(&entry.name) {
                        entries[known].copy = None;
                        if kind == FileKind::Directory {
                            entries[known].kind = kind;
                        }
                        continue;
                    }
                    seen.insert(entry.name.clone(), entries.len());
                }
                let key = BackingKey { slot: at.online.slot, foreign_dev: 0, ino: entry.ino };
                let ino = self.inodes.ino(key);
                entries.push(DirEntry {
                    cookie: cookie_of(ino, &entry.name),
                    name: entry.name,
                    kind,
                    ino,
                    copy: Some(copy),
                });
            }
        }
        if let Some(error) = failure.filter(|_| !answered) {
            return Err(error);
        }
        entries.sort_unstable_by(|a, b| (a.cookie, &a.name).cmp(&(b.cookie, &b.name)));
        for at in 1..entries.len() {
            if entries[at].cookie <= entries[at - 1].cookie {
                entries[at].cookie = entries[at - 1].cookie + 1;
            }
        }
        Ok(entries)
    }

    /// Node and attributes of an entry, with one more reference, as `lookup` would give them.
    pub(crate) fn lookup_entry(&self, parent: NodeId, listing: &Listing, entry: &DirEntry) -> OpResult<Attr> {
        let _names = self.rename_lock.read();
        let _under_way = self.lookups.begin();
        let parent = self.dir_node(parent)?;
        let moves = parent.dir().map(|dir| dir.moves.load(Ordering::Acquire));
        let found = match entry.copy.and_then(|copy| listing.copies.get(copy)) {
            // Where it was listed, unless it moved since.
            Some(at) if entry.kind != FileKind::Directory => at
                .find(&entry.name)
                .ok()
                .flatten()
                .filter(|meta| meta.kind != FileKind::Directory)
                .map(|meta| found_one(at, meta, moves)),
            _ => None,
        };
        let found = match found {
            Some(found) => found,
            None => self.probe(&parent, &entry.name)?.ok_or(OpError::Sys(Errno::NOENT))?,
        };
        let (node, attr) = self.intern(&parent, &entry.name, &found)?;
        node.looks.note();
        Ok(attr)
    }

    /// The inode numbers of a directory and of its parent (of the root: its own twice), for `.` and `..`.
    pub(crate) fn dot_inos(&self, node: NodeId) -> OpResult<[Ino; 2]> {
        let node = self.dir_node(node)?;
        Ok([node.ino, node.place().map_or(Ino(1), |(parent, _)| parent.ino)])
    }
}

fn kind_of(at: &DirAt, name: &OsStr, kind: FileType) -> FileKind {
    match kind {
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        FileType::Fifo => FileKind::Fifo,
        FileType::Socket => FileKind::Socket,
        FileType::CharacterDevice => FileKind::CharDevice,
        FileType::BlockDevice => FileKind::BlockDevice,
        FileType::Unknown => at.stat(name).map_or(FileKind::File, |meta| meta.kind),
    }
}
