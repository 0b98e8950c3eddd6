//! The subcommands, one file each.

mod advise;
mod ask;
mod balance;
mod bench;
mod block_trace;
mod branch;
mod check;
mod claims;
mod completions;
mod disk;
mod doctor;
mod duplicates;
mod enforce;
mod explain;
mod from_mergerfs;
mod import;
mod init;
mod lab;
mod mount;
mod repair;
mod rules;
mod status;
mod sync;
mod trace_output;
mod unmount;
mod whole_file;
mod write_back;
mod write_back_run;
mod written;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use umbrella_fs::control::protocol::{Answer, Request};

use crate::client::{Client, ClientError};
use crate::pool::{self, Pool, PoolError};

/// What the program is asked to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Init(init::InitArgs),
    Mount(mount::MountArgs),
    #[command(visible_alias = "umount")]
    Unmount(unmount::UnmountArgs),
    Status(status::StatusArgs),
    Sync(sync::SyncArgs),
    Check(check::CheckArgs),
    Doctor(doctor::DoctorArgs),
    Explain(explain::ExplainArgs),
    Enforce(enforce::EnforceArgs),
    Balance(balance::BalanceArgs),
    Repair(repair::RepairArgs),
    Branch(branch::BranchArgs),
    FromMergerfs(from_mergerfs::FromMergerfsArgs),
    Rules(rules::RulesArgs),
    WriteBack(write_back::WriteBackArgs),
    Disk(disk::DiskArgs),
    Advise(Box<advise::AdviseArgs>),
    Lab(lab::LabArgs),
    Bench(bench::BenchArgs),
    Completions(completions::CompletionsArgs),
    /// Had another name; says which it has now.
    #[command(hide = true)]
    Governor(RenamedArgs),
}

/// Whatever a renamed command is given.
#[derive(Debug, Args)]
pub(crate) struct RenamedArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    _rest: Vec<std::ffi::OsString>,
}

impl Command {
    /// Whether the user waits for its end, and reads what it says: it keeps no log.
    pub(crate) fn is_short(&self) -> bool {
        matches!(self, Command::Disk(args) if args.is_short())
    }

    /// Does it. `verbose` is passed on to a daemon.
    pub(crate) fn run(self, verbose: u8) -> anyhow::Result<ExitCode> {
        match self {
            Command::Init(args) => args.run(),
            Command::Mount(args) => args.run(verbose),
            Command::Unmount(args) => args.run(),
            Command::Status(args) => args.run(),
            Command::Sync(args) => args.run(),
            Command::Check(args) => args.run(),
            Command::Doctor(args) => args.run(),
            Command::Explain(args) => args.run(),
            Command::Enforce(args) => args.run(),
            Command::Balance(args) => args.run(),
            Command::Repair(args) => args.run(),
            Command::Branch(args) => args.run(),
            Command::FromMergerfs(args) => args.run(),
            Command::Rules(args) => args.run(),
            Command::WriteBack(args) => args.run(),
            Command::Disk(args) => args.run(verbose),
            Command::Advise(args) => args.run(),
            Command::Lab(args) => args.run(),
            Command::Bench(args) => args.run(),
            Command::Completions(args) => args.run(),
            Command::Governor(_) => {
                anyhow::bail!("`umbrella governor` is now called `umbrella write-back run` (its options are the same)")
            }
        }
    }
}

/// `[POOL]`, for commands whose subject is the pool.
#[derive(Debug, Args)]
struct PoolArg {
    /// Mount point, any path inside the mount, or configuration file; may be left out when one pool is mounted.
    #[arg(value_name = "POOL")]
    pool: Option<PathBuf>,
}

/// `--pool POOL`, for commands whose subject is something else.
#[derive(Debug, Args)]
struct PoolOption {
    /// Mount point, any path inside the mount, or configuration file; may be left out when one pool is mounted.
    #[arg(short, long, value_name = "POOL")]
    pool: Option<PathBuf>,
}

/// The file that the running pool was started from.
fn config_of(client: &Client) -> Result<PathBuf, ClientError> {
    match client.call(&Request::Status)? {
        Answer::Status(status) => Ok(status.config),
        _ => Err(ClientError::Unexpected),
    }
}

/// The mounted pool and a client of its daemon. Fails when no daemon answers.
fn find_live_pool(pool: Option<&Path>) -> Result<(Pool, Client), PoolError> {
    let given = pool;
    let pool = pool::find(given)?;
    pool::is_alive(&pool)?;
    if let Some(file) = given.filter(|given| !pool.socket.exists() && given.is_file()) {
        return Err(PoolError::NotMounted { file: file.to_owned() });
    }
    let client = Client::new(&pool.socket);
    Ok((pool, client))
}
