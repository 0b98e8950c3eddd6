//! `umbrella sync`: makes everything in a pool durable.

use std::process::ExitCode;

use clap::Args;
use serde_json::json;
use umbrella_fs::control::protocol::{Answer, Request};

use super::PoolArg;
use crate::client::ClientError;
use crate::output;
use crate::text::{quoted_list, visible_path};

/// Make everything in a pool durable: staged files go to their branches, and every branch is synced.
///
/// Names the branches that are offline. Fails if one of them may have lost changes: it left within two minutes of a
/// change, or while a file was open for writing.
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
        let (pool, client) = super::find_live_pool(self.pool.pool.as_deref())?;
        // As long as it takes.
        let Answer::Synced { offline } = client.call_with_progress(&Request::Sync, &mut |_| {})? else {
            return Err(ClientError::Unexpected.into());
        };
        let shown = visible_path(&pool.mount);
        if self.json {
            output::json(&json!({ "mount": shown, "synced": true, "offline": offline }))?;
        } else if offline.is_empty() {
            output::line(&format!("{shown}: everything is durable"))?;
        } else {
            let names = quoted_list(offline.iter().map(String::as_str));
            output::line(&format!("{shown}: everything is durable (offline, so not synced: {names})"))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
