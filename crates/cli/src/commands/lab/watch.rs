//! Progress of runs: bars on a terminal, a line now and then elsewhere; and Ctrl-C.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use umbrella_lab::experiment::{Cell, Observe};
use umbrella_lab::hybrid::{HybridOutcome, ObserveHybrid};
use umbrella_lab::log_store::{LogOutcome, ObserveLog};
use umbrella_lab::result::Outcome;

/// Steps of a bar.
const WHOLE: u64 = 1000;

/// How often a line tells how far it is, where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Ctrl-C, before it is known what will be run.
pub(super) struct Later {
    stop: Arc<AtomicBool>,
}

impl Later {
    /// Bars for these runs.
    pub(super) fn begin(&self, cells: &[Cell]) -> Bars {
        let name = |cell: &Cell| {
            let swept: Vec<String> = cell.swept.iter().map(|(name, value)| format!("{name}={value}")).collect();
            format!("{} {}", cell.policy, swept.join(" "))
        };
        self.begin_named(cells.iter().map(name).collect())
    }

    /// Bars for runs of these names.
    pub(super) fn begin_named(&self, names: Vec<String>) -> Bars {
        Bars::with_stop(names, Arc::clone(&self.stop))
    }

    /// Whether the runs were interrupted.
    pub(super) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// A bar a run under way, and one for all.
pub(super) struct Bars {
    stop: Arc<AtomicBool>,
    last_line: Mutex<Instant>,
    screen: MultiProgress,
    all: ProgressBar,
    each: Vec<ProgressBar>,
    names: Vec<String>,
    begun: Vec<AtomicBool>,
    finished: AtomicUsize,
    terminal: bool,
}

impl Bars {
    /// From now on Ctrl-C ends the runs instead of the program; a second one ends the program.
    pub(super) fn later() -> anyhow::Result<Later> {
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&stop))?;
            signal_hook::flag::register(signal, Arc::clone(&stop))?;
        }
        Ok(Later { stop })
    }

    /// Bars for these runs, and Ctrl-C as in [`Bars::later`].
    pub(super) fn new(cells: &[Cell]) -> anyhow::Result<Bars> {
        Ok(Bars::later()?.begin(cells))
    }

    fn with_stop(names: Vec<String>, stop: Arc<AtomicBool>) -> Bars {
        let terminal = std::io::stderr().is_terminal();
        let target = if terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bars = MultiProgress::with_draw_target(target);
        let all = bars.add(ProgressBar::new(names.len() as u64));
        all.set_style(style("{pos}/{len} runs {wide_bar} {elapsed}"));
        if terminal {
            all.enable_steady_tick(Duration::from_millis(250));
        }
        let each_style = style("  {msg:30!} {wide_bar} {percent:>3} %");
        let each = names.iter().map(|_| ProgressBar::hidden().with_style(each_style.clone())).collect();
        Bars {
            stop,
            last_line: Mutex::new(Instant::now()),
            screen: bars,
            all,
            each,
            begun: names.iter().map(|_| AtomicBool::new(false)).collect(),
            names,
            finished: AtomicUsize::new(0),
            terminal,
        }
    }

    /// Takes the bars away. Whether the runs were interrupted.
    pub(super) fn finish(&self) -> bool {
        let _ = self.screen.clear();
        self.stop.load(Ordering::Relaxed)
    }
}

impl Bars {
    fn is_time_for_a_line(&self) -> bool {
        let Ok(mut last) = self.last_line.lock() else { return false };
        let due = last.elapsed() >= LINE_EVERY;
        if due {
            *last = Instant::now();
        }
        due
    }
}

impl Drop for Bars {
    fn drop(&mut self) {
        let _ = self.screen.clear();
    }
}

/// A bar's looks. The templates are written down here; one that cannot be read shows as indicatif's own.
fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

impl Bars {
    fn show(&self, cell: usize, share: Option<f64>) {
        if !self.terminal {
            return;
        }
        let bar = &self.each[cell];
        if !self.begun[cell].swap(true, Ordering::Relaxed) {
            bar.set_length(WHOLE);
            bar.set_message(self.names[cell].clone());
            self.screen.add(bar.clone());
        }
        if let Some(share) = share {
            bar.set_position((share * WHOLE as f64) as u64);
        }
    }

    fn show_finished(&self, cell: usize, after: &str) {
        let finished = self.finished.fetch_add(1, Ordering::Relaxed) + 1;
        self.all.set_position(finished as u64);
        self.each[cell].finish_and_clear();
        if !self.terminal && self.is_time_for_a_line() {
            tracing::info!(
                "{finished} of {} runs; {} finished after {after}",
                self.names.len(),
                self.names[cell].trim(),
            );
        }
    }
}

/// How long a run took in its own time.
fn modelled(seconds: f64) -> String {
    format!("{seconds:.3} s of modelled time")
}

impl Observe for Bars {
    fn progress(&self, cell: usize, share: Option<f64>) {
        self.show(cell, share);
    }

    fn finished(&self, cell: usize, outcome: &Outcome) {
        self.show_finished(cell, &modelled(outcome.time_s));
    }

    fn stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

impl ObserveHybrid for Bars {
    fn progress(&self, cell: usize, share: f64) {
        self.show(cell, Some(share));
    }

    fn finished(&self, cell: usize, outcome: &HybridOutcome) {
        self.show_finished(cell, &modelled(outcome.time_s));
    }

    fn stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

impl ObserveLog for Bars {
    fn progress(&self, cell: usize, share: f64) {
        self.show(cell, Some(share));
    }

    fn finished(&self, cell: usize, outcome: &LogOutcome) {
        self.show_finished(cell, &format!("{} blocks", outcome.written.0));
    }

    fn stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
