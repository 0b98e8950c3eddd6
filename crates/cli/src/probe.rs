//! Looks at paths whose file system may hang: a network's, or one of a FUSE daemon that is stopped.
//!
//! Once such a daemon has read a request and does not answer it, the thread that asked cannot be killed, and its process cannot end. So the question
//! is asked by a process of its own, with its own standard streams, that nobody waits for longer than a limit:
//!
//! 1. This program is run again as `umbrella --probe QUESTION PATH`.
//! 2. It answers with one line of JSON, or not.
//! 3. One that is late is killed. It ends when it can, and nobody waits for that.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// The first argument of the process that asks.
const OPTION: &str = "--probe";
/// Longest answer.
const LONGEST: u64 = 4096;
/// How long one that was killed may take to end. One that hangs never does.
const FAREWELL: Duration = Duration::from_millis(100);

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Question {
    /// What is there.
    Stat,
    /// How much is free; what the kernel keeps of its files is no answer.
    Space,
    /// Whether a file can be locked by a reader.
    LockShared,
    /// Whether a file can be locked by a writer.
    LockExclusive,
}

impl Question {
    const ALL: [(Question, &str); 4] = [
        (Question::Stat, "stat"),
        (Question::Space, "space"),
        (Question::LockShared, "lock-shared"),
        (Question::LockExclusive, "lock-exclusive"),
    ];

    fn word(self) -> &'static str {
        Question::ALL.iter().find(|(question, _)| *question == self).map_or("", |(_, word)| word)
    }
}

/// What is at a path.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Found {
    /// The file system's device.
    pub(crate) device: u64,
    /// The inode.
    pub(crate) inode: u64,
    /// It is a regular file.
    pub(crate) is_file: bool,
    /// It is a block device.
    pub(crate) is_block: bool,
    /// Free bytes for unprivileged users; only [`Question::Space`] tells them.
    #[serde(default)]
    pub(crate) free: u64,
}

/// What came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reply {
    /// It is there, and what was asked for can be done.
    Yes(Found),
    /// It fails with this error.
    No(Errno),
    /// Nothing came in time.
    Silent,
}

/// What the process says: what it found, or an error number.
type Said = Result<Found, i32>;

/// Asks, and waits for the reply so long at most.
pub(crate) fn ask(question: Question, path: &Path, limit: Duration) -> Reply {
    let Ok(path) = std::path::absolute(path) else { return Reply::No(Errno::NOENT) };
    let child = Command::new("/proc/self/exe")
        .args([OPTION, question.word()])
        .arg(path)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    // Without a process nothing can be asked safely.
    let Ok(mut child) = child else { return Reply::Silent };
    let said = listen(&mut child, Instant::now() + limit);
    if said.is_none() {
        let _ = child.kill();
    }
    let until = Instant::now() + FAREWELL;
    while !matches!(child.try_wait(), Ok(Some(_)) | Err(_)) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    match said {
        Some(Ok(found)) => Reply::Yes(found),
        Some(Err(error)) => Reply::No(Errno::from_raw_os_error(error)),
        None => Reply::Silent,
    }
}

/// Reads what the process says until it has said all.
fn listen(child: &mut Child, until: Instant) -> Option<Said> {
    let mut pipe = child.stdout.take()?;
    let mut said = Vec::new();
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::new(&pipe, PollFlags::IN)], Some(&left)) {
            Err(Errno::INTR) => continue,
            Ok(1..) => {}
            Ok(0) | Err(_) => return None,
        }
        let mut piece = [0; 512];
        let read = pipe.read(&mut piece).ok()?;
        said.extend_from_slice(piece.get(..read)?);
        if read == 0 || said.len() as u64 > LONGEST {
            return serde_json::from_slice(&said).ok();
        }
    }
}

/// The other side: answers if this process was started to ask.
pub(crate) fn answer(args: &[std::ffi::OsString]) -> Option<ExitCode> {
    let [_, option, word, path] = args else { return None };
    if option != OPTION {
        return None;
    }
    let (question, _) = Question::ALL.iter().find(|(_, known)| word == known)?;
    let said: Said = look(*question, Path::new(path)).map_err(|error| error.raw_os_error().unwrap_or(0));
    let said = serde_json::to_string(&said).unwrap_or_default();
    let said = crate::output::line(&said);
    Some(if said.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn look(question: Question, path: &Path) -> std::io::Result<Found> {
    if question == Question::Space {
        // Of its space the kernel keeps nothing, as it does of attributes.
        let space = rustix::fs::statvfs(path)?;
        return Ok(Found { free: space.f_bavail.saturating_mul(space.f_frsize), ..Found::default() });
    }
    let lock = match question {
        Question::LockShared => Some(FlockOperation::NonBlockingLockShared),
        Question::LockExclusive => Some(FlockOperation::NonBlockingLockExclusive),
        Question::Stat | Question::Space => None,
    };
    let data = match lock {
        Some(lock) => {
            let file = File::open(path)?;
            rustix::fs::flock(&file, lock)?;
            file.metadata()?
        }
        None => std::fs::metadata(path)?,
    };
    Ok(found(&data))
}

/// What is told of a file.
pub(crate) fn found(data: &std::fs::Metadata) -> Found {
    Found {
        device: data.dev(),
        inode: data.ino(),
        is_file: data.is_file(),
        is_block: data.file_type().is_block_device(),
        free: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_process_that_was_started_to_ask_answers() {
        let args = |words: &[&str]| words.iter().map(std::ffi::OsString::from).collect::<Vec<_>>();
        assert!(answer(&args(&["umbrella", "status", "--probe", "/"])).is_none());
        assert!(answer(&args(&["umbrella", "--probe", "what", "/"])).is_none());
    }

    #[test]
    fn what_is_there_is_found_and_what_is_not_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        let held = File::create(&file).unwrap();
        let seen = look(Question::Stat, &file).unwrap();
        assert_eq!((seen.device, seen.inode), (held.metadata().unwrap().dev(), held.metadata().unwrap().ino()));
        assert!(look(Question::LockExclusive, &file).is_ok());
        rustix::fs::flock(&held, FlockOperation::NonBlockingLockShared).unwrap();
        assert!(look(Question::LockShared, &file).is_ok());
        let locked = look(Question::LockExclusive, &file).unwrap_err();
        assert_eq!(locked.raw_os_error(), Some(Errno::AGAIN.raw_os_error()));
        let missing = look(Question::Stat, &dir.path().join("missing")).unwrap_err();
        assert_eq!(missing.raw_os_error(), Some(Errno::NOENT.raw_os_error()));
    }
}
