//! Every lock and every call to a branch is a point where another thread may go on. A model checker decides at each
//! which one, over and over, on real pools over small file systems in memory.
//!
//! It does not see what two processors do between two such points, nor calls that last.
//!
//! `cargo test -p umbrella-fs --features model-check --test model_check`, as root. `UMBRELLA_MODEL_SEED` is the seed,
//! `UMBRELLA_MODEL_RUNS` says how often each model runs. A failure prints the seed, and the schedule for
//! `shuttle::replay`.
#![expect(dead_code, reason = "`core` uses the rest")]

#[path = "../core/bench.rs"]
mod bench;
mod scene;

use umbrella_fs::pool::Replace;

use scene::{Scene, explore};

/// A rename of the file, or of its directory, meets the commit of its move. A third thread looks for it all the time.
#[test]
fn a_rename_and_the_commit_of_a_move_leave_one_file_under_the_new_name() {
    explore(|| {
        let scene = Scene::with_big_file();
        let mover = scene.thread(|scene| scene.pool.move_all_queued());
        let reader = scene.thread(|scene| {
            let found = ["old", "new"].map(|name| scene.find(name));
            assert!(found.iter().any(Option::is_some), "the rename goes from the first to the second");
        });
        scene.rename("old", "new", Replace::Yes);
        mover.join().unwrap();
        reader.join().unwrap();
        assert!(scene.find("old").is_none());
        scene.holds_once("new");
    });
}

#[test]
fn a_directory_that_changes_its_name_during_a_move_takes_the_file_along() {
    explore(|| {
        let scene = Scene::with_big_file();
        let mover = scene.thread(|scene| scene.pool.move_all_queued());
        scene.rename_dir("dir", "there");
        mover.join().unwrap();
        assert!(scene.find("old").is_some());
        scene.holds_once_in("there", "old");
    });
}

/// The directory that it goes to is on the file's branch only, and is locked during calls to the branch. Nobody may
/// wait for the other then.
#[test]
fn a_file_that_goes_to_another_directory_as_it_moves_arrives() {
    explore(|| {
        let scene = Scene::with_big_file();
        let mover = scene.thread(|scene| scene.pool.move_all_queued());
        scene.rename_to_other_dir("old");
        mover.join().unwrap();
        assert!(scene.find("old").is_none());
        scene.holds_once_in("other", "old");
    });
}

#[test]
fn a_file_that_replaces_one_on_another_branch_is_found_at_any_time() {
    explore(|| {
        let scene = Scene::with_big_file();
        scene.pool.move_all_queued();
        scene.put("small", b"small");
        let reader = scene.thread(|scene| assert!(scene.find("old").is_some(), "one or the other has the name"));
        scene.rename("small", "old", Replace::Yes);
        reader.join().unwrap();
        assert_eq!(scene.holders_in("dir", "old").len(), 1);
    });
}

#[test]
fn a_staged_file_that_leaves_keeps_what_is_written_meanwhile() {
    explore(|| {
        let scene = Scene::staged();
        let handle = scene.create("file", b"before");
        let writer = scene.thread(move |scene| assert_eq!(scene.pool.write(handle, b"after!", 6, false), Ok(6)));
        let reader = scene.thread(move |scene| assert!(scene.read(handle).starts_with(b"before")));
        scene.pool.fsync(handle, false).unwrap();
        writer.join().unwrap();
        reader.join().unwrap();
        assert_eq!(scene.read(handle), b"beforeafter!");
        scene.pool.release(handle).unwrap();
        assert_eq!(scene.holders_in("dir", "file"), ["fast"]);
    });
}

#[test]
fn a_staged_file_that_is_unlinked_as_it_leaves_is_gone_everywhere() {
    explore(|| {
        let scene = Scene::staged();
        let handle = scene.create("file", b"before");
        let leaver = scene.thread(move |scene| _ = scene.pool.fsync(handle, false));
        scene.unlink("file");
        leaver.join().unwrap();
        assert_eq!(scene.read(handle), b"before", "who has it open reads on");
        scene.pool.release(handle).unwrap();
        assert!(scene.holders_in("dir", "file").is_empty() && scene.find("file").is_none());
    });
}

#[test]
fn a_reader_goes_on_in_a_file_that_moves_under_it() {
    explore(|| {
        let scene = Scene::with_big_file();
        let handle = scene.open("old");
        let mover = scene.thread(|scene| scene.pool.move_all_queued());
        let reader = scene.thread(move |scene| assert_eq!(scene.read(handle), scene.data));
        assert_eq!(scene.read(handle), scene.data);
        mover.join().unwrap();
        reader.join().unwrap();
        assert_eq!(scene.read(handle), scene.data);
        scene.pool.release(handle).unwrap();
        scene.holds_once("old");
    });
}

#[test]
fn two_writers_that_fill_a_branch_move_their_file_once_and_lose_nothing() {
    const LEN: usize = 100 << 10;
    explore(|| {
        let scene = Scene::on_the_small_branch(400 << 10);
        let handle = scene.open_to_write("file.log");
        let end = scene.data.len() as u64;
        let writers = [1_u8, 2].map(|number| {
            scene.thread(move |scene| {
                let at = end + (u64::from(number) - 1) * LEN as u64;
                assert_eq!(scene.pool.write(handle, &[number; LEN], at, false), Ok(LEN));
            })
        });
        let reader = scene.thread(move |scene| assert!(scene.read(handle).starts_with(&scene.data)));
        for thread in writers.into_iter().chain([reader]) {
            thread.join().unwrap();
        }
        assert_eq!(scene.read(handle), [&scene.data[..], &[1; LEN], &[2; LEN]].concat());
        scene.pool.release(handle).unwrap();
        assert_eq!(scene.holders_in("dir", "file.log").len(), 1);
    });
}
