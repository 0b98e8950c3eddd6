//! Who asks, and with which umask.
//!
//! The kernel checks the caller's permissions (`default_permissions`, with supplementary groups and ACLs). What is left
//! is the owner of new files and the umask: that one is set on the thread itself, so that the branch's file system
//! applies it only where the directory has no default ACL, as POSIX wants.

use std::cell::Cell;

/// The caller of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    /// File-system user id.
    pub uid: u32,
    /// File-system group id.
    pub gid: u32,
    /// For creations: bits to clear where no default ACL rules.
    pub umask: u32,
}

impl Caller {
    /// The daemon itself.
    pub const ROOT: Caller = Caller { uid: 0, gid: 0, umask: 0 };
}

thread_local! {
    static UMASK: Cell<Option<u32>> = const { Cell::new(None) };
}

/// Sets this thread's umask. The first call gives the thread a file-system context of its own.
pub(crate) fn set_umask(umask: u32) {
    UMASK.with(|current| {
        if current.get() == Some(umask) {
            return;
        }
        if current.get().is_none() {
            // SAFETY: CLONE_FS only stops this thread from sharing umask, root and working directory with the others.
            let unshared = unsafe { libc::unshare(libc::CLONE_FS) };
            debug_assert_eq!(unshared, 0, "unshare(CLONE_FS) cannot fail for root");
        }
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(umask));
        current.set(Some(umask));
    });
}
