//! Steps 1 and 2: the copy in the hidden place.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Mode, OFlags, SeekFrom, fsync, ftruncate, mknodat, openat, readlinkat,
    seek, symlinkat, unlinkat,
};
use rustix::io::{Errno, pread, retry_on_intr};
use umbrella_units::{ByteSize, Timestamp};

use crate::branch::Abilities;
use crate::ground::fd_path::proc_path;
use crate::ground::inode_flags;
use crate::ground::write_out;
use crate::relocate::attrs::AttributePass;
use crate::relocate::error::ErrorContext;
use crate::relocate::fingerprint::{FileSnapshot, Fingerprint, snapshot, snapshot_fd};
use crate::relocate::{Durability, EntryAt, Limits, Loss, PACED_SLICE, RelocateError, attrs};

const BUFFER: usize = 1 << 20;
const KERNEL_SLICE: u64 = 8 << 20;
/// Largest size at which a file without holes is read and written as it is.
const SMALL: u64 = 64 << 10;
/// Smallest size at which a file of a batch is sent to the disk while the others are copied.
const EARLY_WRITE_BACK: u64 = 128 << 10;
/// Seconds by which file systems round times at most.
const ROUNDING: u64 = 2;

/// A finished, durable copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DurableCopy {
    /// What the source was.
    pub source: Fingerprint,
    /// What the copy is.
    pub target: Fingerprint,
    /// Data copied; holes do not count.
    pub bytes: ByteSize,
    /// Extended attributes that only mean something to the source's file system (labels, NFS ACLs) and were not taken.
    pub left_behind: Vec<OsString>,
}

/// Copies any file but a directory to `temp`, whole and durable; the source's access time stays as it is.
///
/// On any error `temp` is gone again. What the target cannot keep is refused before data is written.
pub fn copy(
    source: EntryAt<'_>,
    temp: EntryAt<'_>,
    abilities: &Abilities,
    limits: &Limits<'_>,
) -> Result<DurableCopy, RelocateError> {
    if let Some((seen, input)) = open_regular(source) {
        return FileCopy::new(Source { fd: input.as_fd(), is_readable: true, seen }, temp, abilities, limits)?
            .into_temp();
    }
    let held = attrs::open_path(source).doing("open the source")?;
    copy_from_fd(held.as_fd(), temp, abilities, limits)
}

/// A regular file as it was seen, and open for reading. If another file was opened than was seen,
/// [`FileCopy::put_access_time_back`] reports it after the data. `None`: it is not a regular file, or cannot be opened
/// so.
fn open_regular(place: EntryAt<'_>) -> Option<(FileSnapshot, OwnedFd)> {
    let seen = snapshot(place).ok().filter(|seen| seen.print.file_type() == FileType::RegularFile)?;
    let flags = READING | OFlags::NOFOLLOW;
    let open = |flags| openat(place.dir, place.name, flags, Mode::empty());
    let input = match open(flags | OFlags::NOATIME) {
        Err(Errno::PERM) => open(flags),
        opened => opened,
    };
    Some((seen, input.ok()?))
}

/// [`copy`] of what a descriptor holds (any mode, also `O_PATH`): for a file that is unlinked, or about to outgrow its
/// branch.
///
/// The descriptor's own offset is not moved.
pub fn copy_from_fd(
    source: BorrowedFd<'_>,
    temp: EntryAt<'_>,
    abilities: &Abilities,
    limits: &Limits<'_>,
) -> Result<DurableCopy, RelocateError> {
    FileCopy::new(Source::held(source)?, temp, abilities, limits)?.into_temp()
}

/// [`copy_from_fd`] of a regular file into one that has no name in `dir` and may be given one (`O_TMPFILE`); the copy
/// is returned open.
pub fn copy_unnamed(
    source: BorrowedFd<'_>,
    dir: BorrowedFd<'_>,
    abilities: &Abilities,
    limits: &Limits<'_>,
) -> Result<(DurableCopy, OwnedFd), RelocateError> {
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    let output = openat(dir, c".", flags, Mode::RUSR | Mode::WUSR).map_err(not_made)?;
    let mut copying = FileCopy::new(Source::held(source)?, EntryAt { dir, name: OsStr::new(".") }, abilities, limits)?;
    let bytes = copying.fill(output.as_fd())?;
    Ok((copying.finish(output.as_fd(), bytes)?, output))
}

/// What a target with these abilities could not keep of the file at `source`. Empty: nothing.
pub fn losses(source: EntryAt<'_>, abilities: &Abilities) -> Result<Vec<Loss>, RelocateError> {
    let held = attrs::open_path(source).doing("open the source")?;
    let seen = snapshot_fd(held.as_fd()).doing("stat the source")?;
    let xattrs = attrs::xattrs(held.as_fd()).doing("read extended attributes")?;
    Ok(lost(&seen, &xattrs, abilities))
}

fn lost(seen: &FileSnapshot, xattrs: &attrs::Xattrs, abilities: &Abilities) -> Vec<Loss> {
    let mut what = Vec::new();
    match seen.print.file_type() {
        FileType::Symlink if !abilities.symlinks => what.push(Loss::Symlink),
        FileType::RegularFile | FileType::Directory | FileType::Symlink => {}
        _ if !abilities.special_files => what.push(Loss::SpecialFile),
        _ => {}
    }
    if !abilities.ownership {
        what.push(Loss::Ownership);
    }
    if seen.print.nlink > 1 && !abilities.hard_links && seen.print.file_type() != FileType::Directory {
        what.push(Loss::HardLinks);
    }
    what.extend(attrs::lost_xattrs(xattrs, abilities.xattr, abilities.acl));
    what
}

/// What is copied.
#[derive(Clone, Copy)]
struct Source<'a> {
    fd: BorrowedFd<'a>,
    /// It is open for reading, for this copy alone.
    is_readable: bool,
    /// What it was before anything was read.
    seen: FileSnapshot,
}

impl<'a> Source<'a> {
    /// What any descriptor holds.
    fn held(fd: BorrowedFd<'a>) -> Result<Self, RelocateError> {
        Ok(Source { fd, is_readable: false, seen: snapshot_fd(fd).doing("stat the source")? })
    }
}

struct FileCopy<'a> {
    source: BorrowedFd<'a>,
    is_readable: bool,
    seen: FileSnapshot,
    xattrs: attrs::Xattrs,
    temp: EntryAt<'a>,
    limits: &'a Limits<'a>,
    left_behind: Vec<OsString>,
    /// The target leaves out what is not written.
    holes: bool,
    /// The copy was made with its mode, and keeps it.
    has_mode: bool,
    /// What the target made of the modification time.
    mtime: Timestamp,
    /// The copy when it was last seen, unless something was done to it since.
    made: Option<Fingerprint>,
}

impl<'a> FileCopy<'a> {
    /// Refuses what the target cannot keep.
    fn new(
        source: Source<'a>,
        temp: EntryAt<'a>,
        abilities: &Abilities,
        limits: &'a Limits<'a>,
    ) -> Result<Self, RelocateError> {
        let Source { fd: source, is_readable, seen } = source;
        if seen.print.file_type() == FileType::Directory {
            return Err(RelocateError::IsDirectory);
        }
        let xattrs = attrs::xattrs(source).doing("read extended attributes")?;
        let what = lost(&seen, &xattrs, abilities);
        if !what.is_empty() {
            return Err(RelocateError::WouldLose { what });
        }
        let (holes, mtime) = (abilities.holes, seen.print.mtime);
        let (left_behind, has_mode, made) = (Vec::new(), false, None);
        Ok(FileCopy { source, is_readable, seen, xattrs, temp, limits, left_behind, holes, has_mode, mtime, made })
    }

    /// The whole copy; on an error nothing is left of it.
    fn into_temp(self) -> Result<DurableCopy, RelocateError> {
        let temp = self.temp;
        let copied = self.run();
        // A file that was there before is not ours to delete.
        if copied.is_err() && copied != Err(RelocateError::Taken) {
            let _already_failing = unlinkat(temp.dir, temp.name, AtFlags::empty());
        }
        copied
    }

    fn run(mut self) -> Result<DurableCopy, RelocateError> {
        let mut bytes = 0;
        let target = if self.seen.print.file_type() == FileType::RegularFile {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            // Where it may have its mode from the beginning, it needs no other. What a write or a new owner would drop
            // comes later.
            let mode = Mode::from_raw_mode(self.seen.print.mode & 0o777) | Mode::RUSR | Mode::WUSR;
            let output = openat(self.temp.dir, self.temp.name, flags, mode).map_err(not_made)?;
            bytes = self.fill(output.as_fd())?;
            output
        } else {
            self.make_special()?;
            let output = attrs::open_path(self.temp).doing("open the copy")?;
            self.apply_attributes(output.as_fd(), AttributePass::BeforeData)?;
            self.apply_attributes(output.as_fd(), AttributePass::AfterData)?;
            if self.limits.durability == Durability::Now {
                attrs::sync_dir(self.temp.dir).doing("flush the copy's directory")?;
            }
            output
        };
        self.finish(target.as_fd(), bytes)
    }

    /// Data and attributes of a regular file; returns the bytes copied.
    fn fill(&mut self, output: BorrowedFd<'_>) -> Result<u64, RelocateError> {
        let own;
        let input = if self.is_readable {
            self.source
        } else {
            own = reopen(self.source).map_err(|errno| RelocateError::Read { offset: 0, errno })?;
            own.as_fd()
        };
        if let Ok(flags) = inode_flags::flags(input) {
            if flags.intersects(inode_flags::PINNED) {
                return Err(RelocateError::Pinned);
            }
            attrs::copy_flags(flags, input, output)?;
        }
        self.apply_attributes(output, AttributePass::BeforeData)?;
        let bytes = self.data(input, output)?;
        // What could not be written, and was forgotten since, is not what was read.
        write_out::failed_writes(input).map_err(|errno| RelocateError::Read { offset: 0, errno })?;
        self.put_access_time_back()?;
        self.apply_attributes(output, AttributePass::AfterData)?;
        match self.limits.durability {
            // Small files are written at the sync, many in one request.
            Durability::Together if bytes < EARLY_WRITE_BACK => return Ok(bytes),
            Durability::Together | Durability::Begun => write_out::begin(output),
            Durability::Now => retry_on_intr(|| fsync(output)).map_err(|errno| match errno {
                Errno::NOSPC | Errno::DQUOT => RelocateError::NoSpace,
                errno => RelocateError::Sync { errno },
            })?,
        }
        self.made = None;
        Ok(bytes)
    }

    fn finish(self, target: BorrowedFd<'_>, bytes: u64) -> Result<DurableCopy, RelocateError> {
        let target = self.check(target)?;
        Ok(DurableCopy { source: self.seen.print, target, bytes: ByteSize(bytes), left_behind: self.left_behind })
    }

    fn make_special(&mut self) -> Result<(), RelocateError> {
        let EntryAt { dir, name } = self.temp;
        if self.seen.print.file_type() == FileType::Symlink {
            let target = readlinkat(self.source, c"", Vec::new()).doing("read the symbolic link")?;
            self.put_access_time_back()?;
            return symlinkat(target.as_c_str(), dir, name).map_err(not_made);
        }
        let mode = Mode::RUSR | Mode::WUSR;
        mknodat(dir, name, self.seen.print.file_type(), mode, self.seen.print.rdev).map_err(not_made)
    }

    /// Where reading counted as an access nevertheless. Setting a time changes the change time, and with it the
    /// fingerprint.
    fn put_access_time_back(&mut self) -> Result<(), RelocateError> {
        let now = snapshot_fd(self.source).doing("stat the source")?;
        if now.print != self.seen.print {
            return Err(RelocateError::Changed);
        }
        // On a branch that is read-only or owned by another user it stays unchanged. If a user changes the file just
        // now, it has the time that they want.
        if now.atime != self.seen.atime
            && !self.limits.cancelled()
            && attrs::set_access_time(self.source, &self.seen).is_ok()
        {
            let ctime = snapshot_fd(self.source).doing("stat the source")?.print.ctime;
            self.seen.print.ctime = ctime;
        }
        Ok(())
    }

    /// Sets everything besides data, in an order in which no step undoes an earlier one.
    fn apply_attributes(&mut self, target: BorrowedFd<'_>, when: AttributePass) -> Result<(), RelocateError> {
        if when == AttributePass::BeforeData {
            let made = attrs::set_owner(target, &self.seen).map_err(|errno| match errno {
                Errno::PERM | Errno::INVAL | Errno::NOTSUP => RelocateError::WouldLose { what: vec![Loss::Ownership] },
                errno => RelocateError::Io { doing: "set the owner", errno },
            })?;
            // An ACL changes it.
            self.has_mode =
                made.mode == self.seen.print.mode && !self.xattrs.iter().any(|(name, _)| attrs::is_acl(name));
            attrs::drop_inherited_acl(target, &self.xattrs)?;
            return attrs::set_xattrs(target, &self.xattrs, when, &mut self.left_behind);
        }
        if !self.has_mode {
            attrs::set_mode(target, &self.seen).doing("set the mode")?;
        }
        attrs::set_xattrs(target, &self.xattrs, when, &mut self.left_behind)?;
        self.mtime = self.set_copy_times(target)?;
        Ok(())
    }

    /// Sets the times. Returns them as the target's file system rounds and limits them. Fails only on a file system
    /// that keeps no times at all.
    fn set_copy_times(&mut self, target: BorrowedFd<'_>) -> Result<Timestamp, RelocateError> {
        let made = &mut self.made;
        let mut set = |times: &FileSnapshot| {
            attrs::set_times(target, times).doing("set the times")?;
            let seen = snapshot_fd(target).doing("stat the copy")?.print;
            *made = Some(seen);
            Ok::<_, RelocateError>(seen.mtime)
        };
        let (wanted, kept) = (self.seen.print.mtime, set(&self.seen)?);
        if kept.secs.abs_diff(wanted.secs) <= ROUNDING {
            return Ok(kept);
        }
        // A time that every file system knows, far from what was kept: where it changes nothing, none is kept.
        let other = Timestamp { secs: if kept.secs < 1 << 30 { 1_500_000_000 } else { 500_000_000 }, nanos: 0 };
        let mut others = self.seen;
        (others.atime, others.print.mtime) = (other, other);
        if set(&others)? == kept || set(&self.seen)? != kept {
            return Err(RelocateError::WouldLose { what: vec![Loss::Times] });
        }
        Ok(kept)
    }

    /// The copy's fingerprint, after comparing it with the source's: a target may keep less than it said.
    fn check(&self, target: BorrowedFd<'_>) -> Result<Fingerprint, RelocateError> {
        let made = match self.made {
            Some(made) => made,
            None => snapshot_fd(target).doing("stat the copy")?.print,
        };
        let source = &self.seen.print;
        let mut what = Vec::new();
        let keeps_mode = source.file_type() == FileType::Symlink || made.mode == source.mode;
        if (made.uid, made.gid) != (source.uid, source.gid) || !keeps_mode {
            what.push(Loss::Ownership);
        }
        if made.mtime != self.mtime {
            what.push(Loss::Times);
        }
        if source.file_type() == FileType::RegularFile && made.size != source.size {
            return Err(RelocateError::Write { offset: made.size, errno: Errno::IO });
        }
        if what.is_empty() { Ok(made) } else { Err(RelocateError::WouldLose { what }) }
    }

    /// Copies the data, hole by hole; returns the bytes copied.
    fn data(&self, input: BorrowedFd<'_>, output: BorrowedFd<'_>) -> Result<u64, RelocateError> {
        let size = self.seen.print.size;
        if size <= SMALL && self.seen.is_dense() {
            // There is nothing to leave out, and nothing reserved: written whole, it has its size.
            let mut pump = DataCopier { in_kernel: false, ..DataCopier::new(input, output, self.limits) };
            pump.copy(0, size)?;
            return if self.limits.cancelled() { Err(RelocateError::Cancelled) } else { Ok(pump.done) };
        }
        if self.holes {
            // First: behind the end of a file that grows, some file systems reserve more, and keep it in each hole.
            ftruncate(output, size).doing("set the size")?;
        }
        let preallocates = attrs::preallocates(input);
        if preallocates {
            // Until what was written is on the disk, what was reserved unasked is called data.
            write_out::write_out(input).map_err(|errno| RelocateError::Read { offset: 0, errno })?;
        }
        let is_reserved = size > 0 && self.has_room_for_all(input)? && (!preallocates || attrs::was_reserved(input));
        let mut pump = DataCopier::new(input, output, self.limits);
        let mut offset = 0;
        while offset < size {
            let (start, end) = match segment(input, offset, size) {
                Ok(Some(segment)) => segment,
                Ok(None) => break,
                Err(errno) => return Err(RelocateError::Read { offset, errno }),
            };
            pump.copy(start, end)?;
            offset = end;
        }
        if self.limits.cancelled() {
            return Err(RelocateError::Cancelled);
        }
        if !self.holes {
            // There it would be written twice.
            ftruncate(output, size).doing("set the size")?;
        }
        if is_reserved {
            self.reserve(output)?;
        }
        Ok(pump.done)
    }

    fn has_room_for_all(&self, file: BorrowedFd<'_>) -> Result<bool, RelocateError> {
        let blocks = rustix::fs::fstat(file).doing("read the space it takes")?.st_blocks;
        Ok(u64::try_from(blocks).unwrap_or(0).saturating_mul(512) >= self.seen.print.size)
    }

    /// Keeps the reservation of a file that has room for all of its contents (`fallocate`). What is reserved in a file
    /// with holes, or beyond its end, cannot be known.
    fn reserve(&self, output: BorrowedFd<'_>) -> Result<(), RelocateError> {
        if self.has_room_for_all(output)? {
            return Ok(());
        }
        match rustix::fs::fallocate(output, FallocateFlags::KEEP_SIZE, 0, self.seen.print.size) {
            Err(Errno::NOSPC | Errno::DQUOT) => Err(RelocateError::NoSpace),
            // There nothing can be reserved.
            _ => Ok(()),
        }
    }
}

fn not_made(errno: Errno) -> RelocateError {
    match errno {
        Errno::EXIST => RelocateError::Taken,
        Errno::NOSPC | Errno::DQUOT => RelocateError::NoSpace,
        errno => RelocateError::Io { doing: "make the copy", errno },
    }
}

/// How a file is opened to be copied.
const READING: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

/// A reading descriptor of its own, that leaves the access time alone where the kernel allows.
pub(super) fn reopen(fd: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let path = proc_path(fd);
    match openat(CWD, path.as_str(), READING | OFlags::NOATIME, Mode::empty()) {
        Err(Errno::PERM) => openat(CWD, path.as_str(), READING, Mode::empty()),
        opened => opened,
    }
}

/// The next run of data at or after `offset`; `None` when only a hole is left.
fn segment(input: BorrowedFd<'_>, offset: u64, size: u64) -> Result<Option<(u64, u64)>, Errno> {
    let start = match seek(input, SeekFrom::Data(offset)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        Err(Errno::INVAL | Errno::NOTSUP | Errno::NOSYS) => return Ok(Some((offset, size))),
        Err(errno) => return Err(errno),
    };
    if start >= size {
        return Ok(None);
    }
    let end = seek(input, SeekFrom::Hole(start))?.min(size);
    Ok(Some((start, if end > start { end } else { size })))
}

struct DataCopier<'a> {
    input: BorrowedFd<'a>,
    output: BorrowedFd<'a>,
    limits: &'a Limits<'a>,
    buffer: Vec<u8>,
    /// Until the kernel says that it cannot copy between these two.
    in_kernel: bool,
    done: u64,
}

#[cfg(test)]
pub(super) fn pump(
    input: BorrowedFd<'_>,
    output: BorrowedFd<'_>,
    (start, end): (u64, u64),
    limits: &Limits<'_>,
) -> Result<(), RelocateError> {
    DataCopier::new(input, output, limits).copy(start, end)
}

impl<'a> DataCopier<'a> {
    fn new(input: BorrowedFd<'a>, output: BorrowedFd<'a>, limits: &'a Limits<'a>) -> Self {
        DataCopier { input, output, limits, buffer: Vec::new(), in_kernel: true, done: 0 }
    }

    fn copy(&mut self, start: u64, end: u64) -> Result<(), RelocateError> {
        let mut at = start;
        while at < end {
            if self.limits.cancelled() {
                return Err(RelocateError::Cancelled);
            }
            let slice = self.limits.throttle.map_or(KERNEL_SLICE, super::Throttle::slice).min(end - at);
            let slice = if self.limits.written.is_some() { slice.min(PACED_SLICE.0) } else { slice };
            let copied = match self.kernel_slice(at, slice) {
                Some(copied) => copied?,
                None => self.buffered_slice(at, slice)?,
            };
            if let Some(written) = self.limits.written {
                written(self.output, at, ByteSize(copied));
            }
            at += copied;
            self.done += copied;
            if let Some(rest) = self.limits.rest {
                if self.done >= KERNEL_SLICE {
                    write_out::begin(self.output);
                }
                rest();
            }
            if let Some(throttle) = self.limits.throttle {
                throttle.take(ByteSize(copied), &|| self.limits.cancelled())?;
            }
            if let Some(progress) = self.limits.progress {
                progress(self.done);
            }
        }
        Ok(())
    }

    /// `None`: the kernel cannot, or it failed in a way that the buffered copy will tell more exactly.
    fn kernel_slice(&mut self, at: u64, len: u64) -> Option<Result<u64, RelocateError>> {
        if !self.in_kernel {
            return None;
        }
        let (mut from, mut to) = (at, at);
        match rustix::fs::copy_file_range(self.input, Some(&mut from), self.output, Some(&mut to), len as usize) {
            Ok(copied) if copied > 0 => Some(Ok(copied as u64)),
            Err(Errno::INTR) => Some(Ok(0)),
            Err(Errno::NOSPC | Errno::DQUOT) => Some(Err(RelocateError::NoSpace)),
            _ => {
                self.in_kernel = false;
                None
            }
        }
    }

    fn buffered_slice(&mut self, at: u64, len: u64) -> Result<u64, RelocateError> {
        let len = (len as usize).min(BUFFER);
        self.buffer.resize(len, 0);
        let buffer = self.buffer.as_mut_slice();
        let read = retry_on_intr(|| pread(self.input, &mut *buffer, at))
            .map_err(|errno| RelocateError::Read { offset: at, errno })?;
        if read == 0 {
            // It is shorter than it was.
            return Err(RelocateError::Changed);
        }
        let mut written = 0;
        while let Some(rest) = buffer.get(written..read).filter(|rest| !rest.is_empty()) {
            let offset = at + written as u64;
            match retry_on_intr(|| rustix::io::pwrite(self.output, rest, offset)) {
                Ok(0) => return Err(RelocateError::Write { offset, errno: Errno::IO }),
                Ok(count) => written += count,
                Err(Errno::NOSPC | Errno::DQUOT) => return Err(RelocateError::NoSpace),
                Err(Errno::FBIG) => return Err(RelocateError::TooLarge),
                Err(errno) => return Err(RelocateError::Write { offset, errno }),
            }
        }
        Ok(read as u64)
    }
}
