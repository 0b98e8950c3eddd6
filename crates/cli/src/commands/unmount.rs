//! `umbrella unmount`: takes a pool away.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags};
use serde_json::json;
use umbrella_fs::branch::cover::uncover_all;
use umbrella_fs::control::protocol::{Answer, Request};

use super::PoolArg;
use crate::client::{Client, ClientError};
use crate::mount::UNMOUNT_TIMEOUT;
use crate::pool::{self, Pool, PoolError};
use crate::text::visible_path;
use crate::{ending, mounts, output, render};

/// How long a daemon that is to be forced may take to do it by itself.
const FORCED_TIMEOUT: Duration = Duration::from_secs(8);
/// How long the mount may stay after the daemon said that it goes.
const EXIT_TIMEOUT: Duration = Duration::from_secs(30);

/// Unmount a pool; a move under way is finished or undone.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLES:
  umbrella unmount
  umbrella unmount /srv/pool --lazy     the tree goes now, open files work until they are closed
  umbrella unmount /srv/pool --force    also when the daemon hangs; what hangs on it fails")]
pub(crate) struct UnmountArgs {
    #[command(flatten)]
    pool: PoolArg,
    /// If the daemon does not unmount in time, abort its requests and detach the mount.
    #[arg(short, long)]
    force: bool,
    /// Detach the mount at once; the daemon ends when the last open file is closed.
    #[arg(short, long, conflicts_with = "force")]
    lazy: bool,
    /// Print JSON: what became of the mount is "unmounted", or "detached" with the reason.
    #[arg(long)]
    json: bool,
}

impl UnmountArgs {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let pool = match pool::find(self.pool.pool.as_deref()) {
            // What a daemon that was killed left behind is as good as mounted here.
            Err(PoolError::Dead { mounts, .. }) if mounts.len() == 1 => Pool::at(&mounts[0]),
            // So are branches that it left hidden.
            Err(PoolError::Covered { covers, .. }) if covers.iter().all(|cover| cover.pool == covers[0].pool) => {
                Pool::at(&covers[0].pool)
            }
            found => found?,
        };
        let shown = visible_path(&pool.mount);
        let (outcome, reason) = if self.lazy {
            if pool.detached().is_none() {
                mounts::detach(&pool.mount, false).with_context(|| format!("detaching {shown}"))?;
            }
            // With nothing open the daemon is about to end.
            let serves_on = pool.detached().filter(|status| status.open_files > 0);
            ("detached", serves_on.map(|status| render::detached(&status)))
        } else if pool.detached().is_some() {
            ending::wait_at(&pool.mount)?;
            ("unmounted", None)
        } else {
            match self.request_unmount(&pool) {
                Ok(()) => ("unmounted", None),
                Err(error) if self.force => {
                    mounts::detach(&pool.mount, true).with_context(|| format!("detaching {shown} ({error:#})"))?;
                    let silent = matches!(error.downcast_ref(), Some(ClientError::NoAnswer { .. }));
                    let silence = || format!("the daemon did not answer within {} s", FORCED_TIMEOUT.as_secs());
                    ("detached", Some(if silent { silence() } else { format!("{error:#}") }))
                }
                Err(error) => return Err(error),
            }
        };
        if self.json {
            output::json(&json!({ "mount": shown, "outcome": outcome, "reason": reason }))?;
        } else {
            match reason {
                Some(reason) if self.lazy => output::line(&reason)?,
                Some(reason) => output::line(&format!("{shown} is {outcome} by force: {reason}"))?,
                None => output::line(&format!("{shown} is {outcome}"))?,
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    fn request_unmount(&self, pool: &Pool) -> anyhow::Result<()> {
        let timeout = if self.force { FORCED_TIMEOUT } else { UNMOUNT_TIMEOUT };
        let client = Client::new(&pool.socket).with_timeout(timeout);
        let daemon = process_of(&client);
        match client.call(&Request::Unmount { keep_staged: false }) {
            // The daemon may be gone before its last word is heard.
            Ok(_) | Err(ClientError::HungUp) => wait_until_gone(&pool.mount, daemon),
            // What a daemon that was killed leaves behind is taken away.
            Err(ClientError::NotRunning { .. }) if mounts::is_dead(&pool.mount) => {
                mounts::detach(&pool.mount, false).context("the daemon is gone; detaching the dead mount")?;
                uncover_all(&pool.mount);
                if let Some(left) = pool::describe_leftovers(&pool::orphaned_areas_of(&pool.mount)) {
                    tracing::warn!("{left}");
                }
                Ok(())
            }
            // The dead mount was unmounted by hand, but the covers of the branches remain.
            Err(ClientError::NotRunning { .. }) if !uncover_all(&pool.mount).is_empty() => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// A handle on the daemon's process, which tells when it ends. There is none in another process namespace.
fn process_of(client: &Client) -> Option<OwnedFd> {
    let Ok(Answer::Status(status)) = client.call(&Request::Status) else { return None };
    let pid = Pid::from_raw(i32::try_from(status.pid).ok()?)?;
    rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok()
}

/// Waits until the tree is away and the daemon has ended, so that a mount right after this one finds the branches free.
fn wait_until_gone(mount: &Path, daemon: Option<OwnedFd>) -> anyhow::Result<()> {
    let deadline = Instant::now() + EXIT_TIMEOUT;
    while mounts::at(mount).is_some_and(|mounted| mounted.is_pool()) {
        if Instant::now() > deadline {
            let shown = visible_path(mount);
            bail!(
                "{shown} is still mounted: files in it are open (see `fuser -vm {shown}` or `lsof +f -- {shown}`, or use --lazy)"
            );
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let Some(daemon) = daemon else { return Ok(()) };
    let left = Timespec { tv_sec: EXIT_TIMEOUT.as_secs() as i64, tv_nsec: 0 };
    let ended =
        poll(&mut [PollFd::new(&daemon, PollFlags::IN)], Some(&left)).context("waiting for the daemon to end")?;
    if ended == 0 {
        tracing::warn!("the daemon keeps running until the files that are still open are closed");
    }
    Ok(())
}
