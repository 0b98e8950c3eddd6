//! Progress of runs: bars on a terminal, a line now and then elsewhere; and Ctrl-C.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use umbrella_lab::experiment::{Cell, Machine, Observe};

use crate::commands::trace_output::ending_signals;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Steps of a bar.
const WHOLE: u64 = 1000;

/// How often a line tells how far it is, where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// A signal that ends runs: Ctrl-C, the system's end, a terminal that is closed.
#[derive(Clone, Default)]
struct Interrupt {
    came: Arc<AtomicBool>,
    which: Arc<AtomicUsize>,
}

impl Interrupt {
    /// Catches the first signal. A second one ends the program.
    fn install() -> anyhow::Result<Interrupt> {
        let interrupt = Interrupt::default();
        for signal in ending_signals() {
            signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&interrupt.came))?;
            signal_hook::flag::register_usize(signal, Arc::clone(&interrupt.which), signal.unsigned_abs() as usize)?;
            signal_hook::flag::register(signal, Arc::clone(&interrupt.came))?;
        }
        Ok(interrupt)
    }

    fn is_set(&self) -> bool {
        self.came.load(Ordering::Relaxed)
    }

    /// The exit code after a signal; `None` if none came.
    fn exit_code(&self) -> Option<ExitCode> {
        let code = 128 + self.which.load(Ordering::Relaxed);
        self.is_set().then(|| ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)))
    }
}

/// Ctrl-C, before it is known what will be run.
pub(in crate::commands) struct EarlyInterrupt {
    interrupt: Interrupt,
}

impl EarlyInterrupt {
    /// Bars for these runs.
    pub(in crate::commands) fn begin<M: Machine>(&self, cells: &[Cell<M>]) -> Bars {
        Bars::with_interrupt(cells.iter().map(Cell::label).collect(), self.interrupt.clone())
    }

    /// The exit code if the runs were interrupted.
    pub(in crate::commands) fn stopped(&self) -> Option<ExitCode> {
        self.interrupt.exit_code()
    }
}

/// A bar a run under way, and one for all.
pub(in crate::commands) struct Bars {
    interrupt: Interrupt,
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
    /// Makes the first Ctrl-C end the runs instead of the program. A second one ends the program.
    pub(in crate::commands) fn catch_interrupts() -> anyhow::Result<EarlyInterrupt> {
        Ok(EarlyInterrupt { interrupt: Interrupt::install()? })
    }

    /// Bars for these runs, and Ctrl-C as in [`Bars::catch_interrupts`].
    pub(super) fn new<M: Machine>(cells: &[Cell<M>]) -> anyhow::Result<Bars> {
        Ok(Bars::catch_interrupts()?.begin(cells))
    }

    fn with_interrupt(names: Vec<String>, interrupt: Interrupt) -> Bars {
        let terminal = std::io::stderr().is_terminal();
        let target = if terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bars = MultiProgress::with_draw_target(target);
        let all = bars.add(ProgressBar::new(names.len() as u64));
        all.set_style(bar_style("{pos}/{len} runs {wide_bar} {elapsed}"));
        if terminal {
            all.enable_steady_tick(Duration::from_millis(250));
        }
        let each_style = bar_style("  {msg:30!} {wide_bar} {percent:>3} %");
        let each = names.iter().map(|_| ProgressBar::hidden().with_style(each_style.clone())).collect();
        Bars {
            interrupt,
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

    /// Removes the bars. Returns the exit code if the runs were interrupted.
    pub(in crate::commands) fn finish(&self) -> Option<ExitCode> {
        let _ = self.screen.clear();
        self.interrupt.exit_code()
    }
}

impl Bars {
    fn is_line_due(&self) -> bool {
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

/// The style of a bar. Falls back to indicatif's default for a template that cannot be parsed.
fn bar_style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

impl<M: Machine> Observe<M> for Bars {
    fn progress(&self, cell: usize, share: Option<f64>) {
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

    fn finished(&self, cell: usize, outcome: &M::Outcome) {
        let finished = self.finished.fetch_add(1, Ordering::Relaxed) + 1;
        self.all.set_position(finished as u64);
        self.each[cell].finish_and_clear();
        if !self.terminal && !self.interrupt.is_set() && self.is_line_due() {
            tracing::info!(
                "{finished} of {} runs; {} finished after {}",
                self.names.len(),
                self.names[cell].trim(),
                M::simulated(outcome),
            );
        }
    }

    fn stop(&self) -> bool {
        self.interrupt.is_set()
    }
}
