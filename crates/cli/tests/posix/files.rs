//! Open files: flags, appends, direct I/O, allocation, holes, mappings, locks.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use nix::fcntl::{FcntlArg, fcntl};
use rustix::fs::{AtFlags, CWD, FallocateFlags, FlockOperation, Mode, OFlags};

use crate::support::disk::Disk;
use crate::support::pool::Pool;
use crate::support::process::{Mapping, Process};
use crate::support::{KIB, MIB, assert_errno, bytes, errno, eventually, temp_dir};
use crate::{Data, Two};

fn open_rw(path: impl AsRef<Path>) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

fn in_both_modes(test: impl Fn(&Two)) {
    for data in Data::ALL {
        eprintln!("with {data:?} data");
        test(&Two::new(data));
    }
}

#[test]
fn a_program_that_runs_is_not_cut_by_an_open_that_is_refused() {
    in_both_modes(|two| {
        let program = two.join("sleep");
        fs::copy("/bin/sleep", &program).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let size = fs::metadata(&program).unwrap().len();
        let mut running = Command::new(&program).arg("60").spawn().unwrap();
        let truncating = OFlags::RDONLY | OFlags::TRUNC;
        let refused = rustix::fs::open(&program, truncating, Mode::empty()).map(|_| ());
        let died = running.try_wait().unwrap();
        running.kill().unwrap();
        running.wait().unwrap();
        assert_eq!(refused, Err(rustix::io::Errno::TXTBSY));
        assert_eq!(died, None, "it still ran");
        assert_eq!(fs::metadata(&program).unwrap().len(), size, "nothing was cut");
    });
}

#[test]
fn an_unnamed_file_gets_a_name_and_then_its_branch() {
    in_both_modes(|two| {
        let unnamed = rustix::fs::open(two.mount_point(), OFlags::TMPFILE | OFlags::RDWR, Mode::from(0o640)).unwrap();
        let mut unnamed = File::from(unnamed);
        unnamed.write_all(b"written before it had a name").unwrap();
        assert_eq!(unnamed.metadata().unwrap().nlink(), 0);
        assert_eq!(fs::read_dir(two.mount_point()).unwrap().count(), 0, "an unnamed file is not listed");
        let link = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&unnamed));
        rustix::fs::linkat(CWD, link, CWD, two.join("named.b"), AtFlags::SYMLINK_FOLLOW).unwrap();
        assert_eq!(unnamed.metadata().unwrap().nlink(), 1);
        assert_eq!(unnamed.metadata().unwrap().ino(), fs::metadata(two.join("named.b")).unwrap().ino());
        drop(unnamed);
        two.expect_on("b", "named.b");
        assert_eq!(fs::read(two.join("named.b")).unwrap(), b"written before it had a name");
    });
}

#[test]
fn an_unnamed_file_opened_exclusively_cannot_be_linked() {
    let two = Two::new(Data::Mediated);
    two.same("linkat of an O_TMPFILE | O_EXCL file", |root| {
        let flags = OFlags::TMPFILE | OFlags::EXCL | OFlags::RDWR;
        let unnamed = rustix::fs::open(root, flags, Mode::from(0o600)).unwrap();
        let link = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&unnamed));
        rustix::fs::linkat(CWD, link, CWD, root.join("x"), AtFlags::SYMLINK_FOLLOW)
            .err()
            .map(rustix::io::Errno::raw_os_error)
    });
}

#[test]
fn appends_from_two_handles_and_two_processes_never_overwrite_each_other() {
    in_both_modes(|two| {
        let path = two.join("log");
        let append = |path: &Path| OpenOptions::new().append(true).create(true).open(path).unwrap();
        let (mut one, mut other) = (append(&path), append(&path));
        one.write_all(b"1").unwrap();
        other.write_all(b"22").unwrap();
        one.write_all(b"333").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"122333");

        let mut child = Process::start(|_| {
            let Ok(mut file) = OpenOptions::new().append(true).open(&path) else { return 1 };
            u8::from((0..500).any(|_| file.write_all(b"cccccccccc").is_err()))
        });
        for _ in 0..500 {
            one.write_all(b"pppppppppp").unwrap();
        }
        assert_eq!(child.exit_code(), Some(0));
        let all = fs::read(&path).unwrap();
        assert_eq!(all.len(), 6 + 10_000, "no append is lost");
        assert!(all[6..].chunks(10).all(|chunk| chunk == b"cccccccccc" || chunk == b"pppppppppp"), "no append is torn");
    });
}

#[test]
fn direct_io_reads_and_writes_whole_blocks() {
    #[repr(align(4096))]
    struct Aligned([u8; 16384]);
    in_both_modes(|two| {
        let path = two.join("direct");
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .custom_flags(libc::O_DIRECT)
            .open(&path)
            .unwrap();
        let mut buffer = Box::new(Aligned([0; 16384]));
        buffer.0.copy_from_slice(&bytes(1, 16384));
        file.write_all(&buffer.0).unwrap();
        assert_eq!(fs::read(&path).unwrap(), bytes(1, 16384), "a cached reader sees what was written directly");
        open_rw(&path).write_all_at(&bytes(2, 4096), 4096).unwrap();
        file.seek(SeekFrom::Start(0)).unwrap();
        buffer.0.fill(0);
        file.read_exact(&mut buffer.0).unwrap();
        assert_eq!(buffer.0[4096..8192], bytes(2, 4096), "a direct reader sees what was written through the cache");
        assert_eq!(buffer.0[..4096], bytes(1, 16384)[..4096]);
    });
}

#[test]
fn fallocate_does_what_ext4_does() {
    let modes = [
        ("allocate", FallocateFlags::empty(), 0, 256 * KIB),
        ("allocate past the end", FallocateFlags::KEEP_SIZE, 256 * KIB, 128 * KIB),
        ("punch a hole", FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 32 * KIB, 64 * KIB),
        ("zero a range", FallocateFlags::ZERO_RANGE, 100 * KIB, 20 * KIB),
        ("zero past the end", FallocateFlags::ZERO_RANGE, 250 * KIB, 20 * KIB),
        ("zero, size kept", FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE, 260 * KIB, 20 * KIB),
        ("punch without keeping the size", FallocateFlags::PUNCH_HOLE, 0, 4 * KIB),
        ("no length", FallocateFlags::empty(), 0, 0),
    ];
    in_both_modes(|two| {
        for (what, mode, offset, length) in modes {
            two.same(what, |root| {
                let path = root.join("allocated");
                let file = open_rw(&path);
                file.set_len(0).unwrap();
                file.write_all_at(&bytes(3, 200 * KIB), 0).unwrap();
                file.sync_all().unwrap();
                let result =
                    rustix::fs::fallocate(&file, mode, offset, length).map_err(rustix::io::Errno::raw_os_error);
                file.sync_all().unwrap();
                let meta = file.metadata().unwrap();
                (result, meta.len(), meta.blocks(), fs::read(&path).unwrap())
            });
        }
    });
}

/// The kernel's FUSE client has no request for these two; what matters is that they fail cleanly.
#[test]
fn fallocate_modes_that_fuse_has_no_request_for_leave_the_file_as_it_was() {
    in_both_modes(|two| {
        let path = two.join("file");
        fs::write(&path, bytes(4, 64 * KIB)).unwrap();
        let file = open_rw(&path);
        for mode in [FallocateFlags::COLLAPSE_RANGE, FallocateFlags::INSERT_RANGE] {
            assert_errno(rustix::fs::fallocate(&file, mode, 0, 16 * KIB).map_err(io::Error::from), libc::EOPNOTSUPP);
        }
        assert_eq!(fs::read(&path).unwrap(), bytes(4, 64 * KIB));
    });
}

#[test]
fn holes_and_data_are_found_where_they_are() {
    in_both_modes(|two| {
        two.same("SEEK_DATA and SEEK_HOLE", |root| {
            let file = open_rw(root.join("sparse"));
            file.write_all_at(&[1; 4096], 0).unwrap();
            file.write_all_at(&[2; 4096], 128 * KIB).unwrap();
            file.set_len(MIB).unwrap();
            file.sync_all().unwrap();
            let seek = |to| rustix::fs::seek(&file, to).map_err(rustix::io::Errno::raw_os_error);
            let mut found = Vec::new();
            for at in [0, 4095, 4096, 64 * KIB, 128 * KIB, 132 * KIB, MIB - 1, MIB, 2 * MIB] {
                found.push((seek(rustix::fs::SeekFrom::Data(at)), seek(rustix::fs::SeekFrom::Hole(at))));
            }
            found
        });
    });
}

#[test]
fn copy_file_range_copies_within_and_across_branches() {
    in_both_modes(|two| {
        let data = bytes(5, 300 * KIB);
        fs::write(two.join("from"), &data).unwrap();
        for target in ["to", "to.b"] {
            let (from, to) = (open_rw(two.join("from")), open_rw(two.join(target)));
            let (mut at_from, mut at_to) = (100, 7);
            let mut left = 250 * KIB as usize;
            while left > 0 {
                let copied =
                    rustix::fs::copy_file_range(&from, Some(&mut at_from), &to, Some(&mut at_to), left).unwrap();
                assert!(copied > 0, "{target} is copied to its end");
                left -= copied;
            }
            let written = fs::read(two.join(target)).unwrap();
            assert_eq!(written[..7], [0; 7]);
            assert!(written[7..] == data[100..100 + 250 * KIB as usize], "{target} holds what was copied");
        }
    });
}

#[test]
fn an_unlinked_file_works_until_its_last_close() {
    in_both_modes(|two| {
        for name in ["gone", "gone.b"] {
            let path = two.join(name);
            let mut file = open_rw(&path);
            file.write_all(b"before").unwrap();
            let inode = file.metadata().unwrap().ino();
            fs::remove_file(&path).unwrap();
            assert!(!path.exists());
            file.write_all(b" after").unwrap();
            file.set_permissions(fs::Permissions::from_mode(0o604)).unwrap();
            rustix::fs::fsetxattr(&file, "user.late", b"x", rustix::fs::XattrFlags::empty()).unwrap();
            file.set_len(9).unwrap();
            let meta = file.metadata().unwrap();
            assert_eq!((meta.nlink(), meta.len(), meta.mode() & 0o777, meta.ino()), (0, 9, 0o604, inode));
            fs::write(&path, "another file of the same name").unwrap();
            let mut read = String::new();
            file.seek(SeekFrom::Start(0)).unwrap();
            file.read_to_string(&mut read).unwrap();
            assert_eq!(read, "before af");
            drop(file);
            assert_eq!(fs::read(&path).unwrap(), b"another file of the same name");
        }
    });
}

#[test]
fn a_file_renamed_while_open_keeps_working_and_moves_after_its_close() {
    in_both_modes(|two| {
        let mut file = open_rw(two.join("old"));
        file.write_all(b"one ").unwrap();
        fs::rename(two.join("old"), two.join("new.b")).unwrap();
        file.write_all(b"two").unwrap();
        assert_eq!(fs::read(two.join("new.b")).unwrap(), b"one two");
        assert_eq!(file.metadata().unwrap().ino(), fs::metadata(two.join("new.b")).unwrap().ino());
        drop(file);
        two.expect_on("b", "new.b");
        assert_eq!(fs::read(two.join("new.b")).unwrap(), b"one two");
    });
}

#[test]
fn a_file_stays_while_a_mapping_outlives_its_descriptor_and_moves_after_it() {
    in_both_modes(|two| {
        fs::write(two.join("mapped"), vec![b'-'; 8192]).unwrap();
        let file = open_rw(two.join("mapped"));
        let mut mapping = Mapping::new(&file, 8192).unwrap();
        mapping.close_file();
        drop(file);
        fs::rename(two.join("mapped"), two.join("mapped.b")).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(100));
        mapping.set(5000, b'x');
        mapping.sync().unwrap();
        let read = || fs::read(two.join("mapped.b")).unwrap()[5000];
        assert_eq!(read(), b'x', "what is written through the mapping is in the file");
        drop(mapping);
        two.expect_on("b", "mapped.b");
        assert_eq!(read(), b'x');
    });
}

#[test]
fn a_reader_continues_while_its_file_moves() {
    in_both_modes(|two| {
        let data = bytes(6, 2 * MIB);
        fs::write(two.join("movie"), &data).unwrap();
        let mut reader = File::open(two.join("movie")).unwrap();
        let mut read = vec![0; 4096];
        reader.read_exact(&mut read).unwrap();
        fs::rename(two.join("movie"), two.join("movie.b")).unwrap();
        two.settle();
        let mut rest = Vec::new();
        reader.read_to_end(&mut rest).unwrap();
        read.extend(rest);
        assert!(read == data, "the reader reads on");
        drop(reader);
        two.settle();
        assert!(fs::read(two.join("movie.b")).unwrap() == data);
    });
}

#[test]
fn shared_mappings_of_two_processes_and_plain_reads_see_each_other() {
    in_both_modes(|two| {
        let path = two.join("mapped");
        fs::write(&path, vec![0; 64 * 1024]).unwrap();
        let file = open_rw(&path);
        let mut here = Mapping::new(&file, 64 * 1024).unwrap();
        let mut child = Process::start(|parent| {
            let Ok(file) = OpenOptions::new().read(true).write(true).open(&path) else { return 1 };
            let Ok(mut there) = Mapping::new(&file, 64 * 1024) else { return 2 };
            parent.say(b'r');
            parent.hear();
            if there.get(5000) != 7 {
                return 3;
            }
            there.set(5001, 8);
            parent.say(b'w');
            parent.hear();
            if there.get(40_000) == 9 { 0 } else { 4 }
        });
        assert_eq!(child.hear(), Some(b'r'), "the child maps the file");
        here.set(5000, 7);
        child.say(b'g');
        assert_eq!(child.hear(), Some(b'w'), "the child sees the parent's byte: exit {:?}", child.exit_code());
        assert_eq!(here.get(5001), 8, "the parent sees the child's byte");
        let mut two_bytes = [0; 2];
        file.read_exact_at(&mut two_bytes, 5000).unwrap();
        assert_eq!(two_bytes, [7, 8], "read() sees what was written through a mapping");
        file.write_all_at(&[9], 40_000).unwrap();
        assert_eq!(here.get(40_000), 9, "a mapping sees what write() wrote");
        child.say(b'g');
        assert_eq!(child.exit_code(), Some(0));
        here.sync().unwrap();
        drop((here, file));
        let kept = fs::read(two.on("a", "mapped")).unwrap();
        assert_eq!((kept[5000], kept[5001], kept[40_000]), (7, 8, 9), "everything reached the branch");
    });
}

#[test]
fn flock_is_seen_by_other_processes() {
    in_both_modes(|two| {
        let path = two.join("locked");
        let file = open_rw(&path);
        let mut child = Process::start(|parent| {
            let Ok(file) = File::open(&path) else { return 1 };
            if rustix::fs::flock(&file, FlockOperation::LockExclusive).is_err() {
                return 2;
            }
            parent.say(b'l');
            parent.hear();
            0
        });
        assert_eq!(child.hear(), Some(b'l'));
        let try_lock = || rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared).map_err(io::Error::from);
        assert_errno(try_lock(), libc::EWOULDBLOCK);
        child.say(b'u');
        assert_eq!(child.exit_code(), Some(0));
        eventually("the end of a process frees its locks", || try_lock().is_ok());
    });
}

#[test]
fn record_locks_are_seen_by_other_processes() {
    fn range(kind: i32, start: i64, len: i64) -> libc::flock {
        libc::flock { l_type: kind as i16, l_whence: libc::SEEK_SET as i16, l_start: start, l_len: len, l_pid: 0 }
    }
    in_both_modes(|two| {
        let path = two.join("locked");
        fs::write(&path, [0; 100]).unwrap();
        let file = open_rw(&path);
        let mut child = Process::start(|parent| {
            let Ok(file) = OpenOptions::new().read(true).write(true).open(&path) else { return 1 };
            if fcntl(file.as_fd(), FcntlArg::F_SETLK(&range(libc::F_WRLCK, 10, 20))).is_err() {
                return 2;
            }
            parent.say(b'l');
            parent.hear();
            if fcntl(file.as_fd(), FcntlArg::F_SETLK(&range(libc::F_UNLCK, 10, 20))).is_err() {
                return 3;
            }
            parent.say(b'u');
            parent.hear();
            0
        });
        assert_eq!(child.hear(), Some(b'l'));
        let lock = |start, len| fcntl(file.as_fd(), FcntlArg::F_SETLK(&range(libc::F_WRLCK, start, len)));
        assert_eq!(lock(15, 1), Err(nix::errno::Errno::EAGAIN));
        assert!(lock(0, 10).is_ok(), "bytes that are not locked can be locked");
        let mut asked = range(libc::F_WRLCK, 0, 100);
        fcntl(file.as_fd(), FcntlArg::F_GETLK(&mut asked)).unwrap();
        assert_eq!(
            (i32::from(asked.l_type), asked.l_start, asked.l_len),
            (libc::F_WRLCK, 10, 20),
            "F_GETLK says what is locked"
        );
        child.say(b'u');
        assert_eq!(child.hear(), Some(b'u'));
        assert!(lock(15, 1).is_ok(), "what was unlocked can be locked");
        child.say(b'e');
        assert_eq!(child.exit_code(), Some(0));
    });
}

/// POSIX: closing any descriptor of a file drops the process's record locks on it.
#[test]
fn a_close_drops_the_record_locks_of_its_process() {
    in_both_modes(|two| {
        let path = two.join("locked");
        fs::write(&path, [0; 100]).unwrap();
        let whole = libc::flock {
            l_type: libc::F_WRLCK as i16,
            l_whence: libc::SEEK_SET as i16,
            l_start: 0,
            l_len: 0,
            l_pid: 0,
        };
        let mut child = Process::start(|parent| {
            let open = || OpenOptions::new().read(true).write(true).open(&path);
            let (Ok(locked), Ok(other)) = (open(), open()) else { return 1 };
            if fcntl(locked.as_fd(), FcntlArg::F_SETLK(&whole)).is_err() {
                return 2;
            }
            drop(other);
            parent.say(b'c');
            parent.hear();
            0
        });
        assert_eq!(child.hear(), Some(b'c'));
        let file = open_rw(&path);
        assert!(fcntl(file.as_fd(), FcntlArg::F_SETLK(&whole)).is_ok(), "the lock went with the close");
        child.say(b'e');
        assert_eq!(child.exit_code(), Some(0));
    });
}

#[test]
fn truncating_and_growing_shows_zeros_in_between() {
    in_both_modes(|two| {
        two.same("truncate and grow", |root| {
            let path = root.join("file");
            let file = open_rw(&path);
            file.write_all_at(&bytes(7, 10_000), 0).unwrap();
            file.set_len(5_001).unwrap();
            file.set_len(12_345).unwrap();
            file.write_all_at(b"far", 50_000).unwrap();
            fs::read(&path).unwrap()
        });
    });
}

#[test]
fn programs_on_the_mount_run() {
    in_both_modes(|two| {
        for name in ["true", "true.b"] {
            fs::copy("/bin/true", two.join(name)).unwrap();
            two.settle();
            assert!(Command::new(two.join(name)).status().unwrap().success(), "{name} runs");
        }
        let _running = open_rw(two.join("true"));
        let refused = Command::new(two.join("true")).status();
        assert_eq!(errno(&refused), libc::ETXTBSY, "a program that is open for writing does not run");
    });
}

#[test]
fn fsync_of_files_and_directories_succeeds() {
    in_both_modes(|two| {
        fs::create_dir(two.join("dir")).unwrap();
        let file = open_rw(two.join("dir/file"));
        file.sync_all().unwrap();
        file.sync_data().unwrap();
        File::open(two.join("dir")).unwrap().sync_all().expect("fsync of a directory");
        rustix::fs::syncfs(&file).unwrap();
    });
}

#[test]
fn sockets_and_pipes_on_the_mount_connect_processes() {
    let two = Two::new(Data::Mediated);
    let listener = std::os::unix::net::UnixListener::bind(two.join("socket")).unwrap();
    let mut client = std::os::unix::net::UnixStream::connect(two.join("socket")).unwrap();
    client.write_all(b"hello").unwrap();
    drop(client);
    let mut heard = String::new();
    listener.accept().unwrap().0.read_to_string(&mut heard).unwrap();
    assert_eq!(heard, "hello");

    let pipe = two.join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
    let mut child = Process::start(|_| u8::from(fs::write(&pipe, b"through").is_err()));
    assert_eq!(fs::read(&pipe).unwrap(), b"through");
    assert_eq!(child.exit_code(), Some(0));
}

/// Modification and status change.
fn change_times(meta: &fs::Metadata) -> [(i64, i64); 2] {
    [(meta.mtime(), meta.mtime_nsec()), (meta.ctime(), meta.ctime_nsec())]
}

#[test]
fn a_store_through_a_mapping_is_seen_in_the_times() {
    in_both_modes(|two| {
        for name in ["mapped", "mapped.b"] {
            two.same("which times change at a store", |root| {
                let path = root.join(name);
                fs::write(&path, vec![b'x'; 8192]).unwrap();
                // Another open than the one that is mapped, and the name: all get the same answer.
                let reader = File::open(&path).unwrap();
                let file = open_rw(&path);
                let look =
                    || [file.metadata(), reader.metadata(), fs::metadata(&path)].map(|it| change_times(&it.unwrap()));
                let mut mapping = Mapping::new(&file, 8192).unwrap();
                let mut seen = vec![look()];
                for value in 0..3 {
                    std::thread::sleep(Duration::from_millis(15));
                    mapping.set(usize::from(value) * 17, value);
                    mapping.sync().unwrap();
                    file.sync_all().unwrap();
                    seen.push(look());
                }
                // Read and written once more, so that the kernel has every reason to believe what it knows.
                (&file).read_exact(&mut [0; 16]).unwrap();
                drop(file);
                mapping.close_file();
                std::thread::sleep(Duration::from_millis(15));
                mapping.set(4097, 9);
                mapping.sync().unwrap();
                let by_name = || change_times(&fs::metadata(&path).unwrap());
                let outlived = by_name();
                std::thread::sleep(Duration::from_millis(15));
                mapping.set(5000, 10);
                drop(mapping);
                let after = by_name();
                for all in &seen {
                    assert!(all.iter().all(|one| *one == all[0]), "{all:?}");
                }
                let all = seen.iter().map(|all| all[0]).chain([outlived, after]).collect::<Vec<_>>();
                all.windows(2).map(|pair| [0, 1].map(|time| pair[0][time] < pair[1][time])).collect::<Vec<_>>()
            });
        }
    });
}

#[test]
fn a_store_through_a_mapping_of_a_file_that_was_just_made_is_seen_in_the_times() {
    const LENGTH: usize = 8192;
    type Grow = dyn Fn(&File, &Path);
    let grow: [(&str, &Grow); 4] = [
        ("length", &|file, _| file.set_len(LENGTH as u64).unwrap()),
        ("write", &|file, _| file.write_all_at(&[b'x'; LENGTH], 0).unwrap()),
        ("room", &|file, _| {
            rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, LENGTH as u64).unwrap();
        }),
        ("copy", &|file, source| {
            let copied = rustix::fs::copy_file_range(File::open(source).unwrap(), None, file, None, LENGTH);
            assert_eq!(copied, Ok(LENGTH));
        }),
    ];
    in_both_modes(|two| {
        for (how, grow) in grow {
            for looks_before in [true, false] {
                two.same(&format!("grown by {how}, looked at before: {looks_before}"), |root| {
                    let (path, source) = (root.join(how), root.join("source"));
                    fs::write(&source, [b'y'; LENGTH]).unwrap();
                    let _ = fs::remove_file(&path);
                    let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
                    let look = || change_times(&fs::metadata(&path).unwrap());
                    let empty = look();
                    std::thread::sleep(Duration::from_millis(15));
                    grow(&file, &source);
                    let grown = if looks_before { look() } else { empty };
                    let mut mapping = Mapping::new(&file, LENGTH).unwrap();
                    std::thread::sleep(Duration::from_millis(15));
                    mapping.set(5000, 1);
                    mapping.sync().unwrap();
                    let stored = look();
                    [(empty, grown), (grown, stored)].map(|(old, new)| [0, 1].map(|time| old[time] < new[time]))
                });
            }
        }
    });
}

#[test]
fn attributes_of_a_file_that_is_mapped_no_more_are_kept_by_the_kernel_again() {
    const LOOKS: usize = 100;
    let (disk, dir) = (Disk::ext4(64 * MIB), temp_dir("trace"));
    let trace = dir.path().join("trace");
    let pool = Pool::builder()
        .branch_with("a", disk.path(), &Data::Passthrough.keys())
        .mount_args(["--trace-requests".into(), trace.clone()])
        .mount();
    let path = pool.join("file");
    fs::write(&path, [0; 4096]).unwrap();
    // How often the daemon is asked: the trace has what came before the lookup of a name that nobody asked for before.
    let lines = || fs::read_to_string(&trace).unwrap();
    let mut marks = 0;
    let mut mark = || {
        marks += 1;
        let name = format!("name=\"mark-{marks}\"");
        fs::metadata(pool.join(format!("mark-{marks}"))).unwrap_err();
        eventually("the trace continues", || lines().contains(&name));
        lines().find(&name).unwrap()
    };
    let mut asked = || {
        let begin = mark();
        for _ in 0..LOOKS {
            fs::metadata(&path).unwrap();
        }
        let end = mark();
        let text = lines();
        text[begin..end].lines().filter(|line| line.contains(" getattr ") || line.contains(" statx ")).count()
    };
    let file = open_rw(&path);
    let mapping = Mapping::new(&file, 4096).unwrap();
    assert!(asked() >= LOOKS, "the daemon is asked while it is mapped");
    drop((file, mapping));
    eventually("the kernel answers by itself", || asked() < LOOKS / 2);
}
