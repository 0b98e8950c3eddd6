//! A folder with disks as `umbrella disk` serves them, and a run folder for their daemons.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use super::nbd::Client;
use super::pool::text;
use super::{TIMEOUT, eventually, first, poll, require_root_and_fuse, run, said, temp_dir};

const PROGRAM: &str = env!("CARGO_BIN_EXE_umbrella");

/// A folder with disks. Drop ends their daemons.
pub struct TestDisks {
    dir: TempDir,
}

impl TestDisks {
    /// Without a disk.
    pub fn new() -> TestDisks {
        require_root_and_fuse();
        TestDisks::at(temp_dir("disk"))
    }

    /// In this folder.
    pub fn at(dir: TempDir) -> TestDisks {
        TestDisks { dir }
    }

    /// A path in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// `umbrella disk`, for these disks.
    pub fn umbrella(&self, args: &[&str]) -> Command {
        self.prepared(Command::new(PROGRAM), args)
    }

    fn prepared(&self, mut command: Command, args: &[&str]) -> Command {
        command
            .arg("disk")
            .args(args)
            .current_dir(self.dir.path())
            .env("UMBRELLA_RUN_DIR", self.path("run"))
            .env("UMBRELLA_LOG_DIR", self.path("log"))
            .env("UMBRELLA_STATE_DIR", self.path("state"))
            .env_remove("RUST_LOG")
            .stdin(Stdio::null());
        command
    }

    /// Runs it. One that hangs is killed.
    pub fn run(&self, args: &[&str]) -> Output {
        let mut timed = Command::new("timeout");
        timed.args(["-k", "5", "600", PROGRAM]);
        let output = self.prepared(timed, args).output().expect("timeout(1) runs");
        assert!(!said(&output).contains("panicked"), "{args:?}: {}", said(&output));
        output
    }

    /// Standard output of what must succeed.
    pub fn given(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let reported = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{args:?}: {reported}\n{}\n{}", said(&output), self.logs());
        String::from_utf8(output.stdout).expect("text")
    }

    /// The same as JSON.
    pub fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.given(&[args, &["--json"]].concat())).expect("one JSON document")
    }

    /// Must end with that code, and say all of it.
    pub fn refused(&self, args: &[&str], code: i32, parts: &[&str]) {
        let output = self.run(args);
        let reported = text(&output);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {reported}");
        for part in parts {
            assert!(reported.contains(part), "{args:?}: {part:?} is not in {reported:?}");
        }
    }

    /// The status of a disk that is served.
    pub fn status(&self, name: &str) -> Value {
        self.json(&["status", name])
    }

    /// The address of a disk that is served, for libnbd.
    pub fn nbd(&self, name: &str) -> String {
        format!("nbd+unix:///{name}?socket={}", self.path(&format!("run/disks/{name}.nbd")).display())
    }

    /// Makes a log store of 64 MiB, and serves it.
    pub fn log_store(&self, name: &str) {
        self.given(&["create", "--kind", "log", name, "--size", "64MiB"]);
        self.given(&["serve", name, "--daemon"]);
    }

    fn image(&self, name: &str) -> File {
        File::options().read(true).write(true).open(self.path(name)).expect("it is there")
    }

    /// Writes over a part of a file.
    pub fn overwrite(&self, name: &str, at: u64, data: &[u8]) {
        self.image(name).write_all_at(data, at).expect("it can be written");
    }

    /// Turns over a bit of a file.
    pub fn flip(&self, name: &str, at: u64) {
        let mut byte = [0];
        self.image(name).read_exact_at(&mut byte, at).expect("it is long enough");
        self.overwrite(name, at, &[byte[0] ^ 1]);
    }

    /// Cuts a file, or makes it larger.
    pub fn resize(&self, name: &str, size: u64) {
        self.image(name).set_len(size).expect("there is room");
    }

    /// Copies bytes to the start of a disk that is served.
    pub fn write(&self, name: &str, data: &[u8]) {
        let file = self.path("data");
        fs::write(&file, data).expect("the folder can be written");
        run("nbdcopy", ["--flush".as_ref(), file.as_os_str(), self.nbd(name).as_ref()]);
    }

    /// The first bytes of a disk that is served.
    pub fn read(&self, name: &str, length: usize) -> Vec<u8> {
        let file = self.path("copy");
        run("nbdcopy", [self.nbd(name).as_ref(), file.as_os_str()]);
        first(&file, length)
    }

    /// What the daemons have logged.
    pub fn logs(&self) -> String {
        let logs = fs::read_dir(self.path("log")).into_iter().flatten().flatten();
        logs.map(|log| fs::read_to_string(log.path()).unwrap_or_default()).collect()
    }
}

impl Drop for TestDisks {
    fn drop(&mut self) {
        let Ok(sockets) = fs::read_dir(self.path("run/disks")) else { return };
        for socket in sockets.flatten().map(|entry| entry.path()) {
            let Some(name) = socket.file_name().and_then(|name| name.to_str()?.strip_suffix(".sock")) else { continue };
            let detach = |at: &Path| Command::new("umount").arg("-l").arg(at).stderr(Stdio::null()).status();
            let status = self.umbrella(&["status", name, "--json"]).stderr(Stdio::null()).output();
            if let Some(status) = status.ok().and_then(|status| serde_json::from_slice::<Value>(&status.stdout).ok()) {
                let _ = detach(&self.path("mnt"));
                let _ = self.umbrella(&["detach", name, "--keep-cache", "--force"]).output();
                if let Some(pid) = status["pid"].as_i64().and_then(|pid| Pid::from_raw(pid as i32)) {
                    let _ = kill_process(pid, Signal::KILL);
                }
            }
            // Also what a daemon left that was killed.
            let _ = detach(&self.path(&format!("run/disks/{name}")));
        }
    }
}

/// A daemon that is killed when this is dropped.
pub struct Killed(pub Child);

impl Killed {
    /// Starts a daemon that serves the disk `name` at `socket`, and waits until it does.
    pub fn serving(command: &mut Command, socket: &Path, name: &str) -> Killed {
        let command = command.stdin(Stdio::null()).stdout(Stdio::null());
        let mut server = Killed(command.spawn().expect("it starts"));
        eventually("it serves", || {
            assert!(server.0.try_wait().expect("a child").is_none(), "the daemon has ended");
            Client::connect(socket, name).is_ok()
        });
        server
    }

    /// How it ended by itself, and what it said.
    pub fn ended(mut self) -> (Option<i32>, String) {
        let ended = poll(TIMEOUT, || self.0.try_wait().expect("it is our child"));
        let mut text = String::new();
        if let Some(stderr) = &mut self.0.stderr
            && ended.is_some()
        {
            stderr.read_to_string(&mut text).expect("text");
        }
        (ended.expect("it ends").code(), text)
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
