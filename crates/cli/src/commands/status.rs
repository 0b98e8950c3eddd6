//! `umbrella status`: a pool at a glance.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde_json::json;
use umbrella_fs::control::protocol::{Answer, Request, Status};
use umbrella_units::ByteSize;

use super::PoolArg;
use crate::client::{Client, ClientError};
use crate::pool::{Pool, PoolError};
use crate::text::visible_path;
use crate::{mounts, output, render};

/// Show branches, their space, and how often each rule decided.
///
/// With several pools mounted, prints a line for each (with --json an array), unless you name a pool or are in its
/// directory.
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
        let (pool, client) = match super::find_live_pool(self.pool.pool.as_deref()) {
            Err(PoolError::Several { mounts }) => return self.several(&mounts),
            reached => reached?,
        };
        match (fetch_status(&client, &pool.mount)?, self.json) {
            (Some(status), true) => output::json(&status)?,
            (Some(status), false) => output::print(&render::status(&status))?,
            (None, true) => output::json(&json!({ "mount": visible_path(&pool.mount), "ending": true }))?,
            (None, false) => output::line(&render::ending(&pool.mount, None))?,
        }
        Ok(ExitCode::SUCCESS)
    }

    fn several(&self, mounts: &[PathBuf]) -> anyhow::Result<ExitCode> {
        let mut pools = Vec::with_capacity(mounts.len());
        let mut code = ExitCode::SUCCESS;
        for mount in mounts {
            match fetch_status(&Client::new(&Pool::at(mount).socket), mount) {
                Ok(status) => pools.extend(status.map(|status| *status)),
                Err(error) => {
                    report!("umbrella: {}: {error}", visible_path(mount));
                    code = ExitCode::FAILURE;
                }
            }
        }
        if self.json {
            output::json_list(&pools)?;
        } else {
            // Branches on one file system count once.
            let with_space = |status: Status| {
                let free = mounts::free_at(&status.mount).map(ByteSize);
                (status, free)
            };
            let pools: Vec<_> = pools.into_iter().map(with_space).collect();
            output::print(&render::pools(&pools))?;
        }
        Ok(code)
    }
}

/// The status of a pool; `None` if it was unmounted during the call.
fn fetch_status(client: &Client, mount: &Path) -> Result<Option<Box<Status>>, ClientError> {
    match client.call(&Request::Status) {
        Ok(Answer::Status(status)) => Ok(Some(status)),
        Err(ClientError::HungUp) if !mounts::pools().iter().any(|pool| pool == mount) => Ok(None),
        answer => answer.and(Err(ClientError::Unexpected)),
    }
}
