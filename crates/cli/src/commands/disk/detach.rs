//! `umbrella disk detach`: takes a disk away.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::bail;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};

use super::DiskArg;
use crate::client::ClientError;
use crate::disk::offered::detach_unserved;
use crate::disk::place::{self, Meant};
use crate::disk::protocol::{Answer, Detached, Outcome, Progress, Request};
use crate::output;

/// How often a line is written where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Take a disk away: everything that is on flash goes to the disk, which is a plain disk then.
///
/// The flash no longer belongs to the disk; `umbrella disk create` joins them again. A disk that is not served is named by its
/// configuration. Ctrl-C leaves the disk as it is.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLES:
  umbrella disk detach
  umbrella disk detach media --keep-cache    quick: what is on flash stays there for the next start")]
pub(super) struct DetachArgs {
    #[command(flatten)]
    disk: DiskArg,
    /// Leave on flash what is there: the two still belong together.
    #[arg(long)]
    keep_cache: bool,
    /// Hang up on NBD clients.
    #[arg(short, long)]
    force: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl DetachArgs {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let meant = place::find(self.disk.disk.as_deref())?;
        let mut view = View::new();
        let detached = self.detach(&meant, &mut view);
        view.bar.finish_and_clear();
        let detached = detached?;
        if self.json {
            output::json(&detached)?;
        } else {
            output::line(&summary(&detached))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn detach(&self, meant: &Meant, view: &mut View) -> anyhow::Result<Detached> {
        if let (Some(spec), false) = (&meant.spec, place::is_served(&meant.name)) {
            if self.keep_cache {
                bail!("{} is not served: there is nothing to do", spec.name);
            }
            let drained = detach_unserved(spec, &mut |progress| view.show(progress))?;
            return Ok(Detached { name: spec.name.to_string(), outcome: Outcome::Detached, drained });
        }
        let request = Request::Detach { keep_cache: self.keep_cache, force: self.force };
        let answer = meant.client()?.work(&request, &mut |progress| {
            view.show(&progress);
        });
        let Answer::Detached(detached) = answer? else { return Err(ClientError::Unexpected.into()) };
        Ok(detached)
    }
}

/// A bar on a terminal, a line now and then elsewhere.
struct View {
    bar: ProgressBar,
    on_terminal: bool,
    last_line: Instant,
}

impl View {
    fn new() -> View {
        let on_terminal = std::io::stderr().is_terminal();
        let bar = if on_terminal { ProgressBar::new(0) } else { ProgressBar::hidden() };
        let style = ProgressStyle::with_template("{bar:30} {bytes} of {total_bytes} to the disk  {eta} left");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        View { bar, on_terminal, last_line: Instant::now() }
    }

    fn show(&mut self, progress: &Progress) -> bool {
        self.bar.set_length(progress.total.0);
        self.bar.set_position(progress.done.0);
        if !self.on_terminal && self.last_line.elapsed() >= LINE_EVERY {
            self.last_line = Instant::now();
            eprintln!("{} of {} brought to the disk", progress.done, progress.total);
        }
        true
    }
}

fn summary(Detached { name, outcome, drained }: &Detached) -> String {
    match outcome {
        Outcome::Detached if drained.0 > 0 => format!("{name} is detached; {drained} brought from flash to the disk"),
        Outcome::Detached => format!("{name} is detached"),
        Outcome::DetachedWithCache => format!("{name} is detached; the flash still belongs to it"),
    }
}
