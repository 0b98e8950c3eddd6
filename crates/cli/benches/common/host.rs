//! The machine: programs, caches, signals, deadlines.
//!
//! One guard thread handles Ctrl-C and deadlines. The first Ctrl-C ends the measured program and lets the main thread
//! unwind, which unmounts everything. A second one, or a deadline, also kills the daemons of mounts and disks, so that
//! calls that hang in them return.

use std::fs;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::mount::{MntFlags, MsFlags, umount2};
use nix::sched::CloneFlags;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

static STOP: AtomicBool = AtomicBool::new(false);
/// Milliseconds since [`epoch`]; 0: none.
static DEADLINE: AtomicU64 = AtomicU64::new(0);
static EXPIRED: AtomicBool = AtomicBool::new(false);
static PROGRAM: Mutex<Option<OwnedFd>> = Mutex::new(None);
/// Daemons that a deadline ends, by process id.
static DAEMONS: Mutex<Vec<(u32, OwnedFd)>> = Mutex::new(Vec::new());

/// How long the last users of a mount get to let go of it.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(10);

fn epoch() -> Instant {
    static EPOCH: OnceLock<Instant> = OnceLock::new();
    *EPOCH.get_or_init(Instant::now)
}

/// Fails with the names of all packages that are missing. Given: programs, each with its Debian package.
pub(crate) fn require_tools(needed: &[(&str, &str)]) -> Result<()> {
    ensure!(rustix::process::geteuid().is_root(), "needs root: it mounts disk images");
    let missing: Vec<&str> =
        needed.iter().filter(|(program, _)| !is_installed(program)).map(|(_, package)| *package).collect();
    ensure!(missing.is_empty(), "missing programs; install them: apt-get install {}", missing.join(" "));
    Ok(())
}

fn is_installed(program: &str) -> bool {
    ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"]
        .iter()
        .any(|dir| Path::new(dir).join(program).exists())
}

/// From here on, mounts are seen by this process and its children only, and end with them.
pub(crate) fn enter_private_mounts() -> Result<()> {
    nix::sched::unshare(CloneFlags::CLONE_NEWNS).context("cannot make a private mount namespace")?;
    nix::mount::mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)
        .context("cannot make mounts private")
}

/// Starts the thread behind signals and deadlines.
pub(crate) fn start_guard() -> Result<()> {
    epoch();
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    thread::spawn(move || {
        loop {
            for _ in signals.pending() {
                let again = STOP.swap(true, Ordering::SeqCst);
                eprintln!("interrupted, cleaning up");
                kill(&PROGRAM);
                if again {
                    kill_daemons();
                }
            }
            let deadline = DEADLINE.load(Ordering::SeqCst);
            if deadline != 0 && epoch().elapsed().as_millis() as u64 > deadline {
                DEADLINE.store(0, Ordering::SeqCst);
                EXPIRED.store(true, Ordering::SeqCst);
                kill(&PROGRAM);
                kill_daemons();
            }
            thread::sleep(Duration::from_millis(100));
        }
    });
    Ok(())
}

fn kill(who: &Mutex<Option<OwnedFd>>) {
    if let Some(pidfd) = who.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
        // It may have ended by itself, which is as good.
        let _ = pidfd_send_signal(pidfd, Signal::KILL);
    }
}

fn kill_daemons() {
    for (_, pidfd) in DAEMONS.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        let _ = pidfd_send_signal(pidfd, Signal::KILL);
    }
}

/// A handle that never means another process.
pub(crate) fn watch(child: &Child) -> Result<OwnedFd> {
    let pid = Pid::from_raw(child.id() as i32).context("a child without an id")?;
    pidfd_open(pid, PidfdFlags::empty()).context("cannot watch a child")
}

/// Names the program that an interruption ends.
pub(crate) fn set_program(child: Option<&Child>) -> Result<()> {
    let pidfd = child.map(watch).transpose()?;
    *PROGRAM.lock().unwrap_or_else(PoisonError::into_inner) = pidfd;
    Ok(())
}

/// Names a daemon that a deadline kills, so that calls that hang in it return.
pub(crate) fn add_daemon(child: &Child) -> Result<()> {
    let pidfd = watch(child)?;
    DAEMONS.lock().unwrap_or_else(PoisonError::into_inner).push((child.id(), pidfd));
    Ok(())
}

/// The daemon has ended.
pub(crate) fn remove_daemon(child: &Child) {
    DAEMONS.lock().unwrap_or_else(PoisonError::into_inner).retain(|(pid, _)| *pid != child.id());
}

/// Fails once the user has interrupted the run or the measurement took too long. Cheap: for every turn of a loop.
pub(crate) fn check() -> Result<()> {
    ensure!(!STOP.load(Ordering::Relaxed), "interrupted");
    ensure!(!EXPIRED.load(Ordering::Relaxed), "took too long and was stopped (see --limit)");
    Ok(())
}

/// Time limit of one measurement; lifted on drop.
pub(crate) struct Deadline;

impl Deadline {
    pub(crate) fn after(limit: Duration) -> Self {
        EXPIRED.store(false, Ordering::SeqCst);
        DEADLINE.store((epoch().elapsed() + limit).as_millis() as u64, Ordering::SeqCst);
        Self
    }

    /// Fails when the limit has passed, whatever error it caused.
    #[expect(clippy::unused_self, reason = "only meaningful while a deadline is set")]
    pub(crate) fn check(&self) -> Result<()> {
        check()
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        DEADLINE.store(0, Ordering::SeqCst);
        EXPIRED.store(false, Ordering::SeqCst);
    }
}

/// Runs a program to its end, out of reach of the terminal's Ctrl-C (the guard forwards it).
pub(crate) fn run(command: &mut Command) -> Result<Output> {
    run_with_input(command, "")
}

/// As [`run`], with `input` on its standard input.
pub(crate) fn run_with_input(command: &mut Command, input: &str) -> Result<Output> {
    let name = command.get_program().to_string_lossy().into_owned();
    let mut child = command
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {name}"))?;
    set_program(Some(&child))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that ends early says why in its status.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output();
    set_program(None)?;
    let output = output.with_context(|| format!("cannot wait for {name}"))?;
    check()?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    let tail: Vec<&str> = stderr.lines().rev().take(3).collect();
    ensure!(
        output.status.success(),
        "{name}: {}: {}",
        output.status,
        tail.into_iter().rev().collect::<Vec<_>>().join("; ")
    );
    Ok(output)
}

/// Unmounts, waiting for the last users to go; in the end by force.
pub(crate) fn unmount(root: &Path) {
    let begin = Instant::now();
    while begin.elapsed() < RELEASE_TIMEOUT {
        match umount2(root, MntFlags::empty()) {
            Err(nix::errno::Errno::EBUSY) => thread::sleep(Duration::from_millis(20)),
            _ => return,
        }
    }
    eprintln!("  {} stays busy: detached", root.display());
    let _ = umount2(root, MntFlags::MNT_DETACH);
}

/// Memory that programs can still get, in bytes.
pub(crate) fn memory_available() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    line.and_then(|rest| rest.split_whitespace().next())
        .and_then(|kib| kib.parse::<u64>().ok())
        .map_or(0, |kib| kib << 10)
}

/// The load of the last minute: other work on the machine makes every figure worse.
pub(crate) fn load_average() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or(f64::NAN)
}
