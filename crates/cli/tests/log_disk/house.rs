//! A folder with images of log stores, and a run folder for their daemons. Whatever they are, they end with it.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::disk::unmount;
use crate::support::{require_root_and_fuse, run, temp_dir};

pub(crate) struct House {
    dir: TempDir,
}

/// A mounted file system; unmounted when dropped.
pub(crate) struct Mount(PathBuf);

impl Mount {
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        unmount(&self.0);
    }
}

impl House {
    pub(crate) fn new() -> House {
        require_root_and_fuse();
        House { dir: temp_dir("log-disk") }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes the configuration `name`.
    pub(crate) fn config(&self, name: &str, content: &str) -> String {
        let path = self.path(&format!("{name}.disk.toml"));
        fs::write(&path, content).expect("the folder can be written");
        text(&path)
    }

    pub(crate) fn umbrella(&self, args: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command
            .args(["-k", "5", "600", env!("CARGO_BIN_EXE_umbrella"), "disk"])
            .args(args)
            .current_dir(self.dir.path())
            .env("UMBRELLA_RUN_DIR", self.path("run"))
            .env("UMBRELLA_LOG_DIR", self.path("log"))
            .env("UMBRELLA_STATE_DIR", self.path("state"))
            .env_remove("RUST_LOG")
            .stdin(Stdio::null());
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        let output = self.umbrella(args).output().expect("timeout(1) runs");
        assert!(!said(&output).contains("panicked"), "{args:?}: {}", said(&output));
        output
    }

    /// Standard output of what must succeed.
    pub(crate) fn given(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(output.status.success(), "{args:?}: {}\n{}", said(&output), self.logs());
        String::from_utf8(output.stdout).expect("text")
    }

    pub(crate) fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.given(&[args, &["--json"]].concat())).expect("one JSON document")
    }

    /// What it says, however it ends.
    pub(crate) fn said(&self, args: &[&str]) -> String {
        said(&self.run(args))
    }

    /// Must end with that code, and say all of it.
    pub(crate) fn refused(&self, args: &[&str], code: i32, parts: &[&str]) {
        let output = self.run(args);
        let told = format!("{}{}", String::from_utf8_lossy(&output.stdout), said(&output));
        assert_eq!(output.status.code(), Some(code), "{args:?}: {told}");
        for part in parts {
            assert!(told.contains(part), "{args:?}: {part:?} is not in {told:?}");
        }
    }

    pub(crate) fn status(&self, name: &str) -> Value {
        self.json(&["status", name])
    }

    /// The device that a disk is attached to.
    pub(crate) fn attach(&self, disk: &str) -> String {
        self.given(&["attach", disk]).trim().to_owned()
    }

    pub(crate) fn mount(&self, device: &str) -> Mount {
        let at = self.path("mnt");
        fs::create_dir_all(&at).expect("the folder can be written");
        run("mount", [device.as_ref(), at.as_os_str()]);
        Mount(at)
    }

    pub(crate) fn nbd(&self, name: &str) -> String {
        format!("nbd+unix:///{name}?socket={}", self.path(&format!("run/disks/{name}.nbd")).display())
    }

    /// Copies bytes to the start of a disk that is served.
    pub(crate) fn write(&self, name: &str, data: &[u8]) {
        let file = self.path("data");
        fs::write(&file, data).expect("the folder can be written");
        run("nbdcopy", ["--flush".as_ref(), file.as_os_str(), self.nbd(name).as_ref()]);
    }

    /// The first bytes of a disk that is served.
    pub(crate) fn read(&self, name: &str, length: usize) -> Vec<u8> {
        let file = self.path("copy");
        run("nbdcopy", [self.nbd(name).as_ref(), file.as_os_str()]);
        let mut bytes = vec![0; length];
        File::open(file).and_then(|file| file.read_exact_at(&mut bytes, 0)).expect("it is long enough");
        bytes
    }

    pub(crate) fn logs(&self) -> String {
        let logs = fs::read_dir(self.path("log")).into_iter().flatten().flatten();
        logs.map(|log| fs::read_to_string(log.path()).unwrap_or_default()).collect()
    }
}

impl Drop for House {
    fn drop(&mut self) {
        let Ok(sockets) = fs::read_dir(self.path("run/disks")) else { return };
        for socket in sockets.flatten().map(|entry| entry.path()) {
            let Some(name) = socket.file_name().and_then(|name| name.to_str()?.strip_suffix(".sock")) else { continue };
            let Ok(status) = self.umbrella(&["status", name, "--json"]).output() else { continue };
            let Ok(status) = serde_json::from_slice::<Value>(&status.stdout) else { continue };
            let _ = Command::new("umount").arg("-l").arg(self.path("mnt")).output();
            let _ = self.umbrella(&["detach", name, "--keep-cache", "--force"]).output();
            if let Some(pid) = status["pid"].as_i64().and_then(|pid| Pid::from_raw(pid as i32)) {
                let _ = kill_process(pid, Signal::KILL);
            }
            let _ = Command::new("umount").arg("-l").arg(self.path(&format!("run/disks/{name}"))).output();
        }
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A path as text.
pub(crate) fn text(path: &Path) -> String {
    path.to_str().expect("UTF-8").to_owned()
}
