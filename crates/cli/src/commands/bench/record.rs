//! `umbrella bench record`: requests of a real disk as a trace.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::bail;
use clap::Args;
use umbrella_units::parse_duration;

use crate::commands::block_trace::{self, BUFFER_KIB, Device, Lines, Recording, Tracepoint};
use crate::commands::trace_output::{Existing, Recorded, ending_signals};
use crate::output::reasons;
use crate::text::{count, visible_path};

/// Record the requests to a disk as a trace (shared CSV).
///
/// Reads the kernel's block tracepoints in a tracing instance of its own. Needs root. Ends after --seconds, or with
/// Ctrl-C.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLES:
  umbrella bench record /dev/sda --seconds 3600 -o hour.csv.gz
  umbrella bench record /dev/sda | tee live.csv")]
pub(super) struct BenchRecordArgs {
    /// The disk: a whole block device.
    #[arg(value_name = "DEVICE")]
    device: PathBuf,
    /// End after this time: seconds, or a time such as 10m [default: when interrupted].
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    seconds: Option<Duration>,
    /// The new file, compressed if its name ends with .gz or .zst; `-` is standard output.
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    output: PathBuf,
    /// The event at which a request counts.
    #[arg(long, value_enum, default_value_t = Tracepoint::Queue)]
    event: Tracepoint,
    /// The kernel's buffer for each CPU, in KiB.
    #[arg(long, value_name = "KIB", default_value_t = BUFFER_KIB)]
    buffer_kib: u32,
    /// Replace FILE if it exists.
    #[arg(long)]
    force: bool,
}

/// A number of seconds, or a time with its unit.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().map(Duration::from_secs);
    seconds.or_else(|_| parse_duration(text)).map_err(|error| format!("{error}; or a whole number of seconds"))
}

impl BenchRecordArgs {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let device = Device::find(&self.device)?;
        block_trace::require_root()?;
        let stop = Arc::new(AtomicBool::new(false));
        for signal in ending_signals() {
            signal_hook::flag::register(signal, Arc::clone(&stop))?;
        }
        let existing = if self.force { Existing::Replace } else { Existing::Keep };
        let mut output = Recorded::create(&self.output, existing)?;
        let lines: &mut dyn Lines = &mut output;
        let mut recording = Recording::begin([(device, lines)], self.event, self.buffer_kib)?;
        report!("recording {}; Ctrl-C ends", visible_path(&self.device));
        let started = Instant::now();
        let time_is_up = || self.seconds.is_some_and(|time| started.elapsed() >= time);
        let mut has_gone = false;
        let ended = recording.record_until(|_| {
            has_gone = !device.is_there();
            has_gone || stop.load(Ordering::Relaxed) || time_is_up()
        });
        let total = recording.end();
        let (written, lost) = (total.written.iter().sum::<u64>(), total.lost);
        if has_gone {
            report!("umbrella: {} is gone: the recording ends", visible_path(&self.device));
        }
        if lost > 0 {
            report!("umbrella: the kernel lost {} (a larger buffer: --buffer-kib)", count(lost, "event"));
        }
        let kept = match output.finish() {
            Ok(kept) => kept,
            Err(error) => return Err(ended.err().unwrap_or(error)),
        };
        let recorded = format!("{}: {}", visible_path(&kept.path), count(written.saturating_sub(kept.lost), "record"));
        let Some(error) = ended.err().or(kept.error) else {
            report!("{recorded}");
            return Ok(ExitCode::SUCCESS);
        };
        if kept.path == Path::new("-") {
            return Err(error);
        }
        let missing = if kept.lost > 0 { format!(", {} more did not fit", kept.lost) } else { String::new() };
        bail!("{}; the requests so far are in {recorded}{missing}", reasons(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_takes_seconds_or_a_time() {
        assert_eq!(seconds("90"), Ok(Duration::from_secs(90)));
        assert_eq!(seconds("10m"), Ok(Duration::from_secs(600)));
        let wrong = seconds("soon").unwrap_err();
        assert!(wrong.contains("\"10m\"") && wrong.contains("whole number of seconds"), "{wrong}");
    }
}
