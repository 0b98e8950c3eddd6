//! The kernel's write-back settings, and the amount of dirty data.
//!
//! Where the kernel has a limit of dirty pages for each device (Linux 6.3 and later), the allowance belongs to the
//! device alone. Writes to other devices do not count then. Elsewhere it belongs to the whole machine. All settings are
//! put back however the benchmark ends. A shell is given the commands for that, waits for the end of its input, which
//! comes with the end of the benchmark, and runs them.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::mount::MsFlags;
use rustix::fs::FlockOperation;
use umbrella_units::ByteSize;

const VM: &str = "/proc/sys/vm";
const DEBUG: &str = "/sys/kernel/debug";
/// One benchmark at a time: a second one would take the settings of the first for those of the machine.
const LOCK: &str = "/run/lock/umbrella-bench-live";
/// What a device has by itself.
const NO_LIMIT: [(&str, &str); 3] = [("strict_limit", "0"), ("min_ratio", "0"), ("max_ratio", "100")];
/// Percent of the machine's threshold that each of two devices has for certain.
const SHARE: &str = "40";
/// Interval between two looks at the amount of dirty data.
const SAMPLE: Duration = Duration::from_millis(20);

/// Background threshold and limit in percent. A device's threshold is in the same proportion to its limit as the
/// machine's.
pub(crate) const BACKGROUND: u64 = 10;
pub(crate) const FOREGROUND: u64 = 40;
/// Factor for the machine's limits where a policy orders write-back and devices have no limits of their own. It keeps
/// the kernel out of the way.
const OUT_OF_THE_WAY: u64 = 2;

/// What orders write-back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OrderedBy {
    Kernel,
    Policy,
}

/// When the kernel writes back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WriteBackSettings {
    /// On the first device, and on the second if there is one.
    pub(crate) ordered_by: [OrderedBy; 2],
    /// No more may be dirty of a device; a policy keeps to it by itself.
    pub(crate) limit: ByteSize,
    /// How old a dirty page may get.
    pub(crate) expire: Duration,
    /// Interval between two searches for old pages.
    pub(crate) every: Duration,
}

/// Holds the machine's own settings, and puts them back when dropped, or when this process is gone.
pub(crate) struct Keeper {
    shell: Child,
    /// Devices whose limits the shell will lift.
    devices: Mutex<HashSet<PathBuf>>,
    _lock: File,
}

impl Keeper {
    /// Fails while another benchmark holds them.
    pub(crate) fn new() -> Result<Self> {
        let lock = File::create(LOCK).with_context(|| format!("cannot create {LOCK}"))?;
        let locked = rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive);
        ensure!(locked.is_ok(), "another benchmark has changed the kernel's write-back settings: wait for its end");
        let shell = Command::new("sh")
            .args([
                "-c",
                "trap '' INT TERM HUP; all=; while read -r line; do all=\"$all$line\n\"; done; printf \"$all\" | sh",
            ])
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .context("cannot start the shell that puts settings back")?;
        let keeper = Self { shell, devices: Mutex::default(), _lock: lock };
        for threshold in ["dirty_background", "dirty"] {
            let bytes = setting(&format!("{threshold}_bytes"))?;
            // One of the two is in force, and the other is 0.
            let (name, value) =
                if bytes == "0" { ("ratio", setting(&format!("{threshold}_ratio"))?) } else { ("bytes", bytes) };
            keeper.at_the_end(&format!("echo {value} >{VM}/{threshold}_{name}"))?;
        }
        for name in ["dirty_expire_centisecs", "dirty_writeback_centisecs"] {
            keeper.at_the_end(&format!("echo {} >{VM}/{name}", setting(name)?))?;
        }
        Ok(keeper)
    }

    fn at_the_end(&self, command: &str) -> Result<()> {
        let mut shell = self.shell.stdin.as_ref().context("the shell has no input")?;
        writeln!(shell, "{command}").context("the shell that puts settings back is gone")
    }

    /// Uses these settings from now on, for what is on these devices.
    pub(crate) fn set(&self, settings: &WriteBackSettings, devices: &[PathBuf]) -> Result<()> {
        let centiseconds = |time: Duration| (time.as_millis() / 10).max(1).to_string();
        let own_limits = devices.iter().all(|device| bdi(device).join("max_bytes").exists());
        if own_limits {
            // Of earlier runs: what is promised to one device is not there for another.
            for device in self.devices.lock().unwrap_or_else(PoisonError::into_inner).iter() {
                NO_LIMIT.iter().try_for_each(|(name, value)| write(&bdi(device).join(name), value))?;
            }
            write_vm("dirty_ratio", &FOREGROUND.to_string())?;
            write_vm("dirty_background_ratio", &BACKGROUND.to_string())?;
            for (device, ordered_by) in devices.iter().zip(settings.ordered_by) {
                let limit = (ordered_by == OrderedBy::Kernel).then_some(settings.limit);
                self.limit(device, limit)?;
            }
        } else {
            let by_policy = settings.ordered_by.iter().take(devices.len()).any(|by| *by == OrderedBy::Policy);
            let times = if by_policy { 2 * OUT_OF_THE_WAY } else { 1 };
            let foreground = settings.limit.0 * devices.len() as u64 * times;
            write_vm("dirty_bytes", &foreground.to_string())?;
            let background = if times == 1 { foreground * BACKGROUND / FOREGROUND } else { foreground / 2 };
            write_vm("dirty_background_bytes", &background.to_string())?;
        }
        write_vm("dirty_expire_centisecs", &centiseconds(settings.expire))?;
        write_vm("dirty_writeback_centisecs", &centiseconds(settings.every))
    }

    /// Lets no more be dirty that belongs on the device.
    fn limit(&self, device: &Path, limit: Option<ByteSize>) -> Result<()> {
        let bdi = bdi(device);
        // A device keeps its limits when something else is attached to it.
        if self.devices.lock().unwrap_or_else(PoisonError::into_inner).insert(device.to_owned()) {
            for (name, value) in NO_LIMIT {
                self.at_the_end(&format!("echo {value} >{}", bdi.join(name).display()))?;
            }
        }
        let Some(limit) = limit else {
            // Else a device that has written little gets a small share of the machine's threshold, and the kernel keeps
            // it to that.
            return write(&bdi.join("min_ratio"), SHARE);
        };
        let bytes = limit.0.to_string();
        // All of it from the beginning, not a share that grows with what the device has written.
        write(&bdi.join("max_bytes"), &bytes)?;
        write(&bdi.join("min_bytes"), &bytes)?;
        write(&bdi.join("strict_limit"), "1")
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        if !self.shell.wait().is_ok_and(|status| status.success()) {
            eprintln!("the kernel's write-back settings could not be put back: see {VM}/dirty_*");
        }
    }
}

/// Where the kernel keeps what it knows of write-back to a device.
fn bdi(device: &Path) -> PathBuf {
    Path::new("/sys/block").join(device.file_name().unwrap_or_default()).join("bdi")
}

fn write(file: &Path, value: &str) -> Result<()> {
    fs::write(file, value).with_context(|| format!("cannot write {value} to {}", file.display()))
}

fn write_vm(name: &str, value: &str) -> Result<()> {
    write(&Path::new(VM).join(name), value)
}

fn setting(name: &str) -> Result<String> {
    let file = format!("{VM}/{name}");
    let text = fs::read_to_string(&file).with_context(|| format!("cannot read {file}"))?;
    Ok(text.trim().to_owned())
}

/// Mounts debugfs, if it is not mounted, for this process and its children: it has each device's amount of dirty data.
pub(crate) fn show_devices() {
    if !Path::new(DEBUG).join("bdi").exists() {
        // Without it, the dirty data of the whole machine is counted.
        let _ = nix::mount::mount(Some("debugfs"), DEBUG, Some("debugfs"), MsFlags::empty(), None::<&str>);
    }
}

/// Samples how much data is dirty or on its way to a disk: that of the devices where debugfs has it, else that of the
/// whole machine.
pub(crate) struct DirtyWatch {
    stop: Arc<AtomicBool>,
    most: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl DirtyWatch {
    pub(crate) fn start(devices: &[PathBuf]) -> Self {
        let (stop, most) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, seen) = (Arc::clone(&stop), Arc::clone(&most));
        let files: Vec<PathBuf> = devices.iter().map(|device| dirty_of(device)).collect();
        let thread = thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                let dirty_kib =
                    |file: &PathBuf| sum_of(&fs::read_to_string(file).ok()?, ["BdiWriteback:", "BdiReclaimable:"]);
                let of_devices = files.iter().map(dirty_kib).sum::<Option<u64>>();
                seen.fetch_max(of_devices.unwrap_or_else(machine_dirty_kib), Ordering::Relaxed);
                thread::sleep(SAMPLE);
            }
        });
        Self { stop, most, thread: Some(thread) }
    }

    /// The most that was seen.
    pub(crate) fn most(&self) -> ByteSize {
        ByteSize(self.most.load(Ordering::Relaxed) << 10)
    }
}

impl Drop for DirtyWatch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It cannot fail.
            let _ = thread.join();
        }
    }
}

/// The file in debugfs with a device's amount of dirty data.
fn dirty_of(device: &Path) -> PathBuf {
    let number = Path::new("/sys/block").join(device.file_name().unwrap_or_default()).join("dev");
    let number = fs::read_to_string(number).unwrap_or_default();
    Path::new(DEBUG).join("bdi").join(number.trim()).join("stats")
}

fn machine_dirty_kib() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    sum_of(&text, ["Dirty:", "Writeback:"]).unwrap_or_default()
}

/// Lines of both are `name:  number kB`.
fn sum_of(text: &str, names: [&str; 2]) -> Option<u64> {
    let value = |name| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    Some(value(names[0])? + value(names[1])?)
}
