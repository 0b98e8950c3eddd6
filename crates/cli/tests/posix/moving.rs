//! Times of a directory whose files move all the time.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use crate::support::MIB;
use crate::support::disk::Disk;
use crate::support::pool::Pool;

const LARGE: &str = "[[rule]]\nname = \"large\"\nwhen = { size = \"> 64KiB\" }\nto = [\"b\", \"default\", \"any\"]\n";

/// Finds unexpected for a program that sets a directory's time and makes entries in it while another makes files in it
/// larger and smaller. It runs for two seconds, and until enough files have moved.
fn unexpected_times(dir: &Path, have_moved: impl Fn() -> bool) -> Vec<String> {
    fs::create_dir(dir).unwrap();
    for number in 0..8 {
        fs::write(dir.join(format!("file{number}")), "x").unwrap();
    }
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in (0..).take_while(|_| !ends.load(Ordering::Relaxed)) {
                let file = OpenOptions::new().write(true).open(dir.join(format!("file{}", round % 8))).unwrap();
                file.set_len(if round / 8 % 2 == 0 { 100_000 } else { 1 }).unwrap();
                drop(file);
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        let began = Instant::now();
        let mut unexpected = Vec::new();
        let mtime = || fs::metadata(dir).unwrap().mtime() as u64;
        let goes_on = || began.elapsed() < Duration::from_secs(2) || !have_moved();
        for round in (0..).take_while(|_| goes_on()) {
            assert!(began.elapsed() < Duration::from_secs(60), "files move meanwhile");
            let set = 1_000_000 + round;
            let then = SystemTime::UNIX_EPOCH + Duration::from_secs(set);
            File::open(dir).unwrap().set_times(fs::FileTimes::new().set_modified(then)).unwrap();
            let stays: [u64; 3] = [(); 3].map(|()| mtime());
            if stays != [set; 3] {
                unexpected.push(format!("round {round}: set {set}, then {stays:?}"));
            }
            let (new, other) = (dir.join("new"), dir.join("other"));
            match round % 5 {
                0 => fs::write(&new, "").unwrap(),
                1 => fs::rename(&new, &other).unwrap(),
                2 => fs::remove_file(&other).unwrap(),
                3 => fs::create_dir(&new).unwrap(),
                _ => fs::remove_dir(&new).unwrap(),
            }
            if mtime() <= set {
                unexpected.push(format!("round {round}: the change is not seen"));
            }
        }
        ends.store(true, Ordering::Relaxed);
        unexpected
    })
}

#[test]
fn a_directory_whose_files_move_has_the_times_that_it_has_on_ext4() {
    let plain = Disk::ext4(32 * MIB);
    assert!(unexpected_times(&plain.join("dir"), || true).is_empty());
    let disks = [Disk::ext4(32 * MIB), Disk::ext4(32 * MIB)];
    for passthrough in ["passthrough = true\nheadroom = 0", "passthrough = false"] {
        let pool = Pool::builder().branch_with("a", disks[0].path(), passthrough);
        let pool = pool.branch_with("b", disks[1].path(), passthrough).default(&["a"]).rules(LARGE).mount();
        let found = unexpected_times(&pool.join("dir"), || pool.metric("umbrella_relocations_done_count") > 20);
        assert!(found.is_empty(), "{found:#?}");
        fs::remove_dir_all(pool.join("dir")).unwrap();
    }
}
