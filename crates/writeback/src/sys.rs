//! The system calls that no library wraps: file handles, `sync_file_range`, FIEMAP, cachestat. And the kernel's own
//! thresholds.

use std::ffi::c_void;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::PathBuf;

use linux_raw_sys::general::{__NR_cachestat, cachestat, cachestat_range};
use linux_raw_sys::ioctl::FS_IOC_FIEMAP;
use umbrella_units::{BlockNo, Extent, Nanos, PAGE_BYTES, PageIndex, Pages};

use crate::file::{FileHandle, HANDLE_BYTES, PageRange};

/// Extents that one call asks for.
const EXTENTS: usize = 128;

/// Says nothing of a place: not allocated yet, unknown, encoded, inside the inode, or not a place on this device.
const WITHOUT_ADDRESS: u32 = 0x0002 | 0x0004 | 0x0008 | 0x0080 | 0x0200 | 0x0400;
const LAST: u32 = 0x0001;

/// `struct file_handle`, with room for the longest.
#[repr(C)]
struct RawHandle {
    bytes: u32,
    kind: i32,
    data: [u8; HANDLE_BYTES],
}

/// Turns what a call returned into a result.
fn check(returned: i64) -> io::Result<i64> {
    if returned < 0 { Err(io::Error::last_os_error()) } else { Ok(returned) }
}

/// The handle of an open file.
pub(crate) fn handle_of(file: BorrowedFd<'_>) -> io::Result<FileHandle> {
    let mut raw = RawHandle { bytes: HANDLE_BYTES as u32, kind: 0, data: [0; HANDLE_BYTES] };
    let mut mount = 0;
    // SAFETY: the path is a C string, `raw` is a file_handle with as many bytes behind it as it says, `mount` is an
    // int.
    check(i64::from(unsafe {
        libc::name_to_handle_at(
            file.as_raw_fd(),
            c"".as_ptr(),
            (&raw mut raw).cast::<libc::file_handle>(),
            &raw mut mount,
            libc::AT_EMPTY_PATH,
        )
    }))?;
    let bytes = raw.data.get(..raw.bytes as usize).ok_or(io::ErrorKind::InvalidData)?;
    Ok(FileHandle { kind: raw.kind, bytes: bytes.into() })
}

/// Opens a file for reading. `ESTALE`: it is gone.
pub(crate) fn open_handle(root: BorrowedFd<'_>, handle: &FileHandle) -> io::Result<OwnedFd> {
    let mut raw = RawHandle { bytes: handle.bytes.len() as u32, kind: handle.kind, data: [0; HANDLE_BYTES] };
    raw.data.get_mut(..handle.bytes.len()).ok_or(io::ErrorKind::InvalidInput)?.copy_from_slice(&handle.bytes);
    let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOATIME;
    // SAFETY: `raw` is a file_handle with as many bytes behind it as it says.
    let fd = check(i64::from(unsafe {
        libc::open_by_handle_at(root.as_raw_fd(), (&raw mut raw).cast::<libc::file_handle>(), flags)
    }))?;
    // SAFETY: the call returned a new descriptor, which nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Starts to write what is dirty in the range, and does not wait for it.
pub(crate) fn start_write(file: BorrowedFd<'_>, range: PageRange) -> io::Result<()> {
    sync_range(file, range, libc::SYNC_FILE_RANGE_WRITE)
}

/// Waits for what of the range is on its way to disk. An error is that of an earlier write-back of the file.
pub(crate) fn wait_written(file: BorrowedFd<'_>, range: PageRange) -> io::Result<()> {
    sync_range(file, range, libc::SYNC_FILE_RANGE_WAIT_BEFORE)
}

fn sync_range(file: BorrowedFd<'_>, range: PageRange, flags: u32) -> io::Result<()> {
    let (offset, length) = bytes(range)?;
    loop {
        // SAFETY: takes numbers only.
        match check(i64::from(unsafe { libc::sync_file_range(file.as_raw_fd(), offset, length, flags) })) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done.map(drop),
        }
    }
}

/// The range in bytes, as far as a file can reach.
fn bytes(range: PageRange) -> io::Result<(i64, i64)> {
    let offset = range.first.0.checked_mul(PAGE_BYTES).and_then(|offset| i64::try_from(offset).ok());
    let offset = offset.ok_or(io::ErrorKind::InvalidInput)?;
    let length = i64::try_from(range.pages.0.saturating_mul(PAGE_BYTES)).unwrap_or(i64::MAX).min(i64::MAX - offset);
    Ok((offset, length))
}

/// How many pages of the range are dirty in the page cache.
pub(crate) fn dirty_pages(file: BorrowedFd<'_>, range: PageRange) -> io::Result<Pages> {
    cache(file, range).map(|found| Pages(found.nr_dirty))
}

/// How many pages of the range are on their way to disk.
pub(crate) fn pages_under_writeback(file: BorrowedFd<'_>, range: PageRange) -> io::Result<Pages> {
    cache(file, range).map(|found| Pages(found.nr_writeback))
}

fn cache(file: BorrowedFd<'_>, range: PageRange) -> io::Result<cachestat> {
    let (offset, length) = bytes(range)?;
    let asked = cachestat_range { off: offset.cast_unsigned(), len: length.cast_unsigned() };
    let mut found = MaybeUninit::<cachestat>::zeroed();
    // SAFETY: reads a cachestat_range and fills a cachestat.
    check(unsafe {
        libc::syscall(i64::from(__NR_cachestat), file.as_raw_fd(), &raw const asked, found.as_mut_ptr(), 0)
    })?;
    // SAFETY: made of numbers, all set.
    Ok(unsafe { found.assume_init() })
}

/// Adjacent pages of a file in adjacent blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mapped {
    pub(crate) pages: PageRange,
    pub(crate) block: BlockNo,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct RawExtent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

/// `struct fiemap` with room for [`EXTENTS`].
#[repr(C)]
struct RawMap {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    room: u32,
    reserved: u32,
    extents: [RawExtent; EXTENTS],
}

/// Where pages from `from` on lie, in order, as far as one call says. Returns the page up to which the answer is
/// complete. Pages without a place (holes, delayed allocation) are left out.
pub(crate) fn map(file: BorrowedFd<'_>, from: PageIndex, out: &mut Vec<Mapped>) -> io::Result<PageIndex> {
    let none = RawExtent { logical: 0, physical: 0, length: 0, reserved64: [0; 2], flags: 0, reserved: [0; 3] };
    let start = from.0.checked_mul(PAGE_BYTES).ok_or(io::ErrorKind::InvalidInput)?;
    let length = i64::MAX.cast_unsigned().saturating_sub(start);
    let mut raw =
        RawMap { start, length, flags: 0, mapped: 0, room: EXTENTS as u32, reserved: 0, extents: [none; EXTENTS] };
    // SAFETY: FS_IOC_FIEMAP reads a fiemap and fills the extents behind it; there are as many as it says.
    check(i64::from(unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FIEMAP.into(), (&raw mut raw).cast::<c_void>()) }))?;
    let found = raw.extents.get(..raw.mapped as usize).ok_or(io::ErrorKind::InvalidData)?;
    for extent in found.iter().filter(|extent| extent.flags & WITHOUT_ADDRESS == 0) {
        let first = extent.logical / PAGE_BYTES;
        let end = extent.logical.saturating_add(extent.length).div_ceil(PAGE_BYTES);
        let pages = PageRange { first: PageIndex(first), pages: Pages(end - first) };
        out.push(Mapped { pages, block: BlockNo(extent.physical / PAGE_BYTES) });
    }
    match found.last() {
        Some(last) if last.flags & LAST == 0 && found.len() == EXTENTS => {
            Ok(PageIndex(last.logical.saturating_add(last.length) / PAGE_BYTES))
        }
        _ => Ok(PageIndex(u64::MAX)),
    }
}

/// Where the data of a file lie on its file system's device, in whole pages. Data without a place (delayed allocation,
/// inside the inode) are left out.
pub fn extents(file: BorrowedFd<'_>) -> io::Result<Vec<Extent>> {
    let (mut found, mut from) = (Vec::new(), PageIndex(0));
    while from != PageIndex(u64::MAX) {
        from = map(file, from, &mut found)?;
    }
    Ok(found.iter().map(|mapped| Extent { start: mapped.block, blocks: mapped.pages.pages.0 }).collect())
}

/// What the kernel has dirty, and from where on it writes by itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct KernelDirty {
    pub(crate) dirty: Pages,
    pub(crate) background: Pages,
}

impl KernelDirty {
    /// As `/proc/vmstat` says now; `None` if it does not.
    pub(crate) fn read() -> Option<KernelDirty> {
        KernelDirty::parse(&std::fs::read_to_string("/proc/vmstat").ok()?)
    }

    fn parse(text: &str) -> Option<KernelDirty> {
        let value = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
            line.trim().parse().ok().map(Pages)
        };
        Some(KernelDirty { dirty: value("nr_dirty")?, background: value("nr_dirty_background_threshold")? })
    }
}

/// How old dirty pages may become before the kernel writes them; `None` where it never looks, or does not say.
pub(crate) fn expiry() -> Option<Nanos> {
    let read = |name: &str| {
        std::fs::read_to_string(format!("/proc/sys/vm/{name}")).ok()?.trim().parse::<u32>().ok().map(u64::from)
    };
    let looks = read("dirty_writeback_centisecs")? > 0;
    read("dirty_expire_centisecs").filter(|_| looks).map(|hundredths| Nanos::from_millis(hundredths * 10))
}

/// How much of its thresholds the kernel lets one disk use.
#[derive(Debug)]
pub(crate) struct DiskShare {
    /// The disk's folder in sysfs.
    folder: PathBuf,
}

impl DiskShare {
    /// The share of the disk that `root` lies on.
    pub(crate) fn of(root: BorrowedFd<'_>) -> DiskShare {
        let dev = rustix::fs::fstat(root).map_or(0, |stat| stat.st_dev);
        let (major, minor) = (rustix::fs::major(dev), rustix::fs::minor(dev));
        DiskShare { folder: PathBuf::from(format!("/sys/class/bdi/{major}:{minor}")) }
    }

    /// In millionths, as it is now; all of them where the kernel does not say.
    pub(crate) fn millionths(&self) -> u64 {
        const ALL: u64 = 1_000_000;
        let read = |name: &str| std::fs::read_to_string(self.folder.join(name)).ok()?.trim().parse::<u64>().ok();
        // Older kernels say it in hundredths only.
        let share =
            read("max_ratio_fine").or_else(|| read("max_ratio").map(|percent| percent.saturating_mul(ALL / 100)));
        share.unwrap_or(ALL).min(ALL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn thresholds_are_read_and_nonsense_is_not() {
        let text = "nr_free 1\nnr_dirty 7\nnr_dirty_threshold 9\nnr_dirty_background_threshold 12\n";
        assert_eq!(KernelDirty::parse(text), Some(KernelDirty { dirty: Pages(7), background: Pages(12) }));
        assert_eq!(KernelDirty::parse("nr_dirty 7\n"), None);
        assert_eq!(KernelDirty::parse("nr_dirty x\nnr_dirty_background_threshold 12\n"), None);
        assert!(KernelDirty::read().is_some(), "this kernel says it");
    }

    #[test]
    fn a_disks_share_is_read_in_whatever_the_kernel_offers() {
        let dir = tempfile::tempdir().expect("a directory");
        let share = DiskShare { folder: dir.path().to_owned() };
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).expect("is written");
        assert_eq!(share.millionths(), 1_000_000);
        write("max_ratio", "7\n");
        assert_eq!(share.millionths(), 70_000);
        write("max_ratio_fine", "65432\n");
        assert_eq!(share.millionths(), 65_432);
        write("max_ratio_fine", "99999999999\n");
        assert_eq!(share.millionths(), 1_000_000);
    }

    #[test]
    fn a_file_is_found_again_by_its_handle_and_not_after_it_is_gone() {
        let dir = tempfile::tempdir().expect("a directory");
        let root = std::fs::File::open(dir.path()).expect("opens");
        let path = dir.path().join("file");
        let file = std::fs::File::create(&path).expect("creates");
        let handle = handle_of(file.as_fd()).expect("a handle");
        let again = open_handle(root.as_fd(), &handle).expect("opens");
        let ino = |fd: BorrowedFd<'_>| rustix::fs::fstat(fd).expect("stat").st_ino;
        assert_eq!(ino(again.as_fd()), ino(file.as_fd()));
        drop((again, file));
        std::fs::remove_file(&path).expect("removes");
        let error = open_handle(root.as_fd(), &handle).expect_err("gone");
        assert_eq!(error.raw_os_error(), Some(libc::ESTALE));
    }

    #[test]
    fn hostile_handles_and_ranges_are_errors() {
        let dir = tempfile::tempdir().expect("a directory");
        let root = std::fs::File::open(dir.path()).expect("opens");
        for bytes in [0, 1, 8, 128, 129, 4096] {
            let handle = FileHandle { kind: i32::MAX, bytes: vec![0xff; bytes].into() };
            assert!(open_handle(root.as_fd(), &handle).is_err(), "{bytes}");
        }
        let far = PageRange { first: PageIndex(u64::MAX), pages: Pages(u64::MAX) };
        assert!(start_write(root.as_fd(), far).is_err());
        assert!(map(root.as_fd(), PageIndex(u64::MAX), &mut Vec::new()).is_err());
    }
}
