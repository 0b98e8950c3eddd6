//! Starts a server in a process of its own, and ends it.

use std::collections::HashMap;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use umbrella_fuse::{Config, MountOptions, MountSpec, RingMemory, Session, Transport};

use crate::server::{Count, Memory};

/// How a server is to be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setup {
    pub(crate) transport: &'static str,
    pub(crate) max_entries: usize,
    /// What confines it to processor 0.
    pub(crate) confined: Confined,
    /// A system call that it may not make.
    pub(crate) forbidden: Option<libc::c_long>,
    /// Limit on the descriptors of the server, if there is one.
    pub(crate) descriptors: Option<u32>,
    /// The second thread of processor 1's queue cannot register.
    pub(crate) no_spare: bool,
    /// Buffers lie in a memfd at [`MEMORY`].
    pub(crate) ring_memory: bool,
}

/// Where buffers lie with [`Setup::ring_memory`].
pub(crate) const MEMORY: usize = 0x5200_0000_0000;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Confined {
    No,
    /// Nobody in it can be put on another.
    Cpuset,
    /// As it was started; a thread may be put on another.
    Affinity,
}

pub(crate) const DEV: Setup = Setup {
    transport: "dev",
    max_entries: 256,
    confined: Confined::No,
    forbidden: None,
    descriptors: None,
    no_spare: false,
    ring_memory: false,
};
pub(crate) const RING: Setup = Setup { transport: "io_uring", ..DEV };

/// What each thread of a server sets for itself, in nanoseconds.
pub(crate) const SLACK: u64 = 123_456;

/// Not a test: what the server's process runs.
#[test]
fn server_process() {
    let Ok(at) = std::env::var("UMBRELLA_FUSE_SERVE") else { return };
    let _ = tracing_subscriber::fmt().with_max_level(tracing::Level::INFO).with_ansi(false).try_init();
    let of = |name: &str| std::env::var(name).unwrap_or_default();
    let counts: Arc<Mutex<HashMap<u32, u64>>> = Arc::default();
    let backing = Path::new(&at).with_extension("backing");
    let mut memory = Memory::new(Arc::clone(&counts), backing.exists().then_some(backing));
    memory.waiting = Path::new(&at).with_extension("waiting");
    let notifier = Arc::clone(&memory.notifier);
    let spec = MountSpec {
        source: "memory".into(),
        subtype: "memory".into(),
        options: MountOptions::DEFAULT_PERMISSIONS | MountOptions::ALLOW_OTHER,
    };
    let (rings, no_spare) = (AtomicUsize::new(0), of("NO_SPARE") == "true");
    let config = Config {
        transport: if of("TRANSPORT") == "dev" { Transport::Dev } else { Transport::Auto },
        max_entries: of("MAX_ENTRIES").parse().unwrap(),
        observer: Some(Arc::new(Count(counts))),
        ring_memory: (of("RING_MEMORY") == "true").then(|| {
            let flags = rustix::fs::MemfdFlags::CLOEXEC;
            let file = rustix::fs::memfd_create("fuse-rings", flags).unwrap().into();
            RingMemory { file, address: MEMORY }
        }),
        thread_start: Some(Arc::new(move || {
            let is_of_second = std::thread::current().name() == Some("fuse-ring-1");
            if no_spare && is_of_second && rings.fetch_add(1, Ordering::SeqCst) == 1 {
                forbid_submissions().unwrap();
            }
            // SAFETY: a setting of the calling thread.
            let _ = unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, SLACK) };
        })),
        ..Config::default()
    };
    let session = Session::mount(memory, at.as_ref(), &spec, config).unwrap();
    let _ = notifier.set(session.notifier());
    let (unmounter, ask) = (session.unmounter(), Path::new(&at).with_extension("unmount"));
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(Duration::from_millis(20));
            if fs::remove_file(&ask).is_ok() {
                let said = unmounter.unmount().map_or_else(|error| error.to_string(), |()| "gone".to_owned());
                fs::write(ask.with_extension("said"), said).unwrap();
            }
        }
    });
    if let Some(shortage) = session.notifier().shortage() {
        fs::write(Path::new(&at).with_extension("shortage"), shortage).unwrap();
    }
    fs::write(Path::new(&at).with_extension("ready"), format!("{:?}", session.transport())).unwrap();
    session.run().unwrap();
    fs::write(Path::new(&at).with_extension("ended"), "").unwrap();
}

/// A mount with its server.
pub(crate) struct Mount {
    pub(crate) child: Child,
    folder: tempfile::TempDir,
    pub(crate) transport: String,
}

impl Mount {
    pub(crate) fn new(setup: Setup) -> Mount {
        Mount::with_backing(setup, None)
    }

    pub(crate) fn with_backing(setup: Setup, backing: Option<&[u8]>) -> Mount {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().join("mount");
        fs::create_dir(&at).unwrap();
        if let Some(backing) = backing {
            fs::write(at.with_extension("backing"), backing).unwrap();
        }
        let myself = std::env::current_exe().unwrap();
        let mut before = match setup.confined {
            Confined::No => String::new(),
            Confined::Cpuset => format!("echo $$ > {}/cgroup.procs && ", first_processor().display()),
            Confined::Affinity => "taskset -pc 0 $$ >&2 && ".to_owned(),
        };
        if let Some(descriptors) = setup.descriptors {
            before = format!("ulimit -n {descriptors} && ");
        }
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{before}exec \"$0\" \"$@\"")]).arg(&myself);
        if let Some(call) = setup.forbidden {
            // SAFETY: one system call between fork and exec.
            unsafe { command.pre_exec(move || forbid(call)) };
        }
        let child = command
            .args(["--exact", "harness::server_process", "--nocapture"])
            .env("UMBRELLA_FUSE_SERVE", &at)
            .env("TRANSPORT", setup.transport)
            .env("NO_SPARE", setup.no_spare.to_string())
            .env("RING_MEMORY", setup.ring_memory.to_string())
            .env("MAX_ENTRIES", setup.max_entries.to_string())
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let mut mount = Mount { child, folder, transport: String::new() };
        let ready = mount.file("ready");
        wait_for("the mount", || fs::read_to_string(&ready).is_ok_and(|text| !text.is_empty()));
        mount.transport = fs::read_to_string(&ready).unwrap();
        mount
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.folder.path().join("mount")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }

    /// A file beside the mount.
    pub(crate) fn file(&self, extension: &str) -> PathBuf {
        self.root().with_extension(extension)
    }

    /// What the server says when it is asked to unmount.
    pub(crate) fn ask_to_unmount(&self) -> String {
        let said = self.file("said");
        let _ = fs::remove_file(&said);
        fs::write(self.file("unmount"), "").unwrap();
        // The server may be gone before it can say so.
        let mut answer = String::new();
        wait_for("an answer", || {
            answer = fs::read_to_string(&said).unwrap_or_default();
            !answer.is_empty() || self.file("ended").exists()
        });
        if answer.is_empty() { "gone".to_owned() } else { answer }
    }

    /// Lets the server notify the kernel; what came of it.
    pub(crate) fn notify(&self, order: &str) -> String {
        set_xattr(&self.root(), "user.do", order.as_bytes());
        let mut done = None;
        wait_for("the order", || {
            done = get_xattr(&self.root(), "user.done");
            done.is_some()
        });
        done.unwrap()
    }

    /// Bytes of memory that the server's process has for itself.
    pub(crate) fn anonymous_memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
    }

    /// How many requests of a kind were answered.
    pub(crate) fn count(&self, operation: &str) -> u64 {
        get_xattr(&self.root(), &format!("user.count.{operation}")).unwrap().parse().unwrap()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.root(), rustix::mount::UnmountFlags::DETACH);
        let until = Instant::now() + Duration::from_secs(5);
        while self.child.try_wait().is_ok_and(|status| status.is_none()) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Clients that read what is never there, in processes of their own, all on one processor.
pub(crate) fn blocked_readers(mount: &Mount, name: &str, many: usize, processor: usize) -> Vec<Child> {
    let path = mount.path(name);
    let start = |_| {
        let mut command = Command::new("cat");
        command.arg(&path).stdout(Stdio::null()).stderr(Stdio::null());
        // SAFETY: one system call between fork and exec.
        unsafe { command.pre_exec(move || pin(processor)) };
        command.spawn().unwrap()
    };
    (0..many).map(start).collect()
}

/// Keeps this thread on a processor.
pub(crate) fn pin(processor: usize) -> std::io::Result<()> {
    // SAFETY: a set of processors is plain bits, and the call reads one.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        match libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    }
}

/// Makes a system call fail with EPERM, here and in what is started from here.
fn forbid(call: libc::c_long) -> std::io::Result<()> {
    filter(call, &[])
}

/// This thread may make rings and enter them, but submit nothing.
fn forbid_submissions() -> std::io::Result<()> {
    // The low half of the second argument: how much is submitted. None is allowed.
    let load = statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 24, 0, 0);
    filter(libc::SYS_io_uring_enter, &[load, statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, 0)])
}

fn statement(code: u32, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt, jf, k }
}

/// Refuses a call with EPERM, unless these statements jump over that.
fn filter(call: libc::c_long, unless: &[libc::sock_filter]) -> std::io::Result<()> {
    let refuse = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
    // The number of the call comes first.
    let mut filter = vec![
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, call as u32, 0, unless.len() as u8 + 1),
    ];
    filter.extend_from_slice(unless);
    filter.push(statement(libc::BPF_RET | libc::BPF_K, refuse, 0, 0));
    filter.push(statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0, 0));
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the kernel reads the program, which outlives the call.
    match unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// A group of processes that may use processor 0 only.
fn first_processor() -> PathBuf {
    let (older, newer) = (Path::new("/sys/fs/cgroup/cpuset"), Path::new("/sys/fs/cgroup"));
    let group = if older.exists() { older } else { newer }.join("umbrella-fuse-test");
    if !older.exists() {
        fs::write(newer.join("cgroup.subtree_control"), "+cpuset").expect("the kernel has cpusets");
    }
    let _ = fs::create_dir(&group);
    fs::write(group.join("cpuset.cpus"), "0").unwrap();
    let _ = fs::write(group.join("cpuset.mems"), "0");
    group
}

/// Waits, and fails after a time that nothing should take.
#[track_caller]
pub(crate) fn wait_for(what: &str, mut is_there: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !is_there() {
        assert!(Instant::now() < until, "{what} did not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until a process, or a thread of this one, is blocked in a system call.
#[track_caller]
pub(crate) fn wait_for_call(process: u32, call: libc::c_long) {
    let (path, call) = (format!("/proc/{process}/syscall"), call.to_string());
    wait_for("the call", || fs::read_to_string(&path).is_ok_and(|text| text.split(' ').next() == Some(&call)));
}

pub(crate) fn set_xattr(path: &Path, name: &str, value: &[u8]) {
    rustix::fs::setxattr(path, name, value, rustix::fs::XattrFlags::empty()).unwrap();
}

pub(crate) fn get_xattr(path: &Path, name: &str) -> Option<String> {
    let mut value = vec![0_u8; 4096];
    let length = rustix::fs::getxattr(path, name, &mut value).ok()?;
    Some(String::from_utf8_lossy(&value[..length]).into_owned())
}

/// Makes a test of each function, on each transport.
#[macro_export]
macro_rules! on_both_transports {
    ($($name:ident)*) => {
        mod dev {
            $(#[test] fn $name() { super::$name($crate::harness::DEV); })*
        }
        mod io_uring {
            $(#[test] fn $name() { super::$name($crate::harness::RING); })*
        }
    };
}
