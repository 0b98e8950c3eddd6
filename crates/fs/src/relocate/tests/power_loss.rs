//! What a power loss takes back: intents that come again after their moves, files without their last bytes.

use std::cell::Cell;

use super::crash::{GO, STOP, cut_short, make_file, stopped_after, supersede_on, two_files};
use super::*;

/// `file` after a move that is over; then a power loss brings its intent back, and `change` says what else is there.
fn moved_with_its_intent(change: impl FnOnce(&Pool)) -> Pool {
    let pool = Pool::new();
    make_file(&pool.a.join("file"));
    let kept = Cell::new(None);
    let hook = |step| {
        if step == Step::IntentWritten {
            let path = fs::read_dir(pool.a.join(".umbrella/intents")).unwrap().next().unwrap().unwrap().path();
            kept.set(Some((path.clone(), fs::read(path).unwrap())));
        }
        GO
    };
    pool.relocate(&["file"], Some(&hook)).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(15));
    change(&pool);
    let (path, bytes) = kept.take().unwrap();
    fs::write(path, bytes).unwrap();
    pool
}

#[test]
fn a_copy_is_not_deleted_for_another_file_at_the_name_of_its_source() {
    let new_log = |pool: &Pool| fs::write(pool.a.join("file"), "new").unwrap();
    let restored = |pool: &Pool| {
        new_log(pool);
        set_times(&pool.a.join("file"), (1, 2), (3, 4));
    };
    for (what, change) in [("made anew", &new_log as &dyn Fn(&Pool)), ("made anew, and older", &restored)] {
        for returned in [None, Some(A), Some(B)] {
            let pool = moved_with_its_intent(change);
            let moved = snapshot(&pool.b.join("file"));
            let report = match returned {
                None => pool.recover(),
                Some(uuid) => pool.with_branches(&[A, B], |all| recover_returned(all, back(uuid), &|| GO)),
            };
            assert_eq!(report.warnings.len(), 1, "{what}, {returned:?}: {report:?}");
            assert_eq!(fs::read(pool.a.join("file")).unwrap(), b"new", "{what}, {returned:?}");
            assert_eq!(snapshot(&pool.b.join("file")), moved, "{what}, {returned:?}");
            assert!(pool.hidden_files().is_empty(), "{what}, {returned:?}");
        }
    }
}

#[test]
fn a_file_that_has_the_inode_of_the_source_is_not_deleted_for_it() {
    let pool = Pool::new();
    make_file(&pool.a.join("file"));
    cut_short(&pool, |_| {});
    // The number is given out again, to a file whose times are older.
    fs::write(pool.a.join("file"), "other").unwrap();
    set_times(&pool.a.join("file"), (1, 2), (3, 4));
    let intents = pool.a.join(".umbrella/intents");
    let path = fs::read_dir(&intents).unwrap().next().unwrap().unwrap().path();
    let mut intent = Intent::decode(&fs::read(&path).unwrap()).unwrap();
    let Intent::Move { source, .. } = &mut intent else { panic!() };
    let born = source.btime.as_mut().expect("the tests' file system keeps births");
    born.secs -= 1;
    source.nlink += 1;
    fs::write(path, intent.encode().unwrap()).unwrap();
    let report = pool.recover();
    assert_eq!(report.warnings.len(), 1, "{report:?}");
    assert_eq!(fs::read(pool.a.join("file")).unwrap(), b"other");
    assert!(pool.b.join("file").exists());
}

#[test]
fn a_source_that_a_power_loss_cut_off_gives_way_to_the_copy() {
    let pool = Pool::new();
    make_file(&pool.a.join("file"));
    let wanted = snapshot(&pool.a.join("file"));
    // Its times were written, and not its size.
    cut_short(&pool, |source| source.size += 10);
    assert_eq!(pool.recover().finished, 1);
    assert_eq!(pool.only("file"), pool.b.join("file"));
    assert_eq!(snapshot(&pool.b.join("file")), wanted);
}

#[test]
fn a_replaced_file_that_a_power_loss_cut_off_goes() {
    let pool = two_files();
    let hook = |step| if step == Step::Synced { STOP } else { GO };
    supersede_on(&pool, Some(&hook)).unwrap_err();
    let path = pool.hidden_files().pop().unwrap();
    let mut intent = Intent::decode(&fs::read(&path).unwrap()).unwrap();
    let Intent::Supersede { loser_file, .. } = &mut intent else { panic!() };
    // Its times were written, and not its size.
    loser_file.size += 10;
    fs::write(path, intent.encode().unwrap()).unwrap();
    assert_eq!(pool.recover(), Recovery { finished: 1, ..Recovery::default() });
    assert_eq!(fs::read(pool.only("d/file")).unwrap(), b"new");
}

#[test]
fn the_only_copy_of_a_file_is_kept_where_another_one_has_its_name() {
    for other_name in [None, Some("other")] {
        let pool = Pool::new();
        fs::write(pool.a.join("file"), "moved").unwrap();
        let names: Vec<_> = std::iter::once("file").chain(other_name).collect();
        names.iter().skip(1).for_each(|name| fs::hard_link(pool.a.join("file"), pool.a.join(name)).unwrap());
        stopped_after(&pool, &names, Step::IntentWritten);
        // The disks have lost what they had promised.
        for name in names {
            fs::remove_file(pool.a.join(name)).unwrap();
        }
        fs::write(pool.b.join("file"), "another").unwrap();
        let report = pool.recover();
        assert_eq!(fs::read(pool.b.join("file")).unwrap(), b"another");
        if let Some(other_name) = other_name {
            assert_eq!(fs::read(pool.b.join(other_name)).unwrap(), b"moved");
            assert!(pool.hidden_files().is_empty(), "{report:?}");
            continue;
        }
        assert_eq!((report.pending, report.warnings.len()), (1, 1), "{report:?}");
        assert_eq!(fs::read(pool.temp()).unwrap(), b"moved");
        // It waits for a person, who deletes it or gives it a name.
        fs::rename(pool.temp(), pool.b.join("found")).unwrap();
        assert_eq!(pool.recover(), Recovery { finished: 1, ..Recovery::default() });
        assert!(pool.hidden_files().is_empty());
    }
}

#[test]
fn nobody_is_warned_of_a_file_that_moved_there_and_back_and_is_there_once() {
    let pool = moved_with_its_intent(|pool| {
        fs::write(pool.b.join("file"), "changed").unwrap();
        let temp = pool.a.join(".umbrella/tmp/back");
        let copied = copy_path(&pool.b.join("file"), &temp, &ALL).unwrap();
        fs::rename(temp, pool.a.join("file")).unwrap();
        let (names, temp) = (vec![b"file".to_vec()], b"back".to_vec());
        let intent = Intent::Move { from: B, to: A, names, temp, source: copied.source, target: copied.target };
        fs::write(pool.a.join(".umbrella/intents/later"), intent.encode().unwrap()).unwrap();
    });
    assert_eq!(pool.recover(), Recovery { finished: 1, undone: 1, ..Recovery::default() });
    assert_eq!(fs::read(pool.only("file")).unwrap(), b"changed");
    assert_eq!(pool.only("file"), pool.a.join("file"));
    assert!(pool.hidden_files().is_empty());
}

#[test]
fn a_change_that_concerns_a_lost_staging_area_does_not_wait_for_it() {
    let print = Fingerprint::default();
    let rename = |branches: &[BranchUuid]| Intent::RenameDir {
        from: b"old".into(),
        to: b"new".into(),
        branches: branches.to_vec(),
        replaced: false,
        verdict: Verdict::Open,
    };
    let exchange = |sites: &[BranchUuid]| Intent::Exchange {
        one: b"old".into(),
        other: b"file".into(),
        sites: sites
            .iter()
            .map(|branch| ExchangeSite { branch: *branch, one: Some(print), other: Some(print) })
            .collect(),
        verdict: Verdict::Open,
    };
    let replaces = |winner, loser| Intent::Supersede {
        from: b"from".into(),
        to: b"file".into(),
        winner,
        winner_file: print,
        loser,
        loser_file: print,
        verdict: Verdict::Open,
    };
    for intent in
        [rename(&[A, B]), rename(&[B, A]), exchange(&[A, B]), exchange(&[B, A]), replaces(B, A), replaces(A, B)]
    {
        let pool = Pool::new();
        fs::create_dir(pool.a.join("old")).unwrap();
        fs::write(pool.a.join("file"), "kept").unwrap();
        fs::write(pool.a.join(".umbrella/intents/1"), intent.encode().unwrap()).unwrap();
        let empty = tempfile::tempdir().unwrap();
        let root = open(empty.path());
        let report = pool.with_branches(&[A], |online| {
            let gone = RecoverBranch { uuid: B, root: root.as_fd(), writable: true };
            recover(&[online, &[gone]].concat())
        });
        assert_eq!(report.pending, 0, "{intent:?}: {report:?}");
        assert!(pool.hidden_files().is_empty(), "{intent:?}");
        let has = |name: &str| pool.a.join(name).exists();
        assert!(has("old") != has("new") && has("file"), "{intent:?}");
        assert_eq!(fs::read_dir(empty.path()).unwrap().count(), 0, "{intent:?}");
    }
}
