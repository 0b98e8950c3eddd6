//! A branch's path, covered while the pool is mounted: an empty read-only directory (the "dummy" of UmbrellaFS) is
//! mounted over it.
//!
//! Why: `mv /srv/pool/film /mnt/disk1/film` deletes the only copy when the film lies on disk1. `mv` removes the target
//! first, and that is the source.
//!
//! 1. A branch comes online: its root is opened, then its path is covered. All calls go by the root's descriptor.
//! 2. It goes offline, or the pool is unmounted: the cover goes, so that the disk can be unmounted, repaired and
//!    mounted again.
//! 3. A start that fails takes away the covers that it has made: see `Covers`.
//! 4. A killed daemon leaves its covers. Their source names the pool, so the pool's next mount and `umbrella unmount`
//!    find them and take them away before anything looks at the branches.

use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, UnmountFlags};

use super::mounts::mounted_at;
use super::not_mounted::unescape;

/// What the source of a cover begins with.
const SOURCE: &str = "umbrella-cover:";

/// What the table of mounts has as the source of a pool's covers.
fn source_of(pool: &Path) -> String {
    format!("{SOURCE}{}", pool.display())
}

/// Covers a path.
pub(super) fn cover(path: &Path, pool: &Path) -> rustix::io::Result<()> {
    let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    rustix::mount::mount(source_of(pool), path, "tmpfs", flags, Some(c"mode=555,size=4k"))
}

/// A cover in the table of mounts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cover {
    /// The path that it hides.
    pub path: PathBuf,
    /// The mount point of the pool that made it.
    pub pool: PathBuf,
}

/// All covers of this machine.
#[must_use]
pub fn all() -> Vec<Cover> {
    listed(&std::fs::read("/proc/self/mountinfo").unwrap_or_default())
}

/// Whether a path is covered, by whichever pool.
#[must_use]
pub fn is_covered(path: &Path) -> bool {
    pool_over(path).is_some()
}

/// The pool whose cover is the topmost mount at a path.
#[must_use]
pub fn pool_over(path: &Path) -> Option<PathBuf> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::open(path, flags, Mode::empty()).ok()?;
    let (kind, source) = mounted_at(dir.as_fd())?;
    let source = unescape(source.as_bytes());
    if kind == "tmpfs" { pool_of(&source) } else { None }
}

/// The pool that the source of a cover names.
fn pool_of(source: &Path) -> Option<PathBuf> {
    let pool = source.as_os_str().as_bytes().strip_prefix(SOURCE.as_bytes())?;
    Some(PathBuf::from(OsStr::from_bytes(pool)))
}

/// Whether a pool covers a path.
pub(super) fn is_covered_by(path: &Path, pool: &Path) -> bool {
    pool_over(path).is_some_and(|over| over.display().to_string() == pool.display().to_string())
}

/// Takes away all covers at a path, of whichever pool.
pub fn uncover_path(path: &Path) -> rustix::io::Result<()> {
    while is_covered(path) {
        rustix::mount::unmount(path, UnmountFlags::DETACH)?;
    }
    Ok(())
}

/// Takes a pool's covers from a path.
pub(super) fn uncover(path: &Path, pool: &Path) -> rustix::io::Result<()> {
    while is_covered_by(path, pool) {
        rustix::mount::unmount(path, UnmountFlags::DETACH)?;
    }
    Ok(())
}

/// Takes away all covers that this pool has, and says from where. No daemon of it may use them.
pub fn uncover_all(pool: &Path) -> Vec<PathBuf> {
    let mut taken = Vec::new();
    let shown = pool.display().to_string();
    for Cover { path, .. } in all().into_iter().filter(|cover| cover.pool.display().to_string() == shown) {
        match uncover(&path, pool) {
            Ok(()) => {
                tracing::info!(path = %path.display(), "the path is visible again");
                taken.push(path);
            }
            Err(error) => tracing::warn!(path = %path.display(), %error, "the path stays hidden: unmount it by hand"),
        }
    }
    taken
}

/// The covers of a pool whose start may still fail: dropped, it takes them away.
pub(crate) struct Covers<'a>(pub(crate) &'a Path);

impl Drop for Covers<'_> {
    fn drop(&mut self) {
        uncover_all(self.0);
    }
}

/// The covers in a table of mounts, each path once.
fn listed(table: &[u8]) -> Vec<Cover> {
    let table = String::from_utf8_lossy(table);
    let cover_of = |line: &str| {
        let (place, what) = line.split_once(" - ")?;
        let pool = pool_of(&unescape(what.split(' ').nth(1)?.as_bytes()))?;
        Some(Cover { path: unescape(place.split(' ').nth(4)?.as_bytes()), pool })
    };
    let mut covers: Vec<Cover> = Vec::new();
    for cover in table.lines().filter_map(cover_of) {
        if !covers.contains(&cover) {
            covers.push(cover);
        }
    }
    covers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn covers_of_a_pool_are_found_by_their_source() {
        let table = b"22 1 254:0 / / rw - ext4 /dev/vda rw\n\
            40 22 0:35 / /mnt/my\\040disk ro,nosuid shared:3 - tmpfs umbrella-cover:/srv/my\\040pool ro\n\
            41 22 0:36 / /mnt/b ro - tmpfs umbrella-cover:/srv/other ro\n";
        let cover = |path: &str, pool: &str| Cover { path: path.into(), pool: pool.into() };
        assert_eq!(listed(table), [cover("/mnt/my disk", "/srv/my pool"), cover("/mnt/b", "/srv/other")]);
    }
}
