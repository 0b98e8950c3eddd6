//! The pool: one method a request. What it does is in its rooms, each of which stands on those before it:
//!
//! - `context`: the configuration, figures, warnings, the kernel's side; `branch`: which branches there are; `area`:
//!   what waits in memory
//! - `write_back`: the flushers of branches; `placement`: where a file belongs
//! - `tree`: nodes, directories, lookup, listings; `migrate`: files that go to another branch; `staging`: files that
//!   leave memory
//! - `io`: open files and attributes; `names`: changes of names; `admin`: branches that come and go, status
//!
//! Knows nothing of FUSE.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use arc_swap::ArcSwap;
use linux_raw_sys::general::fsxattr;
use rustix::fs::{FallocateFlags, SeekFrom, XattrFlags};
use rustix::io::Errno;
use umbrella_policy::placement::spec::RulesSpec;
use umbrella_units::{BranchId, Ino};

use crate::admin::{Admin, DiskErrors};
use crate::area;
use crate::area::Staged;
use crate::branch::{Branch, Branches};
use crate::context::Context;
use crate::control::protocol::{Answer, EnforceSummary, Explanation, Progress, Request, Status};
use crate::error::{Error, OpError, OpResult};
use crate::ground::advice::advised;
use crate::ground::creds::Caller;
use crate::ground::listing::{DirEntry, Listing};
use crate::ground::locks::RankedMutex;
use crate::inode_map::InodeMap;
use crate::io::Io;
use crate::migrate::{MOVERS, Migrations};
use crate::names::Names;
use crate::node::{HandleId, NodeId, NodeTable};
use crate::placement::{ActiveRules, Holdings, Placement};
use crate::spec::PoolSpec;
use crate::staging::Staging;
use crate::tree::{Tree, new_root};
use crate::write_back::WriteBack;

pub use crate::admin::Equalise;
pub use crate::area::obstacle as staging_obstacle;
pub use crate::context::Kernel;
pub use crate::ground::HIDDEN_DIR;
pub use crate::io::{AttributeChange, NewTime, OpenRequest, Opened, TreeSpace};
pub use crate::migrate::WalkOptions;
pub use crate::names::{OldName, Replace};
pub use crate::tree::Attr;

/// What a thread of the pool does until the pool ends.
pub(crate) type PoolTask = fn(&Pool);

/// See the module. Its doors are `fuse`, `control` and `mount`.
pub struct Pool {
    context: Arc<Context>,
    placement: Arc<Placement>,
    tree: Arc<Tree>,
    migrate: Arc<Migrations>,
    staging: Arc<Staging>,
    io: Arc<Io>,
    names: Names,
    admin: Admin,
}

impl Pool {
    /// Takes in all branches and finishes what a crash left half done. `missing` names branches that may be absent
    /// besides the optional ones.
    pub fn assemble(spec: PoolSpec, state_dir: &Path, missing: &[String]) -> Result<Arc<Pool>, Error> {
        let context = Context::open(spec.clone(), state_dir)?;
        let state = &context.state;
        let PoolSpec { branches: specs, rules, access_times, .. } = spec;
        // Before the branches are used for the first time.
        let disk_errors = DiskErrors::subscribe();
        let inodes = Arc::new(InodeMap::new());
        let branch = |(index, spec)| Branch::new(BranchId(index as u16), spec, Arc::clone(state));
        let mut branches: Vec<Arc<Branch>> = specs.into_iter().enumerate().map(branch).collect();
        let may_be_missing = |branch: &Branch| branch.settings().optional || missing.contains(&branch.spec.name);
        // First all are looked at, so that a start that fails has written nothing.
        for branch in branches.iter().filter(|branch| !may_be_missing(branch)) {
            branch.check().map_err(|error| Error::of_branch(&branch.spec.name, &error))?;
        }
        for branch in &branches {
            branch.set_access_times(access_times);
            if let Err(error) = branch.bring_online() {
                if !may_be_missing(branch) {
                    return Err(Error::of_branch(&branch.spec.name, &error));
                }
                tracing::warn!(branch = %branch.spec.name, error = advised(&error), "branch is missing; mounting without it");
            }
        }
        let rules = ActiveRules::bind(rules, &branches)?;
        let id = BranchId(branches.len() as u16);
        let staging = area::open_at_mount(&context.settings(), &rules.rules, state, id)?;
        branches.extend(staging.as_ref().map(|staging| Arc::clone(&staging.branch)));
        let staging_id = staging.as_ref().map(|staging| staging.branch.id);
        let branches = Branches::new(&context, branches, staging_id);
        let write_back = WriteBack::new(&context, &branches);
        let staged = Staged::new(&context, staging);
        let root = new_root();
        let nodes = Arc::new(NodeTable::new(Arc::clone(&root)));
        let placement = Arc::new(Placement {
            context: Arc::clone(&context),
            branches: Arc::clone(&branches),
            staged: Arc::clone(&staged),
            nodes: Arc::clone(&nodes),
            inodes: Arc::clone(&inodes),
            rules: ArcSwap::from_pointee(rules),
            holdings: Holdings::default(),
            last_sizes: RankedMutex::default(),
        });
        let tree = Tree::new(&placement, root);
        let migrate = Migrations::new(&tree, &write_back);
        let staging = Staging::new(&tree, &write_back, &migrate);
        let io = Io::new(&tree, &migrate, &staging);
        let names = Names::new(&tree, &migrate, &staging, &io);
        let admin = Admin::new(&tree, &migrate, &staging, &io, disk_errors);
        let pool = Arc::new(Pool { context, placement, tree, migrate, staging, io, names, admin });
        pool.admin.load_branches();
        Ok(pool)
    }

    /// Connects the pool with the kernel's side of its mount; without it (in tests) no kernel is told.
    pub fn set_kernel(&self, kernel: Box<dyn Kernel>) {
        // Set once, by the mount; a second call would be a second mount of one pool.
        let _ = self.context.kernel.set(kernel);
        self.admin.announce_passthrough();
    }

    /// What all rooms use.
    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Notes that the pool is in use. Returns the names of its threads and their work, which goes on until the pool
    /// ends.
    pub(crate) fn begin(&self) -> Vec<(String, PoolTask)> {
        self.migrate.begin_use();
        if let Some(short) = self.admin.descriptor_warning() {
            tracing::warn!("{short}");
        }
        let mover =
            |number: usize| -> (String, PoolTask) { (format!("mover-{number}"), |pool| pool.migrate.run_mover()) };
        let others: [(&str, PoolTask); 6] = [
            ("revisits", |pool| pool.migrate.run_revisits()),
            ("monitor", |pool| pool.admin.run_monitor()),
            ("disk-errors", |pool| pool.admin.run_disk_errors()),
            ("enforcer", |pool| pool.migrate.run_schedule()),
            ("fill-levels", |pool| pool.admin.run_fill_levels()),
            ("staging", |pool| pool.staging.run()),
        ];
        let others = others.into_iter().map(|(name, work): (&str, PoolTask)| (name.to_owned(), work));
        (0..MOVERS).map(mover).chain(others).collect()
    }

    /// The open roots of the branches that are online and cannot hang.
    pub(crate) fn local_roots(&self) -> Vec<(String, OwnedFd)> {
        let branches = self.placement.branches.all_named();
        let root = |branch: &Arc<Branch>| {
            let online = branch.online().filter(|online| !online.guarded)?;
            Some((branch.spec.name.clone(), online.root().try_clone_to_owned().ok()?))
        };
        branches.iter().filter_map(root).collect()
    }

    /// Lets go of the branches; all threads have ended.
    pub(crate) fn close(&self) {
        self.migrate.end_use();
        self.admin.close_branches();
    }

    /// Carries out a request over the control socket; of an unmount all but that itself.
    pub(crate) fn answer(&self, request: Request, tell: &mut dyn FnMut(&Progress) -> bool) -> Result<Answer, Error> {
        self.admin.answer(request, tell)
    }

    /// Replaces the rules. Their counters begin at zero.
    pub fn reload_rules(&self, spec: &RulesSpec) -> Result<(), Error> {
        self.placement.reload_rules(spec)?;
        self.migrate.clear_pauses();
        Ok(())
    }

    /// Finds a name and gives its node one more reference.
    pub fn lookup(&self, parent: NodeId, name: &OsStr) -> OpResult<Attr> {
        self.tree.lookup(parent, name)
    }

    /// What users see of a node.
    pub fn getattr(&self, node: NodeId) -> OpResult<Attr> {
        self.tree.getattr(node)
    }

    /// Target of a symbolic link.
    pub fn readlink(&self, node: NodeId) -> OpResult<Vec<u8>> {
        self.tree.readlink(node)
    }

    /// Begins a listing of a directory: what a call of `list` has to be given, and whether no other listing is open.
    pub fn begin_listing(&self, node: NodeId) -> (u64, bool) {
        self.tree.begin_listing(node)
    }

    /// Ends a listing. A branch that came or went meanwhile had the kernel forget the listing, perhaps before it was
    /// given this one.
    pub fn end_listing(&self, node: NodeId) {
        self.tree.end_listing(node);
    }

    /// The merged listing, for a reader at `cookie`; made anew for a reader that begins. `newest`: from
    /// `begin_listing`.
    pub fn list(&self, node: NodeId, cookie: u64, newest: u64) -> OpResult<Arc<Listing>> {
        self.tree.list(node, cookie, newest)
    }

    /// Node and attributes of an entry, with one more reference, as `lookup` would give them.
    pub fn lookup_entry(&self, parent: NodeId, listing: &Listing, entry: &DirEntry) -> OpResult<Attr> {
        self.tree.lookup_entry(parent, listing, entry)
    }

    /// The inode numbers of a directory and of its parent (of the root: its own twice), for `.` and `..`.
    pub fn dot_inos(&self, node: NodeId) -> OpResult<[Ino; 2]> {
        self.tree.dot_inos(node)
    }

    /// Gives `count` references to a node back (the kernel's FORGET).
    pub fn forget(&self, id: NodeId, count: u64) {
        self.tree.forget(id, count);
    }

    /// Walks the tree. `tell` receives each file that moves and, now and then, how far the walk is. It ends the walk by
    /// returning false, even in the middle of a file: what was copied of that file is dropped.
    pub fn enforce(&self, walk: WalkOptions, tell: &mut dyn FnMut(&Progress) -> bool) -> EnforceSummary {
        self.migrate.enforce(walk, tell)
    }

    /// Empties a branch: nothing new goes there, and every file moves to another branch that may hold it.
    /// `Branch::set_draining` stays on, over unmounts too, until that is taken back.
    pub fn drain(&self, name: &str, tell: &mut dyn FnMut(&Progress) -> bool) -> Result<EnforceSummary, Error> {
        self.migrate.drain(name, tell)
    }

    /// Moves what is queued now, on the calling thread: for pools without a mover's thread, and for callers that cannot
    /// wait for it.
    pub fn move_all_queued(&self) {
        self.migrate.move_all_queued();
    }

    /// Lets files leave whose time has come, as the scheduler does, and waits for it; not for branches that hang.
    pub fn destage_due(&self) {
        self.staging.destage_due();
    }

    /// At the end: everything leaves, then the area goes. What cannot leave stays there, for the next mount.
    pub fn close_staging(&self) {
        self.staging.close_staging();
    }

    /// Opens a file.
    pub fn open(&self, id: NodeId, request: OpenRequest) -> OpResult<Opened> {
        let opened = self.io.open(id, request)?;
        self.io.sync_for_passthrough(&opened, request)?;
        Ok(opened)
    }

    /// Closes a handle. The last writer gone, the file's place is judged.
    pub fn release(&self, handle: HandleId) -> OpResult<()> {
        self.io.release(handle)
    }

    /// Reads; short only at the end of the file.
    pub fn read(&self, handle: HandleId, buffer: &mut [u8], offset: u64) -> OpResult<usize> {
        self.io.read(handle, buffer, offset)
    }

    /// Writes; when the branch is full the file is moved to the next one that its rule allows, and the write goes on
    /// there.
    pub fn write(&self, handle: HandleId, data: &[u8], offset: u64, drop_bits: bool) -> OpResult<usize> {
        self.io.write(handle, data, offset, drop_bits)
    }

    /// Answers a write: at once, or when its branch has room for more dirty pages. Never blocks.
    pub fn when_room(&self, handle: HandleId, wrote: usize, answer: impl FnOnce() + Send + 'static) {
        self.io.when_room(handle, wrote, answer);
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
        self.io.fallocate(handle, mode, offset, length, drop_bits)
    }

    /// Finds data or a hole.
    pub fn seek(&self, handle: HandleId, to: SeekFrom) -> OpResult<u64> {
        self.io.seek(handle, to)
    }

    /// Copies between two open files, each from an offset, of one branch or of two.
    pub fn copy_range(
        &self,
        from: (HandleId, u64),
        to: (HandleId, u64),
        length: usize,
        drop_bits: bool,
    ) -> OpResult<usize> {
        self.io.copy_range(from, to, length, drop_bits)
    }

    /// Makes a file's contents durable.
    pub fn fsync(&self, handle: HandleId, data_only: bool) -> OpResult<()> {
        self.io.fsync(handle, data_only)
    }

    /// Makes the names in a directory durable, on every branch that has it.
    pub fn fsync_dir(&self, node: NodeId, data_only: bool) -> OpResult<()> {
        self.io.fsync_dir(node, data_only)
    }

    /// What closing a file on this branch may still report.
    pub fn flush(&self, handle: HandleId) -> OpResult<()> {
        self.io.flush(handle)
    }

    /// Makes everything durable. Fails with EIO where a branch went away that may have lost changes.
    pub fn sync_all(&self) -> OpResult<()> {
        self.io.sync_all()?;
        let lost = self.tree.branches.names_of(Branch::may_have_lost);
        if lost.is_empty() { Ok(()) } else { Err(OpError::Sys(Errno::IO)) }
    }

    /// Room in the whole tree.
    pub fn space(&self) -> TreeSpace {
        self.io.space()
    }

    /// Changes attributes.
    pub fn setattr(&self, node: NodeId, change: &AttributeChange) -> OpResult<Attr> {
        self.io.setattr(node, change)
    }

    /// Takes set-group-id away.
    pub fn drop_set_gid(&self, node: NodeId) -> OpResult<()> {
        self.io.drop_set_gid(node)
    }

    /// Value of an extended attribute.
    pub fn getxattr(&self, node: NodeId, name: &OsStr) -> OpResult<Vec<u8>> {
        self.io.getxattr(node, name)
    }

    /// Sets an extended attribute.
    pub fn setxattr(&self, node: NodeId, name: &OsStr, value: &[u8], flags: XattrFlags) -> OpResult<()> {
        self.io.setxattr(node, name, value, flags)
    }

    /// Names of all extended attributes, each ended by a zero byte.
    pub fn listxattr(&self, node: NodeId) -> OpResult<Vec<u8>> {
        self.io.listxattr(node)
    }

    /// Removes an extended attribute.
    pub fn removexattr(&self, node: NodeId, name: &OsStr) -> OpResult<()> {
        self.io.removexattr(node, name)
    }

    /// Flags of a file, `FS_*_FL`.
    pub fn flags(&self, node: NodeId) -> OpResult<u32> {
        self.io.flags(node)
    }

    /// Flags in the extended form, with the project.
    pub fn fs_xattr(&self, node: NodeId) -> OpResult<fsxattr> {
        self.io.fs_xattr(node)
    }

    /// Sets flags.
    pub fn set_flags(&self, node: NodeId, flags: u32) -> OpResult<()> {
        self.io.set_flags(node, flags)
    }

    /// Sets them.
    pub fn set_fs_xattr(&self, node: NodeId, value: fsxattr) -> OpResult<()> {
        self.io.set_fs_xattr(node, value)
    }

    /// Creates and opens a file; opens it when it appeared meanwhile and `exclusive` is not asked for.
    pub fn create(
        &self,
        parent: NodeId,
        name: &OsStr,
        perm: u32,
        caller: Caller,
        request: OpenRequest,
    ) -> OpResult<(Attr, Opened)> {
        let (attr, opened) = self.names.create(parent, name, perm, caller, request)?;
        self.io.sync_for_passthrough(&opened, request).inspect_err(|_| self.forget(attr.node, 1))?;
        Ok((attr, opened))
    }

    /// Creates and opens a file without a name (`O_TMPFILE`).
    pub fn create_unnamed(
        &self,
        parent: NodeId,
        perm: u32,
        caller: Caller,
        request: OpenRequest,
    ) -> OpResult<(Attr, Opened)> {
        self.names.create_unnamed(parent, perm, caller, request)
    }

    /// Makes a directory.
    pub fn mkdir(&self, parent: NodeId, name: &OsStr, perm: u32, caller: Caller) -> OpResult<Attr> {
        self.names.mkdir(parent, name, perm, caller)
    }

    /// Makes a device node, a pipe, a socket or an empty file.
    pub fn mknod(&self, parent: NodeId, name: &OsStr, mode: u32, rdev: u64, caller: Caller) -> OpResult<Attr> {
        self.names.mknod(parent, name, mode, rdev, caller)
    }

    /// Makes a symbolic link.
    pub fn symlink(&self, parent: NodeId, name: &OsStr, target: &OsStr, caller: Caller) -> OpResult<Attr> {
        self.names.symlink(parent, name, target, caller)
    }

    /// Another name for a file, on the branch where it is.
    pub fn link(&self, node: NodeId, parent: NodeId, name: &OsStr) -> OpResult<Attr> {
        self.names.link(node, parent, name)
    }

    /// Removes a file's name.
    pub fn unlink(&self, parent: NodeId, name: &OsStr) -> OpResult<()> {
        self.names.unlink(parent, name)
    }

    /// Removes an empty directory from every branch that has it, or from none.
    pub fn rmdir(&self, parent: NodeId, name: &OsStr) -> OpResult<()> {
        self.names.rmdir(parent, name)
    }

    /// Gives an entry another name.
    pub fn rename(&self, parent: NodeId, name: &OsStr, to: NodeId, to_name: &OsStr, replace: Replace) -> OpResult<()> {
        self.names.rename(parent, name, to, to_name, replace)
    }

    /// Gives an entry another name, and leaves something at the old one.
    pub fn rename_leaving(
        &self,
        parent: (NodeId, &OsStr),
        to: (NodeId, &OsStr),
        replace: Replace,
        behind: OldName,
    ) -> OpResult<()> {
        self.names.rename_leaving(parent, to, replace, behind)
    }

    /// Asks every branch now, and tells the tree of those that came or went.
    pub fn probe_now(&self) {
        self.admin.probe_now();
    }

    /// Why a file is where it is. The path begins with `/`.
    pub fn explain(&self, path: &[u8]) -> Result<Explanation, Error> {
        self.admin.explain(path)
    }

    /// The pool at a glance. Waits for no branch that does not answer.
    pub fn status(&self) -> Status {
        self.admin.status()
    }

    /// Ends the pool's threads. A copy under way is dropped; a commit under way is finished.
    pub fn shut_down(&self) {
        self.admin.shut_down();
    }

    /// Forgets a branch. Without `force` only one that holds no file, and no directory vanishes with it; with it, its
    /// files stay on it and vanish from the tree.
    pub fn remove_branch(&self, name: &str, force: bool) -> Result<(), Error> {
        self.admin.remove_branch(name, force)
    }
}
