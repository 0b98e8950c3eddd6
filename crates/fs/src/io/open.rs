//! Opening and closing, and how the data of an open file travels.
//!
//! The kernel wants all opens of one inode to agree: while one is in passthrough, all are, with the same backing file;
//! while one is cached, none is in passthrough. So the first open decides, by the room on the branch. A file on a
//! branch below its headroom goes through the daemon, which can move it when the branch is full.
//!
//! System calls:
//!
//! - an open: 2 (open, look), or 3 where the file is registered for passthrough
//! - a close of the last handle: 1 to end that, and 1 after a writer to judge the file's place
//!
//! Closing the descriptor is not counted.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use rustix::fs::OFlags;
use rustix::io::Errno;
use umbrella_policy::placement::spec::FileKind;

use crate::branch::Branch;
use crate::error::{OpError, OpResult};
use crate::ground::at::{FileAt, count_call};
use crate::ground::meta::Meta;
use crate::io::Io;
use crate::io::data::Effect;
use crate::node::{DataPath, FileState, Handle, HandleId, Node, NodeId, PassthroughToken, path_of};

/// How a file is to be opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "the flags of open(2)")]
pub struct OpenRequest {
    /// The data will be read.
    pub read: bool,
    /// The data will be written.
    pub write: bool,
    /// Each write goes to the end: an append-only file wants that.
    pub append: bool,
    /// The length becomes zero.
    pub truncate: bool,
    /// The name must be new.
    pub exclusive: bool,
    /// Each write is durable when it returns.
    pub durable: bool,
    /// Set-user-id and set-group-id go with the old contents.
    pub drop_set_id: bool,
}

/// An open file, for the kernel's side.
#[expect(clippy::struct_excessive_bools, reason = "the flags of the reply")]
pub struct Opened {
    /// Number of the handle.
    pub handle: HandleId,
    /// How the data travels.
    pub data: DataPath,
    /// For passthrough: what was registered with the kernel.
    pub token: Option<PassthroughToken>,
    /// Whether the kernel may keep the pages that it has. It may not where the branch came back since others opened the
    /// file: it may have lost what they wrote.
    pub keeps_pages: bool,
    /// Closing may report errors of earlier writes, so the daemon wants to see each close.
    pub wants_flush: bool,
    /// Whether the kernel may keep the file's attributes.
    pub cacheable: bool,
    /// It might until now.
    was_cacheable: bool,
}

/// An open descriptor, and how it is open.
struct Descriptor {
    file: FileAt,
    access: OFlags,
}

/// The first of a file's names; the root's when it has none any more.
fn path_in(state: &FileState) -> Vec<u8> {
    state.names.iter().map(|(parent, name)| path_of(parent, name)).min().unwrap_or_else(|| b"/".to_vec())
}

impl Io {
    /// Opens a file.
    pub(crate) fn open(&self, id: NodeId, request: OpenRequest) -> OpResult<Opened> {
        let opened = {
            let _names = self.tree.rename_lock.read();
            let node = self.tree.node(id)?;
            self.open_node(&node, request)?
        };
        if opened.was_cacheable && !opened.cacheable {
            self.context.forget_attributes(id);
        }
        Ok(opened)
    }

    /// Writes in passthrough that are durable when they return do not come by here. So what an fsync would make durable
    /// before them is so from the open on. Where that fails, the file is closed.
    pub(crate) fn sync_for_passthrough(&self, opened: &Opened, request: OpenRequest) -> OpResult<()> {
        if !(request.durable && request.write && opened.data == DataPath::Passthrough) {
            return Ok(());
        }
        self.sync_names(opened.handle).inspect_err(|_| {
            let _already_failing = self.release(opened.handle);
        })
    }

    /// The caller holds the rename lock shared.
    pub(crate) fn open_node(&self, node: &Arc<Node>, request: OpenRequest) -> OpResult<Opened> {
        let (opened, branch, meta) = self.open_file(node, request)?;
        self.migrate.note_opened(node, &branch, &meta);
        Ok(opened)
    }

    fn open_file(&self, node: &Arc<Node>, request: OpenRequest) -> OpResult<(Opened, Arc<Branch>, Meta)> {
        let file = node.file().ok_or(OpError::Sys(Errno::ISDIR))?;
        let mut state = file.state.write();
        if self.branches.get(state.backing.branch)?.settings().read_only && (request.write || request.truncate) {
            return Err(OpError::Sys(Errno::ROFS));
        }
        if request.truncate {
            state.abort_copy();
        } else if request.write {
            state.abort_copy_for_writer();
        }
        let access = if request.write || request.truncate { OFlags::RDWR } else { OFlags::RDONLY };
        let branch = self.branches.get(state.backing.branch)?;
        let mapped = self.is_mapped_in_passthrough(&mut state, &branch, request);
        let opened = loop {
            let opened = match state.names.first() {
                Some((parent, name)) => {
                    let dir = self.tree.dir_at(parent, state.backing.branch)?;
                    self.tree.opening(|| match dir.open(name, access | OFlags::NONBLOCK) {
                        Err(OpError::Sys(Errno::PERM)) if request.append => {
                            dir.open(name, access | OFlags::NONBLOCK | OFlags::APPEND)
                        }
                        opened => opened,
                    })
                }
                None => state.any_handle().ok_or(OpError::Stale)?.current().reopen(access),
            };
            match opened {
                Err(error) if error.is_missing() && self.tree.prune_names(&mut state) => {}
                done => break done?,
            }
        };
        let meta = opened.stat()?;
        if (meta.foreign_dev, meta.ino) != (state.backing.foreign_dev, state.backing.ino) || meta.kind != FileKind::File
        {
            return Err(OpError::Stale);
        }
        if request.truncate {
            // Only now: what was opened is the file.
            if request.drop_set_id {
                self.tree.drop_set_id(node, &opened)?;
            }
            self.tree.change_and_invalidate(node.id, |cache| opened.truncate(0, cache))?;
            self.after_write(node, &opened, Effect::Resized { size: 0 });
            state.needs_evaluation = true;
        }
        if mapped && self.register_passthrough(&mut state, &opened) == DataPath::Passthrough {
            let opened =
                self.add(node, &mut state, Descriptor { file: opened, access }, request, DataPath::Passthrough);
            return Ok((opened, branch, meta));
        }
        Ok((self.register(node, &mut state, Descriptor { file: opened, access }, request, &meta), branch, meta))
    }

    /// Takes in a file that was opened as it was created.
    ///
    /// It is empty, so nothing can be stored through a mapping of it before it grows. Whatever makes it grow has the
    /// kernel drop what depends on its size, or gives it attributes that it may not keep. So it may keep those of now.
    pub(crate) fn add_open(
        &self,
        node: &Arc<Node>,
        opened: FileAt,
        access: OFlags,
        request: OpenRequest,
        meta: &Meta,
    ) -> OpResult<Opened> {
        let file = node.file().ok_or(OpError::Stale)?;
        let mut state = file.state.write();
        state.needs_evaluation = true;
        let opened = self.register(node, &mut state, Descriptor { file: opened, access }, request, meta);
        Ok(Opened { cacheable: true, ..opened })
    }

    fn register(
        &self,
        node: &Arc<Node>,
        state: &mut FileState,
        opened: Descriptor,
        request: OpenRequest,
        meta: &Meta,
    ) -> Opened {
        let data = self.data_path(node, state, &opened.file, meta, request);
        self.add(node, state, opened, request, data)
    }

    fn add(
        &self,
        node: &Arc<Node>,
        state: &mut FileState,
        opened: Descriptor,
        request: OpenRequest,
        data: DataPath,
    ) -> Opened {
        let wants_flush = opened.file.online.guarded;
        let writer = request.write || request.truncate;
        let handle = Arc::new(Handle {
            node: Arc::clone(node),
            file: ArcSwap::from_pointee(opened.file),
            flags: opened.access,
            data,
            writer,
            wrote: AtomicBool::new(writer && data == DataPath::Passthrough),
            failed: AtomicI32::new(0),
        });
        state.handles.retain(|handle| handle.strong_count() > 0);
        let epoch = handle.current().online.epoch;
        let is_older = |other: Arc<Handle>| other.current().online.epoch != epoch;
        let keeps_pages = !state.handles.iter().filter_map(Weak::upgrade).any(is_older);
        state.handles.push(Arc::downgrade(&handle));
        state.writers += u32::from(writer);
        match data {
            DataPath::Passthrough => state.passthrough += 1,
            DataPath::Mediated => state.cached += 1,
        }
        if handle.writes_past_daemon() {
            handle.current().online.unsynced.begin_writing();
        }
        let was_cacheable = !state.shared_mapping;
        // A file that is open for writing only cannot be mapped.
        state.shared_mapping |= data == DataPath::Passthrough && request.read && request.write;
        let cacheable = !state.shared_mapping;
        let token = if data == DataPath::Passthrough { state.token.clone() } else { None };
        Opened { handle: self.add_handle(&handle), data, token, keeps_pages, wants_flush, cacheable, was_cacheable }
    }

    fn data_path(
        &self,
        node: &Node,
        state: &mut FileState,
        opened: &FileAt,
        meta: &Meta,
        request: OpenRequest,
    ) -> DataPath {
        if state.passthrough > 0 {
            return DataPath::Passthrough;
        }
        let branch = &opened.branch;
        let allowed = self.context.gives_passthrough()
            && state.cached == 0
            && node.kind == FileKind::File
            && branch.takes_passthrough()
            && self.tree.placement.allows_passthrough(|| path_in(state), meta, branch)
            // Past the daemon, a branch that hangs would hang its callers for good.
            && !opened.online.guarded
            // The daemon takes the bits away when such a file is written; in passthrough nothing would.
            && !meta.is_set_id()
            // A policy cannot order writes that bypass the daemon.
            && !(request.write && self.write_back.has_flusher(branch.id))
            && (branch.space().free >= branch.headroom() || branch.settings().read_only);
        if allowed { self.register_passthrough(state, opened) } else { DataPath::Mediated }
    }

    /// Whether the file is still mapped from an earlier passthrough open, although every handle is closed. Then all
    /// opens must use the branch's page cache, as the mapping does. Asked only where the daemon would otherwise serve
    /// the file.
    fn is_mapped_in_passthrough(&self, state: &mut FileState, branch: &Branch, request: OpenRequest) -> bool {
        let served =
            branch.space().free < branch.headroom() || (request.write && self.write_back.has_flusher(branch.id));
        if !state.was_passthrough || !state.handles.is_empty() || !served {
            return false;
        }
        let mapped = self.tree.held_elsewhere(state) != Some(false);
        state.was_passthrough = mapped;
        mapped
    }

    fn register_passthrough(&self, state: &mut FileState, opened: &FileAt) -> DataPath {
        let branch = &opened.branch;
        let Some(kernel) = self.context.kernel.get() else { return DataPath::Mediated };
        count_call();
        match kernel.register(opened.fd.as_fd()) {
            Ok(token) => {
                state.token = Some(token);
                state.was_passthrough = true;
                DataPath::Passthrough
            }
            Err(error) => {
                tracing::debug!(branch = %branch.spec.name, %error, "no passthrough for this file");
                DataPath::Mediated
            }
        }
    }

    /// Closes a handle. The last writer gone, the file's place is judged.
    pub(crate) fn release(&self, handle: HandleId) -> OpResult<()> {
        // Until the descriptor is closed.
        let _under_way = self.releases.begin();
        let handle = self.take_handle(handle)?;
        let node = Arc::clone(&handle.node);
        let Some(file) = node.file() else { return Ok(()) };
        let (ended, accessed, is_warm);
        let must_evaluate = {
            let mut state = file.state.write();
            state.writers -= u32::from(handle.writer);
            *state.is_bare.get_mut() = false;
            match handle.data {
                DataPath::Passthrough => state.passthrough -= 1,
                DataPath::Mediated => state.cached -= 1,
            }
            ended = if state.passthrough == 0 { state.token.take() } else { None };
            let this = Arc::downgrade(&handle);
            state.handles.retain(|other| !Weak::ptr_eq(other, &this));
            accessed = state.take_accessed();
            is_warm = state.take_warm() && !state.unlinked;
            self.migrate.forget_unnamed(&state, &handle);
            if handle.wrote.load(Ordering::Relaxed) {
                state.needs_evaluation = true;
            }
            state.needs_evaluation && state.writers == 0 && state.passthrough == 0 && !state.unlinked
        };
        if handle.writes_past_daemon() {
            handle.current().online.unsynced.end_writing();
        }
        // Not under the lock.
        if let Some(token) = ended {
            count_call();
            drop(token);
        }
        if must_evaluate {
            let _names = self.tree.rename_lock.read();
            self.migrate.evaluate_closed(&node, &handle.current());
        } else if let Some(before) = accessed {
            let _names = self.tree.rename_lock.read();
            self.migrate.evaluate_read(&node, &handle.current(), before);
        }
        if is_warm {
            let _names = self.tree.rename_lock.read();
            self.migrate.evaluate_warm(&node, &handle.current());
        }
        Ok(())
    }
}
