//! Moves whose branch hangs, dies, or answers wrongly halfway.

use std::cell::Cell;
use std::io::Write;

use super::batch::run;
use super::crash::{GO, STOP, rename_dir_over, supersede_over, two_files};
use super::exchange::exchange_over;
use super::*;

const CONTENTS: &[u8] = b"the only copy";

fn pool() -> (Pool, DurableCopy) {
    let pool = Pool::new();
    fs::write(pool.a.join("file"), CONTENTS).unwrap();
    let copied = pool.copy("file").unwrap();
    (pool, copied)
}

/// Carries something out, and leaves it alone when this step is reached.
fn left_at<T>(last: Step, change: impl FnOnce(&Decision, StepHook<'_>) -> T) -> (T, Reversibility) {
    let (decision, left) = (Decision::default(), Cell::new(None));
    let hook = |step| {
        if step == last {
            left.set(Some(decision.abandon()));
        }
        GO
    };
    let done = change(&decision, &hook);
    (done, left.get().expect("the step is reached"))
}

/// A move that is left alone when this step is reached.
fn move_left_at(last: Step) -> (Pool, Result<Removal, RelocateError>, Reversibility) {
    let (pool, copied) = pool();
    let (done, left) = left_at(last, |decision, hook| pool.commit_deciding(&["file"], &copied, decision, Some(hook)));
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
        assert_eq!((done, left), (Err(RelocateError::GivenUp), Reversibility::Open), "{last:?}");
        assert_eq!(fs::read(pool.a.join("file")).unwrap(), CONTENTS, "{last:?}");
        // An open handle goes on with it when the other branch is back.
        let mut open = fs::File::options().append(true).open(pool.a.join("file")).unwrap();
        let report = pool.with_branches(&[A, B], |branches| recover_returned(branches, back(B), &|| GO));
        assert_eq!((report.pending, report.warnings), (0, vec![]), "{last:?}");
        open.write_all(b" and more").unwrap();
        assert_eq!(fs::read(pool.only("file")).unwrap(), [CONTENTS, b" and more"].concat(), "{last:?}");
        assert!(pool.hidden_files().is_empty(), "{last:?}");
    }
}

/// A disk that fails: the directory cannot be opened for a sync, by this thread, which loses that right.
fn fail_syncs_of(dir: &Path) {
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
    fs::set_permissions(dir, std::os::unix::fs::PermissionsExt::from_mode(0o300)).unwrap();
    let mut sets = capabilities(None).unwrap();
    sets.effective -= CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH;
    set_capabilities(None, sets).unwrap();
}

fn regain_rights() {
    use rustix::thread::{capabilities, set_capabilities};
    let mut sets = capabilities(None).unwrap();
    sets.effective = sets.permitted;
    set_capabilities(None, sets).unwrap();
}

#[test]
fn a_source_whose_removal_is_not_durable_goes_whatever_users_make_of_the_copy() {
    let pool = Pool::new().dirs(&["d"]);
    let (source, saved) = (pool.a.join("d/file"), pool.a.join("saved"));
    fs::write(&source, CONTENTS).unwrap();
    let copied = pool.copy("d/file").unwrap();
    let hook = |step| {
        match step {
            Step::Verified => fs::hard_link(&source, &saved).unwrap(),
            Step::Removed(0) => fail_syncs_of(&pool.a.join("d")),
            _ => {}
        }
        GO
    };
    let done = pool.commit_deciding(&["d/file"], &copied, &Decision::default(), Some(&hook));
    regain_rights();
    assert!(matches!(done, Ok(Removal::Unsure { .. })), "{done:?}");
    goes_when_it_is_back(&pool, &saved);
}

#[test]
fn sources_of_a_batch_whose_removal_is_not_durable_go_whatever_users_make_of_the_copies() {
    let pool = Pool::new().dirs(&["d"]);
    let (source, saved) = (pool.a.join("d/file"), pool.a.join("saved"));
    fs::write(&source, CONTENTS).unwrap();
    let hook = |step| {
        match step {
            Step::Placed(0) => fs::hard_link(&source, &saved).unwrap(),
            Step::Removed(1) => fail_syncs_of(&pool.a.join("d")),
            _ => {}
        }
        GO
    };
    let fallen = run(&pool, &["d/file"], Some(&hook));
    regain_rights();
    assert_eq!(fallen, Ok(vec![]));
    goes_when_it_is_back(&pool, &saved);
}

/// The removal of a moved file was not durable, and users have exchanged its name with another one since.
fn goes_when_it_is_back(pool: &Pool, saved: &Path) {
    let source = pool.a.join("d/file");
    fs::rename(saved, &source).unwrap();
    fs::rename(pool.b.join("d/file"), pool.b.join("d/other")).unwrap();
    fs::write(pool.b.join("d/file"), "another").unwrap();
    let report = pool.with_branches(&[A, B], |branches| recover_returned(branches, back(A), &|| GO));
    assert_eq!((report.pending, report.warnings), (0, vec![]));
    assert!(!source.exists());
    assert_eq!(fs::read(pool.b.join("d/file")).unwrap(), b"another");
    assert_eq!(fs::read(pool.b.join("d/other")).unwrap(), CONTENTS);
    assert!(pool.hidden_files().is_empty());
}

/// A file of two names, of which another file takes the second at the target while it moves.
fn taken_back(at_undo: &dyn Fn(&Decision) -> std::ops::ControlFlow<()>) -> (Pool, Result<Removal, RelocateError>) {
    let (pool, decision) = (Pool::new(), Decision::default());
    fs::write(pool.a.join("file"), CONTENTS).unwrap();
    fs::hard_link(pool.a.join("file"), pool.a.join("other")).unwrap();
    let copied = pool.copy("file").unwrap();
    let hook = |step| {
        if step == Step::Placed(0) {
            fs::write(pool.b.join("other"), "came first").unwrap();
        }
        if step == Step::Undoing { at_undo(&decision) } else { GO }
    };
    let done = pool.commit_deciding(&["file", "other"], &copied, &decision, Some(&hook));
    (pool, done)
}

fn is_as_it_was(pool: &Pool) {
    assert_eq!(fs::read(pool.only("file")).unwrap(), CONTENTS);
    assert_eq!(fs::read(pool.a.join("other")).unwrap(), CONTENTS);
    assert_eq!(fs::read(pool.b.join("other")).unwrap(), b"came first");
    assert!(pool.hidden_files().is_empty());
}

#[test]
fn a_move_that_hangs_while_it_is_taken_back_is_left_to_recovery() {
    let (pool, done) = taken_back(&|_| GO);
    assert_eq!(done, Err(RelocateError::Taken));
    is_as_it_was(&pool);

    let left = |decision: &Decision| {
        assert_eq!(decision.abandon(), Reversibility::Undoing);
        GO
    };
    let (pool, done) = taken_back(&left);
    assert!(matches!(done, Err(RelocateError::InDoubt { .. })), "{done:?}");
    assert!(pool.b.join("file").exists(), "nothing more is done");
    pool.with_branches(&[A, B], |branches| recover_returned(branches, back(B), &|| GO));
    is_as_it_was(&pool);
}

#[test]
fn a_crash_while_a_move_is_taken_back_is_recovered_from() {
    let (pool, done) = taken_back(&|_| STOP);
    assert_eq!(done, Err(RelocateError::Stopped { after: Step::Undoing }));
    pool.recover();
    is_as_it_was(&pool);
}

#[test]
fn a_move_whose_source_goes_cannot_be_given_up() {
    for last in [Step::Removed(0), Step::RemovalSynced, Step::IntentRemoved] {
        let (pool, done, left) = move_left_at(last);
        assert_eq!((done, left), (Ok(Removal::Done), Reversibility::Ending), "{last:?}");
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
    let report = pool.with_branches(&[A, B], |branches| recover_returned(branches, back(A), &|| GO));
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
    let report = pool.with_branches(&[A, B], |branches| recover_returned(branches, back(B), &|| GO));
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
        let intent = Intent::RenameDir {
            from: b"old".into(),
            to: b"new".into(),
            branches,
            replaced: false,
            verdict: Verdict::Open,
        };
        fs::write(pool.a.join(".umbrella/intents/1"), intent.encode().unwrap()).unwrap();
        pool.with_branches(&[A], recover);
        // Behind a branch that has the old name none is renamed; the one before it may be.
        assert_eq!(pool.a.join("new").exists(), missing_first);
        assert_eq!(pool.a.join("old").exists(), !missing_first);
    }
}

#[test]
fn a_move_that_is_given_up_does_not_bring_a_file_back_that_users_have_deleted() {
    for last in [Step::Start, Step::IntentWritten, Step::Placed(0), Step::Synced, Step::Verified] {
        let (pool, done, _) = move_left_at(last);
        assert_eq!(done, Err(RelocateError::GivenUp), "{last:?}");
        fs::remove_file(pool.a.join("file")).unwrap();
        let returned = Returned { uuid: B, given_up: &|_| true };
        let report = pool.with_branches(&[A, B], |branches| recover_returned(branches, returned, &|| GO));
        assert_eq!((report.pending, report.warnings), (0, vec![]), "{last:?}");
        assert!(!pool.a.join("file").exists() && !pool.b.join("file").exists(), "{last:?}");
        assert!(pool.hidden_files().is_empty(), "{last:?}");
    }
}

#[test]
fn a_move_that_was_abandoned_before_a_restart_does_not_bring_a_file_back_that_users_have_deleted() {
    for (in_batch, is_deleted) in [(false, false), (false, true), (true, false), (true, true)] {
        let when = format!("in a batch: {in_batch}, deleted: {is_deleted}");
        let (pool, copied) = pool();
        let (path, temp) = (b"file".to_vec(), b"copy".to_vec());
        let DurableCopy { source, target, .. } = copied;
        let one = Intent::Move { from: A, to: B, names: vec![path.clone()], temp: temp.clone(), source, target };
        let files = vec![BatchFile { path, temp, source, target }];
        let intent = if in_batch { Intent::Moves { from: A, to: B, files } } else { one.clone() };
        fs::write(pool.b.join(".umbrella/intents/1"), intent.encode().unwrap()).unwrap();
        fs::rename(pool.temp(), pool.b.join("file")).unwrap();
        record_abandoned(open(pool.a.join(".umbrella/intents")).as_fd(), &one).unwrap();
        if is_deleted {
            fs::remove_file(pool.a.join("file")).unwrap();
        }
        assert_eq!(pool.with_branches(&[A], recover).pending, 1, "{when}");
        let report = pool.recover();
        assert_eq!((report.pending, report.warnings), (0, vec![]), "{when}");
        assert_eq!((pool.a.join("file").exists(), pool.b.join("file").exists()), (!is_deleted, false), "{when}");
        assert!(pool.hidden_files().is_empty(), "{when}");
    }
}

#[test]
fn what_was_left_to_take_back_at_first_does_not_count_when_less_is_left() {
    let pool = Pool::new();
    // Somebody has renamed it with success since, without B.
    fs::create_dir(pool.a.join("new")).unwrap();
    fs::create_dir(pool.b.join("new")).unwrap();
    for (name, branches) in [("1", vec![A, B]), ("2", vec![B])] {
        let verdict = Verdict::Undone;
        let intent = Intent::RenameDir { from: b"old".into(), to: b"new".into(), branches, replaced: false, verdict };
        fs::write(pool.b.join(".umbrella/intents").join(name), intent.encode().unwrap()).unwrap();
    }
    assert_eq!(pool.recover().warnings, Vec::<String>::new());
    assert!(pool.a.join("new").exists() && pool.b.join("old").exists());
    assert!(pool.hidden_files().is_empty());
}

/// Breaks the way to a branch at every call, with the last one carried out and not; ends when a change needs no more
/// calls.
fn at_every_break(mut change: impl FnMut(&Line, String)) {
    for calls in 0.. {
        let mut breaks = false;
        for fault in [Fault::Breaks, Fault::LosesAnswer] {
            let line = Line::fails_after(calls, fault);
            change(&line, format!("{fault:?} after {calls} calls"));
            breaks |= line.has_failed();
        }
        if !breaks {
            assert!(calls >= 3);
            return;
        }
    }
}

/// That a change is over may be all that an intent says: it goes at the next mount, at which nothing happens.
fn nothing_is_left_after_a_mount(pool: &Pool, when: &str) {
    let report = pool.with_branches(&[A, B], recover);
    assert_eq!((report.pending, report.undone, report.warnings), (0, 0, vec![]), "{when}");
    assert!(pool.hidden_files().is_empty(), "{when}");
}

#[test]
fn a_directory_has_one_name_wherever_the_way_to_a_branch_breaks_and_whatever_the_old_name_is_used_for() {
    for replaced in [false, true] {
        at_every_break(|to_b, when| {
            let pool = Pool::new().dirs(&["old", "p"]);
            fs::write(pool.a.join("old/on-a"), "1").unwrap();
            fs::write(pool.b.join("old/on-b"), "2").unwrap();
            if replaced {
                fs::create_dir(pool.b.join("p/new")).unwrap();
            }
            let done = rename_dir_over(&pool, replaced, to_b, None);
            if done.is_ok() {
                fs::create_dir(pool.a.join("old")).unwrap();
                fs::write(pool.a.join("old/another"), "3").unwrap();
            }
            let report = pool.with_branches(&[A, B], |branches| recover_returned(branches, back(B), &|| GO));
            assert_eq!((report.pending, report.warnings), (0, vec![]), "{when}");
            nothing_is_left_after_a_mount(&pool, &when);
            let now = if done.is_ok() { "p/new" } else { "old" };
            assert!(
                pool.a.join(now).join("on-a").exists() && pool.b.join(now).join("on-b").exists(),
                "{done:?} {when}"
            );
            assert_eq!(pool.a.join("old/another").exists(), done.is_ok(), "{when}");
        });
    }
}

#[test]
fn names_are_exchanged_on_all_branches_wherever_the_way_to_one_breaks() {
    at_every_break(|to_b, when| {
        let pool = Pool::new().dirs(&["one", "p/other"]);
        for root in [&pool.a, &pool.b] {
            fs::write(root.join("one/file"), "1").unwrap();
        }
        let done = exchange_over(&pool, to_b, None);
        let report = pool.with_branches(&[A, B], |branches| recover_returned(branches, back(B), &|| GO));
        assert_eq!((report.pending, report.warnings), (0, vec![]), "{when}");
        nothing_is_left_after_a_mount(&pool, &when);
        let now = if done.is_ok() { "p/other" } else { "one" };
        for root in [&pool.a, &pool.b] {
            assert!(root.join(now).join("file").exists(), "{done:?} {when}");
        }
    });
}

#[test]
fn of_two_files_the_one_that_users_see_stays_when_the_way_to_the_renamed_one_breaks() {
    for is_mounted_again in [false, true] {
        at_every_break(|to_a, when| {
            let pool = two_files();
            let done = supersede_over(&pool, [to_a, &Line::sound()], None);
            assert!(
                !matches!(done, Ok(Removal::Unsure { .. })),
                "{when}: the other branch has said all that it was asked"
            );
            // Somebody has it open, and goes on with it where the call failed.
            let open = done.is_err().then(|| fs::File::options().append(true).open(pool.b.join("d/file")).unwrap());
            let report = pool.with_branches(&[A, B], |branches| {
                if is_mounted_again { recover(branches) } else { recover_returned(branches, back(A), &|| GO) }
            });
            assert_eq!((report.pending, report.warnings), (0, vec![]), "{when}");
            nothing_is_left_after_a_mount(&pool, &when);
            if let Some(mut open) = open {
                open.write_all(b" and more").unwrap();
                assert_eq!(fs::read(pool.only("d/file")).unwrap(), b"old and more", "{when}");
                assert_eq!(fs::read(pool.a.join("new")).unwrap(), b"new", "{when}");
            } else {
                assert_eq!(fs::read(pool.only("d/file")).unwrap(), b"new", "{when}");
                assert!(!pool.a.join("new").exists(), "{when}");
            }
        });
    }
}

#[test]
fn a_file_that_was_replaced_does_not_return_when_the_way_to_it_breaks() {
    at_every_break(|to_b, when| {
        let pool = two_files();
        let done = supersede_over(&pool, [&Line::sound(), to_b], None);
        if done.is_ok() {
            fs::remove_file(pool.a.join("d/file")).unwrap();
        }
        let report = pool.with_branches(&[A, B], |branches| recover_returned(branches, back(B), &|| GO));
        assert_eq!((report.pending, report.warnings), (0, vec![]), "{when}");
        nothing_is_left_after_a_mount(&pool, &when);
        assert_eq!(pool.b.join("d/file").exists(), done.is_err(), "{done:?} {when}");
        assert_eq!(pool.a.join("new").exists(), done.is_err(), "{when}");
    });
}
