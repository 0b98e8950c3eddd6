//! Whether the block device below a file system answers at all.
//!
//! A disk with bad sectors fails some reads, one that is gone fails all. So a page is read at several places, past the
//! page cache, until one read succeeds.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, SeekFrom, major};
use rustix::io::Errno;

use super::devices::Sysfs;

/// How many places are read, spread evenly over the device.
const PLACES: u64 = 8;
const PAGE_BYTES: usize = 4096;

/// Reads the block device below a file system: its device number, else the source of its mount. `None` where no block
/// device can be opened.
pub(crate) fn answers(dev: u64, source: Option<&str>) -> Option<rustix::io::Result<()>> {
    let device = match open(dev, source) {
        Ok(device) => device?,
        Err(error) => return Some(Err(error)),
    };
    let answer = rustix::fs::seek(&device, SeekFrom::End(0)).and_then(|bytes| {
        let places = (0..PLACES).map(|place| bytes / PLACES * place / PAGE_BYTES as u64 * PAGE_BYTES as u64);
        let mut answer = Err(Errno::NXIO);
        for at in places {
            // A device that has lost its medium is of size 0, and reads nothing.
            answer = read_page(device.as_fd(), at).and_then(|read| if read > 0 { Ok(()) } else { Err(Errno::NXIO) });
            if answer.is_ok() {
                break;
            }
        }
        answer
    });
    Some(answer)
}

fn open(dev: u64, source: Option<&str>) -> rustix::io::Result<Option<OwnedFd>> {
    let is_block_device = major(dev) != 0;
    let named = if is_block_device { Sysfs::default().name_of(dev).map(|name| name.replace('!', "/")) } else { None };
    let path = named.map(|name| format!("/dev/{name}"));
    let Some(path) = path.as_deref().or(source).filter(|path| path.starts_with("/dev/")) else { return Ok(None) };
    let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(device) => {
            let stat = rustix::fs::fstat(&device)?;
            let is_it = FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice
                && (!is_block_device || stat.st_rdev == dev);
            Ok(is_it.then_some(device))
        }
        Err(Errno::MFILE) => Err(Errno::MFILE),
        Err(Errno::NFILE) => Err(Errno::NFILE),
        Err(Errno::NXIO) => Err(Errno::NXIO),
        Err(Errno::NODEV) => Err(Errno::NODEV),
        // No such node, or the daemon may not open it.
        Err(_) => Ok(None),
    }
}

/// Reads one page of a file that was opened with `O_DIRECT`; how many bytes of it there are.
pub(crate) fn read_page(file: BorrowedFd<'_>, at: u64) -> rustix::io::Result<usize> {
    let mut page = AlignedPage([0; PAGE_BYTES]);
    rustix::io::pread(file, &mut page.0, at)
}

/// `O_DIRECT` wants aligned memory.
#[repr(align(4096))]
struct AlignedPage([u8; PAGE_BYTES]);
