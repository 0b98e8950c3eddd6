//! A pool on a real mount: made from branches and rules, spoken with through the binary, taken down when dropped.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;
use tempfile::TempDir;
use umbrella_fs::control::protocol::{BranchState, BranchStatus, EnforceSummary, Explanation, MoveEvent, Status};

use super::disk::{is_mount_point, unmount};
use super::group::Group;
use super::{TIMEOUT, poll, process, require_root_and_fuse, said, temp_dir};

/// The binary under test.
pub const UMBRELLA: &str = env!("CARGO_BIN_EXE_umbrella");

/// How long a mount may take, and how long a command may.
const READY: Duration = TIMEOUT;

/// What is mounted instead of a pool when `UMBRELLA_TEST_STAND_IN` asks for it: a way to tell mistakes of a test from
/// mistakes of the file system. Nothing is moved then, and where files are is not checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StandIn {
    /// `plain`: the last branch itself.
    Plain,
    /// `mergerfs`: all branches.
    Mergerfs,
}

fn stand_in() -> Option<StandIn> {
    let name = std::env::var("UMBRELLA_TEST_STAND_IN").ok()?;
    match name.as_str() {
        "plain" => Some(StandIn::Plain),
        "mergerfs" => Some(StandIn::Mergerfs),
        _ => panic!("UMBRELLA_TEST_STAND_IN={name:?} is neither plain nor mergerfs"),
    }
}

/// What a pool is made of.
#[derive(Debug)]
pub struct Builder {
    dir: TempDir,
    branches: Vec<(String, PathBuf, String)>,
    default: Option<Vec<String>>,
    top: String,
    rules: String,
    stages: bool,
    limit: Duration,
    group: Option<PathBuf>,
    options: String,
    fstab: Option<PathBuf>,
    run_dir: Option<PathBuf>,
    mount_args: Vec<OsString>,
    launcher: Vec<String>,
}

impl Builder {
    /// Adds a branch.
    pub fn branch(self, name: &str, path: impl AsRef<Path>) -> Self {
        self.branch_with(name, path, "")
    }

    /// Adds several.
    pub fn branches<const N: usize>(self, branches: [(&str, PathBuf); N]) -> Self {
        branches.into_iter().fold(self, |builder, (name, path)| builder.branch(name, path))
    }

    /// Adds a branch with further keys, as TOML lines.
    pub fn branch_with(mut self, name: &str, path: impl AsRef<Path>, keys: &str) -> Self {
        self.branches.push((name.to_owned(), path.as_ref().to_owned(), keys.to_owned()));
        self
    }

    /// The default list; without it, all branches in order.
    pub fn default(mut self, branches: &[&str]) -> Self {
        self.default = Some(branches.iter().map(|name| (*name).to_owned()).collect());
        self
    }

    /// Keys of the pool itself, as TOML lines.
    pub fn keys(mut self, keys: &str) -> Self {
        self.top.push_str(keys);
        self.top.push('\n');
        self
    }

    /// `[[rule]]` tables.
    pub fn rules(mut self, rules: &str) -> Self {
        rules.clone_into(&mut self.rules);
        self
    }

    /// New files wait as they do where the configuration says nothing of it.
    pub fn stages_by_default(mut self) -> Self {
        self.stages = true;
        self
    }

    /// Mount options.
    pub fn options(mut self, options: &str) -> Self {
        options.clone_into(&mut self.options);
        self
    }

    /// Further arguments of `umbrella mount`.
    pub fn mount_args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.mount_args.extend(args.into_iter().map(Into::into));
        self
    }

    /// This program starts the daemon: its name and arguments.
    pub fn launched_by<const N: usize>(mut self, launcher: [&str; N]) -> Self {
        self.launcher = launcher.map(str::to_owned).to_vec();
        self
    }

    /// The daemon reads this in place of /etc/fstab.
    pub fn fstab(mut self, fstab: &Path) -> Self {
        self.fstab = Some(fstab.to_owned());
        self
    }

    /// Its control socket lies beside that of another pool.
    pub fn in_run_dir_of(mut self, other: &Pool) -> Self {
        self.run_dir = Some(other.run_dir());
        self
    }

    /// The daemon runs in this control group.
    pub fn in_group(mut self, group: &Group) -> Self {
        self.group = Some(group.path().to_owned());
        self
    }

    /// After this time the daemon is killed, so that a test that hangs fails instead.
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// The configuration as text.
    fn config(&self, mount: &Path) -> String {
        let default =
            self.default.clone().unwrap_or_else(|| self.branches.iter().map(|(name, _, _)| name.clone()).collect());
        let mut text = format!("mount = {mount:?}\ndefault = {default:?}\n");
        if let Ok(transport) = std::env::var("UMBRELLA_TEST_TRANSPORT")
            && !self.top.contains("transport = ")
        {
            writeln!(text, "transport = {transport:?}").unwrap();
        }
        text.push_str(&self.top);
        text.push('\n');
        for (name, path, keys) in &self.branches {
            write!(text, "[[branch]]\nname = {name:?}\npath = {path:?}\n{keys}\n").unwrap();
        }
        text = text + "\n" + &self.rules + "\n";
        // Most tests look for files on branches: new ones wait nowhere, unless a test says so.
        if !self.stages && !text.contains("[staging]") {
            text.push_str("[staging]\nmode = \"never\"\n");
        }
        text
    }

    /// Writes the configuration, mounts it, and waits until it can be used.
    #[track_caller]
    pub fn mount(self) -> Pool {
        let mut pool = self.prepare();
        pool.start();
        pool
    }

    /// Writes the configuration only.
    pub fn prepare(self) -> Pool {
        require_root_and_fuse();
        let mount = self.dir.path().join("mnt");
        for folder in ["mnt", "run", "state"] {
            fs::create_dir(self.dir.path().join(folder)).unwrap();
        }
        fs::write(self.dir.path().join("pool.toml"), self.config(&mount)).unwrap();
        Pool { spec: self, daemon: None, guard: Arc::default() }
    }
}

/// A pool and, while it is mounted, its daemon.
#[derive(Debug)]
pub struct Pool {
    spec: Builder,
    daemon: Option<Child>,
    /// The daemon that the guard has to kill when time is up; 0 for none.
    guard: Arc<AtomicU32>,
}

impl Pool {
    /// Begins a pool.
    pub fn builder() -> Builder {
        super::tell_failures_at_once();
        Builder {
            dir: temp_dir("pool"),
            branches: Vec::new(),
            default: None,
            top: String::new(),
            rules: String::new(),
            stages: false,
            limit: Duration::from_secs(900),
            group: None,
            options: String::new(),
            fstab: None,
            run_dir: None,
            mount_args: Vec::new(),
            launcher: Vec::new(),
        }
    }

    /// The folder that holds the configuration, the mount point, the sockets and the log.
    pub fn dir(&self) -> &Path {
        self.spec.dir.path()
    }

    /// Where the tree appears.
    pub fn mount_point(&self) -> PathBuf {
        self.dir().join("mnt")
    }

    /// A path inside the mount.
    pub fn join(&self, path: impl AsRef<Path>) -> PathBuf {
        self.mount_point().join(path)
    }

    /// The same path on a branch.
    pub fn on(&self, branch: &str, path: impl AsRef<Path>) -> PathBuf {
        let found = self.spec.branches.iter().find(|(name, _, _)| name == branch);
        found.unwrap_or_else(|| panic!("the pool has no branch {branch:?}")).1.join(path)
    }

    /// The configuration file.
    pub fn config_path(&self) -> PathBuf {
        self.dir().join("pool.toml")
    }

    /// Replaces the rules in the configuration file (and nothing else).
    pub fn write_rules(&mut self, rules: &str) {
        rules.clone_into(&mut self.spec.rules);
        self.write_config();
    }

    /// Replaces the keys of the pool itself in the configuration file.
    pub fn write_keys(&mut self, keys: &str) {
        self.spec.top = format!("{keys}\n");
        self.write_config();
    }

    /// Replaces the further keys of a branch in the configuration file.
    pub fn write_branch(&mut self, name: &str, keys: &str) {
        for (_, _, known) in self.spec.branches.iter_mut().filter(|(branch, _, _)| branch == name) {
            keys.clone_into(known);
        }
        self.write_config();
    }

    fn write_config(&self) {
        fs::write(self.config_path(), self.spec.config(&self.mount_point())).unwrap();
    }

    /// Replaces the rules in the configuration file and on the live mount. Nothing moves at once.
    #[track_caller]
    pub fn load_rules(&mut self, rules: &str) {
        self.write_rules(rules);
        self.say(["rules".as_ref(), "reload".as_ref(), self.config_path().as_os_str()]);
    }

    /// What the daemon said.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir().join("log")).unwrap_or_default()
    }

    /// Where the control socket is.
    pub fn run_dir(&self) -> PathBuf {
        self.spec.run_dir.clone().unwrap_or_else(|| self.dir().join("run"))
    }

    /// The binary with the environment of this pool.
    pub fn command(&self) -> Command {
        self.with_environment(Command::new(UMBRELLA))
    }

    fn with_environment(&self, mut command: Command) -> Command {
        command
            .env("UMBRELLA_RUN_DIR", self.run_dir())
            .env("UMBRELLA_STATE_DIR", self.dir().join("state"))
            .stdin(Stdio::null());
        command.envs(self.spec.fstab.as_ref().map(|fstab| ("LIBMOUNT_FSTAB", fstab)));
        command
    }

    /// Starts the daemon in the foreground of a process that the test knows, and waits for the mount.
    #[track_caller]
    pub fn start(&mut self) {
        if let Err(error) = self.try_start() {
            panic!("the pool cannot be mounted: {error}\n{}", self.log());
        }
    }

    /// As [`Pool::start`]; the error is what the daemon printed.
    pub fn try_start(&mut self) -> Result<(), String> {
        assert!(self.daemon.is_none(), "the pool is mounted already");
        if let Some(stand_in) = stand_in() {
            self.mount_stand_in(stand_in);
            return Ok(());
        }
        let log = File::options().create(true).append(true).open(self.dir().join("log")).unwrap();
        let before = log.metadata().unwrap().len() as usize;
        let mut command = match &self.spec.launcher[..] {
            [] => self.command(),
            [program, args @ ..] => {
                let mut command = self.with_environment(Command::new(program));
                command.args(args).arg(UMBRELLA);
                command
            }
        };
        command.arg("mount").args(&self.spec.mount_args);
        if let Some(group) = &self.spec.group {
            // From its first instruction on.
            let procs = File::options().write(true).open(group.join("cgroup.procs")).unwrap();
            let enter = move || rustix::io::write(&procs, b"0").map(drop).map_err(Into::into);
            // SAFETY: one system call, on a descriptor that is open.
            unsafe { command.pre_exec(enter) };
        }
        if !self.spec.options.is_empty() {
            command.args(["--options", &self.spec.options]);
        }
        let child = command.arg(self.config_path()).stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        let pid = child.id();
        self.guard.store(pid, Ordering::SeqCst);
        let (guard, limit, name) =
            (Arc::clone(&self.guard), self.spec.limit, thread::current().name().map(str::to_owned));
        thread::spawn(move || {
            let start = Instant::now();
            while start.elapsed() < limit {
                if guard.load(Ordering::SeqCst) != pid {
                    return;
                }
                thread::sleep(Duration::from_millis(100));
            }
            eprintln!(
                "{}: still mounted after {limit:?}; killing the daemon so that nothing hangs",
                name.unwrap_or_default()
            );
            process::signal(pid, Signal::SIGKILL);
        });
        self.daemon = Some(child);
        let mount = self.mount_point();
        let ready = poll(READY, || {
            let over = self.daemon.as_mut().is_some_and(|child| !matches!(child.try_wait(), Ok(None)));
            if over {
                return Some(false);
            }
            (is_mount_point(&mount) && self.umbrella(["status", "--json"]).status.success()).then_some(true)
        });
        if ready == Some(true) {
            return Ok(());
        }
        self.kill_9();
        unmount(&mount);
        let log = self.log();
        Err(log.get(before..).unwrap_or_default().to_owned())
    }

    fn mount_stand_in(&self, stand_in: StandIn) {
        let paths: Vec<_> = self.spec.branches.iter().map(|(_, path, _)| path.display().to_string()).collect();
        let mount = self.mount_point();
        match stand_in {
            StandIn::Plain => {
                super::run("mount", ["--bind".as_ref(), paths[paths.len() - 1].as_ref(), mount.as_os_str()])
            }
            StandIn::Mergerfs => {
                let options =
                    "cache.files=off,category.create=ff,minfreespace=0,use_ino,allow_other,default_permissions";
                super::run("mergerfs", ["-o".as_ref(), options.as_ref(), paths.join(":").as_ref(), mount.as_os_str()])
            }
        };
    }

    /// Process id of the daemon.
    pub fn pid(&self) -> u32 {
        self.daemon.as_ref().expect("the pool is mounted").id()
    }

    /// Kills the daemon without warning and removes the dead mount.
    pub fn kill_9(&mut self) {
        self.guard.store(0, Ordering::SeqCst);
        if let Some(mut child) = self.daemon.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = Command::new("umount").arg("-q").arg("-l").arg(self.mount_point()).output();
    }

    /// Waits for the daemon to end by itself; whether it ended well.
    pub fn wait_for_end(&mut self) -> Option<bool> {
        let mut child = self.daemon.take().expect("the pool is mounted");
        let end = poll(TIMEOUT, || child.try_wait().unwrap());
        if end.is_none() {
            self.daemon = Some(child);
            return None;
        }
        self.guard.store(0, Ordering::SeqCst);
        end.map(|status| status.success())
    }

    /// Unmounts through the binary, and waits until the daemon is gone.
    #[track_caller]
    pub fn stop(&mut self) {
        if stand_in().is_some() {
            return unmount(&self.mount_point());
        }
        // A process that another test starts holds a copy of our files until it runs its program.
        let mut output = self.umbrella(["unmount"]);
        poll(TIMEOUT, || {
            if text(&output).contains("busy") {
                output = self.umbrella(["unmount"]);
                return None;
            }
            Some(())
        });
        assert!(output.status.success(), "umbrella unmount: {}", text(&output));
        assert_eq!(self.wait_for_end(), Some(true), "the daemon ends well after umbrella unmount\n{}", self.log());
        assert!(!is_mount_point(&self.mount_point()), "umbrella unmount leaves no mount");
    }

    /// Unmounts and mounts again.
    #[track_caller]
    pub fn remount(&mut self) {
        self.stop();
        self.start();
    }

    /// Runs the binary.
    pub fn umbrella<I, S>(&self, args: I) -> Output
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        self.command().args(args).output().expect("the binary can be started")
    }

    /// Runs the binary, which must succeed, and gives what it printed.
    #[track_caller]
    pub fn say<I, S>(&self, args: I) -> String
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        let args: Vec<_> = args.into_iter().map(|arg| arg.as_ref().to_owned()).collect();
        let output = self.umbrella(&args);
        assert!(output.status.success(), "umbrella {args:?} failed: {}\n{}", text(&output), self.log());
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Runs the binary with `--json`, which must succeed, and gives every object it printed.
    #[track_caller]
    pub fn json<I, S>(&self, args: I) -> Vec<Value>
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        let mut args: Vec<_> = args.into_iter().map(|arg| arg.as_ref().to_owned()).collect();
        args.push("--json".into());
        let printed = self.say(&args);
        serde_json::Deserializer::from_str(&printed)
            .into_iter::<Value>()
            .collect::<Result<Vec<_>, _>>()
            .unwrap_or_else(|error| panic!("umbrella {args:?} prints no JSON ({error}): {printed}"))
    }

    /// The last object that a command printed.
    #[track_caller]
    fn answer<T: serde::de::DeserializeOwned>(&self, args: &[&OsStr]) -> T {
        let last = self.json(args).pop().unwrap_or_else(|| panic!("umbrella {args:?} printed nothing"));
        serde_json::from_value(last.clone()).unwrap_or_else(|error| panic!("umbrella {args:?}: {error} in {last}"))
    }

    /// `umbrella status`.
    #[track_caller]
    pub fn status(&self) -> Status {
        self.answer(&["status".as_ref()])
    }

    /// One branch in `umbrella status`.
    #[track_caller]
    pub fn branch_status(&self, name: &str) -> BranchStatus {
        let branches = self.status().branches;
        branches
            .into_iter()
            .find(|branch| branch.name == name)
            .unwrap_or_else(|| panic!("no branch {name:?} in the status"))
    }

    /// Whether a branch is in use.
    pub fn is_online(&self, name: &str) -> bool {
        self.branch_status(name).state == BranchState::Online
    }

    /// A counter of `umbrella status`.
    #[track_caller]
    pub fn metric(&self, name: &str) -> u64 {
        let metrics = self.status().metrics;
        *metrics.get(name).unwrap_or_else(|| panic!("no metric {name:?}; there are {:?}", metrics.keys()))
    }

    /// Files that moved since the mount, over all branches.
    pub fn moves(&self) -> u64 {
        self.status().branches.iter().map(|branch| branch.files_moved_in).sum()
    }

    /// `umbrella explain`.
    #[track_caller]
    pub fn explain(&self, path: impl AsRef<Path>) -> Explanation {
        let path = self.join(path);
        self.answer(&["explain".as_ref(), path.as_os_str()])
    }

    /// The branch that holds a file, and no other does.
    #[track_caller]
    pub fn branch_of(&self, path: impl AsRef<Path>) -> String {
        let explanation = self.explain(path.as_ref());
        assert_eq!(explanation.on.len(), 1, "{} is on one branch: {explanation:?}", path.as_ref().display());
        explanation.on[0].clone()
    }

    /// Branches whose directory holds this name, seen past the mount.
    pub fn found_on(&self, path: impl AsRef<Path>) -> Vec<String> {
        let holds = |(name, root, _): &(String, PathBuf, String)| {
            fs::symlink_metadata(root.join(path.as_ref())).is_ok().then(|| name.clone())
        };
        self.spec.branches.iter().filter_map(holds).collect()
    }

    /// Fails unless the file comes to be on this branch alone (a close reports before its relocation begins).
    #[track_caller]
    pub fn expect_on(&self, branch: &str, path: impl AsRef<Path>) {
        if stand_in().is_some() {
            return;
        }
        let path = path.as_ref();
        let arrived = poll(TIMEOUT, || (self.found_on(path) == [branch]).then_some(()));
        if arrived.is_none() {
            let explanation = self.umbrella(["explain".as_ref(), self.join(path).as_os_str()]);
            panic!(
                "{} is on {:?}, expected {branch:?} alone\n{}\n{}",
                path.display(),
                self.found_on(path),
                text(&explanation),
                self.log()
            );
        }
        assert_eq!(self.branch_of(path), branch, "explain says where {} is", path.display());
    }

    /// Fails unless the file is on this branch alone, also after everything that was pending is done.
    #[track_caller]
    pub fn expect_stays_on(&self, branch: &str, path: impl AsRef<Path>) {
        self.settle();
        assert_eq!(self.found_on(path.as_ref()), [branch], "{} stays where it is", path.as_ref().display());
    }

    /// Waits until no relocation is pending, and the daemon has no more files open than this process. The kernel
    /// reports the last close a moment after `close` returned. Where other processes have files open, or files are
    /// mapped, many quiet looks in a row do.
    #[track_caller]
    pub fn settle(&self) {
        if stand_in().is_some() {
            return;
        }
        let mut quiet = 0;
        let mut seen = None;
        let settled = poll(2 * TIMEOUT, || {
            let status = self.status();
            let pending = *status
                .metrics
                .get("umbrella_relocations_pending_count")
                .expect("the status counts pending relocations");
            let now = (pending, status.open_files);
            quiet = if pending == 0 && seen == Some(now) { quiet + 1 } else { 0 };
            seen = Some(now);
            let looks = if status.open_files <= self.open_here() { 3 } else { 50 };
            (quiet >= looks).then_some(())
        });
        assert!(settled.is_some(), "relocations are still pending: {seen:?}\n{}", self.log());
    }

    /// Files of the pool that this process has open.
    fn open_here(&self) -> u64 {
        let mount = self.mount_point();
        let descriptors = fs::read_dir("/proc/self/fd").unwrap();
        let is_below =
            |descriptor: &fs::DirEntry| fs::read_link(descriptor.path()).is_ok_and(|it| it.starts_with(&mount));
        descriptors.flatten().filter(is_below).count() as u64
    }

    /// Waits until the pool knows how much room there is: it asks a branch ten times a second at most.
    #[track_caller]
    pub fn settle_room(&self) {
        let reported = |name: &str| {
            let status = self.branch_status(name);
            (status.free.0, status.files_used)
        };
        let is_known = |(name, root, _): &(String, PathBuf, String)| {
            let room = rustix::fs::statvfs(root).unwrap();
            reported(name) == (room.f_bavail * room.f_frsize, Some(room.f_files - room.f_favail))
        };
        super::eventually("the room is known", || self.spec.branches.iter().all(is_known));
    }

    /// Waits until nobody has a file open any more, and no relocation is pending. The daemon learns of a close later
    /// than who closed.
    #[track_caller]
    pub fn settle_closed(&self) {
        if stand_in().is_some() {
            return;
        }
        super::eventually("every file is closed", || self.status().open_files == 0);
        self.settle();
    }

    /// `umbrella enforce`: its totals. It ends with 1 when a file could not be moved.
    #[track_caller]
    pub fn enforce(&self) -> EnforceSummary {
        if stand_in().is_some() {
            return EnforceSummary::default();
        }
        let output = self.umbrella(["enforce", "--json"]);
        let printed = String::from_utf8_lossy(&output.stdout);
        let summary: Option<EnforceSummary> = printed.lines().last().and_then(|line| serde_json::from_str(line).ok());
        let summary = summary.unwrap_or_else(|| panic!("umbrella enforce --json: {}\n{}", text(&output), self.log()));
        assert_eq!(
            output.status.success(),
            summary.files_failed == 0 && summary.files_no_room == 0,
            "the exit code says whether a file failed: {summary:?}"
        );
        summary
    }

    /// `umbrella enforce --dry-run`: what would move, and the totals.
    #[track_caller]
    pub fn enforce_dry_run(&self) -> (Vec<MoveEvent>, EnforceSummary) {
        // It ends with 1 where files would find no room.
        let output = self.umbrella(["enforce", "--dry-run", "--json"]);
        let printed = serde_json::Deserializer::from_slice(&output.stdout).into_iter::<Value>();
        let mut printed: Vec<Value> = printed.collect::<Result<_, _>>().expect("umbrella enforce prints JSON");
        let last = printed.pop().expect("umbrella enforce --dry-run prints its totals");
        let summary = serde_json::from_value(last).expect("the totals come last");
        let events = printed
            .into_iter()
            .filter_map(|value| {
                let event = value.get("event").cloned().unwrap_or(value);
                serde_json::from_value(event).ok()
            })
            .collect();
        (events, summary)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if thread::panicking() || std::env::var_os("UMBRELLA_TEST_KEEP_LOG").is_some() {
            let log = self.log();
            let lines: Vec<_> = log.lines().collect();
            let tail = lines.len().saturating_sub(60);
            eprintln!("--- the end of the daemon's log\n{}\n---", lines[tail..].join("\n"));
        }
        if self.daemon.is_some() {
            if let Ok(mut child) = self.command().arg("unmount").stdout(Stdio::null()).stderr(Stdio::null()).spawn() {
                end_within(&mut child, Duration::from_secs(10));
            }
            if let Some(mut daemon) = self.daemon.take() {
                end_within(&mut daemon, Duration::from_secs(5));
            }
        }
        self.guard.store(0, Ordering::SeqCst);
        unmount(&self.mount_point());
        // A daemon that was killed leaves its staging area.
        for area in mounts_below(self.dir()) {
            let _ = Command::new("umount").arg("-q").arg("-l").arg(area).output();
        }
    }
}

/// Waits for a process, and kills it when it takes too long. One with a thread in a call to a branch that hangs does
/// not even end then.
fn end_within(child: &mut Child, limit: Duration) {
    if poll(limit, || child.try_wait().ok().flatten()).is_none() {
        let _ = child.kill();
        poll(limit, || child.try_wait().ok().flatten());
    }
}

fn mounts_below(dir: &Path) -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    // The name of a state directory has backslashes, which the kernel escapes.
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(4)).map(|point| point.replace(r"\134", r"\"));
    points.map(PathBuf::from).filter(|point| point.starts_with(dir)).collect()
}

/// What a command printed, both streams.
pub fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), said(output))
}
