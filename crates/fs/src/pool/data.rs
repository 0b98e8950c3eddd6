//! Contents of open files, as far as the daemon sees them, and what makes them durable.

use std::sync::Arc;

use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::Errno;
use umbrella_units::ByteSize;

use super::Pool;
use super::releases::Patience;
use crate::branch::{Branch, ErrorSource};
use crate::error::{OpError, OpResult};
use crate::metrics::Metric;
use crate::node::{DataPath, File, Handle, HandleId, NodeId};

/// Room in the tree: all branches together, file systems that hold several counted once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TreeSpace {
    /// Size in bytes.
    pub total: u64,
    /// Free for everybody.
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

impl Pool {
    fn file_of<'a>(&self, handle: &'a Handle) -> OpResult<&'a File> {
        handle.node.file().ok_or(OpError::Sys(Errno::ISDIR))
    }

    /// Reads; short only at the end of the file.
    pub fn read(&self, handle: HandleId, buffer: &mut [u8], offset: u64) -> OpResult<usize> {
        let handle = self.handle(handle)?;
        let _io = self.file_of(&handle)?.io.read();
        let file = handle.current();
        self.staged_read(&handle.node, file.branch.id);
        let got = file.read(buffer, offset)?;
        self.note_read(&file, offset, got);
        Ok(got)
    }

    /// Writes what fits; an error that `is_full` means nothing was written.
    fn write_here(&self, handle: HandleId, data: &[u8], offset: u64, drop_bits: bool) -> OpResult<usize> {
        let handle = self.handle(handle)?;
        let _io = self.file_of(&handle)?.io.read();
        let file = handle.current();
        let end = offset.saturating_add(data.len() as u64);
        if self.may_not_grow(file.branch.id, end) {
            return Err(OpError::Sys(Errno::NOSPC)); // For the caller the same as a full branch: it has to move first.
        }
        if drop_bits {
            self.drop_set_id(&handle.node, &file)?;
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
        self.note_written(&file, offset, done);
        handle.note_write();
        self.staged_wrote(&handle.node, file.branch.id, end);
        Ok(done)
    }

    /// Writes; when the branch is full the file is moved to the next one that its rule allows, and the write goes on there.
    pub fn write(&self, handle: HandleId, data: &[u8], offset: u64, drop_bits: bool) -> OpResult<usize> {
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

    /// Tries again on another branch as long as the present one is full, and where there is none when removed files have been closed.
    fn moving<T>(&self, handle: HandleId, need: u64, call: impl Fn() -> OpResult<T>) -> OpResult<T> {
        let mut full = smallvec::SmallVec::<[umbrella_units::BranchId; 4]>::new();
        let mut patience = Patience::default();
        loop {
            let branch = self.handle(handle)?.current().branch.id;
            self.make_way(branch, need);
            match call() {
                Err(error) if error.is_full() => {
                    let handle = self.handle(handle)?;
                    if !full.contains(&branch) {
                        full.push(branch);
                    }
                    match self.overflow(&handle, branch, &full, ByteSize(need)) {
                        Err(OpError::NoRoom) if self.may_get_room(&mut patience) => full.clear(),
                        Err(OpError::NoRoom) => {
                            self.count(Metric::NoRoom);
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
    pub fn fallocate(
        &self,
        handle: HandleId,
        mode: FallocateFlags,
        offset: u64,
        length: u64,
        drop_bits: bool,
    ) -> OpResult<()> {
        self.moving(handle, length, || {
            let handle = self.handle(handle)?;
            // Alone: what is cut off again when it fails is nobody else's.
            let _io = self.file_of(&handle)?.io.write();
            let file = handle.current();
            // Room is reserved where it is needed, not in memory, which also cannot do all of it; what is cut out is cut out anywhere.
            let reserves = !mode.contains(FallocateFlags::PUNCH_HOLE);
            if (reserves && self.is_staging(file.branch.id))
                || self.may_not_grow(file.branch.id, offset.saturating_add(length))
            {
                return Err(OpError::Sys(Errno::NOSPC));
            }
            if drop_bits {
                self.drop_set_id(&handle.node, &file)?;
            }
            let before = file.stat()?.size;
            if let Err(error) = file.fallocate(mode, offset, length) {
                // ext4 leaves the file as long as there was room.
                return match handle.data {
                    DataPath::Passthrough => self.change_unasked(handle.node.id, |_| Err(error)),
                    // The kernel appends where it believes the end to be.
                    DataPath::Mediated if file.stat()?.size > before => file.truncate(before).and(Err(error)),
                    DataPath::Mediated => Err(error),
                };
            }
            self.note_allocated(&file, mode, offset, length);
            handle.note_write();
            self.staged_resized(&handle.node, file.branch.id, file.stat()?.size);
            Ok(())
        })
    }

    /// Finds data or a hole.
    pub fn seek(&self, handle: HandleId, to: SeekFrom) -> OpResult<u64> {
        let handle = self.handle(handle)?;
        let _io = self.file_of(&handle)?.io.read();
        handle.current().seek(to)
    }

    /// Copies between two open files, of one branch or of two.
    pub fn copy_range(
        &self,
        from: HandleId,
        offset: u64,
        to: HandleId,
        at: u64,
        length: usize,
        drop_bits: bool,
    ) -> OpResult<usize> {
        self.moving(to, length as u64, || self.copy_once((from, offset), (to, at), length.min(COPY_SLICE), drop_bits))
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
        if self.may_not_grow(target.branch.id, at.saturating_add(length as u64)) {
            return Err(OpError::Sys(Errno::NOSPC));
        }
        if drop_bits {
            self.drop_set_id(&to.node, &target)?;
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
        self.note_written(&target, at, copied);
        to.note_write();
        self.staged_wrote(&to.node, target.branch.id, at.saturating_add(copied as u64));
        Ok(copied)
    }

    /// Makes a file's contents durable.
    pub fn fsync(&self, handle: HandleId, data_only: bool) -> OpResult<()> {
        let handle = self.handle(handle)?;
        let left = self.leave_for_sync(&handle.node)?;
        {
            let _io = self.file_of(&handle)?.io.read();
            let file = handle.current();
            let synced = self.syncing(&file, || file.fsync(data_only && !left));
            handle.learned_error().and(synced)?;
        }
        if left { self.sync_names(&handle.node) } else { Ok(()) }
    }

    /// What closing a file on this branch may still report.
    pub fn flush(&self, handle: HandleId) -> OpResult<()> {
        let handle = self.handle(handle)?;
        let file = handle.current();
        if file.online.guarded && handle.writer { file.flush() } else { Ok(()) }
    }

    /// Makes the names in a directory durable, on every branch that has it.
    pub fn fsync_dir(&self, node: NodeId, data_only: bool) -> OpResult<()> {
        let node = self.dir_node(node)?;
        self.leave_dir_for_sync(&node)?;
        // What lasts is not done under the lock.
        let copies = {
            let _names = self.rename_lock.read();
            self.copies(&node)?
        };
        for copy in copies {
            if !copy.branch.spec.read_only {
                copy.fsync(data_only)?;
            }
        }
        Ok(())
    }

    /// Makes everything durable.
    pub fn sync_all(&self) -> OpResult<()> {
        let left = self.leave_all_for_sync();
        self.sync_branches()?;
        left
    }

    /// Has every branch write out what it has.
    pub(crate) fn sync_branches(&self) -> OpResult<()> {
        self.sync_those(|_| true)
    }

    /// Has branches write out what they have, all at once: one that hangs keeps no other from it.
    pub(crate) fn sync_those(&self, which: impl Fn(&Branch) -> bool) -> OpResult<()> {
        let sync = |branch: &Branch| {
            let Some(online) = branch.online() else { return Ok(()) };
            let root = Arc::clone(&online.root);
            self.syncing_all(branch.id, || {
                Ok(branch.noted(ErrorSource::Sync, branch.io(move |_| rustix::fs::syncfs(&*root)))?)
            })
        };
        let branches = self.branches.load();
        std::thread::scope(|scope| {
            let wanted = branches.iter().filter(|branch| which(branch));
            let syncs: Vec<_> = wanted
                .map(|branch| {
                    let started = std::thread::Builder::new().spawn_scoped(scope, || sync(branch));
                    // Without a thread it is done here.
                    started.map_err(|_| sync(branch))
                })
                .collect();
            let panicked = |_| Err(OpError::Sys(Errno::IO));
            syncs.into_iter().try_for_each(|it| it.map_or_else(|done| done, |it| it.join().unwrap_or_else(panicked)))
        })
    }

    /// Room in the whole tree.
    pub fn space(&self) -> TreeSpace {
        self.note_use();
        let mut seen = smallvec::SmallVec::<[u64; 8]>::new();
        let mut sum = TreeSpace::default();
        for branch in self.branches.load().iter() {
            let Some(online) = branch.online().filter(|_| !self.is_staging(branch.id)) else { continue };
            if seen.contains(&online.dev) {
                continue;
            }
            seen.push(online.dev);
            // Who asks wants to see what was just written.
            branch.invalidate_space();
            let space = branch.space();
            sum.total = sum.total.saturating_add(space.total.0);
            sum.free = sum.free.saturating_add(space.free.0);
            sum.free_for_root = sum.free_for_root.saturating_add(space.free_for_root.0);
            sum.files_total = sum.files_total.saturating_add(space.files_total);
            sum.files_free = sum.files_free.saturating_add(space.files_free);
        }
        // What waits takes its room on the branches later.
        let staged = self.staged_bytes();
        sum.free = sum.free.saturating_sub(staged);
        sum.free_for_root = sum.free_for_root.saturating_sub(staged);
        if sum.files_total > 0 {
            sum.files_free = sum.files_free.saturating_sub(self.staged_files());
        }
        sum
    }
}
