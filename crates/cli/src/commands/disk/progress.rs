//! How far long work is: a bar on a terminal, a line now and then elsewhere.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// How often a line is written where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// See the module; gone from the terminal when it is dropped.
pub(super) struct View {
    bar: ProgressBar,
    on_terminal: bool,
    last_line: Instant,
}

impl View {
    /// A bar with this template of indicatif's.
    pub(super) fn new(template: &str) -> View {
        let on_terminal = std::io::stderr().is_terminal();
        let bar = if on_terminal { ProgressBar::new(0) } else { ProgressBar::hidden() };
        bar.set_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()));
        View { bar, on_terminal, last_line: Instant::now() }
    }

    /// So much of it is done; `line` says the same in words.
    pub(super) fn show(&mut self, done: u64, total: u64, line: impl FnOnce() -> String) {
        self.bar.set_length(total);
        self.bar.set_position(done);
        if !self.on_terminal && self.last_line.elapsed() >= LINE_EVERY {
            self.last_line = Instant::now();
            tell!("{}", line());
        }
    }
}

impl Drop for View {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
