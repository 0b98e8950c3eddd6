//! Intent files on disk: whole and durable, or not there.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, fstat, fsync, openat, renameat, unlinkat};
use rustix::io::{Errno, read, retry_on_intr, write};

use super::error::ErrorContext;
use super::intent::MAX_INTENT;
use super::{Intent, RelocateError, attrs};

/// Begins the name of an intent that is being written.
pub(super) const NEW: &str = "new-";
/// Begins the name of an intent that could not be read.
pub(super) const BAD: &str = "bad-";
/// Begins the name of a copy of a move's intent, on the old branch: the move has not happened.
pub(super) const ABANDONED: &str = "abandoned-";

static COUNTER: AtomicU64 = AtomicU64::new(0);

/// An intent on disk.
#[derive(Debug)]
#[must_use = "an intent that is not removed is acted on at the next mount"]
pub struct Recorded<'a> {
    dir: BorrowedFd<'a>,
    name: OsString,
}

/// Writes an intent, durable when this returns.
///
/// Steps: write under another name, fsync, rename, fsync the directory.
pub fn record<'a>(intents: BorrowedFd<'a>, intent: &Intent) -> Result<Recorded<'a>, RelocateError> {
    record_as(intents, fresh_name(), intent)
}

/// Records on the old branch of a move that the move has not happened, durable when this returns. `intents`: there.
/// Every name of the file is as it was, so what recovery finds missing users have removed or renamed since.
pub fn record_abandoned(intents: BorrowedFd<'_>, abandoned: &Intent) -> Result<(), RelocateError> {
    let mut name = OsString::from(ABANDONED);
    name.push(fresh_name());
    record_as(intents, name, abandoned).map(|_stays| ())
}

/// As [`record`], with what makes the file durable, and whatever else must be before the intent is there.
pub(super) fn record_after<'a>(
    intents: BorrowedFd<'a>,
    intent: &Intent,
    sync: impl FnOnce(BorrowedFd<'_>) -> Result<(), Errno>,
) -> Result<Recorded<'a>, RelocateError> {
    record_synced(intents, fresh_name(), intent, sync)
}

/// As [`record`], under a name that the caller has chosen.
pub(super) fn record_as<'a>(
    intents: BorrowedFd<'a>,
    name: OsString,
    intent: &Intent,
) -> Result<Recorded<'a>, RelocateError> {
    record_synced(intents, name, intent, sync_intent)
}

fn sync_intent(file: BorrowedFd<'_>) -> Result<(), Errno> {
    retry_on_intr(|| fsync(file))
}

fn record_synced<'a>(
    intents: BorrowedFd<'a>,
    name: OsString,
    intent: &Intent,
    sync: impl FnOnce(BorrowedFd<'_>) -> Result<(), Errno>,
) -> Result<Recorded<'a>, RelocateError> {
    let bytes = intent.encode()?;
    let mut temp = OsString::from(NEW);
    temp.push(&name);
    let written = write_file(intents, &temp, &bytes)
        .and_then(|file| sync(file.as_fd()))
        .and_then(|()| renameat(intents, &temp, intents, &name));
    if let Err(errno) = written {
        let _already_failing = unlinkat(intents, &temp, AtFlags::empty());
        return Err(errno).doing("write an intent");
    }
    if let Err(errno) = attrs::sync_dir(intents) {
        let _already_failing = unlinkat(intents, &name, AtFlags::empty());
        return Err(errno).doing("flush an intent");
    }
    Ok(Recorded { dir: intents, name })
}

impl<'a> Recorded<'a> {
    /// The one of this name, written before.
    pub(super) fn new(dir: BorrowedFd<'a>, name: OsString) -> Self {
        Recorded { dir, name }
    }

    /// Removes it, durable when this returns: the change is complete.
    pub fn remove(self) -> Result<(), RelocateError> {
        unlinkat(self.dir, &self.name, AtFlags::empty()).doing("remove an intent")?;
        attrs::sync_dir(self.dir).doing("flush the removal of an intent")
    }

    /// Removes it, durable some time later: enough for a kind whose recovery does nothing once the change is complete.
    pub(super) fn remove_lazily(self) -> Result<(), RelocateError> {
        unlinkat(self.dir, &self.name, AtFlags::empty()).doing("remove an intent")
    }
}

/// Sorts by time, so that recovery acts in the order of the changes.
pub(super) fn fresh_name() -> OsString {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    let count = COUNTER.fetch_add(1, Ordering::Relaxed);
    format!("{now:016x}-{count:08x}-{:x}", std::process::id()).into()
}

fn write_file(dir: BorrowedFd<'_>, name: &OsStr, bytes: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(dir, name, flags, Mode::RUSR | Mode::WUSR)?;
    let mut rest = bytes;
    while !rest.is_empty() {
        let written = retry_on_intr(|| write(&file, rest))?;
        rest = rest.get(written..).filter(|_| written > 0).ok_or(Errno::IO)?;
    }
    Ok(file)
}

/// The bytes of an intent file; `None` if it cannot be one: another kind of file, or too long.
pub(super) fn read_file(dir: BorrowedFd<'_>, name: &OsStr) -> Result<Option<Vec<u8>>, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match openat(dir, name, flags, Mode::empty()) {
        Err(Errno::LOOP | Errno::NXIO) => return Ok(None),
        file => file?,
    };
    let stat = fstat(&file)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || stat.st_size > MAX_INTENT as i64 {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    while bytes.len() <= MAX_INTENT {
        let count = retry_on_intr(|| read(&file, &mut chunk))?;
        if count == 0 {
            return Ok(Some(bytes));
        }
        bytes.extend_from_slice(chunk.get(..count).ok_or(Errno::IO)?);
    }
    Ok(None)
}
