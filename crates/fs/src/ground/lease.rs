//! Checks whether another process has a file open, with a lease on the branch. That includes mappings that outlive
//! their descriptor: the mount does not learn of them when they bypass the daemon.
//!
//! The check takes a lease and gives it back at once: the kernel refuses it while the file is open elsewhere.

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;

/// Whether another process has the file open in any way. `fd` is open for reading only. `None`: this file system has no
/// leases.
pub(crate) fn is_open_elsewhere(fd: BorrowedFd<'_>) -> Option<bool> {
    is_refused(fd, libc::F_WRLCK)
}

/// Whether any process has the file open for writing, or mapped so. `fd` is open for reading only. `None`: this file
/// system has no leases.
pub(crate) fn is_open_for_writing(fd: BorrowedFd<'_>) -> Option<bool> {
    is_refused(fd, libc::F_RDLCK)
}

/// Why there is no lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoLease {
    /// The file is open or mapped in a way that the lease excludes.
    InUse,
    /// This file system has no leases, or the caller may not have one.
    Unsupported,
}

/// A lease that is held until it is dropped. Another open of the file meanwhile waits, and [`Lease::is_held`] says so.
#[derive(Debug)]
pub struct Lease<'a> {
    fd: BorrowedFd<'a>,
    kind: i32,
}

impl<'a> Lease<'a> {
    /// No other process has the file open in any way. `fd` is open for reading only.
    pub fn exclusive(fd: BorrowedFd<'a>) -> Result<Lease<'a>, NoLease> {
        Lease::take(fd, libc::F_WRLCK)
    }

    /// No process has the file open for writing, or mapped so. `fd` is open for reading only.
    pub fn shared(fd: BorrowedFd<'a>) -> Result<Lease<'a>, NoLease> {
        Lease::take(fd, libc::F_RDLCK)
    }

    fn take(fd: BorrowedFd<'a>, kind: i32) -> Result<Lease<'a>, NoLease> {
        ignore_signal();
        match set(fd, kind) {
            Ok(()) => Ok(Lease { fd, kind }),
            Err(Errno::AGAIN) => Err(NoLease::InUse),
            Err(_) => Err(NoLease::Unsupported),
        }
    }

    /// Whether no process has opened the file since.
    pub fn is_held(&self) -> bool {
        // SAFETY: F_GETLEASE takes no argument and touches no memory of ours; the descriptor is borrowed.
        unsafe { libc::fcntl(self.fd.as_raw_fd(), libc::F_GETLEASE) == self.kind }
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        let _ = set(self.fd, libc::F_UNLCK);
    }
}

fn is_refused(fd: BorrowedFd<'_>, kind: i32) -> Option<bool> {
    match set(fd, kind) {
        Ok(()) => {
            // An open in between was delayed for this moment only.
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

/// A lease that is broken while it is being taken sends SIGIO, which would end the process.
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

    use super::{Lease, NoLease, ignore_signal, is_open_elsewhere, is_open_for_writing};

    #[test]
    fn a_lease_knows_who_came_before_it_and_who_comes_while_it_is_held() {
        use rustix::fs::{Mode, OFlags};
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, "x").unwrap();
        let file = File::open(&path).unwrap();
        let reader = File::open(&path).unwrap();
        assert_eq!(Lease::exclusive(file.as_fd()).map(drop), Err(NoLease::InUse));
        assert!(Lease::shared(file.as_fd()).is_ok());
        drop(reader);
        let lease = Lease::exclusive(file.as_fd()).unwrap();
        assert!(lease.is_held());
        let late = rustix::fs::open(&path, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty());
        assert_eq!(late.map(drop), Err(rustix::io::Errno::WOULDBLOCK));
        assert!(!lease.is_held());
        drop(lease);
        assert!(File::open(&path).is_ok());
    }

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
