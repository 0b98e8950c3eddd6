//! Going to the background. The starter runs the program again as the leader of its own session, with standard output
//! as a pipe and standard error as the log. It waits until the program is ready or has failed.
//!
//! Starting afresh rather than forking keeps threads, locks and open files of the starter out of the daemon. The pipe
//! carries one line of JSON. When the starter is gone before a pool's daemon is ready, that daemon ends again, since
//! nobody waits for it. A disk's daemon goes on.

use std::ffi::OsString;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ChildStdout, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

use crate::output::reasons;
use crate::text::{visible, visible_path};

/// Longest line that is read from the daemon.
const LONGEST_LINE: u64 = 1 << 20;

/// The one line in the pipe.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StartupResult {
    Ready { pid: u32 },
    Failed { error: String },
}

/// Interval between two reports of how long the wait has taken.
const TELL_EVERY: Duration = Duration::from_millis(500);

/// Runs this program with `args` in the background; returns once it says that it is ready. `started` gets its process,
/// and `waiting` now and then how long that has taken.
pub(crate) fn start(
    args: &[OsString],
    log: &Path,
    started: impl FnOnce(u32),
    waiting: &mut dyn FnMut(Duration),
) -> anyhow::Result<()> {
    let program = std::env::current_exe().context("finding the program itself")?;
    let log_file =
        open_log(log).with_context(|| format!("the log {} (choose another with --log)", visible_path(log)))?;
    let mut daemon = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log_file)
        .spawn()
        .context("starting the daemon")?;
    started(daemon.id());
    let line = daemon.stdout.take().map(|pipe| first_line(pipe, waiting)).transpose();
    let line = line.context("waiting for the daemon")?.unwrap_or_default();
    match serde_json::from_slice(&line) {
        Ok(StartupResult::Ready { .. }) => Ok(()),
        Ok(StartupResult::Failed { error }) => bail!("{}", shown(&error)),
        Err(_) => {
            let status = daemon.wait()?;
            bail!("the daemon ended before it was ready: {}; see {}", how_it_ended(status), visible_path(log))
        }
    }
}

/// A process that is killed or aborted says nothing itself.
fn how_it_ended(status: ExitStatus) -> String {
    match status.signal() {
        Some(libc::SIGKILL) => {
            "it was killed (SIGKILL), perhaps because memory ran out (see `dmesg`; raise MemoryMax= in a unit)"
                .to_owned()
        }
        Some(libc::SIGABRT) => {
            "it aborted (SIGABRT), usually because memory ran out (raise MemoryMax= in a unit, or `ulimit -v`)"
                .to_owned()
        }
        _ => status.to_string(),
    }
}

fn first_line(pipe: ChildStdout, waiting: &mut dyn FnMut(Duration)) -> io::Result<Vec<u8>> {
    let (send, read) = channel();
    std::thread::Builder::new().name("word".to_owned()).spawn(move || {
        let mut line = Vec::new();
        let done = BufReader::new(pipe.take(LONGEST_LINE)).read_until(b'\n', &mut line);
        let _ = send.send(done.map(|_| line));
    })?;
    let since = Instant::now();
    loop {
        match read.recv_timeout(TELL_EVERY) {
            Ok(line) => return line,
            Err(RecvTimeoutError::Timeout) => waiting(since.elapsed()),
            Err(RecvTimeoutError::Disconnected) => return Ok(Vec::new()),
        }
    }
}

/// Line ends of an error stay (it may show several places of a configuration), other control characters do not.
fn shown(error: &str) -> String {
    error.lines().map(visible).collect::<Vec<_>>().join("\n")
}

fn open_log(path: &Path) -> io::Result<File> {
    if let Some(dir) = path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
        DirBuilder::new().recursive(true).mode(0o755).create(dir)?;
    }
    OpenOptions::new().create(true).append(true).mode(0o640).open(path)
}

/// The process that started this daemon, which waits for one word.
#[derive(Debug, Clone)]
pub(crate) struct Starter {
    pipe: Arc<File>,
}

impl Starter {
    /// Leaves the starter's session and directory, and keeps the pipe; standard output leads nowhere from now on.
    pub(crate) fn leave() -> anyhow::Result<Starter> {
        let pipe = rustix::io::fcntl_dupfd_cloexec(io::stdout(), 3).context("keeping the pipe to the starter")?;
        let nowhere = OpenOptions::new().write(true).open("/dev/null").context("opening /dev/null")?;
        nix::unistd::dup2_stdout(&nowhere).context("closing standard output")?;
        rustix::process::setsid().context("starting a session")?;
        std::env::set_current_dir("/").context("leaving the directory")?;
        Ok(Starter { pipe: Arc::new(File::from(pipe)) })
    }

    /// All is ready. Fails when the starter is gone.
    pub(crate) fn ready(&self) -> io::Result<()> {
        self.say(&StartupResult::Ready { pid: std::process::id() })
    }

    /// It failed, and why. After [`Starter::ready`] nobody listens; the log has it too.
    pub(crate) fn failed(&self, error: &anyhow::Error) {
        let _ = self.say(&StartupResult::Failed { error: reasons(error) });
    }

    fn say(&self, word: &StartupResult) -> io::Result<()> {
        let mut line = serde_json::to_vec(word)?;
        line.push(b'\n');
        (&*self.pipe).write_all(&line)
    }
}

#[cfg(test)]
mod tests;
