//! An exchange over two branches, stopped before, in and after every step, and in every step of its recovery. Both
//! names are there each time, and on all branches they are either exchanged or not.

use std::cell::Cell;

use super::crash::{GO, STOP, countdown, with_crashes_in_recovery};
use super::*;

/// The layout before: paths on a and on b; those that end in `/` are directories. The names are `one` and `p/other`.
type Layout = (&'static [&'static str], &'static [&'static str]);

/// Every way in which two branches can hold two entries of which one is a directory, and an exchange concerns both
/// branches.
const LAYOUTS: [Layout; 7] = [
    (&["one/", "one/x"], &["p/other/", "p/other/y"]),
    (&["one/", "one/x", "p/other/", "p/other/y"], &["one/", "one/z"]),
    (&["one/", "one/x", "p/other/", "p/other/y"], &["one/", "one/z", "p/other/", "p/other/w"]),
    (&["p/other/", "p/other/y"], &["one/", "one/z", "p/other/", "p/other/w"]),
    (&["one"], &["p/other/", "p/other/y"]),
    (&["one"], &["p/other/", "p/other/y", "p/other/deep/", "p/other/deep/w"]),
    (&["one", "p/other/", "p/other/y"], &["p/other/", "p/other/w"]),
];

fn laid_out(layout: Layout) -> Pool {
    let pool = Pool::new().dirs(&["p"]);
    for (root, paths) in [(&pool.a, layout.0), (&pool.b, layout.1)] {
        for path in paths {
            match path.strip_suffix('/') {
                Some(dir) => fs::create_dir(root.join(dir)).unwrap(),
                None => fs::write(root.join(path), path).unwrap(),
            }
        }
    }
    pool
}

/// Every path on both branches with its inode, with the names exchanged if asked for.
fn seen(pool: &Pool, exchanged: bool) -> Vec<(char, String, u64)> {
    let mut seen = Vec::new();
    for (branch, root) in [('a', &pool.a), ('b', &pool.b)] {
        let mut dirs = vec![root.clone()];
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                let meta = fs::symlink_metadata(&path).unwrap();
                let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
                if name == HIDDEN_DIR {
                    continue;
                }
                if meta.is_dir() {
                    dirs.push(path);
                }
                let new = ["one", "p/other"].iter().zip(["p/other", "one"]).find_map(|(old, new)| {
                    let rest = name.strip_prefix(old).filter(|rest| rest.is_empty() || rest.starts_with('/'))?;
                    Some(format!("{new}{rest}"))
                });
                seen.push((branch, new.filter(|_| exchanged).unwrap_or(name), meta.ino()));
            }
        }
    }
    seen.sort();
    seen
}

fn exchange_on(pool: &Pool, hook: Option<StepHook<'_>>) -> Result<(), RelocateError> {
    exchange_over(pool, &Line::sound(), hook).map(|unsure| assert_eq!(unsure, []))
}

/// With this way to branch B.
pub(super) fn exchange_over(
    pool: &Pool,
    to_b: &Line,
    hook: Option<StepHook<'_>>,
) -> Result<Vec<BranchUuid>, RelocateError> {
    let swaps: Vec<_> = [(A, &Line::sound(), &pool.a), (B, to_b, &pool.b)]
        .into_iter()
        .filter_map(|(branch, reach, root)| {
            let holds = match (root.join("one").exists(), root.join("p/other").exists()) {
                (true, true) => Presence::Both,
                (true, false) => Presence::One,
                (false, true) => Presence::Other,
                (false, false) => return None,
            };
            let (one, other) = (spot(root, "one"), spot(&root.join("p"), "other"));
            Some(Swap { branch, reach: reach.clone(), one, other, holds })
        })
        .collect();
    let journals = [journal(&pool.b, to_b.clone()), journal(&pool.a, Line::sound())];
    exchange(&Exchange { swaps: &swaps, one_path: b"/one", other_path: b"/p/other", journals: &journals, hook })
}

#[test]
fn two_names_are_exchanged_on_all_branches_or_on_none_after_a_crash_at_every_step() {
    for layout in LAYOUTS {
        let mut steps = 0;
        loop {
            let ended = Cell::new(false);
            let before = Cell::new(Vec::new());
            let after = Cell::new(Vec::new());
            with_crashes_in_recovery(
                || {
                    let pool = laid_out(layout);
                    before.set(seen(&pool, false));
                    after.set(seen(&pool, true));
                    let (left, step) = countdown(steps);
                    match exchange_on(&pool, Some(&|_| step(&left))) {
                        Ok(()) => ended.set(true),
                        Err(RelocateError::Stopped { .. }) => {}
                        Err(error) => panic!("{layout:?} after {steps} steps: {error}"),
                    }
                    pool
                },
                |pool, _| {
                    // Up to the intent nothing is done; from the first branch on all is.
                    let expected = if steps < 2 { before.take() } else { after.take() };
                    assert_eq!(seen(pool, false), expected, "{layout:?} after {steps} steps");
                    assert!(pool.hidden_files().is_empty());
                },
            );
            if ended.get() {
                assert!(steps >= 6, "{steps}");
                break;
            }
            steps += 1;
        }
    }
}

#[test]
fn a_branch_that_a_power_loss_takes_back_is_exchanged_again() {
    for layout in LAYOUTS {
        let pool = laid_out(layout);
        let after = seen(&pool, true);
        let hook = |step| if step == Step::Placed(1) { STOP } else { GO };
        exchange_on(&pool, Some(&hook)).unwrap_err();
        // Branch a never heard of it.
        let held = [pool.a.join("one"), pool.a.join("p/other")];
        match (held[0].exists(), held[1].exists()) {
            (true, true) => {
                rustix::fs::renameat_with(CWD, &held[0], CWD, &held[1], rustix::fs::RenameFlags::EXCHANGE).unwrap();
            }
            (true, false) => fs::rename(&held[0], &held[1]).unwrap(),
            _ => fs::rename(&held[1], &held[0]).unwrap(),
        }
        assert_eq!(pool.recover(), Recovery { finished: 1, ..Recovery::default() }, "{layout:?}");
        assert_eq!(seen(&pool, false), after, "{layout:?}");
        assert!(pool.hidden_files().is_empty());
    }
}

#[test]
fn an_exchange_goes_on_when_the_missing_branch_returns() {
    for layout in LAYOUTS {
        for last in [Step::IntentWritten, Step::Placed(0), Step::Placed(1)] {
            let pool = laid_out(layout);
            let after = seen(&pool, true);
            let hook = |step| if step == last { STOP } else { GO };
            exchange_on(&pool, Some(&hook)).unwrap_err();
            // Whether it began on branch a cannot be known, so it is done on b and waits for a.
            let waiting = Recovery { pending: 1, awaited: [A].into(), ..Recovery::default() };
            assert_eq!(pool.with_branches(&[B], recover), waiting);
            assert_eq!(pool.with_branches(&[B], recover), waiting);
            let report = pool.with_branches(&[A, B], |branches| recover_returned(branches, back(A), &|| GO));
            assert_eq!(report, Recovery { finished: 1, ..Recovery::default() });
            assert_eq!(seen(&pool, false), after, "{layout:?} after {last:?}");
            assert!(pool.hidden_files().is_empty());
        }
    }
}

#[test]
fn names_that_were_used_for_something_else_since_are_left_alone() {
    let pool = laid_out(LAYOUTS[2]);
    let hook = |step| if step == Step::Placed(0) { STOP } else { GO };
    exchange_on(&pool, Some(&hook)).unwrap_err();
    for name in ["one", "p/other"] {
        fs::rename(pool.b.join(name), pool.b.join(name).with_extension("kept")).unwrap();
        fs::create_dir(pool.b.join(name)).unwrap();
        // Else, made within one tick of the clock, it may look like the one that was there.
        set_times(&pool.b.join(name), (1000, 1), (2000, 2));
    }
    let before = seen(&pool, false);
    assert_eq!(pool.recover().warnings.len(), 1);
    assert_eq!(seen(&pool, false), before);
}

#[test]
fn an_intent_of_an_exchange_that_was_undone_by_another_does_nothing() {
    let pool = laid_out(LAYOUTS[2]);
    let before = seen(&pool, false);
    let hook = |step| if step == Step::Synced { STOP } else { GO };
    exchange_on(&pool, Some(&hook)).unwrap_err();
    exchange_on(&pool, None).unwrap();
    assert_eq!(pool.recover(), Recovery { undone: 1, ..Recovery::default() });
    assert_eq!(seen(&pool, false), before);
}

#[test]
fn an_exchange_that_fails_on_one_branch_is_taken_back_on_the_others() {
    for layout in LAYOUTS {
        let pool = laid_out(layout);
        let before = seen(&pool, false);
        let dir = fs::File::open(pool.b.join("p")).unwrap();
        rustix::fs::ioctl_setflags(&dir, rustix::fs::IFlags::IMMUTABLE).unwrap();
        let result = exchange_on(&pool, None);
        rustix::fs::ioctl_setflags(&dir, rustix::fs::IFlags::empty()).unwrap();
        assert!(matches!(result, Err(RelocateError::Io { .. })), "{layout:?}: {result:?}");
        assert_eq!(seen(&pool, false), before, "{layout:?}");
        assert!(pool.hidden_files().is_empty());
    }
}

#[test]
fn a_name_that_hides_behind_the_other_branch_is_not_exchanged() {
    let pool = laid_out(LAYOUTS[2]);
    let before = seen(&pool, false);
    let (one, other) = (spot(&pool.a, "one"), spot(&pool.a.join("p"), "other"));
    let swap = Swap { branch: A, reach: Line::sound(), one, other, holds: Presence::One };
    let journals = [journal(&pool.a, Line::sound())];
    let (one_path, other_path) = (b"/one".as_slice(), b"/p/other".as_slice());
    let result = exchange(&Exchange { swaps: &[swap], one_path, other_path, journals: &journals, hook: None });
    assert_eq!(result, Err(RelocateError::Taken));
    assert_eq!(seen(&pool, false), before);
    assert!(pool.hidden_files().is_empty());
}
