//! `umbrella rules`: gives a mounted pool another configuration.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::anyhow;
use clap::{Args, Subcommand};
use serde_json::json;
use umbrella_fs::control::protocol::{Answer, Request};

use super::PoolOption;
use crate::client::{Client, ClientError};
use crate::pool;
use crate::text::{count, quoted, visible, visible_path};
use crate::{config, output};

/// Change the rules and settings of a mounted pool.
#[derive(Debug, Args)]
pub(crate) struct RulesArgs {
    #[command(subcommand)]
    command: RulesCommand,
}

#[derive(Debug, Subcommand)]
enum RulesCommand {
    /// Put an edited configuration in force.
    ///
    /// Prints what changes. No file moves at once: rules are checked when a file is closed, and by `umbrella enforce`.
    /// A configuration that changes `mount`, `transport`, the path of a branch, or `path` or `volatile` of `[staging]`
    /// is refused while the pool is mounted. To add and remove branches, use `umbrella branch`.
    #[command(after_help = "\
EXAMPLES:
  umbrella rules reload --dry-run                        what an edit would change
  umbrella rules reload                                  after an edit
  umbrella check pool.toml && umbrella rules reload pool.toml
  umbrella rules reload new.toml --pool /srv/pool && umbrella enforce --dry-run")]
    Reload {
        /// The configuration file [default: the one that the pool was mounted with].
        config: Option<PathBuf>,
        #[command(flatten)]
        pool: PoolOption,
        /// Only print what would change.
        #[arg(long, short = 'n')]
        dry_run: bool,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}

impl RulesArgs {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let RulesCommand::Reload { config: path, pool, dry_run, json } = self.command;
        let named = pool.pool.as_deref();
        let (config, pool) = if let Some(path) = path {
            let config = config::read(&path)?;
            let pool = named.map_or_else(|| pool::configured(&config.spec.mount), |pool| pool::find(Some(pool)))?;
            (config, pool)
        } else {
            let (pool, client) = super::find_live_pool(named)?;
            (config::read(&super::config_of(&client)?)?, pool)
        };
        let number = config.spec.rules.rules.len() as u64;
        let branches: Vec<_> = config.spec.branches.iter().map(|branch| branch.name.clone()).collect();
        let client = Client::new(&pool.socket);
        let request = Request::RulesReload { spec: Box::new(config.spec), dry_run };
        let Answer::Reloaded { changes, not_in_force } =
            client.call(&request).map_err(|error| with_unknown_branches(&client, &branches, error))?
        else {
            return Err(ClientError::Unexpected.into());
        };
        let mount = visible_path(&pool.mount);
        if json {
            output::json(&json!({
                "mount": mount, "rules": number, "dry_run": dry_run, "changes": changes, "not_in_force": not_in_force
            }))?;
            return Ok(ExitCode::SUCCESS);
        }
        for change in &changes {
            output::line(&visible(&change.to_string()))?;
        }
        output::line(&match (dry_run, changes.is_empty()) {
            (_, true) => format!("{mount}: nothing changes ({} in force)", count(number, "rule")),
            (true, false) => format!("{mount}: {} would change", count(changes.len() as u64, "setting")),
            (false, false) => format!("{mount}: {} in force", count(number, "rule")),
        })?;
        for key in &not_in_force {
            output::line(&format!("  not until the next mount: {}", visible(key)))?;
        }
        if not_in_force.iter().any(|key| key.ends_with("which is new")) {
            output::line("  `umbrella branch add` takes a new branch in at once")?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The error of refused rules. Adds the branches that the configuration has and the mounted pool has not, because the
/// rules may name them.
fn with_unknown_branches(client: &Client, branches: &[String], error: ClientError) -> anyhow::Error {
    let Ok(Answer::Status(status)) = client.call(&Request::Status) else { return error.into() };
    let is_new = |name: &&String| status.branches.iter().all(|branch| branch.name != **name);
    let new: Vec<_> = branches.iter().filter(is_new).map(|name| quoted(name)).collect();
    if new.is_empty() {
        return error.into();
    }
    anyhow!("{error}; not in the mounted pool yet: {} (add it with `umbrella branch add NAME PATH`)", new.join(", "))
}
