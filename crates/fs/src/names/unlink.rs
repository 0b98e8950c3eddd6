//! Names that go: files and directories. System calls: a file 2 (look, remove), a directory 4.

use std::ffi::OsStr;
use std::sync::Arc;

use rustix::io::Errno;
use umbrella_policy::placement::spec::FileKind;

use crate::error::{OpError, OpResult};
use crate::ground::at::DirAt;
use crate::ground::meta::Meta;
use crate::names::Names;
use crate::node::{Backing, Node, NodeId};
use crate::tree::is_reserved;
use crate::tree::remove_dir::hold_special;

impl Names {
    /// Removes a file's name.
    pub(crate) fn unlink(&self, parent: NodeId, name: &OsStr) -> OpResult<()> {
        let _names = self.tree.rename_lock.read();
        let parent = self.tree.dir_node(parent)?;
        if is_reserved(&parent, name) {
            return Err(OpError::Reserved);
        }
        loop {
            let found = self.tree.probe(&parent, name)?.ok_or(OpError::Sys(Errno::NOENT))?;
            let (dir, meta) = found.first()?;
            if meta.kind == FileKind::Directory {
                return Err(OpError::Sys(Errno::ISDIR));
            }
            if self.unlink_at(&parent, name, dir, meta, found.moves)? {
                return Ok(());
            }
        }
    }

    /// Removes a name from one branch and from its node. False: the file moved meanwhile, look again. `moves`: the
    /// directory's, before the name was looked at.
    pub(crate) fn unlink_at(
        &self,
        parent: &Arc<Node>,
        name: &OsStr,
        dir: &DirAt,
        meta: &Meta,
        moves: Option<u64>,
    ) -> OpResult<bool> {
        let backing = Backing::of(&dir.branch, meta);
        let node = self.tree.nodes.find(backing);
        let file = node.as_ref().and_then(|node| node.file());
        let Some((node, file)) = node.as_ref().zip(file) else {
            // It was not known a moment ago, and a relocation holds its node; one that began since may have taken it
            // away.
            let number = self.tree.hold_number(dir, name, meta);
            match self.tree.remove_entry(parent, dir, || dir.unlink(name)) {
                Err(error) if error.is_missing() => return Ok(false),
                done => done?,
            }
            self.tree.drop_number(number);
            if meta.nlink <= 1 {
                self.migrate.note_gone(backing);
            }
            return Ok(true);
        };
        let mut state = file.state.write();
        if state.backing != backing {
            return Ok(false);
        }
        state.abort_copy();
        let meta = &if state.has_only_name(meta, (parent, name), moves) { *meta } else { dir.stat(name)? };
        let number = self.tree.hold_number(dir, name, meta);
        let kept = hold_special(dir, name, meta);
        self.tree.remove_entry(parent, dir, || dir.unlink(name))?;
        state.names.retain(|(known, known_name)| known.id != parent.id || known_name != name);
        if meta.nlink <= 1 {
            state.lose_last_name(parent, name);
            state.kept = kept;
            drop(state);
            self.staged.deleted(node, backing.branch);
            self.migrate.note_gone(backing);
            self.tree.nodes.remove_backing(backing, node);
            self.tree.drop_number(number);
        } else {
            state.needs_evaluation = true;
            drop(state);
            self.migrate.evaluate_unlinked(node, &Meta { nlink: meta.nlink - 1, ..*meta });
        }
        Ok(true)
    }

    /// Removes an empty directory from every branch that has it, or from none.
    pub(crate) fn rmdir(&self, parent: NodeId, name: &OsStr) -> OpResult<()> {
        let _names = self.tree.rename_lock.read();
        let parent = self.tree.dir_node(parent)?;
        if is_reserved(&parent, name) {
            return Err(OpError::Reserved);
        }
        let (node, _) = self.tree.lookup_in(&parent, name)?;
        let done = self.tree.remove_dir(&node, name);
        self.tree.nodes.release(&node, 1);
        done
    }
}
