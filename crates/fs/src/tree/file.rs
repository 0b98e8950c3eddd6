//! Files as the tree sees them: how their inode is reached, and what of them the kernel may keep.

use rustix::fs::OFlags;

use crate::error::{OpError, OpResult};
use crate::ground::at::FileAt;
use crate::ground::kernel_cache::KernelCache;
use crate::ground::meta::Meta;
use crate::node::{FileState, Node, NodeId};
use crate::tree::Tree;
use crate::tree::lookup::Attr;

impl Tree {
    /// A descriptor for changes of the file's inode: an open handle's, or one opened by name.
    pub(crate) fn open_inode(&self, state: &FileState) -> OpResult<FileAt> {
        if let Some(file) = state.open_file() {
            return Ok(file);
        }
        let (parent, name) = state.names.first().ok_or(OpError::Stale)?;
        let file = self.dir_at(parent, state.backing.branch)?.refer(name)?;
        let meta = file.stat()?;
        if (meta.foreign_dev, meta.ino) == (state.backing.foreign_dev, state.backing.ino) {
            Ok(file)
        } else {
            Err(OpError::Stale)
        }
    }

    /// What a write by any user but root does to a set-user-id program.
    pub(crate) fn drop_set_id(&self, node: &Node, file: &FileAt) -> OpResult<()> {
        let meta = file.stat()?;
        if !meta.is_set_id() {
            return Ok(());
        }
        let group = if meta.perm & 0o010 != 0 { 0o2000 } else { 0 };
        self.change_and_invalidate(node.id, |cache| file.chmod(meta.perm & !(0o4000 | group), cache))
    }

    /// Changes attributes that the kernel has not asked to be changed: afterwards it caches none of this node.
    pub(crate) fn change_and_invalidate<T>(
        &self,
        node: NodeId,
        change: impl FnOnce(KernelCache) -> OpResult<T>,
    ) -> OpResult<T> {
        // Also what failed may have changed something.
        KernelCache::invalidate_after(change, |_| self.context.forget_attributes(node))
    }

    /// As [`Tree::change_and_invalidate`], for what the kernel has asked for, where the reply brings no attributes: it
    /// reads them anew by itself, unless an error says that nothing changed.
    pub(crate) fn change_without_reply<T>(
        &self,
        node: &Node,
        change: impl FnOnce(KernelCache) -> OpResult<T>,
    ) -> OpResult<T> {
        KernelCache::invalidate_after(change, |done| match done {
            Ok(_) => self.forget_late_replies(node),
            Err(_) => self.context.forget_attributes(node.id),
        })
    }

    /// After a change that the kernel knows of: has it forget attributes if the reply to a look from before may reach
    /// it later.
    pub(crate) fn forget_late_replies(&self, node: &Node) {
        if self.lookups.any() || node.looks.may_race_with_reply() {
            self.context.forget_attributes(node.id);
        }
    }

    /// Whether the kernel may keep a file's attributes that were read before this call. It may not while the file may
    /// be mapped for writing without the daemon: no store, and no end of the mapping, is reported.
    pub(crate) fn is_cacheable(&self, node: &Node) -> bool {
        let Some(file) = node.file() else { return true };
        if !file.state.read().shared_mapping {
            return true;
        }
        let mut state = file.state.write();
        if state.writers == 0 && self.reader_of(&state).and_then(|file| file.is_open_for_writing()) == Some(false) {
            state.shared_mapping = false;
        }
        // What was read may be older than the mapping's end.
        false
    }

    /// Whether any process but the daemon has the file open. `None`: its file system cannot say.
    pub(crate) fn held_elsewhere(&self, state: &FileState) -> Option<bool> {
        self.reader_of(state)?.is_open_elsewhere()
    }

    fn reader_of(&self, state: &FileState) -> Option<FileAt> {
        let (parent, name) = state.names.first()?;
        let dir = self.dir_at(parent, state.backing.branch).ok()?;
        dir.open(name, OFlags::RDONLY | OFlags::NOATIME | OFlags::NONBLOCK).ok()
    }

    pub(crate) fn attr_with(&self, node: &Node, meta: Meta) -> Attr {
        let meta = Meta { btime: node.born, ..meta };
        Attr { node: node.id, ino: node.ino, meta, cacheable: self.is_cacheable(node) }
    }
}
