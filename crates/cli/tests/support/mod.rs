//! What the integration suites share: throw-away disks, pools on them, comparison of trees, and other users and
//! processes.
//!
//! The suites drive the real binary on real mounts. They need root, `/dev/fuse` and loop devices, and say so where one
//! is missing; they never skip. Environment:
//! - `UMBRELLA_TEST_DIR`: where images and mounts are made (default: the system's folder for temporary files);
//! - `UMBRELLA_TEST_STAND_IN`: `plain` or `mergerfs` mounts that instead of a pool, to check the tests themselves;
//! - `UMBRELLA_TEST_POLICY`: the write-back policy of the suites that run with one (default: `zone_segment:alpha=4`);
//! - `UMBRELLA_TEST_TRANSPORT`: `dev` or `io_uring`, how requests reach the pools (default: as the pool chooses);
//! - `UMBRELLA_TEST_KEEP_LOG`: print the daemon's log also when a test passes.
#![allow(dead_code, unreachable_pub, reason = "shared by several test binaries, each of which uses a part")]
#![allow(clippy::unnecessary_debug_formatting, reason = "quoted paths are what TOML reads")]

pub mod bad_disk;
pub mod choices;
pub mod disk;
pub mod foreign;
pub mod group;
pub mod looped;
pub mod nbd;
pub mod pool;
pub mod process;
pub mod program;
pub mod test_disks;
pub mod tools;
pub mod tree;
pub mod writers;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Once;
use std::time::{Duration, Instant};

pub use program::said;
use tempfile::TempDir;

pub const KIB: u64 = 1 << 10;
pub const MIB: u64 = 1 << 20;

/// Keys of a branch with ordered write-back and a low limit, so that much happens. `UMBRELLA_TEST_POLICY` names another
/// policy.
pub fn ordered_write_back() -> String {
    let policy = std::env::var("UMBRELLA_TEST_POLICY").unwrap_or_else(|_| "zone_segment:alpha=4".to_owned());
    format!("write_back = {policy:?}\nwrite_back_limit = \"1MiB\"")
}

/// Fails the test with a sentence that says what is missing.
pub fn require_root_and_fuse() {
    assert!(rustix::process::geteuid().is_root(), "this test mounts file systems: run it as root (`make test` does)");
    assert!(PathBuf::from("/dev/fuse").exists(), "this test needs /dev/fuse: load the module `fuse`");
}

/// A new folder that every user may enter.
pub fn temp_dir(what: &str) -> TempDir {
    let base = std::env::var_os("UMBRELLA_TEST_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    let dir = tempfile::Builder::new()
        .prefix(&format!("umbrella-{what}-"))
        .tempdir_in(&base)
        .unwrap_or_else(|error| panic!("cannot make a folder in {}: {error}", base.display()));
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    dir
}

/// Runs a program that must exist and succeed.
pub fn run<I, S>(program: &str, args: I) -> Output
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    let mut command = Command::new(program);
    command.args(args);
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{program} cannot be started ({error}): run `make setup` first"));
    assert!(output.status.success(), "{command:?} failed ({}):\n{}", output.status, said(&output));
    output
}

/// The first bytes of a file.
pub fn first(file: &Path, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    File::open(file).and_then(|file| file.read_exact_at(&mut bytes, 0)).expect("it is long enough");
    bytes
}

/// How long is waited for what comes in a moment on an idle machine: this one may be slow, or do much else.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// Asks again and again until the answer is `Some`; `None` when `limit` has passed.
pub fn poll<T>(limit: Duration, mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let start = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return Some(answer);
        }
        if start.elapsed() > limit {
            return None;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until `holds` does, or fails with `what`.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    assert!(poll(TIMEOUT, || holds().then_some(())).is_some(), "not within {TIMEOUT:?}: {what}");
}

/// Bytes that depend on `seed` and do not repeat soon.
pub fn bytes(seed: u64, len: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut data = Vec::with_capacity(len as usize + 8);
    while (data.len() as u64) < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        data.extend_from_slice(&state.to_le_bytes());
    }
    data.truncate(len as usize);
    data
}

/// The error number of a failed operation, 0 for success.
pub fn errno<T>(result: &std::io::Result<T>) -> i32 {
    match result {
        Ok(_) => 0,
        Err(error) => error.raw_os_error().unwrap_or(-1),
    }
}

/// Fails unless the operation failed with this error number.
#[track_caller]
pub fn assert_errno<T: std::fmt::Debug>(result: std::io::Result<T>, expected: i32) {
    match result {
        Ok(value) => panic!("succeeded with {value:?}, expected {}", std::io::Error::from_raw_os_error(expected)),
        Err(error) => assert_eq!(
            error.raw_os_error(),
            Some(expected),
            "failed with {error}, expected {}",
            std::io::Error::from_raw_os_error(expected)
        ),
    }
}

/// Says at once why a test fails; what the test harness has caught stands only at the end of a long run.
pub fn tell_failures_at_once() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            // Written past what the harness catches.
            let _ = writeln!(std::io::stderr(), "{}: {panic}", std::thread::current().name().unwrap_or("a thread"));
            usual(panic);
        }));
    });
}

/// The number in an environment variable, or the default.
pub fn number_from_env(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text:?} is not a number")),
        Err(_) => default,
    }
}
