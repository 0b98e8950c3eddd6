//! The place where staged files lie: a tmpfs that the mount makes, or a folder on memory that keeps its contents.
//!
//! The tree begins one level below the path, so a process that can reach the path cannot look around in it. Only root
//! can enter the level above. The tree's own root has the attributes that users see.

use std::fs::DirBuilder;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Access, Mode, OFlags};
use rustix::mount::{MountFlags, UnmountFlags};
use umbrella_policy::placement::Rules;
use umbrella_units::{Amount, BranchId, ByteSize};

use crate::area::{Area, Intake};
use crate::branch::mounts::{fs_kind, mounted_at};
use crate::branch::state::StateError;
use crate::branch::{Branch, StateDir, pool_at};
use crate::error::Error;
use crate::ground::advice::advised;
use crate::spec::{AccessTimes, BranchSpec, PoolSpec, STAGING, StagingSpec, resolve};

/// Below the area's path.
const TREE: &str = "tree";
/// Below a path that is not ours alone.
const FOLDER: &str = "umbrella-staging";
/// What the area's tmpfs is called in the table of mounts.
const SOURCE: &str = "umbrella-staging";

/// At a mount: the staging area that new files need, or one that an earlier mount left with files in it. A pool can do
/// without one that the configuration does not ask for.
pub(crate) fn open_at_mount(
    pool: &PoolSpec,
    rules: &Rules,
    state: &Arc<StateDir>,
    id: BranchId,
) -> Result<Option<Area>, Error> {
    let wanted = required_area(pool, rules);
    match open(wanted, pool.access_times, state, id) {
        Err(error) if wanted.is_some_and(StagingSpec::is_optional) => {
            tracing::warn!(%error, "new files do not wait in memory: each goes where the rules place it without its size, and may move when it is closed");
            Ok(None)
        }
        done => done,
    }
}

/// The staging area that new files need.
pub(crate) fn required_area<'s>(pool: &'s PoolSpec, rules: &Rules) -> Option<&'s StagingSpec> {
    pool.staging.as_ref().filter(|spec| rules.may_stage(spec.mode))
}

/// Opens the staging area that is wanted, or one that was left with files in it. Steps, and what a kill after each
/// leaves:
///
/// 1. A tmpfs is mounted, or a folder made: the next mount uses it, or it stays and is empty.
/// 2. It gets the marker of a branch: the same.
/// 3. The state directory remembers it: the next mount opens it, or lets go of it.
///
/// Where a step fails, no tmpfs stays that was mounted here.
pub(crate) fn open(
    configured: Option<&StagingSpec>,
    access_times: AccessTimes,
    state: &Arc<StateDir>,
    id: BranchId,
) -> Result<Option<Area>, Error> {
    let take = |spec, base: &Path, intake| {
        let branch = Branch::new(id, branch_spec(base.join(TREE)), Arc::clone(state));
        branch.set_access_times(access_times);
        take(spec, base, intake, branch)
    };
    let known = state.branch(STAGING);
    let (spec, base) = match area_to_open(configured, state)? {
        AreaToOpen::Left(left) => {
            tracing::warn!(area = %left.display(), "files of an earlier staging area go to their branches first");
            if configured.is_some() {
                tracing::warn!("nothing is staged until the next mount, which uses the new staging area");
            }
            let spec = StagingSpec { path: None, volatile: is_ours(&left), ..StagingSpec::default() };
            return take(spec, &left, Intake::Nothing).map(Some);
        }
        AreaToOpen::Configured(spec, base) => (spec, base),
        AreaToOpen::Nowhere => {
            if known.is_some() {
                forget(state);
            }
            return Ok(None);
        }
    };
    let failed = |source: io::Error| Error::Staging { path: base.clone(), reason: source.to_string() };
    let mut is_mounted_here = false;
    if spec.volatile {
        make_mount_point(&base).map_err(failed)?;
        if !is_ours(&base) {
            mount(&base, spec.size).map_err(failed)?;
            is_mounted_here = true;
            // Another one than was known: its inode numbers begin anew. One that was elsewhere may come back.
            let was_here = known.as_ref().is_some_and(|known| known.path == base.join(TREE));
            if was_here { forget_for_good(state) } else { forget(state) }
        }
    } else {
        make_private(&base).map_err(failed)?;
        if known.is_some() && !base.join(TREE).is_dir() {
            forget(state);
        }
    }
    let has_tree = base.join(TREE).is_dir();
    let made = if has_tree { Ok(()) } else { DirBuilder::new().mode(0o755).create(base.join(TREE)).map_err(failed) };
    let opened = made.and_then(|()| take(spec.clone(), &base, Intake::NewFiles));
    if opened.is_err() && is_mounted_here {
        let _stays_empty = rustix::mount::unmount(&base, UnmountFlags::DETACH);
    }
    opened.map(Some)
}

/// Why [`open`] would fail, as far as that is seen with nothing changed. It cannot know whether the kernel mounts a
/// tmpfs.
pub(crate) fn check(wanted: &StagingSpec, state: &Arc<StateDir>, id: BranchId) -> Result<(), Error> {
    let base = match area_to_open(Some(wanted), state)? {
        AreaToOpen::Nowhere => return Ok(()),
        AreaToOpen::Left(left) => left,
        AreaToOpen::Configured(spec, base) => {
            let checked = check_base(spec, &base);
            checked.map_err(|source| Error::Staging { path: base.clone(), reason: source.to_string() })?;
            base
        }
    };
    let tree = base.join(TREE);
    if !tree.is_dir() {
        return Ok(());
    }
    let branch = Branch::new(id, branch_spec(tree), Arc::clone(state));
    branch.check().map_err(|error| Error::Staging { path: base, reason: advised(&error) })
}

/// The area that new files need, or that files are left in.
enum AreaToOpen<'s> {
    /// An earlier mount left it at this path, with files in it.
    Left(PathBuf),
    Configured(&'s StagingSpec, PathBuf),
    Nowhere,
}

/// Changes nothing. An error where the configured place is another pool's.
fn area_to_open<'s>(configured: Option<&'s StagingSpec>, state: &StateDir) -> Result<AreaToOpen<'s>, Error> {
    let base = configured.map(|spec| base_of(spec, state));
    let known = state.branch(STAGING);
    let is_known = known.is_some();
    let left = known.and_then(|known| known.path.parent().map(Path::to_path_buf)).filter(|left| is_there(left));
    if let Some(left) = left.filter(|left| Some(left) != base.as_ref()) {
        return Ok(AreaToOpen::Left(left));
    }
    let (Some(spec), Some(base)) = (configured, base) else { return Ok(AreaToOpen::Nowhere) };
    if !is_known && pool_at(&base.join(TREE)).is_some_and(|pool| pool != state.pool_id()) {
        let reason = "it holds the staged files of another pool or state directory (mount that pool again, or empty the area and unmount it)";
        return Err(Error::Staging { path: base, reason: reason.to_owned() });
    }
    Ok(AreaToOpen::Configured(spec, base))
}

/// Why `base` could not be made or used: what [`make_mount_point`] or [`make_private`] would say.
fn check_base(spec: &StagingSpec, base: &Path) -> io::Result<()> {
    match (spec.volatile, base.try_exists()?) {
        (true, true) => return may_be_mounted_on(base),
        (true, false) => {}
        (false, true) => drop(open_private(base)?),
        (false, false) => would_keep_its_contents(base)?,
    }
    let existing = base.ancestors().find(|path| path.exists()).unwrap_or(base);
    rustix::fs::access(existing, Access::WRITE_OK).map_err(io::Error::from)
}

/// What will keep the area from being opened at the next mount, as far as it can be seen without changing anything.
pub fn obstacle(spec: &StagingSpec) -> Option<String> {
    let path = resolve(spec.path.as_ref()?);
    let looked = if spec.volatile {
        match path.try_exists() {
            Ok(false) => Ok(()),
            Ok(true) => may_be_mounted_on(&path),
            Err(error) => Err(error),
        }
    } else {
        open_dir(&path).and_then(|dir| keeps_its_contents(dir.as_fd()))
    };
    looked.err().map(|error| error.to_string())
}

fn base_of(spec: &StagingSpec, state: &StateDir) -> PathBuf {
    match &spec.path {
        // One spelling, also where a link leads there.
        Some(path) if spec.volatile => resolve(path),
        Some(path) => resolve(path).join(FOLDER),
        None => state.staging_area(),
    }
}

/// Takes the area at `base` as a branch.
fn take(spec: StagingSpec, base: &Path, intake: Intake, branch: Arc<Branch>) -> Result<Area, Error> {
    branch.bring_online().map_err(|error| Error::Staging { path: base.to_owned(), reason: advised(&error) })?;
    let area = Area::new(spec, branch, intake);
    area.watch_memory();
    Ok(area)
}

fn branch_spec(path: PathBuf) -> BranchSpec {
    BranchSpec { optional: true, require_mount: Some(false), passthrough: false, ..BranchSpec::new(STAGING, path) }
}

/// The area is empty and not used any more.
pub(crate) fn end(area: &Area, state: &StateDir) {
    let Some(base) = area.branch.spec.path.parent() else { return };
    area.branch.close();
    if is_ours(base) {
        if let Err(error) = rustix::mount::unmount(base, UnmountFlags::DETACH) {
            tracing::warn!(area = %base.display(), %error, "cannot unmount the staging area");
            return;
        }
        forget_for_good(state);
        // Where it was configured by path, the directory is the user's.
        if area.spec.path.is_none() {
            let _leftover = std::fs::remove_dir(base);
        }
    } else if area.intake == Intake::Nothing {
        // No files are left in it; the caller has checked.
        let _leftover = std::fs::remove_dir_all(base);
        forget_for_good(state);
    }
}

/// The area may come back.
fn forget(state: &StateDir) {
    report(state.forget(STAGING));
}

/// For an area that was in memory, or has ended: no change waits for it any more.
fn forget_for_good(state: &StateDir) {
    report(state.forget_area(STAGING));
}

fn report(forgotten: Result<(), StateError>) {
    if let Err(error) = forgotten {
        tracing::warn!(%error, "cannot remove the pool's record of its staging area");
    }
}

/// Whether there is an area with a tree in it.
fn is_there(base: &Path) -> bool {
    base.join(TREE).join(crate::branch::HIDDEN_DIR).is_dir()
}

/// Whether a tmpfs that an area was made on is mounted there: by this program, and not another program's tmpfs with
/// files in it.
fn is_ours(base: &Path) -> bool {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(dir) = rustix::fs::open(base, flags, Mode::empty()) else { return false };
    mounted_at(dir.as_fd()).is_some_and(|(kind, source)| kind == "tmpfs" && source == SOURCE)
}

/// A directory to mount on: ours already, or empty. What is there is looked at before anything is changed.
fn make_mount_point(base: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(base)?;
    may_be_mounted_on(base)
}

fn may_be_mounted_on(base: &Path) -> io::Result<()> {
    if is_ours(base) || base.read_dir()?.next().is_none() {
        return Ok(());
    }
    Err(io::Error::other(
        "the directory is not empty; a volatile staging area needs one of its own to mount a tmpfs on",
    ))
}

/// A folder of root's alone, in a directory that may belong to any user.
fn make_private(base: &Path) -> io::Result<()> {
    if !base.try_exists()? {
        would_keep_its_contents(base)?;
    }
    match DirBuilder::new().mode(0o700).create(base) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        done => done?,
    }
    rustix::fs::fchmod(open_private(base)?, Mode::RWXU)?;
    Ok(())
}

/// Opens a folder that keeps its contents and is the daemon's.
fn open_private(base: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = rustix::fs::open(base, flags, Mode::empty())?;
    keeps_its_contents(dir.as_fd())?;
    if rustix::fs::fstat(&dir)?.st_uid != rustix::process::geteuid().as_raw() {
        return Err(io::Error::other("it belongs to another user (chown it to the daemon's user)"));
    }
    Ok(dir)
}

fn open_dir(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Asked before a folder is made at `base`, so that none stays where it cannot be used.
fn would_keep_its_contents(base: &Path) -> io::Result<()> {
    keeps_its_contents(open_dir(base.parent().unwrap_or(base))?.as_fd())
}

fn keeps_its_contents(dir: BorrowedFd<'_>) -> io::Result<()> {
    if matches!(fs_kind(dir)?.fs_type.as_str(), "tmpfs" | "ramfs") {
        return Err(io::Error::other(
            "it is in memory and loses its contents in a power cut (leave out volatile = false)",
        ));
    }
    Ok(())
}

const FLAGS: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV).union(MountFlags::NOEXEC);

fn mount(base: &Path, size: Option<Amount>) -> io::Result<()> {
    // Without a size: half of the memory, as the kernel has it.
    let size = bytes_for(size).map_or_else(String::new, |bytes| format!(",size={bytes}"));
    let options = std::ffi::CString::new(format!("mode=0700{size}")).map_err(io::Error::other)?;
    rustix::mount::mount(SOURCE, base, "tmpfs", FLAGS, options.as_c_str())?;
    Ok(())
}

/// How large the tmpfs is to be: a little more than may wait, for directories.
fn bytes_for(size: Option<Amount>) -> Option<u64> {
    match size {
        Some(Amount::Bytes(ByteSize(bytes))) => Some(bytes.saturating_add(bytes / 8).max(4 << 20)),
        Some(_) | None => None,
    }
}

/// Another size may wait: the tmpfs follows it. The kernel refuses less than what is in it.
pub(super) fn resize(area: &Area) {
    let Some(base) = area.branch.spec.path.parent().filter(|base| is_ours(base)) else { return };
    let size = bytes_for(area.settings().size).map_or_else(|| "50%".to_owned(), |bytes| bytes.to_string());
    let Ok(options) = std::ffi::CString::new(format!("size={size}")) else { return };
    if let Err(error) = rustix::mount::mount_remount(base, FLAGS, options.as_c_str()) {
        tracing::warn!(area = %base.display(), %error, "cannot resize the tmpfs of the staging area");
    }
}
