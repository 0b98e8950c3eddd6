//! Contents of open files, as far as the daemon sees them, and what makes them durable. Each call of a program is one
//! system call.

use std::sync::Arc;

use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::Errno;
use smallvec::SmallVec;
use umbrella_units::ByteSize;

use crate::error::{OpError, OpResult};
use crate::ground::at::FileAt;
use crate::io::Io;
use crate::io::releases::RoomRetry;
use crate::metrics::Metric;
use crate::node::{DataPath, File, Handle, HandleId, NameChange, Node, NodeId, UnsyncedName};
use crate::tree::unsynced_names::NamesToSync;

/// Room in the tree: all branches together, file systems that hold several counted once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TreeSpace {
    /// Size in bytes.
    pub total: u64,
    /// Free for every user.
    pub free: u64,
    /// Free, with what is kept for root.
    pub free_for_root: u64,
    /// Inodes.
    pub files_total: u64,
    /// Free inodes.
    pub files_free: u64,
}

/// Bytes copied by one call at most, so that a call cannot keep a thread for long.
const COPY_SLICE: usize = 8 << 20;

/// What was done to the contents of a file.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Effect {
    /// Bytes were written.
    Wrote { offset: u64, length: usize },
    /// Space was allocated, freed or shifted; `size`: how long the file is now.
    Allocated { mode: FallocateFlags, offset: u64, length: u64, size: u64 },
    /// It has another length.
    Resized { size: u64 },
}

impl Io {
    /// After a change of a file's contents: informs everything that has to know of it, here and nowhere else.
    pub(crate) fn after_write(&self, node: &Node, file: &FileAt, effect: Effect) {
        let branch = file.branch.id;
        self.branches.levels.note();
        match effect {
            Effect::Wrote { offset, length } => {
                self.write_back.note_written(file, offset, length);
                self.staged.wrote(node, branch, offset.saturating_add(length as u64));
            }
            Effect::Allocated { mode, offset, length, size } => {
                self.write_back.note_allocated(file, mode, offset, length);
                self.staged.resized(node, branch, size);
            }
            Effect::Resized { size } => {
                self.write_back.note_truncated(file, size);
                self.staged.resized(node, branch, size);
            }
        }
    }

    /// As [`Io::after_write`], through a handle: the file's place is evaluated when it is closed.
    fn after_write_by(&self, handle: &Handle, file: &FileAt, effect: Effect) {
        self.after_write(&handle.node, file, effect);
        if let Effect::Wrote { length, .. } = effect {
            self.note_transfer(&handle.node, file, length);
        }
        handle.note_write();
    }

    /// Counts bytes that were read or written through the daemon: they heat the file. Takes a lock only for each full
    /// portion of them.
    fn note_transfer(&self, node: &Node, at: &FileAt, bytes: usize) {
        if let Some(bytes) = node.file().and_then(|file| file.note_transfer(bytes)) {
            self.migrate.note_bytes(node, at, bytes);
        }
    }

    /// Answers a write: at once, or when its branch has room for more dirty pages. Never blocks.
    pub(crate) fn when_room(&self, handle: HandleId, wrote: usize, answer: impl FnOnce() + Send + 'static) {
        let branch = || self.handle(handle).ok().map(|handle| handle.current().branch.id);
        self.write_back.when_room(branch, wrote, answer);
    }

    fn file_of<'a>(&self, handle: &'a Handle) -> OpResult<&'a File> {
        handle.node.file().ok_or(OpError::Sys(Errno::ISDIR))
    }

    /// Reads; short only at the end of the file.
    pub(crate) fn read(&self, handle: HandleId, buffer: &mut [u8], offset: u64) -> OpResult<usize> {
        let handle = self.handle(handle)?;
        let _io = self.file_of(&handle)?.io.read();
        let file = handle.current();
        self.staged.read(&handle.node, file.branch.id);
        let got = file.read(buffer, offset)?;
        self.write_back.note_read(&file, offset, got);
        self.note_transfer(&handle.node, &file, got);
        Ok(got)
    }

    /// Writes what fits; an error that `is_full` means nothing was written.
    fn write_here(&self, handle: HandleId, data: &[u8], offset: u64, drop_bits: bool) -> OpResult<usize> {
        let handle = self.handle(handle)?;
        let _io = self.file_of(&handle)?.io.read();
        let file = handle.current();
        let end = offset.saturating_add(data.len() as u64);
        if self.staged.may_not_grow(&handle.node, file.branch.id, end) {
            return Err(OpError::Sys(Errno::NOSPC)); // For the caller the same as a full branch: it has to move first.
        }
        if drop_bits {
            self.tree.drop_set_id(&handle.node, &file)?;
        }
        let mut done = 0;
        while done < data.len() {
            match file.write(&data[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(written) => done += written,
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        self.after_write_by(&handle, &file, Effect::Wrote { offset, length: done });
        Ok(done)
    }

    /// Writes; when the branch is full the file is moved to the next one that its rule allows, and the write goes on
    /// there.
    pub(crate) fn write(&self, handle: HandleId, data: &[u8], offset: u64, drop_bits: bool) -> OpResult<usize> {
        let mut done = 0;
        while done < data.len() {
            let rest = &data[done..];
            let at = offset + done as u64;
            let write = || self.write_here(handle, rest, at, drop_bits);
            let written = self.moving(handle, rest.len() as u64, write);
            match written {
                Ok(0) => break,
                Ok(written) => done += written,
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Tries again on another branch as long as the present one is full. Where there is no other branch, it tries again
    /// when removed files have been closed.
    fn moving<T>(&self, handle: HandleId, need: u64, call: impl Fn() -> OpResult<T>) -> OpResult<T> {
        let mut full = SmallVec::<[umbrella_units::BranchId; 4]>::new();
        let mut retry = RoomRetry::default();
        loop {
            let branch = self.handle(handle)?.current().branch.id;
            self.staging.destage_before_write(branch, need);
            match call() {
                Err(error) if error.is_full() => {
                    let handle = self.handle(handle)?;
                    if !full.contains(&branch) {
                        full.push(branch);
                    }
                    match self.migrate.overflow(&handle, branch, &full, ByteSize(need)) {
                        Err(OpError::NoRoom) if self.may_get_room(&mut retry) => full.clear(),
                        Err(OpError::NoRoom) => {
                            self.context.count(Metric::NoRoom);
                            return Err(OpError::NoRoom);
                        }
                        moved => moved?,
                    }
                }
                done => return done,
            }
        }
    }

    /// Allocates or frees space in a file.
    pub(crate) fn fallocate(
        &self,
        handle: HandleId,
        mode: FallocateFlags,
        offset: u64,
        length: u64,
        drop_bits: bool,
    ) -> OpResult<()> {
        if !mode.contains(FallocateFlags::PUNCH_HOLE) {
            self.migrate.place_announced(&*self.handle(handle)?, offset.saturating_add(length));
        }
        self.moving(handle, length, || {
            let handle = self.handle(handle)?;
            // Alone: what is cut off again when it fails is no other writer's.
            let _io = self.file_of(&handle)?.io.write();
            let file = handle.current();
            // Room is reserved where it is needed, not in memory, which also cannot do all of it; what is cut out is
            // cut out anywhere.
            let reserves = !mode.contains(FallocateFlags::PUNCH_HOLE);
            if (reserves && self.branches.is_staging(file.branch.id))
                || self.staged.may_not_grow(&handle.node, file.branch.id, offset.saturating_add(length))
            {
                return Err(OpError::Sys(Errno::NOSPC));
            }
            if drop_bits {
                self.tree.drop_set_id(&handle.node, &file)?;
            }
            let before = file.stat()?.size;
            self.tree.change_without_reply(&handle.node, |cache| {
                file.fallocate(mode, offset, length, cache).or_else(|error| match handle.data {
                    // ext4 leaves the file as long as there was room, and the kernel appends where it believes the end
                    // to be.
                    DataPath::Mediated if file.stat()?.size > before => file.truncate(before, cache).and(Err(error)),
                    DataPath::Mediated | DataPath::Passthrough => Err(error),
                })
            })?;
            let size = file.stat()?.size;
            self.after_write_by(&handle, &file, Effect::Allocated { mode, offset, length, size });
            Ok(())
        })
    }

    /// Finds data or a hole.
    pub(crate) fn seek(&self, handle: HandleId, to: SeekFrom) -> OpResult<u64> {
        let handle = self.handle(handle)?;
        let _io = self.file_of(&handle)?.io.read();
        handle.current().seek(to)
    }

    /// Copies between two open files, of one branch or of two.
    pub(crate) fn copy_range(
        &self,
        from: (HandleId, u64),
        to: (HandleId, u64),
        length: usize,
        drop_bits: bool,
    ) -> OpResult<usize> {
        self.moving(to.0, length as u64, || self.copy_once(from, to, length.min(COPY_SLICE), drop_bits))
    }

    fn copy_once(
        &self,
        (from, offset): (HandleId, u64),
        (to, at): (HandleId, u64),
        length: usize,
        drop_bits: bool,
    ) -> OpResult<usize> {
        let (from, to) = (self.handle(from)?, self.handle(to)?);
        let one_node = Arc::ptr_eq(&from.node, &to.node);
        // Two locks of one kind in the order of the nodes.
        let (first, second) = if from.node.id <= to.node.id { (&from, &to) } else { (&to, &from) };
        let _first = self.file_of(first)?.io.read();
        let _second = if one_node { None } else { Some(self.file_of(second)?.io.read()) };
        let (source, target) = (from.current(), to.current());
        if self.staged.may_not_grow(&to.node, target.branch.id, at.saturating_add(length as u64)) {
            return Err(OpError::Sys(Errno::NOSPC));
        }
        if drop_bits {
            self.tree.drop_set_id(&to.node, &target)?;
        }
        let copied = match source.copy_range(offset, &target, at, length) {
            Err(OpError::Sys(Errno::XDEV | Errno::NOSYS | Errno::OPNOTSUPP)) => {
                let mut buffer = vec![0; length.min(1 << 20)];
                let got = source.read(&mut buffer, offset)?;
                buffer.truncate(got);
                target.write(&buffer, at)?
            }
            done => done?,
        };
        self.note_transfer(&from.node, &source, copied);
        self.after_write_by(&to, &target, Effect::Wrote { offset: at, length: copied });
        Ok(copied)
    }

    /// Makes a file's contents durable, and before them that names went from its directories on other branches.
    pub(crate) fn fsync(&self, handle: HandleId, data_only: bool) -> OpResult<()> {
        let handle = self.handle(handle)?;
        let left = self.staging.destage_for_sync(&handle.node)?;
        // Also when it left by itself: a sync of its data alone leaves out that its copy was renamed to its name.
        let file_node = self.file_of(&handle)?;
        let with_names = left || file_node.state.read().has_unsynced_names;
        let removals = self.sync_removals(file_node);
        {
            let _io = self.file_of(&handle)?.io.read();
            let file = handle.current();
            let synced = self.write_back.syncing(&file, || file.fsync(data_only && !with_names));
            handle.learned_error().and(synced)?;
        }
        if with_names {
            self.staging.sync_names(&handle.node)?;
            file_node.state.write().has_unsynced_names = removals.is_err();
        }
        removals
    }

    /// Makes durable what an fsync of a file would, except its contents.
    pub(crate) fn sync_names(&self, handle: HandleId) -> OpResult<()> {
        let handle = self.handle(handle)?;
        let file = self.file_of(&handle)?;
        self.sync_removals(file)?;
        if file.state.read().has_unsynced_names {
            self.staging.sync_names(&handle.node)?;
            file.state.write().has_unsynced_names = false;
        }
        Ok(())
    }

    /// Makes durable that names went from a file's directories, and those above, on other branches than the file's (see
    /// `node::dir_changes`).
    fn sync_removals(&self, file: &File) -> OpResult<()> {
        let mut removals = NamesToSync::default();
        {
            let state = file.state.read();
            let elsewhere =
                |name: &UnsyncedName| name.change != NameChange::Given && name.branch != state.backing.branch;
            state.names.iter().for_each(|(parent, _)| removals.add_path(parent, elsewhere));
        }
        if removals.is_empty() {
            return Ok(());
        }
        // What lasts is not done under the lock.
        let copies = {
            let _names = self.tree.rename_lock.read();
            self.tree.copies_to_sync(removals)?
        };
        copies.sync()
    }

    /// What closing a file on this branch may still report.
    pub(crate) fn flush(&self, handle: HandleId) -> OpResult<()> {
        let handle = self.handle(handle)?;
        let file = handle.current();
        if file.online.guarded && handle.writer { file.flush() } else { Ok(()) }
    }

    /// Makes the names in a directory durable, on every branch that has it.
    pub(crate) fn fsync_dir(&self, node: NodeId, data_only: bool) -> OpResult<()> {
        let node = self.tree.dir_node(node)?;
        let dir = node.dir().ok_or(OpError::Sys(Errno::NOTDIR))?;
        let (names, changes) = (dir.changes.unsynced_names(|_| true), dir.changes.take());
        if let Err(error) = self.sync_copies(&node, data_only) {
            dir.changes.restore(changes);
            return Err(error);
        }
        if dir.changes.may_have_lost(changes, &self.branches) {
            return Err(OpError::Sys(Errno::IO));
        }
        // ext4 counts entries as data only where the directory grew.
        if !data_only {
            dir.changes.names_synced(&names);
        }
        Ok(())
    }

    /// Syncs the copies of a directory that can be reached.
    fn sync_copies(&self, node: &Arc<Node>, data_only: bool) -> OpResult<()> {
        self.staging.destage_dir_for_sync(node)?;
        // What lasts is not done under the lock.
        let copies = {
            let _names = self.tree.rename_lock.read();
            self.tree.copies(node)?
        };
        let mut writable = copies.iter().filter(|copy| !copy.branch.settings().read_only);
        writable.try_for_each(|copy| copy.fsync(data_only))
    }

    /// Makes everything on the branches that are there durable.
    pub(crate) fn sync_all(&self) -> OpResult<()> {
        let left = self.staging.destage_all_for_sync();
        self.write_back.sync_branches()?;
        left
    }

    /// Room in the whole tree.
    pub(crate) fn space(&self) -> TreeSpace {
        self.branches.note_use();
        let mut seen = SmallVec::<[u64; 8]>::new();
        let mut sum = TreeSpace::default();
        for branch in self.branches.list.load().iter() {
            let Some(online) = branch.online().filter(|_| !self.branches.is_staging(branch.id)) else { continue };
            if seen.contains(&online.dev) {
                continue;
            }
            seen.push(online.dev);
            // The caller wants to see what was just written.
            branch.invalidate_space();
            let space = branch.space();
            sum.total = sum.total.saturating_add(space.total.0);
            sum.free = sum.free.saturating_add(space.free.0);
            sum.free_for_root = sum.free_for_root.saturating_add(space.free_for_root.0);
            sum.files_total = sum.files_total.saturating_add(space.files_total);
            sum.files_free = sum.files_free.saturating_add(space.files_free);
        }
        // What waits takes its room on the branches later.
        let staged = self.staged.bytes();
        sum.free = sum.free.saturating_sub(staged);
        sum.free_for_root = sum.free_for_root.saturating_sub(staged);
        if sum.files_total > 0 {
            sum.files_free = sum.files_free.saturating_sub(self.staged.files());
        }
        sum
    }
}
