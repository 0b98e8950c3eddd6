//! Failures that generated sequences found, cut down.

use crate::bench::Ground;
use crate::ops::Op;
use crate::sequences::{Kind, run};

/// The sequence must hold on a disk and in memory, with new files staged and without.
fn holds(rules: usize, ops: &[Op]) {
    for (ground, staged) in [(Ground::Disk, false), (Ground::Memory, false), (Ground::Memory, true)] {
        let kind = Kind { ground, staged };
        if let Err(text) = run(kind, rules, ops) {
            panic!("on {kind:?}: {text}");
        }
    }
}

#[test]
fn a_copied_directory_keeps_its_number_over_a_mount_while_its_first_branch_is_away() {
    let ops = [
        Op::Mkdir { dir: 0, name: 0, perm: 0o755 },
        Op::Put { dir: 1, name: 1, perm: 0o600, uid: 1000, len: 100 },
        Op::Reload { rules: 2 },
        Op::Enforce,
        Op::Remount { orderly: true },
        Op::TakeAway { branch: 0 },
        Op::Settle,
    ];
    holds(0, &ops);
}

#[test]
fn a_file_that_waits_for_its_move_stays_in_its_directory_when_that_is_forgotten_and_renamed() {
    let ops = [
        Op::Mkdir { dir: 0, name: 0, perm: 0o755 },
        // Into the directory, and too big for the first branch.
        Op::Put { dir: 1, name: 1, perm: 0o600, uid: 0, len: 10_000 },
        Op::DropCaches,
        Op::Rename { entry: 0, dir: 0, name: 2, way: 0 },
        Op::Settle,
    ];
    holds(0, &ops);
}

#[test]
fn a_directory_changed_while_a_branch_was_away_is_alike_on_all_branches_afterwards() {
    let ops = [
        Op::Mkdir { dir: 0, name: 0, perm: 0o755 },
        Op::Put { dir: 1, name: 1, perm: 0o600, uid: 0, len: 10_000 },
        Op::Settle,
        // The file is on `slow` now; the directory on both.
        Op::TakeAway { branch: 0 },
        Op::Chmod { what: 0, perm: 0o700 },
        Op::GiveBack,
    ];
    holds(0, &ops);
}

#[test]
fn a_directory_made_alike_after_a_branch_was_away_does_not_look_older() {
    let ops = [
        Op::Mkdir { dir: 0, name: 0, perm: 0o755 },
        Op::Put { dir: 1, name: 1, perm: 0o600, uid: 0, len: 10_000 },
        Op::Settle,
        // Its entries change last on the branch that goes away, its owner meanwhile.
        Op::Put { dir: 1, name: 2, perm: 0o600, uid: 0, len: 10 },
        Op::TakeAway { branch: 0 },
        Op::Chown { what: 0, uid: 1000 },
        Op::GiveBack,
    ];
    holds(0, &ops);
}
