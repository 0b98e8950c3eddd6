//! Opening below a directory, and nowhere else: no symbolic link, magic link or `..` leads out of a branch.
//!
//! Uses `openat2` (Linux 5.6). Paths longer than `PATH_MAX` are walked in steps, each of which is held by a descriptor.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::{Errno, Result};

/// What to tell people when [`supported`] says no.
pub const MISSING: &str = "this kernel has no openat2 call (Linux 5.6 or newer is needed, and a sandbox must allow it)";

/// Longest path given to the kernel in one call (`PATH_MAX` counts the terminating zero).
const STEP: usize = 4095;
/// How often a lookup that raced with a rename is tried again.
const RETRIES: usize = 64;

/// Opens `path`, relative to `root`; `b""` is `root` itself. Symbolic links are never followed: ELOOP, anywhere in the
/// path (with `O_PATH | O_NOFOLLOW` the last component may be one, and is opened itself). Always adds `O_CLOEXEC`.
///
/// `mode` counts only with `O_CREAT` or `O_TMPFILE`, and the process's umask applies.
pub fn open_beneath(root: BorrowedFd<'_>, path: &[u8], flags: OFlags, mode: Mode) -> Result<OwnedFd> {
    let mut rest = trim(path);
    let mut at: Option<OwnedFd> = None;
    while rest.len() > STEP {
        let (step, after) = split_step(rest)?;
        let from = at.as_ref().map_or(root, AsFd::as_fd);
        let next = open_step(from, step, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
        at = Some(next);
        rest = trim_start(after);
    }
    let from = at.as_ref().map_or(root, AsFd::as_fd);
    open_step(from, if rest.is_empty() { b"." } else { rest }, flags, mode)
}

/// Opens the directory that holds `path` (as `O_PATH`) and gives the last name. `None` for the root itself.
pub fn parent_beneath<'a>(root: BorrowedFd<'_>, path: &'a [u8]) -> Result<Option<(OwnedFd, &'a [u8])>> {
    let path = trim(path);
    if path.is_empty() {
        return Ok(None);
    }
    let (parent, name) = split(path);
    let dir = open_beneath(root, parent, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
    Ok(Some((dir, name)))
}

/// Splits a relative path into its parent (may be empty) and its name.
pub(crate) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(slash) => (path.get(..slash).unwrap_or_default(), path.get(slash + 1..).unwrap_or_default()),
        None => (&[], path),
    }
}

/// Whether the kernel has `openat2` and lets us call it.
pub fn supported(dir: BorrowedFd<'_>) -> bool {
    let tried = open_beneath(dir, b"", OFlags::PATH | OFlags::DIRECTORY, Mode::empty());
    !matches!(tried, Err(Errno::NOSYS | Errno::PERM | Errno::TOOBIG | Errno::INVAL))
}

fn open_step(at: BorrowedFd<'_>, path: &[u8], flags: OFlags, mode: Mode) -> Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let creates = flags.contains(OFlags::CREATE) || flags.contains(OFlags::TMPFILE);
    let mode = if creates { mode } else { Mode::empty() };
    let mut tries = 0;
    loop {
        match rustix::fs::openat2(at, path, flags | OFlags::CLOEXEC, mode, resolve) {
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) if tries < RETRIES => tries += 1,
            other => return other,
        }
    }
}

/// The longest run of whole components that one call takes, and what follows it.
fn split_step(path: &[u8]) -> Result<(&[u8], &[u8])> {
    let head = path.get(..=STEP).unwrap_or(path);
    let slash = head.iter().rposition(|&byte| byte == b'/').ok_or(Errno::NAMETOOLONG)?;
    path.split_at_checked(slash).ok_or(Errno::NAMETOOLONG)
}

fn trim_start(path: &[u8]) -> &[u8] {
    let from = path.iter().position(|&byte| byte != b'/').unwrap_or(path.len());
    path.get(from..).unwrap_or_default()
}

fn trim(path: &[u8]) -> &[u8] {
    let path = trim_start(path);
    let to = path.iter().rposition(|&byte| byte != b'/').map_or(0, |last| last + 1);
    path.get(..to).unwrap_or_default()
}
