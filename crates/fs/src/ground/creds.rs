//! The caller of an operation, and its umask.
//!
//! The kernel checks the caller's permissions (`default_permissions`, with supplementary groups and ACLs). Two things
//! remain for the daemon: the owner of new files, and the umask. It sets the umask on the thread itself. So the
//! branch's file system applies it only where the directory has no default ACL, as POSIX wants.
//!
//! Whether a caller has a file open for writing is read from `/proc`, which asks no file system.

use std::cell::Cell;
use std::fs;
use std::path::Path;

use rustix::io::Errno;

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

/// A caller, and the thread that it calls from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asker {
    /// Whose rights it has.
    pub caller: Caller,
    /// The thread, as the kernel names it; 0 where it has no name for it.
    pub thread: u32,
}

/// Descriptors of a process that are looked at.
const MOST_DESCRIPTORS: usize = 1 << 12;

impl Asker {
    /// Whether the thread may have an inode of this number open for writing. Only where its descriptors can all be seen
    /// they say that it has not.
    pub(crate) fn may_write(&self, inode: u64) -> bool {
        let own = Path::new("/proc").join(self.thread.to_string());
        let Ok(entries) = fs::read_dir(own.join("fdinfo")) else { return true };
        for (nth, entry) in entries.enumerate() {
            let Ok(entry) = entry else { return true };
            // A ring has files that no descriptor names.
            let is_ring = || {
                let link = fs::read_link(own.join("fd").join(entry.file_name()));
                link.is_ok_and(|link| link == Path::new("anon_inode:[io_uring]"))
            };
            // One that is closed meanwhile writes nothing.
            let Ok(info) = fs::read_to_string(entry.path()) else { continue };
            if nth >= MOST_DESCRIPTORS || writes_to(&info, inode) || is_ring() {
                return true;
            }
        }
        false
    }
}

/// Whether a descriptor is open for writing to this inode. The kernel shows inodes since Linux 5.14.
fn writes_to(info: &str, inode: u64) -> bool {
    let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let flags = field("flags:").and_then(|flags| i32::from_str_radix(flags, 8).ok());
    let is_writer = flags.is_none_or(|flags| flags & libc::O_ACCMODE != libc::O_RDONLY);
    is_writer && field("ino:").is_none_or(|found| found.parse() == Ok(inode))
}

thread_local! {
    static UMASK: Cell<Option<u32>> = const { Cell::new(None) };
}

/// Sets this thread's umask. The first call gives the thread a file-system context of its own; where that fails nothing
/// is changed, since the umask would be that of all threads.
pub(crate) fn set_umask(umask: u32) -> rustix::io::Result<()> {
    UMASK.with(|current| {
        if current.get() == Some(umask) {
            return Ok(());
        }
        if current.get().is_none() {
            // SAFETY: CLONE_FS only stops this thread from sharing umask, root and working directory with the others.
            let unshared = unsafe { libc::unshare(libc::CLONE_FS) };
            if unshared != 0 {
                return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::PERM));
            }
        }
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(umask));
        current.set(Some(umask));
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn who_has_a_file_open_for_writing_is_seen_by_its_descriptors() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let inode = file.as_file().metadata().unwrap().ino();
        let asker = |thread| Asker { caller: Caller::ROOT, thread };
        assert!(asker(std::process::id()).may_write(inode));
        assert!(asker(0).may_write(inode), "nothing is known of it");
        let mut other = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let may_write = asker(other.id()).may_write(inode);
        other.kill().unwrap();
        other.wait().unwrap();
        assert!(!may_write);
    }

    /// After this the kernel refuses `unshare` to this thread.
    fn forbid_unshare() {
        let jump = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
        let give = (libc::BPF_RET | libc::BPF_K) as u16;
        let load = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
        let refused = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
        let mut filter = [
            libc::sock_filter { code: load, jt: 0, jf: 0, k: 0 },
            libc::sock_filter { code: jump, jt: 0, jf: 1, k: libc::SYS_unshare as u32 },
            libc::sock_filter { code: give, jt: 0, jf: 0, k: refused },
            libc::sock_filter { code: give, jt: 0, jf: 0, k: libc::SECCOMP_RET_ALLOW },
        ];
        let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
        // SAFETY: the program and its instructions live until the kernel has copied them.
        let set = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
            libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program)
        };
        assert_eq!(set, 0);
    }

    #[test]
    fn a_thread_that_cannot_have_a_umask_of_its_own_creates_nothing() {
        let set = std::thread::spawn(|| {
            forbid_unshare();
            set_umask(0o027)
        });
        assert_eq!(set.join().unwrap(), Err(Errno::PERM));
    }

    #[test]
    fn a_descriptor_that_tells_too_little_counts_as_a_writer() {
        assert!(writes_to("pos:\t0\nflags:\t0100001\nmnt_id:\t20\nino:\t7\n", 7));
        assert!(writes_to("pos:\t0\nflags:\t0100001\nmnt_id:\t20\n", 7));
        assert!(!writes_to("pos:\t0\nflags:\t0100001\nmnt_id:\t20\nino:\t8\n", 7));
        assert!(!writes_to("pos:\t0\nflags:\t0100000\nmnt_id:\t20\nino:\t7\n", 7));
    }
}
