//! Branches are drained, removed and added, rules are loaded and the enforcer walks, all at once and under writers:
//! each sees what it wrote, and nothing else.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::names;
use crate::support::choices::Choices;
use crate::support::disk::Disk;
use crate::support::pool::{Pool, text};
use crate::support::tree::files_below;
use crate::support::{KIB, MIB, bytes, number_from_env};

const ATMOST: Duration = Duration::from_secs(90);

const RULES: [&str; 3] = [
    "[[rule]]\nname = \"large\"\nwhen = { size = \">= 100KiB\" }\nto = [\"b\", \"any\"]\n",
    "[[rule]]\nname = \"by name\"\nmatch = [{ glob = \"/**/*1\", to = [\"b\", \"any\"] }, { glob = \"/**/*2\", to = [\"c\", \"any\"] }]\n",
    "[[rule]]\nname = \"by name\"\nmatch = [{ glob = \"/1/**\", to = [\"c\", \"any\"] }, { glob = \"/**/*[02468]\", to = [\"b\", \"any\"] }]\n",
];

/// Works in a directory of its own, and knows what is to be there. Directories are relative to it, files too.
struct Writer {
    root: PathBuf,
    choices: Choices,
    dirs: Vec<PathBuf>,
    files: BTreeMap<PathBuf, Vec<u8>>,
}

impl Writer {
    fn new(pool: &Pool, number: u64, seed: u64) -> Writer {
        let root = pool.join(number.to_string());
        fs::create_dir(&root).unwrap();
        Writer { root, choices: Choices::new(seed * 10 + number), dirs: vec![PathBuf::new()], files: BTreeMap::new() }
    }

    fn below(&self, path: &Path) -> PathBuf {
        self.root.join(path)
    }

    fn some_file(&mut self) -> Option<PathBuf> {
        let known: Vec<_> = self.files.keys().cloned().collect();
        (!known.is_empty()).then(|| self.choices.pick(&known))
    }

    fn new_name(&mut self) -> PathBuf {
        let dir = self.choices.pick(&self.dirs);
        dir.join(format!("f{}", self.choices.below(12)))
    }

    fn content(&mut self) -> Vec<u8> {
        let length = self.choices.pick(&[10, 30 * KIB, 120 * KIB, 400 * KIB]);
        bytes(self.choices.next(), length)
    }

    fn look(&self, path: &Path) {
        let (found, expected) = (fs::read(self.below(path)).unwrap(), &self.files[path]);
        assert!(found == *expected, "{}: {} bytes for {}", self.below(path).display(), found.len(), expected.len());
    }

    fn look_at_all(&self) {
        let found = files_below(&self.root);
        let known: Vec<_> = self.files.keys().cloned().collect();
        assert_eq!(found, known, "names below {}", self.root.display());
        for path in &known {
            self.look(path);
        }
    }

    fn step(&mut self) {
        let Some(file) = self.some_file() else { return self.create() };
        match self.choices.below(10) {
            0..=2 => self.create(),
            3 => {
                let more = self.content();
                let open = OpenOptions::new().append(true).open(self.below(&file)).unwrap();
                std::io::Write::write_all(&mut &open, &more).unwrap();
                let content = self.files.get_mut(&file).unwrap();
                content.extend(more);
                if content.len() as u64 > MIB {
                    content.truncate(1000);
                    open.set_len(1000).unwrap();
                }
                self.look(&file);
            }
            4 => {
                let to = self.new_name();
                fs::rename(self.below(&file), self.below(&to)).unwrap();
                let content = self.files.remove(&file).unwrap();
                self.files.insert(to.clone(), content);
                self.look(&to);
            }
            5 => {
                fs::remove_file(self.below(&file)).unwrap();
                self.files.remove(&file);
                assert!(!self.below(&file).exists());
            }
            6 => {
                let other = self.some_file().unwrap();
                if other != file {
                    renameat_with(CWD, self.below(&file), CWD, self.below(&other), RenameFlags::EXCHANGE).unwrap();
                    let content = self.files.remove(&file).unwrap();
                    let others = self.files.insert(other.clone(), content).unwrap();
                    self.files.insert(file.clone(), others);
                    self.look(&other);
                }
                self.look(&file);
            }
            7 => self.write_in_place(&file),
            8 => self.directories(),
            _ => {
                let dir = file.parent().unwrap();
                let children = self.files.keys().chain(&self.dirs).filter(|path| path.parent() == Some(dir));
                let mut expected: Vec<_> =
                    children.map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect();
                expected.sort();
                assert_eq!(names(&self.below(dir)), expected, "{}", self.below(dir).display());
            }
        }
    }

    fn create(&mut self) {
        let (path, content) = (self.new_name(), self.content());
        fs::write(self.below(&path), &content).unwrap();
        self.files.insert(path.clone(), content);
        self.look(&path);
    }

    /// Some writes through one descriptor, with time between them for others.
    fn write_in_place(&mut self, path: &Path) {
        let file = OpenOptions::new().read(true).write(true).open(self.below(path)).unwrap();
        let content = self.files.get_mut(path).unwrap();
        for _ in 0..self.choices.below(4) {
            let at = self.choices.below(content.len() as u64 + 5000) as usize;
            let data = bytes(self.choices.next(), 3000);
            file.write_all_at(&data, at as u64).unwrap();
            content.resize(content.len().max(at + data.len()), 0);
            content[at..at + data.len()].copy_from_slice(&data);
            thread::sleep(Duration::from_millis(self.choices.below(10)));
        }
        let mut found = vec![0; content.len()];
        file.read_exact_at(&mut found, 0).unwrap();
        assert!(found == *content, "{}", self.below(path).display());
        file.sync_all().unwrap();
    }

    fn directories(&mut self) {
        let new = self.choices.pick(&self.dirs).join(format!("d{}", self.choices.below(4)));
        if self.dirs.contains(&new) || new.components().count() > 4 {
            return;
        }
        let old = self.choices.pick(&self.dirs);
        if old == Path::new("") || new.starts_with(&old) {
            fs::create_dir(self.below(&new)).unwrap();
            self.dirs.push(new);
            return;
        }
        fs::rename(self.below(&old), self.below(&new)).unwrap();
        let moved = |path: &PathBuf| {
            path.strip_prefix(&old).map_or_else(|_| path.clone(), |rest| new.join(rest).components().collect())
        };
        self.dirs = self.dirs.iter().map(moved).collect();
        self.files =
            std::mem::take(&mut self.files).into_iter().map(|(path, content)| (moved(&path), content)).collect();
        self.files.keys().filter(|path| path.starts_with(&new)).take(3).for_each(|path| self.look(path));
    }
}

/// Empties a disk that was removed from the pool, on which only directories may be.
fn empty(disk: &Disk) {
    assert_eq!(disk.files(), Vec::<PathBuf>::new(), "removed although it holds files");
    for entry in fs::read_dir(disk.path()).unwrap().map(Result::unwrap).filter(|entry| entry.file_name() != ".umbrella")
    {
        fs::remove_dir_all(entry.path()).unwrap();
    }
}

#[test]
fn branches_and_rules_may_change_all_at_once_under_writers() {
    let seed = number_from_env("UMBRELLA_SEED", 1);
    println!("UMBRELLA_SEED={seed}");
    let disks = [Disk::ext4(256 * MIB), Disk::xfs(320 * MIB), Disk::ext4(256 * MIB)];
    let [a, b, c] = &disks;
    let mut pool = Pool::builder()
        .branches([("a", a.path()), ("b", b.path())])
        .branch_with("c", c.path(), "optional = true")
        .default(&["a", "any"])
        .keys("cache_timeout = \"0s\"")
        .rules(RULES[0])
        .mount();
    let writers: Vec<_> = (0..3).map(|number| Writer::new(&pool, number, seed)).collect();
    let (stop, removals) = (AtomicBool::new(false), AtomicU64::new(0));
    let goes_on = || !stop.load(Ordering::Relaxed);
    let say = |args: &[&str]| pool.umbrella(args.iter().chain(&["--pool", pool.mount_point().to_str().unwrap()]));
    let succeeds = |args: &[&str]| say(args).status.success();
    let must_succeed = |args: &[&str]| {
        let done = say(args);
        assert!(done.status.success(), "{args:?}: {}\n{}", text(&done), pool.log());
    };
    let writers = thread::scope(|threads| {
        threads.spawn(|| {
            while goes_on() {
                say(&["branch", "drain", "b"]);
                must_succeed(&["branch", "drain", "b", "--stop"]);
                thread::sleep(Duration::from_millis(300));
            }
        });
        threads.spawn(|| {
            while goes_on() {
                if succeeds(&["branch", "drain", "c"]) && succeeds(&["branch", "remove", "c"]) {
                    empty(c);
                    let path = c.path();
                    must_succeed(&["branch", "add", "c", path.to_str().unwrap(), "--optional"]);
                    removals.fetch_add(1, Ordering::Relaxed);
                    thread::sleep(Duration::from_millis(300));
                }
            }
            say(&["branch", "drain", "c", "--stop"]);
        });
        threads.spawn(|| {
            let base = fs::read_to_string(pool.config_path()).unwrap().replace(RULES[0], "");
            for round in (1..RULES.len()).cycle().take_while(|_| goes_on()) {
                let path = pool.dir().join("other.toml");
                fs::write(&path, format!("{base}\n{}", RULES[round])).unwrap();
                // Refused while a branch that it names is removed.
                say(&["rules", "reload", path.to_str().unwrap()]);
                let done = text(&pool.umbrella(["enforce".as_ref(), pool.mount_point().as_os_str()]));
                // From the removed branch directories are deleted under moves to it.
                let mut failed = done.lines().filter(|line| line.starts_with("failed"));
                assert!(failed.all(|line| line.contains(" -> c ")), "{done}");
            }
        });
        let working: Vec<_> = writers
            .into_iter()
            .map(|mut writer| {
                threads.spawn(|| {
                    while goes_on() {
                        writer.step();
                    }
                    writer
                })
            })
            .collect();
        let begun = Instant::now();
        while goes_on() && begun.elapsed() < ATMOST && !working.iter().any(thread::ScopedJoinHandle::is_finished) {
            if begun.elapsed() > Duration::from_secs(8) && removals.load(Ordering::Relaxed) >= 3 {
                break;
            }
            thread::sleep(Duration::from_millis(100));
        }
        stop.store(true, Ordering::Relaxed);
        working.into_iter().map(|writer| writer.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(removals.into_inner() > 0, "no branch was ever removed: {}", pool.log());
    writers.iter().for_each(Writer::look_at_all);
    pool.remount();
    writers.iter().for_each(Writer::look_at_all);
    pool.stop();
    let known: usize = writers.iter().map(|writer| writer.files.len()).sum();
    assert_eq!(disks.iter().map(|disk| disk.files().len()).sum::<usize>(), known, "every file once");
}
