//! The daemon is killed at random moments while files move and names change. Whatever was acknowledged is there after
//! the next mount, every file once and whole, and nothing half-made is visible. `UMBRELLA_CRASH_ROUNDS` sets how often,
//! `UMBRELLA_CRASH_SEED` where it begins.
#![allow(
    clippy::duration_suboptimal_units,
    clippy::unnecessary_debug_formatting,
    reason = "days are written as seconds"
)]

mod support;

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, RenameFlags};
use support::choices::Choices;
use support::disk::Disk;
use support::pool::Pool;
use support::tree::files_below;
use support::{KIB, MIB, bytes, number_from_env};

/// Names that end in `.b` and files of 64 KiB and more are on `b`, all others on `a`.
const RULES: &str = r#"
[[rule]]
name = "large"
when = { size = ">= 64KiB" }
to = ["b", "default", "any"]
[[rule]]
name = "by name"
match = [{ glob = "/**.b", to = ["b", "default", "any"] }]
"#;

/// Files and what they hold, by path inside the mount. Directories are not kept: they come and go with their files.
type Files = BTreeMap<PathBuf, Vec<u8>>;

/// What a worker was at when the daemon died.
#[derive(Debug, Clone)]
enum InFlight {
    Nothing,
    /// It is either not done or done.
    Change {
        after: Files,
    },
    /// The file has grown by none, some or all of it.
    Append {
        path: PathBuf,
        whole: Vec<u8>,
    },
}

/// Works in a directory of its own, and knows what must be there.
#[derive(Debug)]
struct Worker {
    root: PathBuf,
    files: Files,
    in_flight: InFlight,
    choices: Choices,
    serial: u64,
}

impl Worker {
    fn new(root: &str, seed: u64) -> Self {
        Self {
            root: root.into(),
            files: Files::new(),
            in_flight: InFlight::Nothing,
            choices: Choices::new(seed),
            serial: 0,
        }
    }

    /// A name that was never used, in one of two directories that both branches hold.
    fn new_name(&mut self) -> PathBuf {
        self.serial += 1;
        let dir = self.choices.pick(&["x", "y"]);
        let suffix = self.choices.pick(&["", ".b"]);
        let dirs: Vec<_> = self.files.keys().filter_map(|path| path.parent()).map(Path::to_owned).collect();
        // Renamed directories are used on as long as they hold anything.
        let dir =
            if dirs.is_empty() || self.choices.once_in(3) { self.root.join(dir) } else { self.choices.pick(&dirs) };
        dir.join(format!("file-{}{suffix}", self.serial))
    }

    fn old_name(&mut self) -> Option<PathBuf> {
        let names: Vec<_> = self.files.keys().cloned().collect();
        (!names.is_empty()).then(|| self.choices.pick(&names))
    }

    fn content(&mut self) -> Vec<u8> {
        let length = self.choices.pick(&[0, 100, 5_000, 60 * KIB, 70 * KIB, 300 * KIB]);
        bytes(self.choices.next(), length)
    }

    /// Does one thing. An error means that the daemon is gone, and `in_flight` says what was at stake.
    fn step(&mut self, mount: &Path) -> io::Result<()> {
        let choice = if self.files.len() < 5 {
            0
        } else if self.files.len() > 25 {
            9
        } else {
            self.choices.below(10)
        };
        match choice {
            0 | 1 => self.create(mount),
            2 | 3 => self.append(mount),
            4 | 5 => self.rename(mount),
            6 => self.exchange(mount),
            7 => self.replace(mount),
            8 if self.choices.once_in(2) => self.exchange_dirs(mount),
            8 => self.rename_dir(mount),
            _ => self.remove(mount),
        }
    }

    /// Marks what is at stake, does it, and takes it as done.
    fn change(&mut self, after: Files, work: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        self.in_flight = InFlight::Change { after: after.clone() };
        work()?;
        self.files = after;
        self.in_flight = InFlight::Nothing;
        Ok(())
    }

    /// The first write of a file may be cut anywhere; the file is taken as kept when fsync has said so.
    fn create(&mut self, mount: &Path) -> io::Result<()> {
        let (path, data) = (self.new_name(), self.content());
        self.in_flight = InFlight::Append { path: path.clone(), whole: data.clone() };
        fs::create_dir_all(mount.join(path.parent().unwrap()))?;
        let mut file = File::create(mount.join(&path))?;
        file.write_all(&data)?;
        file.sync_all()?;
        self.files.insert(path, data);
        self.in_flight = InFlight::Nothing;
        drop(file);
        Ok(())
    }

    fn append(&mut self, mount: &Path) -> io::Result<()> {
        let Some(path) = self.old_name() else { return Ok(()) };
        let mut whole = self.files[&path].clone();
        whole.extend(self.content());
        whole.truncate(400 * KIB as usize);
        let new = whole[self.files[&path].len()..].to_vec();
        self.in_flight = InFlight::Append { path: path.clone(), whole: whole.clone() };
        let mut file = OpenOptions::new().append(true).open(mount.join(&path))?;
        file.write_all(&new)?;
        file.sync_all()?;
        self.files.insert(path, whole);
        self.in_flight = InFlight::Nothing;
        Ok(())
    }

    fn rename(&mut self, mount: &Path) -> io::Result<()> {
        let (Some(from), to) = (self.old_name(), self.new_name()) else { return Ok(()) };
        fs::create_dir_all(mount.join(to.parent().unwrap()))?;
        let mut after = self.files.clone();
        let data = after.remove(&from).unwrap();
        after.insert(to.clone(), data);
        self.change(after, || fs::rename(mount.join(from), mount.join(to)))
    }

    /// Renames over a file that is there.
    fn replace(&mut self, mount: &Path) -> io::Result<()> {
        let (Some(from), Some(to)) = (self.old_name(), self.old_name()) else { return Ok(()) };
        if from == to {
            return Ok(());
        }
        let mut after = self.files.clone();
        let data = after.remove(&from).unwrap();
        after.insert(to.clone(), data);
        self.change(after, || fs::rename(mount.join(from), mount.join(to)))
    }

    fn exchange(&mut self, mount: &Path) -> io::Result<()> {
        let (Some(one), Some(other)) = (self.old_name(), self.old_name()) else { return Ok(()) };
        let mut after = self.files.clone();
        after.insert(one.clone(), self.files[&other].clone());
        after.insert(other.clone(), self.files[&one].clone());
        self.change(after, || {
            Ok(rustix::fs::renameat_with(CWD, mount.join(one), CWD, mount.join(other), RenameFlags::EXCHANGE)?)
        })
    }

    /// Renames a directory that both branches hold, with everything in it.
    fn rename_dir(&mut self, mount: &Path) -> io::Result<()> {
        let Some(path) = self.old_name() else { return Ok(()) };
        let from = path.parent().unwrap().to_owned();
        self.serial += 1;
        let to = self.root.join(format!("dir-{}", self.serial));
        let after = self
            .files
            .iter()
            .map(|(path, data)| match path.strip_prefix(&from) {
                Ok(rest) => (to.join(rest), data.clone()),
                Err(_) => (path.clone(), data.clone()),
            })
            .collect();
        self.change(after, || fs::rename(mount.join(from), mount.join(to)))
    }

    /// Exchanges two directories, whichever branches hold them.
    fn exchange_dirs(&mut self, mount: &Path) -> io::Result<()> {
        let (Some(one), Some(other)) = (self.old_name(), self.old_name()) else { return Ok(()) };
        let [one, other] = [one, other].map(|path| path.parent().unwrap().to_owned());
        if one == other {
            return Ok(());
        }
        let new_name = |path: &Path| {
            let new = [(&one, &other), (&other, &one)]
                .into_iter()
                .find_map(|(old, new)| Some(new.join(path.strip_prefix(old).ok()?)));
            new.unwrap_or_else(|| path.to_owned())
        };
        let after = self.files.iter().map(|(path, data)| (new_name(path), data.clone())).collect();
        self.change(after, || {
            Ok(rustix::fs::renameat_with(CWD, mount.join(&one), CWD, mount.join(&other), RenameFlags::EXCHANGE)?)
        })
    }

    fn remove(&mut self, mount: &Path) -> io::Result<()> {
        let Some(path) = self.old_name() else { return Ok(()) };
        let mut after = self.files.clone();
        after.remove(&path);
        self.change(after, || fs::remove_file(mount.join(path)))
    }

    /// Compares what is there with what must be, and takes what was found as the truth from now on.
    fn check(&mut self, mount: &Path) {
        let found: Files = files_below(&mount.join(&self.root))
            .into_iter()
            .map(|path| self.root.join(path))
            .map(|path| {
                let data = fs::read(mount.join(&path)).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
                (path, data)
            })
            .collect();
        let right = match &self.in_flight {
            InFlight::Nothing => found == self.files,
            InFlight::Change { after } => found == self.files || found == *after,
            InFlight::Append { path, whole } => {
                let before = self.files.get(path);
                let grown = match (before, found.get(path)) {
                    (None, None) => true,
                    (before, Some(data)) => data.len() >= before.map_or(0, Vec::len) && whole.starts_with(data),
                    (Some(_), None) => false,
                };
                let others = |files: &Files| {
                    let mut files = files.clone();
                    files.remove(path);
                    files
                };
                grown && others(&found) == others(&self.files)
            }
        };
        assert!(right, "{}", self.difference(&found));
        self.files = found;
        self.in_flight = InFlight::Nothing;
    }

    fn difference(&self, found: &Files) -> String {
        use std::fmt::Write;
        let sizes =
            |files: &Files| files.iter().map(|(path, data)| (path.clone(), data.len())).collect::<BTreeMap<_, _>>();
        let mut text = String::new();
        for (path, data) in &self.files {
            match found.get(path) {
                None => writeln!(text, "  missing: {} ({} bytes)", path.display(), data.len()).unwrap(),
                Some(other) if other != data => {
                    writeln!(text, "  differs: {} ({} bytes, {} found)", path.display(), data.len(), other.len())
                        .unwrap();
                }
                Some(_) => {}
            }
        }
        for (path, data) in found.iter().filter(|(path, _)| !self.files.contains_key(*path)) {
            writeln!(text, "  too many: {} ({} bytes)", path.display(), data.len()).unwrap();
        }
        let in_flight = match &self.in_flight {
            InFlight::Nothing => "nothing".to_owned(),
            InFlight::Change { after } => format!("a change to {:?}", sizes(after)),
            InFlight::Append { path, whole } => format!("an append to {} up to {} bytes", path.display(), whole.len()),
        };
        format!("in {}: against what was acknowledged\n{text}  in flight: {in_flight}", self.root.display())
    }
}

/// Every file is on one branch only.
fn no_file_twice(disks: &[Disk; 2]) {
    let [a, b] = disks.each_ref().map(Disk::files);
    let twice: Vec<_> = a.iter().filter(|path| b.contains(path)).collect();
    assert!(twice.is_empty(), "on both branches: {twice:?}");
}

fn crash_again_and_again(data: &str, seed: u64, rounds: u64) {
    let disks = [Disk::tmpfs(64 * MIB), Disk::tmpfs(64 * MIB)];
    let mut pool = Pool::builder()
        .branch_with("a", disks[0].path(), data)
        .branch_with("b", disks[1].path(), data)
        .default(&["a"])
        .rules(RULES)
        .limit(Duration::from_secs(600 + 3 * rounds))
        .mount();
    let mut choices = Choices::new(seed);
    let mut workers = [Worker::new("one", seed * 2 + 1), Worker::new("two", seed * 2 + 2)];
    let mut interrupted = 0;
    for round in 0..rounds {
        eprintln!("round {round} of seed {seed}");
        let mount = pool.mount_point();
        let dead = AtomicBool::new(false);
        let wait = Duration::from_micros(choices.below(150_000));
        thread::scope(|scope| {
            for worker in &mut workers {
                let (mount, dead) = (&mount, &dead);
                scope.spawn(move || {
                    while !dead.load(Ordering::SeqCst) {
                        if let Err(error) = worker.step(mount) {
                            // The flag is set before the kill, so what fails earlier is a failure.
                            assert!(dead.load(Ordering::SeqCst), "a step failed: {error}");
                            return;
                        }
                    }
                });
            }
            thread::sleep(wait);
            // From now on anything may fail.
            dead.store(true, Ordering::SeqCst);
            pool.kill_9();
        });
        interrupted += workers.iter().filter(|worker| !matches!(worker.in_flight, InFlight::Nothing)).count();
        pool.start();
        for worker in &mut workers {
            worker.check(&mount);
        }
        no_file_twice(&disks);
        let visible = support::tree::files_below(&mount);
        let known: Vec<_> = workers.iter().flat_map(|worker| worker.files.keys().cloned()).collect();
        assert_eq!(visible.len(), known.len(), "no name is visible that nobody made: {visible:?}");
    }
    pool.settle();
    pool.enforce();
    for worker in &mut workers {
        worker.check(&pool.mount_point());
    }
    no_file_twice(&disks);
    pool.stop();
    for disk in &disks {
        let kept: u64 =
            disk.files().iter().map(|path| fs::metadata(disk.join(path)).unwrap().len().div_ceil(4096) * 4096).sum();
        let used = 64 * MIB - disk.free();
        assert!(used <= kept + MIB, "space is lost: {used} bytes used for files of {kept} bytes");
    }
    assert!(interrupted as u64 >= rounds / 4, "only {interrupted} operations were cut in {rounds} rounds");
}

#[test]
fn nothing_acknowledged_is_lost_when_the_daemon_is_killed() {
    let (seed, rounds) = (number_from_env("UMBRELLA_CRASH_SEED", 1), number_from_env("UMBRELLA_CRASH_ROUNDS", 200));
    crash_again_and_again("passthrough = false", seed, rounds.div_ceil(2));
}

#[test]
fn nothing_acknowledged_is_lost_when_the_daemon_is_killed_with_passthrough() {
    let (seed, rounds) =
        (number_from_env("UMBRELLA_CRASH_SEED", 1) + 1_000, number_from_env("UMBRELLA_CRASH_ROUNDS", 200));
    crash_again_and_again("passthrough = true\nheadroom = 0", seed, rounds / 2);
}

/// A relocation that is slow enough to be hit in every one of its steps but the last.
#[test]
fn a_kill_in_the_middle_of_a_copy_leaves_the_source() {
    let disks = [Disk::tmpfs(32 * MIB), Disk::tmpfs(32 * MIB)];
    let mut pool = Pool::builder()
        .branches([("a", disks[0].path()), ("b", disks[1].path())])
        .default(&["a"])
        .keys("[enforce]\nbandwidth = \"1MiB\"")
        .mount();
    let data = bytes(1, 12 * MIB);
    fs::write(pool.join("file"), &data).unwrap();
    fs::hard_link(pool.join("file"), pool.join("link")).unwrap();
    let old = std::time::SystemTime::now() - Duration::from_secs(100 * 86_400);
    File::options().write(true).open(pool.join("file")).unwrap().set_modified(old).unwrap();
    pool.settle();
    pool.load_rules("[[rule]]\nname = \"old\"\nwhen = { mtime = \"> 30d\" }\nto = [\"b\", \"default\", \"any\"]\n");
    let before = support::tree::snapshot(&pool.mount_point(), support::tree::Times::Kept);
    for _ in 0..3 {
        let mut walk =
            pool.command().args(["enforce", "--json"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let killed = pool.pid();
        let copies_of = |pid: u32| {
            let mut copies =
                fs::read_dir(pool.on("b", ".umbrella/tmp")).unwrap().map(|entry| entry.unwrap().file_name());
            copies.find(|name| name.to_string_lossy().starts_with(&format!("move-{pid}-")))
        };
        support::eventually("it is being copied, or has been", || {
            copies_of(killed).is_some() || pool.found_on("file") == ["b"]
        });
        pool.kill_9();
        assert!(support::poll(Duration::from_secs(60), || walk.try_wait().unwrap()).is_some());
        pool.start();
        let after = support::tree::snapshot(&pool.mount_point(), support::tree::Times::Kept);
        support::tree::assert_same(&before, &after, "after a kill during the copy");
        assert_eq!(pool.found_on("file").len(), 1);
        // The next copy is under way: what the killed daemon had still to move is looked for at once.
        let mut copies = fs::read_dir(pool.on("b", ".umbrella/tmp")).unwrap().map(|entry| entry.unwrap().file_name());
        let half_made = copies.find(|name| name.to_string_lossy().starts_with(&format!("move-{killed}-")));
        assert_eq!(half_made, None, "the half-made copy is gone");
    }
    pool.expect_on("b", "file");
    pool.expect_on("b", "link");
    assert!(fs::read(pool.join("link")).unwrap() == data);
}

/// All files belong on this branch.
fn all_on(branch: &str) -> String {
    format!("[[rule]]\nname = \"all\"\nmatch = [{{ glob = \"/**\", to = [\"{branch}\"] }}]\n")
}

/// Users continue while thousands of small files move in batches to one branch, then back, and so on, and each walk is
/// cut short.
fn kill_walks(disks: &[Disk; 2], seed: u64, rounds: u64) {
    const FILES: u64 = 2_000;
    let mut pool = Pool::builder()
        .branch_with("a", disks[0].path(), "passthrough = false")
        .branch_with("b", disks[1].path(), "passthrough = false")
        .default(&["a"])
        .rules(&all_on("a"))
        .limit(Duration::from_secs(600 + 30 * rounds))
        .mount();
    let mount = pool.mount_point();
    let (mut choices, mut worker) = (Choices::new(seed), Worker::new("one", seed));
    for number in 0..FILES {
        let path = PathBuf::from(format!("one/{}/file-{number}", number % 20));
        let data = bytes(number, choices.below(3_000));
        fs::create_dir_all(mount.join(path.parent().unwrap())).unwrap();
        fs::write(mount.join(&path), &data).unwrap();
        worker.files.insert(path, data);
    }
    worker.serial = FILES;
    pool.settle_closed();
    let mut cut = 0;
    for round in 0..rounds {
        eprintln!("round {round} of seed {seed}");
        let target = if round.is_multiple_of(2) { "b" } else { "a" };
        pool.load_rules(&all_on(target));
        let mut walk = pool.command().arg("enforce").stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let dead = AtomicBool::new(false);
        // However fast the machine is, the kill comes when this number of files has arrived.
        let (arrived, end) = (choices.below(FILES * 3 / 4) as usize, Instant::now() + Duration::from_secs(5));
        let target = &disks[usize::from(target == "b")];
        thread::scope(|scope| {
            scope.spawn(|| {
                while !dead.load(Ordering::SeqCst) {
                    let done = match worker.choices.below(8) {
                        0 => worker.append(&mount),
                        1 | 2 => worker.rename(&mount),
                        3 => worker.replace(&mount),
                        4 => worker.exchange(&mount),
                        5 if worker.choices.once_in(4) => worker.rename_dir(&mount),
                        5 | 6 => worker.create(&mount),
                        _ => worker.remove(&mount),
                    };
                    if let Err(error) = done {
                        assert!(dead.load(Ordering::SeqCst), "a step failed: {error}");
                        return;
                    }
                }
            });
            while target.files().len() < arrived && Instant::now() < end && walk.try_wait().unwrap().is_none() {}
            dead.store(true, Ordering::SeqCst);
            pool.kill_9();
        });
        assert!(support::poll(Duration::from_secs(60), || walk.try_wait().unwrap()).is_some());
        cut += u64::from(disks.iter().all(|disk| !disk.files().is_empty()));
        pool.start();
        worker.check(&mount);
    }
    pool.settle();
    pool.enforce();
    worker.check(&mount);
    no_file_twice(disks);
    pool.stop();
    for disk in disks {
        let left = fs::read_dir(disk.join(".umbrella/tmp")).unwrap().count()
            + fs::read_dir(disk.join(".umbrella/intents")).unwrap().count();
        assert_eq!(left, 0, "nothing half-made is left");
    }
    assert!(cut > rounds / 3, "only {cut} of {rounds} walks were cut short");
}

#[test]
fn a_kill_under_a_walk_of_thousands_of_small_files_loses_none_and_doubles_none() {
    let (seed, rounds) = (number_from_env("UMBRELLA_CRASH_SEED", 1), number_from_env("UMBRELLA_CRASH_ROUNDS", 200));
    kill_walks(&[Disk::tmpfs(64 * MIB), Disk::tmpfs(64 * MIB)], seed + 2_000, rounds.div_ceil(20));
    kill_walks(&[Disk::ext4(256 * MIB), Disk::ext4(256 * MIB)], seed + 3_000, rounds.div_ceil(20));
}
