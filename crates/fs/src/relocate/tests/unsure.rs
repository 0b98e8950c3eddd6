//! Moves whose branch hangs, dies, or answers wrongly halfway.

use std::io::Write;

use super::crash::{GO, STOP};
use super::*;

const CONTENTS: &[u8] = b"the only copy";

fn pool() -> (Pool, Copied) {
    let pool = Pool::new();
    fs::write(pool.a.join("file"), CONTENTS).unwrap();
    let copied = pool.copy("file").unwrap();
    (pool, copied)
}

/// Gives up when this step is reached.
fn given_up_at(last: Step) -> (Pool, Result<Removal, RelocateError>, bool) {
    let (pool, copied) = pool();
    let (decision, stays) = (Decision::default(), std::cell::Cell::new(false));
    let hook = |step| {
        if step == last {
            stays.set(decision.give_up());
        }
        GO
    };
    let done = pool.commit_deciding(&["file"], &copied, &decision, Some(&hook));
    (pool, done, stays.get())
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
        let (pool, done, stays) = given_up_at(last);
        assert_eq!((done, stays), (Err(RelocateError::GivenUp), true), "{last:?}");
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
        let (pool, done, stays) = given_up_at(last);
        assert_eq!((done, stays), (Ok(Removal::Done), false), "{last:?}");
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
