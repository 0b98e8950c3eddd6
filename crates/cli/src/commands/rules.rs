//! `umbrella rules`: gives a mounted pool other rules.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use umbrella_fs::control::protocol::Request;

use super::PoolOption;
use crate::client::Client;
use crate::pool::{self, Pool};
use crate::text::{count, visible_path};
use crate::{config, output};

/// Change the rules of a mounted pool.
#[derive(Debug, Args)]
pub(crate) struct RulesArgs {
    #[command(subcommand)]
    command: RulesCommand,
}

#[derive(Debug, Subcommand)]
enum RulesCommand {
    /// Use the rules and the default list of a configuration from now on.
    ///
    /// Nothing moves at once: files are judged again when they are closed, and by `umbrella enforce`. Of everything else in the
    /// configuration nothing changes until the next mount; for branches there is `umbrella branch`.
    #[command(after_help = "\
EXAMPLES:
  umbrella check pool.toml && umbrella rules reload pool.toml
  umbrella rules reload new.toml --pool /srv/pool && umbrella enforce --dry-run")]
    Reload {
        /// The configuration file.
        config: PathBuf,
        #[command(flatten)]
        pool: PoolOption,
    },
}

impl RulesArgs {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let RulesCommand::Reload { config: path, pool } = self.command;
        let config = config::read(&path)?;
        let pool = match pool.pool {
            Some(pool) => pool::find(Some(&pool))?,
            None => Pool::at(&config::resolve(&config.spec.mount)),
        };
        let rules = config.spec.rules;
        let number = count(rules.rules.len() as u64, "rule");
        Client::new(&pool.socket).ask(&Request::RulesReload { rules })?;
        output::line(&format!("{}: {number} in force", visible_path(&pool.mount)))?;
        Ok(ExitCode::SUCCESS)
    }
}
