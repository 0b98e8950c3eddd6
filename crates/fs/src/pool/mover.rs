//! Getting files to the branch they belong on.
//!
//! One thread takes files from a queue: those that were closed (or renamed, or changed in what rules look at) on a branch where they
//! no longer belong. A file that is open for writing, or whose readers go past the daemon, is left alone and judged again when it is
//! closed. Nobody sees a move: names, inode number, contents and open handles stay.
//!
//! Steps of one move (`transfer`); the durable ones are in `relocate`:
//! 1. under the file's lock: nobody writes, nobody else copies; leave a flag that a writer sets;
//! 2. without locks: make the directories on the target, copy to a hidden name there, fsync;
//! 3. under the locks of its directories and of the file: the flag is not set, the source is what was copied; open the copy once
//!    for each reader; record the intent, rename into place, unlink the source, sync both directories;
//! 4. the node now stands for the new inode; readers are handed over.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex};
use rustix::fs::OFlags;
use smallvec::SmallVec;
use umbrella_policy::placement::Choice;
use umbrella_units::{BranchId, ByteSize};

use super::Pool;
use crate::at::{DirAt, FileAt};
use crate::error::{OpError, OpResult};
use crate::metrics::Metric;
use crate::node::{Backing, FileState, Node, path_of};
use crate::relocate::{self, BranchUuid, Limits, Move, MovedName, Place, RelocateError, Throttle};

/// Files waiting for their move.
pub(crate) struct Mover {
    queue: Mutex<VecDeque<(Arc<Node>, BranchId)>>,
    wake: Condvar,
    temp: AtomicU64,
}

/// Why a file was not moved. It is where it was.
#[derive(Debug)]
pub(crate) enum NotMoved {
    /// Open, changing, or with names that are not all known.
    Busy(&'static str),
    /// The target has no room.
    NoRoom,
    /// Something failed.
    Failed(RelocateError),
    /// Something failed on the way.
    Op(OpError),
}

impl From<OpError> for NotMoved {
    fn from(error: OpError) -> Self {
        if error.is_full() { NotMoved::NoRoom } else { NotMoved::Op(error) }
    }
}

impl From<RelocateError> for NotMoved {
    fn from(error: RelocateError) -> Self {
        match error {
            RelocateError::NoSpace { .. } => NotMoved::NoRoom,
            RelocateError::Changed | RelocateError::Cancelled => NotMoved::Busy("it changed while it was copied"),
            other => NotMoved::Failed(other),
        }
    }
}

impl std::fmt::Display for NotMoved {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NotMoved::Busy(why) => f.write_str(why),
            NotMoved::NoRoom => f.write_str("the branch has no room"),
            NotMoved::Failed(error) => error.fmt(f),
            NotMoved::Op(error) => error.fmt(f),
        }
    }
}

/// Why a file moves: what its users may be doing meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// A rule says so. Not while somebody writes.
    Rule,
    /// Its branch is full and a writer waits. The caller holds the file's `io` lock exclusively.
    Full,
}

impl Mover {
    pub(crate) fn new() -> Mover {
        Mover { queue: Mutex::default(), wake: Condvar::new(), temp: AtomicU64::new(0) }
    }

    fn temp_name(&self) -> OsString {
        let number = self.temp.fetch_add(1, Ordering::Relaxed);
        OsString::from(format!("move-{}-{number}", std::process::id()))
    }
}

/// One name of a file that moves.
struct Name {
    parent: Arc<Node>,
    name: OsString,
    from: DirAt,
    to: DirAt,
}

impl Pool {
    /// Judges the place of a file that was just closed; queues it when it must move. The caller holds the rename lock shared.
    pub(crate) fn judge_closed(&self, node: &Arc<Node>, file: &FileAt) {
        if let Ok(meta) = file.stat() {
            self.judge_meta(node, &meta);
        }
    }

    /// As `judge_closed`, for a file that changed without being open.
    pub(crate) fn judge_soon(&self, node: &Arc<Node>) {
        let idle = node.file().is_some_and(|file| {
            let state = file.state.read();
            state.unjudged && state.writers == 0 && state.passthrough == 0 && !state.unlinked
        });
        if idle && let Ok(attr) = self.attr_of(node) {
            self.judge_meta(node, &attr.meta);
        }
    }

    fn judge_meta(&self, node: &Arc<Node>, meta: &crate::meta::Meta) {
        let Some(file) = node.file() else { return };
        let branch = {
            let mut state = file.state.write();
            state.unjudged = false;
            state.backing.branch
        };
        let Ok(branch) = self.branch(branch) else { return };
        if branch.spec.read_only {
            return;
        }
        if let Choice::Place(target) = self.judge(&node.path(), meta, &branch) {
            self.queue_move(node, target);
        }
    }

    fn queue_move(&self, node: &Arc<Node>, target: BranchId) {
        node.retain();
        self.count(Metric::RelocationsPending);
        self.mover.queue.lock().push_back((Arc::clone(node), target));
        self.mover.wake.notify_one();
    }

    /// The mover's thread.
    pub(crate) fn run_mover(&self) {
        loop {
            let (node, target) = {
                let mut queue = self.mover.queue.lock();
                loop {
                    if self.stopping.load(Ordering::Relaxed) {
                        return;
                    }
                    match queue.pop_front() {
                        Some(next) => break next,
                        None => self.mover.wake.wait(&mut queue),
                    }
                }
            };
            self.move_queued(&node, target);
            self.nodes.release(&node, 1);
            self.metrics.sub(Metric::RelocationsPending, 1);
        }
    }

    pub(crate) fn stop_mover(&self) {
        self.mover.wake.notify_all();
    }

    fn move_queued(&self, node: &Arc<Node>, target: BranchId) {
        let Some(file) = node.file() else { return };
        match self.transfer(node, target, Cause::Rule, None) {
            Ok(bytes) => tracing::debug!(path = %show(node), to = %self.branch_name(target), %bytes, "moved"),
            Err(NotMoved::Busy(why)) => {
                self.count(Metric::RelocationsBusy);
                file.state.write().unjudged = true;
                tracing::debug!(path = %show(node), why, "not moved now");
            }
            Err(NotMoved::Op(OpError::Stale | OpError::Sys(rustix::io::Errno::NOENT))) => {}
            Err(why) => {
                self.count(Metric::RelocationsFailed);
                if matches!(why, NotMoved::NoRoom)
                    && let Ok(branch) = self.branch(target)
                {
                    branch.invalidate_space();
                }
                let path = show(node);
                self.warn(
                    format!("move {path}"),
                    format!(
                        "{path} could not be moved to branch {:?}: {why}; it stays where it is",
                        self.branch_name(target)
                    ),
                );
            }
        }
    }

    /// Moves a file in the foreground, whatever the rules say; for an exchange of names.
    pub(crate) fn move_now(&self, node: &Arc<Node>, target: BranchId) -> OpResult<()> {
        let file = node.file().ok_or(OpError::Sys(rustix::io::Errno::ISDIR))?;
        let _io = file.io.write();
        match self.transfer(node, target, Cause::Full, None) {
            Ok(_) => Ok(()),
            Err(NotMoved::Busy(_)) => Err(OpError::Sys(rustix::io::Errno::BUSY)),
            Err(NotMoved::NoRoom) => Err(OpError::NoRoom),
            Err(NotMoved::Failed(error)) => Err(OpError::Sys(error.errno())),
            Err(NotMoved::Op(error)) => Err(error),
        }
    }

    /// Moves a file to another branch; bytes copied. The caller does not hold the rename lock: it is taken, shared, only while names
    /// are resolved and while the move is committed, so that a long copy holds nobody up.
    pub(crate) fn transfer(
        &self,
        node: &Arc<Node>,
        target: BranchId,
        cause: Cause,
        throttle: Option<&Throttle>,
    ) -> Result<ByteSize, NotMoved> {
        let file = node.file().ok_or(NotMoved::Busy("it is a directory"))?;
        let cancel = Arc::new(AtomicBool::new(false));
        let (backing, names) = {
            let mut state = file.state.write();
            may_move(&state, cause)?;
            if state.copying.is_some() {
                return Err(NotMoved::Busy("it is being copied already"));
            }
            if state.backing.branch == target {
                return Ok(ByteSize(0));
            }
            state.copying = Some(Arc::clone(&cancel));
            (state.backing, state.names.clone())
        };
        let moved = self.copy_and_commit(node, backing, &names, target, cause, &cancel, throttle);
        if moved.is_err() {
            let mut state = file.state.write();
            if state.copying.as_ref().is_some_and(|flag| Arc::ptr_eq(flag, &cancel)) {
                state.copying = None;
            }
        }
        moved
    }

    #[expect(clippy::too_many_arguments, reason = "one step of `transfer`, split for reading")]
    fn copy_and_commit(
        &self,
        node: &Arc<Node>,
        backing: Backing,
        names: &[(Arc<Node>, OsString)],
        target: BranchId,
        cause: Cause,
        cancel: &AtomicBool,
        throttle: Option<&Throttle>,
    ) -> Result<ByteSize, NotMoved> {
        let branch = self.branch(target)?;
        let online = branch.online().ok_or(OpError::Offline)?;
        let hidden = online.hidden.as_ref().ok_or(OpError::Sys(rustix::io::Errno::ROFS))?;
        let mut places = Vec::with_capacity(names.len());
        {
            let _names = self.rename_lock.read_recursive();
            for (parent, name) in names {
                places.push(Name {
                    from: self.dir_at(parent, backing.branch)?,
                    to: self.ensure_dir_durably(parent, target)?,
                    parent: Arc::clone(parent),
                    name: name.clone(),
                });
            }
        }
        let first = places.first().ok_or(NotMoved::Busy("it has no name"))?;
        if first.from.branch.spec.read_only {
            return Err(NotMoved::Op(OpError::Sys(rustix::io::Errno::ROFS)));
        }
        let meta = first.from.stat(&first.name)?;
        if (meta.dev, meta.ino) != (backing.dev, backing.ino) {
            return Err(NotMoved::Busy("it changed behind the mount's back"));
        }
        if meta.nlink as usize != names.len() {
            return Err(NotMoved::Busy("it has other hard links; `umbrella enforce` moves them together"));
        }
        let temp_name = self.mover.temp_name();
        let temp = Place { dir: hidden.tmp.as_fd(), name: &temp_name };
        let source = Place { dir: first.from.fd.as_fd(), name: &first.name };
        let mut limits = Limits::new(cancel);
        limits.throttle = throttle;
        // A branch that rounds times can still take files; `status` names the missing ability.
        limits.coarse_times = !branch.abilities().nanoseconds;
        let copied = relocate::copy(source, temp, &branch.abilities(), &limits)?;
        let done = self.commit_copy(node, backing, &places, &branch, temp, &copied, cause, cancel);
        if done.is_err() {
            // After the rename there is nothing left under this name.
            let _ = rustix::fs::unlinkat(hidden.tmp.as_fd(), &temp_name, rustix::fs::AtFlags::empty());
        }
        done?;
        self.count(Metric::Relocations);
        self.metrics.add(Metric::RelocationBytes, copied.bytes.0);
        first.from.branch.note_moved_out();
        branch.note_moved_in();
        self.unwarn(&format!("move {}", show(node)));
        if let Some(kernel) = self.kernel.get() {
            kernel.drop_attributes(node.id);
        }
        Ok(copied.bytes)
    }

    #[expect(clippy::too_many_arguments, reason = "one step of `copy_and_commit`, split for reading")]
    fn commit_copy(
        &self,
        node: &Arc<Node>,
        backing: Backing,
        places: &[Name],
        target: &Arc<crate::branch::Branch>,
        temp: Place<'_>,
        copied: &relocate::Copied,
        cause: Cause,
        cancel: &AtomicBool,
    ) -> Result<(), NotMoved> {
        let first = places.first().ok_or(NotMoved::Busy("it has no name"))?;
        let file = node.file().ok_or(NotMoved::Busy("it is a directory"))?;
        let mut parents: SmallVec<[&Arc<Node>; 2]> = places.iter().map(|place| &place.parent).collect();
        parents.sort_by_key(|parent| parent.id);
        parents.dedup_by_key(|parent| parent.id);
        // Recursive: a writer of the file may hold it shared and wait for us.
        let _names = self.rename_lock.read_recursive();
        let paths: Vec<_> = places.iter().map(|place| path_of(&place.parent, &place.name)).collect();
        let _commits: SmallVec<[_; 2]> =
            parents.iter().filter_map(|parent| parent.dir()).map(|dir| dir.commit.lock()).collect();
        let _moving = Moving::begin(&parents);
        let mut state = file.state.write();
        let same_names = state.names.len() == places.len()
            && places.iter().all(|place| {
                state.names.iter().any(|(parent, name)| parent.id == place.parent.id && *name == place.name)
            });
        if cancel.load(Ordering::Relaxed) || state.backing != backing || !same_names {
            self.count(Metric::CopiesCancelled);
            return Err(NotMoved::Busy("somebody changed it while it was copied"));
        }
        may_move(&state, cause)?;
        relocate::verify_unchanged(Place { dir: first.from.fd.as_fd(), name: &first.name }, copied)?;
        // Every open handle gets the copy before it has its name: after the commit nothing may fail.
        let handles: Vec<_> = state.handles.iter().filter_map(std::sync::Weak::upgrade).collect();
        let online = target.online().ok_or(OpError::Offline)?;
        let mut reopened = Vec::with_capacity(handles.len());
        for handle in &handles {
            let flags = handle.flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let fd = rustix::fs::openat(temp.dir, temp.name, flags, rustix::fs::Mode::empty()).map_err(OpError::Sys)?;
            reopened.push(FileAt { branch: Arc::clone(target), online: Arc::clone(&online), fd: Arc::new(fd) });
        }
        let names: Vec<_> = places
            .iter()
            .zip(&paths)
            .map(|(place, path)| MovedName {
                source: Place { dir: place.from.fd.as_fd(), name: &place.name },
                target: Place { dir: place.to.fd.as_fd(), name: &place.name },
                path,
            })
            .collect();
        let hidden = online.hidden.as_ref().ok_or(OpError::Sys(rustix::io::Errno::ROFS))?;
        // The number is passed on before the old inode is free to be used again.
        let new = Backing { branch: target.id, dev: online.dev, ino: copied.target.ino };
        let keys = (key_of(&first.from.online, backing), key_of(&online, new));
        self.inodes.moved(keys.0, keys.1, node.born);
        self.nodes.add_backing(new, node);
        let committed = relocate::commit(&Move {
            from: BranchUuid(first.from.online.uuid),
            to: BranchUuid(online.uuid),
            names: &names,
            temp,
            intents: hidden.intents.as_fd(),
            copied,
            hook: None,
        });
        if let Err(error) = committed {
            self.nodes.remove_backing(new, node);
            self.inodes.moved(keys.1, keys.0, node.born);
            if matches!(error, RelocateError::InDoubt { .. }) {
                // Whether the copy has its name is for recovery to say: until then its branch is not looked at.
                target.take_offline(format!("a move to it {error}"));
            }
            return Err(error.into());
        }
        state.backing = new;
        state.copying = None;
        for (handle, file) in handles.iter().zip(reopened) {
            handle.file.store(Arc::new(file));
        }
        drop(state);
        self.nodes.remove_backing(backing, node);
        Ok(())
    }
}

/// While it lives, lookups in these directories that find nothing, or too much, wait.
struct Moving<'a> {
    parents: SmallVec<[&'a Arc<Node>; 2]>,
}

impl<'a> Moving<'a> {
    fn begin(parents: &[&'a Arc<Node>]) -> Moving<'a> {
        let moving = Moving { parents: parents.iter().copied().collect() };
        moving.step();
        moving
    }

    fn step(&self) {
        for dir in self.parents.iter().filter_map(|parent| parent.dir()) {
            dir.moves.fetch_add(1, Ordering::AcqRel);
        }
    }
}

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        self.step();
    }
}

fn key_of(online: &crate::branch::Online, backing: Backing) -> crate::inode_map::BackingKey {
    let foreign_dev = if backing.dev == online.dev { 0 } else { backing.dev };
    crate::inode_map::BackingKey { slot: online.slot, foreign_dev, ino: backing.ino }
}

fn may_move(state: &FileState, cause: Cause) -> Result<(), NotMoved> {
    if state.unlinked || state.names.is_empty() {
        return Err(NotMoved::Busy("it has no name"));
    }
    if state.passthrough > 0 {
        return Err(NotMoved::Busy("it is open"));
    }
    if cause == Cause::Rule && state.writers > 0 {
        return Err(NotMoved::Busy("it is open for writing"));
    }
    Ok(())
}

fn show(node: &Arc<Node>) -> String {
    String::from_utf8_lossy(&node.path()).into_owned()
}
