//! `umbrella check --import`: what a pool over existing disks will look like.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use serde::Serialize;

use crate::config::Config;
use crate::render::survey as render;
use crate::survey::{Contents, Finding, Root, Step, Totals, walk};
use crate::text::{count, visible_path};
use crate::{covers, mounts, output};

/// Most findings of a kind that are shown; the others are counted.
const SHOWN: u64 = 20;
/// Interval between two lines that show how far the walk is, where no bar can.
const LINE_EVERY: Duration = Duration::from_secs(30);

/// How findings are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Show {
    /// A line each, at most [`SHOWN`] of a kind.
    Some,
    /// A line each.
    All,
    /// An object a line.
    Json,
    /// They are only counted.
    Nothing,
}

/// The branches of a pool that can be looked at, and in a line each why others cannot.
pub(super) fn roots(config: &Config) -> (Vec<Root>, Vec<String>) {
    let (mut roots, mut silent) = (Vec::new(), Vec::new());
    for branch in &config.spec.branches {
        match mounts::describe_unresponsive(&branch.path) {
            None => roots.push(Root { name: branch.name.clone(), path: branch.path.clone() }),
            Some(silence) => silent.push(format!("{} {silence}", visible_path(&branch.path))),
        }
    }
    (roots, silent)
}

/// Looks at the branches of a pool, and prints what it finds and what that means.
pub(super) fn run(config: &Config, contents: Contents, show: Show) -> anyhow::Result<()> {
    covers::uncover_for_this_process(&config.spec.branches)?;
    let totals = survey(config, contents, show)?;
    if show == Show::Json {
        return Ok(output::json_line(&SummaryLine { summary: &totals })?);
    }
    output::line(&render::branches(&totals))?;
    let advice = render::advice(&totals, &config.source.name().to_string_lossy());
    if totals.is_clean() {
        output::line("no file is on several branches, and all directories agree")?;
    }
    for line in advice {
        output::line(&format!("- {line}"))?;
    }
    Ok(())
}

/// The last line of the JSON.
#[derive(Serialize)]
struct SummaryLine<'a> {
    summary: &'a Totals,
}

/// Looks at the branches of a pool, and shows how far it is.
pub(super) fn survey(config: &Config, contents: Contents, show: Show) -> anyhow::Result<Totals> {
    let (roots, silent) = roots(config);
    for line in silent {
        report!("warning: {line}");
    }
    let mut view = SurveyDisplay::new(show);
    let totals = walk(&roots, contents, &mut |step| view.step(&step));
    view.bar.finish_and_clear();
    let totals = totals?;
    for (kind, number) in view.hidden() {
        output::line(&format!("{kind:<11} and {number} more (--all shows them)"))?;
    }
    Ok(totals)
}

/// What is shown while the walk continues.
struct SurveyDisplay {
    bar: ProgressBar,
    show: Show,
    /// Findings of each kind so far.
    of_kind: BTreeMap<&'static str, u64>,
    on_terminal: bool,
    last_line: Instant,
}

impl SurveyDisplay {
    fn new(show: Show) -> SurveyDisplay {
        let on_terminal = std::io::stderr().is_terminal();
        let bar = if on_terminal { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
        bar.enable_steady_tick(Duration::from_millis(200));
        SurveyDisplay { bar, show, of_kind: BTreeMap::new(), on_terminal, last_line: Instant::now() }
    }

    fn step(&mut self, step: &Step<'_>) -> Result<(), output::OutputError> {
        match step {
            Step::At { path, seen } => {
                self.bar.set_message(format!("{} looked at  {}", count(*seen, "name"), visible_path(path)));
                if !self.on_terminal && self.last_line.elapsed() >= LINE_EVERY {
                    self.last_line = Instant::now();
                    report!("{} looked at", count(*seen, "name"));
                }
                Ok(())
            }
            Step::Found(finding) => self.found(finding),
        }
    }

    fn found(&mut self, finding: &Finding) -> Result<(), output::OutputError> {
        let number = self.of_kind.entry(kind(finding)).or_default();
        *number += 1;
        match self.show {
            Show::Nothing => Ok(()),
            Show::Some if *number > SHOWN => Ok(()),
            Show::Some | Show::All => self.bar.suspend(|| output::line(&render::finding(finding))),
            Show::Json => self.bar.suspend(|| output::json_line(finding)),
        }
    }

    /// How many of which kinds were not shown.
    fn hidden(&self) -> Vec<(&'static str, u64)> {
        let more = |(kind, number): (&&'static str, &u64)| (*number > SHOWN).then(|| (*kind, number - SHOWN));
        if self.show == Show::Some { self.of_kind.iter().filter_map(more).collect() } else { Vec::new() }
    }
}

fn kind(finding: &Finding) -> &'static str {
    match finding {
        Finding::File { .. } => "files",
        Finding::Directory { .. } => "directories",
        Finding::Kinds { .. } => "kinds",
        Finding::Case { .. } => "case",
        Finding::Unread(_) => "unread",
    }
}
