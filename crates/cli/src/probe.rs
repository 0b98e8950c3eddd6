//! Looks at paths whose file system may hang: a network's, or one of a FUSE daemon that is stopped.
//!
//! Once such a daemon has read a request and does not answer it, the thread that asked cannot be killed, and its
//! process cannot end. So the question is asked by a process of its own, with its own standard streams, that no process
//! waits for longer than a limit:
//!
//! 1. This program is run again as `umbrella --probe QUESTION PATH`.
//! 2. It answers with one line of JSON, or not.
//! 3. One that is late is killed. It ends when it can, and no caller waits for that.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The first argument of the process that asks.
const OPTION: &str = "--probe";
/// Longest answer: a path has 4096 bytes at most, of four characters each.
const LONGEST: u64 = 64 << 10;
/// How long one that was killed may take to end. One that hangs never does.
const KILL_TIMEOUT: Duration = Duration::from_millis(100);

/// A question about a path that has a short answer.
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

/// A question about a path that has a long answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProbeKind {
    /// All that a configuration is compared with.
    See,
    /// The path without symbolic links: a [`Resolved`].
    Resolve,
    /// What keeps it from being a staging area in volatile memory.
    VolatileStaging,
    /// What keeps it from being a staging area on memory that keeps its contents, and whether it is on a disk.
    LastingStaging,
}

impl ProbeKind {
    const ALL: [(ProbeKind, &str); 4] = [
        (ProbeKind::See, "see"),
        (ProbeKind::Resolve, "resolve"),
        (ProbeKind::VolatileStaging, "volatile-staging"),
        (ProbeKind::LastingStaging, "lasting-staging"),
    ];

    fn word(self) -> &'static str {
        ProbeKind::ALL.iter().find(|(look, _)| *look == self).map_or("", |(_, word)| word)
    }
}

/// A path without symbolic links.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Resolved {
    #[serde(with = "bytes_of_path")]
    pub(crate) path: PathBuf,
}

/// A path may be no text.
pub(crate) mod bytes_of_path {
    use std::ffi::OsString;
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    use std::path::{Path, PathBuf};

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
        path.as_os_str().as_bytes().serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
        Ok(OsString::from_vec(Vec::deserialize(deserializer)?).into())
    }
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
    /// It is a directory.
    pub(crate) is_dir: bool,
    /// It is a block device.
    pub(crate) is_block: bool,
    /// Free bytes for unprivileged users; only [`Question::Space`] tells them.
    #[serde(default)]
    pub(crate) free: u64,
}

/// What came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProbeReply {
    /// It is there, and what was asked for can be done.
    Yes(Found),
    /// It fails with this error.
    No(Errno),
    /// Nothing came in time.
    Silent,
}

/// What the process says: what it found, or an error number.
type HelperResult = Result<Found, i32>;

/// Queries a path in a child process. Waits for the reply for at most `limit`.
pub(crate) fn query(question: Question, path: &Path, limit: Duration) -> ProbeReply {
    match run(question.word(), path, limit) {
        Some(HelperResult::Ok(found)) => ProbeReply::Yes(found),
        Some(HelperResult::Err(error)) => ProbeReply::No(Errno::from_raw_os_error(error)),
        None => ProbeReply::Silent,
    }
}

/// Inspects a path in a child process. `None` if the child does not reply within `limit`.
pub(crate) fn inspect_path<T: DeserializeOwned>(look: ProbeKind, path: &Path, limit: Duration) -> Option<T> {
    run(look.word(), path, limit)
}

/// Runs a process that answers a question, for at most `limit`.
fn run<T: DeserializeOwned>(word: &str, path: &Path, limit: Duration) -> Option<T> {
    let path = std::path::absolute(path).ok()?;
    let child = Command::new("/proc/self/exe")
        .args([OPTION, word])
        .arg(path)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    // Without a process nothing can be asked safely.
    let mut child = child.ok()?;
    let said = read_reply(&mut child, Instant::now() + limit);
    if said.is_none() {
        let _ = child.kill();
    }
    let until = Instant::now() + KILL_TIMEOUT;
    while !matches!(child.try_wait(), Ok(Some(_)) | Err(_)) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    said
}

/// Reads the child's reply.
fn read_reply<T: DeserializeOwned>(child: &mut Child, until: Instant) -> Option<T> {
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

/// The child's side: replies if this process was started as a probe. `inspect_as_json` inspects a path.
pub(crate) fn run_child(
    args: &[std::ffi::OsString],
    inspect_as_json: impl Fn(ProbeKind, &Path) -> serde_json::Result<String>,
) -> Option<ExitCode> {
    let [_, option, word, path] = args else { return None };
    if option != OPTION {
        return None;
    }
    let path = Path::new(path);
    let known = ProbeKind::ALL.iter().find(|(_, known)| word == known);
    let said = if let Some((asked, _)) = known {
        inspect_as_json(*asked, path)
    } else {
        let (question, _) = Question::ALL.iter().find(|(_, known)| word == known)?;
        let said: HelperResult = inspect(*question, path).map_err(|error| error.raw_os_error().unwrap_or(0));
        serde_json::to_string(&said)
    };
    let said = said.unwrap_or_default();
    let said = crate::output::line(&said);
    Some(if said.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn inspect(question: Question, path: &Path) -> std::io::Result<Found> {
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

/// The reported facts about a file.
pub(crate) fn found(data: &std::fs::Metadata) -> Found {
    Found {
        device: data.dev(),
        inode: data.ino(),
        is_file: data.is_file(),
        is_dir: data.is_dir(),
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
        let nothing = |_: ProbeKind, _: &Path| Ok(String::new());
        assert!(run_child(&args(&["umbrella", "status", "--probe", "/"]), nothing).is_none());
        assert!(run_child(&args(&["umbrella", "--probe", "what", "/"]), nothing).is_none());
    }

    #[test]
    fn what_is_there_is_found_and_what_is_not_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        let held = File::create(&file).unwrap();
        let seen = inspect(Question::Stat, &file).unwrap();
        assert_eq!((seen.device, seen.inode), (held.metadata().unwrap().dev(), held.metadata().unwrap().ino()));
        assert!(inspect(Question::LockExclusive, &file).is_ok());
        rustix::fs::flock(&held, FlockOperation::NonBlockingLockShared).unwrap();
        assert!(inspect(Question::LockShared, &file).is_ok());
        let locked = inspect(Question::LockExclusive, &file).unwrap_err();
        assert_eq!(locked.raw_os_error(), Some(Errno::AGAIN.raw_os_error()));
        let missing = inspect(Question::Stat, &dir.path().join("missing")).unwrap_err();
        assert_eq!(missing.raw_os_error(), Some(Errno::NOENT.raw_os_error()));
    }
}
