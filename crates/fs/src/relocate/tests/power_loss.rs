//! What a power loss takes back: intents that come again after their moves.

use std::cell::Cell;

use super::crash::{GO, cut_short, make_file};
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
