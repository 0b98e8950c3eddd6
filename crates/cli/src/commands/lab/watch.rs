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
    /// From now on the first one is noted; a second one ends the program.
    fn listen() -> anyhow::Result<Interrupt> {
        let interrupt = Interrupt::default();
        for signal in ending_signals() {
            signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&interrupt.came))?;
            signal_hook::flag::register_usize(signal, Arc::clone(&interrupt.which), signal.unsigned_abs() as usize)?;
            signal_hook::flag::register(signal, Arc::clone(&interrupt.came))?;
        }
        Ok(interrupt)
    }

    fn has_come(&self) -> bool {
        self.came.load(Ordering::Relaxed)
    }

    /// How a program ends that a signal has ended.
    fn code(&self) -> Option<ExitCode> {
        let code = 128 + self.which.load(Ordering::Relaxed);
        self.has_come().then(|| ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)))
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

    /// How the program ends, if the runs were interrupted.
    pub(in crate::commands) fn stopped(&self) -> Option<ExitCode> {
        self.interrupt.code()
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
    /// From now on Ctrl-C ends the runs instead of the program; a second one ends the program.
    pub(in crate::commands) fn later() -> anyhow::Result<EarlyInterrupt> {
        Ok(EarlyInterrupt { interrupt: Interrupt::listen()? })
    }

    /// Bars for these runs, and Ctrl-C as in [`Bars::later`].
    pub(super) fn new<M: Machine>(cells: &[Cell<M>]) -> anyhow::Result<Bars> {
        Ok(Bars::later()?.begin(cells))
    }

    fn with_interrupt(names: Vec<String>, interrupt: Interrupt) -> Bars {
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

    /// Takes the bars away. How the program ends, if the runs were interrupted.
    pub(in crate::commands) fn finish(&self) -> Option<ExitCode> {
        let _ = self.screen.clear();
        self.interrupt.code()
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
        if !self.terminal && !self.interrupt.has_come() && self.is_time_for_a_line() {
            tracing::info!(
                "{finished} of {} runs; {} finished after {}",
                self.names.len(),
                self.names[cell].trim(),
                M::simulated(outcome),
            );
        }
    }

    fn stop(&self) -> bool {
        self.interrupt.has_come()
    }
}
