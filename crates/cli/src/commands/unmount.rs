//! `umbrella unmount`: takes a pool away.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;
use umbrella_fs::control::protocol::Request;

use super::PoolArg;
use crate::client::{Client, ClientError};
use crate::mount::UNMOUNT_PATIENCE;
use crate::pool::{self, Pool};
use crate::text::visible_path;
use crate::{mounts, output};

/// How long a daemon that is to be forced may take to do it by itself.
const FORCED_PATIENCE: Duration = Duration::from_secs(10);
/// How long the mount may stay after the daemon said that it goes.
const FAREWELL: Duration = Duration::from_secs(30);

/// Unmount a pool: finish or drop the relocation under way, then unmount.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLES:
  umbrella unmount
  umbrella unmount /srv/pool --lazy     the tree goes now, open files work until they are closed
  umbrella unmount /srv/pool --force    also when the daemon hangs; what hangs on it fails")]
pub(crate) struct UnmountArgs {
    #[command(flatten)]
    pool: PoolArg,
    /// When the daemon does not unmount in time, abort what is under way and detach the tree.
    #[arg(short, long)]
    force: bool,
    /// Detach the tree at once; the daemon ends when the last open file is closed.
    #[arg(short, long, conflicts_with = "force")]
    lazy: bool,
}

impl UnmountArgs {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let pool = pool::find(self.pool.pool.as_deref())?;
        let shown = visible_path(&pool.mount);
        if self.lazy {
            mounts::detach(&pool.mount, false).with_context(|| format!("detaching {shown}"))?;
            output::line(&format!("{shown} is detached"))?;
            return Ok(ExitCode::SUCCESS);
        }
        match self.ask(&pool) {
            Ok(()) => output::line(&format!("{shown} is unmounted"))?,
            Err(error) if self.force => {
                mounts::detach(&pool.mount, true).with_context(|| format!("detaching {shown} ({error:#})"))?;
                output::line(&format!("{shown} is detached by force: {error:#}"))?;
            }
            Err(error) => return Err(error),
        }
        Ok(ExitCode::SUCCESS)
    }

    fn ask(&self, pool: &Pool) -> anyhow::Result<()> {
        let patience = if self.force { FORCED_PATIENCE } else { UNMOUNT_PATIENCE };
        match Client::new(&pool.socket).patience(patience).ask(&Request::Unmount) {
            // The daemon may be gone before its last word is heard.
            Ok(_) | Err(ClientError::HungUp) => wait_until_gone(&pool.mount, pool),
            // What a daemon that was killed leaves behind is taken away.
            Err(ClientError::NotRunning { .. }) if mounts::is_dead(&pool.mount) => {
                mounts::detach(&pool.mount, false).context("the daemon is gone; detaching the dead mount")
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Waits until the tree is away and the daemon's socket with it, so that a mount right after this one works.
fn wait_until_gone(mount: &Path, pool: &Pool) -> anyhow::Result<()> {
    let deadline = Instant::now() + FAREWELL;
    let is_there = || mounts::at(mount).is_some_and(|mounted| mounted.kind.starts_with("fuse"));
    while is_there() || pool.socket.exists() {
        if Instant::now() > deadline {
            // A socket that stays is no harm, a mount is.
            if !is_there() {
                return Ok(());
            }
            bail!(
                "{} is still mounted: files in it are open (see `lsof +f -- {0}`, or use --lazy)",
                visible_path(mount)
            );
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
