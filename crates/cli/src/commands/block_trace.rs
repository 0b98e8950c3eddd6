//! Requests of real disks, from the kernel's block tracepoints.
//!
//! Steps:
//!
//! 1. Make a tracing instance of its own, so that other users of tracing are not disturbed. Filter the event by device.
//! 2. Read the instance's `trace_pipe` until the recorder has enough.
//! 3. Switch the event off, read the rest, and remove the instance.
//!
//! The instance is removed whatever happens; the next recorder clears away what a killed one left behind. A recording
//! cannot be repeated, so it is kept, whatever goes wrong afterwards.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::ValueEnum;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};
use umbrella_lab::trace::{BlockEvent, CSV_HEADER, lost_events, parse_trace_pipe};
use umbrella_units::Nanos;

use super::trace_output::Recorded;
use crate::text::visible_path;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Tracepoint {
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

/// The kernel's buffer for each CPU that is enough for most disks, in KiB.
pub(super) const BUFFER_KIB: u32 = 4096;

/// How long nothing is looked at but the pipe.
const TIMEOUT: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// How often a disk that is never idle is read before anything else is looked at.
const READS_BETWEEN_LOOKS: usize = 64;

/// Fails for users that may not record.
pub(super) fn require_root() -> anyhow::Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!("recording needs root (the kernel's tracepoints are for root only)");
    }
    Ok(())
}

/// What takes the lines of a recording.
pub(super) trait Lines {
    /// Whole lines.
    fn write_lines(&mut self, lines: &[u8]) -> io::Result<()>;
    /// Makes the written lines visible to readers.
    fn show(&mut self) -> io::Result<()>;
}

impl Lines for Recorded {
    fn write_lines(&mut self, lines: &[u8]) -> io::Result<()> {
        Recorded::write_lines(self, lines)
    }

    fn show(&mut self) -> io::Result<()> {
        Recorded::show(self)
    }
}

/// A whole disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Device {
    major: u32,
    minor: u32,
}

impl Device {
    /// The device number of a device node.
    pub(super) fn find(path: &Path) -> anyhow::Result<Device> {
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
            bail!("{} has no medium: insert one before you record", visible_path(path));
        }
        Ok(device)
    }

    /// Whether it has a medium still.
    pub(super) fn is_there(self) -> bool {
        let size = fs::read_to_string(format!("/sys/dev/block/{}:{}/size", self.major, self.minor));
        size.is_ok_and(|sectors| sectors.trim() != "0")
    }

    /// What the kernel calls it: `sda`.
    pub(super) fn name(self) -> String {
        let entry = fs::canonicalize(format!("/sys/dev/block/{}:{}", self.major, self.minor));
        let name = entry.ok().and_then(|entry| Some(entry.file_name()?.to_string_lossy().into_owned()));
        name.unwrap_or_else(|| format!("{}:{}", self.major, self.minor))
    }

    /// The device number of a whole disk, by the kernel's name.
    pub(super) fn from_kernel_name(name: &str) -> Option<Device> {
        let numbers = fs::read_to_string(Path::new("/sys/class/block").join(name).join("dev")).ok()?;
        let (major, minor) = numbers.trim().split_once(':')?;
        Some(Device { major: major.parse().ok()?, minor: minor.parse().ok()? })
    }

    /// The sector at which a device begins on it: itself, or a partition of it.
    pub(super) fn start_of(self, device: u64) -> Option<u64> {
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        if (major, minor) == (self.major, self.minor) {
            return Some(0);
        }
        let entry = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
        let numbers = fs::read_to_string(entry.parent()?.join("dev")).ok()?;
        let is_mine = entry.join("partition").exists() && numbers.trim() == format!("{}:{}", self.major, self.minor);
        fs::read_to_string(entry.join("start")).ok().filter(|_| is_mine)?.trim().parse().ok()
    }

    /// Whether it has no motor, as the kernel says.
    pub(super) fn is_flash(self) -> bool {
        let rotates = format!("/sys/dev/block/{}:{}/queue/rotational", self.major, self.minor);
        fs::read_to_string(rotates).is_ok_and(|text| text.trim() == "0")
    }

    /// As the kernel numbers it inside (`MKDEV` of include/linux/kdev_t.h).
    fn kernel_number(self) -> u32 {
        self.major << 20 | self.minor
    }
}

const TRACEFS: &str = "/sys/kernel/tracing";

/// Where the kernel's tracing is. It is mounted at its usual place if it is mounted nowhere, as trace-cmd does, and
/// stays.
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

    fn prepare(&self, tracks: &[Track<'_>], event: Tracepoint, buffer_kib: u32) -> anyhow::Result<()> {
        self.set("buffer_size_kb", &buffer_kib.to_string())?;
        self.set("trace_clock", "mono")?;
        let devices: Vec<String> =
            tracks.iter().map(|track| format!("dev == {}", track.device.kernel_number())).collect();
        self.set(&format!("events/block/{}/filter", event.name()), &devices.join(" || "))
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
            report!("umbrella: cannot remove the tracing instance {}: {error}", visible_path(&self.folder));
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

/// Where the requests of a disk go.
struct Track<'a> {
    device: Device,
    lines: &'a mut dyn Lines,
    text: String,
    written: u64,
}

/// What was recorded.
#[derive(Debug)]
pub(super) struct Total {
    /// Requests of each disk.
    pub(super) written: Vec<u64>,
    /// What the kernel lost of all of them.
    pub(super) lost: u64,
}

/// From the pipe's text to the traces'.
pub(super) struct Recording<'a> {
    pipe: File,
    instance: Instance,
    event: Tracepoint,
    tracks: Vec<Track<'a>>,
    unread: Vec<u8>,
    origin: Option<Nanos>,
    lost: u64,
}

impl<'a> Recording<'a> {
    /// Begins to record these disks. All times count from the first request of any disk.
    pub(super) fn begin(
        disks: impl IntoIterator<Item = (Device, &'a mut dyn Lines)>,
        event: Tracepoint,
        buffer_kib: u32,
    ) -> anyhow::Result<Self> {
        let track = |(device, lines)| Track { device, lines, text: String::new(), written: 0 };
        let mut tracks: Vec<Track<'a>> = disks.into_iter().map(track).collect();
        let instance = Instance::create(&tracefs()?)?;
        instance.prepare(&tracks, event, buffer_kib)?;
        let pipe = instance.pipe()?;
        for track in &mut tracks {
            track.lines.write_lines(CSV_HEADER.as_bytes())?;
        }
        instance.switch(event, true)?;
        Ok(Recording { pipe, instance, event, tracks, unread: Vec::new(), origin: None, lost: 0 })
    }

    /// Records until `done` returns true. `done` gets the number of requests of each disk.
    pub(super) fn record_until(&mut self, mut done: impl FnMut(&[u64]) -> bool) -> anyhow::Result<()> {
        while !done(&self.written()) {
            self.wait()?;
            self.drain(READS_BETWEEN_LOOKS)?;
        }
        self.instance.switch(self.event, false)?;
        self.drain(usize::MAX)
    }

    /// Leaves the kernel's tracing as it was.
    pub(super) fn end(self) -> Total {
        Total { written: self.written(), lost: self.lost }
    }

    fn written(&self) -> Vec<u64> {
        self.tracks.iter().map(|track| track.written).collect()
    }

    /// Waits until there is something to read, but not for long.
    fn wait(&self) -> anyhow::Result<()> {
        match poll(&mut [PollFd::new(&self.pipe, PollFlags::IN)], Some(&TIMEOUT)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error).context("waiting for the kernel's trace"),
        }
    }

    /// Reads the available events, in at most `reads` reads.
    fn drain(&mut self, reads: usize) -> anyhow::Result<()> {
        let mut buffer = vec![0; 64 << 10];
        for _ in 0..reads {
            match self.pipe.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => self.parse_lines(buffer.get(..count).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("reading the kernel's trace"),
            }
            for track in &mut self.tracks {
                track.lines.write_lines(track.text.as_bytes()).context("writing the trace")?;
                track.text.clear();
            }
        }
        self.tracks.iter_mut().try_for_each(|track| track.lines.show()).context("writing the trace")
    }

    fn parse_lines(&mut self, text: &[u8]) {
        self.unread.extend_from_slice(text);
        let unread = std::mem::take(&mut self.unread);
        let mut lines = unread.split(|byte| *byte == b'\n').peekable();
        while let Some(line) = lines.next() {
            if lines.peek().is_none() {
                self.unread = line.to_vec();
            } else if let Some(event) = parse_trace_pipe(line) {
                self.count_event(&event);
            } else {
                self.lost += lost_events(line).unwrap_or(0);
            }
        }
    }

    fn count_event(&mut self, event: &BlockEvent) {
        let is_of = |track: &&mut Track<'_>| event.device == (track.device.major, track.device.minor);
        let Some(track) = self.tracks.iter_mut().find(is_of) else { return };
        let origin = *self.origin.get_or_insert(event.time);
        track.text.push_str(&event.csv_line(origin));
        track.written += 1;
    }
}
