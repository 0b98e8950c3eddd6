//! Whether a directory is there where a disk was meant: the mount point of a disk that is not mounted (yet).
//!
//! Adding a branch before its disk is mounted would fill the root file system. So a directory that is no mount point
//! itself is taken for a mistake in two cases:
//!
//! - It lies on the root file system.
//! - It, or a directory above it, is a mount point in /etc/fstab that is empty now.

use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, Statx, StatxFlags};
use thiserror::Error;

use super::mounts::fs_kind;
use crate::spec::resolve;

/// A disk is missing. The text is for people.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NotMounted {
    /// The directory is one like any other of the root file system.
    #[error("{path:?} is not a mount point: it lies on the root file system")]
    OnRoot {
        /// The directory.
        path: PathBuf,
    },
    /// Something should be mounted.
    #[error("/etc/fstab has a file system for {at:?}, and it is not mounted")]
    InFstab {
        /// Where.
        at: PathBuf,
    },
}

/// What is missing at a directory, if anything is. `None` for a directory that cannot be looked at.
pub fn not_mounted(path: &Path) -> Option<NotMounted> {
    let dir = rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    if fs_kind(dir.as_fd()).ok()?.is_mount {
        return None;
    }
    let real = resolve(path);
    // As libmount has it; tests and rescue systems name another.
    let fstab = std::env::var_os("LIBMOUNT_FSTAB").map_or_else(|| PathBuf::from("/etc/fstab"), PathBuf::from);
    let should_be = mount_points_of_fstab(&std::fs::read(fstab).unwrap_or_default());
    let mounted = mount_points(&std::fs::read("/proc/self/mountinfo").ok()?);
    let missing = should_be.into_iter().find(|at| real.starts_with(at) && !mounted.contains(at));
    let on_root = || is_on_root(dir.as_fd()).then(|| NotMounted::OnRoot { path: path.to_owned() });
    missing.map(|at| NotMounted::InFstab { at }).or_else(on_root)
}

/// By the mount, since one btrfs has many devices; or by the device, since the root file system may be mounted there a
/// second time.
fn is_on_root(dir: BorrowedFd<'_>) -> bool {
    let flags = AtFlags::STATX_DONT_SYNC;
    let here = rustix::fs::statx(dir, "", flags | AtFlags::EMPTY_PATH, StatxFlags::MNT_ID);
    let root = rustix::fs::statx(CWD, "/", flags, StatxFlags::MNT_ID);
    let (Ok(here), Ok(root)) = (here, root) else { return false };
    let mount = |stat: &Statx| (stat.stx_mask & StatxFlags::MNT_ID.bits() != 0).then_some(stat.stx_mnt_id);
    let device = |stat: &Statx| (stat.stx_dev_major, stat.stx_dev_minor);
    device(&here) == device(&root) || mount(&here).zip(mount(&root)).is_some_and(|(here, root)| here == root)
}

/// Its second words, comments and `none` aside.
fn mount_points_of_fstab(text: &[u8]) -> Vec<PathBuf> {
    let lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let words = lines.filter(|line| !line.starts_with(b"#")).filter_map(|line| {
        let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        words.nth(1).map(unescape)
    });
    // A slash at the end means nothing.
    let plain = words.map(|path| path.components().collect::<PathBuf>());
    plain.filter(|path| path.is_absolute() && path.parent().is_some()).collect()
}

/// Where the kernel has something mounted.
fn mount_points(table: &[u8]) -> Vec<PathBuf> {
    let lines = table.split(|byte| *byte == b'\n');
    lines.filter_map(|line| line.split(|byte| *byte == b' ').nth(4).map(unescape)).collect()
}

/// Blanks, newlines and backslashes of a path in a table of mounts are three octal digits.
pub fn unescape(word: &[u8]) -> PathBuf {
    let mut path = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((&byte, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|digits| byte == b'\\' && digits.iter().all(u8::is_ascii_digit));
        let code = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        if let Some(code) = code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            path.push(code);
            rest = after.get(3..).unwrap_or_default();
        } else {
            path.push(byte);
            rest = after;
        }
    }
    PathBuf::from(OsString::from_vec(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_points_of_fstab_are_its_second_words() {
        let text = b"# a comment\n\nUUID=1  /  ext4 defaults 0 1\n/dev/sdb1\t/mnt/my\\040disk/ ext4 noauto 0 0\n/dev/sdc none swap sw 0 0\nrubbish\n";
        assert_eq!(unescape(b"/a\\+12\\040b\\04"), Path::new("/a\\+12 b\\04"));
        assert_eq!(mount_points_of_fstab(text), [Path::new("/mnt/my disk")]);
    }

    #[test]
    fn a_plain_directory_on_the_root_file_system_is_no_disk_and_a_mount_point_is() {
        assert_eq!(not_mounted(Path::new("/etc")), Some(NotMounted::OnRoot { path: "/etc".into() }));
        for there in ["/", "/proc", "/does/not/exist"] {
            assert_eq!(not_mounted(Path::new(there)), None, "{there}");
        }
    }
}
