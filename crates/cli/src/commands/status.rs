//! `umbrella status`: a pool at a glance.

use std::process::ExitCode;

use clap::Args;
use umbrella_fs::control::protocol::{Answer, Request};

use super::PoolArg;
use crate::client::ClientError;
use crate::{output, render};

/// Show branches, space, rules and how often they decided.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLES:
  umbrella status
  umbrella status /srv/pool
  umbrella status --json | jq '.branches[] | {name, free}'")]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pool: PoolArg,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl StatusArgs {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let (_, client) = super::reach(self.pool.pool.as_deref())?;
        let Answer::Status(status) = client.ask(&Request::Status)? else { return Err(ClientError::Unexpected.into()) };
        if self.json {
            output::json(&status)?;
        } else {
            output::print(&render::status(&status))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
