//! Dirty pages as the kernel tells them, against what cachestat(2) finds, on real ext4, xfs and btrfs.
//!
//! A kernel without the tracepoints must say so clearly; one that has them must pass everything.

mod disk;

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use disk::{Disk, dirty_count, dirty_pages, eventually};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use umbrella_units::{ByteSize, FileId, PageIndex, Pages};
use umbrella_writeback::bpf::{BpfError, KernelReport, Mounted, Source, Watch, WatchError};
use umbrella_writeback::{FileRef, Flusher, Limits, PageRange, Settings};

const PAGE: u64 = 4096;
/// Inodes below are the file systems' own.
const FIRST_FILE: u64 = 2;
const RING: ByteSize = ByteSize(8 << 20);
const SOON: Duration = Duration::from_secs(60);

/// Watches a disk; nothing when the kernel has no such tracepoint and says so.
fn source(disk: &Disk, ring: ByteSize) -> Option<Source> {
    let mounted = Mounted::at(&disk.path()).expect("a mount point");
    told_if_missing(Source::watch(mounted.device(), ring))
}

fn watch(disk: &Disk, ring: ByteSize) -> Option<Watch> {
    // Nothing is to be written back while a test counts.
    let limits = Limits { limit: Some(ByteSize(8 << 30)), background: Some(ByteSize(4 << 30)) };
    let settings = Settings { policy: "zone_segment".parse().expect("a policy"), limits };
    match Watch::start(&disk.path(), settings, ring, &disk.run_dir()) {
        Err(WatchError::Bpf(error)) => told_if_missing(Err(error)),
        watch => Some(watch.expect("watches")),
    }
}

fn told_if_missing<T>(got: Result<T, BpfError>) -> Option<T> {
    let known = fs::read_to_string("/sys/kernel/tracing/available_events").unwrap_or_default();
    let lacking = known.is_empty()
        || !["writeback:writeback_dirty_folio", "writeback:sb_clear_inode_writeback"]
            .iter()
            .all(|name| known.lines().any(|line| line == *name));
    match got {
        Err(error @ (BpfError::NoTracepoint { .. } | BpfError::NoTypes { .. } | BpfError::NoBpf)) if lacking => {
            let text = error.to_string();
            assert!(text.contains("tracepoint") || text.contains("CONFIG_"), "does not say what is missing: {text}");
            println!("{text}");
            None
        }
        got => Some(got.expect("this kernel has what is needed")),
    }
}

/// All pages of all files that were reported dirty by now, and whether the kernel has written back some.
fn seen(source: &mut Source) -> (BTreeSet<(u64, u64)>, bool) {
    let (mut pages, mut wrote) = (BTreeSet::new(), false);
    while source.drain(1 << 16, |seen| match seen {
        KernelReport::Dirtied { file, first, pages: count, .. } => {
            pages.extend((first.0..first.0 + count.0).map(|page| (file.file.0, page)));
        }
        // Inode 1 of btrfs is that of the tree's own blocks.
        KernelReport::Written { file, .. } => wrote |= file.file.0 > 1,
    }) > 0
    {}
    (pages, wrote)
}

/// All pages that were reported dirty by now, to compare with the pages `found` dirty. `None` if the kernel wrote some
/// back meanwhile, so that the two may differ.
fn comparable(source: &mut Source, found: &BTreeSet<(u64, u64)>) -> Option<BTreeSet<(u64, u64)>> {
    let (pages, mut wrote) = seen(source);
    let differ = pages.iter().filter(|(ino, _)| *ino >= FIRST_FILE).ne(found.iter());
    if differ && !wrote {
        // The report comes at the end of a write-back.
        eventually(Duration::from_secs(3), || {
            wrote = seen(source).1;
            wrote
        });
    }
    (!wrote).then_some(pages)
}

/// Does it until the kernel, which writes back what is dirty for seconds or when memory is short, left it alone.
fn undisturbed(mut attempt: impl FnMut() -> Option<()>) {
    assert!((0..20).any(|_| attempt().is_some()), "the kernel writes everything back at once");
}

fn pages_of(file: &Path) -> BTreeSet<(u64, u64)> {
    let ino = fs::metadata(file).expect("is there").ino();
    dirty_pages(file).into_iter().map(|page| (ino, page)).collect()
}

/// A file of `pages` pages, on disk and clean.
fn clean_file(path: &Path, pages: u64) -> File {
    let file = OpenOptions::new().create(true).read(true).write(true).truncate(true).open(path).expect("opens");
    file.write_all_at(&vec![7; (pages * PAGE) as usize], 0).expect("writes");
    file.sync_all().expect("syncs");
    file
}

fn scattered_writes_are_seen(disk: &Disk, seed: u64) {
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let names = ["a", "b", "c"].map(|name| disk.join(name));
    undisturbed(|| {
        let files = names.each_ref().map(|name| clean_file(name, 2000));
        let Some(mut source) = source(disk, RING) else { return Some(()) };
        for _ in 0..1500 {
            let file = &files[random.random_range(0..files.len())];
            let length = random.random_range(1..3 * PAGE as usize);
            file.write_all_at(&vec![9; length], random.random_range(0..1900 * PAGE)).expect("writes");
        }
        let found: BTreeSet<_> = names.iter().flat_map(|name| pages_of(name)).collect();
        let seen = comparable(&mut source, &found)?;
        assert!(found.len() > 1000, "only {} pages dirty", found.len());
        let (missed, invented) = (found.difference(&seen).count(), seen.difference(&found).count());
        assert_eq!((missed, invented), (0, 0), "of {} pages: missed, invented", found.len());
        assert_eq!(source.lost().expect("counters").records, 0);
        Some(())
    });
}

#[test]
fn on_ext4_exactly_the_pages_that_are_dirty_are_seen() {
    scattered_writes_are_seen(&Disk::ext4(), 61);
}

#[test]
fn on_xfs_exactly_the_pages_that_are_dirty_are_seen() {
    scattered_writes_are_seen(&Disk::xfs(), 62);
}

#[test]
fn on_btrfs_exactly_the_pages_that_are_dirty_are_seen() {
    // Few: a small btrfs writes by itself when many small pieces are dirty.
    let disk = Disk::btrfs();
    undisturbed(|| {
        let file = clean_file(&disk.join("file"), 2000);
        let Some(mut source) = source(&disk, RING) else { return Some(()) };
        for page in (0..2000).step_by(40) {
            file.write_all_at(&[1], page * PAGE).expect("writes");
        }
        let found = pages_of(&disk.join("file"));
        let seen = comparable(&mut source, &found)?;
        assert!(found.len() >= 50, "only {} pages dirty", found.len());
        // Inode 1 is that of the tree's own blocks.
        assert_eq!(seen.into_iter().filter(|(ino, _)| *ino >= 256).collect::<BTreeSet<_>>(), found);
        Some(())
    });
}

#[test]
fn what_dd_writes_is_seen_with_its_large_folios() {
    for disk in [Disk::ext4(), Disk::xfs()] {
        undisturbed(|| {
            let target = disk.join("dd");
            let _ = fs::remove_file(&target);
            let Some(mut source) = source(&disk, RING) else { return Some(()) };
            let status = Command::new("dd")
                .args(["if=/dev/zero", "bs=1M", "count=40", "status=none"])
                .arg(format!("of={}", target.display()))
                .status();
            assert!(status.expect("dd can be started").success());
            let found = pages_of(&target);
            let seen = comparable(&mut source, &found)?;
            assert_eq!(found.len(), 40 * 256);
            assert_eq!(seen, found);
            Some(())
        });
    }
}

#[test]
fn what_fio_writes_at_random_is_seen() {
    for (disk, engine) in [(Disk::ext4(), "psync"), (Disk::xfs(), "psync"), (Disk::ext4(), "mmap")] {
        let target = disk.join("fio");
        undisturbed(|| {
            clean_file(&target, 8192);
            let Some(mut source) = source(&disk, RING) else { return Some(()) };
            let output = Command::new("fio")
                .args(["--name=w", "--rw=randwrite", "--bsrange=4k-64k", "--size=32M", "--io_size=8M", "--randseed=7"])
                .args(["--end_fsync=0", "--fsync_on_close=0", "--overwrite=1", "--invalidate=0"])
                .args(["--allow_file_create=0", &format!("--ioengine={engine}")])
                .arg(format!("--filename={}", target.display()))
                .output()
                .expect("fio can be started: run `make setup` first");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            let found = pages_of(&target);
            let seen = comparable(&mut source, &found)?;
            assert!(found.len() > 500, "only {} pages dirty", found.len());
            let differ = found.symmetric_difference(&seen).count();
            assert_eq!(differ, 0, "{engine}: {} dirty, {} seen", found.len(), seen.len());
            Some(())
        });
    }
}

#[test]
fn writes_through_a_mapping_are_seen() {
    let disk = Disk::ext4();
    undisturbed(|| {
        let file = clean_file(&disk.join("mapped"), 64);
        let Some(mut source) = source(&disk, RING) else { return Some(()) };
        // SAFETY: a new shared mapping of 64 pages of an open file, written within its bounds and unmapped.
        unsafe {
            use std::os::fd::AsRawFd;
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            let at = libc::mmap(std::ptr::null_mut(), 64 * 4096, rights, libc::MAP_SHARED, file.as_raw_fd(), 0);
            assert_ne!(at, libc::MAP_FAILED);
            for page in [3, 17, 63] {
                at.cast::<u8>().add(page * 4096).write_volatile(1);
            }
            libc::munmap(at, 64 * 4096);
        }
        let found = pages_of(&disk.join("mapped"));
        let seen = comparable(&mut source, &found)?;
        assert!(found.len() >= 3);
        assert_eq!(seen, found);
        Some(())
    });
}

#[test]
fn files_of_other_file_systems_and_the_disks_own_data_are_not_seen() {
    let (here, there) = (Disk::ext4(), Disk::ext4());
    let Some(mut source) = source(&here, RING) else { return };
    fs::write(there.join("other"), vec![1; 1 << 20]).expect("writes");
    for number in 0..200 {
        fs::create_dir(here.join(&format!("dir{number}"))).expect("makes a directory");
    }
    assert_eq!(seen(&mut source).0, BTreeSet::new());
    fs::write(here.join("own"), [1]).expect("writes");
    assert_eq!(seen(&mut source).0.len(), 1);
}

#[test]
fn what_reached_the_disk_is_reported() {
    let disk = Disk::ext4();
    let file = clean_file(&disk.join("file"), 16);
    let Some(mut source) = source(&disk, RING) else { return };
    file.write_all_at(&[1], 5 * PAGE).expect("writes");
    file.sync_data().expect("syncs");
    let ino = FileId(file.metadata().expect("is there").ino());
    let mut reported = Vec::new();
    let arrived = || {
        source.drain(100, |seen| reported.push(matches!(seen, KernelReport::Written { file, .. } if file.file == ino)));
        reported.contains(&true)
    };
    assert!(eventually(SOON, arrived));
}

#[test]
fn a_ring_that_is_too_small_loses_nothing_for_good() {
    let disk = Disk::ext4();
    let Some(mut watch) = watch(&disk, ByteSize(4096)) else { return };
    let names: Vec<_> = (0..20).map(|number| disk.join(&format!("file{number}"))).collect();
    for name in &names {
        let file = File::create(name).expect("creates");
        for page in (0..200).step_by(3) {
            file.write_all_at(&[1], page * PAGE).expect("writes");
        }
    }
    let dirty = || names.iter().map(|name| dirty_count(name)).sum::<u64>();
    let agreed = || {
        watch.step().expect("steps");
        watch.status().flusher.dirty.0 / PAGE == dirty()
    };
    assert!(eventually(SOON, agreed), "{} of {}", watch.status().flusher.dirty.0 / PAGE, dirty());
    let status = watch.status();
    assert!(status.lost > 1000 && status.scanned >= 19, "lost {}, scanned {}", status.lost, status.scanned);
}

#[test]
fn files_deleted_shortened_or_synced_by_others_are_forgotten() {
    for disk in [Disk::ext4(), Disk::xfs()] {
        let Some(mut watch) = watch(&disk, RING) else { return };
        let names = ["deleted", "shortened", "synced", "kept"].map(|name| disk.join(name));
        for name in &names {
            fs::write(name, vec![1; 100 * PAGE as usize]).expect("writes");
        }
        watch.step().expect("steps");
        // All 400 pages, except those that the kernel has written back already.
        let known = watch.status().flusher.dirty.0 / PAGE;
        assert!(known >= names.iter().map(|name| dirty_count(name)).sum::<u64>(), "{known} pages");
        fs::remove_file(&names[0]).expect("removes");
        OpenOptions::new().write(true).open(&names[1]).and_then(|file| file.set_len(10 * PAGE)).expect("shortens");
        File::open(&names[2]).and_then(|file| file.sync_data()).expect("syncs");
        let left = || names[1..].iter().map(|name| dirty_count(name)).sum::<u64>();
        // xfs writes the remaining pages of a shortened file, ext4 does not; a machine short of memory writes all.
        assert!(left() < 200, "{} pages left", left());
        let agreed = || {
            watch.step().expect("steps");
            watch.status().flusher.dirty.0 / PAGE == left()
        };
        assert!(eventually(SOON, agreed), "{} of {}", watch.status().flusher.dirty.0 / PAGE, left());
    }
}

#[test]
fn an_inode_that_is_used_again_is_a_new_file() {
    let disk = Disk::ext4();
    let Some(mut watch) = watch(&disk, RING) else { return };
    let path = disk.join("file");
    fs::write(&path, vec![1; 50 * PAGE as usize]).expect("writes");
    let first = fs::metadata(&path).expect("is there").ino();
    watch.step().expect("steps");
    fs::remove_file(&path).expect("removes");
    fs::write(&path, vec![1; 3 * PAGE as usize]).expect("writes");
    assert_eq!(fs::metadata(&path).expect("is there").ino(), first, "ext4 uses the lowest free number");
    let agreed = || {
        watch.step().expect("steps");
        watch.status().flusher.dirty.0 / PAGE == dirty_count(&path)
    };
    assert!(eventually(SOON, agreed), "{} of {}", watch.status().flusher.dirty.0 / PAGE, dirty_count(&path));
}

#[test]
fn a_second_flusher_of_the_same_file_system_is_refused() {
    let disk = Disk::ext4();
    let Some(first) = watch(&disk, RING) else { return };
    let again = || {
        let settings = Settings::parse("cscan").expect("a policy");
        Watch::start(&disk.path(), settings, RING, &disk.run_dir())
    };
    let error = again().err().expect("is refused");
    assert!(
        matches!(&error, WatchError::AlreadyRunning { holder, .. } if *holder == std::process::id().to_string()),
        "{error}"
    );
    drop(first);
    again().expect("is free again");
}

#[test]
fn what_is_no_mount_point_or_of_another_kind_is_refused() {
    let disk = Disk::ext4();
    fs::create_dir(disk.join("dir")).expect("makes a directory");
    assert!(matches!(Mounted::at(&disk.join("dir")), Err(WatchError::NoMountPoint { .. })));
    assert!(matches!(Mounted::at(Path::new("/proc")), Err(WatchError::Kind { kind, .. }) if kind == "proc"));
    assert!(matches!(Mounted::at(&disk.join("nothing")), Err(WatchError::Path { .. })));
}

#[test]
fn a_file_system_that_is_taken_away_ends_the_watch() {
    let disk = Disk::ext4();
    let Some(mut watch) = watch(&disk, RING) else { return };
    assert!(Command::new("umount").arg("-l").arg(disk.path()).status().expect("umount").success());
    let ended = || matches!(watch.step(), Err(WatchError::Unmounted { .. }));
    assert!(eventually(SOON, ended));
}

#[test]
fn a_flusher_that_pauses_writes_nothing_until_it_continues() {
    let disk = Disk::ext4();
    let mounted = Mounted::at(&disk.path()).expect("a mount point");
    let limits = Limits { limit: Some(ByteSize(8 << 20)), background: Some(ByteSize(1 << 20)) };
    let settings = Settings { policy: "cscan".parse().expect("a policy"), limits };
    let flusher = Flusher::start_for_others(mounted.root().expect("opens"), settings).expect("starts");
    flusher.pause();
    let file = File::create(disk.join("file")).expect("creates");
    let number = FileId(file.metadata().expect("is there").ino());
    let write = || {
        file.write_all_at(&vec![1; 4 << 20], 0).expect("writes");
        flusher.wrote(number, FileRef::Open(file.as_fd()), PageRange { first: PageIndex(0), pages: Pages(1024) });
    };
    write();
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(flusher.status().flushed, ByteSize(0));
    flusher.resume();
    let went_on = || {
        let status = flusher.status();
        // Where the kernel was quicker there is something to do again.
        if status.dirty.0 + status.in_flight.0 == 0 && status.flushed.0 < 3 << 20 {
            write();
        }
        status.flushed.0 >= 3 << 20
    };
    assert!(eventually(SOON, went_on), "{:?}", flusher.status());
    assert!(eventually(SOON, || dirty_count(&disk.join("file")) <= 256));
}
