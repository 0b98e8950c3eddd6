//! File systems that have no file handles: files are kept open, a bounded number of them, and given back. Needs root.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use umbrella_units::{ByteSize, FileId};
use umbrella_writeback::{FileRef, Flusher, Limits, PageRange, Settings};

/// ramfs, which has none.
struct Ram {
    dir: tempfile::TempDir,
}

impl Ram {
    fn new() -> Ram {
        let dir = tempfile::tempdir().expect("a folder");
        let mounted = Command::new("mount").args(["-t", "ramfs", "ramfs"]).arg(dir.path()).status();
        assert!(mounted.expect("mount(8) runs").success(), "needs root");
        Ram { dir }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }
}

impl Drop for Ram {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.dir.path()).status();
    }
}

/// Descriptors of this process that are open on the file system.
fn open_on(path: &Path) -> Vec<PathBuf> {
    let links = fs::read_dir("/proc/self/fd").expect("is there").flatten();
    links.filter_map(|link| fs::read_link(link.path()).ok()).filter(|to| to.starts_with(path) && to != path).collect()
}

fn eventually(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(60), "not within 60 s: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// After so long a flusher may have looked what is dirty, and found nothing: this file system never says that it has
/// dirty pages.
const NOBODY_LOOKED: Duration = Duration::from_millis(900);

#[test]
fn files_without_handles_are_kept_open_while_they_are_dirty_and_no_more_than_a_few() {
    assert!((0..100).any(|_| kept_open_and_given_back()), "this machine is too slow");
}

/// False when it took so long that the flusher may have looked meanwhile, so that nothing can be said.
fn kept_open_and_given_back() -> bool {
    let ram = Ram::new();
    let limits = Limits { limit: Some(ByteSize(8 << 20)), background: Some(ByteSize(4 << 20)) };
    let settings = Settings { limits, ..Settings::parse("zone").expect("a policy") };
    let begun = Instant::now();
    let flusher = Flusher::start(File::open(ram.path()).expect("opens").into(), settings).expect("starts");
    for number in 0..1000 {
        let file = File::create(ram.path().join(number.to_string())).expect("a file");
        file.write_all_at(&[1; 4096], 0).expect("there is room");
        let id = FileId(file.metadata().expect("stat").ino());
        flusher.wrote(id, FileRef::Open(file.as_fd()), PageRange::of_bytes(0, 4096));
    }
    let (open, dirty) = (open_on(ram.path()).len(), flusher.status().dirty);
    if begun.elapsed() > NOBODY_LOOKED {
        flusher.stop();
        return false;
    }
    assert!((1..=256).contains(&open), "{open} files are kept open");
    assert_eq!(dirty.0, 4096 * open as u64, "the others are the kernel's");
    let all = flusher.mark();
    flusher.synced_all(all);
    eventually("all are given back", || open_on(ram.path()).is_empty());
    flusher.stop();
    true
}
