//! File systems of other kinds: an encrypted one (gocryptfs) and a network one (sshfs to a server of our own).

use std::ffi::OsStr;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::Signal;
use tempfile::TempDir;

use super::disk::{is_mount_point, unmount};
use super::{TIMEOUT, poll, require_root_and_fuse, run, temp_dir};

/// A process that is ended when it is dropped, also while it is stopped.
#[derive(Debug)]
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.0.id() as i32), Signal::SIGCONT);
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(program: &str, args: &[&OsStr], log: &Path) -> Daemon {
    let log = fs::File::options().create(true).append(true).open(log).unwrap();
    let child = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap_or_else(|error| panic!("{program} cannot be started ({error}): run `make setup` first"));
    Daemon(child)
}

/// Whether somebody listens there. Where nobody does, a connection may be given that very port as its own, and reaches
/// itself.
fn listens_on(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).and_then(|stream| stream.local_addr()).is_ok_and(|own| own.port() != port)
}

/// Waits for the mount, or fails with what the daemon said.
fn wait_for_mount(mount: &Path, log: &Path) {
    let mounted = poll(TIMEOUT, || is_mount_point(mount).then_some(()));
    assert!(mounted.is_some(), "{} is not mounted: {}", mount.display(), fs::read_to_string(log).unwrap_or_default());
}

/// A directory whose files are encrypted in another.
#[derive(Debug)]
pub struct Encrypted {
    dir: TempDir,
    daemon: Daemon,
}

impl Encrypted {
    pub fn new() -> Self {
        require_root_and_fuse();
        let dir = temp_dir("encrypted");
        let [cipher, mount, key, log] = ["cipher", "mnt", "key", "log"].map(|name| dir.path().join(name));
        fs::create_dir(&cipher).unwrap();
        fs::create_dir(&mount).unwrap();
        fs::write(&key, "a long enough secret").unwrap();
        let quiet: &OsStr = "-q".as_ref();
        run(
            "gocryptfs",
            [quiet, "-init".as_ref(), "-scryptn=10".as_ref(), "-passfile".as_ref(), key.as_ref(), cipher.as_ref()],
        );
        let daemon = start(
            "gocryptfs",
            &[
                quiet,
                "-fg".as_ref(),
                "-allow_other".as_ref(),
                "-passfile".as_ref(),
                key.as_ref(),
                cipher.as_ref(),
                mount.as_ref(),
            ],
            &log,
        );
        let encrypted = Self { dir, daemon };
        wait_for_mount(&mount, &log);
        encrypted
    }

    /// Where the files are seen in the clear.
    pub fn path(&self) -> PathBuf {
        self.dir.path().join("mnt")
    }

    /// Where they are encrypted.
    pub fn cipher(&self) -> PathBuf {
        self.dir.path().join("cipher")
    }

    /// Process id of the daemon, to stop it.
    pub fn pid(&self) -> u32 {
        self.daemon.0.id()
    }
}

impl Drop for Encrypted {
    fn drop(&mut self) {
        let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.pid() as i32), Signal::SIGCONT);
        unmount(&self.path());
    }
}

/// A directory seen through sshfs, served by an sshd on the loopback interface with keys of its own.
#[derive(Debug)]
pub struct Remote {
    dir: TempDir,
    _client: Daemon,
    _server: Daemon,
}

impl Remote {
    pub fn new() -> Self {
        require_root_and_fuse();
        let dir = temp_dir("remote");
        let [remote, mount, host_key, user_key, config, log] =
            ["remote", "mnt", "host_key", "user_key", "sshd_config", "log"].map(|name| dir.path().join(name));
        fs::create_dir(&remote).unwrap();
        fs::create_dir(&mount).unwrap();
        for key in [&host_key, &user_key] {
            run(
                "ssh-keygen",
                [
                    "-q".as_ref(),
                    "-t".as_ref(),
                    "ed25519".as_ref(),
                    "-N".as_ref(),
                    "".as_ref(),
                    "-f".as_ref(),
                    key.as_os_str(),
                ],
            );
        }
        // Where sshd changes its root to before a login.
        fs::create_dir_all("/run/sshd").unwrap();
        // A port that is free now may be somebody else's a moment later.
        let (port, server) = (0..20)
            .find_map(|_| {
                let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
                fs::write(
            &config,
            format!(
                "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nAuthorizedKeysFile {}.pub\nPermitRootLogin yes\n\
                 PasswordAuthentication no\nStrictModes no\nUsePAM no\nPidFile none\nSubsystem sftp internal-sftp\n",
                host_key.display(),
                user_key.display()
            ),
        )
        .unwrap();
                let args = ["-D".as_ref(), "-e".as_ref(), "-f".as_ref(), config.as_ref()];
                let mut server = start("/usr/sbin/sshd", &args, &log);
                let listens = poll(TIMEOUT, || {
                    let ended = server.0.try_wait().unwrap().is_some();
                    (ended || listens_on(port)).then_some(!ended)
                });
                (listens == Some(true)).then_some((port, server))
            })
            .unwrap_or_else(|| panic!("sshd does not listen: {}", fs::read_to_string(&log).unwrap_or_default()));
        let options = format!(
            "port={port},IdentityFile={},StrictHostKeyChecking=no,UserKnownHostsFile=/dev/null,LogLevel=ERROR,\
             allow_other,default_permissions",
            user_key.display()
        );
        let source = format!("root@127.0.0.1:{}", remote.display());
        let client =
            start("sshfs", &["-f".as_ref(), "-o".as_ref(), options.as_ref(), source.as_ref(), mount.as_ref()], &log);
        let remote = Self { dir, _client: client, _server: server };
        wait_for_mount(&mount, &log);
        remote
    }

    /// Where it is mounted.
    pub fn path(&self) -> PathBuf {
        self.dir.path().join("mnt")
    }

    /// The directory that the server serves.
    pub fn served(&self) -> PathBuf {
        self.dir.path().join("remote")
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        unmount(&self.path());
    }
}

/// A directory seen through a FUSE daemon that can be stopped, slowed down, killed and started again.
#[derive(Debug)]
pub struct Mirror {
    dir: TempDir,
    daemon: Option<Daemon>,
}

impl Mirror {
    pub fn new() -> Self {
        require_root_and_fuse();
        let dir = temp_dir("mirror");
        fs::create_dir(dir.path().join("below")).unwrap();
        fs::create_dir(dir.path().join("mnt")).unwrap();
        let mut mirror = Self { dir, daemon: None };
        mirror.start();
        mirror
    }

    pub fn start(&mut self) {
        let (below, mount, log) = (self.below(), self.path(), self.dir.path().join("log"));
        let options = "allow_other,fsname=mirror";
        let args = ["-f".as_ref(), "-o".as_ref(), options.as_ref(), below.as_os_str(), mount.as_os_str()];
        self.daemon = Some(start("mergerfs", &args, &log));
        wait_for_mount(&mount, &log);
    }

    /// Where it is mounted.
    pub fn path(&self) -> PathBuf {
        self.dir.path().join("mnt")
    }

    /// What it shows.
    pub fn below(&self) -> PathBuf {
        self.dir.path().join("below")
    }

    pub fn pid(&self) -> u32 {
        self.daemon.as_ref().expect("it runs").0.id()
    }

    /// Kills the daemon; its mount is gone.
    pub fn kill(&mut self) {
        self.daemon = None;
        run("umount", ["-l".as_ref(), self.path().as_os_str()]);
    }

    /// As [`delay`].
    pub fn delay(&self, calls: &str, when: &str, time: &str) -> Tampered {
        delay(self.pid(), calls, when, time)
    }

    /// No copy of the pool with this daemon gets its name there until this is dropped.
    pub fn hold_commits(&self, daemon: u32) -> Tampered {
        self.hold(daemon, "rename,renameat,renameat2,link,linkat")
    }

    /// Nothing is written to a copy of the pool with this daemon until this is dropped. Other files are written.
    pub fn hold_copies(&self, daemon: u32) -> Tampered {
        self.hold(daemon, "pwrite64")
    }

    fn hold(&self, daemon: u32, calls: &str) -> Tampered {
        let copies = self.below().join(".umbrella/tmp");
        let copies: Vec<_> = (0..20).map(|number| copies.join(format!("move-{daemon}-{number}"))).collect();
        let copies: Vec<_> = copies.iter().filter_map(|path| path.to_str()).collect();
        tamper(self.pid(), calls, &format!("delay_enter={HELD}"), &copies)
    }

    /// Only calls that name this, relative to the mirror, are slow.
    pub fn delay_of(&self, path: &str, calls: &str, time: &str) -> Tampered {
        delay_of(self.pid(), &self.below().join(path), calls, time)
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        if let Some(daemon) = &self.daemon {
            let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(daemon.0.id() as i32), Signal::SIGCONT);
        }
        unmount(&self.path());
    }
}

/// A delay that is over when it is dropped: longer than a test takes.
pub const HELD: &str = "600s";

/// Delays system calls of this kind of a process by `time` microseconds: before they are carried out (`delay_enter`),
/// or after (`delay_exit`).
pub fn delay(pid: u32, calls: &str, when: &str, time: &str) -> Tampered {
    tamper(pid, calls, &format!("{when}={time}"), &[])
}

/// As [`delay`] before they are carried out, of calls that name this file or have it open.
pub fn delay_of(pid: u32, file: &Path, calls: &str, time: &str) -> Tampered {
    tamper(pid, calls, &format!("delay_enter={time}"), &[file.to_str().expect("UTF-8")])
}

/// System calls of this kind of a process that name `file`, as it names it, fail.
pub fn fail(pid: u32, calls: &str, error: &str, file: &str) -> Tampered {
    tamper(pid, calls, &format!("error={error}"), &[file])
}

/// All system calls of this kind of a process fail.
pub fn fail_all(pid: u32, calls: &str, error: &str) -> Tampered {
    tamper(pid, calls, &format!("error={error}"), &[])
}

fn tamper(pid: u32, calls: &str, how: &str, files: &[&str]) -> Tampered {
    let mut strace = Command::new("strace");
    strace.args(["-f", "-q", "-o", "/dev/null", "-e", &format!("trace={calls}")]);
    strace.args(["-e", &format!("inject={calls}:{how}"), "-p", &pid.to_string()]);
    for file in files {
        strace.args(["-P", file]);
    }
    let strace = strace.stdin(Stdio::null()).stderr(Stdio::null()).spawn().expect("strace: run `make setup` first");
    let untraced = |thread: fs::DirEntry| {
        fs::read_to_string(thread.path().join("status")).is_ok_and(|text| text.contains("TracerPid:\t0\n"))
    };
    let traced = || !fs::read_dir(format!("/proc/{pid}/task")).unwrap().any(|thread| untraced(thread.unwrap()));
    assert!(poll(TIMEOUT, || traced().then_some(())).is_some(), "strace does not attach");
    Tampered(strace)
}

/// While it lives, a process is slow, or fails.
#[derive(Debug)]
pub struct Tampered(Child);

impl Drop for Tampered {
    fn drop(&mut self) {
        // It may wait for a process that is dead and not yet collected; those that live continue when it is gone.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
