//! `umbrella enforce`: walks the pool and moves what is in the wrong place.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use umbrella_fs::control::protocol::{Answer, EnforceSummary, Progress, Request};
use umbrella_units::{ByteSize, format_duration};

use super::PoolArg;
use crate::client::{Client, ClientError};
use crate::text::{count, visible};
use crate::{output, render};

/// How often a line tells how far it is, where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Walk the pool and move every file to where it belongs.
///
/// Keeps access times, and skips files that are open for writing. Ctrl-C stops the work and shows what is done and what
/// is left; run the command again to continue. The exit code is 130 then, and 1 when a file could not be moved, for
/// example because no branch of its list has room.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLES:
  umbrella enforce --dry-run              what would move, and why?
  umbrella enforce --bandwidth 50MiB      at most 50 MiB a second
  umbrella enforce /srv/pool --json       one JSON object a file, the totals last")]
pub(crate) struct EnforceArgs {
    #[command(flatten)]
    pool: PoolArg,
    /// Only show what would move.
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
        let (_, client) = super::find_live_pool(self.pool.pool.as_deref())?;
        let request = Request::Enforce { dry_run: self.dry_run, bandwidth: self.bandwidth };
        walk(&client, &request, self.dry_run, self.json)
    }
}

/// Lets the daemon walk, shows how far it is and what it moves, and the totals at the end.
pub(super) fn walk(client: &Client, request: &Request, dry_run: bool, json: bool) -> anyhow::Result<ExitCode> {
    let mut view = MoveDisplay::new(json);
    let (answer, signal) = client.call_until_stopped(request, &mut |progress| view.show(&progress));
    view.end()?;
    let Answer::Enforce(summary) = answer? else { return Err(ClientError::Unexpected.into()) };
    if json {
        output::json_line(&summary)?;
    } else {
        output::line(&render::summary(&summary, dry_run))?;
    }
    Ok(interrupted(summary.stopped, signal).unwrap_or_else(|| exit_code(&summary)))
}

/// What a command ends with that a signal stopped: 130 after Ctrl-C.
pub(super) fn interrupted(is_stopped: bool, signal: Option<i32>) -> Option<ExitCode> {
    let signal = signal.filter(|_| is_stopped)?;
    u8::try_from(128 + signal).ok().map(ExitCode::from)
}

fn exit_code(summary: &EnforceSummary) -> ExitCode {
    if summary.files_failed > 0 || summary.files_no_room > 0 || summary.stopped {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

/// A bar on a terminal (without a known total only counts, beside something that spins), a line now and then elsewhere;
/// and a line for each file that moves.
pub(super) struct MoveDisplay {
    bar: ProgressBar,
    json: bool,
    /// A balance moves files, and no rule.
    is_balance: bool,
    on_terminal: bool,
    lines: render::MoveLines,
    /// When the moves of known size began.
    moving_since: Option<Instant>,
    last_line: Instant,
    outcome: Result<(), output::OutputError>,
}

impl MoveDisplay {
    pub(super) fn new(json: bool) -> MoveDisplay {
        let on_terminal = std::io::stderr().is_terminal();
        let bar = if on_terminal { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
        bar.enable_steady_tick(Duration::from_millis(200));
        MoveDisplay {
            bar,
            json,
            is_balance: false,
            on_terminal,
            lines: render::MoveLines::default(),
            moving_since: None,
            last_line: Instant::now(),
            outcome: Ok(()),
        }
    }

    pub(super) fn of_balance(self) -> MoveDisplay {
        MoveDisplay { is_balance: true, ..self }
    }

    /// Takes the bar away. An error: a line could not be written.
    pub(super) fn end(self) -> Result<(), output::OutputError> {
        self.bar.finish_and_clear();
        self.outcome
    }

    pub(super) fn show(&mut self, progress: &Progress) {
        if progress.bytes_total.is_some() && self.moving_since.is_none() {
            // What follows is measured in bytes.
            self.moving_since = Some(Instant::now());
            self.bar.reset();
        }
        let (done, total) = match progress.bytes_total {
            Some(total) => (progress.bytes_moved.0, Some(total.0)),
            None => (progress.inodes_seen, progress.inodes_total),
        };
        if let Some(total) = total {
            if self.bar.length().is_none() {
                self.bar.set_style(bar_style());
            }
            // A file with several names is met several times: the bar must not run past its end.
            self.bar.set_length(total.max(done));
        }
        self.bar.set_position(done);
        self.bar.set_message(format!(
            "{} looked at, {} moved ({})  {}",
            count(progress.files_seen, "file"),
            progress.files_moved,
            progress.bytes_moved,
            visible(&progress.current)
        ));
        if let Some(event) = &progress.event {
            let by = if self.is_balance { "balance".to_owned() } else { render::moved_by(&event.rule) };
            let (json, line) = (self.json, self.lines.line(event, &by));
            let shown = self.bar.suspend(|| if json { output::json_line(event) } else { output::line(&line) });
            self.outcome = std::mem::replace(&mut self.outcome, Ok(())).and(shown);
        } else if !self.on_terminal && self.last_line.elapsed() >= LINE_EVERY {
            self.last_line = Instant::now();
            let left = self.left(progress).unwrap_or_default();
            let Progress { files_seen, files_moved, bytes_moved, .. } = progress;
            report!("{files_seen} files looked at, {files_moved} moved ({bytes_moved}{left})");
        }
    }

    /// How much is left to move and how long that takes, where it is known how much is to move.
    fn left(&self, progress: &Progress) -> Option<String> {
        let (total, moved) = (progress.bytes_total?, progress.bytes_moved.0);
        let left = total.0.saturating_sub(moved);
        let per_byte = self.moving_since?.elapsed().as_secs_f64() / moved as f64;
        let time = Duration::try_from_secs_f64(per_byte * left as f64).ok().filter(|_| moved > 0);
        let time = time.map(|time| format!(", {} left", format_duration(Duration::from_secs(time.as_secs()))));
        Some(format!(" of {total}{}", time.unwrap_or_default()))
    }
}

fn bar_style() -> ProgressStyle {
    ProgressStyle::with_template("{bar:30} {percent}%  {eta} left  {wide_msg}")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
}
