//! Attributes: times, extended attributes, inode numbers, space.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, StatxFlags, Timespec, Timestamps, XattrFlags};
use rustix::io::Errno;

use crate::support::tree::{Times, entry};
use crate::support::{KIB, MIB, bytes, run};
use crate::{Data, Two};

fn birth(path: &Path) -> (i64, u32) {
    let stat =
        rustix::fs::statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BTIME | StatxFlags::BASIC_STATS).unwrap();
    assert!(stat.stx_mask & StatxFlags::BTIME.bits() != 0, "{} has a birth time", path.display());
    (stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec)
}

fn set_times(path: &Path, access: Timespec, modification: Timespec) -> Result<(), Errno> {
    let times = Timestamps { last_access: access, last_modification: modification };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)
}

/// What was written before they were set is written back after that.
#[test]
fn times_that_a_user_sets_survive_the_write_back_of_earlier_writes() {
    for data in [Data::Passthrough, Data::Mediated, Data::Staged, Data::Ordered, Data::Both] {
        let two = Two::new(data);
        for name in ["file", "file.b"] {
            two.same(&format!("{data:?}, {name}"), |root| {
                let path = root.join(name);
                let times = || fs::metadata(&path).map(|data| (data.atime(), data.mtime(), data.mtime_nsec())).unwrap();
                let mut seen = Vec::new();
                let mut open = File::create(&path).unwrap();
                for second in 1..4 {
                    // More than may be dirty where the write-back is ordered.
                    open.write_all(&bytes(second, 3 * MIB)).unwrap();
                    let time = Timespec { tv_sec: 1_000_000_000 + second.cast_signed(), tv_nsec: 7 };
                    set_times(&path, time, time).unwrap();
                    seen.push(times());
                    open.sync_all().unwrap();
                    seen.push(times());
                }
                open.write_all(b"last").unwrap();
                set_times(&path, Timespec { tv_sec: 5, tv_nsec: 0 }, Timespec { tv_sec: 6, tv_nsec: 0 }).unwrap();
                drop(open);
                // Staged files leave, and what a policy writes back is written within half of 30 seconds or when it is
                // asked for.
                std::thread::sleep(std::time::Duration::from_millis(200));
                File::open(&path).unwrap().sync_all().unwrap();
                seen.push(times());
                seen
            });
            two.settle_closed();
            let branch = if name == "file" { "a" } else { "b" };
            let kept = fs::metadata(two.on(branch, name)).unwrap();
            assert_eq!((kept.atime(), kept.mtime()), (5, 6), "{data:?}: {name} on its branch");
        }
    }
}

#[test]
fn the_birth_time_is_reported_and_survives_a_relocation_and_a_remount() {
    let mut two = Two::new(Data::Passthrough);
    fs::write(two.join("file"), "x").unwrap();
    let born = birth(&two.join("file"));
    assert!(born.0 > 1_500_000_000, "a birth time of today: {born:?}");
    std::thread::sleep(std::time::Duration::from_millis(20));
    fs::rename(two.join("file"), two.join("file.b")).unwrap();
    two.expect_on("b", "file.b");
    assert_eq!(birth(&two.join("file.b")), born, "after a relocation");
    two.pool.remount();
    assert_eq!(birth(&two.join("file.b")), born, "after a remount");
}

#[test]
fn times_are_kept_to_the_nanosecond() {
    let two = Two::new(Data::Passthrough);
    two.same("utimensat", |root| {
        let path = root.join("file.b");
        fs::write(&path, "x").unwrap();
        let at = |tv_sec, tv_nsec| Timespec { tv_sec, tv_nsec };
        [
            (at(1_234_567_890, 123_456_789), at(987_654_321, 1)),
            (at(0, 0), at(0, 999_999_999)),
            (at(-1_000_000, 5), at(4_000_000_000, 7)),
            (at(0, libc::UTIME_OMIT), at(77, 77)),
            (at(88, 88), at(0, libc::UTIME_OMIT)),
            (at(0, 1_000_000_000), at(0, 0)),
        ]
        .map(|(access, modification)| {
            let result = set_times(&path, access, modification).map_err(Errno::raw_os_error);
            let meta = fs::metadata(&path).unwrap();
            (result, meta.atime(), meta.atime_nsec(), meta.mtime(), meta.mtime_nsec())
        })
    });
}

#[test]
fn extended_attributes_do_what_they_do_on_ext4() {
    let two = Two::new(Data::Passthrough);
    for name in ["file", "file.b", "dir"] {
        two.same("extended attributes", |root| {
            let path = root.join(name);
            if name == "dir" {
                fs::create_dir(&path).unwrap();
            } else {
                fs::write(&path, "x").unwrap();
            }
            let set = |key: &str, value: &[u8], flags| {
                rustix::fs::setxattr(&path, key, value, flags).map_err(Errno::raw_os_error)
            };
            let get = |key: &str, room: usize| {
                let mut value = vec![0_u8; room];
                rustix::fs::getxattr(&path, key, &mut value[..])
                    .map(|n| value[..n].to_vec())
                    .map_err(Errno::raw_os_error)
            };
            let list = |room: usize| {
                let mut names = vec![0_u8; room];
                rustix::fs::listxattr(&path, &mut names[..])
                    .map(|n| names[..n].split(|byte| *byte == 0).map(<[u8]>::to_vec).collect::<BTreeSet<_>>())
                    .map_err(Errno::raw_os_error)
            };
            let none = XattrFlags::empty();
            let changed = [
                set("user.a", b"1", none),
                set("user.a", b"22", XattrFlags::CREATE),
                set("user.a", b"333", XattrFlags::REPLACE),
                set("user.b", b"x", XattrFlags::REPLACE),
                set("user.empty", b"", none),
                set("trusted.t", b"\0binary\xff", none),
                set("security.s", b"s", none),
                set("unknown.x", b"x", none),
                set("user.", b"x", none),
                set(&format!("user.{}", "n".repeat(250)), b"x", none),
                set(&format!("user.{}", "n".repeat(251)), b"x", none),
                set("user.too-large", &vec![1; 65_537], none),
            ];
            let read = [get("user.a", 100), get("user.a", 3), get("user.a", 2), get("user.a", 0), get("user.none", 10)];
            let more = [get("user.empty", 10), get("trusted.t", 100)];
            let listed = [list(4096), list(5), list(0)];
            let sizes = (
                rustix::fs::getxattr_query(&path, "user.a").map_err(Errno::raw_os_error),
                rustix::fs::listxattr_query(&path).map_err(Errno::raw_os_error),
            );
            let removed = ["user.a", "user.a", "trusted.t", "user.empty"]
                .map(|key| rustix::fs::removexattr(&path, key).map_err(Errno::raw_os_error));
            (changed, read, more, listed, sizes, removed, list(4096))
        });
    }
}

#[test]
fn a_symbolic_link_has_attributes_of_its_own() {
    let two = Two::new(Data::Passthrough);
    two.same("lsetxattr", |root| {
        let path = root.join("link.b");
        symlink("nowhere", &path).unwrap();
        let set = |key| rustix::fs::lsetxattr(&path, key, b"v", XattrFlags::empty()).map_err(Errno::raw_os_error);
        (set("user.a"), set("trusted.a"), crate::support::tree::xattrs(&path))
    });
}

/// Whatever a user can see of a file is the same before and after it moves.
#[test]
fn everything_about_a_file_survives_a_relocation() {
    let two = Two::new(Data::Passthrough);
    let path = two.join("file");
    fs::write(&path, bytes(1, 64 * KIB)).unwrap();
    let file = File::options().write(true).open(&path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"after a hole", 8 * MIB).unwrap();
    file.set_len(16 * MIB).unwrap();
    drop(file);
    chown(&path, Some(4711), Some(4712)).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4751)).unwrap();
    rustix::fs::setxattr(&path, "user.comment", b"kept \0 whole", XattrFlags::empty()).unwrap();
    rustix::fs::setxattr(&path, "trusted.t", b"t", XattrFlags::empty()).unwrap();
    run("setfacl", ["-m".as_ref(), "u:65534:r,g:5:rw".as_ref(), path.as_os_str()]);
    set_times(
        &path,
        Timespec { tv_sec: 1_111, tv_nsec: 222 },
        Timespec { tv_sec: 1_333_333_333, tv_nsec: 444_444_444 },
    )
    .unwrap();
    let before = (entry(&path, Times::Kept), fs::metadata(&path).unwrap().ino());
    let blocks = fs::metadata(&path).unwrap().blocks();

    set_times(&path, Timespec { tv_sec: 1_111, tv_nsec: 222 }, Timespec { tv_sec: 0, tv_nsec: libc::UTIME_OMIT })
        .unwrap();
    fs::rename(&path, two.join("file.b")).unwrap();
    two.expect_on("b", "file.b");
    let moved = two.join("file.b");
    let meta = fs::metadata(&moved).unwrap();
    assert_eq!((meta.atime(), meta.atime_nsec()), (1_111, 222), "the access time");
    assert_eq!((entry(&moved, Times::Kept), meta.ino()), before);
    assert!(meta.blocks() <= blocks + 64, "holes stay holes: {} blocks before, {} after", blocks, meta.blocks());
}

/// The same for what is not a regular file.
#[test]
fn links_pipes_and_devices_survive_a_relocation() {
    let two = Two::new(Data::Passthrough);
    symlink("some/where", two.join("link")).unwrap();
    let mode = nix::sys::stat::Mode::from_bits_truncate(0o640);
    nix::unistd::mkfifo(&two.join("pipe"), mode).unwrap();
    nix::sys::stat::mknod(&two.join("device"), nix::sys::stat::SFlag::S_IFCHR, mode, nix::sys::stat::makedev(1, 3))
        .unwrap();
    for name in ["link", "pipe", "device"] {
        let path = two.join(name);
        rustix::fs::chownat(
            CWD,
            &path,
            Some(rustix::fs::Uid::from_raw(4711)),
            Some(rustix::fs::Gid::from_raw(4712)),
            AtFlags::SYMLINK_NOFOLLOW,
        )
        .unwrap();
        set_times(&path, Timespec { tv_sec: 5, tv_nsec: 6 }, Timespec { tv_sec: 7, tv_nsec: 8 }).unwrap();
        let before = (entry(&path, Times::Kept), fs::symlink_metadata(&path).unwrap().ino());
        let target = format!("{name}.b");
        fs::rename(&path, two.join(&target)).unwrap();
        two.enforce();
        two.expect_on("b", &target);
        let after = (entry(&two.join(&target), Times::Kept), fs::symlink_metadata(two.join(&target)).unwrap().ino());
        assert_eq!(after, before, "{name}");
    }
}

#[test]
fn inode_numbers_are_unique_and_survive_relocations_and_remounts() {
    let mut two = Two::new(Data::Passthrough);
    fs::create_dir(two.join("dir")).unwrap();
    for i in 0..100 {
        fs::write(two.join(format!("{i}")), "").unwrap();
        fs::write(two.join(format!("dir/{i}.b")), "").unwrap();
    }
    let numbers = |two: &Two| -> BTreeMap<String, u64> {
        ["", "dir"]
            .iter()
            .flat_map(|dir| fs::read_dir(two.join(dir)).unwrap())
            .map(|entry| {
                let entry = entry.unwrap();
                let name = entry.file_name().into_string().unwrap();
                (
                    name.trim_end_matches(".b").to_owned() + if name.ends_with(".b") { " in dir" } else { "" },
                    entry.metadata().unwrap().ino(),
                )
            })
            .collect()
    };
    let before = numbers(&two);
    assert_eq!(before.len(), 201);
    assert_eq!(before.values().collect::<BTreeSet<_>>().len(), 201, "no number twice");
    let root = fs::metadata(two.mount_point()).unwrap().ino();

    two.pool.remount();
    assert_eq!(numbers(&two), before, "after a remount");
    assert_eq!(fs::metadata(two.mount_point()).unwrap().ino(), root);

    let of = |two: &Two, name: &str| fs::metadata(two.join(name)).unwrap().ino();
    let seven = of(&two, "7");
    fs::rename(two.join("7"), two.join("seven.b")).unwrap();
    two.expect_on("b", "seven.b");
    assert_eq!(of(&two, "seven.b"), seven, "after a relocation");
    two.pool.remount();
    assert_eq!(of(&two, "seven.b"), seven, "after a relocation and a remount");
    let numbers: BTreeSet<_> = numbers(&two).into_values().collect();
    assert_eq!(numbers.len(), 201, "no number twice after a relocation and a remount");
}

#[test]
fn statfs_adds_the_branches_up() {
    let two = Two::new(Data::Passthrough);
    fs::write(two.join("x"), bytes(1, MIB)).unwrap();
    File::open(two.join("x")).unwrap().sync_all().unwrap();
    let bytes_of = |path: &Path| {
        let stat = rustix::fs::statvfs(path).unwrap();
        (stat.f_blocks * stat.f_frsize, stat.f_bfree * stat.f_frsize, stat.f_files, stat.f_namemax)
    };
    let (a, b) = (bytes_of(&two.on("a", "")), bytes_of(&two.on("b", "")));
    let pool = bytes_of(&two.mount_point());
    let slack = 64 * KIB;
    assert!(pool.0.abs_diff(a.0 + b.0) <= slack, "size: {} is not {} + {}", pool.0, a.0, b.0);
    assert!(pool.1.abs_diff(a.1 + b.1) <= slack, "free: {} is not {} + {}", pool.1, a.1, b.1);
    assert_eq!((pool.2, pool.3), (a.2 + b.2, 255), "inodes and the longest name");
}

#[test]
fn the_change_time_moves_with_every_change() -> io::Result<()> {
    let two = Two::new(Data::Passthrough);
    let path = two.join("file.b");
    fs::write(&path, "x")?;
    let changed = || fs::metadata(&path).map(|meta| (meta.ctime(), meta.ctime_nsec()));
    let pause = || std::thread::sleep(std::time::Duration::from_millis(15));
    let mut last = changed()?;
    let mut check = |what: &str| -> io::Result<()> {
        let now = changed()?;
        assert!(now > last, "{what} moves the change time: {now:?} after {last:?}");
        last = now;
        pause();
        Ok(())
    };
    pause();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
    check("chmod")?;
    chown(&path, Some(1), Some(1))?;
    check("chown")?;
    fs::hard_link(&path, two.join("other.b"))?;
    check("link")?;
    fs::remove_file(two.join("other.b"))?;
    check("unlink of another name")?;
    rustix::fs::setxattr(&path, "user.x", b"x", XattrFlags::empty())?;
    check("setxattr")?;
    fs::write(&path, "y")?;
    check("write")?;
    Ok(())
}
