//! The machine: programs, caches, signals, deadlines.
//!
//! One guard thread handles Ctrl-C and deadlines. The first Ctrl-C ends the measured program and lets the main thread
//! unwind, which unmounts everything. A second one, or a deadline, also kills the daemons of mounts and disks, so that
//! calls that hang in them return.

use std::env;
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Output, Stdio};
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
use tempfile::TempDir;

static STOP: AtomicBool = AtomicBool::new(false);
/// Milliseconds since [`epoch`]; 0: none.
static DEADLINE: AtomicU64 = AtomicU64::new(0);
static EXPIRED: AtomicBool = AtomicBool::new(false);
static PROGRAM: Mutex<Option<OwnedFd>> = Mutex::new(None);
/// Daemons that a deadline ends, by process id.
static DAEMONS: Mutex<Vec<(u32, OwnedFd)>> = Mutex::new(Vec::new());

/// The file system in memory.
pub(crate) const MEMORY: &str = "/dev/shm";

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

/// How a benchmark ends: whether nothing of it failed, or why it could not go on.
pub(crate) fn end(bench: &str, is_whole: Result<bool>) -> ExitCode {
    match is_whole {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{bench}: {error:#}");
            ExitCode::FAILURE
        }
    }
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

/// Time limit of one measurement, which [`check`] keeps; lifted on drop.
pub(crate) struct Deadline;

impl Deadline {
    pub(crate) fn after(limit: Duration) -> Self {
        EXPIRED.store(false, Ordering::SeqCst);
        DEADLINE.store((epoch().elapsed() + limit).as_millis() as u64, Ordering::SeqCst);
        Self
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
    let output = start_with_input(command.stderr(Stdio::piped()), input)?.wait_with_output();
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

/// Starts a program that the guard ends, with `input` on its standard input. Name it no longer ([`set_program`]) when
/// it has ended.
pub(crate) fn start_with_input(command: &mut Command, input: &str) -> Result<Child> {
    let spawned = command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = spawned.with_context(|| format!("cannot start {}", command.get_program().display()))?;
    set_program(Some(&child))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that ends early says why in its status.
        let _ = stdin.write_all(input.as_bytes());
    }
    Ok(child)
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

/// Where disk images lie: in this folder if one is given, else in memory if that has the bytes wanted, else with other
/// temporary files.
pub(crate) fn image_folder(given: Option<&Path>, wanted_memory: u64) -> PathBuf {
    match given {
        Some(folder) => folder.to_owned(),
        None if Path::new(MEMORY).is_dir() && memory_available() > wanted_memory => MEMORY.into(),
        None => env::temp_dir(),
    }
}

/// A folder that vanishes when dropped.
pub(crate) fn temporary_folder(parent: &Path, prefix: &str) -> Result<TempDir> {
    let made = tempfile::Builder::new().prefix(prefix).tempdir_in(parent);
    made.with_context(|| format!("cannot make a folder in {}", parent.display()))
}

/// Makes an ext4 of this size with fixed ids, so that the allocator and the directory hashes do the same each time.
pub(crate) fn make_ext4(image: &Path, size: u64, uuid: &str) -> Result<()> {
    let file = File::options().create(true).truncate(false).write(true).open(image);
    let file = file.with_context(|| format!("cannot create {}", image.display()))?;
    file.set_len(size).context("cannot size the image")?;
    let options = format!("nodiscard,lazy_itable_init=1,lazy_journal_init=1,hash_seed={uuid}");
    run(Command::new("mkfs.ext4").args(["-q", "-F", "-U", uuid, "-E", &options]).arg(image)).map(drop)
}

/// Runs the real postmark.
pub(crate) fn run_postmark(script: &str) -> Result<()> {
    let output = run_with_input(&mut Command::new("postmark"), script)?;
    let text = String::from_utf8_lossy(&output.stdout);
    // It ends with success also when it could not do its work.
    let complaint = text.lines().find(|line| line.contains("Error") || line.contains("Cannot"));
    ensure!(complaint.is_none(), "postmark: {}", complaint.unwrap_or_default());
    ensure!(text.contains("transactions"), "postmark did not report");
    Ok(())
}

/// Memory that programs can still get, in bytes.
fn memory_available() -> u64 {
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
