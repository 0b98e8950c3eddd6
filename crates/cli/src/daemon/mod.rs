//! Going to the background. The starter runs the program again as the leader of its own session, with standard output
//! as a pipe and standard error as the log. It waits until the program is ready or has failed.
//!
//! Starting afresh rather than forking keeps threads, locks and open files of the starter out of the daemon. The pipe
//! carries one line of JSON. When the starter is gone before a pool's daemon is ready, that daemon ends again, since
//! no caller waits for it. A disk's daemon continues.

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
    let line = daemon.stdout.take().map(|pipe| read_first_line(pipe, waiting)).transpose();
    let line = line.context("waiting for the daemon")?.unwrap_or_default();
    match serde_json::from_slice(&line) {
        Ok(StartupResult::Ready { .. }) => Ok(()),
        Ok(StartupResult::Failed { error }) => bail!("{}", without_control_characters(&error)),
        Err(_) => {
            let status = daemon.wait()?;
            bail!("the daemon ended before it was ready: {}; see {}", describe_exit(status), visible_path(log))
        }
    }
}

/// How a process ended that could report nothing itself.
fn describe_exit(status: ExitStatus) -> String {
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

fn read_first_line(pipe: ChildStdout, waiting: &mut dyn FnMut(Duration)) -> io::Result<Vec<u8>> {
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

/// The error without control characters except line ends. An error may show several places of a configuration.
fn without_control_characters(error: &str) -> String {
    error.lines().map(visible).collect::<Vec<_>>().join("\n")
}

fn open_log(path: &Path) -> io::Result<File> {
    if let Some(dir) = path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
        DirBuilder::new().recursive(true).mode(0o755).create(dir)?;
    }
    OpenOptions::new().create(true).append(true).mode(0o640).open(path)
}

/// The process that started this daemon. It waits for one [`StartupResult`].
#[derive(Debug, Clone)]
pub(crate) struct Starter {
    pipe: Arc<File>,
}

impl Starter {
    /// Leaves the starter's session and directory, keeps the pipe, and sends standard output to /dev/null.
    pub(crate) fn detach() -> anyhow::Result<Starter> {
        let pipe = rustix::io::fcntl_dupfd_cloexec(io::stdout(), 3).context("keeping the pipe to the starter")?;
        let nowhere = OpenOptions::new().write(true).open("/dev/null").context("opening /dev/null")?;
        nix::unistd::dup2_stdout(&nowhere).context("closing standard output")?;
        rustix::process::setsid().context("starting a session")?;
        std::env::set_current_dir("/").context("leaving the directory")?;
        Ok(Starter { pipe: Arc::new(File::from(pipe)) })
    }

    /// Reports that the daemon is ready. Fails when the starter has ended.
    pub(crate) fn report_ready(&self) -> io::Result<()> {
        self.send(&StartupResult::Ready { pid: std::process::id() })
    }

    /// Reports why the daemon failed. After [`Starter::report_ready`] only the log gets the error.
    pub(crate) fn report_failure(&self, error: &anyhow::Error) {
        let _ = self.send(&StartupResult::Failed { error: reasons(error) });
    }

    fn send(&self, result: &StartupResult) -> io::Result<()> {
        let mut line = serde_json::to_vec(result)?;
        line.push(b'\n');
        (&*self.pipe).write_all(&line)
    }
}

#[cfg(test)]
mod tests;
