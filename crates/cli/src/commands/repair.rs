//! `umbrella repair`: puts right what a pool shows carefully but leaves on the disks.

use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::anyhow;
use clap::{ArgGroup, Args};
use umbrella_fs::control::protocol::{Answer, EqualiseSummary, Progress, Request};

use super::duplicates::{self, DuplicatesOptions, Keep};
use super::{PoolOption, explain};
use crate::advice::command;
use crate::client::{Client, ClientError};
use crate::pool::{self, Pool};
use crate::text::{quoted, visible_path};
use crate::{output, render};

/// Make the copies of directories equal on all branches, or delete equal copies of files.
///
/// --equalise: where a directory's copies differ in owner, mode or ACL, the pool shows only what all of them allow.
/// This command walks the directories below PATH and lists those that differ. It then sets all their copies to what the
/// pool shows, or to the copy of one branch.
///
/// --duplicates: when several branches hold a file, the pool shows the newest copy. This command deletes another copy
/// if it is equal byte for byte, with the same owner, mode and attributes. Copies that are open or have another name
/// stay. The pool must not be mounted. The command asks before each step.
///
/// Ends with 1 when something failed.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("what").required(true).args(["equalise", "duplicates"]), after_help = "\
EXAMPLES:
  umbrella repair --equalise /srv/pool --dry-run            which directories differ, and what would they become?
  umbrella repair --equalise /srv/pool/films                make their copies what is shown
  umbrella repair --equalise /srv/pool/films --like disk1   make their copies what disk1 has
  umbrella repair --duplicates pool.toml --dry-run          which copies would go?
  umbrella repair --duplicates pool.toml                    delete equal copies, asking each time
  umbrella repair --duplicates pool.toml --keep newest --yes
                                                            and rename different ones, without questions")]
pub(crate) struct RepairArgs {
    /// A directory in a mounted pool; all directories below it are checked too.
    #[arg(long, value_name = "PATH")]
    equalise: Option<PathBuf>,
    /// The configuration of a pool that is not mounted; the command checks its files on several branches.
    #[arg(long, value_name = "CONFIG")]
    duplicates: Option<PathBuf>,
    /// The branch whose copies are right [default: what the pool shows].
    #[arg(long, value_name = "BRANCH", conflicts_with = "duplicates")]
    like: Option<String>,
    /// Which of different copies keeps the name; the others are renamed [default: leave them unchanged].
    #[arg(long, value_enum, requires = "duplicates")]
    keep: Option<Keep>,
    /// Delete and rename everything possible without asking.
    #[arg(short, long, requires = "duplicates")]
    yes: bool,
    /// Only show what differs, or what would be done.
    #[arg(short = 'n', long)]
    dry_run: bool,
    #[command(flatten)]
    pool: PoolOption,
    /// Print JSON: one object a line for each directory or copy, the totals last.
    #[arg(long)]
    json: bool,
}

impl RepairArgs {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        if let Some(config) = self.duplicates {
            let (keep, yes, dry_run, json) = (self.keep, self.yes, self.dry_run, self.json);
            return duplicates::run(&DuplicatesOptions { config, keep, yes, dry_run, json });
        }
        // The other one is required, as clap sees to it.
        let equalise = self.equalise.clone().unwrap_or_default();
        let named = self.pool.pool.as_deref().map(|pool| pool::find(Some(pool))).transpose()?;
        let found = explain::locate(named.as_ref(), &equalise);
        let (pool, path) = found.map_err(|error| {
            let named_wrong = branch_as_path(&equalise, named.as_ref());
            named_wrong.unwrap_or_else(|| error.context(visible_path(&equalise)))
        })?;
        pool::is_alive(&pool)?;
        let path = path.into_os_string().into_vec();
        let request = Request::Equalise { path, like: self.like, dry_run: self.dry_run };
        let mut written = Ok(());
        let answer = Client::new(&pool.socket).call_with_progress(&request, &mut |progress: Progress| {
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

/// The hint for a user who gave a branch in place of a path.
fn branch_as_path(path: &Path, named: Option<&Pool>) -> Option<anyhow::Error> {
    let pool = named.cloned().or_else(|| pool::find(None).ok())?;
    let Ok(Answer::Status(status)) = Client::new(&pool.socket).call(&Request::Status) else { return None };
    let branch = status.branches.into_iter().find(|branch| path == Path::new(&branch.name))?.name;
    Some(anyhow!(
        "{} is a branch, not a path: name a directory in the pool, and give the branch with --like ({})",
        quoted(&branch),
        command(["repair", "--equalise", &pool.mount.to_string_lossy(), "--like", &branch])
    ))
}

fn exit_code(summary: &EqualiseSummary) -> ExitCode {
    if summary.directories_failed > 0 || summary.stopped { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
