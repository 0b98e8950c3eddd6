//! `umbrella repair`: puts right what a pool shows carefully but leaves on the disks.

use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::anyhow;
use clap::Args;
use umbrella_fs::control::protocol::{Answer, EqualiseSummary, Progress, Request};

use super::{PoolOption, explain};
use crate::client::{Client, ClientError};
use crate::pool::{self, Pool};
use crate::text::{quoted, visible_path};
use crate::{output, render};

/// Make the copies of directories equal on all branches.
///
/// Where a directory's copies differ in owner, mode or ACL the pool shows what all of them allow and changes no disk. This walks the
/// directories below PATH, lists those that differ, then gives all their copies what is shown, or what one branch has. Ends with 1 when a copy could not be changed.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLES:
  umbrella repair --equalise /srv/pool --dry-run            which directories differ, and what would they become?
  umbrella repair --equalise /srv/pool/films                make their copies what is shown
  umbrella repair --equalise /srv/pool/films --like disk1   make their copies what disk1 has")]
pub(crate) struct RepairArgs {
    /// A directory in a mounted pool; all directories below it are checked too.
    #[arg(long, required = true, value_name = "PATH")]
    equalise: PathBuf,
    /// The branch whose copies are right [default: what is shown].
    #[arg(long, value_name = "BRANCH")]
    like: Option<String>,
    /// Only say what differs.
    #[arg(short = 'n', long)]
    dry_run: bool,
    #[command(flatten)]
    pool: PoolOption,
    /// Print JSON: one object a line for each directory, the totals last.
    #[arg(long)]
    json: bool,
}

impl RepairArgs {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let named = self.pool.pool.as_deref().map(|pool| pool::find(Some(pool))).transpose()?;
        let found = explain::locate(named.as_ref(), &self.equalise);
        let (pool, path) = found.map_err(|error| self.branch_as_path(named.as_ref()).unwrap_or(error))?;
        pool::is_alive(&pool)?;
        let path = path.into_os_string().into_vec();
        let request = Request::Equalise { path, like: self.like, dry_run: self.dry_run };
        let mut written = Ok(());
        let answer = Client::new(&pool.socket).work(&request, &mut |progress: Progress| {
            let Some(event) = progress.directory.filter(|_| written.is_ok()) else { return };
            written =
                if self.json { output::json_line(&event) } else { output::line(&render::directory_event(&event)) };
        });
        written?;
        let Answer::Equalised(summary) = answer? else { return Err(ClientError::Unexpected.into()) };
        if self.json {
            output::json_line(&summary)?;
        } else {
            output::line(&render::equalised(&summary, self.dry_run))?;
        }
        Ok(exit_code(&summary))
    }
}

impl RepairArgs {
    /// What to say to somebody who named a branch in the place of a path.
    fn branch_as_path(&self, named: Option<&Pool>) -> Option<anyhow::Error> {
        let pool = named.cloned().or_else(|| pool::find(None).ok())?;
        let Ok(Answer::Status(status)) = Client::new(&pool.socket).ask(&Request::Status) else { return None };
        let branch = status.branches.into_iter().find(|branch| self.equalise == Path::new(&branch.name))?.name;
        let mount = visible_path(&pool.mount);
        Some(anyhow!(
            "{} is a branch, not a path: name a directory in the pool, and give the branch with --like (`umbrella repair --equalise {mount} --like {branch}`)",
            quoted(&branch)
        ))
    }
}

fn exit_code(summary: &EqualiseSummary) -> ExitCode {
    if summary.directories_failed > 0 || summary.stopped { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
