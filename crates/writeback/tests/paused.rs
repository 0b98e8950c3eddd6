//! A flusher that pauses costs nothing, and learns what the kernel writes back meanwhile.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use umbrella_units::{ByteSize, FileId, PageIndex, Pages};
use umbrella_writeback::{FileRef, Flusher, Limits, PageRange, Settings};

/// A flusher that is paused before anything is dirty, and a file on its file system.
fn paused(dir: &tempfile::TempDir) -> (Arc<Flusher>, File) {
    let limits = Limits { limit: Some(ByteSize(2 << 20)), background: Some(ByteSize(1 << 20)) };
    let settings = Settings { limits, ..Settings::parse("cscan").expect("a policy") };
    let flusher = Flusher::start(File::open(dir.path()).expect("opens").into(), settings).expect("starts");
    flusher.pause();
    (flusher, File::create_new(dir.path().join("file")).expect("a file"))
}

/// Ticks of processor time, a hundredth of a second each, that the threads of this name have had.
fn ticks(name: &str) -> u64 {
    let tasks = fs::read_dir("/proc/self/task").expect("is there").flatten();
    let stats = tasks.filter_map(|task| fs::read_to_string(task.path().join("stat")).ok());
    let of_name = stats.filter_map(|stat| stat.split_once(&format!("({name}) ")).map(|(_, rest)| rest.to_owned()));
    of_name.map(|rest| rest.split(' ').skip(11).take(2).filter_map(|it| it.parse::<u64>().ok()).sum::<u64>()).sum()
}

#[test]
fn one_that_pauses_above_its_threshold_sleeps_and_notes_what_others_wrote_beside_a_busy_page() {
    let dir = tempfile::tempdir().expect("a directory");
    let (flusher, file) = paused(&dir);
    let reported = |first, pages| {
        let range = PageRange { first: PageIndex(first), pages: Pages(pages) };
        flusher.wrote(FileId(1), FileRef::Open(file.as_fd()), range);
    };
    // The kernel has nothing of it dirty: all is written, so to speak. More pieces than are compared at once, and at
    // the end so much that the kernel has less dirty, whatever else this machine does.
    for piece in 1..10_000 {
        reported(2 * piece, 1);
    }
    reported(1 << 20, 1 << 20);
    let (before, begun) = (ticks("wb-flush"), Instant::now());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Never at rest, as a database's file.
            while !stop.load(Ordering::Relaxed) {
                reported(0, 1);
                std::thread::sleep(Duration::from_micros(100));
            }
        });
        std::thread::sleep(Duration::from_millis(500));
        let (used, passed) = (ticks("wb-flush") - before, begun.elapsed().as_millis() as u64 / 10);
        stop.store(used * 2 > passed, Ordering::Relaxed);
        assert!(used * 2 <= passed, "{used} ticks in {passed}");
        while flusher.status().dirty > ByteSize(4096) && begun.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(20));
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(flusher.status().dirty <= ByteSize(4096), "{:?}", flusher.status());
    flusher.stop();
}
