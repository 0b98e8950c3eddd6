//! The kernel's write-back settings, and how much is dirty.
//!
//! The settings belong to the whole machine, so they are put back however the benchmark ends: a shell waits for the end of its input,
//! which comes with the benchmark's own end, and writes back what it was given at the start.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::fs::FlockOperation;
use umbrella_units::ByteSize;

const VM: &str = "/proc/sys/vm";
/// One benchmark at a time: a second one would take the settings of the first for those of the machine.
const LOCK: &str = "/run/lock/umbrella-bench-live";
/// How often it is looked how much is dirty.
const SAMPLE: Duration = Duration::from_millis(20);

/// When the kernel writes back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WriteBackSettings {
    /// Above this it writes in the background.
    pub(crate) background: ByteSize,
    /// Above this writers wait.
    pub(crate) foreground: ByteSize,
    /// How old a dirty page may get.
    pub(crate) expire: Duration,
    /// How often it is looked for old ones.
    pub(crate) every: Duration,
}

/// Holds the machine's own settings, and puts them back when dropped, or when this process is gone.
pub(crate) struct Keeper {
    shell: Child,
    _lock: File,
}

impl Keeper {
    /// Fails while another benchmark holds them.
    pub(crate) fn new() -> Result<Self> {
        let lock = File::create(LOCK).with_context(|| format!("cannot create {LOCK}"))?;
        let locked = rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive);
        ensure!(locked.is_ok(), "another benchmark has changed the kernel's write-back settings: wait for its end");
        let mut script = "trap '' INT TERM HUP; cat >/dev/null".to_owned();
        for threshold in ["dirty_background", "dirty"] {
            let bytes = setting(&format!("{threshold}_bytes"))?;
            // One of the two is in force, and the other is 0.
            let (name, value) =
                if bytes == "0" { ("ratio", setting(&format!("{threshold}_ratio"))?) } else { ("bytes", bytes) };
            script = format!("{script}; echo {value} >{VM}/{threshold}_{name}");
        }
        for name in ["dirty_expire_centisecs", "dirty_writeback_centisecs"] {
            script = format!("{script}; echo {} >{VM}/{name}", setting(name)?);
        }
        let shell = Command::new("sh")
            .args(["-c", &script])
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .context("cannot start the shell that puts settings back")?;
        Ok(Self { shell, _lock: lock })
    }

    /// Uses these settings from now on.
    #[expect(clippy::unused_self, reason = "nothing may be set that nobody puts back")]
    pub(crate) fn set(&self, settings: &WriteBackSettings) -> Result<()> {
        let centiseconds = |time: Duration| (time.as_millis() / 10).max(1).to_string();
        for (name, value) in [
            ("dirty_bytes", settings.foreground.0.to_string()),
            ("dirty_background_bytes", settings.background.0.to_string()),
            ("dirty_expire_centisecs", centiseconds(settings.expire)),
            ("dirty_writeback_centisecs", centiseconds(settings.every)),
        ] {
            let file = format!("{VM}/{name}");
            fs::write(&file, value).with_context(|| format!("cannot write {file}"))?;
        }
        Ok(())
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

fn setting(name: &str) -> Result<String> {
    let file = format!("{VM}/{name}");
    let text = fs::read_to_string(&file).with_context(|| format!("cannot read {file}"))?;
    Ok(text.trim().to_owned())
}

/// Looks again and again how much is dirty or on its way to a disk, of this whole machine.
pub(crate) struct DirtyWatch {
    stop: Arc<AtomicBool>,
    most: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl DirtyWatch {
    pub(crate) fn start() -> Self {
        let (stop, most) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, seen) = (Arc::clone(&stop), Arc::clone(&most));
        let thread = thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                seen.fetch_max(dirty_pages(), Ordering::Relaxed);
                thread::sleep(SAMPLE);
            }
        });
        Self { stop, most, thread: Some(thread) }
    }

    /// The most that was seen.
    pub(crate) fn most(&self) -> ByteSize {
        ByteSize(self.most.load(Ordering::Relaxed) * umbrella_units::PAGE_BYTES)
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

fn dirty_pages() -> u64 {
    let text = fs::read_to_string("/proc/vmstat").unwrap_or_default();
    let of =
        |line: &str| line.strip_prefix("nr_dirty ").or_else(|| line.strip_prefix("nr_writeback "))?.parse::<u64>().ok();
    text.lines().filter_map(of).sum::<u64>()
}
