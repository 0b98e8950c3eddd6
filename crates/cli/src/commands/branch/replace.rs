//! `umbrella branch replace`: another disk in a branch's place, on a mounted pool or before the mount.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use serde_json::json;
use umbrella_fs::branch::StateDir;
use umbrella_fs::control::protocol::Request;
use umbrella_fs::spec::PoolSpec;

use crate::client::{Client, ClientError};
use crate::commands::{self, PoolOption};
use crate::config::save::{self, Change, Prepared};
use crate::mounts::{self, is_file, refuse_unresponsive};
use crate::pool::{self, Pool};
use crate::probe::ProbeReply;
use crate::text::{quoted, quoted_list, visible_path};
use crate::{config, covers, ending, output};

/// Replace the disk of a branch, for example because it broke, was formatted, or lost its .umbrella.
///
/// The branch keeps its name, and its rules apply to the new disk. Files of the old disk vanish from the tree. If the
/// pool is not mounted, name its configuration with --pool: the next mount uses the disk that is then at the branch's
/// path.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLES:
  umbrella branch replace disk2                       a new file system is mounted where the old one was
  umbrella branch replace disk2 /mnt/new --save       the new disk is elsewhere; save its path
  umbrella branch replace disk2 --pool pool.toml      the pool does not start because of this branch")]
pub(super) struct ReplaceArgs {
    /// Name of the branch.
    name: String,
    /// Path of the new disk [default: that of the old one].
    path: Option<PathBuf>,
    /// Replace the branch even if the old disk is online and holds files.
    #[arg(short, long)]
    force: bool,
    /// Also write its new path to the configuration of the pool; comments and layout stay.
    #[arg(long, requires = "path")]
    save: bool,
    #[command(flatten)]
    pool: PoolOption,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// What is left to do, and where it was saved.
struct NextSteps {
    words: String,
    saved: Option<String>,
}

impl ReplaceArgs {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let file = self.pool.pool.as_deref().filter(|path| is_file(path));
        let next = if let Some(file) = file {
            let spec = config::read(file)?.spec;
            let pool = pool::configured(&spec.mount)?;
            match self.replace_mounted(&pool)? {
                Some(next) => next,
                None => self.forget_identity(file, &spec, &pool)?,
            }
        } else {
            let pool = pool::find(self.pool.pool.as_deref())?;
            let next = self.replace_mounted(&pool)?;
            next.with_context(|| {
                let mount = visible_path(&pool.mount);
                format!("the pool at {mount} is not mounted; name its configuration with --pool")
            })?
        };
        if self.json {
            output::json(&json!({ "branch": self.name, "replaced": true, "saved": next.saved }))?;
        } else {
            output::line(&format!("branch {} is replaced{}", quoted(&self.name), next.words))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// The configuration with the new path, if it is to be written. What cannot be is said before anything is changed.
    fn change_of(&self, config: &Path, path: Option<&Path>) -> anyhow::Result<Option<Prepared>> {
        let Some(path) = path.filter(|_| self.save) else { return Ok(None) };
        save::prepare(config, &Change::Move { name: &self.name, path }).map(Some)
    }

    /// Writes it.
    fn write(&self, change: Option<Prepared>) -> anyhow::Result<Option<String>> {
        let Some(change) = change else { return Ok(None) };
        let file = visible_path(change.file());
        let written = change.write();
        written.with_context(|| {
            format!("branch {} is replaced, but the configuration still has its old path", quoted(&self.name))
        })?;
        Ok(Some(file))
    }

    /// Replaces the branch in a mounted pool. `None` when no daemon answers.
    fn replace_mounted(&self, pool: &Pool) -> anyhow::Result<Option<NextSteps>> {
        let path = self.path.as_deref().map(pool::absolute).transpose()?;
        path.as_deref().map_or(Ok(()), refuse_unresponsive)?;
        ending::wait_for_branches(path.as_slice())?;
        let client = Client::new(&pool.socket);
        let config = match commands::config_of(&client) {
            Err(ClientError::NotRunning { .. }) => return Ok(None),
            config => config?,
        };
        let change = self.change_of(&config, path.as_deref())?;
        client.call(&Request::BranchReplace { name: self.name.clone(), path: path.clone(), force: self.force })?;
        let saved = self.write(change)?;
        let words = match (&saved, path) {
            (Some(file), _) => format!("; saved to {file}"),
            (None, Some(path)) => {
                format!("; to keep it, set its path in the configuration to {} (or --save)", visible_path(&path))
            }
            (None, None) => String::new(),
        };
        Ok(Some(NextSteps { words, saved }))
    }

    /// Forgets the identity of the old branch, so that the next mount accepts the new one.
    fn forget_identity(&self, file: &Path, spec: &PoolSpec, pool: &Pool) -> anyhow::Result<NextSteps> {
        let name = quoted(&self.name);
        let Some(branch) = spec.branches.iter().find(|branch| branch.name == self.name) else {
            let known = quoted_list(spec.branches.iter().map(|branch| branch.name.as_str()));
            bail!("{} has no branch {name}; branches: {known}", visible_path(file));
        };
        let path = self.path.as_deref().map_or_else(|| Ok(branch.path.clone()), pool::absolute)?;
        let is_elsewhere = path != branch.path;
        if is_elsewhere && !self.save {
            bail!("the pool is not mounted: set the path of branch {name} in {} too, with --save", visible_path(file));
        }
        let change = self.change_of(file, Some(&path).filter(|_| is_elsewhere).map(PathBuf::as_path))?;
        let shown = visible_path(&path);
        refuse_unresponsive(&path)?;
        covers::refuse_covered(&path)?;
        let state = StateDir::open(&pool::state_dir(&pool.mount), &pool.mount)?;
        let was_mount = state.branch(&self.name).is_some_and(|known| known.was_mount && known.path == branch.path);
        match mounts::found_at(&path) {
            ProbeReply::Yes(_) => {}
            ProbeReply::No(error) => bail!("branch {name}: {shown}: {error}"),
            ProbeReply::Silent => bail!("branch {name}: {shown} does not answer"),
        }
        let is_mount = mounts::at(&mounts::resolve(&path)).is_some();
        if (was_mount || branch.require_mount == Some(true)) && !is_mount && !self.force {
            bail!("branch {name}: {shown} is not mounted; mount the new disk first (or --force, to use the directory)");
        }
        let saved = self.write(change)?;
        state.forget(&self.name)?;
        Ok(NextSteps { words: format!(": the next mount uses the disk at {shown}"), saved })
    }
}
