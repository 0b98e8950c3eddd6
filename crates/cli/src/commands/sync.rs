//! `umbrella sync`: makes everything in a pool durable.

use std::process::ExitCode;

use clap::Args;
use serde_json::json;
use umbrella_fs::control::protocol::Request;

use super::PoolArg;
use crate::output;
use crate::text::visible_path;

/// Make everything in a pool durable: staged files go to their branches, and every branch is synced.
///
/// Linux does not pass sync(1) and syncfs(2) on to a FUSE file system, so these do not reach files that are staged in
/// memory. fsync and O_SYNC do.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLES:
  umbrella sync                before the power goes
  umbrella sync /srv/pool && sync")]
pub(crate) struct SyncArgs {
    #[command(flatten)]
    pool: PoolArg,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl SyncArgs {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let (pool, client) = super::reach(self.pool.pool.as_deref())?;
        // As long as it takes.
        client.work(&Request::Sync, &mut |_| {})?;
        let shown = visible_path(&pool.mount);
        if self.json {
            output::json(&json!({ "mount": shown, "synced": true }))?;
        } else {
            output::line(&format!("{shown}: everything is durable"))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
