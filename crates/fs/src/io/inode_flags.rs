//! Flags of files and directories (`lsattr`, `chattr`) and their project.
//!
//! The kernel checks the caller before it asks to set any: only the owner may, and immutable and append-only want
//! `CAP_LINUX_IMMUTABLE`. A directory's flags are those of the copy that rules; they are set on all copies or on none.
//! Copies that are away keep theirs.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use linux_raw_sys::general::fsxattr;
use rustix::fs::{IFlags, OFlags};
use rustix::io::Errno;
use umbrella_policy::placement::spec::FileKind;

use crate::error::{OpError, OpResult};
use crate::ground::at::FileAt;
use crate::ground::inode_flags;
use crate::ground::kernel_cache::KernelCache;
use crate::io::Io;
use crate::node::{Node, NodeId};

impl Io {
    /// Flags of a file, `FS_*_FL`.
    pub(crate) fn flags(&self, node: NodeId) -> OpResult<u32> {
        Ok(self.inode_of(node)?.on_inode(inode_flags::flags)?.bits())
    }

    /// Sets flags.
    pub(crate) fn set_flags(&self, node: NodeId, flags: u32) -> OpResult<()> {
        let wanted = IFlags::from_bits_retain(flags);
        let change = self.inode_of(node)?.on_inode(inode_flags::flags)?.symmetric_difference(wanted);
        // Each copy keeps what only its own file system knows.
        let set = move |file: BorrowedFd<'_>| {
            let now = inode_flags::flags(file)?;
            inode_flags::set_flags(file, now.difference(change).union(wanted.intersection(change))).map(|()| now)
        };
        self.set_on_all(node, set, inode_flags::set_flags)
    }

    /// Flags in the extended form, with the project.
    pub(crate) fn fs_xattr(&self, node: NodeId) -> OpResult<fsxattr> {
        self.inode_of(node)?.on_inode(inode_flags::fs_xattr)
    }

    /// Sets them.
    pub(crate) fn set_fs_xattr(&self, node: NodeId, value: fsxattr) -> OpResult<()> {
        let set = move |file: BorrowedFd<'_>| {
            let now = inode_flags::fs_xattr(file)?;
            inode_flags::set_fs_xattr(file, &value).map(|()| now)
        };
        self.set_on_all(node, set, |file, before| inode_flags::set_fs_xattr(file, &before))
    }

    /// The file, or the copy of a directory that rules.
    fn inode_of(&self, node: NodeId) -> OpResult<FileAt> {
        let _names = self.tree.rename_lock.read();
        let node = self.tree.node(node)?;
        match (node.file(), node.dir()) {
            (Some(file), _) if node.kind == FileKind::File => self.tree.open_inode(&file.state.read()),
            (None, Some(dir)) => Ok(self.tree.shown_copy(&node, dir)?.as_file()),
            // To open a pipe or a device does something.
            _ => Err(OpError::Sys(Errno::NOTTY)),
        }
    }

    /// Sets flags on a file, or on all copies of a directory; where one refuses, the others get back what they had.
    fn set_on_all<T: Copy + Send + 'static>(
        &self,
        node: NodeId,
        set: impl Fn(BorrowedFd<'_>) -> rustix::io::Result<T> + Clone + Send + 'static,
        put_back: impl Fn(BorrowedFd<'_>, T) -> rustix::io::Result<()> + Clone + Send + 'static,
    ) -> OpResult<()> {
        let found = self.tree.node(node)?;
        if self.staged.area_of(&found).is_some() {
            // Memory knows other flags, and what is pinned could not leave it.
            self.staging.destage_now(&found)?;
        }
        // The change time is another one.
        self.tree.change_and_invalidate(node, |cache| self.set_now(&found, set, put_back, cache))
    }

    fn set_now<T: Copy + Send + 'static>(
        &self,
        node: &Arc<Node>,
        set: impl Fn(BorrowedFd<'_>) -> rustix::io::Result<T> + Clone + Send + 'static,
        put_back: impl Fn(BorrowedFd<'_>, T) -> rustix::io::Result<()> + Clone + Send + 'static,
        cache: KernelCache,
    ) -> OpResult<()> {
        let _names = self.tree.rename_lock.read();
        let Some(dir) = node.dir() else {
            let file = node.file().filter(|_| node.kind == FileKind::File).ok_or(OpError::Sys(Errno::NOTTY))?;
            let mut state = file.state.write();
            state.abort_copy();
            // A file that may move now.
            state.needs_evaluation = true;
            return self.tree.open_inode(&state)?.change_inode(set, cache).map(|_| ());
        };
        self.tree.refresh(node, dir)?;
        let _attributes = dir.attributes.lock();
        let copies = self.tree.known_copies(node, dir)?;
        let mut had = Vec::with_capacity(copies.len());
        for copy in &copies {
            match copy.as_file().change_inode(set.clone(), cache) {
                Ok(before) => had.push((copy.as_file(), before)),
                // What is read-only is shown, and stays as it is.
                Err(OpError::Sys(Errno::ROFS)) if copies.len() > 1 && copy.branch.settings().read_only => {}
                Err(error) => {
                    for (copy, before) in had {
                        let put_back = put_back.clone();
                        // The error that is returned covers a failure here.
                        let _told = copy.change_inode(move |file| put_back(file, before), cache);
                    }
                    return Err(error);
                }
            }
        }
        if had.is_empty() { Err(OpError::Sys(Errno::ROFS)) } else { Ok(()) }
    }
}

impl FileAt {
    /// A real descriptor of a file or directory, for a call.
    fn on_inode<T: Send + 'static>(
        &self,
        call: impl FnOnce(BorrowedFd<'_>) -> rustix::io::Result<T> + Send + 'static,
    ) -> OpResult<T> {
        self.reopen(OFlags::RDONLY | OFlags::NONBLOCK)?.run(call)
    }

    fn change_inode<T: Send + 'static>(
        &self,
        call: impl FnOnce(BorrowedFd<'_>) -> rustix::io::Result<T> + Send + 'static,
        _: KernelCache,
    ) -> OpResult<T> {
        self.reopen(OFlags::RDONLY | OFlags::NONBLOCK)?.change(call)
    }

    /// Whether the branch does not let it be unlinked.
    pub(crate) fn is_pinned(&self) -> bool {
        self.on_inode(|file| Ok(inode_flags::is_pinned(file))).unwrap_or(false)
    }
}
