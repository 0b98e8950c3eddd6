//! Files that heat up move where a rule wants warm files.
//!
//! - When a warm file is closed for the last time, its rule is evaluated, at most once a minute. Where a rule wants
//!   warm files, the next files of the directory become as warm as that rule asks, plus one open. They will be opened
//!   soon, so they come along.
//! - Files that have to move wait for the mover as any file does. `max_move` is checked when it is their turn. A later
//!   close finds those that it holds back, or the enforcer, which moves the warmest first.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use umbrella_policy::heat::Opens;
use umbrella_policy::natural_order;
use umbrella_policy::placement::spec::FileKind;

use crate::ground::at::FileAt;
use crate::ground::meta::now;
use crate::inode_map::HeatKey;
use crate::migrate::Migrations;
use crate::node::{FileState, Node};
use crate::tree::Pinned;

/// A file whose neighbours come along.
pub(super) struct Warmed {
    pub(super) dir: Arc<Node>,
    pub(super) name: OsString,
    /// So warm they get.
    pub(super) to: Opens,
}

impl Migrations {
    /// The last handle of a warm file is closed. The caller holds the rename lock shared.
    pub(crate) fn evaluate_warm(&self, node: &Arc<Node>, file: &FileAt) {
        let Ok(meta) = file.stat() else { return };
        if meta.nlink == 0 || self.branches.is_staging(file.branch.id) {
            return;
        }
        let entry = self.placement.decide(&node.rule_path(), &meta, &file.branch).entry;
        let active = self.placement.rules.load();
        let Some(from) = active.rules.entries().get(entry.index()).and_then(|entry| entry.warm_from) else { return };
        self.evaluate_meta(node, &meta);
        if self.placement.heat_settings().neighbours > 0
            && let Some((dir, name)) = node.place()
        {
            self.revisits.warm(Warmed { dir, name, to: from.plus(Opens::ONE) });
        }
    }

    /// The next files of a directory come along.
    pub(super) fn warm_neighbours(&self, warmed: &Warmed) {
        let names = self.next_names(&warmed.dir, &warmed.name, self.placement.heat_settings().neighbours as usize);
        for name in names {
            if self.context.is_stopping() {
                return;
            }
            let Ok(file) = Pinned::lookup(&self.tree, &warmed.dir, &name) else { continue };
            if file.node.kind == FileKind::File {
                self.warm(&file.node, warmed.to);
            }
        }
    }

    fn warm(&self, node: &Arc<Node>, to: Opens) {
        let _names = self.tree.rename_lock.read();
        let Some(file) = node.file() else { return };
        let branch = file.state.read().backing.branch;
        let Ok(Some(online)) = self.branches.get(branch).map(|branch| branch.online()) else { return };
        let key = HeatKey { ino: node.ino, born: node.born };
        let half_life = self.placement.heat_settings().half_life;
        self.tree.inodes.heats().raise(key, online.slot, (now(), half_life), to);
        if let Ok(attr) = self.tree.attr_of(node) {
            self.evaluate_meta(node, &attr.meta);
        }
    }

    /// The names that follow in a directory, in natural order.
    fn next_names(&self, dir: &Arc<Node>, after: &OsStr, count: usize) -> Vec<OsString> {
        let order = |a: &OsStr, b: &OsStr| natural_order(a.as_bytes(), b.as_bytes());
        let copies = {
            let _names = self.tree.rename_lock.read();
            self.tree.copies(dir)
        };
        let mut next: Vec<OsString> = Vec::new();
        for copy in copies.unwrap_or_default() {
            for entry in copy.list(true).unwrap_or_default() {
                if order(&entry.name, after).is_le() || entry.name == crate::branch::HIDDEN_DIR {
                    continue;
                }
                if let Err(place) = next.binary_search_by(|known| order(known, &entry.name)) {
                    next.insert(place, entry.name);
                    next.truncate(count);
                }
            }
        }
        next
    }
}

impl FileState {
    /// Whether the file was opened while it was warm, and its last handle is closed now.
    pub(crate) fn take_warm(&mut self) -> bool {
        self.any_handle().is_none() && std::mem::take(&mut self.is_warm)
    }
}
