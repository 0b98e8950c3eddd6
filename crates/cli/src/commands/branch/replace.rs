//! `umbrella branch replace`: another disk in a branch's place, on a mounted pool or before the mount.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use serde_json::json;
use umbrella_fs::branch::{StateDir, mounts};
use umbrella_fs::control::protocol::Request;

use crate::client::{Client, ClientError};
use crate::commands::PoolOption;
use crate::pool::{self, Pool};
use crate::text::{quoted, quoted_list, visible_path};
use crate::{config, ending, output};

/// Take in another disk in a branch's place: the old one broke, was formatted, or lost its .umbrella.
///
/// The branch keeps its name, and rules mean the new disk. Files of the old one vanish from the tree. On a pool that is not mounted, name
/// its configuration with --pool: the next mount takes in what is then at the branch's path.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLES:
  umbrella branch replace disk2                       a new file system is mounted where the old one was
  umbrella branch replace disk2 /mnt/new              it is elsewhere
  umbrella branch replace disk2 --pool pool.toml      the pool does not start because of it")]
pub(super) struct ReplaceArgs {
    /// Name of the branch.
    name: String,
    /// Where the new one is [default: where the old one was].
    path: Option<PathBuf>,
    /// Also when the old one is online and holds files.
    #[arg(short, long)]
    force: bool,
    #[command(flatten)]
    pool: PoolOption,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl ReplaceArgs {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let file = self.pool.pool.as_deref().filter(|path| path.is_file());
        let next = if let Some(file) = file {
            let spec = config::read(file)?.spec;
            let pool = pool::configured(&spec.mount)?;
            if self.on_live(&pool)? { self.to_keep() } else { self.before_mount(file, &spec, &pool)? }
        } else {
            let pool = pool::find(self.pool.pool.as_deref())?;
            if !self.on_live(&pool)? {
                bail!("the pool at {} is not mounted; name its configuration with --pool", visible_path(&pool.mount));
            }
            self.to_keep()
        };
        if self.json {
            output::json(&json!({ "branch": self.name, "replaced": true }))?;
        } else {
            output::line(&format!("branch {} is replaced{next}", quoted(&self.name)))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// What is left to do on a live pool.
    fn to_keep(&self) -> String {
        let moved =
            |path: &PathBuf| format!("; to keep it, set its path in the configuration to {}", visible_path(path));
        self.path.as_ref().map(moved).unwrap_or_default()
    }

    /// False when no daemon answers.
    fn on_live(&self, pool: &Pool) -> anyhow::Result<bool> {
        let path = self.path.as_deref().map(pool::absolute).transpose()?;
        ending::wait_for_branches(path.as_slice())?;
        let request = Request::BranchReplace { name: self.name.clone(), path, force: self.force };
        match Client::new(&pool.socket).ask(&request) {
            Ok(_) => Ok(true),
            Err(ClientError::NotRunning { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Forgets what the branch was, so that the next mount takes in what is there.
    fn before_mount(&self, file: &Path, spec: &umbrella_fs::spec::PoolSpec, pool: &Pool) -> anyhow::Result<String> {
        let name = quoted(&self.name);
        let Some(branch) = spec.branches.iter().find(|branch| branch.name == self.name) else {
            let known = quoted_list(spec.branches.iter().map(|branch| branch.name.as_str()));
            bail!("{} has no branch {name}; branches: {known}", visible_path(file));
        };
        if self.path.as_ref().is_some_and(|path| *path != branch.path) {
            bail!("the pool is not mounted: set the path of branch {name} in {} instead", visible_path(file));
        }
        let shown = visible_path(&branch.path);
        let state = StateDir::open(&pool::state_dir(&pool.mount), &pool.mount)?;
        let was_mount = state.branch(&self.name).is_some_and(|known| known.was_mount && known.path == branch.path);
        let dir =
            std::fs::File::open(&branch.path).map_err(|error| anyhow::anyhow!("branch {name}: {shown}: {error}"))?;
        let is_mount = mounts::fs_kind(std::os::fd::AsFd::as_fd(&dir)).is_ok_and(|kind| kind.is_mount);
        if (was_mount || branch.require_mount == Some(true)) && !is_mount && !self.force {
            bail!("branch {name}: {shown} is not mounted; mount the new disk first (or --force, to use the directory)");
        }
        state.forget(&self.name)?;
        Ok(format!(": the next mount takes in what is at {shown}"))
    }
}
