//! Daemons whose tree is away and that have not ended yet. They still have their branches and the control socket, so a
//! command that needs these waits: `umount DIR` returns before the daemon has ended.
//!
//! A pool that was detached and is still in use ends when its last user does. That time is not known, so it is not
//! waited for.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::bail;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use umbrella_fs::branch::HIDDEN_DIR;
use umbrella_fs::control::protocol::{Answer, Request, Status};

use crate::client::{Client, ClientError};
use crate::mount::UNMOUNT_TIMEOUT;
use crate::mounts::PathLocality;
use crate::pool::{self, Pool, STATUS_TIMEOUT};
use crate::text::visible_path;
use crate::{client, mounts, render};

/// How long a detached pool may still seem to be in use: a process that looked something up in it during the unmount
/// holds it for a moment.
const LAST_USERS: Duration = Duration::from_secs(1);
/// How often a daemon that does not answer is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// Waits for the daemon that had this mount point before. An error says that its tree is still in use.
pub(crate) fn wait_at(mount: &Path) -> anyhow::Result<()> {
    wait_for(&Pool::at(mount), |status| bail!("{}", render::detached(status)), |_| true)
}

/// Whether a daemon has the branch. One that may hang is not asked: a process with a thread in there cannot end.
fn is_locked(branch: &Path) -> bool {
    if matches!(mounts::locate(branch), PathLocality::Away { .. }) {
        return true;
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let own = rustix::fs::open(branch.join(HIDDEN_DIR), flags, Mode::empty());
    own.is_ok_and(|own| rustix::fs::flock(&own, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK))
}

/// Waits for daemons of other mount points that have one of these branches. One whose tree is still in use is left
/// alone.
pub(crate) fn wait_for_branches(branches: &[PathBuf]) -> anyhow::Result<()> {
    let attached = mounts::pools();
    let is_known = |status: &Status, path: &Path| status.branches.iter().any(|known| known.path == path);
    // What does not answer may have any of them.
    let has = |status: Option<&Status>, branch: &Path| {
        status.is_none_or(|status| is_known(status, branch) || is_known(status, &mounts::resolve(branch)))
    };
    let shares = |status: Option<&Status>| branches.iter().any(|branch| has(status, branch) && is_locked(branch));
    let ending = pool::listening().into_iter().filter(|mount| !attached.contains(mount));
    ending.map(|mount| Pool::at(&mount)).try_for_each(|pool| wait_for(&pool, |_| Ok(()), shares))
}

/// Refuses a branch that the pool of another mount point has.
pub(crate) fn refuse_branches_of_others(branches: &[PathBuf], mount: &Path) -> anyhow::Result<()> {
    for branch in branches.iter().filter(|branch| is_locked(branch)) {
        let Some((pool, _, inside)) = pool::find_on_branch(branch) else { continue };
        if pool.mount != mount && inside == pool.mount && mounts::pools().contains(&pool.mount) {
            let (shown, mount) = (visible_path(branch), visible_path(&pool.mount));
            bail!("{shown} belongs to the pool at {mount}: unmount that first");
        }
    }
    Ok(())
}

fn wait_for(
    pool: &Pool,
    in_use: impl Fn(&Status) -> anyhow::Result<()>,
    concerns: impl Fn(Option<&Status>) -> bool,
) -> anyhow::Result<()> {
    let began = Instant::now();
    let mut reported = false;
    let mut last_pid = None;
    // Held during the questions: the daemon's branches are free when the process has ended, not when it stops
    // answering.
    let mut process = None;
    loop {
        if let Ok(daemon) = client::connect(&pool.socket) {
            let pid = socket_peercred(&daemon).ok().map(|peer| peer.pid);
            process = process.or_else(|| pidfd_open(pid?, PidfdFlags::empty()).ok());
            last_pid = pid.map(Pid::as_raw_pid).filter(|pid| *pid > 0).or(last_pid);
        } else if process.is_none() {
            return Ok(());
        }
        match Client::new(&pool.socket).with_timeout(STATUS_TIMEOUT).call(&Request::Status) {
            Ok(Answer::Status(status)) if status.ending && !concerns(Some(&status)) => return Ok(()),
            Ok(Answer::Status(status)) if status.ending => {}
            Ok(Answer::Status(status)) if status.detached => {
                if began.elapsed() > LAST_USERS {
                    return in_use(&status);
                }
                std::thread::sleep(ASK_AGAIN);
                continue;
            }
            Ok(Answer::Status(_)) | Err(ClientError::NotAllowed { .. }) => return Ok(()),
            // It hangs in its last work, or in serving: then it still has its mount.
            Err(ClientError::NoAnswer { .. }) if mounts::pools().contains(&pool.mount) => return Ok(()),
            _ if !concerns(None) => return Ok(()),
            _ => {}
        }
        if !reported {
            reported = true;
            tracing::info!(
                "{} is unmounted; waiting for its daemon{} to finish and end",
                visible_path(&pool.mount),
                last_pid.map(|pid| format!(" (process {pid})")).unwrap_or_default()
            );
        }
        if has_ended(process.as_ref())? {
            return Ok(());
        }
        if began.elapsed() > UNMOUNT_TIMEOUT {
            bail!(
                "the daemon of {} has not ended after {} s (see its log{}; the next mount repairs what it leaves)",
                visible_path(&pool.mount),
                UNMOUNT_TIMEOUT.as_secs(),
                last_pid.map(|pid| format!("; `kill -9 {pid}` ends it")).unwrap_or_default()
            );
        }
    }
}

/// Waits a moment for a process to end. One that cannot be watched (of another process namespace) has ended when no
/// daemon answers.
fn has_ended(process: Option<&OwnedFd>) -> anyhow::Result<bool> {
    let Some(process) = process else {
        std::thread::sleep(ASK_AGAIN);
        return Ok(false);
    };
    let moment = Timespec { tv_sec: 0, tv_nsec: ASK_AGAIN.subsec_nanos().into() };
    match poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&moment)) {
        Err(Errno::INTR) => Ok(false),
        ended => Ok(ended? > 0),
    }
}
