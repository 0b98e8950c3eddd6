//! A branch falls silent or refuses in the middle of a change of names. The daemon dies at any step of that, and any
//! branches are missing at the next mount. When all are there again, the names have changed on all of them or on none,
//! as the caller was told.

use std::cell::Cell;

use super::crash::{GO, STOP, countdown};
use super::*;

const C: BranchUuid = BranchUuid(uuid::Uuid::from_bytes([0xcc; 16]));
const UUIDS: [BranchUuid; 3] = [A, B, C];

/// Three branches that have `old`, and what `new` is to be, empty or not.
struct Three {
    roots: [PathBuf; 3],
    _temp: TempDir,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Rename,
    /// Over an empty directory that all have.
    RenameOver,
    Exchange,
}

/// Each, and on which branch the intents are.
const CHANGES: [(Change, usize); 5] =
    [(Change::Rename, 0), (Change::Rename, 2), (Change::RenameOver, 1), (Change::Exchange, 0), (Change::Exchange, 2)];

impl Three {
    fn new(disk: &Tmpfs, change: Change) -> Three {
        let temp = tempfile::tempdir_in(disk.path()).unwrap();
        let roots = ["a", "b", "c"].map(|name| temp.path().join(name));
        for root in &roots {
            for dir in [".umbrella/intents", ".umbrella/tmp", "old", "p"] {
                fs::create_dir_all(root.join(dir)).unwrap();
            }
            fs::write(root.join("old/mark"), "").unwrap();
            if change != Change::Rename {
                fs::create_dir(root.join("p/new")).unwrap();
            }
        }
        Three { roots, _temp: temp }
    }

    /// The intents are written on this branch, or on those behind it.
    fn change(
        &self,
        change: Change,
        lines: &[Line; 3],
        first_journal: usize,
        hook: StepHook<'_>,
    ) -> Result<Vec<BranchUuid>, RelocateError> {
        let each = || UUIDS.into_iter().zip(lines).zip(&self.roots);
        let mut journals: Vec<_> = each().map(|((_, line), root)| journal(root, line.clone())).collect();
        journals.rotate_left(first_journal);
        let names = |root: &Path| (spot(root, "old"), spot(&root.join("p"), "new"));
        if change == Change::Exchange {
            let swaps: Vec<_> = each()
                .map(|((branch, line), root)| {
                    let (one, other) = names(root);
                    Swap { branch, reach: line.clone(), one, other, holds: Presence::Both }
                })
                .collect();
            let (one_path, other_path) = (b"/old".as_slice(), b"/p/new".as_slice());
            return exchange(&Exchange { swaps: &swaps, one_path, other_path, journals: &journals, hook: Some(hook) });
        }
        let sites: Vec<_> = each()
            .map(|((branch, line), root)| {
                let (from, to) = names(root);
                DirSite { branch, reach: line.clone(), from, to }
            })
            .collect();
        rename_dir(&DirRename {
            sites: &sites,
            from_path: b"/old",
            to_path: b"/p/new",
            replaced: change == Change::RenameOver,
            journals: &journals,
            hook: Some(hook),
        })
    }

    /// Puts right what is left, with these branches there: at a mount, or at the return of one.
    fn recover(&self, present: [bool; 3], returned: Option<usize>) -> Recovery {
        let roots = self.roots.each_ref().map(open);
        let branches: Vec<_> = (0..3)
            .filter(|&at| present[at])
            .map(|at| RecoverBranch { uuid: UUIDS[at], root: roots[at].as_fd(), writable: true })
            .collect();
        match returned {
            Some(at) => recover_returned(&branches, back(UUIDS[at]), &|| GO),
            None => recover(&branches),
        }
    }

    /// Whether the names have changed; the same on all branches.
    fn has_changed(&self, case: &str) -> bool {
        let changed = self.roots.each_ref().map(|root| {
            let marks = [root.join("old/mark").exists(), root.join("p/new/mark").exists()];
            assert!(marks[0] != marks[1], "{case}: {marks:?}");
            marks[1]
        });
        assert!(changed[0] == changed[1] && changed[1] == changed[2], "{case}: {changed:?}");
        changed[0]
    }

    fn has_intents(&self) -> bool {
        self.roots.iter().any(|root| fs::read_dir(root.join(".umbrella/intents")).unwrap().next().is_some())
    }
}

/// Something goes wrong on the way to a branch after every number of calls that the change makes to it.
fn with_every_fault(mut try_it: impl FnMut(usize, Fault, i32) -> bool) {
    for at in 0..3 {
        for fault in [Fault::Breaks, Fault::LosesAnswer, Fault::Refuses] {
            let mut calls = 0;
            while try_it(at, fault, calls) {
                calls += 1;
            }
            assert!(calls >= 3, "{fault:?} on {at}: {calls}");
        }
    }
}

fn lines(faults: &[(usize, Fault, i32)]) -> [Line; 3] {
    let mut lines = [(); 3].map(|()| Line::sound());
    for &(at, fault, calls) in faults {
        lines[at] = Line::fails_after(calls, fault);
    }
    lines
}

/// The answer to the caller holds when the silent branch is back, and after the next mount.
fn told_the_truth(three: &Three, done: &Result<Vec<BranchUuid>, RelocateError>, silent: Option<usize>, case: &str) {
    if let Some(at) = silent {
        let report = three.recover([true; 3], Some(at));
        assert_eq!((report.pending, &report.warnings), (0, &vec![]), "{case}");
    }
    let report = three.recover([true; 3], None);
    assert_eq!((report.pending, report.warnings), (0, vec![]), "{case}");
    assert!(!three.has_intents(), "{case}");
    if !matches!(done, Err(RelocateError::InDoubt { .. })) {
        assert_eq!(three.has_changed(case), done.is_ok(), "{case}");
    }
}

/// As before, and meanwhile the directory was renamed again, where it had failed as before, everywhere but on the
/// silent branch.
fn told_the_truth_of_names_in_use(three: &Three, is_done: bool, silent: Option<usize>, case: &str) {
    for (_, root) in three.roots.iter().enumerate().filter(|(at, _)| Some(*at) != silent) {
        let (from, to) = if is_done { ("p/new", "elsewhere") } else { ("old", "p/new") };
        fs::rename(root.join(from), root.join(to)).unwrap();
    }
    silent.map(|at| three.recover([true; 3], Some(at)));
    three.recover([true; 3], None);
    assert!(!three.has_intents(), "{case}");
    for (at, root) in three.roots.iter().enumerate() {
        let now = match (is_done, Some(at) == silent) {
            (true, false) => "elsewhere",
            (true, true) | (false, false) => "p/new",
            (false, true) => "old",
        };
        assert!(root.join(now).join("mark").exists(), "{case}: {at}");
    }
}

#[test]
fn names_are_as_was_said_when_a_branch_falls_silent_and_another_refuses() {
    let disk = Tmpfs::new(c"size=16m");
    for (change, first_journal) in CHANGES {
        with_every_fault(|at, fault, calls| {
            let mut has_failed = false;
            let others = (0..3).filter(|&other| other != at);
            for (other, refused, in_use) in
                others.flat_map(|other| (0..10).flat_map(move |n| [(other, n, false), (other, n, true)]))
            {
                let three = Three::new(&disk, change);
                let lines = lines(&[(at, fault, calls), (other, Fault::Refuses, refused)]);
                let done = three.change(change, &lines, first_journal, &|_| GO);
                has_failed |= lines[at].has_failed();
                let silent = (fault != Fault::Refuses && lines[at].has_failed()).then_some(at);
                let case = format!(
                    "{change:?} with intents on {first_journal}, {at} {fault:?} after {calls}, {other} refuses {refused}: {done:?}"
                );
                if in_use && !matches!(done, Err(RelocateError::InDoubt { .. })) {
                    told_the_truth_of_names_in_use(&three, done.is_ok(), silent, &case);
                } else {
                    told_the_truth(&three, &done, silent, &case);
                }
            }
            has_failed
        });
    }
}

#[test]
fn names_agree_after_a_fault_a_crash_at_any_step_of_it_and_a_mount_without_any_branches() {
    let disk = Tmpfs::new(c"size=16m");
    for (change, first_journal) in CHANGES {
        with_every_fault(|at, fault, calls| {
            let mut has_failed = false;
            for mounted in 0..8 {
                let mounted = [0, 1, 2].map(|bit| mounted & (1 << bit) != 0);
                // Where the first intent is, and not the second, which is on the next branch as that is silent: that
                // case is given up (`names`).
                if at == first_journal && fault != Fault::Refuses && mounted[at] && !mounted[(at + 1) % 3] {
                    continue;
                }
                for steps in 0.. {
                    let three = Three::new(&disk, change);
                    let lines = lines(&[(at, fault, calls)]);
                    let (left, step) = countdown(steps);
                    let stopped = Cell::new(false);
                    let done = three.change(change, &lines, first_journal, &|_| {
                        let flow = step(&left);
                        stopped.set(stopped.get() || flow == STOP);
                        flow
                    });
                    has_failed |= lines[at].has_failed();
                    let case = format!(
                        "{change:?} with intents on {first_journal}, {at} {fault:?} after {calls}, crash after {steps}, {mounted:?}: {done:?}"
                    );
                    three.recover(mounted, None);
                    let report = three.recover([true; 3], None);
                    assert_eq!((report.pending, report.warnings), (0, vec![]), "{case}");
                    let has_changed = three.has_changed(&case);
                    if !stopped.get() && !matches!(done, Err(RelocateError::InDoubt { .. })) {
                        assert_eq!(has_changed, done.is_ok(), "{case}");
                    }
                    assert!(!three.has_intents(), "{case}");
                    if !stopped.get() {
                        break;
                    }
                }
            }
            has_failed
        });
    }
}
