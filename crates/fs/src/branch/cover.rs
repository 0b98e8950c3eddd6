//! A branch's path, covered while the pool is mounted: an empty read-only directory (the "dummy" of UmbrellaFS) is mounted over it.
//!
//! Why: `mv /srv/pool/film /mnt/disk1/film` deletes the only copy when the film lies on disk1. `mv` removes the target first, and that is the source.
//!
//! 1. A branch comes online: its root is opened, then its path is covered. All calls go by the root's descriptor.
//! 2. It goes offline, or the pool is unmounted: the cover goes, so that the disk can be unmounted, repaired and mounted again.
//! 3. A killed daemon leaves its covers. Their source names the pool, so the pool's next mount and `umbrella unmount` find them and take them away
//!    before anything looks at the branches.

use std::os::fd::AsFd;
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

/// Whether a path is covered, by whichever pool.
#[must_use]
pub fn is_covered(path: &Path) -> bool {
    cover_at(path).is_some()
}

/// Whether a pool covers a path.
pub(super) fn is_covered_by(path: &Path, pool: &Path) -> bool {
    cover_at(path).is_some_and(|source| source == source_of(pool))
}

/// The source of the cover that is the topmost mount there.
fn cover_at(path: &Path) -> Option<String> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::open(path, flags, Mode::empty()).ok()?;
    let (kind, source) = mounted_at(dir.as_fd())?;
    let source = unescape(source.as_bytes()).to_string_lossy().into_owned();
    (kind == "tmpfs" && source.starts_with(SOURCE)).then_some(source)
}

/// Takes a pool's covers from a path.
pub(super) fn uncover(path: &Path, pool: &Path) -> rustix::io::Result<()> {
    while is_covered_by(path, pool) {
        rustix::mount::unmount(path, UnmountFlags::DETACH)?;
    }
    Ok(())
}

/// Takes away all covers that a daemon of this pool left behind, and says how many. It must not run any more.
pub fn uncover_all(pool: &Path) -> usize {
    let table = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    let mut taken = 0;
    for path in covered_by(&table, &source_of(pool)) {
        match uncover(&path, pool) {
            Ok(()) => {
                taken += 1;
                tracing::info!(path = %path.display(), "the cover that a killed daemon left is taken away");
            }
            Err(error) => tracing::warn!(path = %path.display(), %error, "the path stays covered: unmount it by hand"),
        }
    }
    taken
}

/// Where the table of mounts has a cover of this source.
fn covered_by(table: &[u8], source: &str) -> Vec<PathBuf> {
    let table = String::from_utf8_lossy(table);
    let path_of = |line: &str| {
        let (place, what) = line.split_once(" - ")?;
        let is_it = what.split(' ').nth(1).is_some_and(|found| unescape(found.as_bytes()) == Path::new(source));
        is_it.then(|| place.split(' ').nth(4).map(|path| unescape(path.as_bytes())))?
    };
    table.lines().filter_map(path_of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn covers_of_a_pool_are_found_by_their_source() {
        let table = b"22 1 254:0 / / rw - ext4 /dev/vda rw\n\
            40 22 0:35 / /mnt/my\\040disk ro,nosuid shared:3 - tmpfs umbrella-cover:/srv/my\\040pool ro\n\
            41 22 0:36 / /mnt/b ro - tmpfs umbrella-cover:/srv/other ro\n";
        let pool = source_of(Path::new("/srv/my pool"));
        assert_eq!(covered_by(table, &pool), [Path::new("/mnt/my disk")]);
        assert_eq!(covered_by(table, &source_of(Path::new("/srv"))), [] as [PathBuf; 0]);
    }
}
