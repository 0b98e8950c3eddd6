//! The log of one branch as a file: `.umbrella/inodes`.
//!
//! Steps of [`open`]:
//!
//! 1. Read the log.
//! 2. Cut off what a crash left half written.
//! 3. When more than half of the records are dead, write the live ones to `inodes.new`, fsync, rename, fsync the
//!    folder.
//!
//! A file that is not a log at all is kept as `inodes.damaged`.
//!
//! On a branch that may hang, the file is open only while it is written, on one of the branch's threads: no other
//! thread closes it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::InodeMapError;
use super::record::{Decoded, HEADER, HeaderError, RECORD, Record, decode, encode, header};

const NAME: &str = "inodes";
const NEXT: &str = "inodes.new";
const DAMAGED: &str = "inodes.damaged";
/// A log is not rewritten below this many records.
const LEAST: usize = 1024;
/// A log longer than this is not ours.
const MOST: u64 = 16 << 30;

/// A log that may be appended to.
#[derive(Debug)]
pub(super) struct LogFile {
    /// `None` between two writes, on a branch that may hang.
    file: Option<Arc<OwnedFd>>,
    /// Where the next record goes; what lies beyond was cut short.
    end: u64,
}

impl LogFile {
    /// Appends whole records. After an error none of them counts, and they may be given again.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<(), Errno> {
        let file = self.file.as_ref().ok_or(Errno::BADF)?;
        write_all(file.as_fd(), bytes, self.end)?;
        self.end += bytes.len() as u64;
        Ok(())
    }

    /// For a sync that does not delay appends.
    pub(super) fn file(&self) -> Option<Arc<OwnedFd>> {
        self.file.clone()
    }

    /// Opens it again, to be written and closed.
    pub(super) fn reopen(&mut self, hidden: BorrowedFd<'_>) -> Result<(), Errno> {
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        self.file = Some(Arc::new(rustix::fs::openat(hidden, NAME, flags, Mode::empty())?));
        Ok(())
    }

    /// Closes it, which may wait for the branch.
    pub(super) fn close(&mut self) {
        self.file = None;
    }

    /// Waits until what was appended is on the disk.
    pub(super) fn sync(&self) -> Result<(), Errno> {
        self.file.as_ref().map_or(Ok(()), rustix::fs::fdatasync)
    }
}

/// Reads the log of a branch that is not written.
pub(super) fn read_only(root: BorrowedFd<'_>) -> Result<Vec<Record>, InodeMapError> {
    let path = format!("{}/{NAME}", crate::branch::HIDDEN_DIR);
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    match crate::branch::beneath::open_beneath(root, path.as_bytes(), flags, Mode::empty()) {
        Ok(file) => match decode(&read_all(file.as_fd())?) {
            Ok(log) => Ok(log.records),
            Err(HeaderError::Damaged) => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        },
        Err(Errno::NOENT | Errno::ACCESS) => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}

/// Opens, or begins, the log in a hidden folder. `live` gives the records that matter still.
pub(super) fn open(
    hidden: BorrowedFd<'_>,
    live: impl FnOnce(&[Record]) -> Vec<Record>,
) -> Result<(LogFile, Vec<Record>), InodeMapError> {
    let file = open_file(hidden, NAME, OFlags::empty())?;
    let log = match decode(&read_all(file.as_fd())?) {
        Ok(log) => log,
        Err(HeaderError::Damaged) => {
            tracing::warn!("a log of inode numbers is damaged; files that moved may get other numbers");
            rustix::fs::renameat(hidden, NAME, hidden, DAMAGED)?;
            let file = open_file(hidden, NAME, OFlags::EXCL)?;
            return Ok((begin(file)?, Vec::new()));
        }
        Err(error) => return Err(error.into()),
    };
    if log.good == 0 {
        return Ok((begin(file)?, Vec::new()));
    }
    if log.records.len() >= LEAST {
        let kept = live(&log.records);
        if kept.len() < log.records.len() / 2
            && let Ok(fresh) = rewrite(hidden, &kept)
        {
            return Ok((fresh, kept));
        }
    }
    rustix::fs::ftruncate(&file, log.good as u64)?;
    let Decoded { records, good } = log;
    Ok((LogFile { file: Some(Arc::new(file)), end: good as u64 }, records))
}

fn open_file(hidden: BorrowedFd<'_>, name: &str, more: OFlags) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | more;
    rustix::fs::openat(hidden, name, flags, Mode::RUSR | Mode::WUSR)
}

fn begin(file: OwnedFd) -> Result<LogFile, Errno> {
    rustix::fs::ftruncate(&file, 0)?;
    let mut log = LogFile { file: Some(Arc::new(file)), end: 0 };
    log.append(&header())?;
    Ok(log)
}

fn rewrite(hidden: BorrowedFd<'_>, records: &[Record]) -> Result<LogFile, Errno> {
    let mut log = begin(open_file(hidden, NEXT, OFlags::TRUNC)?)?;
    let mut bytes = Vec::with_capacity(records.len() * RECORD);
    for record in records {
        bytes.extend_from_slice(&encode(record));
    }
    log.append(&bytes)?;
    log.sync()?;
    rustix::fs::renameat(hidden, NEXT, hidden, NAME)?;
    // The old log is gone in any case.
    if let Err(error) = rustix::fs::fsync(hidden) {
        tracing::warn!(%error, "a log of inode numbers was written anew, and a power loss may bring the old one back");
    }
    Ok(log)
}

/// Writes all bytes, the first of them at `at`.
pub(super) fn write_all(file: BorrowedFd<'_>, mut bytes: &[u8], mut at: u64) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::pwrite(file, bytes, at) {
            Ok(0) => return Err(Errno::IO),
            Ok(count) => {
                at += count as u64;
                bytes = bytes.get(count..).ok_or(Errno::IO)?;
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

pub(super) fn read_all(file: BorrowedFd<'_>) -> Result<Vec<u8>, InodeMapError> {
    let size = u64::try_from(rustix::fs::fstat(file)?.st_size).unwrap_or(0);
    if size > MOST {
        return Err(InodeMapError::TooLong { bytes: size });
    }
    let mut bytes = vec![0; (size as usize).max(HEADER)];
    let mut filled = 0;
    while let Some(room) = bytes.get_mut(filled..).filter(|room| !room.is_empty()) {
        match rustix::io::pread(file, room, filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}
