//! Every operation.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirEntryExt, FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};

use rustix::fs::{AtFlags, CWD, FallocateFlags, IFlags, Mode, RenameFlags, StatxFlags, Timespec, Timestamps};
use rustix::io::Errno;

use crate::harness::{Mount, Setup, get_xattr, set_xattr, wait_for};
use crate::on_both_transports;

on_both_transports! {
    names_are_made_renamed_and_taken_away
    data_is_written_and_read_back
    a_long_listing_has_every_name_once
    the_size_of_a_write_shows_before_its_data_can_be_read
    times_before_1970_are_kept
    renames_pass_their_flags_on
    a_file_without_a_name_gets_one
    statx_shows_the_birth_time
    extended_attributes_are_kept
    lsattr_and_chattr_work
    holes_copies_and_room_are_asked_for
    locks_are_the_file_systems
    poll_wakes_on_a_notification
    set_id_bits_are_dropped_by_the_file_system
    a_group_of_the_caller_comes_with_a_new_file
    the_mount_can_be_mapped_to_other_ids
    an_open_file_is_passed_through
    a_backing_file_of_one_handle_goes_when_that_is_released
    absent_names_are_cached_until_the_kernel_is_notified
    notifications_arrive
}

fn names_are_made_renamed_and_taken_away(setup: Setup) {
    let mount = Mount::new(setup);
    fs::create_dir(mount.path("dir")).unwrap();
    fs::write(mount.path("dir/file"), "text").unwrap();
    std::os::unix::fs::symlink("dir/file", mount.path("link")).unwrap();
    assert_eq!(fs::read_link(mount.path("link")).unwrap().to_str(), Some("dir/file"));
    assert_eq!(fs::read_to_string(mount.path("link")).unwrap(), "text");
    fs::hard_link(mount.path("dir/file"), mount.path("second")).unwrap();
    assert_eq!(fs::metadata(mount.path("second")).unwrap().nlink(), 2);
    rustix::fs::mknodat(CWD, mount.path("pipe"), rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap();
    assert!(fs::metadata(mount.path("pipe")).unwrap().file_type().is_fifo());
    let device = rustix::fs::makedev(250, 100_000);
    rustix::fs::mknodat(CWD, mount.path("device"), rustix::fs::FileType::CharacterDevice, Mode::RUSR, device).unwrap();
    assert_eq!(fs::metadata(mount.path("device")).unwrap().rdev(), device);
    fs::rename(mount.path("second"), mount.path("dir/third")).unwrap();
    assert_eq!(fs::remove_dir(mount.path("dir")).unwrap_err().raw_os_error(), Some(libc::ENOTEMPTY));
    fs::remove_file(mount.path("dir/file")).unwrap();
    fs::remove_file(mount.path("dir/third")).unwrap();
    fs::remove_dir(mount.path("dir")).unwrap();
    assert!(!mount.path("dir").exists());
    let space = rustix::fs::statvfs(mount.root()).unwrap();
    assert_eq!((space.f_blocks, space.f_bsize, space.f_namemax), (1000, 512, 255));
}

fn data_is_written_and_read_back(setup: Setup) {
    let mount = Mount::new(setup);
    let data: Vec<u8> = (0..3_000_000_u32).flat_map(u32::to_le_bytes).collect();
    fs::write(mount.path("large"), &data).unwrap();
    assert_eq!(mount.notify("inval_inode large"), "done");
    assert!(fs::read(mount.path("large")).unwrap() == data);
    let file = OpenOptions::new().read(true).write(true).open(mount.path("large")).unwrap();
    file.write_all_at(b"here", 5_000_001).unwrap();
    file.sync_all().unwrap();
    let mut four = [0; 4];
    file.read_exact_at(&mut four, 5_000_001).unwrap();
    assert_eq!(&four, b"here");
    file.set_len(10).unwrap();
    assert_eq!(fs::metadata(mount.path("large")).unwrap().len(), 10);
}

fn a_long_listing_has_every_name_once(setup: Setup) {
    let mount = Mount::new(setup);
    let names: Vec<String> = (0..1500).map(|number| format!("{number:0>60}")).collect();
    for name in &names {
        File::create(mount.path(name)).unwrap();
    }
    for _ in 0..2 {
        let mut listed: Vec<String> = fs::read_dir(mount.root())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        listed.sort();
        assert_eq!(listed, names);
    }
    let entry = fs::read_dir(mount.root()).unwrap().next().unwrap().unwrap();
    assert_eq!(entry.ino(), entry.metadata().unwrap().ino());
}

/// The kernel answers `fstat` with what the file system says, and reads by the size that it knows itself: that of the
/// last answered write.
fn the_size_of_a_write_shows_before_its_data_can_be_read(setup: Setup) {
    let mount = Mount::new(setup);
    let path = mount.path("late");
    let file = OpenOptions::new().read(true).append(true).create_new(true).open(&path).unwrap();
    let size = || {
        let asked = rustix::fs::statx(&file, c"", AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC, StatxFlags::SIZE);
        asked.unwrap().stx_size
    };
    let readable = || file.read_at(&mut [0; 100], 0).unwrap();
    let mut writer =
        std::process::Command::new("sh").args(["-c", r#"printf record >> "$0""#]).arg(&path).spawn().unwrap();
    wait_for("the write to be done", || size() == 6);
    let meanwhile = readable();
    File::create(mount.path("open-gates")).unwrap();
    assert!(writer.wait().unwrap().success());
    assert_eq!((meanwhile, size(), readable()), (0, 6, 6));
}

fn times_before_1970_are_kept(setup: Setup) {
    let mount = Mount::new(setup);
    File::create(mount.path("old")).unwrap();
    let times = Timestamps {
        last_access: Timespec { tv_sec: -2, tv_nsec: 500_000_000 },
        last_modification: Timespec { tv_sec: -100_000, tv_nsec: 1 },
    };
    rustix::fs::utimensat(CWD, mount.path("old"), &times, AtFlags::empty()).unwrap();
    let found = fs::metadata(mount.path("old")).unwrap();
    assert_eq!((found.atime(), found.atime_nsec()), (-2, 500_000_000));
    assert_eq!((found.mtime(), found.mtime_nsec()), (-100_000, 1));
}

fn renames_pass_their_flags_on(setup: Setup) {
    let mount = Mount::new(setup);
    let rename =
        |from: &str, to: &str, flags| rustix::fs::renameat_with(CWD, mount.path(from), CWD, mount.path(to), flags);
    fs::write(mount.path("a"), "a").unwrap();
    fs::write(mount.path("b"), "b").unwrap();
    assert_eq!(rename("a", "b", RenameFlags::NOREPLACE), Err(Errno::EXIST));
    rename("a", "b", RenameFlags::EXCHANGE).unwrap();
    assert_eq!(fs::read_to_string(mount.path("a")).unwrap(), "b");
    rename("a", "c", RenameFlags::WHITEOUT).unwrap();
    let whiteout = fs::symlink_metadata(mount.path("a")).unwrap();
    assert!(whiteout.file_type().is_char_device() && whiteout.rdev() == 0);
}

fn a_file_without_a_name_gets_one(setup: Setup) {
    let mount = Mount::new(setup);
    let mut file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_TMPFILE).open(mount.root()).unwrap();
    file.write_all(b"unnamed").unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    let by_number = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::linkat(CWD, by_number, CWD, mount.path("named"), AtFlags::SYMLINK_FOLLOW).unwrap();
    assert_eq!(fs::read_to_string(mount.path("named")).unwrap(), "unnamed");
}

fn statx_shows_the_birth_time(setup: Setup) {
    let mount = Mount::new(setup);
    fs::write(mount.path("file"), "12345").unwrap();
    let found = rustix::fs::statx(CWD, mount.path("file"), AtFlags::empty(), StatxFlags::ALL).unwrap();
    assert_ne!(found.stx_mask & StatxFlags::BTIME.bits(), 0);
    assert_eq!((found.stx_btime.tv_sec, found.stx_btime.tv_nsec), (-5, 7));
    assert_eq!((found.stx_size, found.stx_ino > 1_000_000), (5, true));
}

fn extended_attributes_are_kept(setup: Setup) {
    let mount = Mount::new(setup);
    fs::write(mount.path("file"), "").unwrap();
    let path = mount.path("file");
    let large = "x".repeat(4000);
    set_xattr(&path, "user.large", large.as_bytes());
    set_xattr(&path, "user.small", b"1");
    assert_eq!(get_xattr(&path, "user.large"), Some(large));
    let mut names = [0_u8; 100];
    let length = rustix::fs::listxattr(&path, &mut names).unwrap();
    assert_eq!(&names[..length], b"user.large\0user.small\0");
    assert_eq!(rustix::fs::listxattr_query(&path), Ok(length));
    assert_eq!(rustix::fs::getxattr(&path, "user.large", &mut [0_u8; 10]), Err(Errno::RANGE));
    rustix::fs::removexattr(&path, "user.small").unwrap();
    assert_eq!(get_xattr(&path, "user.small"), None);
}

fn lsattr_and_chattr_work(setup: Setup) {
    let mount = Mount::new(setup);
    fs::write(mount.path("file"), "").unwrap();
    let file = File::open(mount.path("file")).unwrap();
    rustix::fs::ioctl_setflags(&file, IFlags::NODUMP | IFlags::NOATIME).unwrap();
    assert_eq!(rustix::fs::ioctl_getflags(&file).unwrap(), IFlags::NODUMP | IFlags::NOATIME);
    // `struct fsxattr`: flags, extent size, extents, project, copy size, eight bytes more.
    let mut value = [0_u32; 7];
    value[3] = 42;
    // SAFETY: the kernel reads, then fills, 28 bytes.
    unsafe {
        assert_eq!(libc::ioctl(file.as_raw_fd(), 0x401c_5820, value.as_ptr()), 0);
        value = [0; 7];
        assert_eq!(libc::ioctl(file.as_raw_fd(), 0x801c_581f, value.as_mut_ptr()), 0);
    }
    assert_eq!(value[3], 42);
    fs::create_dir(mount.path("dir")).unwrap();
    let directory = File::open(mount.path("dir")).unwrap();
    rustix::fs::ioctl_setflags(&directory, IFlags::NODUMP).unwrap();
    assert_eq!(rustix::fs::ioctl_getflags(&directory).unwrap(), IFlags::NODUMP);
}

fn holes_copies_and_room_are_asked_for(setup: Setup) {
    let mount = Mount::new(setup);
    fs::write(mount.path("a"), "0123456789").unwrap();
    let a = OpenOptions::new().read(true).write(true).open(mount.path("a")).unwrap();
    let b = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(mount.path("b")).unwrap();
    let (mut from, mut to) = (2, 1);
    assert_eq!(rustix::fs::copy_file_range(&a, Some(&mut from), &b, Some(&mut to), 5), Ok(5));
    assert_eq!(fs::read(mount.path("b")).unwrap(), b"\x0023456");
    assert_eq!(rustix::fs::seek(&a, rustix::fs::SeekFrom::Hole(3)), Ok(10));
    assert_eq!(rustix::fs::seek(&a, rustix::fs::SeekFrom::Data(3)), Ok(3));
    rustix::fs::fallocate(&a, FallocateFlags::empty(), 0, 100).unwrap();
    assert_eq!(a.metadata().unwrap().len(), 100);
}

fn locks_are_the_file_systems(setup: Setup) {
    let mount = Mount::new(setup);
    fs::write(mount.path("file"), "0123456789").unwrap();
    let open = || OpenOptions::new().read(true).write(true).open(mount.path("file")).unwrap();
    let (one, other) = (open(), open());
    let lock = |file: &File, command, kind, start, length| {
        let mut wanted = libc::flock { l_type: kind as i16, l_whence: 0, l_start: start, l_len: length, l_pid: 0 };
        // SAFETY: the kernel reads and fills a `flock`.
        let done = unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut wanted) };
        if done == 0 { Ok(wanted) } else { Err(std::io::Error::last_os_error().raw_os_error().unwrap()) }
    };
    lock(&one, libc::F_OFD_SETLK, libc::F_WRLCK, 2, 3).unwrap();
    assert_eq!(lock(&other, libc::F_OFD_SETLK, libc::F_RDLCK, 0, 4).unwrap_err(), libc::EAGAIN);
    let found = lock(&other, libc::F_OFD_GETLK, libc::F_RDLCK, 0, 0).unwrap();
    assert_eq!((i32::from(found.l_type), found.l_start, found.l_len), (libc::F_WRLCK, 2, 3));
    lock(&other, libc::F_OFD_SETLK, libc::F_RDLCK, 5, 1).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| lock(&other, libc::F_OFD_SETLKW, libc::F_WRLCK, 0, 0).map(drop));
        wait_for("the lock's request", || mount.count("setlk") >= 3);
        lock(&one, libc::F_OFD_SETLK, libc::F_UNLCK, 0, 0).unwrap();
        waiting.join().unwrap().unwrap();
    });
    rustix::fs::flock(&one, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap_err();
}

fn poll_wakes_on_a_notification(setup: Setup) {
    let mount = Mount::new(setup);
    fs::write(mount.path("quiet"), "").unwrap();
    let file = File::open(mount.path("quiet")).unwrap();
    let writer = OpenOptions::new().write(true).open(mount.path("quiet")).unwrap();
    std::thread::scope(|scope| {
        let polled = scope.spawn(|| {
            let mut wanted = [rustix::event::PollFd::new(&file, rustix::event::PollFlags::IN)];
            rustix::event::poll(&mut wanted, Some(&rustix::event::Timespec { tv_sec: 60, tv_nsec: 0 })).unwrap()
        });
        wait_for("the poll's request", || mount.count("poll") > 0);
        writer.write_at(b"now", 0).unwrap();
        assert_eq!(mount.notify("wake quiet"), "done");
        assert_eq!(polled.join().unwrap(), 1);
    });
}

fn set_id_bits_are_dropped_by_the_file_system(setup: Setup) {
    let mount = Mount::new(setup);
    fs::write(mount.path("file"), "0123456789").unwrap();
    let path = mount.path("file");
    rustix::fs::chmod(&path, Mode::from_raw_mode(0o6777)).unwrap();
    let path = path.to_str().unwrap();
    let by_another = format!("import os; os.setuid(1234); os.truncate('{path}', 3)");
    assert!(std::process::Command::new("python3").args(["-c", &by_another]).status().unwrap().success());
    assert_eq!(fs::metadata(path).unwrap().mode() & 0o7777, 0o777);
}

fn a_group_of_the_caller_comes_with_a_new_file(setup: Setup) {
    let mount = Mount::new(setup);
    fs::create_dir(mount.path("dir")).unwrap();
    rustix::fs::chown(mount.path("dir"), None, Some(rustix::fs::Gid::from_raw(4321))).unwrap();
    rustix::fs::chmod(mount.path("dir"), Mode::from_raw_mode(0o2777)).unwrap();
    let path = mount.path("dir/new");
    let by_another =
        format!("import os; os.setgroups([4321]); os.setgid(99); os.setuid(1234); open('{}', 'w')", path.display());
    assert!(std::process::Command::new("python3").args(["-c", &by_another]).status().unwrap().success());
    assert_eq!(get_xattr(&path, "user.group").as_deref(), Some("4321"));
}

/// A clone of the mount in which the ids of the disk look like others.
fn the_mount_can_be_mapped_to_other_ids(setup: Setup) {
    let mount = Mount::new(setup);
    fs::write(mount.path("file"), "").unwrap();
    let mapped = tempfile::tempdir().unwrap();
    let script = format!(
        "import ctypes, os, struct, sys\n\
         libc = ctypes.CDLL(None, use_errno=True)\n\
         r, w = os.pipe()\n\
         there_r, there_w = os.pipe()\n\
         pid = os.fork()\n\
         if pid == 0:\n    os.close(w)\n    libc.unshare(0x10000000)\n    os.close(there_w)\n    os.read(r, 1)\n    os._exit(0)\n\
         os.close(there_w)\n\
         os.read(there_r, 1)\n\
         open(f'/proc/{{pid}}/uid_map', 'w').write('0 1000 10')\n\
         open(f'/proc/{{pid}}/gid_map', 'w').write('0 1000 10')\n\
         ns = os.open(f'/proc/{{pid}}/ns/user', os.O_RDONLY)\n\
         tree = libc.syscall(428, -100, b'{}', 1)\n\
         attr = struct.pack('QQQQ', 0x100000, 0, 0, ns)\n\
         done = libc.syscall(442, tree, b'', 0x1000, attr, 32)\n\
         if done: sys.exit(f'mount_setattr: {{os.strerror(ctypes.get_errno())}}')\n\
         if libc.syscall(429, tree, b'', -100, b'{}', 4): sys.exit('move_mount')\n\
         os.close(w)\n",
        mount.root().display(),
        mapped.path().display()
    );
    let status = std::process::Command::new("python3").args(["-c", &script]).status().unwrap();
    assert!(status.success());
    let found = fs::metadata(mapped.path().join("file"));
    let made = File::create(mapped.path().join("made"));
    let _ = rustix::mount::unmount(mapped.path(), rustix::mount::UnmountFlags::DETACH);
    assert_eq!(found.unwrap().uid(), 1000, "the owner 0 is shown as 1000");
    // A user that has no number in the mapping cannot own a file.
    assert_eq!(made.unwrap_err().raw_os_error(), Some(libc::EOVERFLOW));
}

fn an_open_file_is_passed_through(setup: Setup) {
    let mount = Mount::with_backing(setup, Some(b"from below"));
    fs::write(mount.path("other"), "").unwrap();
    let mut file =
        OpenOptions::new().read(true).write(true).create(true).truncate(false).open(mount.path("through")).unwrap();
    let mut text = [0; 10];
    assert_eq!(file.read_at(&mut text, 0).unwrap(), 10);
    assert_eq!(&text, b"from below");
    file.seek(SeekFrom::Start(5)).unwrap();
    file.write_all(b"above").unwrap();
    assert_eq!(fs::read_to_string(mount.file("backing")).unwrap(), "from above");
    assert_eq!(mount.count("read") + mount.count("write"), 0, "the kernel asked nobody");
}

fn a_backing_file_of_one_handle_goes_when_that_is_released(setup: Setup) {
    let mount = Mount::with_backing(setup, Some(b"from below"));
    for create in [true, false, false] {
        let file = OpenOptions::new().read(true).write(true).create(create).open(mount.path("through-each")).unwrap();
        let mut text = [0; 10];
        assert_eq!(file.read_at(&mut text, 0).unwrap(), 10);
        assert_eq!(&text, b"from below");
    }
}

fn absent_names_are_cached_until_the_kernel_is_notified(setup: Setup) {
    let mount = Mount::new(setup);
    let lookups = |mount: &Mount| {
        let before = mount.count("lookup");
        assert!(!mount.path("absent").exists());
        mount.count("lookup") - before
    };
    assert_eq!(lookups(&mount), 1);
    assert_eq!(lookups(&mount), 0);
    assert_eq!(mount.notify("inval_entry absent"), "done");
    assert_eq!(lookups(&mount), 1);
    assert_eq!(mount.notify("inc_epoch"), "done");
    assert_eq!(lookups(&mount), 1, "every name is asked for again");
}

fn notifications_arrive(setup: Setup) {
    let mount = Mount::new(setup);
    fs::write(mount.path("file"), "on disk").unwrap();
    let before = mount.count("lookup");
    assert_eq!(mount.notify("expire_entry file"), "done");
    assert!(mount.path("file").exists());
    assert_eq!(mount.count("lookup"), before + 1);
    assert_eq!(mount.notify("store file in-core"), "done");
    assert_eq!(fs::read_to_string(mount.path("file")).unwrap(), "in-core");
    assert_eq!(mount.notify("retrieve file"), "done");
    wait_for("the retrieved data", || {
        get_xattr(&mount.root(), "user.retrieved").is_some_and(|text| text.starts_with("in-core"))
    });
    assert_eq!(mount.notify("resend"), "done");
    let forgets = mount.path("pruned");
    fs::write(&forgets, "").unwrap();
    assert_eq!(mount.notify("prune pruned"), "done");
    assert!(forgets.exists());
    assert_eq!(mount.notify("delete file"), "done");
    let mut text = String::new();
    File::open(mount.path("pruned")).unwrap().read_to_string(&mut text).unwrap();
}
