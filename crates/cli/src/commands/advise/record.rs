//! Records the requests of disks for an advice: as many as can be simulated stay in memory; `--save` keeps all of them
//! in files.

use std::ffi::OsString;
use std::io::{self, Cursor, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use indicatif::{ProgressBar, ProgressStyle};
use umbrella_lab::advice::Recording;
use umbrella_lab::trace::{Format, OpenOptions, from_reader};
use umbrella_units::format_duration;

use crate::commands::block_trace::{self, BUFFER_KIB, Device, Lines, Tracepoint};
use crate::commands::trace_output::{Existing, Recorded, ending_signals};
use crate::text::{count, visible_path};

/// How often a line tells how far it is, where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(60);

/// What is recorded, and for how long.
#[derive(Debug)]
pub(super) struct Order<'a> {
    /// The disks.
    pub(super) devices: &'a [Device],
    /// How long at most.
    pub(super) time: Duration,
    /// Most requests of each disk to keep in memory. Without a file the recording ends when all disks have this number.
    pub(super) most: u64,
    /// The file of all requests; of several disks, each gets its own file.
    pub(super) save: Option<&'a Path>,
    /// What the disks are called together.
    pub(super) name: &'a str,
}

/// The requests of a disk.
#[derive(Debug)]
struct RequestBuffer {
    lines: Vec<u8>,
    /// Lines that still fit, the head line among them.
    room: u64,
    file: Option<Recorded>,
}

impl Lines for RequestBuffer {
    fn write_lines(&mut self, lines: &[u8]) -> io::Result<()> {
        for line in lines.split_inclusive(|byte| *byte == b'\n').take(usize::try_from(self.room).unwrap_or(usize::MAX))
        {
            self.lines.extend_from_slice(line);
            self.room -= 1;
        }
        self.file.as_mut().map_or(Ok(()), |file| file.write_lines(lines))
    }

    fn show(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The file of a disk: of several disks, each has its name in it.
fn file_of(path: &Path, disk: Option<&str>) -> PathBuf {
    let (Some(disk), Some(name)) = (disk, path.file_name().and_then(|name| name.to_str())) else {
        return path.to_owned();
    };
    let (stem, end) = name.split_once('.').map_or((name, String::new()), |(stem, end)| (stem, format!(".{end}")));
    path.with_file_name(OsString::from(format!("{stem}-{disk}{end}")))
}

/// Records until time is up, everything fits no more, a disk is gone, or Ctrl-C. Returns the beginning of what each
/// disk was asked for.
pub(super) fn record(order: &Order<'_>) -> anyhow::Result<Vec<Recording>> {
    let &Order { devices, time, most, save, name } = order;
    let names: Vec<String> = devices.iter().map(|device| device.name()).collect();
    let mut kept = Vec::new();
    for disk in &names {
        let path = save.map(|path| file_of(path, (devices.len() > 1).then_some(disk)));
        let file = path.map(|path| Recorded::create(&path, Existing::Keep)).transpose()?;
        // One more shows that the recording continues.
        kept.push(RequestBuffer { lines: Vec::new(), room: most.saturating_add(2), file });
    }
    let ended = watch(devices, time, save.is_none().then_some(most), name, &mut kept);
    let mut texts = Vec::new();
    for (disk, kept) in names.iter().zip(kept) {
        if let Some(file) = kept.file {
            let file = file.finish()?;
            report!("{}: the requests of {disk}", visible_path(&file.path));
            if let Some(error) = file.error {
                return Err(error);
            }
        }
        texts.push(kept.lines);
    }
    ended?;
    let each = names.iter().zip(texts);
    each.map(|(disk, text)| read(disk, text, most).with_context(|| format!("the recording of {disk}"))).collect()
}

fn read(disk: &str, lines: Vec<u8>, most: u64) -> anyhow::Result<Recording> {
    let mut reader =
        from_reader(Cursor::new(lines), &OpenOptions { format: Some(Format::Csv), ..OpenOptions::default() })?;
    Ok(Recording::read(disk, &mut reader, usize::try_from(most).unwrap_or(usize::MAX))?)
}

fn watch(
    devices: &[Device],
    time: Duration,
    most: Option<u64>,
    name: &str,
    kept: &mut [RequestBuffer],
) -> anyhow::Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    let mut signals = Vec::new();
    for signal in ending_signals() {
        signals.push(signal_hook::flag::register(signal, Arc::clone(&stop))?);
    }
    let lines = kept.iter_mut().map(|kept| kept as &mut dyn Lines);
    let mut recording =
        block_trace::Recording::begin(devices.iter().copied().zip(lines), Tracepoint::Queue, BUFFER_KIB)?;
    report!(
        "recording {name} for {}; Ctrl-C ends the recording early, and the advice uses what was recorded",
        format_duration(time)
    );
    let bar = bar(time);
    let (started, mut last_line) = (Instant::now(), Instant::now());
    let mut why = None;
    let ended = recording.record_until(|written| {
        let requests = written.iter().sum();
        bar.set_position(started.elapsed().as_secs());
        bar.set_message(count(requests, "request"));
        if last_line.elapsed() >= LINE_EVERY {
            last_line = Instant::now();
            tracing::info!("{} after {}", count(requests, "request"), format_duration(rounded(started.elapsed())));
        }
        why = if devices.iter().any(|device| !device.is_there()) {
            Some("a disk is gone: the recording ends".to_owned())
        } else if stop.load(Ordering::Relaxed) {
            Some(format!("interrupted after {}", format_duration(rounded(started.elapsed()))))
        } else if most.is_some_and(|most| written.iter().all(|written| *written > most)) {
            Some(
                "enough requests for the simulation: the recording ends (--requests N records more, --save FILE the \
                whole time)"
                    .to_owned(),
            )
        } else {
            None
        };
        why.is_some() || started.elapsed() >= time
    });
    bar.finish_and_clear();
    let total = recording.end();
    for signal in signals {
        signal_hook::low_level::unregister(signal);
    }
    if let Some(why) = why {
        report!("umbrella: {why}");
    }
    if total.lost > 0 {
        report!(
            "umbrella: the kernel lost {}: the disk got more requests than the simulation has",
            count(total.lost, "event")
        );
    }
    ended
}

fn rounded(time: Duration) -> Duration {
    Duration::from_secs(time.as_secs())
}

/// A bar on a terminal, over the time.
fn bar(time: Duration) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{wide_bar} {elapsed} of {len} s  {msg}");
    ProgressBar::new(time.as_secs()).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// Refuses a recording in which nothing happened.
pub(super) fn refuse_empty(recording: &Recording) -> anyhow::Result<()> {
    if recording.has_requests() {
        return Ok(());
    }
    bail!(
        "{}: nothing was read or written while it was recorded (record while the disk is in use; what programs read \
         from memory does not reach it)",
        recording.name
    )
}

#[cfg(test)]
mod tests {
    use umbrella_lab::trace::CSV_HEADER;

    use super::*;

    #[test]
    fn of_several_disks_each_has_a_file_with_its_name() {
        let of = |path: &str, disk| file_of(Path::new(path), disk).to_string_lossy().into_owned();
        assert_eq!(of("/a/day.csv.gz", None), "/a/day.csv.gz");
        assert_eq!(of("/a/day.csv.gz", Some("sdb")), "/a/day-sdb.csv.gz");
        assert_eq!(of("day", Some("sdb")), "day-sdb");
    }

    #[test]
    fn a_recording_without_a_request_is_refused() {
        let recording = read("sdb", CSV_HEADER.as_bytes().to_vec(), 10).expect("it can be read");
        let refused = refuse_empty(&recording).unwrap_err().to_string();
        assert!(refused.starts_with("sdb: nothing was read or written"), "{refused}");
    }

    #[test]
    fn no_more_stays_in_memory_than_fits() {
        let mut kept = RequestBuffer { lines: Vec::new(), room: 2, file: None };
        kept.write_lines(b"1\n2\n3\n").unwrap();
        kept.write_lines(b"4\n").unwrap();
        assert_eq!((kept.lines, kept.room), (b"1\n2\n".to_vec(), 0));
    }
}
