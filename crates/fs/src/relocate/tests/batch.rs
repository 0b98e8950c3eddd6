//! Batches of moves: stopped before and after every step, recovery too; and every state that a power loss may leave of
//! one file.

use std::cell::{Cell, RefCell};
use std::os::unix::fs::symlink;

use super::crash::{GO, STOP, countdown, with_crashes_in_recovery};
use super::*;
use crate::relocate::batch::parked_name;

/// A batch of these files from a to b. What falls out of it is said.
pub(super) fn run(
    pool: &Pool,
    names: &[&str],
    hook: Option<StepHook<'_>>,
) -> Result<Vec<RelocateError>, RelocateError> {
    run_with(pool, names, &|_| {}, hook)
}

fn copy_of(at: usize) -> OsString {
    format!("copy-{at}").into()
}

/// `before_turn` is called when a file's turn comes.
fn run_with(
    pool: &Pool,
    names: &[&str],
    before_turn: &dyn Fn(&str),
    hook: Option<StepHook<'_>>,
) -> Result<Vec<RelocateError>, RelocateError> {
    let [parked, temps, intents] =
        [pool.a.join(".umbrella/tmp"), pool.b.join(".umbrella/tmp"), pool.b.join(".umbrella/intents")].map(open);
    let (parked, temps_at, intents) = (parked.as_fd(), temps.as_fd(), intents.as_fd());
    let batch = Batch { from: A, to: B, parked, temps: temps_at, intents, syncs_whole: [true; 2], hook };
    let sync = CopiesSync::before(temps_at)?;
    let cancel = AtomicBool::new(false);
    let limits = Limits { durability: Durability::Together, ..Limits::new(&cancel) };
    let copy = |(at, name): (usize, &&str)| {
        let source = pool.a.join(name);
        copy_limited(&source, &pool.b.join(".umbrella/tmp").join(copy_of(at)), &ALL, &limits)
    };
    let copies: Vec<_> = names.iter().enumerate().map(copy).collect::<Result<_, _>>()?;
    let member = |(at, (name, copied)): (usize, (&&str, &DurableCopy))| BatchFile {
        path: name.as_bytes().to_vec(),
        temp: copy_of(at).into_encoded_bytes(),
        source: copied.source,
        target: copied.target,
    };
    let recorded = batch.record(names.iter().zip(&copies).enumerate().map(member).collect(), Some(&sync))?;
    let dirs: Vec<_> =
        names.iter().map(|name| [&pool.a, &pool.b].map(|root| open(root.join(name).parent().unwrap()))).collect();
    let (mut done, mut fallen) = (Vec::new(), Vec::new());
    for (at, (name, copied)) in names.iter().zip(&copies).enumerate() {
        before_turn(name);
        let [source, target] = dirs[at].each_ref().map(AsFd::as_fd);
        let last = Path::new(name).file_name().unwrap();
        let moved = MovedName {
            source: EntryAt { dir: source, name: last },
            target: EntryAt { dir: target, name: last },
            path: name.as_bytes(),
        };
        match batch.place_and_park(moved, &copy_of(at), copied) {
            Ok(()) => done.push((moved, copy_of(at), copied)),
            Err(stopped @ RelocateError::Stopped { .. }) => return Err(stopped),
            Err(error) => {
                fs::remove_file(pool.b.join(".umbrella/tmp").join(copy_of(at))).unwrap();
                fallen.push(error);
            }
        }
    }
    let done: Vec<_> = done
        .iter()
        .map(|(name, temp, copied)| Parked {
            source: name.source.dir,
            target: name.target.dir,
            temp,
            path: name.path,
            copied,
        })
        .collect();
    batch.finish(recorded, &done)?;
    Ok(fallen)
}

fn make(path: &Path, data: &[u8]) {
    fs::write(path, data).unwrap();
    set_xattr(path, "user.a", b"b");
    rustix::fs::chmodat(CWD, path, Mode::from_raw_mode(0o4751), rustix::fs::AtFlags::empty()).unwrap();
    set_times(path, (100, 200), (300, 400));
}

const NAMES: [&str; 4] = ["d/one", "two", "d/e/three", "d/link"];

fn make_all(pool: &Pool) {
    for name in &NAMES[..3] {
        make(&pool.a.join(name), name.as_bytes());
    }
    symlink("somewhere", pool.a.join("d/link")).unwrap();
}

#[test]
fn a_batch_survives_a_crash_at_every_step() {
    let mut steps = 0;
    loop {
        let ended = Cell::new(false);
        let expected = RefCell::new(Vec::new());
        let seen = |path: &Path| Snapshot { atime: (0, 0), ..snapshot(path) };
        with_crashes_in_recovery(
            || {
                let pool = Pool::new().dirs(&["d", "d/e"]);
                make_all(&pool);
                *expected.borrow_mut() = NAMES.map(|name| seen(&pool.a.join(name))).to_vec();
                let (left, step) = countdown(steps);
                match run(&pool, &NAMES, Some(&|_| step(&left))) {
                    Ok(fallen) => ended.set(fallen.is_empty()),
                    Err(RelocateError::Stopped { .. }) => {}
                    Err(error) => panic!("after {steps} steps: {error}"),
                }
                pool
            },
            |pool, _| {
                let found: Vec<_> = NAMES.iter().map(|name| seen(&pool.only(name))).collect();
                assert_eq!(found, *expected.borrow(), "after {steps} steps");
                assert!(pool.hidden_files().is_empty(), "after {steps} steps: {:?}", pool.hidden_files());
            },
        );
        steps += 1;
        if ended.get() {
            assert!(steps > 3 * NAMES.len(), "{steps}");
            return;
        }
    }
}

#[test]
fn a_batch_without_a_crash_keeps_the_times_of_its_directories() {
    let pool = Pool::new().dirs(&["d", "d/e"]);
    make_all(&pool);
    for root in [&pool.a, &pool.b] {
        set_times(&root.join("d"), (5, 6), (7, 8));
    }
    assert_eq!(run(&pool, &NAMES, None), Ok(Vec::new()));
    for root in [&pool.a, &pool.b] {
        assert_eq!(snapshot(&root.join("d")).mtime, (7, 8));
    }
    assert!(NAMES.iter().all(|name| pool.only(name) == pool.b.join(name)));
    assert!(pool.hidden_files().is_empty());
}

#[test]
fn a_file_that_changes_falls_out_of_its_batch_and_the_others_move() {
    let pool = Pool::new().dirs(&["d", "d/e"]);
    make_all(&pool);
    let change = |name: &str| {
        if name == "two" {
            std::thread::sleep(std::time::Duration::from_millis(15));
            fs::write(pool.a.join(name), "changed").unwrap();
        }
    };
    assert_eq!(run_with(&pool, &NAMES, &change, None), Ok(vec![RelocateError::Changed]));
    assert_eq!(fs::read(pool.only("two")).unwrap(), b"changed");
    assert_eq!(pool.only("two"), pool.a.join("two"));
    assert!(["d/one", "d/e/three", "d/link"].iter().all(|name| pool.only(name) == pool.b.join(name)));
    assert!(pool.hidden_files().is_empty());
}

#[test]
fn a_name_that_is_taken_on_the_new_branch_is_never_replaced_by_a_batch() {
    let pool = Pool::new().dirs(&["d", "d/e"]);
    make_all(&pool);
    fs::write(pool.b.join("two"), "other").unwrap();
    assert_eq!(run(&pool, &NAMES, None), Ok(vec![RelocateError::Taken]));
    assert_eq!(fs::read(pool.b.join("two")).unwrap(), b"other");
    assert_eq!(fs::read(pool.a.join("two")).unwrap(), b"two");
}

#[test]
fn a_source_that_cannot_be_parked_stays_and_its_copy_loses_the_name() {
    let pool = Pool::new().dirs(&["d", "d/e"]);
    make_all(&pool);
    let in_the_way = pool.a.join(".umbrella/tmp").join(parked_name(B, &copy_of(1)));
    fs::write(in_the_way, "").unwrap();
    let fallen = run(&pool, &NAMES, None).unwrap();
    assert_eq!(fallen.iter().map(RelocateError::errno).collect::<Vec<_>>(), [rustix::io::Errno::EXIST]);
    assert_eq!(pool.only("two"), pool.a.join("two"));
    assert_eq!(pool.only("d/one"), pool.b.join("d/one"));
}

/// The places where one file of a batch may be, and what users did meanwhile.
struct State {
    pool: Pool,
    /// Under its name on the old branch.
    source: PathBuf,
    parked: PathBuf,
    temp: PathBuf,
    /// Under its name on the new branch.
    placed: PathBuf,
}

impl State {
    /// The intent is durable, and the file's turn has not come.
    fn recorded() -> State {
        let pool = Pool::new();
        make(&pool.a.join("file"), b"data");
        let stop = |step| if step == Step::IntentWritten { STOP } else { GO };
        assert!(matches!(run(&pool, &["file"], Some(&stop)), Err(RelocateError::Stopped { .. })));
        State {
            source: pool.a.join("file"),
            parked: pool.a.join(".umbrella/tmp").join(parked_name(B, &copy_of(0))),
            temp: pool.b.join(".umbrella/tmp").join(copy_of(0)),
            placed: pool.b.join("file"),
            pool,
        }
    }

    fn place(&self) -> &State {
        fs::rename(&self.temp, &self.placed).unwrap();
        self
    }

    fn park(&self) -> &State {
        fs::rename(&self.source, &self.parked).unwrap();
        self
    }

    /// All that users see, with the branch.
    fn seen(&self) -> Vec<(&'static str, String, String)> {
        let mut seen = Vec::new();
        for (branch, root) in [("a", &self.pool.a), ("b", &self.pool.b)] {
            for name in ["file", "other"] {
                let data = fs::read(root.join(name)).ok().map(|data| String::from_utf8(data).unwrap());
                seen.extend(data.map(|data| (branch, name.to_owned(), data)));
            }
        }
        seen
    }
}

fn newer(path: &Path, data: &str) {
    std::thread::sleep(std::time::Duration::from_millis(15));
    fs::write(path, data).unwrap();
}

/// The state, what makes it, and what users see afterwards.
type Case = (&'static str, fn(&State), &'static [(&'static str, &'static str, &'static str)]);

const CASES: &[Case] = &[
    ("its turn has not come", |_| {}, &[("a", "file", "data")]),
    ("a user deleted it before its turn", |at| fs::remove_file(&at.source).unwrap(), &[]),
    (
        "a user renamed it before its turn",
        |at| fs::rename(&at.source, at.pool.a.join("other")).unwrap(),
        &[("a", "other", "data")],
    ),
    ("a user changed it before its turn", |at| newer(&at.source, "newer"), &[("a", "file", "newer")]),
    (
        "placed and not parked",
        |at| {
            at.place();
        },
        &[("b", "file", "data")],
    ),
    (
        "placed and not parked, and the source has changed since",
        |at| newer(&at.place().source, "newer"),
        &[("a", "file", "newer")],
    ),
    (
        "moved",
        |at| {
            at.place().park();
        },
        &[("b", "file", "data")],
    ),
    ("moved, then changed", |at| newer(&at.place().park().placed, "newer"), &[("b", "file", "newer")]),
    ("moved, then deleted", |at| fs::remove_file(&at.place().park().placed).unwrap(), &[]),
    (
        "moved, then renamed",
        |at| fs::rename(&at.place().park().placed, at.pool.b.join("other")).unwrap(),
        &[("b", "other", "data")],
    ),
    (
        "moved, then deleted and made anew on the old branch",
        |at| {
            fs::remove_file(&at.place().park().placed).unwrap();
            fs::write(&at.source, "new").unwrap();
        },
        &[("a", "file", "new")],
    ),
    (
        "moved, then replaced",
        |at| {
            fs::write(at.pool.b.join("other"), "new").unwrap();
            fs::rename(at.pool.b.join("other"), &at.place().park().placed).unwrap();
        },
        &[("b", "file", "new")],
    ),
    (
        "moved, and the new branch lost it",
        |at| {
            at.park();
        },
        &[("b", "file", "data")],
    ),
    (
        "moved and changed, and the old branch lost that it moved",
        |at| newer(&at.place().placed, "newer"),
        &[("b", "file", "newer")],
    ),
    (
        "moved and changed, and both branches lost that it moved",
        |at| newer(&at.temp, "newer"),
        &[("b", "file", "newer")],
    ),
    (
        "moved, and a power loss left the copy under both names",
        |at| fs::hard_link(&at.park().temp, &at.placed).unwrap(),
        &[("b", "file", "data")],
    ),
    ("moved, and the source is deleted", |at| fs::remove_file(&at.place().source).unwrap(), &[("b", "file", "data")]),
];

#[test]
fn whatever_a_crash_leaves_of_a_file_of_a_batch_recovery_gives_what_users_saw() {
    for (what, make, expected) in CASES {
        let state = State::recorded();
        make(&state);
        let report = state.pool.recover();
        let expected: Vec<_> =
            expected.iter().map(|(branch, name, data)| (*branch, (*name).to_owned(), (*data).to_owned())).collect();
        assert_eq!(state.seen(), expected, "{what}");
        assert_eq!(report.warnings, Vec::<String>::new(), "{what}");
        assert!(state.pool.hidden_files().is_empty(), "{what}: {:?}", state.pool.hidden_files());
    }
}

#[test]
fn a_file_whose_name_another_one_has_comes_back_on_the_old_branch() {
    let state = State::recorded();
    fs::write(&state.park().placed, "other").unwrap();
    assert_eq!(state.pool.recover().warnings.len(), 1);
    assert_eq!(
        state.seen(),
        [("a", "file".to_owned(), "data".to_owned()), ("b", "file".to_owned(), "other".to_owned())]
    );
    assert!(state.pool.hidden_files().is_empty());
}

#[test]
fn a_file_whose_name_is_taken_on_both_branches_is_kept_for_a_person() {
    let state = State::recorded();
    fs::write(&state.park().source, "other").unwrap();
    let report = state.pool.recover();
    assert_eq!((report.pending, report.warnings.len()), (1, 1));
    assert_eq!(state.seen(), [("a", "file".to_owned(), "other".to_owned())]);
    assert!(state.parked.exists() && state.temp.exists());
}

#[test]
fn a_parked_source_stays_while_the_branch_that_its_file_went_to_is_missing() {
    let state = State::recorded();
    state.park();
    for present in [A, B] {
        let report = state.pool.with_branches(&[present], recover);
        assert_eq!(report.leftovers, 0);
        assert!(state.parked.exists() && state.temp.exists());
    }
    assert_eq!(state.pool.recover().finished, 1);
    assert_eq!(state.pool.only("file"), state.placed);
    assert!(state.pool.hidden_files().is_empty());
}

#[test]
fn a_branch_that_comes_back_settles_the_files_of_its_batches() {
    for (what, make, expected) in CASES {
        // What only a crash of the daemon or the machine can leave; here the old branch was in use all the time.
        if what.starts_with("placed") || what.contains("lost that it moved") {
            continue;
        }
        let state = State::recorded();
        make(&state);
        let report = state.pool.with_branches(&[A, B], |branches| recover_returned(branches, back(B), &|| GO));
        let seen = state.seen();
        let seen: Vec<_> = seen.iter().map(|(branch, name, data)| (*branch, name.as_str(), data.as_str())).collect();
        assert_eq!(seen, *expected, "{what}");
        assert_eq!((report.pending, report.warnings), (0, Vec::new()), "{what}");
    }
}

#[test]
fn the_intent_of_a_finished_batch_that_a_power_loss_brings_back_harms_nothing() {
    type Change = fn(&Pool);
    let after: [(&str, Change); 5] = [
        ("nothing", |_| {}),
        ("another file has the old name, and that the file was renamed is lost", |pool| {
            fs::write(pool.a.join("two"), "new").unwrap();
        }),
        ("deleted", |pool| fs::remove_file(pool.b.join("two")).unwrap()),
        ("renamed", |pool| fs::rename(pool.b.join("two"), pool.b.join("other")).unwrap()),
        ("made anew on the old branch", |pool| {
            fs::remove_file(pool.b.join("two")).unwrap();
            fs::write(pool.a.join("two"), "new").unwrap();
        }),
    ];
    for (what, after) in after {
        let pool = Pool::new().dirs(&["d", "d/e"]);
        make_all(&pool);
        let kept = RefCell::new(None);
        let hook = |step| {
            if step == Step::IntentWritten {
                let path = fs::read_dir(pool.b.join(".umbrella/intents")).unwrap().next().unwrap().unwrap().path();
                *kept.borrow_mut() = Some((path.clone(), fs::read(path).unwrap()));
            }
            GO
        };
        run(&pool, &NAMES, Some(&hook)).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(15));
        after(&pool);
        let all = || {
            let names = NAMES.iter().chain(&["other"]);
            let on = |name: &&str| [&pool.a, &pool.b].map(|root| fs::read(root.join(name)).ok());
            names.map(on).collect::<Vec<_>>()
        };
        let before = all();
        let (path, bytes) = kept.take().unwrap();
        fs::write(path, bytes).unwrap();
        let warnings = pool.recover().warnings;
        assert_eq!(warnings.len(), usize::from(what.starts_with("another")), "{what}: {warnings:?}");
        assert_eq!(all(), before, "{what}");
        assert!(pool.hidden_files().is_empty(), "{what}");
    }
}

#[test]
fn only_an_ext4_with_a_journal_keeps_renames_whole() {
    let dir = tempfile::tempdir().unwrap();
    let (image, at) = (dir.path().join("image"), dir.path().join("mnt"));
    std::fs::create_dir(&at).unwrap();
    let run = |program: &str, args: &[&str], paths: &[&Path]| {
        let output = std::process::Command::new(program).args(args).args(paths).output().unwrap();
        assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    };
    for (journal, whole) in [("has_journal", true), ("^has_journal", false)] {
        std::fs::File::create(&image).unwrap().set_len(32 << 20).unwrap();
        run("mkfs.ext4", &["-q", "-F", "-O", journal], &[&image]);
        run("mount", &["-o", "loop"], &[&image, &at]);
        let found = keeps_renames_whole(std::fs::File::open(&at).unwrap().as_fd());
        run("umount", &[], &[&at]);
        assert_eq!(found, whole, "{journal}");
    }
}
