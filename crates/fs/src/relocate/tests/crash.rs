//! Every change is stopped before and after every step, recovery too; one whole copy must remain each time.

use std::cell::Cell;
use std::os::unix::fs::{MetadataExt, symlink};

use rustix::fs::{FileType, mknodat};
use umbrella_units::Timestamp;

use super::*;
use crate::relocate::recover::recover_until;

pub(super) const GO: ControlFlow<()> = ControlFlow::Continue(());
pub(super) const STOP: ControlFlow<()> = ControlFlow::Break(());

/// Allows `count` calls, then stops.
pub(super) fn countdown(count: usize) -> (Cell<usize>, impl Fn(&Cell<usize>) -> ControlFlow<()>) {
    let step = |left: &Cell<usize>| match left.get().checked_sub(1) {
        Some(less) => {
            left.set(less);
            GO
        }
        None => STOP,
    };
    (Cell::new(count), step)
}

/// Runs recovery stopped before its first change, then its second, and so on, on the state that `prepare` makes, and
/// once whole after each.
pub(super) fn with_crashes_in_recovery(prepare: impl Fn() -> Pool, check: impl Fn(&Pool, &Recovery)) {
    for count in 0.. {
        let pool = prepare();
        let (left, step) = countdown(count);
        let stopped = Cell::new(false);
        let stop = || {
            let flow = step(&left);
            stopped.set(stopped.get() || flow == STOP);
            flow
        };
        pool.with_branches(&[A, B], |branches| recover_until(branches, &stop));
        let report = pool.recover();
        assert_eq!(report.warnings, Vec::<String>::new(), "after {count} changes");
        check(&pool, &report);
        assert_eq!(pool.recover(), Recovery::default(), "a second recovery finds nothing");
        if !stopped.get() {
            return;
        }
    }
}

/// Stops the move of `names` after each step; returns once a move ran to its end.
fn every_crash_of_a_move(names: &[&str], make: impl Fn(&Pool)) {
    let mut steps = 0;
    loop {
        let ended = Cell::new(false);
        let expected = std::cell::RefCell::new(None);
        with_crashes_in_recovery(
            || {
                let pool = Pool::new().dirs(&["d", "d/e"]);
                make(&pool);
                *expected.borrow_mut() = Some(snapshot(&pool.a.join(names[0])));
                let (left, step) = countdown(steps);
                match pool.relocate(names, Some(&|_| step(&left))) {
                    Ok(()) => ended.set(true),
                    Err(RelocateError::Stopped { .. }) => {}
                    Err(error) => panic!("after {steps} steps: {error}"),
                }
                pool
            },
            |pool, _| {
                let paths: Vec<_> = names.iter().map(|name| pool.only(name)).collect();
                let mut expected = expected.borrow().clone().unwrap();
                let mut found = snapshot(&paths[0]);
                if paths[0].is_symlink() {
                    (expected.atime, found.atime) = ((0, 0), (0, 0));
                }
                assert_eq!(found, expected, "after {steps} steps");
                let identity = |path: &PathBuf| {
                    let meta = fs::symlink_metadata(path).unwrap();
                    (meta.ino(), meta.nlink())
                };
                for path in &paths {
                    assert_eq!(identity(path), (identity(&paths[0]).0, names.len() as u64), "after {steps} steps");
                }
                assert!(pool.hidden_files().is_empty(), "after {steps} steps: {:?}", pool.hidden_files());
            },
        );
        steps += 1;
        if ended.get() {
            assert!(steps > 6, "{steps}");
            return;
        }
    }
}

pub(super) fn make_file(path: &Path) {
    fs::write(path, vec![b'x'; 300_000]).unwrap();
    fs::OpenOptions::new().write(true).open(path).unwrap().set_len(900_000).unwrap();
    set_xattr(path, "user.a", b"b");
    set_xattr(path, ACL, &acl());
    rustix::fs::chmodat(CWD, path, Mode::from_raw_mode(0o4751), rustix::fs::AtFlags::empty()).unwrap();
    set_times(path, (100, 200), (300, 400));
}

#[test]
fn a_file_survives_a_crash_at_every_step() {
    every_crash_of_a_move(&["d/file"], |pool| make_file(&pool.a.join("d/file")));
}

#[test]
fn a_symbolic_link_and_a_pipe_survive_a_crash_at_every_step() {
    every_crash_of_a_move(&["link"], |pool| symlink("t".repeat(3000), pool.a.join("link")).unwrap());
    every_crash_of_a_move(&["pipe"], |pool| {
        mknodat(CWD, pool.a.join("pipe"), FileType::Fifo, Mode::from_raw_mode(0o620), 0).unwrap();
    });
}

#[test]
fn hard_links_move_together_through_a_crash_at_every_step() {
    every_crash_of_a_move(&["d/one", "two", "d/e/three"], |pool| {
        make_file(&pool.a.join("d/one"));
        fs::hard_link(pool.a.join("d/one"), pool.a.join("two")).unwrap();
        fs::hard_link(pool.a.join("d/one"), pool.a.join("d/e/three")).unwrap();
    });
}

#[test]
fn a_move_without_a_crash_keeps_the_times_of_its_directories() {
    let pool = Pool::new().dirs(&["d"]);
    make_file(&pool.a.join("d/file"));
    for root in [&pool.a, &pool.b] {
        set_times(&root.join("d"), (5, 6), (7, 8));
    }
    pool.relocate(&["d/file"], None).unwrap();
    assert!(pool.b.join("d/file").exists());
    for root in [&pool.a, &pool.b] {
        assert_eq!(snapshot(&root.join("d")).mtime, (7, 8));
    }
}

pub(super) fn stopped_after(pool: &Pool, names: &[&str], last: Step) {
    let hook = |step| if step == last { STOP } else { GO };
    assert_eq!(pool.relocate(names, Some(&hook)), Err(RelocateError::Stopped { after: last }));
}

type Change = fn(&Pool);

#[test]
fn an_intent_that_a_power_loss_brings_back_harms_nothing() {
    let after: [(&str, Change); 5] = [
        ("nothing", |_| {}),
        ("deleted", |pool| fs::remove_file(pool.b.join("file")).unwrap()),
        ("rewritten", |pool| fs::write(pool.b.join("file"), "new").unwrap()),
        ("recreated on the old branch", |pool| {
            fs::remove_file(pool.b.join("file")).unwrap();
            fs::write(pool.a.join("file"), "new").unwrap();
        }),
        ("renamed", |pool| fs::rename(pool.b.join("file"), pool.b.join("file2")).unwrap()),
    ];
    for (what, after) in after {
        let pool = Pool::new();
        make_file(&pool.a.join("file"));
        let kept = std::cell::RefCell::new(None);
        let hook = |step| {
            if step == Step::IntentWritten {
                let intents = pool.a.join(".umbrella/intents");
                let path = fs::read_dir(intents).unwrap().next().unwrap().unwrap().path();
                *kept.borrow_mut() = Some((path.clone(), fs::read(path).unwrap()));
            }
            GO
        };
        pool.relocate(&["file"], Some(&hook)).unwrap();
        after(&pool);
        let all = |pool: &Pool| {
            let mut all = Vec::new();
            for root in [&pool.a, &pool.b] {
                for name in ["file", "file2"] {
                    all.extend(fs::read(root.join(name)).ok().map(|data| (root.join(name), data)));
                }
            }
            all
        };
        let before = all(&pool);
        let (path, bytes) = kept.take().unwrap();
        fs::write(path, bytes).unwrap();
        let report = pool.recover();
        assert_eq!(all(&pool), before, "{what}");
        assert_eq!(report.warnings, Vec::<String>::new(), "{what}");
        assert!(pool.hidden_files().is_empty(), "{what}");
    }
}

/// Records the move of `file` as it was cut short with the copy in place, with the source as `change` says.
pub(super) fn cut_short(pool: &Pool, change: impl FnOnce(&mut Fingerprint)) {
    stopped_after(pool, &["file"], Step::Synced);
    let intents = pool.a.join(".umbrella/intents");
    let path = fs::read_dir(&intents).unwrap().next().unwrap().unwrap().path();
    let mut intent = Intent::decode(&fs::read(&path).unwrap()).unwrap();
    let Intent::Move { source, .. } = &mut intent else { panic!() };
    change(source);
    fs::write(path, intent.encode().unwrap()).unwrap();
}

#[test]
fn a_source_that_a_power_loss_rolled_back_gives_way_to_the_copy() {
    let pool = Pool::new();
    make_file(&pool.a.join("file"));
    let wanted = snapshot(&pool.a.join("file"));
    cut_short(&pool, |source| {
        source.mtime = Timestamp { secs: source.mtime.secs + 10, nanos: 0 };
        source.ctime = Timestamp { secs: source.ctime.secs + 10, nanos: 0 };
        source.size += 10;
    });
    assert_eq!(pool.recover().finished, 1);
    assert_eq!(pool.only("file"), pool.b.join("file"));
    assert_eq!(snapshot(&pool.b.join("file")), wanted);
}

#[test]
fn a_source_that_changed_after_the_crash_wins_over_the_untouched_copy() {
    let pool = Pool::new();
    make_file(&pool.a.join("file"));
    cut_short(&pool, |_| {});
    std::thread::sleep(std::time::Duration::from_millis(15));
    fs::write(pool.a.join("file"), "newer").unwrap();
    assert_eq!(pool.recover().undone, 1);
    assert_eq!(fs::read(pool.only("file")).unwrap(), b"newer");
    assert!(pool.hidden_files().is_empty());
}

#[test]
fn a_source_whose_attributes_alone_changed_after_the_crash_wins_too() {
    let pool = Pool::new();
    make_file(&pool.a.join("file"));
    cut_short(&pool, |_| {});
    std::thread::sleep(std::time::Duration::from_millis(15));
    set_xattr(&pool.a.join("file"), "user.a", b"newer");
    let newer = snapshot(&pool.a.join("file"));
    assert_eq!(pool.recover().undone, 1);
    assert_eq!(snapshot(&pool.only("file")), newer);
}

#[test]
fn a_copy_that_changed_after_the_crash_wins_over_the_untouched_source() {
    let pool = Pool::new();
    make_file(&pool.a.join("file"));
    cut_short(&pool, |_| {});
    fs::write(pool.b.join("file"), "newer").unwrap();
    assert_eq!(pool.recover().finished, 1);
    assert_eq!(fs::read(pool.only("file")).unwrap(), b"newer");
}

#[test]
fn when_both_changed_after_the_crash_both_stay() {
    let pool = Pool::new();
    make_file(&pool.a.join("file"));
    cut_short(&pool, |_| {});
    std::thread::sleep(std::time::Duration::from_millis(15));
    fs::write(pool.a.join("file"), "newer on a").unwrap();
    fs::write(pool.b.join("file"), "newer on b").unwrap();
    let report = pool.recover();
    assert_eq!(report.warnings.len(), 1, "{:?}", report.warnings);
    assert_eq!(fs::read(pool.a.join("file")).unwrap(), b"newer on a");
    assert_eq!(fs::read(pool.b.join("file")).unwrap(), b"newer on b");
    assert!(pool.hidden_files().is_empty());
}

#[test]
fn files_numbered_anew_at_each_mount_are_told_by_their_bytes() {
    for differs in [false, true] {
        let pool = Pool::new();
        make_file(&pool.a.join("file"));
        stopped_after(&pool, &["file"], Step::Synced);
        // Other inodes with the same attributes.
        for root in [&pool.a, &pool.b] {
            copy_path(&root.join("file"), &root.join("other"), &ALL).unwrap();
            fs::rename(root.join("other"), root.join("file")).unwrap();
        }
        if differs {
            set_xattr(&pool.b.join("file"), "user.a", b"c");
        }
        let report = pool.recover();
        assert_eq!(pool.a.join("file").exists(), differs);
        assert!(pool.b.join("file").exists());
        assert_eq!(report.warnings.len(), usize::from(differs), "{:?}", report.warnings);
        assert!(pool.hidden_files().is_empty());
    }
}

#[test]
fn a_copy_that_is_the_only_one_is_put_in_place() {
    let pool = Pool::new().dirs(&["d"]);
    make_file(&pool.a.join("d/file"));
    let wanted = snapshot(&pool.a.join("d/file"));
    stopped_after(&pool, &["d/file"], Step::IntentWritten);
    fs::remove_file(pool.a.join("d/file")).unwrap();
    fs::remove_dir(pool.b.join("d")).unwrap();
    assert_eq!(pool.recover().finished, 1);
    assert_eq!(pool.only("d/file"), pool.b.join("d/file"));
    assert_eq!(snapshot(&pool.b.join("d/file")), wanted);
    assert!(pool.hidden_files().is_empty());
}

#[test]
fn a_copy_that_a_power_loss_brings_back_beside_its_name_is_deleted() {
    for last in [Step::Synced, Step::Removed(0), Step::IntentRemoved] {
        let pool = Pool::new();
        make_file(&pool.a.join("file"));
        let wanted = snapshot(&pool.a.join("file"));
        stopped_after(&pool, &["file"], last);
        fs::hard_link(pool.b.join("file"), pool.temp()).unwrap();
        pool.recover();
        assert_eq!(snapshot(&pool.only("file")), wanted);
        assert_eq!(fs::metadata(pool.b.join("file")).unwrap().nlink(), 1);
        assert!(pool.hidden_files().is_empty());
    }
}

#[test]
fn a_move_waits_for_a_missing_branch() {
    let pool = Pool::new();
    make_file(&pool.a.join("file"));
    stopped_after(&pool, &["file"], Step::IntentWritten);
    for present in [A, B] {
        let report = pool.with_branches(&[present], recover);
        // Without branch a, nobody knows of the copy's intent; the source is whole, so the copy may go.
        assert_eq!((report.pending, report.leftovers), if present == A { (1, 0) } else { (0, 1) });
    }
    let report = pool.with_branches(&[A, B], |branches| recover_returned(branches, back(B), &|| GO));
    assert_eq!((report.undone, report.pending), (1, 0));
    assert_eq!(pool.only("file"), pool.a.join("file"));
    assert!(pool.hidden_files().is_empty());
}

#[test]
fn recovery_for_a_returned_branch_leaves_the_others_alone() {
    let pool = Pool::new();
    fs::write(pool.a.join(".umbrella/tmp/under-way"), "copy").unwrap();
    fs::write(pool.a.join(".umbrella/intents/new-under-way"), "intent").unwrap();
    fs::write(pool.b.join(".umbrella/tmp/left"), "copy").unwrap();
    let report = pool.with_branches(&[A, B], |branches| recover_returned(branches, back(B), &|| GO));
    assert_eq!(report, Recovery { leftovers: 1, ..Recovery::default() });
    assert_eq!(pool.hidden_files().len(), 2);
}

#[test]
fn nothing_changes_on_a_branch_that_is_read_only() {
    let pool = Pool::new();
    make_file(&pool.a.join("file"));
    stopped_after(&pool, &["file"], Step::Synced);
    let (a, b) = (open(&pool.a), open(&pool.b));
    for (writable, other) in [(A, B), (B, A)] {
        let branches = [
            RecoverBranch { uuid: A, root: a.as_fd(), writable: writable == A },
            RecoverBranch { uuid: B, root: b.as_fd(), writable: writable == B },
        ];
        assert_eq!(recover(&branches), Recovery { pending: 1, awaited: [other].into(), ..Recovery::default() });
        assert!(pool.a.join("file").exists() && pool.b.join("file").exists());
    }
}

// What a commit takes back itself.

#[test]
fn a_name_taken_at_the_target_is_left_alone() {
    let pool = Pool::new();
    make_file(&pool.a.join("file"));
    fs::write(pool.b.join("file"), "other").unwrap();
    assert_eq!(pool.relocate(&["file"], None), Err(RelocateError::Taken));
    assert_eq!(fs::read(pool.b.join("file")).unwrap(), b"other");
    assert!(pool.a.join("file").exists());
    assert!(pool.hidden_files().is_empty());
}

#[test]
fn a_second_name_taken_at_the_target_takes_the_first_back() {
    let pool = Pool::new();
    make_file(&pool.a.join("one"));
    fs::hard_link(pool.a.join("one"), pool.a.join("two")).unwrap();
    fs::write(pool.b.join("two"), "other").unwrap();
    assert_eq!(pool.relocate(&["one", "two"], None), Err(RelocateError::Taken));
    assert!(!pool.b.join("one").exists());
    assert_eq!(fs::read(pool.b.join("two")).unwrap(), b"other");
    assert_eq!(fs::metadata(pool.a.join("two")).unwrap().nlink(), 2);
    assert!(pool.hidden_files().is_empty());
}

#[test]
fn a_file_with_a_name_that_was_not_listed_stays() {
    let pool = Pool::new();
    make_file(&pool.a.join("one"));
    fs::hard_link(pool.a.join("one"), pool.a.join("two")).unwrap();
    assert_eq!(pool.relocate(&["one"], None), Err(RelocateError::OtherLinks { nlink: 2, named: 1 }));
    assert_eq!(pool.only("one"), pool.a.join("one"));
    assert!(pool.hidden_files().is_empty());
}

#[test]
fn a_source_that_cannot_be_unlinked_takes_the_copy_back() {
    let pool = Pool::new().dirs(&["d", "e"]);
    make_file(&pool.a.join("d/one"));
    fs::hard_link(pool.a.join("d/one"), pool.a.join("e/two")).unwrap();
    let wanted = snapshot(&pool.a.join("d/one"));
    let dir = fs::File::open(pool.a.join("e")).unwrap();
    // Nothing can be removed from an append-only directory.
    rustix::fs::ioctl_setflags(&dir, rustix::fs::IFlags::APPEND).unwrap();
    let result = pool.relocate(&["d/one", "e/two"], None);
    rustix::fs::ioctl_setflags(&dir, rustix::fs::IFlags::empty()).unwrap();
    assert!(matches!(result, Err(RelocateError::Io { doing: "unlink the source", .. })), "{result:?}");
    for name in ["d/one", "e/two"] {
        assert_eq!(pool.only(name), pool.a.join(name));
        assert_eq!(snapshot(&pool.a.join(name)), wanted);
        assert_eq!(fs::metadata(pool.a.join(name)).unwrap().nlink(), 2);
    }
    assert!(pool.hidden_files().is_empty());
}

#[test]
fn a_source_that_changes_during_the_commit_takes_the_copy_back() {
    let pool = Pool::new();
    make_file(&pool.a.join("file"));
    let hook = |step| {
        if step == Step::Synced {
            std::thread::sleep(std::time::Duration::from_millis(15));
            fs::write(pool.a.join("file"), "newer").unwrap();
        }
        GO
    };
    assert_eq!(pool.relocate(&["file"], Some(&hook)), Err(RelocateError::Changed));
    assert_eq!(fs::read(pool.only("file")).unwrap(), b"newer");
    assert!(pool.hidden_files().is_empty());
}

// Renames over several branches.

fn rename_dir_on(pool: &Pool, replaced: bool, hook: Option<StepHook<'_>>) -> Result<(), RelocateError> {
    rename_dir_over(pool, replaced, &Line::sound(), hook).map(|unsure| assert_eq!(unsure, []))
}

/// With this way to branch B.
pub(super) fn rename_dir_over(
    pool: &Pool,
    replaced: bool,
    to_b: &Line,
    hook: Option<StepHook<'_>>,
) -> Result<Vec<BranchUuid>, RelocateError> {
    let site = |branch, reach: &Line, root: &Path| DirSite {
        branch,
        reach: reach.clone(),
        from: spot(root, "old"),
        to: spot(&root.join("p"), "new"),
    };
    rename_dir(&DirRename {
        sites: &[site(A, &Line::sound(), &pool.a), site(B, to_b, &pool.b)],
        from_path: b"/old",
        to_path: b"/p/new",
        replaced,
        journals: &[journal(&pool.b, to_b.clone()), journal(&pool.a, Line::sound())],
        hook,
    })
}

#[test]
fn a_directory_has_one_name_after_a_crash_at_every_step_of_a_rename() {
    for replaced in [false, true] {
        for steps in 0.. {
            let ended = Cell::new(false);
            with_crashes_in_recovery(
                || {
                    let pool = Pool::new().dirs(&["old/inner", "p"]);
                    fs::write(pool.a.join("old/on-a"), "1").unwrap();
                    fs::write(pool.b.join("old/on-b"), "2").unwrap();
                    if replaced {
                        fs::create_dir(pool.b.join("p/new")).unwrap();
                    }
                    let (left, step) = countdown(steps);
                    match rename_dir_on(&pool, replaced, Some(&|_| step(&left))) {
                        Ok(()) => ended.set(true),
                        Err(RelocateError::Stopped { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                    pool
                },
                |pool, _| {
                    let done = pool.a.join("p/new/on-a").exists();
                    let (now, gone) = if done { ("p/new", "old") } else { ("old", "p/new") };
                    assert_eq!(fs::read(pool.a.join(now).join("on-a")).unwrap(), b"1");
                    assert_eq!(fs::read(pool.b.join(now).join("on-b")).unwrap(), b"2");
                    assert!(!pool.a.join(gone).exists());
                    assert_eq!(pool.b.join(gone).exists(), replaced && !done);
                    assert!(pool.hidden_files().is_empty());
                },
            );
            if ended.get() {
                break;
            }
        }
    }
}

#[test]
fn a_rename_that_fails_on_one_branch_is_taken_back_on_the_others() {
    let pool = Pool::new().dirs(&["old", "p"]);
    fs::write(pool.a.join("old/on-a"), "1").unwrap();
    let dir = fs::File::open(pool.b.join("p")).unwrap();
    rustix::fs::ioctl_setflags(&dir, rustix::fs::IFlags::IMMUTABLE).unwrap();
    let result = rename_dir_on(&pool, false, None);
    rustix::fs::ioctl_setflags(&dir, rustix::fs::IFlags::empty()).unwrap();
    assert!(matches!(result, Err(RelocateError::Io { .. })), "{result:?}");
    assert!(pool.a.join("old/on-a").exists() && pool.b.join("old").exists());
    assert!(!pool.a.join("p/new").exists());
    assert!(pool.hidden_files().is_empty());
}

#[test]
fn a_rename_over_a_directory_with_files_is_refused_and_the_replaced_ones_return() {
    let pool = Pool::new().dirs(&["old", "p/new"]);
    fs::write(pool.b.join("p/new/file"), "1").unwrap();
    set_xattr(&pool.a.join("p/new"), "user.a", b"b");
    assert_eq!(rename_dir_on(&pool, false, None), Err(RelocateError::Taken));
    assert_eq!(rename_dir_on(&pool, true, None), Err(RelocateError::Taken));
    assert!(pool.a.join("old").exists() && pool.b.join("old").exists() && pool.b.join("p/new/file").exists());
    assert_eq!(snapshot(&pool.a.join("p/new")).xattrs.len(), 1);
    assert!(pool.hidden_files().is_empty());
}

#[test]
fn a_rename_goes_on_when_the_missing_branch_returns() {
    let pool = Pool::new().dirs(&["old", "p"]);
    fs::write(pool.a.join("old/on-a"), "1").unwrap();
    let hook = |step| if step == Step::IntentWritten { STOP } else { GO };
    rename_dir_on(&pool, false, Some(&hook)).unwrap_err();
    // Whether it began on branch a cannot be known, so it is done on b and waits for a.
    let report = pool.with_branches(&[B], recover);
    assert_eq!((report.pending, report.finished), (1, 0));
    assert!(pool.b.join("p/new").exists());
    fs::create_dir(pool.b.join("old")).unwrap();
    assert_eq!(pool.with_branches(&[B], recover).pending, 1);
    assert!(pool.b.join("old").exists(), "a new directory of the old name is not renamed");
    let report = pool.with_branches(&[A, B], |branches| recover_returned(branches, back(A), &|| GO));
    assert_eq!((report.pending, report.finished), (0, 1));
    assert!(pool.a.join("p/new/on-a").exists() && !pool.a.join("old").exists());
    assert!(pool.hidden_files().is_empty());
}

pub(super) fn supersede_on(pool: &Pool, hook: Option<StepHook<'_>>) -> Result<(), RelocateError> {
    let sound = Line::sound();
    supersede_over(pool, [&sound, &sound], hook).map(|removal| assert_eq!(removal, Removal::Done))
}

/// With these ways to the branches A, on which the file is renamed, and B, on which it replaces one.
pub(super) fn supersede_over(
    pool: &Pool,
    [to_a, to_b]: [&Line; 2],
    hook: Option<StepHook<'_>>,
) -> Result<Removal, RelocateError> {
    let (from, to) = (spot(&pool.a, "new"), spot(&pool.a.join("d"), "file"));
    supersede(&Supersede {
        winner: &DirSite { branch: A, reach: to_a.clone(), from, to },
        loser: B,
        loser_reach: to_b,
        replaced: &spot(&pool.b.join("d"), "file"),
        from_path: b"/new",
        to_path: b"/d/file",
        journals: &[journal(&pool.b, to_b.clone()), journal(&pool.a, to_a.clone())],
        hook,
    })
}

pub(super) fn two_files() -> Pool {
    let pool = Pool::new().dirs(&["d"]);
    fs::write(pool.a.join("new"), "new").unwrap();
    fs::write(pool.b.join("d/file"), "old").unwrap();
    pool
}

#[test]
fn a_rename_over_another_branch_is_done_or_not_after_a_crash_at_every_step() {
    for steps in 0.. {
        let ended = Cell::new(false);
        with_crashes_in_recovery(
            || {
                let pool = two_files();
                let (left, step) = countdown(steps);
                match supersede_on(&pool, Some(&|_| step(&left))) {
                    Ok(()) => ended.set(true),
                    Err(RelocateError::Stopped { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
                pool
            },
            |pool, _| {
                if pool.a.join("new").exists() {
                    assert!(steps < 3);
                    assert_eq!(fs::read(pool.only("d/file")).unwrap(), b"old");
                } else {
                    assert_eq!(fs::read(pool.only("d/file")).unwrap(), b"new");
                }
                assert!(pool.hidden_files().is_empty());
            },
        );
        if ended.get() {
            assert!(steps >= 6);
            return;
        }
    }
}

#[test]
fn a_replaced_file_on_a_missing_branch_goes_when_the_branch_returns() {
    let pool = two_files();
    let hook = |step| if step == Step::Synced { STOP } else { GO };
    supersede_on(&pool, Some(&hook)).unwrap_err();
    let intent = pool.hidden_files().pop().unwrap();
    fs::rename(&intent, pool.a.join(".umbrella/intents/1")).unwrap();
    assert_eq!(pool.with_branches(&[A], recover).pending, 1);
    // The winner moves on; the decision stands.
    fs::rename(pool.a.join("d/file"), pool.a.join("elsewhere")).unwrap();
    assert_eq!(pool.with_branches(&[A], recover).pending, 1);
    assert_eq!(pool.recover().finished, 1);
    assert!(!pool.b.join("d/file").exists());
    assert!(pool.hidden_files().is_empty());
}

#[test]
fn a_replaced_file_that_changed_since_stays() {
    let pool = two_files();
    let hook = |step| if step == Step::Synced { STOP } else { GO };
    supersede_on(&pool, Some(&hook)).unwrap_err();
    std::thread::sleep(std::time::Duration::from_millis(15));
    fs::write(pool.b.join("d/file"), "changed").unwrap();
    assert_eq!(pool.recover().warnings.len(), 1);
    assert_eq!(fs::read(pool.b.join("d/file")).unwrap(), b"changed");
    assert_eq!(fs::read(pool.a.join("d/file")).unwrap(), b"new");
}

#[test]
fn a_replaced_file_that_cannot_be_removed_takes_the_rename_back() {
    let pool = two_files();
    let file = fs::File::open(pool.b.join("d/file")).unwrap();
    rustix::fs::ioctl_setflags(&file, rustix::fs::IFlags::IMMUTABLE).unwrap();
    let result = supersede_on(&pool, None);
    rustix::fs::ioctl_setflags(&file, rustix::fs::IFlags::empty()).unwrap();
    assert!(matches!(result, Err(RelocateError::Io { .. })), "{result:?}");
    assert_eq!(fs::read(pool.a.join("new")).unwrap(), b"new");
    assert_eq!(fs::read(pool.only("d/file")).unwrap(), b"old");
    assert!(pool.hidden_files().is_empty());
}
