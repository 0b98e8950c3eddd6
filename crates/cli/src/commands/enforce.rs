//! `umbrella enforce`: walks the pool and moves what is in the wrong place.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use umbrella_fs::control::protocol::{Answer, EnforceSummary, Progress, Request};
use umbrella_units::ByteSize;

use super::PoolArg;
use crate::client::{Client, ClientError};
use crate::text::{count, visible};
use crate::{output, render};

/// How often a line tells how far it is, where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Walk the pool and move every file to where it belongs.
///
/// Access times are not touched, files that are open for writing stay, and it is safe to stop at any moment. Ends with 1 when a
/// file could not be moved, also because no branch of its list has room.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLES:
  umbrella enforce --dry-run              what would move, and why?
  umbrella enforce --bandwidth 50MiB      at most 50 MiB a second
  umbrella enforce /srv/pool --json       one JSON object a file, the totals last")]
pub(crate) struct EnforceArgs {
    #[command(flatten)]
    pool: PoolArg,
    /// Only say what would move.
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Move at most this much a second [default: the configuration's].
    #[arg(long, value_name = "SIZE")]
    bandwidth: Option<ByteSize>,
    /// Print JSON: one object a line for each file, the totals last.
    #[arg(long)]
    json: bool,
}

impl EnforceArgs {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let (_, client) = super::reach(self.pool.pool.as_deref())?;
        let request = Request::Enforce { dry_run: self.dry_run, bandwidth: self.bandwidth };
        walk(&client, &request, self.dry_run, self.json)
    }
}

/// Lets the daemon walk, shows how far it is and what it moves, and the totals at the end.
pub(super) fn walk(client: &Client, request: &Request, dry_run: bool, json: bool) -> anyhow::Result<ExitCode> {
    let mut view = View::new(json);
    let answer = client.work(request, &mut |progress| view.show(&progress));
    view.bar.finish_and_clear();
    view.outcome?;
    let Answer::Enforce(summary) = answer? else { return Err(ClientError::Unexpected.into()) };
    if json {
        output::json_line(&summary)?;
    } else {
        output::line(&render::summary(&summary, dry_run))?;
    }
    Ok(exit_code(&summary))
}

fn exit_code(summary: &EnforceSummary) -> ExitCode {
    if summary.files_failed > 0 || summary.files_no_room > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// A bar on a terminal (without a known total only counts, beside something that spins), a line now and then elsewhere; and a line for each file that moves.
struct View {
    bar: ProgressBar,
    json: bool,
    on_terminal: bool,
    last_line: Instant,
    outcome: Result<(), output::OutputError>,
}

impl View {
    fn new(json: bool) -> View {
        let on_terminal = std::io::stderr().is_terminal();
        let bar = if on_terminal { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
        bar.enable_steady_tick(Duration::from_millis(200));
        View { bar, json, on_terminal, last_line: Instant::now(), outcome: Ok(()) }
    }

    fn show(&mut self, progress: &Progress) {
        if let Some(total) = progress.inodes_total {
            if self.bar.length().is_none() {
                self.bar.set_style(bar_style());
            }
            // A file with several names is met several times: the bar must not run past its end.
            self.bar.set_length(total.max(progress.inodes_seen));
        }
        self.bar.set_position(progress.inodes_seen);
        self.bar.set_message(format!(
            "{} looked at, {} moved ({})  {}",
            count(progress.files_seen, "file"),
            progress.files_moved,
            progress.bytes_moved,
            visible(&progress.current)
        ));
        if let Some(event) = &progress.event {
            let json = self.json;
            let shown = self
                .bar
                .suspend(|| if json { output::json_line(event) } else { output::line(&render::move_event(event)) });
            self.outcome = std::mem::replace(&mut self.outcome, Ok(())).and(shown);
        } else if !self.on_terminal && self.last_line.elapsed() >= LINE_EVERY {
            self.last_line = Instant::now();
            tell!("{} files looked at, {} moved ({})", progress.files_seen, progress.files_moved, progress.bytes_moved);
        }
    }
}

fn bar_style() -> ProgressStyle {
    ProgressStyle::with_template("{bar:30} {percent}%  {eta} left  {wide_msg}")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
}
