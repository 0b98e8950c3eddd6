//! `umbrella write-back run`: ordered write-back of a file system that is in no pool.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::bail;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use umbrella_units::{ByteSize, ParseDurationError, parse_duration};
use umbrella_writeback::bpf::{Watch, WatchStatus};
use umbrella_writeback::{Limits, Settings, Status};

use crate::{output, pool};

/// How often a line is written where there is no terminal, and how often the line on a terminal changes.
const LINE_EVERY: Duration = Duration::from_secs(60);
const SHOW_EVERY: Duration = Duration::from_secs(1);

/// Order the write-back of any mounted file system, in a pool or not (needs root).
///
/// The kernel reports which pages become dirty (BPF). Their write-back starts a little before the kernel would begin,
/// in the order of a policy. The command runs in the foreground until Ctrl-C or SIGTERM. It changes nothing
/// permanently: when it ends or is killed, the kernel writes back by itself again. It never holds writers back, so the
/// kernel handles sustained overload.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLES:
  umbrella write-back run --fs /mnt/disk
  umbrella write-back run --fs /mnt/disk --policy sweep --background 64MiB
  umbrella write-back run --fs /mnt/disk --json --every 10s >> write-back.json
  umbrella write-back run --fs /mnt/disk --for 10min --record day.events")]
pub(crate) struct RunArgs {
    /// Where the file system is mounted: ext4, xfs or btrfs.
    #[arg(long, value_name = "MOUNT_POINT")]
    fs: PathBuf,
    /// Which pages go first, with parameters if you like (umbrella lab list policies).
    #[arg(long, value_name = "POLICY", default_value = "cscan")]
    policy: String,
    /// The most that should be dirty. Write-back begins at half of it; writers never wait [default: from the kernel's
    /// threshold].
    #[arg(long, value_name = "SIZE")]
    limit: Option<ByteSize>,
    /// Begin write-back above this, instead of half of the limit.
    #[arg(long, value_name = "SIZE")]
    background: Option<ByteSize>,
    /// End after this time.
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    time: Option<Duration>,
    /// Record what the policy sees and chooses, for the lab.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// End the record at this size.
    #[arg(long, value_name = "SIZE", default_value = "1GiB", requires = "record")]
    record_size: ByteSize,
    /// Memory for kernel events that are not read yet. If it overflows, Umbrella checks the files concerned.
    #[arg(long, value_name = "SIZE", default_value = "8MiB")]
    ring: ByteSize,
    /// Print the status as lines of JSON.
    #[arg(long)]
    json: bool,
    /// How often, with --json.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration, requires = "json")]
    every: Duration,
}

fn duration(text: &str) -> Result<Duration, ParseDurationError> {
    parse_duration(text)
}

impl RunArgs {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        if !rustix::process::geteuid().is_root() {
            bail!(
                "write-back run needs root: it asks the kernel which pages are dirty, and opens files by their numbers"
            );
        }
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&stop))?;
            signal_hook::flag::register(signal, Arc::clone(&stop))?;
        }
        let limits = Limits { limit: self.limit, background: self.background };
        let settings = Settings { limits, ..Settings::parse(&self.policy)? };
        let mut watch = Watch::start(&self.fs, settings, self.ring, &pool::run_dir())?;
        if let Some(record) = &self.record {
            watch.flusher().record_to(record, self.record_size)?;
        }
        let mounted = watch.mounted();
        let (path, kind) = (mounted.path().display().to_string(), mounted.kind().to_owned());
        let Status { background, limit, .. } = watch.flusher().status();
        tracing::info!(path, kind, policy = self.policy, %background, %limit, "write-back is ordered");
        if kind == "btrfs" {
            tracing::warn!("btrfs writes a page to a new place each time: an order by place has little effect here");
        }
        let mut view = FlusherDisplay::new(&self);
        let begun = Instant::now();
        while !stop.load(Ordering::Relaxed) && self.time.is_none_or(|time| begun.elapsed() < time) {
            watch.step()?;
            view.show(|| watch.status())?;
            std::thread::sleep(watch.pause());
        }
        if self.record.is_some() {
            watch.flusher().end_record()?;
        }
        view.end(&watch.status())?;
        Ok(ExitCode::SUCCESS)
    }
}

/// A line on a terminal, a line now and then elsewhere, or JSON.
struct FlusherDisplay {
    bar: ProgressBar,
    every: Duration,
    last: Instant,
    json: bool,
    on_terminal: bool,
}

impl FlusherDisplay {
    fn new(args: &RunArgs) -> FlusherDisplay {
        let on_terminal = std::io::stderr().is_terminal() && !args.json;
        let bar = if on_terminal { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
        let style = ProgressStyle::with_template("{spinner} {wide_msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        let every = match (args.json, on_terminal) {
            (true, _) => args.every,
            (false, true) => SHOW_EVERY,
            (false, false) => LINE_EVERY,
        };
        FlusherDisplay { bar, every, last: Instant::now(), json: args.json, on_terminal }
    }

    fn show(&mut self, status: impl FnOnce() -> WatchStatus) -> Result<(), output::OutputError> {
        if self.last.elapsed() < self.every {
            return Ok(());
        }
        self.last = Instant::now();
        self.print_status(&status())
    }

    fn print_status(&self, status: &WatchStatus) -> Result<(), output::OutputError> {
        if self.json {
            return output::json_line(status);
        }
        if self.on_terminal {
            self.bar.tick();
            self.bar.set_message(line(status));
        } else {
            report!("{}", line(status));
        }
        Ok(())
    }

    fn end(self, status: &WatchStatus) -> Result<(), output::OutputError> {
        self.bar.finish_and_clear();
        if self.json { output::json_line(status) } else { output::line(&line(status)) }
    }
}

fn line(status: &WatchStatus) -> String {
    let flusher = &status.flusher;
    let mut parts = vec![
        format!("{} dirty in {} files", flusher.dirty, status.files),
        format!("{} written back, {} at a time, {}/s", flusher.flushed, flusher.mean_run(), flusher.flush_rate),
    ];
    if status.lost > 0 {
        parts.push(format!("{} events lost, {} files looked through", status.lost, status.scanned));
    }
    if status.ignored.0 > 0 {
        parts.push(format!("{} not remembered", status.ignored));
    }
    if status.gives_way {
        parts.push("the kernel writes back by itself now".to_owned());
    }
    if flusher.errors > 0 {
        parts.push(format!("{} failed", flusher.errors));
    }
    parts.join("; ")
}
