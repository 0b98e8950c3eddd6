//! `umbrella bench record`: requests of a real disk, from the kernel's block tracepoints.
//!
//! Steps: an own tracing instance (so that nobody else's tracing is disturbed), the event filtered by device, its `trace_pipe` read
//! until time is up or a signal comes; then the event is switched off, what is left is read, and the instance removed. It is
//! removed whatever happens; what a killed recorder left behind, the next one clears away. A recording cannot be repeated: what was
//! recorded is kept, whatever goes wrong afterwards.

use std::cell::Cell;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};
use umbrella_lab::trace::{BlockEvent, CSV_HEADER, lost_events, parse_trace_pipe};
use umbrella_units::{Nanos, parse_duration};

use crate::commands::trace_output::{Existing, Recorded, ending_signals};
use crate::output::reasons;
use crate::text::{count, visible_path};

/// Record the requests that a disk gets, as a trace (shared CSV).
///
/// Reads the kernel's block tracepoints, in an instance of its own; needs root. Ends after --seconds, or with Ctrl-C.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLES:
  umbrella bench record /dev/sda --seconds 3600 -o hour.csv.gz
  umbrella bench record /dev/sda | tee live.csv")]
pub(super) struct RecordArgs {
    /// The disk: a whole block device.
    #[arg(value_name = "DEVICE")]
    device: PathBuf,
    /// End after this time: seconds, or a time such as 10m [default: when interrupted].
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    seconds: Option<Duration>,
    /// The new file, compressed if its name ends with .gz or .zst; `-` is standard output.
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    output: PathBuf,
    /// When a request counts.
    #[arg(long, value_enum, default_value_t = Tracepoint::Queue)]
    event: Tracepoint,
    /// The kernel's buffer for each CPU, in KiB.
    #[arg(long, value_name = "KIB", default_value_t = 4096)]
    buffer_kib: u32,
    /// Replace FILE if it exists.
    #[arg(long)]
    force: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Tracepoint {
    /// It is asked for (`block_bio_queue`).
    Queue,
    /// It goes to the disk, merged and sorted by the scheduler (`block_rq_issue`).
    Issue,
}

impl Tracepoint {
    fn name(self) -> &'static str {
        match self {
            Tracepoint::Queue => "block_bio_queue",
            Tracepoint::Issue => "block_rq_issue",
        }
    }
}

/// How long nothing is looked at but the pipe.
const PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// How often a disk that is never idle is read before anything else is looked at.
const READS_BETWEEN_LOOKS: usize = 64;

/// A number of seconds, or a time with its unit.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().map(Duration::from_secs);
    seconds.or_else(|_| parse_duration(text)).map_err(|error| format!("{error}; or a whole number of seconds"))
}

impl RecordArgs {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let device = Device::find(&self.device)?;
        if !rustix::process::geteuid().is_root() {
            bail!("recording needs root (the kernel's tracepoints are for root only)");
        }
        let stop = Arc::new(AtomicBool::new(false));
        for signal in ending_signals() {
            signal_hook::flag::register(signal, Arc::clone(&stop))?;
        }
        let existing = if self.force { Existing::Replace } else { Existing::Keep };
        let mut output = Recorded::create(&self.output, existing)?;
        let instance = Instance::create(&tracefs()?)?;
        instance.prepare(device, self.event, self.buffer_kib)?;
        let mut recording = Recording::new(instance.pipe()?, &mut output, device)?;
        instance.switch(self.event, true)?;
        tell!("recording {}; Ctrl-C ends", visible_path(&self.device));
        let started = Instant::now();
        let time_is_up = || self.seconds.is_some_and(|time| started.elapsed() >= time);
        let has_gone = Cell::new(false);
        let done = || {
            has_gone.set(!device.is_there());
            has_gone.get() || stop.load(Ordering::Relaxed) || time_is_up()
        };
        let ended = recording.until(done).and_then(|()| {
            instance.switch(self.event, false)?;
            recording.drain(usize::MAX)
        });
        let (written, lost) = (recording.written, recording.lost);
        drop(recording);
        drop(instance);
        if has_gone.get() {
            tell!("umbrella: {} is gone: the recording ends", visible_path(&self.device));
        }
        if lost > 0 {
            tell!("umbrella: the kernel lost {} (a larger buffer: --buffer-kib)", count(lost, "event"));
        }
        let kept = match output.finish() {
            Ok(kept) => kept,
            Err(error) => return Err(ended.err().unwrap_or(error)),
        };
        let recorded = format!("{}: {}", visible_path(&kept.path), count(written.saturating_sub(kept.lost), "record"));
        let Some(error) = ended.err().or(kept.error) else {
            tell!("{recorded}");
            return Ok(ExitCode::SUCCESS);
        };
        if kept.path == Path::new("-") {
            return Err(error);
        }
        let missing = if kept.lost > 0 { format!(", {} more did not fit", kept.lost) } else { String::new() };
        bail!("{}; the requests so far are in {recorded}{missing}", reasons(&error))
    }
}

/// A whole disk.
#[derive(Debug, Clone, Copy)]
struct Device {
    major: u32,
    minor: u32,
}

impl Device {
    fn find(path: &Path) -> anyhow::Result<Device> {
        let found = fs::metadata(path).with_context(|| visible_path(path))?;
        if !found.file_type().is_block_device() {
            bail!("{} is not a block device", visible_path(path));
        }
        let (major, minor) = (rustix::fs::major(found.rdev()), rustix::fs::minor(found.rdev()));
        let entry = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
        if entry.join("partition").exists() {
            let disk = fs::canonicalize(&entry).ok();
            let disk =
                disk.as_deref().and_then(Path::parent).and_then(Path::file_name).map(|name| name.to_string_lossy());
            bail!("{} is a partition; record the whole disk, /dev/{}", visible_path(path), disk.unwrap_or_default());
        }
        let device = Device { major, minor };
        if !device.is_there() {
            bail!("{} has no medium: nothing can be recorded", visible_path(path));
        }
        Ok(device)
    }

    /// Whether it has a medium still.
    fn is_there(self) -> bool {
        let size = fs::read_to_string(format!("/sys/dev/block/{}:{}/size", self.major, self.minor));
        size.is_ok_and(|sectors| sectors.trim() != "0")
    }

    /// As the kernel numbers it inside (`MKDEV` of include/linux/kdev_t.h).
    fn kernel_number(self) -> u32 {
        self.major << 20 | self.minor
    }
}

const TRACEFS: &str = "/sys/kernel/tracing";

/// Where the kernel's tracing is. It is mounted at its usual place if it is mounted nowhere, as trace-cmd does, and stays.
fn tracefs() -> anyhow::Result<PathBuf> {
    let places = [Path::new(TRACEFS), Path::new("/sys/kernel/debug/tracing")];
    let find = || places.into_iter().find(|place| place.join("instances").is_dir());
    if find().is_none() {
        mount_tracefs()?;
    }
    let place = find().context("the kernel's tracing has no instances")?;
    if !place.join("events/block").is_dir() {
        bail!("the kernel has no block tracepoints (built without CONFIG_BLK_DEV_IO_TRACE)");
    }
    Ok(place.to_owned())
}

fn mount_tracefs() -> anyhow::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    match mount("tracefs", TRACEFS, "tracefs", flags, None) {
        // Busy: another recorder was faster.
        Ok(()) | Err(Errno::BUSY) => Ok(()),
        Err(error) => Err(error).context(format!("cannot mount the kernel's tracing at {TRACEFS}")),
    }
}

const PREFIX: &str = "umbrella-";

/// A tracing instance of our own, removed when it is dropped.
#[derive(Debug)]
struct Instance {
    folder: PathBuf,
}

impl Instance {
    fn create(tracefs: &Path) -> anyhow::Result<Instance> {
        let instances = tracefs.join("instances");
        remove_left_over(&instances);
        let folder = instances.join(format!("{PREFIX}{}", std::process::id()));
        fs::create_dir(&folder)
            .with_context(|| format!("cannot create the tracing instance {}", visible_path(&folder)))?;
        Ok(Instance { folder })
    }

    fn set(&self, file: &str, value: &str) -> anyhow::Result<()> {
        let path = self.folder.join(file);
        // Opened, never created or cut: these are no ordinary files.
        let written = OpenOptions::new().write(true).open(&path).and_then(|mut file| file.write_all(value.as_bytes()));
        written.with_context(|| format!("cannot write {value:?} to {}", visible_path(&path)))
    }

    fn prepare(&self, device: Device, event: Tracepoint, buffer_kib: u32) -> anyhow::Result<()> {
        self.set("buffer_size_kb", &buffer_kib.to_string())?;
        self.set("trace_clock", "mono")?;
        self.set(&format!("events/block/{}/filter", event.name()), &format!("dev == {}", device.kernel_number()))
    }

    fn switch(&self, event: Tracepoint, on: bool) -> anyhow::Result<()> {
        self.set(&format!("events/block/{}/enable", event.name()), if on { "1" } else { "0" })
    }

    fn pipe(&self) -> anyhow::Result<File> {
        let path = self.folder.join("trace_pipe");
        let opened = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&path);
        opened.with_context(|| format!("cannot open {}", visible_path(&path)))
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = self.set("events/enable", "0");
        if let Err(error) = fs::remove_dir(&self.folder) {
            tell!("umbrella: cannot remove the tracing instance {}: {error}", visible_path(&self.folder));
        }
    }
}

/// Removes the instances of recorders that are no more.
fn remove_left_over(instances: &Path) {
    let Ok(entries) = fs::read_dir(instances) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(PREFIX)).and_then(|pid| pid.parse::<u32>().ok());
        // One with our own number is of a recorder before us, too.
        if pid.is_some_and(|pid| pid == std::process::id() || !Path::new(&format!("/proc/{pid}")).exists()) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// From the pipe's text to the trace's.
struct Recording<'a> {
    pipe: File,
    output: &'a mut Recorded,
    device: Device,
    unread: Vec<u8>,
    text: String,
    origin: Option<Nanos>,
    written: u64,
    lost: u64,
}

impl<'a> Recording<'a> {
    fn new(pipe: File, output: &'a mut Recorded, device: Device) -> anyhow::Result<Self> {
        output.write_lines(CSV_HEADER.as_bytes())?;
        Ok(Recording {
            pipe,
            output,
            device,
            unread: Vec::new(),
            text: String::new(),
            origin: None,
            written: 0,
            lost: 0,
        })
    }

    /// Records until it is `done`.
    fn until(&mut self, done: impl Fn() -> bool) -> anyhow::Result<()> {
        while !done() {
            self.wait()?;
            self.drain(READS_BETWEEN_LOOKS)?;
        }
        Ok(())
    }

    /// Waits until there is something to read, but not for long.
    fn wait(&self) -> anyhow::Result<()> {
        match poll(&mut [PollFd::new(&self.pipe, PollFlags::IN)], Some(&PATIENCE)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error).context("waiting for the kernel's trace"),
        }
    }

    /// Takes what is there, in at most so many reads.
    fn drain(&mut self, reads: usize) -> anyhow::Result<()> {
        let mut buffer = vec![0; 64 << 10];
        for _ in 0..reads {
            match self.pipe.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => self.take(buffer.get(..count).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("reading the kernel's trace"),
            }
            self.output.write_lines(self.text.as_bytes()).context("writing the trace")?;
            self.text.clear();
        }
        self.output.show().context("writing the trace")
    }

    fn take(&mut self, text: &[u8]) {
        self.unread.extend_from_slice(text);
        let unread = std::mem::take(&mut self.unread);
        let mut lines = unread.split(|byte| *byte == b'\n').peekable();
        while let Some(line) = lines.next() {
            if lines.peek().is_none() {
                self.unread = line.to_vec();
            } else if let Some(event) = parse_trace_pipe(line) {
                self.note(&event);
            } else {
                self.lost += lost_events(line).unwrap_or(0);
            }
        }
    }

    fn note(&mut self, event: &BlockEvent) {
        if event.device != (self.device.major, self.device.minor) {
            return;
        }
        let origin = *self.origin.get_or_insert(event.time);
        self.text.push_str(&event.csv_line(origin));
        self.written += 1;
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
