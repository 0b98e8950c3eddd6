//! `umbrella status`: a pool at a glance.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use umbrella_fs::control::protocol::{Answer, Request, Status};
use umbrella_units::ByteSize;

use super::PoolArg;
use crate::client::{Client, ClientError};
use crate::pool::{Pool, PoolError};
use crate::text::visible_path;
use crate::{output, render};

/// Show branches, space, rules and for how many files they decided.
///
/// With several pools mounted and none named, a line for each (with --json an array); in the directory of one, that one.
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
        let client = match super::reach(self.pool.pool.as_deref()) {
            Err(PoolError::Several { mounts }) => return self.several(&mounts),
            reached => reached?.1,
        };
        let status = ask(&client)?;
        if self.json {
            output::json(&status)?;
        } else {
            output::print(&render::status(&status))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn several(&self, mounts: &[PathBuf]) -> anyhow::Result<ExitCode> {
        let mut pools = Vec::with_capacity(mounts.len());
        let mut code = ExitCode::SUCCESS;
        for mount in mounts {
            match ask(&Client::new(&Pool::at(mount).socket)) {
                Ok(status) => pools.push(*status),
                Err(error) => {
                    tell!("umbrella: {}: {error}", visible_path(mount));
                    code = ExitCode::FAILURE;
                }
            }
        }
        if self.json {
            output::json(&pools)?;
        } else {
            // Branches on one file system count once.
            let free = |status: &Status| rustix::fs::statvfs(&status.mount).map_or(0, |it| it.f_bavail * it.f_frsize);
            let with_space = |status: Status| {
                let free = ByteSize(free(&status));
                (status, free)
            };
            let pools: Vec<_> = pools.into_iter().map(with_space).collect();
            output::print(&render::pools(&pools))?;
        }
        Ok(code)
    }
}

fn ask(client: &Client) -> Result<Box<Status>, ClientError> {
    match client.ask(&Request::Status)? {
        Answer::Status(status) => Ok(status),
        _ => Err(ClientError::Unexpected),
    }
}
