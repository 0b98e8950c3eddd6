//! How far long work is: a bar on a terminal, a line now and then elsewhere.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// How often a line is written where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);
/// A wait that needs no word.
const SHORT: Duration = Duration::from_secs(2);

/// See the module; gone from the terminal when it is dropped.
pub(super) struct ProgressDisplay {
    bar: ProgressBar,
    on_terminal: bool,
    last_line: Instant,
}

impl ProgressDisplay {
    /// A bar with this template of indicatif's.
    pub(super) fn new(template: &str) -> ProgressDisplay {
        let on_terminal = std::io::stderr().is_terminal();
        let bar = if on_terminal { ProgressBar::new(0) } else { ProgressBar::hidden() };
        bar.set_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()));
        ProgressDisplay { bar, on_terminal, last_line: Instant::now() }
    }

    /// Shows how much of it is done; `line` says the same in words.
    pub(super) fn show(&mut self, done: u64, total: u64, line: impl FnOnce() -> String) {
        self.bar.set_length(total);
        self.bar.set_position(done);
        if !self.on_terminal && self.last_line.elapsed() >= LINE_EVERY {
            self.last_line = Instant::now();
            report!("{}", line());
        }
    }
}

impl Drop for ProgressDisplay {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Shows how long something takes whose end is not known. Short waits are not reported.
pub(super) struct Waiting {
    what: String,
    bar: ProgressBar,
    on_terminal: bool,
    reported: Option<Duration>,
}

impl Waiting {
    /// For something to wait for, in words.
    pub(super) fn new(what: &str) -> Waiting {
        let on_terminal = std::io::stderr().is_terminal();
        let bar = if on_terminal { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
        Waiting { what: what.to_owned(), bar, on_terminal, reported: None }
    }

    /// Shows how long it has taken.
    pub(super) fn show(&mut self, so_far: Duration) {
        if so_far < SHORT {
            return;
        }
        let line = format!("{}: {} s so far", self.what, so_far.as_secs());
        if self.on_terminal {
            self.bar.set_message(line);
            self.bar.tick();
        } else if self.reported.is_none_or(|reported| so_far.saturating_sub(reported) >= LINE_EVERY) {
            self.reported = Some(so_far);
            report!("{line}");
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
