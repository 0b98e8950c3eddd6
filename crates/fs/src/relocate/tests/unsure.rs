//! Moves whose branch hangs, dies, or answers wrongly halfway.

use std::cell::Cell;
use std::io::Write;

use super::crash::{GO, STOP, rename_dir_deciding, supersede_deciding};
use super::exchange::exchange_deciding;
use super::*;

const CONTENTS: &[u8] = b"the only copy";

fn pool() -> (Pool, Copied) {
    let pool = Pool::new();
    fs::write(pool.a.join("file"), CONTENTS).unwrap();
    let copied = pool.copy("file").unwrap();
    (pool, copied)
}

/// Carries something out, and leaves it alone when this step is reached.
fn left_at<T>(last: Step, change: impl FnOnce(&Decision, StepHook<'_>) -> T) -> (T, LeftAt) {
    let (decision, left) = (Decision::default(), Cell::new(None));
    let hook = |step| {
        if step == last {
            left.set(Some(decision.leave()));
        }
        GO
    };
    let done = change(&decision, &hook);
    (done, left.get().expect("the step is reached"))
}

/// A move that is left alone when this step is reached.
fn move_left_at(last: Step) -> (Pool, Result<Removal, RelocateError>, LeftAt) {
    let (pool, copied) = pool();
    let (done, left) =
        left_at(last, |decision, hook| pool.commit_deciding(&["file"], &copied, decision, Some(hook)));
    (pool, done, left)
}

#[test]
fn a_name_that_is_gone_although_its_unlink_failed_is_no_reason_to_take_the_copy_back() {
    let (pool, copied) = pool();
    // What a server that carried it out and lost its answer looks like the second time.
    let hook = |step| {
        if step == Step::Verified {
            fs::remove_file(pool.a.join("file")).unwrap();
        }
        GO
    };
    assert_eq!(pool.commit(&["file"], &copied, Some(&hook)), Ok(()));
    assert_eq!(fs::read(pool.b.join("file")).unwrap(), CONTENTS);
    assert!(pool.hidden_files().is_empty());
}

#[test]
fn a_move_that_is_given_up_never_touches_its_source_and_is_taken_back() {
    for last in [Step::Start, Step::IntentWritten, Step::Placed(0), Step::Synced, Step::Verified] {
        let (pool, done, left) = move_left_at(last);
        assert_eq!((done, left), (Err(RelocateError::GivenUp), LeftAt::Open), "{last:?}");
        assert_eq!(fs::read(pool.a.join("file")).unwrap(), CONTENTS, "{last:?}");
        // Whoever has it open goes on with it when the other branch is back.
        let mut open = fs::File::options().append(true).open(pool.a.join("file")).unwrap();
        let report = pool.with_branches(&[A, B], |branches| recover_returned(branches, B, &|| GO));
        assert_eq!((report.pending, report.warnings), (0, vec![]), "{last:?}");
        open.write_all(b" and more").unwrap();
        assert_eq!(fs::read(pool.only("file")).unwrap(), [CONTENTS, b" and more"].concat(), "{last:?}");
        assert!(pool.hidden_files().is_empty(), "{last:?}");
    }
}

#[test]
fn a_move_whose_source_goes_cannot_be_given_up() {
    for last in [Step::Removed(0), Step::RemovalSynced, Step::IntentRemoved] {
        let (pool, done, left) = move_left_at(last);
        assert_eq!((done, left), (Ok(Removal::Done), LeftAt::Ending), "{last:?}");
        assert_eq!(fs::read(pool.only("file")).unwrap(), CONTENTS, "{last:?}");
    }
}

#[test]
fn when_the_branch_of_the_source_is_back_the_move_is_finished() {
    let (pool, copied) = pool();
    let stop = |step| if step == Step::Verified { STOP } else { GO };
    let stopped = pool.commit(&["file"], &copied, Some(&stop));
    assert_eq!(stopped, Err(RelocateError::Stopped { after: Step::Verified }));
    fs::write(pool.b.join("file"), "written meanwhile").unwrap();
    let report = pool.with_branches(&[A, B], |branches| recover_returned(branches, A, &|| GO));
    assert_eq!(report.finished, 1, "{report:?}");
    assert_eq!(pool.only("file"), pool.b.join("file"));
    assert_eq!(fs::read(pool.b.join("file")).unwrap(), b"written meanwhile");
}

#[test]
fn a_copy_that_somebody_changed_behind_the_pool_stays_beside_a_source_in_use() {
    let (pool, copied) = pool();
    let stop = |step| if step == Step::Verified { STOP } else { GO };
    pool.commit(&["file"], &copied, Some(&stop)).unwrap_err();
    fs::write(pool.b.join("file"), "written behind the pool").unwrap();
    let report = pool.with_branches(&[A, B], |branches| recover_returned(branches, B, &|| GO));
    assert_eq!(report.warnings.len(), 1, "{report:?}");
    assert_eq!(fs::read(pool.a.join("file")).unwrap(), CONTENTS);
    assert_eq!(fs::read(pool.b.join("file")).unwrap(), b"written behind the pool");
}

#[test]
fn a_rename_that_was_taken_back_is_not_carried_out_without_the_branch_that_refused_it() {
    for missing_first in [false, true] {
        let pool = Pool::new();
        let branches = if missing_first { vec![B, A] } else { vec![A, B] };
        for root in [&pool.a, &pool.b] {
            fs::create_dir(root.join("old")).unwrap();
        }
        let intent =
            Intent::RenameDir { from: b"old".into(), to: b"new".into(), branches, replaced: false, decided: false };
        fs::write(pool.a.join(".umbrella/intents/1"), intent.encode().unwrap()).unwrap();
        pool.with_branches(&[A], recover);
        // Behind a branch that has the old name none is renamed; the one before it may be.
        assert_eq!(pool.a.join("new").exists(), missing_first);
        assert_eq!(pool.a.join("old").exists(), !missing_first);
    }
}

#[test]
fn a_rename_that_is_left_alone_has_not_begun_or_is_finished_by_recovery() {
    for (last, at) in [
        (Step::Start, LeftAt::Open),
        (Step::IntentWritten, LeftAt::Open),
        (Step::Placed(0), LeftAt::Begun),
        (Step::Placed(1), LeftAt::Begun),
        (Step::Synced, LeftAt::Begun),
    ] {
        let pool = Pool::new().dirs(&["old", "p"]);
        fs::write(pool.a.join("old/on-a"), "1").unwrap();
        fs::write(pool.b.join("old/on-b"), "2").unwrap();
        let (done, left) = left_at(last, |decision, hook| rename_dir_deciding(&pool, false, decision, Some(hook)));
        assert_eq!(left, at, "{last:?}");
        // Who carries it out does not go on with branches that it has not come to.
        let unfinished = matches!(last, Step::Start | Step::IntentWritten | Step::Placed(0));
        assert_eq!(done, if unfinished { Err(RelocateError::GivenUp) } else { Ok(vec![]) }, "{last:?}");
        assert_eq!(pool.b.join("old").exists(), unfinished, "{last:?}");
        let report = pool.with_branches(&[A, B], |branches| recover_returned(branches, B, &|| GO));
        assert_eq!((report.pending, report.warnings), (0, vec![]), "{last:?}");
        let now = if at == LeftAt::Open { "old" } else { "p/new" };
        assert!(pool.a.join(now).join("on-a").exists() && pool.b.join(now).join("on-b").exists(), "{last:?}");
        assert!(pool.hidden_files().is_empty(), "{last:?}");
    }
}

#[test]
fn an_exchange_that_is_left_alone_has_not_begun_or_is_finished_by_recovery() {
    for (last, at) in [
        (Step::Start, LeftAt::Open),
        (Step::IntentWritten, LeftAt::Open),
        (Step::Placed(0), LeftAt::Begun),
        (Step::Placed(1), LeftAt::Begun),
    ] {
        let pool = Pool::new().dirs(&["one", "p/other"]);
        for root in [&pool.a, &pool.b] {
            fs::write(root.join("one/file"), "1").unwrap();
        }
        let (_, left) = left_at(last, |decision, hook| exchange_deciding(&pool, decision, Some(hook)));
        assert_eq!(left, at, "{last:?}");
        let report = pool.with_branches(&[A, B], |branches| recover_returned(branches, B, &|| GO));
        assert_eq!((report.pending, report.warnings), (0, vec![]), "{last:?}");
        let now = if at == LeftAt::Open { "one" } else { "p/other" };
        for root in [&pool.a, &pool.b] {
            assert!(root.join(now).join("file").exists(), "{last:?}");
        }
        assert!(pool.hidden_files().is_empty(), "{last:?}");
    }
}

#[test]
fn of_a_rename_over_another_branch_that_is_left_alone_one_file_stays() {
    for (last, at, stays) in [
        (Step::Start, LeftAt::Open, "old"),
        (Step::IntentWritten, LeftAt::Open, "old"),
        (Step::Placed(0), LeftAt::Begun, "new"),
        (Step::Synced, LeftAt::Begun, "new"),
        (Step::Removed(0), LeftAt::Ending, "new"),
    ] {
        let pool = Pool::new().dirs(&["d"]);
        fs::write(pool.a.join("new"), "new").unwrap();
        fs::write(pool.b.join("d/file"), "old").unwrap();
        let (_, left) = left_at(last, |decision, hook| supersede_deciding(&pool, decision, Some(hook)));
        assert_eq!(left, at, "{last:?}");
        let report = pool.with_branches(&[A, B], |branches| recover_returned(branches, B, &|| GO));
        assert_eq!((report.pending, report.warnings), (0, vec![]), "{last:?}");
        assert_eq!(fs::read_to_string(pool.only("d/file")).unwrap(), stays, "{last:?}");
        assert_eq!(pool.a.join("new").exists(), stays == "old", "{last:?}");
        assert!(pool.hidden_files().is_empty(), "{last:?}");
    }
}
