//! Who else has a file open, as the kernel of the branch sees it: also mappings that outlive their descriptor, which the mount is
//! not told of when they go past the daemon.
//!
//! Asked by taking a lease and giving it back at once: the kernel refuses it while the file is open elsewhere.

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;

/// Whether somebody else has the file open in any way. `fd` is open for reading only. `None`: this file system has no leases.
pub(crate) fn is_open_elsewhere(fd: BorrowedFd<'_>) -> Option<bool> {
    is_refused(fd, libc::F_WRLCK)
}

/// Whether anybody has the file open for writing, or mapped so. `fd` is open for reading only. `None`: this file system has no leases.
pub(crate) fn is_open_for_writing(fd: BorrowedFd<'_>) -> Option<bool> {
    is_refused(fd, libc::F_RDLCK)
}

fn is_refused(fd: BorrowedFd<'_>, kind: i32) -> Option<bool> {
    match set(fd, kind) {
        Ok(()) => {
            // Who came between was held up for this moment only.
            let _ = set(fd, libc::F_UNLCK);
            Some(false)
        }
        Err(Errno::AGAIN) => Some(true),
        Err(_) => None,
    }
}

fn set(fd: BorrowedFd<'_>, kind: i32) -> Result<(), Errno> {
    // SAFETY: F_SETLEASE takes an integer and touches no memory of ours; the descriptor is borrowed for the call.
    match unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETLEASE, kind) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error().raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error)),
    }
}

/// A lease that is broken while it is asked for sends SIGIO, which would end the process.
pub(crate) fn ignore_signal() {
    // SAFETY: SIG_IGN installs no handler; nothing else in the process uses SIGIO.
    unsafe {
        libc::signal(libc::SIGIO, libc::SIG_IGN);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;

    use super::{ignore_signal, is_open_elsewhere, is_open_for_writing};

    #[test]
    fn a_mapping_that_outlives_its_descriptor_is_seen() {
        ignore_signal();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, vec![0; 4096]).unwrap();
        let ask = || is_open_elsewhere(File::open(&path).unwrap().as_fd());
        let written = || is_open_for_writing(File::open(&path).unwrap().as_fd());
        assert_eq!((ask(), written()), (Some(false), Some(false)));
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let length = 4096;
        // SAFETY: a fresh mapping of a whole page that nothing else uses; unmapped below.
        let mapping = unsafe {
            use std::os::fd::AsRawFd;
            let kind = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(std::ptr::null_mut(), length, kind, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        assert_ne!(mapping, libc::MAP_FAILED);
        drop(file);
        assert_eq!((ask(), written()), (Some(true), Some(true)));
        // SAFETY: exactly the mapping made above.
        unsafe { libc::munmap(mapping, length) };
        assert_eq!(ask(), Some(false));
        let reader = File::open(&path).unwrap();
        assert_eq!((ask(), written()), (Some(true), Some(false)), "a reader");
        drop(reader);
        assert_eq!(ask(), Some(false));
    }
}
