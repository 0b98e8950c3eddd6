//! `umbrella balance`: evens out the members of a group.

use std::process::ExitCode;

use clap::Args;
use umbrella_fs::control::protocol::{Answer, BalanceSummary, Request};
use umbrella_units::{Amount, ByteSize};

use super::PoolOption;
use super::enforce::{MoveDisplay, interrupted};
use crate::client::{Client, ClientError};
use crate::{output, render};

/// How far apart used shares may be when nothing is said, in thousandths of a percent.
pub(super) const DEFAULT_WITHIN: u32 = 5_000;

/// Move files between the members of a group until they are about equally full.
///
/// Moves as few bytes as it can, and only between branches that a file's own rule treats alike. A directory that is
/// kept together moves as a whole. Ctrl-C stops the work and shows what is done and what is left; run the command again
/// to continue. The exit code is 130 then, and 1 when a file could not be moved.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLES:
  umbrella balance hdds --dry-run               what would move?
  umbrella balance hdds --to 2%                 until used shares are 2 % apart at most
  umbrella balance hdds --bandwidth 50MiB       at most 50 MiB a second
  umbrella balance hdds --json                  one JSON object a file, the totals last")]
pub(crate) struct BalanceArgs {
    /// Name of the group.
    group: String,
    /// How far apart the used shares of two members may be at the end [default: 5%].
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    to: Option<u32>,
    /// Only show what would move.
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Move at most this much a second [default: the bandwidth of `[enforce]`].
    #[arg(long, value_name = "SIZE")]
    bandwidth: Option<ByteSize>,
    #[command(flatten)]
    pool: PoolOption,
    /// Print JSON: one object a line for each file, the totals last.
    #[arg(long)]
    json: bool,
}

impl BalanceArgs {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let (_, client) = super::find_live_pool(self.pool.pool.as_deref())?;
        let Self { group, to, dry_run, bandwidth, json, .. } = self;
        balance(
            &client,
            &Request::Balance { group, within: to.unwrap_or(DEFAULT_WITHIN), dry_run, bandwidth },
            dry_run,
            json,
        )
    }
}

/// Lets the daemon even out a group, shows how far it is and what it moves, and the members at the end.
pub(super) fn balance(client: &Client, request: &Request, dry_run: bool, json: bool) -> anyhow::Result<ExitCode> {
    let mut view = MoveDisplay::new(json).of_balance();
    let (answer, signal) = client.call_until_stopped(request, &mut |progress| view.show(&progress));
    view.end()?;
    let Answer::Balanced(summary) = answer? else { return Err(ClientError::Unexpected.into()) };
    if json {
        output::json_line(&summary)?;
    } else {
        let Request::Balance { within, .. } = *request else { return Err(ClientError::Unexpected.into()) };
        output::print(&render::balance(&summary, dry_run, within))?;
    }
    Ok(interrupted(summary.stopped, signal).unwrap_or_else(|| exit_code(&summary)))
}

fn exit_code(summary: &BalanceSummary) -> ExitCode {
    if summary.files_failed > 0 || summary.files_no_room > 0 || summary.stopped {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

/// `5%` or `5`, in thousandths of a percent.
fn percent(text: &str) -> Result<u32, String> {
    match format!("{}%", text.trim_end_matches('%')).parse() {
        Ok(Amount::MilliPercent(share)) => Ok(share),
        _ => Err("give a share of the branch, for example 5%".to_owned()),
    }
}
