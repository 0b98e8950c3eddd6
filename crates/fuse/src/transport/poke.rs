//! A file that only the kernel knows, so that a queue can be made to look for waiting requests.
//!
//! Where a poke comes from: RETRIEVE asks for what the kernel has cached of a file. The kernel puts the reply into the
//! queue of the processor that asked, and nobody waits. It takes a regular file that the kernel has in memory, and no
//! file of a file system is there for sure. So one is made at mount, and watched: a watch keeps its inode, and keeps no
//! mount busy.
//!
//! Steps, while nobody sees the mount:
//!
//! 1. A child process, which can be killed while it waits, looks a name up in the root and watches what it finds.
//! 2. Its requests are answered here, not by the file system.
//! 3. A poke shows whether it works.
//!
//! The name is gone at once: the kernel asks again each time, and the file system does not know it.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use rustix::fs::inotify;
use zerocopy::IntoBytes;

use crate::abi::{self, opcode};
use crate::types::{Attributes, Errno, FileType, InodeNumber, NodeId};

/// The node of the file. No file system may use it.
pub(crate) const NODE: NodeId = NodeId(u64::MAX);
const NAME: &std::ffi::CStr = c".fuse-poke";

/// Makes the kernel keep the file while the descriptor is open. Its requests must be answered meanwhile.
pub(crate) fn keep_file(mount: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let watch = inotify::init(inotify::CreateFlags::CLOEXEC)?;
    let (mount, number) = (mount.as_raw_fd(), watch.as_raw_fd());
    let mut child = Command::new("/");
    child.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // SAFETY: it makes system calls only.
    unsafe { child.pre_exec(move || run_child(mount, number)) };
    // Whether it worked, a poke shows.
    child.spawn()?.wait()?;
    Ok(watch)
}

/// Runs the child. It first closes rings and device, which would keep the connection of a killed server.
fn run_child(mount: RawFd, watch: RawFd) -> ! {
    let (first, second) = (mount.min(watch), mount.max(watch));
    // SAFETY: plain calls on this process alone; the name outlives them.
    unsafe {
        for (from, to) in [(0, first - 1), (first + 1, second - 1), (second + 1, RawFd::MAX)] {
            if from <= to {
                libc::syscall(libc::SYS_close_range, from, to, 0);
            }
        }
        let found =
            libc::fchdir(mount) == 0 && libc::inotify_add_watch(watch, NAME.as_ptr(), libc::IN_DELETE_SELF) >= 0;
        libc::_exit(i32::from(!found))
    }
}

/// The answer to a request of the child.
pub(crate) fn answer(request: &abi::InHeader, send: impl FnOnce(Result<&[u8], Errno>)) {
    match request.opcode {
        opcode::LOOKUP => {
            let attributes = Attributes::new(InodeNumber(NODE.0), FileType::RegularFile, 0o444);
            let entry = abi::EntryOut { nodeid: NODE.0, attr: attributes.wire(), ..abi::EntryOut::default() };
            send(Ok(entry.as_bytes()));
        }
        opcode::GETATTR => {
            let (kind, mode) =
                if request.nodeid == NODE.0 { (FileType::RegularFile, 0o444) } else { (FileType::Directory, 0o755) };
            let attributes = Attributes::new(InodeNumber(request.nodeid), kind, mode);
            send(Ok(abi::AttrOut { attr: attributes.wire(), ..abi::AttrOut::default() }.as_bytes()));
        }
        opcode::ACCESS => send(Ok(&[])),
        // Not ENOSYS: the kernel would never ask again.
        _ => send(Err(Errno::ENODATA)),
    }
}
