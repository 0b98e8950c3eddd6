//! `umbrella write-back`: in which order dirty pages reach the disks of a mounted pool.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use clap::{Args, Subcommand};
use serde_json::json;
use thiserror::Error;
use umbrella_fs::control::protocol::{Answer, Request};
use umbrella_fs::spec::{FlusherStatus, ThresholdChange, WriteBackChange};
use umbrella_units::{ByteSize, ParseSizeError};

use super::PoolOption;
use super::write_back_run::RunArgs;
use crate::client::{Client, ClientError};
use crate::render::write_back;
use crate::text::quoted;
use crate::{output, pool};

/// Show, change and record the order in which a branch's dirty pages reach its disk.
#[derive(Debug, Args)]
pub(crate) struct WriteBackArgs {
    #[command(subcommand)]
    command: WriteBackCommand,
}

#[derive(Debug, Subcommand)]
enum WriteBackCommand {
    /// Show how much is dirty, how fast it is written back, and how long the runs are.
    #[command(after_help = "\
EXAMPLES:
  umbrella write-back show
  umbrella write-back show disk1 --json | jq '.[0].write_back.flush_rate'")]
    Show {
        /// Only this branch.
        branch: Option<String>,
        #[command(flatten)]
        pool: PoolOption,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    Set(SetArgs),
    Record(PolicyRecordArgs),
    Run(RunArgs),
}

/// Change the policy of a branch, or its limit, until the pool is unmounted.
///
/// No dirty page is lost. `umbrella lab list policies` lists the policies; "kernel" leaves the order to the kernel.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLES:
  umbrella write-back set disk1 sweep
  umbrella write-back set disk1 cscan --limit 256MiB
  umbrella write-back set disk1 cscan --limit auto --background auto
  umbrella write-back set disk1 kernel")]
struct SetArgs {
    /// Name of the branch.
    branch: String,
    /// The policy with its parameters, or "kernel".
    policy: String,
    /// Hold writers back so that no more than this is dirty; "auto", the initial value, follows the kernel's threshold
    /// [default: unchanged].
    #[arg(long, value_name = "SIZE", value_parser = threshold)]
    limit: Option<ThresholdChange>,
    /// Begin write-back above this; "auto" is half of the limit, and replaces a value that is no longer below it
    /// [default: unchanged].
    #[arg(long, value_name = "SIZE", value_parser = threshold)]
    background: Option<ThresholdChange>,
    #[command(flatten)]
    pool: PoolOption,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Neither a size nor the word for what follows by itself.
#[derive(Debug, Error)]
#[error("{0}, and not \"auto\" either")]
struct NoThreshold(#[from] ParseSizeError);

fn threshold(text: &str) -> Result<ThresholdChange, NoThreshold> {
    Ok(if text.trim() == "auto" { ThresholdChange::Auto } else { ThresholdChange::At(text.parse()?) })
}

/// Record what the policy of a branch sees and decides, for `umbrella lab run --events`.
///
/// The record ends with --stop, when it reaches --most, and when the policy changes.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLES:
  umbrella write-back record disk1 /tmp/disk1.events
  umbrella write-back record disk1 --stop
  umbrella lab run --events /tmp/disk1.events --policy cscan")]
struct PolicyRecordArgs {
    /// Name of the branch.
    branch: String,
    /// A new file, written by the daemon.
    #[arg(required_unless_present = "stop", conflicts_with = "stop")]
    file: Option<PathBuf>,
    /// End the record.
    #[arg(long)]
    stop: bool,
    /// The largest size of the record.
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    most: ByteSize,
    #[command(flatten)]
    pool: PoolOption,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl WriteBackArgs {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            WriteBackCommand::Show { branch, pool, json } => show(branch, &pool, json),
            WriteBackCommand::Set(args) => args.run(),
            WriteBackCommand::Record(args) => args.run(),
            WriteBackCommand::Run(args) => args.run(),
        }
    }
}

fn show(branch: Option<String>, pool: &PoolOption, json: bool) -> anyhow::Result<ExitCode> {
    let (_, client) = super::find_live_pool(pool.pool.as_deref())?;
    let Answer::WriteBack { branches } = client.call(&Request::WriteBackShow { branch })? else {
        return Err(ClientError::Unexpected.into());
    };
    if json {
        output::json_list(&branches)?;
    } else {
        output::print(&write_back::branches(&branches))?;
    }
    Ok(ExitCode::SUCCESS)
}

impl SetArgs {
    fn run(self) -> anyhow::Result<ExitCode> {
        let by_kernel = self.policy.trim() == "kernel";
        if by_kernel && (self.limit.is_some() || self.background.is_some()) {
            bail!("limits need a policy (leave them out, or name a policy)");
        }
        let (_, client) = super::find_live_pool(self.pool.pool.as_deref())?;
        let change = WriteBackChange {
            policy: self.policy.clone(),
            limit: self.limit.unwrap_or_default(),
            background: self.background.unwrap_or_default(),
        };
        let is_recording = |status: &Option<FlusherStatus>| status.as_ref().is_some_and(|status| status.recording);
        let was_recording = is_recording(&self.status(&client)?);
        client
            .call(&Request::WriteBackSet { branch: self.branch.clone(), write_back: (!by_kernel).then_some(change) })?;
        let now = self.status(&client)?;
        let ended = was_recording && !is_recording(&now);
        if self.json {
            output::json(&json!({ "branch": self.branch, "write_back": self.policy, "ended_record": ended }))?;
            return Ok(ExitCode::SUCCESS);
        }
        let (branch, policy) = (quoted(&self.branch), quoted(&self.policy));
        // What holds now: the kernel may leave less than was asked for.
        let thresholds = now.map_or_else(String::new, |status| {
            format!(", from {} of dirty data on; writers wait at {}", status.background, status.limit)
        });
        output::line(&format!(
            "branch {branch} is written back by {policy}{thresholds}; to keep it, write it to the configuration"
        ))?;
        if ended {
            output::line(
                "the record of the previous policy is complete (start another with `umbrella write-back record`)",
            )?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn status(&self, client: &Client) -> anyhow::Result<Option<FlusherStatus>> {
        let Answer::WriteBack { branches } =
            client.call(&Request::WriteBackShow { branch: Some(self.branch.clone()) })?
        else {
            return Err(ClientError::Unexpected.into());
        };
        Ok(branches.into_iter().find_map(|branch| branch.write_back))
    }
}

impl PolicyRecordArgs {
    fn run(self) -> anyhow::Result<ExitCode> {
        let (_, client) = super::find_live_pool(self.pool.pool.as_deref())?;
        let file = self.file.as_deref().map(pool::absolute).transpose()?;
        client.call(&Request::WriteBackRecord { branch: self.branch.clone(), file: file.clone(), most: self.most })?;
        if self.json {
            output::json(&json!({ "branch": self.branch, "recording": file }))?;
        } else if let Some(file) = file {
            output::line(&format!("recording to {}; end it with --stop", file.display()))?;
        } else {
            output::line("the record is complete")?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
