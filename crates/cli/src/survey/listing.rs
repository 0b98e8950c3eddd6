//! Directories and files below the root of a branch. No path leads out of it: no symbolic link is followed.

use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use umbrella_fs::branch::HIDDEN_DIR;

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EntryKind {
    Directory,
    File,
    Other,
}

/// A name in a directory.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: OsString,
    pub(super) kind: EntryKind,
}

/// An open directory.
#[derive(Debug)]
pub(crate) struct Dir(OwnedFd);

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Dir {
    /// The root of a branch. Here links are followed: the configuration may name one.
    pub(crate) fn root(path: &Path) -> Result<Dir, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Dir(rustix::fs::open(path, flags, Mode::empty())?))
    }

    /// What is in it, sorted by name. `at_root` leaves out what the pool keeps there.
    pub(super) fn list(&self, at_root: bool) -> Result<Vec<Entry>, Errno> {
        let mut entries = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.0)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") || at_root && name == HIDDEN_DIR.as_bytes() {
                continue;
            }
            let name = OsString::from_vec(name.to_vec());
            let kind = match entry.file_type() {
                FileType::Unknown => match rustix::fs::statat(&self.0, &name, AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(stat) => FileType::from_raw_mode(stat.st_mode),
                    // Deleted since.
                    Err(Errno::NOENT) => continue,
                    Err(error) => return Err(error),
                },
                known => known,
            };
            let kind = match kind {
                FileType::Directory => EntryKind::Directory,
                FileType::RegularFile => EntryKind::File,
                _ => EntryKind::Other,
            };
            entries.push(Entry { name, kind });
        }
        entries.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        Ok(entries)
    }
}

/// The directory at a path below the root; the empty path is the root itself.
pub(crate) fn open_below(root: &Dir, path: &Path) -> Result<Dir, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let open = |flags| rustix::fs::openat2(root, path, flags, Mode::empty(), within);
    without_access_time(flags, open).map(Dir)
}

/// A regular file in a directory, for reading. Anything else is refused, and is not waited for.
pub(crate) fn open_file(dir: &Dir, name: &std::ffi::OsStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let fd = without_access_time(flags, |flags| rustix::fs::openat(dir, name, flags, Mode::empty()))?;
    match FileType::from_raw_mode(rustix::fs::fstat(&fd)?.st_mode) {
        FileType::RegularFile => Ok(fd),
        _ => Err(Errno::INVAL),
    }
}

/// Opens so that reads change no access time. Only the owner and root may ask for that.
fn without_access_time(flags: OFlags, open: impl Fn(OFlags) -> Result<OwnedFd, Errno>) -> Result<OwnedFd, Errno> {
    match open(flags | OFlags::NOATIME) {
        Err(Errno::PERM) => open(flags),
        opened => opened,
    }
}
