use std::io::{Seek, Write};
use std::os::unix::fs::{MetadataExt, symlink};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FileType, chmodat, chownat, makedev, mknodat};
use rustix::io::Errno;
use umbrella_units::ByteSize;

use crate::relocate::tests::*;

fn dress(path: &Path) {
    chownat(CWD, path, Some(rustix::fs::Uid::from_raw(4321)), Some(rustix::fs::Gid::from_raw(1234)), AtFlags::empty())
        .unwrap();
    set_xattr(path, "user.colour", b"blue\0green");
    set_xattr(path, "user.empty", b"");
    set_xattr(path, "trusted.secret", &[7; 900]);
    set_xattr(path, ACL, &acl());
    chmodat(CWD, path, Mode::from_raw_mode(0o6755), AtFlags::empty()).unwrap();
    set_xattr(path, "security.capability", &capability());
    set_times(path, (1_000_000_001, 123_456_789), (-5, 999_999_999));
}

#[test]
fn every_attribute_of_a_file_is_kept_between_file_systems() {
    let (source, target) = (tempfile::tempdir().unwrap(), Tmpfs::new(c"size=10m"));
    for (from, to) in [(source.path(), target.path()), (target.path(), source.path())] {
        let file = from.join("file");
        fs::write(&file, vec![b'x'; 3_000_000]).unwrap();
        dress(&file);
        let before = snapshot(&file);
        assert_eq!(before.xattrs.len(), 5, "{:?}", before.xattrs);
        let copied = copy_path(&file, &to.join("copy"), &ALL).unwrap();
        assert_eq!(snapshot(&to.join("copy")), before);
        assert_eq!(snapshot(&file), before, "the source stays as it was, its access time too");
        assert_eq!(copied.bytes, ByteSize(3_000_000));
        assert_eq!(copied.target.ino, fs::metadata(to.join("copy")).unwrap().ino());
        fs::remove_file(to.join("copy")).unwrap();
        fs::remove_file(file).unwrap();
    }
}

#[test]
fn reading_for_a_copy_leaves_the_access_time() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "data").unwrap();
    // An access time before the change is what `relatime` would renew.
    set_times(&file, (1000, 1), (2000, 2));
    copy_path(&file, &dir.path().join("copy"), &ALL).unwrap();
    assert_eq!(fs::metadata(&file).unwrap().atime(), 1000);
    assert_eq!(fs::metadata(dir.path().join("copy")).unwrap().atime(), 1000);
}

#[test]
fn holes_stay_holes() {
    let (source, target) = (tempfile::tempdir().unwrap(), Tmpfs::new(c"size=10m"));
    let file = source.path().join("file");
    let mut out = fs::File::create(&file).unwrap();
    for (at, len) in [(1 << 20, 4096), (5 << 20, 300_000), (700 << 20, 8192)] {
        out.seek(std::io::SeekFrom::Start(at)).unwrap();
        out.write_all(&vec![9; len]).unwrap();
    }
    out.set_len(1 << 30).unwrap();
    out.sync_all().unwrap();
    let runs = data_runs(&file);
    assert_eq!(runs.len(), 3);
    for to in [target.path(), source.path()] {
        let copied = copy_path(&file, &to.join("copy"), &ALL).unwrap();
        assert_eq!(data_runs(&to.join("copy")), runs);
        assert_eq!(fs::metadata(to.join("copy")).unwrap().size(), 1 << 30);
        assert_eq!(copied.bytes.0, runs.iter().map(|(start, end)| end - start).sum::<u64>());
        for (start, end) in &runs {
            let read = |path: &Path| {
                let mut part = vec![0; (end - start) as usize];
                std::os::unix::fs::FileExt::read_exact_at(&fs::File::open(path).unwrap(), &mut part, *start).unwrap();
                part
            };
            assert!(read(&file) == read(&to.join("copy")));
        }
    }
}

#[test]
fn empty_files_and_files_of_one_hole_are_copied() {
    let pool = Pool::new();
    for size in [0, 1, 4095, 1 << 20] {
        let file = pool.a.join("file");
        fs::File::create(&file).unwrap().set_len(size).unwrap();
        let copied = pool.copy("file").unwrap();
        assert_eq!(snapshot(&pool.temp()), snapshot(&file));
        assert_eq!(copied.bytes, ByteSize(0));
        fs::remove_file(pool.temp()).unwrap();
    }
}

#[test]
fn special_files_and_long_symbolic_links_are_copied() {
    let (source, target) = (tempfile::tempdir().unwrap(), Tmpfs::new(c"size=1m"));
    let make = |name: &str, kind, dev| {
        let path = source.path().join(name);
        mknodat(CWD, &path, kind, Mode::from_raw_mode(0o640), dev).unwrap();
        chownat(CWD, &path, Some(rustix::fs::Uid::from_raw(7)), None, AtFlags::empty()).unwrap();
        path
    };
    let mut all = vec![
        make("pipe", FileType::Fifo, 0),
        make("socket", FileType::Socket, 0),
        make("char", FileType::CharacterDevice, makedev(1, 3)),
        make("block", FileType::BlockDevice, makedev(7, 200)),
        source.path().join("link"),
        source.path().join("dangling"),
    ];
    symlink("t".repeat(4095), &all[4]).unwrap();
    symlink("../../../nowhere", &all[5]).unwrap();
    set_xattr(&all[4], "trusted.of-the-link", b"yes");
    for path in &mut all {
        set_times(path, (10, 11), (12, 13));
        copy_path(path, &target.path().join("copy"), &ALL).unwrap();
        let copy = snapshot(&target.path().join("copy"));
        assert_eq!(copy.mtime, (12, 13));
        let (mut copy, mut original) = (copy, snapshot(path));
        // Reading a link's target counts as an access on some file systems.
        (copy.atime, original.atime) = ((0, 0), (0, 0));
        assert_eq!(copy, original, "{}", path.display());
        fs::remove_file(target.path().join("copy")).unwrap();
    }
}

#[test]
fn odd_names_are_moved() {
    let pool = Pool::new();
    let long = "n".repeat(255);
    fs::write(pool.a.join(&long), "long").unwrap();
    pool.relocate(&[&long], None).unwrap();
    assert_eq!(fs::read(pool.only(&long)).unwrap(), b"long");
    let odd = OsStr::from_bytes(b"\xff\xfe\n *");
    fs::write(pool.a.join(odd), "odd").unwrap();
    let copied = copy_path(&pool.a.join(odd), &pool.temp(), &ALL).unwrap();
    let (a, b) = (open(&pool.a), open(&pool.b));
    let (temp, intents) = (open(pool.b.join(".umbrella/tmp")), open(pool.b.join(".umbrella/intents")));
    let names = [MovedName {
        source: EntryAt { dir: a.as_fd(), name: odd },
        target: EntryAt { dir: b.as_fd(), name: odd },
        path: odd.as_bytes(),
    }];
    let stop = |step| if step == Step::Synced { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
    let m = Move {
        from: A,
        to: B,
        names: &names,
        temp: EntryAt { dir: temp.as_fd(), name: OsStr::new("copy") },
        intents: intents.as_fd(),
        copied: &copied,
        durability: Durability::Now,
        decision: &Decision::default(),
        hook: Some(&stop),
    };
    assert_eq!(commit(&m), Err(RelocateError::Stopped { after: Step::Synced }));
    assert_eq!(pool.recover().finished, 1);
    assert_eq!(fs::read(pool.b.join(odd)).unwrap(), b"odd");
    assert!(!pool.a.join(odd).exists());
}

#[test]
fn a_directory_is_not_copied() {
    let pool = Pool::new().dirs(&["dir"]);
    assert_eq!(pool.copy("dir"), Err(RelocateError::IsDirectory));
}

#[test]
fn an_unlinked_file_is_copied_from_its_descriptor_whatever_its_mode() {
    let pool = Pool::new();
    fs::write(pool.a.join("file"), "still here").unwrap();
    let mut writer = fs::OpenOptions::new().append(true).open(pool.a.join("file")).unwrap();
    writer.write_all(b", and more").unwrap();
    fs::remove_file(pool.a.join("file")).unwrap();
    let (temp, cancel) = (open(pool.b.join(".umbrella/tmp")), AtomicBool::new(false));
    let temp = EntryAt { dir: temp.as_fd(), name: OsStr::new("copy") };
    let copied = copy_from_fd(writer.as_fd(), temp, &ALL, &Limits::new(&cancel)).unwrap();
    assert_eq!(fs::read(pool.temp()).unwrap(), b"still here, and more");
    assert_eq!(copied.source.nlink, 0);
}

#[test]
fn cancelling_ends_a_copy_and_leaves_nothing() {
    let pool = Pool::new();
    fs::write(pool.a.join("file"), vec![1; 30 << 20]).unwrap();
    let cancel = AtomicBool::new(false);
    let throttle = Throttle::new(ByteSize(20 << 20));
    let seen = AtomicU64::new(0);
    let progress = |bytes| {
        seen.store(bytes, Ordering::Relaxed);
        cancel.store(true, Ordering::Relaxed);
    };
    let limits = Limits { throttle: Some(&throttle), progress: Some(&progress), ..Limits::new(&cancel) };
    assert_eq!(copy_limited(&pool.a.join("file"), &pool.temp(), &ALL, &limits), Err(RelocateError::Cancelled));
    assert!(seen.load(Ordering::Relaxed) < 4 << 20);
    assert!(pool.hidden_files().is_empty());
}

#[test]
fn a_wait_for_bandwidth_ends_when_it_is_cancelled() {
    let (throttle, cancel) = (Throttle::new(ByteSize(1)), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| throttle.take(ByteSize(1_000_000), &|| cancel.load(Ordering::Relaxed)));
        std::thread::sleep(Duration::from_millis(50));
        cancel.store(true, Ordering::Relaxed);
        assert_eq!(waiting.join().unwrap(), Err(RelocateError::Cancelled), "its turn would come in eleven days");
    });
}

#[test]
fn two_copies_share_the_bandwidth() {
    let (throttle, cancel) = (Throttle::new(ByteSize(8 << 20)), AtomicBool::new(false));
    let pool = Pool::new();
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for name in ["one", "two"] {
            let (pool, throttle, cancel) = (&pool, &throttle, &cancel);
            scope.spawn(move || {
                fs::write(pool.a.join(name), vec![1; 2 << 20]).unwrap();
                let limits = Limits { throttle: Some(throttle), ..Limits::new(cancel) };
                copy_limited(&pool.a.join(name), &pool.b.join(name), &ALL, &limits).unwrap();
            });
        }
    });
    let took = begun.elapsed();
    assert!(took > Duration::from_millis(400), "4 MiB at 8 MiB/s took {took:?}");
}

#[test]
fn a_full_target_is_told_and_left_clean() {
    let source = tempfile::tempdir().unwrap();
    let target = Tmpfs::new(c"size=256k");
    let file = source.path().join("file");
    fs::write(&file, vec![1; 1 << 20]).unwrap();
    let before = snapshot(&file);
    assert_eq!(copy_path(&file, &target.path().join("copy"), &ALL), Err(RelocateError::NoSpace));
    assert_eq!(fs::read_dir(target.path()).unwrap().count(), 0);
    assert_eq!(snapshot(&file), before);
    fs::write(&file, "small").unwrap();
    copy_path(&file, &target.path().join("copy"), &ALL).unwrap();
}

#[test]
fn a_target_without_inodes_is_full() {
    let source = tempfile::tempdir().unwrap();
    let target = Tmpfs::new(c"size=256k,nr_inodes=1");
    symlink("t".repeat(2000), source.path().join("link")).unwrap();
    assert_eq!(copy_path(&source.path().join("link"), &target.path().join("copy"), &ALL), Err(RelocateError::NoSpace));
}

#[test]
fn what_a_target_cannot_keep_is_refused_before_anything_is_written() {
    let pool = Pool::new();
    let file = pool.a.join("file");
    fs::write(&file, "data").unwrap();
    dress(&file);
    fs::hard_link(&file, pool.a.join("second")).unwrap();
    let vfat = Abilities { rename_flags: true, ..Abilities::default() };
    let what = vec![
        Loss::Ownership,
        Loss::HardLinks,
        Loss::Acl,
        Loss::Xattr("security.capability".into()),
        Loss::Xattr("trusted.secret".into()),
        Loss::Xattr("user.colour".into()),
        Loss::Xattr("user.empty".into()),
    ];
    let Err(RelocateError::WouldLose { what: mut found }) = copy_path(&file, &pool.temp(), &vfat) else {
        panic!("copied")
    };
    found[2..].sort_by_key(ToString::to_string);
    assert_eq!(found, what);
    assert!(pool.hidden_files().is_empty());
}

#[test]
fn each_ability_decides_about_its_own_loss() {
    let pool = Pool::new();
    let path = |name: &str| pool.a.join(name);
    fs::write(path("plain"), "data").unwrap();
    set_times(&path("plain"), (1, 0), (2, 0));
    symlink("x", path("link")).unwrap();
    mknodat(CWD, path("pipe"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    for name in ["link", "pipe"] {
        set_times(&path(name), (1, 0), (2, 0));
    }
    let only_owner = Abilities { ownership: true, ..Abilities::default() };
    let lost = |name: &str| match copy_path(&path(name), &pool.temp(), &only_owner) {
        Err(RelocateError::WouldLose { what }) => what,
        Ok(_) => Vec::new(),
        Err(error) => panic!("{error}"),
    };
    assert_eq!(lost("plain"), []);
    assert_eq!(lost("link"), [Loss::Symlink]);
    assert_eq!(lost("pipe"), [Loss::SpecialFile]);
}

/// Beyond what ext4 holds, before it, and in between.
const ODD_TIMES: [(i64, i64); 4] =
    [(-11_644_473_600, 5), (-3_000_000_000, 999_999_999), (4_000_000_000, 7), (99_999_999_999, 1)];

#[test]
fn a_copy_has_the_times_that_its_file_system_makes_of_them() {
    // Memory holds any time, and the other file system mostly does not.
    let (source, target) = (Tmpfs::new(c"size=10m"), tempfile::tempdir().unwrap());
    let (file, beside, copy) = (source.path().join("file"), target.path().join("beside"), target.path().join("copy"));
    fs::write(&file, "data").unwrap();
    fs::write(&beside, "data").unwrap();
    fs::set_permissions(&beside, fs::metadata(&file).unwrap().permissions()).unwrap();
    for mtime in ODD_TIMES {
        for path in [&file, &beside] {
            set_times(path, (-9_000_000_000, 3), mtime);
        }
        copy_path(&file, &copy, &ALL).unwrap();
        assert_eq!(snapshot(&copy), snapshot(&beside), "{mtime:?}");
        fs::remove_file(&copy).unwrap();
    }
}

#[test]
fn a_move_of_times_that_the_target_cannot_hold_survives_every_crash() {
    for stops in 0..12 {
        for mtime in ODD_TIMES {
            let memory = Tmpfs::new(c"size=10m");
            let pool = Pool { a: memory.path().join("a"), ..Pool::new() };
            fs::create_dir_all(pool.a.join(".umbrella/tmp")).unwrap();
            fs::create_dir_all(pool.a.join(".umbrella/intents")).unwrap();
            for path in [pool.a.join("file"), pool.b.join("beside")] {
                fs::write(&path, "data").unwrap();
                set_times(&path, (1000, 0), mtime);
            }
            let (source, target) = (snapshot(&pool.a.join("file")).mtime, snapshot(&pool.b.join("beside")).mtime);
            let left = std::cell::Cell::new(stops);
            let stop = |_| match left.replace(left.get() - 1) {
                0 => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            };
            let moved = pool.relocate(&["file"], Some(&stop));
            assert!(moved.is_ok() || matches!(moved, Err(RelocateError::Stopped { .. })), "{moved:?}");
            assert_eq!(pool.recover().warnings, Vec::<String>::new(), "after {stops} steps");
            let file = pool.only("file");
            let kept = if file.starts_with(&pool.a) { source } else { target };
            assert_eq!(
                (snapshot(&file).mtime, fs::read(file).unwrap()),
                (kept, b"data".to_vec()),
                "after {stops} steps"
            );
            assert_eq!(pool.hidden_files(), Vec::<PathBuf>::new());
        }
    }
}

#[test]
fn an_attribute_too_large_for_the_target_is_a_loss_not_a_full_disk() {
    let (source, target) = (Tmpfs::new(c"size=1m"), tempfile::tempdir().unwrap());
    let file = source.path().join("file");
    fs::write(&file, "data").unwrap();
    set_xattr(&file, "trusted.big", &vec![1; 60_000]);
    let result = copy_path(&file, &target.path().join("copy"), &ALL);
    match result {
        Err(RelocateError::WouldLose { what }) => assert_eq!(what, [Loss::Xattr("trusted.big".into())]),
        // Ext4 with `ea_inode`, xfs and btrfs keep it.
        Ok(_) => assert_eq!(snapshot(&target.path().join("copy")), snapshot(&file)),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn an_immutable_file_stays() {
    let pool = Pool::new();
    fs::write(pool.a.join("file"), "data").unwrap();
    let file = fs::File::open(pool.a.join("file")).unwrap();
    rustix::fs::ioctl_setflags(&file, rustix::fs::IFlags::IMMUTABLE).unwrap();
    let result = pool.copy("file");
    rustix::fs::ioctl_setflags(&file, rustix::fs::IFlags::empty()).unwrap();
    assert_eq!(result, Err(RelocateError::Pinned));
    assert!(pool.hidden_files().is_empty());
}

type Change = fn(&Path);

#[test]
fn a_change_after_the_copy_is_seen() {
    let change: [(&str, Change); 6] = [
        ("data of the same length", |path| fs::write(path, "DATA").unwrap()),
        ("mode", |path| chmodat(CWD, path, Mode::from_raw_mode(0o600), AtFlags::empty()).unwrap()),
        ("attribute", |path| set_xattr(path, "user.new", b"1")),
        ("another name", |path| fs::hard_link(path, path.with_extension("2")).unwrap()),
        ("another file", |path| {
            fs::write(path.with_extension("new"), "data").unwrap();
            fs::rename(path.with_extension("new"), path).unwrap();
        }),
        ("none", |path| fs::remove_file(path).unwrap()),
    ];
    for (what, change) in change {
        let pool = Pool::new();
        fs::write(pool.a.join("file"), "data").unwrap();
        let copied = pool.copy("file").unwrap();
        let a = open(&pool.a);
        let source = EntryAt { dir: a.as_fd(), name: OsStr::new("file") };
        assert_eq!(verify_unchanged(source, &copied), Ok(()), "{what}");
        // Longer than the grain of times.
        std::thread::sleep(Duration::from_millis(15));
        change(&pool.a.join("file"));
        assert_eq!(verify_unchanged(source, &copied), Err(RelocateError::Changed), "{what}");
        assert_eq!(pool.commit(&["file"], &copied, None), Err(RelocateError::Changed), "{what}");
        assert!(pool.hidden_files().is_empty(), "{what}");
        assert!(!pool.b.join("file").exists(), "{what}");
    }
}

#[test]
fn a_source_that_cannot_be_read_is_told_with_the_place() {
    let pool = Pool::new();
    fs::write(pool.a.join("file"), [1; 9000]).unwrap();
    // A descriptor that refuses reads stands in for a failing disk.
    let input = fs::OpenOptions::new().write(true).open(pool.a.join("file")).unwrap();
    let output = fs::File::create(pool.temp()).unwrap();
    let cancel = AtomicBool::new(false);
    let result = copy::pump(input.as_fd(), output.as_fd(), (4096, 9000), &Limits::new(&cancel));
    assert_eq!(result, Err(RelocateError::Read { offset: 4096, errno: Errno::BADF }));
}

#[test]
fn a_copy_that_cannot_be_written_is_told_with_the_place() {
    let pool = Pool::new();
    fs::write(pool.a.join("file"), [1; 9000]).unwrap();
    let input = fs::File::open(pool.a.join("file")).unwrap();
    let cancel = AtomicBool::new(false);
    let result = copy::pump(input.as_fd(), input.as_fd(), (4096, 9000), &Limits::new(&cancel));
    assert_eq!(result, Err(RelocateError::Write { offset: 4096, errno: Errno::BADF }));
}

#[test]
fn a_source_that_became_shorter_has_changed() {
    let pool = Pool::new();
    fs::write(pool.a.join("file"), [1; 5000]).unwrap();
    let input = fs::File::open(pool.a.join("file")).unwrap();
    let output = fs::File::create(pool.temp()).unwrap();
    let cancel = AtomicBool::new(false);
    let result = copy::pump(input.as_fd(), output.as_fd(), (0, 9000), &Limits::new(&cancel));
    assert_eq!(result, Err(RelocateError::Changed));
}

#[test]
fn without_the_rename_flag_nothing_is_replaced_either() {
    let pool = Pool::new();
    fs::write(pool.a.join("from"), "new").unwrap();
    fs::write(pool.b.join("taken"), "old").unwrap();
    let (a, b) = (open(&pool.a), open(&pool.b));
    let from = EntryAt { dir: a.as_fd(), name: OsStr::new("from") };
    let to = |name| EntryAt { dir: b.as_fd(), name: OsStr::new(name) };
    assert_eq!(commit::place_without_flag(from, to("taken")), Err(RelocateError::Taken));
    assert_eq!(fs::read(pool.b.join("taken")).unwrap(), b"old");
    assert_eq!(commit::place_without_flag(from, to("free")), Ok(()));
    assert_eq!(fs::read(pool.only("free")).unwrap(), b"new");
    assert!(!pool.a.join("from").exists());
    // A directory cannot be linked.
    fs::create_dir(pool.a.join("from")).unwrap();
    assert_eq!(commit::place_without_flag(from, to("free")), Err(RelocateError::Taken));
    assert_eq!(commit::place_without_flag(from, to("dir")), Ok(()));
    assert!(pool.b.join("dir").is_dir() && !pool.a.join("from").exists());
}

#[test]
fn reading_a_symbolic_link_for_a_copy_leaves_its_access_time() {
    let pool = Pool::new();
    symlink("target", pool.a.join("link")).unwrap();
    set_times(&pool.a.join("link"), (1000, 1), (2000, 2));
    let copied = pool.copy("link").unwrap();
    assert_eq!(fs::symlink_metadata(pool.a.join("link")).unwrap().atime(), 1000);
    assert_eq!(fs::symlink_metadata(pool.temp()).unwrap().atime(), 1000);
    assert_eq!(pool.commit(&["link"], &copied, None), Ok(()));
}

#[test]
fn a_copy_never_overwrites_another() {
    let pool = Pool::new();
    fs::write(pool.a.join("file"), "data").unwrap();
    symlink("target", pool.a.join("link")).unwrap();
    fs::write(pool.temp(), "another copy").unwrap();
    for name in ["file", "link"] {
        assert_eq!(pool.copy(name), Err(RelocateError::Taken));
        assert_eq!(fs::read(pool.temp()).unwrap(), b"another copy");
    }
}

#[test]
fn room_that_is_reserved_for_all_of_a_file_stays_reserved() {
    let (source, target) = (tempfile::tempdir().unwrap(), Tmpfs::new(c"size=10m"));
    let file = source.path().join("file");
    fs::write(&file, "a little data").unwrap();
    let out = fs::File::options().write(true).open(&file).unwrap();
    rustix::fs::fallocate(&out, rustix::fs::FallocateFlags::empty(), 0, 3 << 20).unwrap();
    copy_path(&file, &target.path().join("copy"), &ALL).unwrap();
    assert!(fs::metadata(target.path().join("copy")).unwrap().blocks() * 512 >= 3 << 20);
    assert_eq!(fs::read(&file).unwrap(), fs::read(target.path().join("copy")).unwrap());
    rustix::fs::fallocate(&out, rustix::fs::FallocateFlags::empty(), 0, 30 << 20).unwrap();
    assert_eq!(copy_path(&file, &target.path().join("second"), &ALL), Err(RelocateError::NoSpace));
}

#[test]
fn a_copy_has_no_acl_that_its_source_lacks() {
    let (source, target) = (tempfile::tempdir().unwrap(), Tmpfs::new(c"size=10m"));
    let (file, copy) = (source.path().join("file"), target.path().join("copy"));
    fs::write(&file, "private").unwrap();
    fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o640)).unwrap();
    let before = snapshot(&file);
    // As a branch's root may have it, and `.umbrella` then inherits it.
    set_xattr(target.path(), "system.posix_acl_default", &acl());
    copy_path(&file, &copy, &ALL).unwrap();
    assert_eq!(snapshot(&copy), before);
}

#[test]
fn a_copy_has_every_mode_of_its_source() {
    let (source, target) = (tempfile::tempdir().unwrap(), Tmpfs::new(c"size=10m"));
    let file = source.path().join("file");
    fs::write(&file, "data").unwrap();
    for owner in [0, 4321] {
        for mode in [0, 0o200, 0o400, 0o444, 0o600, 0o644, 0o666, 0o777, 0o1666, 0o2770, 0o4755, 0o6755] {
            let (uid, gid) = (rustix::fs::Uid::from_raw(owner), rustix::fs::Gid::from_raw(owner));
            chownat(CWD, &file, Some(uid), Some(gid), AtFlags::empty()).unwrap();
            chmodat(CWD, &file, Mode::from_raw_mode(mode), AtFlags::empty()).unwrap();
            let copy = target.path().join(format!("{owner}-{mode:o}"));
            copy_path(&file, &copy, &ALL).unwrap();
            assert_eq!(snapshot(&copy), snapshot(&file), "{mode:o} of {owner}");
        }
    }
}

#[test]
fn a_small_file_is_copied_whole_and_one_with_a_hole_keeps_it() {
    let (source, target) = (tempfile::tempdir().unwrap(), Tmpfs::new(c"size=10m"));
    for size in [1, 4095, 4096, 4097, 65_535, 65_536, 65_537] {
        let (file, copy) = (source.path().join(format!("{size}")), target.path().join(format!("{size}")));
        let data: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
        fs::write(&file, &data).unwrap();
        assert_eq!(copy_path(&file, &copy, &ALL).unwrap().bytes, ByteSize(size));
        assert_eq!(fs::read(&copy).unwrap(), data);
    }
    let (file, copy) = (source.path().join("holes"), target.path().join("holes"));
    let mut out = fs::File::create(&file).unwrap();
    out.seek(std::io::SeekFrom::Start(16 << 10)).unwrap();
    out.write_all(&[9; 4096]).unwrap();
    out.set_len(48 << 10).unwrap();
    out.sync_all().unwrap();
    assert_eq!(copy_path(&file, &copy, &ALL).unwrap().bytes, ByteSize(4096));
    assert_eq!(data_runs(&copy), [(16 << 10, 20 << 10)]);
    assert_eq!(fs::metadata(&copy).unwrap().size(), 48 << 10);
}
