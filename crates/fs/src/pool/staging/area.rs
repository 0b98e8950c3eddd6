//! The place where staged files lie: a tmpfs that the mount makes, or a folder on memory that keeps its contents.
//!
//! The tree begins one level below, so that whoever can reach the path cannot look around in it: the level above is root's alone, and the
//! tree's own root has the attributes that users see.

use std::fs::{DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, UnmountFlags};
use umbrella_units::{Amount, BranchId, ByteSize};

use super::Staging;
use crate::branch::mounts::fs_kind;
use crate::branch::{Branch, StateDir};
use crate::error::Error;
use crate::spec::{BranchSpec, STAGING, StagingSpec};

/// Below the area's path.
const TREE: &str = "tree";
/// Below a path that is not ours alone.
const FOLDER: &str = "umbrella-staging";

/// Opens the staging area that is configured, or one that an earlier mount left with files in it.
pub(crate) fn open(
    configured: Option<&StagingSpec>,
    state_dir: &Path,
    state: &Arc<StateDir>,
    id: BranchId,
) -> Result<Option<Staging>, Error> {
    let base = configured.map(|spec| base_of(spec, state_dir, state));
    let known = state.branch(STAGING);
    let left =
        known.as_ref().and_then(|known| known.path.parent().map(Path::to_path_buf)).filter(|left| is_there(left));
    if let (Some(left), false) = (&left, left == base) {
        let other = base.is_some();
        tracing::warn!(area = %left.display(), "files of an earlier staging area go to their branches first");
        if other {
            tracing::warn!("nothing is staged until the next mount, which uses the new staging area");
        }
        let spec = StagingSpec { path: None, volatile: is_tmpfs(left), ..StagingSpec::default() };
        return take(spec, left, state, id, false).map(Some);
    }
    let (Some(spec), Some(base)) = (configured, base) else {
        if known.is_some() {
            forget(state);
        }
        return Ok(None);
    };
    let failed = |source: io::Error| Error::Staging { path: base.clone(), reason: source.to_string() };
    make_dir(&base, 0o700).map_err(failed)?;
    if spec.volatile && !is_tmpfs(&base) {
        if base.read_dir().map_err(failed)?.next().is_some() {
            return Err(Error::Staging { path: base.clone(), reason: "the directory is not empty".to_owned() });
        }
        mount(&base, spec.size).map_err(failed)?;
        // Another one than was known: its inode numbers begin anew.
        forget(state);
    }
    if !spec.volatile && known.is_some() && !base.join(TREE).is_dir() {
        forget(state);
    }
    make_dir(&base.join(TREE), 0o755).map_err(failed)?;
    take(spec.clone(), &base, state, id, true).map(Some)
}

fn base_of(spec: &StagingSpec, state_dir: &Path, state: &StateDir) -> PathBuf {
    match &spec.path {
        Some(path) if spec.volatile => path.clone(),
        Some(path) => path.join(FOLDER),
        None => state_dir.join("staging").join(state.key()),
    }
}

/// What a spec looks like whose files are at `base`.
fn take(spec: StagingSpec, base: &Path, state: &Arc<StateDir>, id: BranchId, accepts: bool) -> Result<Staging, Error> {
    let branch = Branch::new(id, branch_spec(base.join(TREE)), Arc::clone(state));
    branch.bring_online().map_err(|error| Error::Staging { path: base.to_owned(), reason: error.to_string() })?;
    let staging = Staging::new(spec, branch, accepts);
    staging.watch_memory();
    Ok(staging)
}

fn branch_spec(path: PathBuf) -> BranchSpec {
    BranchSpec {
        name: STAGING.to_owned(),
        path,
        keep_free: Amount::Bytes(ByteSize(0)),
        headroom: None,
        read_only: false,
        optional: true,
        require_mount: Some(false),
        min_stay: std::time::Duration::ZERO,
        passthrough: false,
        write_back: None,
    }
}

/// The area is empty and not used any more.
pub(super) fn end(staging: &Staging, state: &StateDir) {
    let Some(base) = staging.branch.spec.path.parent() else { return };
    staging.branch.take_offline("unmounted".to_owned());
    if is_tmpfs(base) {
        if let Err(error) = rustix::mount::unmount(base, UnmountFlags::DETACH) {
            tracing::warn!(area = %base.display(), %error, "the staging area stays mounted");
            return;
        }
        forget(state);
        // Where it was configured by path, the directory is the user's.
        if staging.spec.path.is_none() {
            let _leftover = std::fs::remove_dir(base);
        }
    } else if !staging.is_open_next_time() {
        forget(state);
    }
}

fn forget(state: &StateDir) {
    if let Err(error) = state.forget(STAGING) {
        tracing::warn!(%error, "the pool's memory of its staging area could not be removed");
    }
}

/// Whether there is an area with a tree in it.
fn is_there(base: &Path) -> bool {
    base.join(TREE).join(crate::pool::HIDDEN).is_dir()
}

fn is_tmpfs(base: &Path) -> bool {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(dir) = rustix::fs::open(base, flags, Mode::empty()) else { return false };
    fs_kind(std::os::fd::AsFd::as_fd(&dir)).is_ok_and(|kind| kind.is_mount && kind.fs_type == "tmpfs")
}

fn make_dir(path: &Path, mode: u32) -> io::Result<()> {
    match DirBuilder::new().recursive(true).mode(mode).create(path) {
        // The mode of one that was there, or was narrowed by the umask.
        Ok(()) if mode == 0o700 => std::fs::set_permissions(path, Permissions::from_mode(mode)),
        done => done,
    }
}

fn mount(base: &Path, size: Option<Amount>) -> io::Result<()> {
    // Without a size: half of the memory, as the kernel has it. A little more than may wait, for directories.
    let size = match size {
        Some(Amount::Bytes(ByteSize(bytes))) => format!(",size={}", bytes.saturating_add(bytes / 8).max(4 << 20)),
        Some(_) | None => String::new(),
    };
    let options = std::ffi::CString::new(format!("mode=0700{size}")).map_err(io::Error::other)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    rustix::mount::mount("umbrella-staging", base, "tmpfs", flags, options.as_c_str())?;
    Ok(())
}
