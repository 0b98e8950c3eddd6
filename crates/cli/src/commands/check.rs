//! `umbrella check`: is a configuration right, and does every rule have a use?

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use umbrella_fs::spec::AccessTimes;
use umbrella_policy::placement::Group;
use umbrella_units::BranchId;

use super::import::{self, Show};
use crate::config::{self, Config, ErrorReport, SpannedNotice};
use crate::output;
use crate::survey::Contents;
use crate::text::{count, quoted, visible, visible_path};

/// Check a configuration: errors, oddities, and rules that can never match.
///
/// Ends with 1 when there are errors. Warnings alone end with 0, also when a branch is missing.
///
/// With --import it also reads the branches and shows what their files become in one tree. It changes nothing on the
/// disks.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLES:
  umbrella check /etc/umbrella/pool.toml
  umbrella check pool.toml --json | jq '.errors[].message'
  umbrella check --import pool.toml             which files are on several disks, which directories differ?
  umbrella check --import --compare pool.toml   and are the copies equal?")]
pub(crate) struct CheckArgs {
    /// The configuration file.
    config: PathBuf,
    #[command(flatten)]
    import: ImportArgs,
    /// Print JSON; with --import an object a line for each finding, the totals last.
    #[arg(long)]
    json: bool,
}

/// What to look for in the branches.
#[derive(Debug, Args)]
struct ImportArgs {
    /// Look through the branches: files on several of them, directories that differ, names that differ only in case.
    #[arg(long)]
    import: bool,
    /// With --import: compare copies of the same size byte for byte. Reads all of them.
    #[arg(long, visible_alias = "hash", requires = "import")]
    compare: bool,
    /// With --import: show every finding, not just some of each kind.
    #[arg(long, requires = "import")]
    all: bool,
}

/// What was found, as `--json` prints it.
#[derive(Debug, Serialize)]
struct ConfigReport {
    config: String,
    /// The configuration has no errors.
    ok: bool,
    /// Branches that could not be used just now: `mount` would stop, or continue without those that are optional.
    missing: Vec<String>,
    errors: Vec<ErrorReport>,
    warnings: Vec<ErrorReport>,
    /// Rules and patterns that can never match.
    unreachable: Vec<UnreachableReport>,
}

#[derive(Debug, Serialize)]
struct UnreachableReport {
    rule: String,
    #[serde(flatten)]
    report: ErrorReport,
}

impl CheckArgs {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let name = visible_path(&self.config);
        match config::load(&self.config, None, AccessTimes::default()) {
            Ok((config, findings)) if self.import.import => {
                let report = report(name, &config, &findings);
                if !self.json {
                    output::print(&summary(&report, &config))?;
                }
                let contents = if self.import.compare { Contents::Bytes } else { Contents::Sizes };
                import::run(&config, contents, self.show())?;
                Ok(ExitCode::SUCCESS)
            }
            Ok((config, findings)) => {
                let report = report(name, &config, &findings);
                if self.json {
                    output::json(&report)?;
                } else {
                    output::print(&summary(&report, &config))?;
                }
                Ok(ExitCode::SUCCESS)
            }
            Err(errors) => {
                let reports = errors.reports();
                if self.json {
                    let errors = reports;
                    let (missing, warnings, unreachable) = (vec![], vec![], vec![]);
                    output::json(&ConfigReport { config: name, ok: false, missing, errors, warnings, unreachable })?;
                } else {
                    report!("{errors}\n{name}: {}", count(reports.len() as u64, "error"));
                }
                Ok(ExitCode::FAILURE)
            }
        }
    }
}

impl CheckArgs {
    /// How the findings in the branches are shown.
    fn show(&self) -> Show {
        match (self.json, self.import.all) {
            (true, _) => Show::Json,
            (false, true) => Show::All,
            (false, false) => Show::Some,
        }
    }
}

fn report(name: String, config: &Config, findings: &[SpannedNotice]) -> ConfigReport {
    let warnings = findings.iter().map(|finding| config.report(&finding.span, finding.notice.to_string())).collect();
    let missing = findings.iter().filter_map(SpannedNotice::missing_branch).map(str::to_owned).collect();
    ConfigReport { config: name, ok: true, missing, errors: Vec::new(), warnings, unreachable: unreachable(config) }
}

fn unreachable(config: &Config) -> Vec<UnreachableReport> {
    let Ok(rules) = config.rules() else { return Vec::new() };
    let reports = rules.unreachable().into_iter().map(|found| {
        let message = format!("rule {} can never match: {}", quoted(&found.rule), visible(&found.reason));
        UnreachableReport { report: config.report(&config.span_of_rule(&found.rule), message), rule: found.rule }
    });
    reports.collect()
}

/// A line for each group, with its members.
fn groups(config: &Config) -> Vec<String> {
    let Ok(rules) = config.rules() else { return Vec::new() };
    let name = |id: &BranchId| config.spec.branches.get(id.index()).map_or("", |branch| branch.name.as_str());
    let line = |group: &Group| {
        let members: Vec<&str> = group.members.iter().map(name).collect();
        format!("group {}: {}", quoted(&group.name), visible(&members.join(", ")))
    };
    rules.groups().iter().map(line).collect()
}

fn summary(report: &ConfigReport, config: &Config) -> String {
    let unreachable = report.unreachable.iter().map(|unreachable| &unreachable.report);
    let mut lines: Vec<String> = report.warnings.iter().chain(unreachable).map(ErrorReport::as_warning).collect();
    let warnings = count(lines.len() as u64, "warning");
    lines.extend(groups(config));
    let branches = count(config.spec.branches.len() as u64, "branch").replace("branchs", "branches");
    let rules = count(config.spec.rules.rules.len() as u64, "rule");
    let verdict = match report.missing.as_slice() {
        [] => "ok".to_owned(),
        missing => {
            let names: Vec<_> = missing.iter().map(|name| quoted(name)).collect();
            format!("no errors, but not there now: {}", names.join(", "))
        }
    };
    lines.push(format!("{}: {verdict} ({branches}, {rules}, {warnings})\n", report.config));
    lines.join("\n")
}
