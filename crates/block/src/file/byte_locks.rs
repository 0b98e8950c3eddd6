//! The locks by which QEMU's programs know that an image is in use: qemu-system, qemu-img, qemu-nbd,
//! qemu-storage-daemon.
//!
//! They do not look at `flock`, so an image needs both kinds. QEMU locks single bytes of the image itself, shared, for
//! the open file ("open file description locks"); what the bytes hold does not matter. Bit `p` of its permissions
//! stands for two of them:
//!
//! - byte 100 + `p` is locked by a process that uses the image in that way: 0 reads what stays as it is, 1 writes, 3
//!   changes the size;
//! - byte 200 + `p` is locked by a process that permits no other use of that kind.
//!
//! A process that opens an image locks its own bytes first, and then looks for conflicting locks of others, so that two
//! processes cannot both succeed at the same time. Source: QEMU, `block/file-posix.c`, `raw_check_lock_bytes`.

use std::fs::File;
use std::os::fd::BorrowedFd;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};

use super::access::Access;

const USED: i64 = 100;
const NOT_SHARED: i64 = 200;
/// Bits of QEMU's permissions.
const READ: i64 = 0;
const WRITE: i64 = 1;
const RESIZE: i64 = 3;

/// Locks an open image against QEMU's programs; false if one of them has it open in a way that contradicts. The locks
/// go with the open file.
///
/// Where the file system has no such locks, no process has any.
pub(super) fn lock(file: &File, access: Access) -> Result<bool, Errno> {
    let used: &[i64] = match access {
        Access::ReadOnly => &[READ],
        Access::ReadWrite => &[READ, WRITE],
    };
    // No other process may write, or change the size, whether this one writes or reads.
    let not_shared = [WRITE, RESIZE];
    let own = used.iter().map(|bit| USED + bit).chain(not_shared.map(|bit| NOT_SHARED + bit));
    for byte in own {
        match fcntl(file, FcntlArg::F_OFD_SETLK(&of_byte(byte, libc::F_RDLCK))) {
            Ok(_) => {}
            Err(Errno::EAGAIN | Errno::EACCES) => return Ok(false),
            Err(Errno::ENOLCK | Errno::EOPNOTSUPP | Errno::ENOSYS | Errno::EINVAL) => return Ok(true),
            Err(error) => return Err(error),
        }
    }
    let contradict = used.iter().map(|bit| NOT_SHARED + bit).chain(not_shared.map(|bit| USED + bit));
    for byte in contradict {
        let mut found = of_byte(byte, libc::F_WRLCK);
        fcntl(file, FcntlArg::F_OFD_GETLK(&mut found))?;
        if i32::from(found.l_type) != libc::F_UNLCK {
            return Ok(false);
        }
    }
    Ok(true)
}

pub(super) fn unlock(file: BorrowedFd<'_>) {
    let all = libc::flock { l_start: 0, l_len: 0, ..of_byte(0, libc::F_UNLCK) };
    let _ = fcntl(file, FcntlArg::F_OFD_SETLK(&all));
}

fn of_byte(byte: i64, kind: i32) -> libc::flock {
    libc::flock { l_type: kind as i16, l_whence: libc::SEEK_SET as i16, l_start: byte, l_len: 1, l_pid: 0 }
}
