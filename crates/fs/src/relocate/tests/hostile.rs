//! Intents that somebody else wrote, and hidden directories that are not what they should be.

use std::os::unix::fs::symlink;

use crate::relocate::tests::*;

fn put(pool: &Pool, name: &str, bytes: &[u8]) {
    fs::write(pool.a.join(".umbrella/intents").join(name), bytes).unwrap();
}

fn names(pool: &Pool) -> Vec<String> {
    let mut names: Vec<_> =
        pool.hidden_files().iter().map(|path| path.file_name().unwrap().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn a_branch_without_hidden_directories_has_nothing_to_recover() {
    let pool = Pool::new();
    fs::remove_dir_all(pool.a.join(".umbrella")).unwrap();
    fs::remove_dir_all(pool.b.join(".umbrella/intents")).unwrap();
    fs::write(pool.b.join(".umbrella/tmp/left"), "").unwrap();
    assert_eq!(pool.recover(), Recovery { leftovers: 1, ..Recovery::default() });
}

/// What a kill leaves of a trial of what the file system keeps.
#[test]
fn a_directory_with_files_that_was_left_behind_is_removed() {
    let pool = Pool::new();
    let trial = pool.a.join(".umbrella/tmp/trial-1");
    fs::create_dir(&trial).unwrap();
    fs::write(trial.join("first"), "").unwrap();
    std::os::unix::fs::symlink("/", trial.join("symlink")).unwrap();
    assert_eq!(pool.recover(), Recovery { leftovers: 1, ..Recovery::default() });
    assert!(!trial.exists());
}

#[test]
fn a_damaged_intent_is_kept_aside_and_copies_with_it() {
    let pool = Pool::new();
    put(&pool, "1", b"UMBRINT\0 damaged");
    fs::write(pool.b.join(".umbrella/tmp/copy"), "maybe needed").unwrap();
    for _ in 0..2 {
        let report = pool.recover();
        assert_eq!((report.finished, report.undone, report.leftovers), (0, 0, 0));
        assert!(!report.warnings.is_empty());
        assert_eq!(names(&pool), ["bad-1", "copy"]);
    }
    fs::remove_file(pool.a.join(".umbrella/intents/bad-1")).unwrap();
    assert_eq!(pool.recover().leftovers, 1);
}

#[test]
fn a_second_damaged_intent_of_the_same_name_does_not_replace_the_first() {
    let pool = Pool::new();
    for content in ["first", "second"] {
        put(&pool, "1", content.as_bytes());
        pool.recover();
    }
    assert_eq!(names(&pool), ["bad-1", "bad-1.1"]);
    assert_eq!(fs::read(pool.a.join(".umbrella/intents/bad-1")).unwrap(), b"first");
}

#[test]
fn an_intent_of_a_newer_program_waits() {
    let pool = Pool::new();
    let intent = Intent::RenameDir {
        from: b"a".into(),
        to: b"b".into(),
        branches: vec![A],
        replaced: false,
        verdict: Verdict::Open,
    };
    put(&pool, "1", &super::format::of_version_2(&intent));
    assert_eq!(pool.recover().pending, 1);
    assert_eq!(names(&pool), ["1"]);
}

#[test]
fn things_that_are_no_files_are_set_aside() {
    let pool = Pool::new();
    let intents = pool.a.join(".umbrella/intents");
    symlink("/etc/passwd", intents.join("1")).unwrap();
    rustix::fs::mknodat(CWD, intents.join("2"), rustix::fs::FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    fs::create_dir(intents.join("3")).unwrap();
    fs::File::create(intents.join("4")).unwrap().set_len(1 << 40).unwrap();
    let report = pool.recover();
    assert_eq!(report.warnings.len(), 4, "{:?}", report.warnings);
    assert_eq!(names(&pool), ["bad-1", "bad-2", "bad-3", "bad-4"]);
}

#[test]
fn an_intent_cannot_reach_out_of_the_branch_through_a_link() {
    let pool = Pool::new();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("victim"), "data").unwrap();
    fs::write(pool.b.join("victim"), "data").unwrap();
    symlink(outside.path(), pool.a.join("link")).unwrap();
    fs::create_dir(pool.b.join("link")).unwrap();
    fs::write(pool.b.join("link/victim"), "data").unwrap();
    let source = Fingerprint::at(EntryAt { dir: open(outside.path()).as_fd(), name: OsStr::new("victim") }).unwrap();
    let target =
        Fingerprint::at(EntryAt { dir: open(pool.b.join("link")).as_fd(), name: OsStr::new("victim") }).unwrap();
    let hostile =
        Intent::Move { from: A, to: B, names: vec![b"link/victim".into()], temp: b"copy".into(), source, target };
    put(&pool, "1", &hostile.encode().unwrap());
    let report = pool.recover();
    assert_eq!((report.finished, report.warnings.len()), (0, 1), "{:?}", report.warnings);
    assert_eq!(names(&pool), ["bad-1"]);
    assert!(outside.path().join("victim").exists() && pool.b.join("link/victim").exists());
}

#[test]
fn a_hidden_directory_that_is_a_link_is_not_entered() {
    let pool = Pool::new();
    let outside = tempfile::tempdir().unwrap();
    fs::create_dir(outside.path().join("tmp")).unwrap();
    fs::create_dir(outside.path().join("intents")).unwrap();
    fs::write(outside.path().join("tmp/file"), "data").unwrap();
    fs::remove_dir_all(pool.a.join(".umbrella")).unwrap();
    symlink(outside.path(), pool.a.join(".umbrella")).unwrap();
    let (a, b) = (open(&pool.a), open(&pool.b));
    let branches = [
        RecoverBranch { uuid: A, root: a.as_fd(), writable: true },
        RecoverBranch { uuid: B, root: b.as_fd(), writable: true },
    ];
    assert_eq!(recover(&branches).warnings.len(), 2);
    assert!(outside.path().join("tmp/file").exists());
}

#[test]
fn an_intent_that_names_a_whole_file_as_loser_needs_its_identity() {
    let pool = Pool::new();
    fs::write(pool.a.join("winner"), "x").unwrap();
    fs::write(pool.b.join("winner"), "precious").unwrap();
    let at = |root: &Path| Fingerprint::at(EntryAt { dir: open(root).as_fd(), name: OsStr::new("winner") }).unwrap();
    let loser_file = Fingerprint { ino: 1, ..at(&pool.a) };
    let intent = Intent::Supersede {
        from: b"gone".into(),
        to: b"winner".into(),
        winner: A,
        winner_file: at(&pool.a),
        loser: B,
        loser_file,
        verdict: Verdict::Open,
    };
    put(&pool, "1", &intent.encode().unwrap());
    let report = pool.recover();
    assert_eq!(report.warnings.len(), 1);
    assert_eq!(fs::read(pool.b.join("winner")).unwrap(), b"precious");
}

#[test]
fn paths_longer_than_the_kernel_takes_at_once_are_recovered() {
    let pool = Pool::new();
    let depth = 40;
    let name = "d".repeat(200);
    let mut open_dirs = Vec::new();
    for root in [&pool.a, &pool.b] {
        let mut dir = open(root);
        for _ in 0..depth {
            rustix::fs::mkdirat(&dir, &name, Mode::RWXU).unwrap();
            dir = openat(&dir, &name, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        }
        open_dirs.push(dir);
    }
    let [source, target] = open_dirs.try_into().unwrap();
    let file = openat(&source, "file", OFlags::CREATE | OFlags::WRONLY, Mode::RUSR).unwrap();
    rustix::io::write(&file, b"deep").unwrap();
    let path = [vec![name; depth].join("/").as_bytes(), b"/file"].concat();
    assert!(path.len() > 8000);
    let (temp, intents) = (open(pool.b.join(".umbrella/tmp")), open(pool.b.join(".umbrella/intents")));
    let place = |dir: &'static OwnedFd| EntryAt { dir: dir.as_fd(), name: OsStr::new("file") };
    let (source, target) = (Box::leak(Box::new(source)), Box::leak(Box::new(target)));
    let temp = EntryAt { dir: temp.as_fd(), name: OsStr::new("copy") };
    let cancel = AtomicBool::new(false);
    let copied = copy(place(source), temp, &ALL, &Limits::new(&cancel)).unwrap();
    let names = [MovedName { source: place(source), target: place(target), path: &path }];
    let stop = |step| if step == Step::Synced { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
    let intents = intents.as_fd();
    let durability = Durability::Now;
    let (copied, decision, hook) = (&copied, &Decision::default(), Some(&stop as StepHook<'_>));
    commit(&Move { from: A, to: B, names: &names, temp, intents, copied, durability, decision, hook }).unwrap_err();
    assert_eq!(pool.recover().finished, 1);
    assert!(Fingerprint::at(place(source)).is_err());
    assert_eq!(Fingerprint::at(place(target)).unwrap().size, 4);
}
