//! A daemon in the foreground that ends with the benchmark, however that ends; and one that mounts something.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::host;

const START: Duration = Duration::from_secs(20);
const STOP: Duration = Duration::from_secs(20);

/// A running daemon; killed when dropped.
pub(crate) struct Daemon {
    child: Option<Child>,
    what: &'static str,
    log: PathBuf,
}

impl Daemon {
    /// Starts it; it logs to `log`. `last_signal` is what it gets when the benchmark is killed.
    pub(crate) fn start(what: &'static str, command: &Command, log: &Path, last_signal: &str) -> Result<Self> {
        let errors = File::create(log).with_context(|| format!("cannot create {}", log.display()))?;
        let mut wrapped = Command::new("setpriv");
        wrapped.args(["--pdeathsig", last_signal]).arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => wrapped.env(name, value),
                None => wrapped.env_remove(name),
            };
        }
        let child = wrapped
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(errors.try_clone()?)
            .stderr(errors)
            .spawn()
            .with_context(|| format!("cannot start {what}"))?;
        host::add_daemon(&child)?;
        Ok(Self { child: Some(child), what, log: log.to_owned() })
    }

    /// Asks again and again until the answer is something; fails when the daemon ends before.
    pub(crate) fn wait_for<T>(&mut self, mut ask: impl FnMut() -> Result<Option<T>>) -> Result<T> {
        let begin = Instant::now();
        loop {
            host::check()?;
            if let Some(answer) = ask()? {
                return Ok(answer);
            }
            if let Some(status) = self.ended()? {
                bail!("{} ended at once ({status}): {}", self.what, self.log_tail());
            }
            if begin.elapsed() > START {
                bail!("{} was not ready after {} s: {}", self.what, START.as_secs(), self.log_tail());
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.as_mut().map(Child::try_wait).transpose()?.flatten())
    }

    /// The end of its log.
    pub(crate) fn log_tail(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().rev().take(4).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("; ")
    }

    /// Asks it to end, and waits; fails when it had ended before, or had to be killed.
    pub(crate) fn stop(&mut self) -> Result<()> {
        let before = self.ended()?;
        if before.is_none()
            && let Some(pid) = self.child.as_ref().and_then(|child| Pid::from_raw(child.id() as i32))
        {
            kill_process(pid, Signal::TERM)?;
        }
        let in_time = self.wait()?;
        match before {
            Some(status) => bail!("{} died ({status}): {}", self.what, self.log_tail()),
            None if !in_time => {
                bail!("{} did not end within {} s: {}", self.what, STOP.as_secs(), self.log_tail())
            }
            None => Ok(()),
        }
    }

    /// Waits until it has ended by itself; kills it when it does not. Whether that was not needed.
    pub(crate) fn wait(&mut self) -> Result<bool> {
        let Some(mut child) = self.child.take() else { return Ok(true) };
        let begin = Instant::now();
        let mut ended = child.try_wait()?;
        while ended.is_none() && begin.elapsed() < STOP {
            thread::sleep(Duration::from_millis(5));
            ended = child.try_wait()?;
        }
        if ended.is_none() {
            child.kill()?;
            child.wait()?;
        }
        host::remove_daemon(&child);
        Ok(ended.is_some())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Only after another error, which has been reported.
            let _ = child.kill();
            let _ = child.wait();
            host::remove_daemon(&child);
        }
    }
}

/// A daemon with a FUSE mount, which goes with it.
pub(crate) struct MountDaemon {
    daemon: Daemon,
    mount: PathBuf,
}

impl MountDaemon {
    /// Starts it and waits until it serves.
    pub(crate) fn start(command: &Command, mount: &Path, log: &Path) -> Result<Self> {
        fs::create_dir_all(mount).with_context(|| format!("cannot make {}", mount.display()))?;
        let daemon = Daemon::start("the mount's daemon", command, log, "TERM")?;
        let mut started = Self { daemon, mount: mount.to_owned() };
        started.daemon.wait_for(|| Ok(is_fuse_mounted(mount)?.then_some(())))?;
        // Answered once the daemon serves.
        fs::metadata(mount).context("the mount does not answer")?;
        Ok(started)
    }

    /// Unmounts; fails when the daemon did not end by itself.
    pub(crate) fn stop(&mut self) -> Result<()> {
        let stopped = self.daemon.stop();
        if is_fuse_mounted(&self.mount)? {
            host::unmount(&self.mount);
        }
        stopped
    }
}

impl Drop for MountDaemon {
    fn drop(&mut self) {
        if self.daemon.child.is_some() {
            // Only after another error, which has been reported.
            let _ = self.stop();
        }
    }
}

fn is_fuse_mounted(mount: &Path) -> Result<bool> {
    let table = fs::read_to_string("/proc/self/mountinfo").context("cannot read the mount table")?;
    let mount = mount.to_string_lossy();
    Ok(table.lines().any(|line| line.split(' ').nth(4) == Some(&*mount) && line.contains(" - fuse")))
}
