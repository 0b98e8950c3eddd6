//! `umbrella doctor`: what a machine and a pool lack.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use umbrella_fs::control::protocol::{Answer, Request, Status};
use umbrella_fs::spec::AccessTimes;

use super::PoolArg;
use super::import::{self, Show};
use crate::client::Client;
use crate::config::{self, Config};
use crate::doctor::{Diagnostic, Severity, boot, branches, machine, running};
use crate::pool::{self, Pool, PoolError, STATUS_TIMEOUT};
use crate::render::survey as render;
use crate::survey::{Contents, Totals};
use crate::text::{count, visible_path};
use crate::{covers, mounts, output};

/// Show what is wrong with the machine and a pool, and what to do about it.
///
/// Changes nothing. Checks the kernel, limits, and what dead daemons left behind. For a pool, mounted or not, it checks
/// the configuration, the branches with their mounts and files, and what mounts the pool at boot. Ends with 1 when
/// there is a problem; remarks alone end with 0.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLES:
  umbrella doctor                           the machine, and the pool if one is mounted
  umbrella doctor /etc/umbrella/pool.toml   a pool that need not be mounted
  umbrella doctor --quick                   without looking through the branches
  umbrella doctor --json | jq '.items[] | select(.severity == \"problem\")'")]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    pool: PoolArg,
    /// Do not check the files of the branches (`umbrella check --import` checks only these).
    #[arg(long)]
    quick: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// What was found, as `--json` prints it.
#[derive(Debug, Default, Serialize)]
struct DoctorReport {
    /// The configuration, or null without a pool.
    config: Option<String>,
    /// Whether the pool is mounted.
    mounted: bool,
    items: Vec<Diagnostic>,
    /// What the branches hold; null if they were not looked through.
    survey: Option<Totals>,
}

impl DoctorArgs {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let mut report = DoctorReport { items: machine::items(), ..DoctorReport::default() };
        let subject = self.subject().or_else(|error| match error.downcast_ref::<PoolError>() {
            // The machine can be looked at without the right to ask the pool.
            Some(PoolError::NotOurs { .. }) => {
                report.items.push(Diagnostic::remark("pool", format!("not checked: {error}")));
                Ok(None)
            }
            _ => Err(error),
        })?;
        if let Some((config, status)) = subject {
            report.config = Some(visible_path(&config));
            report.mounted = status.is_some();
            report.items.extend(status.iter().flat_map(|status| running::items(status)));
            self.diagnose(&config, report.mounted, &mut report)?;
        }
        report.items.sort_by_key(|item| item.severity);
        let is_bad = report.items.iter().any(|item| item.severity == Severity::Problem);
        if self.json {
            output::json(&report)?;
        } else {
            print(&report)?;
        }
        Ok(if is_bad { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    /// The configuration that is meant, and what its daemon says if it runs. Nothing where no pool is named and none is
    /// mounted.
    fn subject(&self) -> anyhow::Result<Option<(PathBuf, Option<Box<Status>>)>> {
        let given = self.pool.pool.as_deref();
        let pool = match given {
            Some(path) => match pool::holding(path)? {
                Some(pool) => pool,
                None => match pool::find(Some(path)) {
                    Ok(pool) => return Ok(Some((path.to_owned(), status(&pool)))),
                    // Its faults are reported below.
                    Err(PoolError::Config(_)) => return Ok(Some((path.to_owned(), None))),
                    Err(error) => return Err(error.into()),
                },
            },
            None => match pool::find(None) {
                Ok(pool) => pool,
                Err(
                    PoolError::NoneMounted
                    | PoolError::Dead { .. }
                    | PoolError::Waiting { .. }
                    | PoolError::Covered { .. },
                ) => return Ok(None),
                Err(error) => return Err(error.into()),
            },
        };
        Ok(status(&pool).map(|status| (status.config.clone(), Some(status))))
    }

    fn diagnose(&self, file: &Path, mounted: bool, report: &mut DoctorReport) -> anyhow::Result<()> {
        let (config, findings) = match config::load(file, None, AccessTimes::default()) {
            Ok(loaded) => loaded,
            Err(errors) => {
                let problem = |error: config::ErrorReport| Diagnostic::problem(boot::about(file), error.to_string());
                report.items.extend(errors.reports().into_iter().map(problem));
                return Ok(());
            }
        };
        for finding in &findings {
            let text = finding.notice.to_string();
            // Where the pool is mounted its tree is in the mount point, and its daemon says which branches it has.
            match finding.missing_branch() {
                Some(_) if !mounted => report.items.push(Diagnostic::problem("configuration", text).split()),
                // Paths that a daemon left hidden are reported with the machine's state.
                None if finding.is_left_hidden() => {}
                None if !(mounted && finding.is_of_mount_point()) => {
                    report.items.push(Diagnostic::remark("configuration", text));
                }
                _ => {}
            }
        }
        let revealed = covers::uncover_for_this_process(&config.spec.branches);
        report.items.extend(branches::items(&config.spec.branches));
        report.items.extend(at_boot(file, &config));
        if let (Err(reason), false) = (&revealed, self.quick) {
            report.items.push(Diagnostic::remark("files", format!("not checked: {reason:#}")));
        } else if !self.quick {
            let totals = import::survey(&config, Contents::Sizes, Show::Nothing)?;
            let advice = render::advice(&totals, &file.to_string_lossy());
            report.items.extend(advice.into_iter().map(|advice| Diagnostic::remark("files", advice)));
            report.survey = Some(totals);
            // The survey says it again, with what to do.
            let is_repeated = |item: &Diagnostic| {
                let said = ["first look at the branches: ", " (seen since the mount", " is on several branches ("];
                item.about == "pool" && said.iter().any(|said| item.text.contains(*said))
            };
            report.items.retain(|item| !is_repeated(item));
        }
        Ok(())
    }
}

fn status(pool: &Pool) -> Option<Box<Status>> {
    match Client::new(&pool.socket).with_timeout(STATUS_TIMEOUT).call(&Request::Status) {
        Ok(Answer::Status(status)) => Some(status),
        _ => None,
    }
}

fn at_boot(file: &Path, config: &Config) -> Vec<Diagnostic> {
    let is_needed = |branch: &&umbrella_fs::spec::BranchSpec| !branch.optional;
    let mount_of = |branch: &umbrella_fs::spec::BranchSpec| {
        let (at, _) = mounts::above(&mounts::resolve(&branch.path))?;
        (at != Path::new("/")).then_some(at)
    };
    let branches = config.spec.branches.iter().filter(is_needed).filter_map(mount_of).collect();
    let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    boot::items(Path::new("/"), &boot::BootRequirements { config: &file, mount: &config.spec.mount, branches })
}

fn print(report: &DoctorReport) -> anyhow::Result<()> {
    for item in &report.items {
        let severity = match item.severity {
            Severity::Problem => "problem",
            Severity::Remark => "remark",
        };
        output::line(&format!("{severity:<8} {}: {}", item.about, item.text))?;
        if let Some(todo) = &item.todo {
            output::line(&format!("         -> {todo}"))?;
        }
    }
    let of = |severity| report.items.iter().filter(|item| item.severity == severity).count() as u64;
    let subject = match (&report.config, report.mounted) {
        (None, _) => "the machine (no pool was checked)".to_owned(),
        (Some(config), true) => format!("{config} (mounted)"),
        (Some(config), false) => format!("{config} (not mounted)"),
    };
    let (problems, remarks) = (of(Severity::Problem), of(Severity::Remark));
    Ok(output::line(&format!("{subject}: {}, {}", count(problems, "problem"), count(remarks, "remark")))?)
}
